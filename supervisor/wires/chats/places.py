"""Where an item stands: the turn it is of, its place in it, and the id that follows from both.

Pure. Decisions, where the contracts leave them open:

- A turn's item has the turn's id. Every other item is `<kind>:<place>:<turn id>`, the
  place being the part's in its turn, which never changes; so ids are stable without
  anybody keeping them. A turn whose own id looks like one of these, or that is not the
  first of its id, is `turn:<n>:<id>`, so that no two items ever have one id.
- AHP's parts have no times of their own. What is new while the host looks on has the
  time it appeared at; what was there before has its turn's.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

from attrs import field, frozen

from ....contracts.chats import ChatItem, CheckpointDiff
from .words import milliseconds

Json = dict[str, Any]

_OURS: Final = re.compile(r"(?:[a-z]+:\d+(?:\.\d+)?:.*)?", re.DOTALL)


@frozen(kw_only=True)
class TurnExtras:
    """What a host knows of a turn beside its state: its checkpoints, its attempts."""

    checkpoint: str | None = None
    checkpoint_diff: CheckpointDiff | None = None
    checkpoint_after: str | None = None
    attempt: int | None = None


@frozen(kw_only=True)
class Sight:
    """What the items of a turn are made with, beside the turn itself."""

    turn: Json
    running: bool
    nth: int = 0
    """How many turns of the same id came before it."""
    at_ms: float | None = None
    """The time now, for what is new; None when the chat is looked at for the first time."""
    opened_by_tool: bool = False
    """Whether the chat is a subagent's."""
    subagents: Mapping[str, Json] = field(factory=dict)
    """The states of subagents' chats, by URI."""
    extras: TurnExtras = field(factory=TurnExtras)

    @property
    def turn_id(self) -> str:
        """The turn's own id."""
        return str(self.turn["id"])

    @property
    def turn_item_id(self) -> str:
        """The id of the turn's item."""
        own = self.turn_id
        return f"turn:{self.nth}:{own}" if self.nth or _OURS.fullmatch(own) else own

    @property
    def started_ms(self) -> float:
        """When the turn began; 0 where nobody said."""
        return milliseconds(self.turn.get("startedAt")) or 0

    @property
    def ended_ms(self) -> float | None:
        """When the turn ended; None while it runs."""
        if self.running:
            return None
        return self.started_ms + (amount_in(self.turn.get("duration")) or 0)

    @property
    def now_ms(self) -> float:
        """When what is new appeared, never before the turn did."""
        return self.started_ms if self.at_ms is None else max(self.at_ms, self.started_ms)

    def item_id(self, kind: str, place: int) -> str:
        """The id of an item that is not the turn's own."""
        nth = f".{self.nth}" if self.nth else ""
        return f"{kind}:{place}{nth}:{self.turn_id}"


@frozen(kw_only=True)
class Place:
    """A part in its turn: its number, and whether it is the last of a turn that runs."""

    sight: Sight
    number: int
    is_open: bool
    held: Mapping[str, ChatItem]
    """The items there were of this part, by id: what they say of the past still holds."""

    def item_id(self, kind: str) -> str:
        """The id of the item of that kind that this part has."""
        return self.sight.item_id(kind, self.number)

    def created_at(self, ident: str) -> float:
        """When that item appeared."""
        held = self.held.get(ident)
        return self.sight.now_ms if held is None else held.created_at


def amount_in(value: Any) -> float | None:
    """A number that is not negative, or None."""
    known = isinstance(value, (int, float)) and not isinstance(value, bool) and value >= 0
    return value if known else None
