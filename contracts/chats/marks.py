"""What hangs beside a thread: bookmarks on its messages, and the visuals agents publish."""

from typing import Annotated

from attrs import frozen

from .items import AssistantItem, UserItem
from .limits import BOOKMARK_LIMITS
from .shape import Between, Count, Length, NonEmpty, NotNegative, Shape
from .text import clip_text, is_blank

BookmarkName = Annotated[str, Length(0, BOOKMARK_LIMITS.name)]

_Positive = Annotated[float, Between(above=0)]


@frozen(kw_only=True)
class Bookmark(Shape):
    """A message that a person wants to come back to; it hangs on the item's id."""

    item_id: NonEmpty
    excerpt: Annotated[str, Length(0, BOOKMARK_LIMITS.excerpt)]
    created_at: float
    name: BookmarkName | None = None


Bookmarks = tuple[Bookmark, ...]


@frozen(kw_only=True)
class Visual(Shape):
    """A page that an agent published, shown in the thread at `at`.

    `heights` are `(width, height)` of the page as measured, in CSS pixels and
    ascending by width; `size` is in bytes.
    """

    id: NonEmpty
    title: NonEmpty
    at: float
    max_height: _Positive
    size: Count
    heights: tuple[tuple[_Positive, NotNegative], ...] | None = None
    turn_id: NonEmpty | None = None


Visuals = tuple[Visual, ...]


def excerpt_of(item: UserItem | AssistantItem) -> str:
    """The start of a message on one line; a message of attachments alone is their names."""
    text = item.text
    if is_blank(text) and isinstance(item, UserItem):
        text = ", ".join(attachment.name for attachment in item.attachments or ())
    # A line of whole clusters: white space is folded before the cut, and no more of a
    # long message than can be seen of it.
    return clip_text(
        " ".join(text[: 16 * BOOKMARK_LIMITS.excerpt].split()), BOOKMARK_LIMITS.excerpt
    )
