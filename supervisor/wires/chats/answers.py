"""What a request's handler answers: a result, one that is made when it is told, or one to wait for.

Requests of a connection are taken in their order, and what they do to a chat is done
before the next is read; only the answers of those that wait may overtake each other.
"""

from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

import trio
from attrs import define, field, frozen

from ....contracts.chats import Shape


@frozen
class Told:
    """A result that is read off at the moment in which it is told, between two events.

    It is a shape of this wire, or of the control wire for its requests.
    """

    make: Callable[[], Any]
    reads: bool = False
    """It says nothing new: told also while nothing can be kept."""
    smaller: Callable[[], Any] | None = None
    """What is answered in its place where it is more than a frame holds."""


@frozen
class Later:
    """A result to wait for.

    Attributes:
        holds: whether this connection's further requests of the chat wait meanwhile.
    """

    wait: Callable[[], Awaitable[Any]]
    holds: bool = False


Answer: TypeAlias = Shape | Told | Later


@define(eq=False)
class Acting:
    """An action on its way: settled when its echo or its refusal is told."""

    _reason: str | None = field(default=None, init=False)
    _settled: trio.Event = field(factory=trio.Event, init=False)

    def settle(self, reason: str | None) -> None:
        """The host answered; None: the action was accepted."""
        self._reason = reason
        self._settled.set()

    async def refusal(self) -> str | None:
        """Waits for the answer: why it was refused, or None."""
        await self._settled.wait()
        return self._reason
