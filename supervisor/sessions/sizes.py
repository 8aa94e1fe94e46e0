"""How large an agent may make what clients are sent: its rows, its session, its turns.

A snapshot goes out in one message, a list of sessions holds every session's row, and
the host holds all of it in memory. So whatever one agent says there is bounded, or it
would end more than its own conversation.

Sizes are bytes of JSON in UTF-8. Pure.
"""

from typing import Any

from ...contracts.json import json_size
from .parked import parked_in

Json = dict[str, Any]

#: A title and an activity stand in rows, among many others.
MAX_TITLE_CHARS = 500

#: Of a turn that failed, why.
MAX_ERROR_CHARS = 4000

#: What an agent may make of a session's row in the list.
MAX_ROW_BYTES = 32 * 1024

#: What an agent may make of a session, beside the mirrors of its chats and its schema; and
#: of a chat, beside its turns.
MAX_SESSION_BYTES = 1024 * 1024
MAX_CHAT_HEAD_BYTES = 1024 * 1024

#: What may wait on a person in all chats of a session: it is mirrored in the session.
MAX_PARKED_BYTES = 4 * 1024 * 1024

#: Of a turn's limit, how far it may be passed unseen before the turn is measured again.
UNSEEN_SHARE = 1 / 8

_MIRRORS = ("chats", "inputNeeded", "activeClients")


def size_of(value: Any) -> int:
    """Bytes of its JSON."""
    return json_size(value)


def cut(text: str, max_chars: int = MAX_TITLE_CHARS) -> str:
    """The text, or its beginning with an ellipsis."""
    return text if len(text) <= max_chars else text[: max_chars - 1] + "…"


def session_outgrown(state: Json, row: Json) -> bool:
    """Whether a session's state, or its row, is larger than an agent may make it."""
    own = {key: value for key, value in state.items() if key not in _MIRRORS}
    if "config" in own:
        own["config"] = own["config"].get("values")
    return size_of(row) > MAX_ROW_BYTES or size_of(own) > MAX_SESSION_BYTES


def chat_head_outgrown(state: Json) -> bool:
    """Whether a chat's state beside its turns is larger than an agent may make it."""
    # Messages that wait are clients' own.
    kept = ("turns", "activeTurn", "queuedMessages", "steeringMessage", "draft")
    return size_of({key: state[key] for key in state if key not in kept}) > MAX_CHAT_HEAD_BYTES


def parked_bytes(chat_state: Json) -> int:
    """What a chat's parked requests add to its session."""
    return sum(size_of(parked.body) for parked in parked_in(chat_state))


class TurnSize:
    """How large the running turn of a chat is at most: measured now and then.

    An action adds no more than its own size. Whether it replaces something is not known,
    so when the sum reaches the limit the turn itself is measured, but not at each action.

    Args:
        max_bytes: the turn may pass it by `UNSEEN_SHARE` of it, and never by more.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._unseen_bytes = int(max_bytes * UNSEEN_SHARE)
        self._measured = 0
        self._since = 0

    @property
    def at_most(self) -> int:
        """What the agent's part of the turn comes to at most."""
        return self._measured + self._since

    def begin(self) -> None:
        """Another turn begins."""
        self._measured = self._since = 0

    def measure(self, turn: Json) -> None:
        """Looks how large the turn is; its message is not the agent's."""
        said = {key: value for key, value in turn.items() if key != "message"}
        self._measured, self._since = size_of(said), 0

    def has_room(self, turn: Json, size: int) -> bool:
        """Whether an action of that size may be applied to the turn; counts it if so."""
        if self.at_most + size <= self._max_bytes:
            self._since += size
            return True
        if self._measured > self._max_bytes or self._since + size > self._unseen_bytes:
            self.measure(turn)
            limit = self._max_bytes + self._unseen_bytes
            if self._measured > self._max_bytes or self._measured + size > limit:
                return False
        self._since += size
        return True
