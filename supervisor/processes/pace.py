"""Pace: how fast one worker is read, by what of it goes on to clients.

A worker fills its pipe faster than clients can take what it says, and what
waits for a client waits in front of what other conversations have to tell it.
So a worker that says more than its rate is read more slowly: its pipe fills,
and it blocks. Streamed text is gathered before it counts.
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
    """

    def __init__(self, per_s: int, burst: int, gate: Gate | None = None) -> None:
        self._gate = gate
        self._cost_s = 1 / per_s
        self._room_s = burst / per_s
        self._paid_until_s = trio.current_time() - self._room_s

    def spend(self) -> None:
        """One more was told; never waits."""
        oldest_s = trio.current_time() - self._room_s
        self._paid_until_s = max(self._paid_until_s, oldest_s) + self._cost_s

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
