"""What the host writes down: the records, and the store behind which memory and SQLite stand alike.

Told means kept: what a client is told happened is committed first. The host
writes records as they change (`put_*`, `remove_*`: cheap, never waiting) and a
`Ledger` commits them in groups before it lets the telling go out.

Turns are records of their own, numbered from 0 in their chat, so that a chat
of 5,000 turns costs the new turn and not the document.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from attrs import field, frozen

Json = dict[str, Any]


@frozen(kw_only=True)
class SessionRecord:
    """A session, without its chats."""

    id: str
    spelling: str
    """The URI it was created under: the one that is listed."""
    agent: str
    created_at: str
    modified_at: str
    titled_by_person: bool
    default_chat: str
    """The id of its default chat."""
    state: Json
    """The channel's state; `chats` and `inputNeeded` in it are projections and not read back."""


@frozen(kw_only=True)
class ChatRecord:
    """A chat, without its ended turns."""

    id: str
    session: str
    uri: str
    agent_id: str | None
    """The agent's own id for the conversation: what a new worker gets as `resume`."""
    queue_paused: bool
    turn_count: int
    head: Json
    """The channel's state without `turns`."""


@frozen(kw_only=True)
class ClientRecord:
    """A client that this host admitted."""

    id: str
    version: str
    last_seen: str


@frozen(kw_only=True)
class Kept:
    """What a store gives back when it is opened."""

    next_seq: int
    sessions: Sequence[SessionRecord] = field(factory=tuple)
    chats: Sequence[ChatRecord] = field(factory=tuple)
    clients: Sequence[ClientRecord] = field(factory=tuple)


class Store(ABC):
    """Keeps records. Only the host's own task calls it; `put_*` and `remove_*` never wait."""

    @abstractmethod
    async def open(self) -> Kept:
        """Opens the store and reads what is kept, turns apart."""

    @abstractmethod
    def put_session(self, record: SessionRecord) -> None: ...

    @abstractmethod
    def remove_session(self, id: str) -> None:
        """Removes a session, its chats, their turns and whatever else belongs to them."""

    @abstractmethod
    def put_chat(self, record: ChatRecord) -> None: ...

    @abstractmethod
    def remove_chat(self, id: str) -> None: ...

    @abstractmethod
    def put_turn(self, chat: str, number: int, turn: Json) -> None:
        """Writes the turn of that number, and forgets any later ones (a truncated chat)."""

    @abstractmethod
    def put_client(self, record: ClientRecord) -> None: ...

    @abstractmethod
    def put_seq(self, seq: int) -> None:
        """The greatest number spent: a later life starts above it."""

    @abstractmethod
    async def turns(self, chat: str, first: int, count: int) -> list[Json]:
        """Ended turns of a chat by number, oldest first."""

    @property
    @abstractmethod
    def dirty(self) -> bool:
        """Whether something was written that is not committed yet."""

    @abstractmethod
    async def commit(self) -> None:
        """Answers when everything written before the call is kept."""

    @abstractmethod
    async def close(self) -> None:
        """Commits and closes."""
