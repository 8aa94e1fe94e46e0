"""What happens to a chat that is attached, and what is told to every client."""

from typing import Annotated, Literal, TypeAlias

from attrs import frozen

from .infos import ChatInfo
from .items import ChatItem
from .marks import Bookmarks, Visuals
from .names import ChatId
from .shape import MAX_SAFE_INTEGER, Between, Count, Shape

Seq = Annotated[int, Between(1, MAX_SAFE_INTEGER)]


@frozen(kw_only=True)
class ItemEvent(Shape):
    """Inserts the item, or replaces the one of its id; `history_index` is its place in the
    whole thread, for a client that holds a page of it."""

    type: Literal["item"] = "item"
    item: ChatItem
    history_index: Count | None = None


@frozen(kw_only=True)
class DeltaEvent(Shape):
    """Appends text to an item: a reply, a thought, or the output of a running tool."""

    type: Literal["delta"] = "delta"
    item_id: str
    text: str
    text_length: Count | None = None


@frozen(kw_only=True)
class InfoEvent(Shape):
    """Replaces the chat's info."""

    type: Literal["info"] = "info"
    info: ChatInfo


@frozen(kw_only=True)
class ResetEvent(Shape):
    """Replaces the info and the whole thread."""

    type: Literal["reset"] = "reset"
    info: ChatInfo
    items: tuple[ChatItem, ...]


ChatEvent: TypeAlias = ItemEvent | DeltaEvent | InfoEvent | ResetEvent


@frozen(kw_only=True)
class ChatEventEnvelope(Shape):
    """`chat.event`: to clients attached to that chat. `seq` is what `since` takes later."""

    chat_id: ChatId
    event: ChatEvent
    seq: Seq | None = None


@frozen(kw_only=True)
class ChatStatusEvent(Shape):
    """`chat.status`: to every client, attached or not."""

    chat_id: ChatId
    info: ChatInfo


@frozen(kw_only=True)
class ChatSubagentChangedEvent(Shape):
    """`chat.subagentChanged`: to clients that watch that subagent; they read its page again."""

    chat_id: ChatId
    tool_use_id: str


@frozen(kw_only=True)
class ChatBookmarksEvent(Shape):
    """`chat.bookmarks`: the whole list, to clients attached."""

    chat_id: ChatId
    bookmarks: Bookmarks


@frozen(kw_only=True)
class ChatVisualsEvent(Shape):
    """`chat.visuals`: the whole list, to clients attached."""

    chat_id: ChatId
    visuals: Visuals
