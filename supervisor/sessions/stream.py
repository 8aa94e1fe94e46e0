"""The numbered stream: one order of actions for all clients, and what is still held for replay.

An envelope is an action with its number. It is encoded once, however many
clients read it: the action's JSON when it is numbered, the whole message once
for each spelling of the channel that somebody subscribed under, and once more
for each line of versions that is told something else.
"""

from collections import deque
from collections.abc import Callable
from typing import Any

from attrs import define, field, frozen

from ...contracts.ahp.lens import Lens
from ...contracts.json import decode_json, encode_json

Json = dict[str, Any]


@frozen(kw_only=True)
class Origin:
    """Which client's action an envelope echoes. Stamped by the connection, never by the client."""

    client_id: str
    client_seq: int


@define(kw_only=True, eq=False)
class Envelope:
    """An action on a channel, with its number."""

    channel: str
    """The channel's own URI; a subscriber reads it under its own spelling."""
    _action: Json | None
    server_seq: int
    origin: Origin | None = None
    rejection_reason: str | None = None
    """Only for the sender of a refused action; such an envelope spends no number."""
    before: Json | None = None
    """The channel's state before the action, until the envelope is delivered."""
    after: Json | None = None
    """The state after it. Both are for lenses, and shared with the channel's own."""
    _action_json: bytes | None = field(default=None, init=False)
    _said: dict[str, tuple[Json, ...]] = field(factory=dict, init=False)
    _texts: dict[tuple[int, str], tuple[Json, str]] = field(factory=dict, init=False)

    @property
    def action(self) -> Json:
        """The action. Not to be changed."""
        if self._action is None:
            return dict(decode_json(self.action_json))
        return self._action

    def said(self, lens: Lens) -> tuple[Json, ...]:
        """What a line of versions is told of this action: translated once a line."""
        if lens.identity:
            return (self.action,)
        said = self._said.get(lens.line.supported)
        if said is None:
            said = tuple(lens.actions(self.action, self.before, self.after))
            self._said[lens.line.supported] = said
        return said

    def params(self, spelling: str, action: Json | None = None, *, first: bool = True) -> Json:
        """The parameters of the `action` notification, under that spelling of the channel.

        Args:
            spelling: how the subscriber names the channel.
            action: what is said in place of the action itself.
            first: whether it is the first that is said: the origin goes with that one.
        """
        said = self.action if action is None else action
        params: Json = {"channel": spelling, "action": said, "serverSeq": self.server_seq}
        if self.origin is not None and first:
            params["origin"] = {
                "clientId": self.origin.client_id,
                "clientSeq": self.origin.client_seq,
            }
        if self.rejection_reason is not None:
            params["rejectionReason"] = self.rejection_reason
        return params

    def text(self, spelling: str, action: Json | None = None, *, first: bool = True) -> str:
        """The whole `action` notification as one text message, made once a spelling and action.

        Lines that are told the very same action share the text.
        """
        said = self.action if action is None else action
        made = self._texts.get((id(said), spelling))
        if made is None:
            rest = self.params(spelling, said, first=first)
            del rest["action"]
            head = encode_json(rest)[:-1].decode()
            body = (self.action_json if said is self.action else encode_json(said)).decode()
            text = f'{{"jsonrpc":"2.0","method":"action","params":{head},"action":{body}}}}}'
            # The action is kept beside its text, so that its identity stays its own.
            made = (said, text)
            self._texts[id(said), spelling] = made
        return made[1]

    def delivered(self) -> None:
        """Lets go of what only delivering needs: the action's JSON is what is held for replay.

        The states above all: each would keep an older copy of a streamed text. The
        action itself as well: as objects it costs several times its bytes, and by
        those the bound of what is held counts.
        """
        if self._action_json is not None:
            self._action = None
        self._texts.clear()
        self._said.clear()
        self.before = self.after = None

    @property
    def action_json(self) -> bytes:
        """The action, encoded."""
        if self._action_json is None:
            self._action_json = encode_json(self._action)
        return self._action_json

    @property
    def held_bytes(self) -> int:
        """What holding this envelope costs, near enough for a bound."""
        return len(self.action_json) + 200


#: How many numbers are reserved at one time. Half of them are left when more are.
RESERVED = 10_000


class Stream:
    """Numbers actions and holds the latest of them.

    Args:
        first_seq: the number that was spent last, in an earlier life; the first
            action gets the next. It must never go back: clients keep the
            greatest number that they ever saw.
        max_events: how many envelopes are held for replay.
        max_bytes: how many bytes of them, whichever is less.
        reserve: writes down a number that none will pass before a greater one is
            written down. Called before the first action is numbered, and now and
            then: what is told of numbers beyond waits until that is kept.
    """

    def __init__(
        self,
        *,
        first_seq: int,
        max_events: int,
        max_bytes: int,
        reserve: Callable[[int], None] = lambda seq: None,
    ) -> None:
        self._seq = first_seq
        self._floor = first_seq
        self._held: deque[Envelope] = deque()
        self._held_bytes = 0
        self._max_events = max_events
        self._max_bytes = max_bytes
        self._reserve = reserve
        self._reserved = first_seq + RESERVED
        reserve(self._reserved)

    @property
    def seq(self) -> int:
        """The number that was spent last."""
        return self._seq

    def number(
        self,
        channel: str,
        action: Json,
        origin: Origin | None,
        *,
        before: Json | None = None,
        after: Json | None = None,
    ) -> Envelope:
        """The next envelope. The oldest ones held make room for it."""
        self._seq += 1
        if self._seq > self._reserved - RESERVED // 2:
            self._reserved += RESERVED
            self._reserve(self._reserved)
        envelope = Envelope(
            channel=channel,
            action=action,
            server_seq=self._seq,
            origin=origin,
            before=before,
            after=after,
        )
        self._held.append(envelope)
        self._held_bytes += envelope.held_bytes
        while len(self._held) > self._max_events or self._held_bytes > self._max_bytes:
            dropped = self._held.popleft()
            self._held_bytes -= dropped.held_bytes
            self._floor = dropped.server_seq
        return envelope

    def since(self, seq: int) -> list[Envelope] | None:
        """Every envelope after `seq`, or None when that cannot be said.

        It cannot when some of them are held no longer, and when the number is
        from the future or from another life of the host.
        """
        if not self._floor <= seq <= self._seq:
            return None
        missed = self._seq - seq
        start = len(self._held) - missed
        return [self._held[index] for index in range(start, len(self._held))]
