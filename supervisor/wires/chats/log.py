"""What happened to a chat, numbered and held for a while: what `since` is answered from.

Numbers begin at the Unix time in milliseconds, so that one of an earlier life of the
host, or of a killed chat of the same id, lies before everything that is held.
"""

from collections import deque
from collections.abc import Sequence

from attrs import frozen

from ....contracts.chats import ChatEvent


@frozen
class _Held:
    event: ChatEvent
    size_bytes: int


class EventLog:
    """The latest events of one chat.

    Args:
        first_seq: the number before the first event's.
        max_events: how many are held.
        max_bytes: how many bytes of them as they were sent, whichever is less.
    """

    def __init__(self, *, first_seq: int, max_events: int, max_bytes: int) -> None:
        self._seq = first_seq
        self._held: deque[_Held] = deque()
        self._held_bytes = 0
        self._max_events = max_events
        self._max_bytes = max_bytes

    @property
    def seq(self) -> int:
        """The number of the last event."""
        return self._seq

    @property
    def next_seq(self) -> int:
        """The number that the next event will have."""
        return self._seq + 1

    def add(self, event: ChatEvent, size_bytes: int) -> None:
        """Takes the next event. A reset lets go of all before it, since none is of use any more."""
        self._seq += 1
        if event.type == "reset":
            # Whoever applied the reset may go on from it; nobody goes on from before it.
            self._held.clear()
            self._held_bytes = 0
            return
        self._held.append(_Held(event, size_bytes))
        self._held_bytes += size_bytes
        while self._held and (
            len(self._held) > self._max_events or self._held_bytes > self._max_bytes
        ):
            self._held_bytes -= self._held.popleft().size_bytes

    def since(self, seq: int) -> Sequence[ChatEvent] | None:
        """Every event after that number; None when some are not held, or it was never spent."""
        missed = self._seq - seq
        if not 0 <= missed <= len(self._held):
            return None
        start = len(self._held) - missed
        return [self._held[index].event for index in range(start, len(self._held))]
