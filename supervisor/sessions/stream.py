"""The numbered stream: one order of actions for all clients, and what is still held for replay.

An envelope is an action with its number. It is encoded once, however many
clients read it: the action's JSON when it is numbered, the whole message once
for each spelling of the channel that somebody subscribed under.
"""

from collections import deque
from typing import Any

from attrs import define, field, frozen

from ...contracts.json import encode_json

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
    action: Json
    server_seq: int
    origin: Origin | None = None
    rejection_reason: str | None = None
    """Only for the sender of a refused action; such an envelope spends no number."""
    _action_json: bytes | None = field(default=None, init=False)
    _texts: dict[str, str] = field(factory=dict, init=False)

    def params(self, spelling: str) -> Json:
        """The parameters of the `action` notification, under that spelling of the channel."""
        params: Json = {"channel": spelling, "action": self.action, "serverSeq": self.server_seq}
        if self.origin is not None:
            params["origin"] = {
                "clientId": self.origin.client_id,
                "clientSeq": self.origin.client_seq,
            }
        if self.rejection_reason is not None:
            params["rejectionReason"] = self.rejection_reason
        return params

    def text(self, spelling: str) -> str:
        """The whole `action` notification as one text message, made once a spelling."""
        text = self._texts.get(spelling)
        if text is None:
            rest = self.params(spelling)
            del rest["action"]
            head = encode_json(rest)[:-1].decode()
            action = self.action_json.decode()
            text = f'{{"jsonrpc":"2.0","method":"action","params":{head},"action":{action}}}}}'
            self._texts[spelling] = text
        return text

    def forget_texts(self) -> None:
        """Lets go of the encoded messages: what is held for replay is the action alone."""
        self._texts.clear()

    @property
    def action_json(self) -> bytes:
        """The action, encoded."""
        if self._action_json is None:
            self._action_json = encode_json(self.action)
        return self._action_json

    @property
    def held_bytes(self) -> int:
        """What holding this envelope costs, near enough for a bound."""
        return len(self.action_json) + 200


class Stream:
    """Numbers actions and holds the latest of them.

    Args:
        first_seq: the number that was spent last, in an earlier life; the first
            action gets the next. It must never go back: clients keep the
            greatest number that they ever saw.
        max_events: how many envelopes are held for replay.
        max_bytes: how many bytes of them, whichever is less.
    """

    def __init__(self, *, first_seq: int, max_events: int, max_bytes: int) -> None:
        self._seq = first_seq
        self._floor = first_seq
        self._held: deque[Envelope] = deque()
        self._held_bytes = 0
        self._max_events = max_events
        self._max_bytes = max_bytes

    @property
    def seq(self) -> int:
        """The number that was spent last."""
        return self._seq

    def number(self, channel: str, action: Json, origin: Origin | None) -> Envelope:
        """The next envelope. The oldest ones held make room for it."""
        self._seq += 1
        envelope = Envelope(channel=channel, action=action, server_seq=self._seq, origin=origin)
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
