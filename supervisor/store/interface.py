"""What the host writes down: the records, and the store behind which memory and SQLite stand alike.

Told means kept: what a client is told happened is committed first. The host
writes records as they change (`put_*`, `add_*`, `remove_*`: cheap, never
waiting) and a `Ledger` commits them in groups before it lets the telling go out.

A chat is its head, its ended turns and its journal. Turns are records of their
own, numbered from 0, so that a chat of 5,000 turns costs the new turn and not
the document. The journal holds the actions since the head was written: while a
turn runs each action costs its own size, and not that of the turn so far. What
a chat is, is its head with its turns, reduced by its journal.

Values that are written are never changed afterwards: they are encoded later.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec
from attrs import field, frozen

from ...contracts.json import JsonError

Json = dict[str, Any]

Durability = Literal["process", "power"]
"""What a commit survives: the end of the program; or a power cut too, which costs an fsync each."""


class StoreError(Exception):
    """The store cannot be used, or refuses to keep more; the message is one sentence."""


class Unreadable(Exception):
    """One kept thing cannot be read; the message is one sentence that names it."""


def decode_kept(data: bytes) -> Json:
    """An object that `encode_json` wrote. What was taken in was bounded in depth then, and lies
    deeper in what is kept of it.

    Raises:
        JsonError: it is no object.
    """
    try:
        value = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise JsonError(f"not JSON: {error}") from None
    if not isinstance(value, dict):
        raise JsonError("not an object")
    return value


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
    """The channel's state; `chats` and `inputNeeded` in it are projections of the chats."""
    summary: Json
    """Its row in the list, so that listing reads no state."""


@frozen(kw_only=True)
class ChatRecord:
    """A chat, without its ended turns."""

    id: str
    session: str
    uri: str
    parent: str | None = None
    """The id of the chat whose agent opened it as a subagent's."""
    tool_call_id: str | None = None
    agent_id: str | None = None
    """The agent's own id for the conversation: what a new worker gets as `resume`."""
    rewind_at: str | None = None
    """The turn that the next worker goes back to, after the chat was truncated."""
    queue_paused: bool = False
    beside: Json = field(factory=dict)
    """What a wire keeps of the chat beside its state."""
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
class SessionRow:
    """What is read of a session when a store is opened: enough to list it."""

    id: str
    modified_at: str
    summary_json: bytes

    @property
    def summary(self) -> Json:
        """Its row in the list.

        Raises:
            JsonError: it cannot be read.
        """
        return decode_kept(self.summary_json)


@frozen(kw_only=True)
class ChatRow:
    """What is read of a chat when a store is opened: enough to know its name."""

    id: str
    session: str
    uri: str


@frozen(kw_only=True)
class Kept:
    """What a store gives back when it is opened."""

    next_seq: int
    """A number greater than any that was ever told."""
    committed_ms: int = 0
    """When something was last committed, in milliseconds since the Unix epoch."""
    sessions: Sequence[SessionRow] = field(factory=tuple)
    """Newest change first."""
    chats: Sequence[ChatRow] = field(factory=tuple)
    cut_off: Sequence[str] = field(factory=tuple)
    """The ids of the sessions in which a turn was running, or an agent said what it does."""
    clients: Sequence[ClientRecord] = field(factory=tuple)
    """Who was seen last comes last."""


@frozen(kw_only=True)
class KeptChat:
    """All that is kept of a chat."""

    record: ChatRecord
    turns: Sequence[Json]
    actions: Sequence[Json]
    """The journal: what happened since the record was written, oldest first."""


@frozen(kw_only=True)
class KeptSession:
    """All that is kept of a session."""

    record: SessionRecord
    chats: Sequence[KeptChat]
    """In the order in which they were made."""
    unreadable: Mapping[str, str] = field(factory=dict)
    """Chats that cannot be read, and why, by their ids."""


class Store(ABC):
    """Keeps records. Only the host's own task calls it; what writes never waits."""

    on_write: Callable[[], None]
    """Called when something was written that is not committed yet. Set by the ledger."""

    @abstractmethod
    async def open(self) -> Kept:
        """Opens the store and reads its catalogue.

        Raises:
            StoreError: it cannot be opened; it was left as it is.
        """

    @abstractmethod
    def put_session(self, record: SessionRecord) -> None: ...

    @abstractmethod
    def remove_session(self, id: str) -> None:
        """Removes a session, its chats, their turns and whatever else belongs to them."""

    @abstractmethod
    def put_chat(self, record: ChatRecord) -> None:
        """Writes a chat's head. Its journal is empty then, and turns from `turn_count` on are
        forgotten."""

    @abstractmethod
    def put_turn(self, chat: str, number: int, turn: Json) -> None:
        """Writes the turn of that number, and forgets any later ones."""

    @abstractmethod
    def add_action(self, chat: str, action_json: bytes, *, may_lag: bool) -> None:
        """Adds an action to a chat's journal.

        Args:
            may_lag: it is streamed text, which may be told before it is kept.
        """

    @abstractmethod
    def remove_chat(self, id: str) -> None: ...

    @abstractmethod
    def put_client(self, record: ClientRecord) -> None: ...

    @abstractmethod
    def remove_client(self, id: str) -> None: ...

    @abstractmethod
    def put_seq(self, seq: int) -> None:
        """A number that no spent one may pass before a greater one is kept: a later life starts
        there."""

    @property
    @abstractmethod
    def must_commit(self) -> bool:
        """Whether something was written that has to be kept before anything more is told."""

    @property
    @abstractmethod
    def behind(self) -> bool:
        """Whether anything at all was written that is not committed yet."""

    @abstractmethod
    async def commit(self) -> None:
        """Answers when everything written before the call is kept.

        Raises:
            StoreError: it cannot be kept now. It is not forgotten: the next commit tries again.
        """

    @abstractmethod
    async def session(self, id: str) -> KeptSession | None:
        """All that is committed of a session; None when there is none.

        Raises:
            Unreadable: its own record, or its default chat, cannot be read.
        """

    @abstractmethod
    async def turns(self, chat: str, first: int, count: int) -> list[Json]:
        """Committed turns of a chat by number, oldest first; the journal is not looked at.

        Raises:
            Unreadable: one cannot be read.
        """

    @abstractmethod
    async def check(self) -> list[str]:
        """Looks at everything that is kept; answers what is wrong, a sentence each."""

    @abstractmethod
    async def backup(self, path: Path) -> None:
        """Writes a copy of all that is committed to a new file, while the store is in use.

        Raises:
            StoreError: the file is there already, or cannot be written.
        """

    @abstractmethod
    async def close(self) -> None:
        """Commits and closes.

        Raises:
            StoreError: not everything could be kept.
        """
