"""A client's action on its way: who sent it, how it is answered, and the line it stands in.

Every action on a known channel is answered by exactly one envelope: accepted
and sent to all; accepted but changing nothing, then to its sender alone; or
refused, to its sender alone. Only the first spends a number.

Some actions wait for the agent's word first. Behind such a question the other
actions of the channel wait too, so that echoes keep the order in which a client
sent them; a cancel never waits, it refuses what stands before it.
"""

from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

import structlog
import trio
from attrs import define, field

from .channel import Channel, Seat
from .stream import Envelope, Origin

Json = dict[str, Any]

#: How many actions of one channel may wait behind a question.
MAX_WAITING_ACTIONS = 1000


@define(kw_only=True, eq=False)
class Dispatched:
    """One `dispatchAction`, until it is answered."""

    seat: Seat
    channel: Channel
    spelling: str
    """How the client named the channel."""
    client_seq: int
    action: Json
    unfit: str | None = None
    """Why nobody may look at the action; its refusal stands in the line all the same."""
    answered: bool = field(default=False, init=False)

    @property
    def origin(self) -> Origin:
        """Stamped from the connection, never taken from the client."""
        return Origin(client_id=self.seat.client_id, client_seq=self.client_seq)

    def accept(self) -> bool:
        """Applies the action: to all subscribers and the sender, or to the sender alone when
        it changes nothing. Answers whether it changed anything."""
        self._once()
        self.channel.flush()
        envelope = self.channel.publish(self.action, self.origin)
        if envelope is None:
            self._answer(None)
        elif self.channel.subscription_of(self.seat) is None:
            told = envelope
            self.channel.ledger.tell(lambda: self.seat.send_answer(told, self.spelling))
        return envelope is not None

    def refuse(self, reason: str) -> None:
        """Sends the action back to its sender with the reason; nothing changes."""
        self._once()
        self._answer(reason)

    def _answer(self, reason: str | None) -> None:
        envelope = Envelope(
            channel=self.channel.uri,
            action=self.action,
            server_seq=self.channel.stream.seq,
            origin=self.origin,
            rejection_reason=reason,
        )
        held = self.channel.subscription_of(self.seat)
        spelling = held.spelling if held is not None else self.spelling
        # It says nothing new: either it was refused or it changed nothing.
        self.channel.ledger.answer(lambda: self.seat.send_answer(envelope, spelling))

    def _once(self) -> None:
        if self.answered:
            raise RuntimeError(f"{self.action.get('type')} was answered twice")
        self.answered = True


#: Answers the action at once, or says what has to be waited for before it is answered.
Take = Callable[[Dispatched], Callable[[], Awaitable[None]] | None]


class DispatchLine:
    """The actions of one channel, in order.

    Args:
        nursery: where questions are waited for.
        take: answers an action, or answers the coroutine function that will.
    """

    def __init__(self, nursery: trio.Nursery, take: Take) -> None:
        self._nursery = nursery
        self._take = take
        self._asking: Dispatched | None = None
        self._waiting: deque[Dispatched] = deque()

    def add(self, dispatched: Dispatched) -> None:
        """Takes the action now, or when those before it are answered."""
        if self._asking is None:
            self._start(dispatched)
        elif len(self._waiting) >= MAX_WAITING_ACTIONS:
            dispatched.refuse("too many actions are waiting on this channel")
        else:
            self._waiting.append(dispatched)

    def overtake(self, dispatched: Dispatched, reason: str) -> None:
        """Takes the action now: what waits for the agent's word is refused, the rest goes first."""
        asking, self._asking = self._asking, None
        if asking is not None:
            asking.refuse(reason)
        while self._waiting and self._asking is None:
            self._start(self._waiting.popleft())
            # A question among them must not hold the cancel up either.
            if self._asking is not None:
                again, self._asking = self._asking, None
                again.refuse(reason)
        self._start(dispatched)

    def refuse_all(self, reason: str) -> None:
        """Refuses everything that is not answered yet: the channel is going away."""
        asking, self._asking = self._asking, None
        waiting = list(self._waiting)
        self._waiting.clear()
        for dispatched in [asking, *waiting]:
            if dispatched is not None and not dispatched.answered:
                dispatched.refuse(reason)

    def _start(self, dispatched: Dispatched) -> None:
        if dispatched.unfit is not None:
            dispatched.refuse(dispatched.unfit)
            return
        try:
            question = self._take(dispatched)
        except Exception:
            # A fault of ours is this action's alone: logged whole, and refused in one sentence.
            _failed(dispatched)
            return
        if question is not None:
            self._asking = dispatched
            self._nursery.start_soon(self._ask, dispatched, question)

    async def _ask(self, dispatched: Dispatched, question: Callable[[], Awaitable[None]]) -> None:
        # Overtaken before it began, it is not asked: the agent would change what nobody applies.
        # Later the question looks itself.
        if not dispatched.answered:
            try:
                await question()
            except Exception:
                # As above; what waits behind it goes on.
                _failed(dispatched)
        if self._asking is dispatched:
            self._asking = None
            while self._waiting and self._asking is None:
                self._start(self._waiting.popleft())


def _failed(dispatched: Dispatched) -> None:
    # Whatever of ours fails on a client's action: logged whole, told in one sentence. It
    # must not end the line of its channel, nor, from a task of the host's, the host.
    action, client = dispatched.action.get("type"), dispatched.seat.client_id
    structlog.get_logger().exception("action failed", action=action, client=client)
    if not dispatched.answered:
        dispatched.refuse("the host failed; see its log")
