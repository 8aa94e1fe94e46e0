"""What a chat's thread looked like so far: its items, in the order they appeared in.

Pure: `remember` answers the next memory. Clients put a new item at the end of their
thread, so the order in which items appear is the thread's: an approval asked for late
stands behind what was said meanwhile, though its tool call stands before. A memory made
anew (after a restart) has the state's own order: the parts' in their turn. What the
state has let go of (the rule an answered approval could have granted, when a stretch of
thinking ended) is kept in the items.
"""

from collections.abc import Mapping
from itertools import chain, zip_longest
from types import MappingProxyType
from typing import Any, Final

from attrs import field, frozen

from ....contracts.chats import ChatItem
from .calls import subagent_content
from .items import cost_of, head_items, part_items, usage_in
from .places import Place, Sight, TurnExtras
from .words import prose

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
class _Ended:
    """The turns that are over, and what they were made of: while that is the very same,
    so is everything here."""

    turns: Any = None
    subagents: Mapping[str, Json] = _NOTHING
    extras: Mapping[str, TurnExtras] = _NOTHING
    seen: tuple[_SeenTurn, ...] = ()
    items: tuple[ChatItem, ...] = ()
    counts: Mapping[str, int] = _NOTHING
    """How many turns there were of each id."""
    spent_usd: float = 0
    last_usage: Mapping[str, Any] = _NOTHING
    """The usage that was told last."""

    def is_of(
        self, turns: Any, subagents: Mapping[str, Json], extras: Mapping[str, TurnExtras]
    ) -> bool:
        return self.turns is turns and self.subagents is subagents and self.extras is extras


@frozen(kw_only=True)
class Memory:
    """What a chat's thread looked like so far. Begins empty; `remember` goes on from it.

    One a chat, whoever is attached. Holds the items, so it grows with the thread.
    """

    ended: _Ended = field(factory=_Ended)
    active: _SeenTurn | None = None
    queued_ms: Mapping[str, float] = field(factory=dict)
    """When each waiting message appeared."""
    began: bool = False

    @property
    def turns(self) -> tuple[_SeenTurn, ...]:
        """Every turn, oldest first."""
        return self.ended.seen if self.active is None else (*self.ended.seen, self.active)

    @property
    def items(self) -> tuple[ChatItem, ...]:
        """The thread, in the order in which its items appeared."""
        return self.ended.items if self.active is None else self.ended.items + self.active.items

    @property
    def spent_usd(self) -> float:
        """What all turns cost, as the agent said."""
        return self.ended.spent_usd + (0 if self.active is None else cost_of(self.active.turn))

    @property
    def last_usage(self) -> Mapping[str, Any]:
        """The usage that an agent told last, of any turn; empty when none did."""
        running = {} if self.active is None else usage_in(self.active.turn)
        return running or self.ended.last_usage


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
    next, and so are their items. While nothing in the two mappings changed, hand in the
    very same ones: then the turns that are over are not even looked at.

    Args:
        at_ms: the time now, in milliseconds since the epoch.
        subagents: the states of the subagent chats that this chat's agent opened, by URI.
        extras: what the host knows of a turn beside its state, by turn id.
    """
    origin = chat_state.get("origin")
    opened_by_tool = isinstance(origin, dict) and origin.get("kind") == "tool"

    def sight(turn: Json, running: bool, nth: int) -> Sight:
        return Sight(
            turn=turn,
            running=running,
            nth=nth,
            at_ms=at_ms if memory.began else None,
            opened_by_tool=opened_by_tool,
            subagents=subagents,
            extras=extras.get(str(turn.get("id")), _NO_EXTRAS),
        )

    ended, held = memory.ended, memory.turns
    turns, active = chat_state.get("turns"), chat_state.get("activeTurn")
    if not ended.is_of(turns, subagents, extras):
        counts: dict[str, int] = {}
        seen = []
        for turn, before in zip_longest(turns_in(chat_state), held):
            if turn is None:
                break
            ident = str(turn.get("id"))
            seen.append(_seen(sight(turn, False, counts.get(ident, 0)), before))
            counts[ident] = counts.get(ident, 0) + 1
        ended = _Ended(
            turns=turns,
            subagents=subagents,
            extras=extras,
            seen=tuple(seen),
            items=tuple(chain.from_iterable(one.items for one in seen)),
            counts=counts,
            spent_usd=sum(cost_of(one.turn) for one in seen),
            last_usage=next(filter(None, (usage_in(one.turn) for one in reversed(seen))), {}),
        )
    running = None
    if isinstance(active, dict):
        nth = ended.counts.get(str(active.get("id")), 0)
        before = held[len(ended.seen)] if len(ended.seen) < len(held) else None
        running = _seen(sight(active, True, nth), before)
    waiting = {one["id"]: at_ms for one in waiting_in(chat_state)}
    return Memory(
        ended=ended,
        active=running,
        queued_ms={ident: memory.queued_ms.get(ident, ms) for ident, ms in waiting.items()},
        began=True,
    )


def turns_in(chat_state: Json) -> list[Json]:
    """The turns of a chat that are over, oldest first."""
    return [turn for turn in chat_state.get("turns", ()) if isinstance(turn, dict)]


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
