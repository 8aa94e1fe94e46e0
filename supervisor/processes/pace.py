"""Pace: how fast one worker is read, by what of it goes on to clients.

A worker fills its pipe faster than clients can take what it says, and what
waits for a client waits in front of what other conversations have to tell it.
So a worker that says more than its rate is read more slowly: its pipe fills,
and it blocks. Streamed text is gathered before it counts. What is said counts by
its number and by its size, whichever is dearer: all of it is kept on disk before
or soon after it is told, and there too it stands in front of what others say.
"""

from typing import Protocol

import trio


class Gate(Protocol):
    """Something that stops all reading for a while."""

    @property
    def refusing(self) -> str | None:
        """Why, while it does."""

    async def until_keeping(self) -> None:
        """Waits until it does not."""


class Pace:
    """A rate with room for a burst.

    Args:
        per_s: how much may be spent in a second, on and on.
        burst: how much may be spent at once after a pause.
        gate: while it refuses, nothing is read: what cannot be kept is not taken.
        bytes_per_s: how many bytes may be spent in a second; a burst of them lasts as
            long as one of the other.
    """

    def __init__(
        self,
        per_s: int,
        burst: int,
        gate: Gate | None = None,
        *,
        bytes_per_s: float = float("inf"),
    ) -> None:
        self._gate = gate
        self._bytes_per_s = bytes_per_s
        self._cost_s = 1 / per_s
        self._room_s = burst / per_s
        self._paid_until_s = trio.current_time() - self._room_s

    def spend(self, size: int = 0) -> None:
        """One more was told, of that many bytes; never waits."""
        cost_s = max(self._cost_s, size / self._bytes_per_s)
        oldest_s = trio.current_time() - self._room_s
        self._paid_until_s = max(self._paid_until_s, oldest_s) + cost_s

    @property
    def owes(self) -> bool:
        """Whether more was spent than the rate allows, or the gate refuses."""
        if self._gate is not None and self._gate.refusing is not None:
            return True
        return self._paid_until_s > trio.current_time()

    async def settle(self) -> None:
        """Waits until what was owed when it was called is earned, and the gate lets through."""
        if self._gate is not None:
            await self._gate.until_keeping()
        await trio.sleep_until(self._paid_until_s)
