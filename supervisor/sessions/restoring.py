"""What is kept and not in memory: the rows by which it is listed and named, and how it comes back.

A host starts with the catalogue alone. A session comes into memory, whole, when
somebody names it; those in which a turn was cut off come first, before anything
is served, so that no turn runs without a worker.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ...contracts.ahp.reducers import reduce_chat
from ...contracts.ahp.uris import parse_channel
from ...contracts.json import encode_json
from ..store.interface import Kept, KeptChat, KeptSession, SessionRow
from .chat import Chat
from .clock import unix_ms_of
from .session import Session

if TYPE_CHECKING:
    from ..host import Host

Json = dict[str, Any]


class Catalogue:
    """The kept sessions that are not in memory.

    Attributes:
        rows: by id, newest change first.
        unreadable: why what is kept of a session or a chat cannot be read, by its id.
    """

    def __init__(self, kept: Kept) -> None:
        self.rows: dict[str, SessionRow] = {row.id: row for row in kept.sessions}
        self.unreadable: dict[str, str] = {}
        self._session_of: dict[str, str] = {}
        self._session_at: dict[str, str] = {}
        self._chats_of: dict[str, list[tuple[str, str]]] = {}
        for chat in kept.chats:
            if chat.session in self.rows:
                self._add_chat(chat.id, chat.uri, chat.session)

    def _add_chat(self, id: str, uri: str, session: str) -> None:
        self._session_of[id] = session
        self._session_at[uri] = session
        self._chats_of.setdefault(session, []).append((id, uri))

    def add(self, kept: KeptSession) -> None:
        """A session came from elsewhere."""
        record = kept.record
        summary = encode_json(record.summary)
        row = SessionRow(id=record.id, modified_at=record.modified_at, summary_json=summary)
        rows = [*self.rows.values(), row]
        rows.sort(key=lambda held: (held.modified_at, held.id), reverse=True)
        self.rows = {held.id: held for held in rows}
        for chat in kept.chats:
            self._add_chat(chat.record.id, chat.record.uri, record.id)

    def has(self, id: str) -> bool:
        """Whether a session or a chat of that id is kept."""
        return id in self.rows or id in self._session_of

    @property
    def chat_count(self) -> int:
        """How many chats the sessions have."""
        return len(self._session_of)

    def session_named(self, uri: str) -> str | None:
        """The id of the session that a URI names, or of which it names a chat."""
        if not self.rows:
            return None
        session = self._session_at.get(uri)
        name = parse_channel(uri) if session is None else None
        if name is None:
            return session
        if name.family == "session":
            return name.id if name.id in self.rows else None
        return self._session_of.get(name.id) if name.family == "chat" else None

    def meant(self, beginning: str) -> Iterator[str]:
        """The ids of the sessions that are named so, or have a chat that is: by the beginning of
        an id. One may come twice."""
        for id in self.rows:
            if id.startswith(beginning):
                yield id
        for chat, session in self._session_of.items():
            if chat.startswith(beginning):
                yield session

    def take(self, id: str) -> None:
        """The session is in memory now, or gone."""
        self.rows.pop(id, None)
        for chat, uri in self._chats_of.pop(id, []):
            self._session_of.pop(chat, None)
            self._session_at.pop(uri, None)


def restore_session(host: "Host", kept: KeptSession, cut_off_ms: int) -> Session:
    """The session as it was kept. Nothing of it runs; what was cut off is left to be ended.

    What only clients and workers of the earlier life held up is gone: they are.

    Args:
        cut_off_ms: when the earlier life ended, in milliseconds since the Unix epoch.
    """
    record = kept.record
    session = Session(
        host,
        id=record.id,
        spelling=record.spelling,
        agent=record.agent,
        state={**record.state, "activeClients": []},
        created_at=record.created_at,
    )
    chats: dict[str, Chat] = {}
    for one in kept.chats:
        if one.record.parent is None or one.record.parent in chats:
            chats[one.record.id] = _restore_chat(session, one, chats, cut_off_ms)
    session.restored(record, chats)
    return session


def _restore_chat(
    session: Session, kept: KeptChat, chats: dict[str, Chat], cut_off_ms: int
) -> Chat:
    record = kept.record
    turns = list(kept.turns)
    state: Json = {**record.head, "turns": turns}
    for action in kept.actions:
        state = reduce_chat(state, action)
    chat = Chat(
        session,
        id=record.id,
        uri=record.uri,
        state=state,
        parent=chats.get(record.parent) if record.parent is not None else None,
        tool_call_id=record.tool_call_id,
    )
    started_ms = unix_ms_of(state["activeTurn"]["startedAt"]) if "activeTurn" in state else None
    ran_ms = 0 if started_ms is None else max(0, cut_off_ms - started_ms)
    chat.restored(record, turns, ran_ms)
    return chat
