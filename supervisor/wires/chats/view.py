"""A chat of AHP's model as `/chats` shows it: its thread, and the events between two of them.

Pure: no clock, no I/O, and nothing kept but what is handed in and answered back. The
states are the host's, reduced; what stands in no state is in `Facts`. The law is that a
client which applies the events from one thread to the next holds the next:

    memory = remember(memory, chat_state, at_ms=now)
    after = thread_of(chat_state, session_state, facts, memory)
    for event in events_between(before, after): send(event)

Only a thread that lost items, or whose items stand otherwise than they did, is a
`reset`. The modules beside this one (`memory`, `info`, `items`,
`calls`, `places`, `messages`, `words`) say in their first lines
what was decided where the contracts leave it open.
"""

from collections.abc import Iterable, Sequence
from itertools import compress, count
from operator import is_not
from typing import Any

from ....contracts.chats import (
    AssistantItem,
    ChatEvent,
    ChatInfo,
    ChatItem,
    DeltaEvent,
    InfoEvent,
    ItemEvent,
    ResetEvent,
    ThinkingItem,
    Thread,
    ToolItem,
    is_pending,
    write,
)
from ....contracts.chats.limits import HISTORY_PAGE_BYTES, HISTORY_PAGE_ITEMS
from ....contracts.chats.thread import grown
from ....contracts.json import encode_json
from .info import Facts, info_of
from .memory import Memory, remember
from .places import TurnExtras

__all__ = [
    "Facts",
    "Memory",
    "TurnExtras",
    "events_between",
    "info_of",
    "is_status_news",
    "items_of",
    "page_start",
    "pending_of",
    "remember",
    "thread_of",
]

Json = dict[str, Any]


def items_of(chat_state: Json, memory: Memory) -> tuple[ChatItem, ...]:
    """The thread of a chat that `remember` has seen in this very state."""
    return memory.items


def pending_of(items: Iterable[ChatItem]) -> tuple[ChatItem, ...]:
    """Every item that waits on a person, in the thread's order."""
    return tuple(filter(is_pending, items))


def page_start(
    items: Sequence[ChatItem],
    end: int,
    limit: int = HISTORY_PAGE_ITEMS,
    max_bytes: int = HISTORY_PAGE_BYTES,
) -> int:
    """Where the page that ends before `end` begins: at most so many items and bytes of JSON.

    Its last item always goes, however large it is.
    """
    start, room = min(end, len(items)), max_bytes
    while start > 0 and end - start < limit:
        room -= len(encode_json(write(items[start - 1])))
        if room < 0 and start < end:
            break
        start -= 1
    return start


def thread_of(chat_state: Json, session_state: Json, facts: Facts, memory: Memory) -> Thread:
    """The chat as a client that attaches now holds it."""
    return Thread(
        info=info_of(chat_state, session_state, facts, memory),
        items=items_of(chat_state, memory),
    )


def events_between(before: Thread, after: Thread) -> list[ChatEvent]:
    """What a client that holds `before` has to hear to hold `after`: items, then the info.

    Empty when they are the same. Costs a look at every item, and no more than its
    identity where nothing changed.
    """
    held = len(before.items)
    if len(after.items) < held:
        return [ResetEvent(info=after.info, items=after.items)]
    events: list[ChatEvent] = []
    # Nearly all items are the very same: those are passed over without a step of ours each.
    for index in compress(count(), map(is_not, before.items, after.items)):
        old, item = before.items[index], after.items[index]
        if old.id != item.id:
            return [ResetEvent(info=after.info, items=after.items)]
        if old != item:
            events.append(_change(old, item, index))
    for index in range(held, len(after.items)):
        events.append(ItemEvent(item=after.items[index], history_index=index))
    if before.info != after.info:
        events.append(InfoEvent(info=after.info))
    return events


def _change(old: ChatItem, item: ChatItem, index: int) -> ChatEvent:
    """A delta where text was appended and nothing else changed; else the whole item."""
    was, text = _text_of(old), _text_of(item)
    if was is not None and text is not None and len(text) > len(was) and text.startswith(was):
        added = text[len(was) :]
        if grown(old, added) == item:
            return DeltaEvent(item_id=item.id, text=added)
    return ItemEvent(item=item, history_index=index)


def _text_of(item: ChatItem) -> str | None:
    """The text that a delta would append to."""
    match item:
        case AssistantItem() | ThinkingItem():
            return item.text
        case ToolItem(state="running", progress=progress):
            return "" if progress is None else progress.output or ""
        case _:
            return None


def is_status_news(before: ChatInfo, after: ChatInfo) -> bool:
    """Whether every client is told (`chat.status`), and not only those attached."""
    return any(
        getattr(before, name) != getattr(after, name)
        for name in ("status", "running", "limit", "resume_at", "delegating", "requests")
    )
