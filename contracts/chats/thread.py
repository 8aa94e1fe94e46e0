"""A thread as a client holds it: the info and the items, and what each event does to them.

Pure, and the same for every client and for the host's own tests: a thread that
applied each event of a chat equals the one a fresh `chat.attach` answers.
"""

from typing import Any

import attrs
from attrs import frozen

from .events import ChatEvent, DeltaEvent, InfoEvent, ItemEvent, ResetEvent
from .infos import ChatInfo
from .items import AssistantItem, ChatItem, ThinkingItem, ToolItem, ToolProgress


@frozen(kw_only=True)
class Thread:
    """A chat as one client knows it; `items` are in the order they appeared in."""

    info: ChatInfo
    items: tuple[ChatItem, ...] = ()

    def apply(self, event: ChatEvent) -> "Thread":
        """The thread after an event. An item that is new goes to the end.

        A delta for an item that is not there, or takes no text, changes nothing.
        """
        match event:
            case ItemEvent():
                return attrs.evolve(self, items=_with_item(self.items, event.item))
            case DeltaEvent():
                return attrs.evolve(self, items=_with_text(self.items, event))
            case InfoEvent():
                return attrs.evolve(self, info=event.info)
            case ResetEvent():
                return Thread(info=event.info, items=event.items)


def grown(item: ChatItem, text: str) -> ChatItem | None:
    """The item with text appended: a reply, a thought, or a running tool's output; None: it
    takes none."""
    match item:
        case AssistantItem() | ThinkingItem():
            return attrs.evolve(item, text=item.text + text)
        case ToolItem(state="running"):
            held = item.progress or ToolProgress(started_at=None, description=None, output=None)
            progress = attrs.evolve(held, output=(held.output or "") + text)
            return attrs.evolve(item, progress=progress)
        case _:
            return None


def _with_item(items: tuple[ChatItem, ...], item: ChatItem) -> tuple[ChatItem, ...]:
    index = _index_of(items, item.id)
    if index is None:
        return (*items, item)
    return (*items[:index], item, *items[index + 1 :])


def _with_text(items: tuple[ChatItem, ...], event: DeltaEvent) -> tuple[ChatItem, ...]:
    index = _index_of(items, event.item_id)
    after: Any = None if index is None else grown(items[index], event.text)
    if index is None or after is None:
        return items
    return (*items[:index], after, *items[index + 1 :])


def _index_of(items: tuple[ChatItem, ...], item_id: str) -> int | None:
    # From the end: what changes is nearly always among the newest.
    for index in range(len(items) - 1, -1, -1):
        if items[index].id == item_id:
            return index
    return None
