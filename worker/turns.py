"""The turns that run here and what waits on a person in them, as the agent's actions tell."""

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

import trio
from attrs import define, field

#: What ends a turn; nothing continues after it.
ENDINGS = frozenset({"chat/turnComplete", "chat/error", "chat/turnCancelled"})

#: What settles a tool call that waited, when the agent says it.
_SETTLE_CALL = frozenset(
    {"chat/toolCallConfirmed", "chat/toolCallResultConfirmed", "chat/toolCallComplete"}
)

#: How many requests are remembered as parked; beyond it the oldest are forgotten. What
#: is parked for a turn that never was would stay for ever.
MAX_PARKED = 1024

#: How many ended turns are remembered, so that one said back is not taken for a new one.
REMEMBERED_TURNS = 64


@define(eq=False)
class Turn:
    """A turn that runs: as a task of ours, or (`scope` is None) in the agent's own ways."""

    id: str
    started_s: float = field(factory=time.monotonic)
    scope: trio.CancelScope | None = None
    ended: bool = False
    """An ending was emitted."""
    cancelled: bool = False
    over: trio.Event = field(factory=trio.Event)
    """The agent's part in it is over."""

    def duration_ms(self) -> int:
        return round((time.monotonic() - self.started_s) * 1000)


class Turns:
    """The running turns by id, and the parked requests by id.

    Args:
        ended: called, in the thread that emits, when the ending of a turn is
            said that is no task of ours.
    """

    def __init__(self, ended: Callable[[Turn], None]) -> None:
        self._ended = ended
        self._lock = threading.Lock()
        self._running: dict[str, Turn] = {}
        self._past: deque[str] = deque(maxlen=REMEMBERED_TURNS)
        #: The turn that what is parked belongs to, and what it is in words.
        self._parked: dict[str, tuple[str | None, str]] = {}

    def add(self, turn_id: str) -> Turn:
        turn = self._running[turn_id] = Turn(turn_id)
        return turn

    def running(self, turn_id: str) -> Turn | None:
        return self._running.get(turn_id)

    def all_running(self) -> list[Turn]:
        with self._lock:
            return list(self._running.values())

    def forget(self, turn: Turn) -> None:
        """The turn is over, and nothing of it is parked any more."""
        turn.over.set()
        with self._lock:
            self._running.pop(turn.id, None)
            self._past.append(turn.id)
            for ident in [one for one, parked in self._parked.items() if _is_in(parked, turn)]:
                del self._parked[ident]

    def settle(self, ident: str) -> None:
        """That tool call or question no longer waits on a person."""
        with self._lock:
            self._parked.pop(ident, None)

    def parked_in(self, turn: Turn) -> list[str]:
        """What waits on a person in that turn, in words."""
        with self._lock:
            return [parked[1] for parked in self._parked.values() if _is_in(parked, turn)]

    def heard(self, channel: str, action: Mapping[str, Any]) -> None:
        """Takes note of an action that is about to be written. Called from any thread."""
        if channel != "chat":
            return
        kind, turn_id = action["type"], action.get("turnId")
        turn_id = turn_id if isinstance(turn_id, str) else None
        with self._lock:
            turn = None if turn_id is None else self._running.get(turn_id)
            if kind == "chat/turnStarted":
                # A turn that the agent starts by itself; any other is swallowed by the host.
                if turn_id is not None and not self._running and turn_id not in self._past:
                    self._running[turn_id] = Turn(turn_id)
            elif kind not in ENDINGS:
                self._heard_parking(kind, turn_id, action)
                if len(self._parked) > MAX_PARKED:
                    del self._parked[next(iter(self._parked))]
        if kind in ENDINGS and turn is not None and not turn.ended:
            turn.ended = True
            if turn.scope is None:
                self._ended(turn)

    def _heard_parking(self, kind: str, turn_id: str | None, action: Mapping[str, Any]) -> None:
        call_id = action.get("toolCallId")
        if kind == "chat/inputRequested":
            request = action.get("request")
            ident = request.get("id") if isinstance(request, Mapping) else None
            if isinstance(ident, str):
                self._parked[ident] = (None, f"the question {ident}")
        elif kind == "chat/inputCompleted":
            self._parked.pop(str(action.get("requestId")), None)
        elif not isinstance(call_id, str):
            return
        elif (kind == "chat/toolCallReady" and action.get("confirmed") is None) or (
            kind == "chat/toolCallComplete" and action.get("requiresResultConfirmation") is True
        ):
            self._parked[call_id] = (turn_id, f"the tool call {call_id}")
        elif kind in _SETTLE_CALL:
            self._parked.pop(call_id, None)


def _is_in(parked: tuple[str | None, str], turn: Turn) -> bool:
    # A question says no turn: it is the running one's.
    return parked[0] is None or parked[0] == turn.id
