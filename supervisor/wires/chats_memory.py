"""What a chat's thread looked like so far: its items, in the order they appeared in.

Pure: `remember` answers the next memory. Clients put a new item at the end of their
thread, so the order in which items appear is the thread's: an approval asked for late
stands behind what was said meanwhile, though its tool call stands before. A memory made
anew (after a restart) has the state's own order: the parts' in their turn. What the
state has let go of (the rule an answered approval could have granted, when a stretch of
thinking ended) is kept in the items.
"""

from collections.abc import Iterable, Mapping
from itertools import chain
from types import MappingProxyType
from typing import Any, Final

from attrs import field, frozen

from ...contracts.chats import ChatItem
from .chats_calls import subagent_content
from .chats_items import head_items, part_items
from .chats_places import Place, Sight, TurnExtras
from .chats_words import prose

Json = dict[str, Any]

_NO_EXTRAS: Final = TurnExtras()
_NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})


@frozen(kw_only=True)
class _SeenPart:
    """A part and the items that were made of it, with what they were made of beside it."""

    part: Any
    is_open: bool
    running: bool
    subagent: Json | None
    items: tuple[ChatItem, ...]


@frozen(kw_only=True)
class _SeenTurn:
    """A turn as it was last seen, and its items in the order they appeared in."""

    turn: Json
    running: bool
    nth: int
    extras: TurnExtras
    head: tuple[ChatItem, ...]
    parts: tuple[_SeenPart, ...]
    items: tuple[ChatItem, ...]
    delegates: bool
    """Whether any of its calls opened a subagent's chat."""

    def is_of(self, sight: Sight) -> bool:
        """Whether nothing that its items are made of is other now."""
        return (
            self.turn is sight.turn
            and self.running == sight.running
            and self.nth == sight.nth
            and self.extras == sight.extras
            and (not self.delegates or self._subagents_are(sight.subagents))
        )

    def head_differs(self, sight: Sight) -> bool:
        """Whether the turn's own item and its message are to be made again.

        While a turn runs neither depends on its parts.
        """
        both_run = self.running and sight.running and self.extras == sight.extras
        return not both_run or any(
            self.turn.get(name) is not sight.turn.get(name)
            for name in ("message", "usage", "startedAt")
        )

    def _subagents_are(self, subagents: Mapping[str, Json]) -> bool:
        return all(part.subagent is _subagent_of(part.part, subagents) for part in self.parts)


@frozen(kw_only=True)
class Memory:
    """What a chat's thread looked like so far. Begins empty; `remember` goes on from it.

    One a chat, whoever is attached. Holds the items, so it grows with the thread.
    """

    turns: tuple[_SeenTurn, ...] = ()
    queued_ms: Mapping[str, float] = field(factory=dict)
    """When each waiting message appeared."""
    began: bool = False

    @property
    def items(self) -> tuple[ChatItem, ...]:
        """The thread, in the order in which its items appeared."""
        return tuple(chain.from_iterable(turn.items for turn in self.turns))


def remember(
    memory: Memory,
    chat_state: Json,
    *,
    at_ms: float,
    subagents: Mapping[str, Json] = _NOTHING,
    extras: Mapping[str, TurnExtras] = _NOTHING,
) -> Memory:
    """The memory after the chat was seen in this state.

    What did not change is not made again: a state's parts are shared from one to the
    next, and so are their items.

    Args:
        at_ms: the time now, in milliseconds since the epoch.
        subagents: the states of the subagent chats that this chat's agent opened, by URI.
        extras: what the host knows of a turn beside its state, by turn id.
    """
    origin = chat_state.get("origin")
    opened_by_tool = isinstance(origin, dict) and origin.get("kind") == "tool"
    now = at_ms if memory.began else None
    counts: dict[str, int] = {}
    seen = []
    for index, (turn, running) in enumerate(turns_of(chat_state)):
        ident = str(turn.get("id"))
        counts[ident] = nth = counts.get(ident, -1) + 1
        sight = Sight(
            turn=turn,
            running=running,
            nth=nth,
            at_ms=now,
            opened_by_tool=opened_by_tool,
            subagents=subagents,
            extras=extras.get(ident, _NO_EXTRAS),
        )
        held = memory.turns[index] if index < len(memory.turns) else None
        seen.append(_seen(sight, held))
    waiting = {one["id"]: at_ms for one in waiting_in(chat_state)}
    return Memory(
        turns=tuple(seen),
        queued_ms={ident: memory.queued_ms.get(ident, ms) for ident, ms in waiting.items()},
        began=True,
    )


def turns_of(chat_state: Json) -> Iterable[tuple[Json, bool]]:
    """The turns of a chat, oldest first, and whether each is the one that runs."""
    for turn in chat_state.get("turns", ()):
        if isinstance(turn, dict):
            yield turn, False
    active = chat_state.get("activeTurn")
    if isinstance(active, dict):
        yield active, True


def waiting_in(chat_state: Json) -> list[Json]:
    """The messages that wait their turn, the one steered before those queued."""
    steered, queued = chat_state.get("steeringMessage"), chat_state.get("queuedMessages")
    found = [steered, *(queued if isinstance(queued, list) else ())]
    return [one for one in found if isinstance(one, dict) and prose(one.get("id"))]


def _seen(sight: Sight, held: _SeenTurn | None) -> _SeenTurn:
    if held is not None and (held.turn.get("id"), held.nth) != (sight.turn.get("id"), sight.nth):
        held = None
    if held is not None and held.is_of(sight):
        return held
    raw = sight.turn.get("responseParts")
    raw = raw if isinstance(raw, list) else []
    before = held.parts if held is not None else ()
    parts = tuple(
        _seen_part(
            part,
            sight,
            number,
            is_open=sight.running and number == len(raw) - 1,
            held=before[number] if number < len(before) else None,
        )
        for number, part in enumerate(raw)
    )
    head = head_items(sight) if held is None or held.head_differs(sight) else held.head
    made = {item.id: item for item in chain(head, *(part.items for part in parts))}
    order = [item.id for item in held.items if item.id in made] if held is not None else []
    items = (made.pop(ident) for ident in order)
    return _SeenTurn(
        turn=sight.turn,
        running=sight.running,
        nth=sight.nth,
        extras=sight.extras,
        head=head,
        parts=parts,
        items=(*items, *made.values()),
        delegates=any(subagent_content(_call_of(part)) is not None for part in raw),
    )


def _seen_part(
    part: Any, sight: Sight, number: int, *, is_open: bool, held: _SeenPart | None
) -> _SeenPart:
    subagent = _subagent_of(part, sight.subagents)
    if (
        held is not None
        and held.part is part
        and (held.is_open, held.running) == (is_open, sight.running)
        and held.subagent is subagent
    ):
        return held
    told = {item.id: item for item in held.items} if held is not None else {}
    place = Place(sight=sight, number=number, is_open=is_open, held=told)
    return _SeenPart(
        part=part,
        is_open=is_open,
        running=sight.running,
        subagent=subagent,
        items=part_items(part, place),
    )


def _call_of(part: Any) -> Mapping[str, Any]:
    call = part.get("toolCall") if isinstance(part, dict) else None
    return call if isinstance(call, dict) else _NOTHING


def _subagent_of(part: Any, subagents: Mapping[str, Json]) -> Json | None:
    content = subagent_content(_call_of(part))
    return None if content is None else subagents.get(prose(content.get("resource")))
