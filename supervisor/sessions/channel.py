"""A channel: state that only actions change, and the subscriptions that see each of them.

Nothing falls between a snapshot and the stream after it, and nothing comes
twice: taking a snapshot, subscribing and publishing never wait, so they cannot
interleave, and a subscription passes over numbers up to its snapshot's.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from attrs import define, field

from ..store.ledger import Ledger
from .stream import Envelope, Origin, Stream

Json = dict[str, Any]
Reducer = Callable[[Json, Json], Json]


class Seat(Protocol):
    """Where one connection sits: what the host sends it. Nothing here ever waits."""

    client_id: str

    def send_envelope(self, envelope: Envelope, subscription: "Subscription") -> None:
        """Sends a numbered action to this connection, under its spelling of the channel."""

    def send_answer(self, envelope: Envelope, spelling: str) -> None:
        """Sends an envelope that spends no number: the answer to this connection's own action."""

    def send_notification(self, method: str, params: Json) -> None:
        """Sends a notification that is no action."""


@define(kw_only=True, eq=False)
class Subscription:
    """One connection's subscription to one channel; it ends with the connection."""

    channel: "Channel"
    seat: Seat
    spelling: str
    """How this client names the channel; its envelopes carry that name."""
    from_seq: int
    """Numbers up to this one are in its snapshot."""
    max_latency_ms: float | None = None
    """How long this subscriber lets deltas be gathered; None is the host's default."""
    held_turns: set[str] | None = None
    """The ids of the turns that this connection holds; None when it holds all of them."""


@define(kw_only=True, eq=False)
class Channel:
    """One channel of the host. Every change of its state is an action that it published."""

    uri: str
    family: str
    """`root`, `session` or `chat`."""
    owner_id: str
    """The id of the session or chat whose channel it is; empty for the root."""
    state: Json
    reduce: Reducer
    stream: Stream
    ledger: Ledger
    keep: Callable[[Envelope], None] = lambda envelope: None
    """Writes down what an action changed; called before anybody is told of it."""
    flush: Callable[[], None] = lambda: None
    """Publishes what is being gathered; called before anybody looks at the state."""
    view: Callable[[], Json] | None = None
    """What a snapshot shows, where that is not the reduced state alone."""
    born_seq: int = field(init=False)
    """The number that was spent last before the channel was there."""
    subscriptions: dict[int, Subscription] = field(factory=dict, init=False)
    """By the identity of the seat: one subscription a connection."""

    @born_seq.default
    def _seq_now(self) -> int:
        return self.stream.seq

    def publish(self, action: Json, origin: Origin | None = None) -> Envelope | None:
        """Applies an action, numbers it, keeps it and sends it to everybody who is subscribed now.

        Answers None, and spends no number, when it changes nothing.
        """
        before = self.state
        reduced = self.reduce(before, action)
        if reduced is before:
            return None
        self.state = reduced
        envelope = self.stream.number(self.uri, action, origin, before=before, after=reduced)
        self.keep(envelope)
        subscriptions = list(self.subscriptions.values())
        if subscriptions:
            self.ledger.tell(lambda: _deliver(envelope, subscriptions))
        else:
            envelope.delivered()
        return envelope

    def subscribe(self, seat: Seat, spelling: str, **preferences: Any) -> Subscription:
        """Adds the seat's subscription, or replaces the one it has; from the state as it is now."""
        self.flush()
        subscription = Subscription(
            channel=self, seat=seat, spelling=spelling, from_seq=self.stream.seq, **preferences
        )
        self.subscriptions[id(seat)] = subscription
        return subscription

    def snapshot(self) -> Json:
        """The state as a client that subscribes now is to see it."""
        self.flush()
        return self.view() if self.view is not None else self.state

    def unsubscribe(self, seat: Seat) -> None:
        """Ends the seat's subscription; touches no other."""
        self.subscriptions.pop(id(seat), None)

    def subscription_of(self, seat: Seat) -> Subscription | None:
        """The seat's subscription to this channel."""
        return self.subscriptions.get(id(seat))


def _deliver(envelope: Envelope, subscriptions: Sequence[Subscription]) -> None:
    # Those of the moment in which it was published: who subscribed since then has it in a
    # snapshot, which is sent after this; who subscribed again is still owed an echo.
    for subscription in subscriptions:
        subscription.seat.send_envelope(envelope, subscription)
    envelope.delivered()
