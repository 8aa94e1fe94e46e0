"""Records as rows of the database, in both directions. Called from the store's threads."""

import sqlite3
from typing import Any

from ...contracts.json import JsonError, encode_json
from ..sessions.clock import unix_ms
from .interface import (
    ChatRecord,
    ChatRow,
    ClientRecord,
    Kept,
    KeptChat,
    KeptSession,
    SessionRecord,
    SessionRow,
    Unreadable,
    decode_kept,
)

Json = dict[str, Any]

# -- writing --------------------------------------------------------------------------


def write_session(connection: sqlite3.Connection, record: SessionRecord) -> None:
    """Writes a session's own row."""
    connection.execute(
        "INSERT INTO sessions (id, modified_at, spelling, agent, created_at, titled_by_person,"
        " default_chat, summary, state) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO"
        " UPDATE SET modified_at = excluded.modified_at,"
        " titled_by_person = excluded.titled_by_person, summary = excluded.summary,"
        " state = excluded.state",
        (
            record.id,
            record.modified_at,
            record.spelling,
            record.agent,
            record.created_at,
            record.titled_by_person,
            record.default_chat,
            encode_json(record.summary),
            encode_json(record.state),
        ),
    )


def write_chat(connection: sqlite3.Connection, record: ChatRecord) -> None:
    connection.execute(
        "INSERT INTO chats (id, session, uri, parent, tool_call_id, agent_id, rewind_at,"
        " queue_paused, beside, turn_count, running, head)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
        " ON CONFLICT (id) DO UPDATE SET agent_id = excluded.agent_id,"
        " rewind_at = excluded.rewind_at, queue_paused = excluded.queue_paused,"
        " beside = excluded.beside,"
        " turn_count = excluded.turn_count, running = excluded.running, head = excluded.head",
        (
            record.id,
            record.session,
            record.uri,
            record.parent,
            record.tool_call_id,
            record.agent_id,
            record.rewind_at,
            record.queue_paused,
            encode_json(record.beside),
            record.turn_count,
            # Something of it is a worker's, and a worker does not outlive its host.
            "activeTurn" in record.head or "activity" in record.head,
            encode_json(record.head),
        ),
    )


def remove_chat(connection: sqlite3.Connection, id: str) -> None:
    connection.execute("DELETE FROM turns WHERE chat = ?", (id,))
    connection.execute("DELETE FROM actions WHERE chat = ?", (id,))
    connection.execute("DELETE FROM chats WHERE id = ?", (id,))


def remove_session(connection: sqlite3.Connection, id: str) -> None:
    chats = connection.execute("SELECT id FROM chats WHERE session = ?", (id,)).fetchall()
    for (chat,) in chats:
        remove_chat(connection, chat)
    connection.execute("DELETE FROM sessions WHERE id = ?", (id,))


def put_fact(connection: sqlite3.Connection, name: str, value: int) -> None:
    connection.execute("INSERT OR REPLACE INTO facts (name, value) VALUES (?, ?)", (name, value))


# -- reading --------------------------------------------------------------------------


def read_catalogue(connection: sqlite3.Connection) -> Kept:
    facts = dict(connection.execute("SELECT name, value FROM facts").fetchall())
    sessions = connection.execute(
        "SELECT id, modified_at, summary FROM sessions ORDER BY modified_at DESC, id DESC"
    )
    chats = connection.execute("SELECT id, session, uri FROM chats ORDER BY number")
    cut_off = connection.execute(
        "SELECT session FROM chats WHERE running UNION SELECT session FROM chats"
        " WHERE id IN (SELECT DISTINCT chat FROM actions) ORDER BY session"
    )
    clients = connection.execute("SELECT id, version, last_seen FROM clients ORDER BY last_seen")
    return Kept(
        # By the clock too: an older copy of the database may have been put back.
        next_seq=max(facts.get("seq", 0), unix_ms()),
        committed_ms=facts.get("committed_ms", 0),
        sessions=[
            SessionRow(id=id, modified_at=modified_at, summary_json=bytes(summary))
            for id, modified_at, summary in sessions
        ],
        chats=[ChatRow(id=id, session=session, uri=uri) for id, session, uri in chats],
        cut_off=[id for (id,) in cut_off],
        clients=[
            ClientRecord(id=id, version=version, last_seen=last_seen)
            for id, version, last_seen in clients
        ],
    )


def read_session(connection: sqlite3.Connection, id: str) -> KeptSession | None:
    """All that is kept of a session; None when there is none.

    Raises:
        Unreadable: its own record, or its default chat, cannot be read.
        sqlite3.Error: the database cannot be read.
    """
    row = connection.execute(
        "SELECT spelling, agent, created_at, modified_at, titled_by_person, default_chat, state,"
        " summary FROM sessions WHERE id = ?",
        (id,),
    ).fetchone()
    if row is None:
        return None
    spelling, agent, created_at, modified_at, titled_by_person, default_chat, state, summary = row
    try:
        record = SessionRecord(
            id=id,
            spelling=spelling,
            agent=agent,
            created_at=created_at,
            modified_at=modified_at,
            titled_by_person=bool(titled_by_person),
            default_chat=default_chat,
            state=_object(state),
            summary=_object(summary),
        )
    except JsonError as error:
        raise Unreadable(f"The session {id} cannot be read from disk: {error}.") from None
    names = connection.execute("SELECT id FROM chats WHERE session = ? ORDER BY number", (id,))
    chats: list[KeptChat] = []
    unreadable: dict[str, str] = {}
    for (name,) in names.fetchall():
        try:
            chats.append(_read_chat(connection, name))
        except (JsonError, sqlite3.Error) as error:
            unreadable[name] = f"The chat {name} cannot be read from disk: {error}."
    if default_chat in unreadable:
        raise Unreadable(unreadable[default_chat])
    if all(chat.record.id != default_chat for chat in chats):
        raise Unreadable(f"The session {id} cannot be read from disk: its default chat is missing.")
    return KeptSession(record=record, chats=chats, unreadable=unreadable)


def _read_chat(connection: sqlite3.Connection, id: str) -> KeptChat:
    row = connection.execute(
        "SELECT session, uri, parent, tool_call_id, agent_id, rewind_at, queue_paused, beside,"
        " turn_count, head FROM chats WHERE id = ?",
        (id,),
    ).fetchone()
    session, uri, parent, tool_call_id, agent_id, rewind_at, queue_paused, beside, *rest = row
    turn_count, head = rest
    turns = read_turns(connection, id, 0, turn_count)
    if len(turns) != turn_count:
        raise JsonError(f"{turn_count - len(turns)} of its {turn_count} turns are missing")
    actions = connection.execute("SELECT body FROM actions WHERE chat = ? ORDER BY number", (id,))
    return KeptChat(
        record=ChatRecord(
            id=id,
            session=session,
            uri=uri,
            parent=parent,
            tool_call_id=tool_call_id,
            agent_id=agent_id,
            rewind_at=rewind_at,
            queue_paused=bool(queue_paused),
            beside=_object(beside),
            turn_count=turn_count,
            head=_object(head),
        ),
        turns=turns,
        actions=[_object(body) for (body,) in actions],
    )


def read_turns(connection: sqlite3.Connection, chat: str, first: int, end: int) -> list[Json]:
    rows = connection.execute(
        "SELECT body FROM turns WHERE chat = ? AND number >= ? AND number < ? ORDER BY number",
        (chat, first, end),
    )
    return [_object(body) for (body,) in rows]


def _object(data: Any) -> Json:
    if not isinstance(data, bytes):
        raise JsonError("not the bytes of an object")
    return decode_kept(data)
