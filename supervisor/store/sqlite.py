"""The store on disk: one SQLite database, written in batches from one thread at a time.

What is written gathers in memory and goes into the database with the next
commit, as one transaction: a batch is kept whole or not at all. Reading has a
connection of its own, which a write-ahead log never makes wait.
"""

import os
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import trio
from attrs import define, field

from ...contracts.json import JsonError, encode_json
from ..sessions.clock import unix_ms
from . import rows
from .interface import (
    ChatRecord,
    ClientRecord,
    Durability,
    Kept,
    KeptSession,
    SessionRecord,
    Store,
    StoreError,
    Unreadable,
)
from .schema import WrongDatabase, bring_up_to_date
from .upkeep import check_database, connect, copy_database

Json = dict[str, Any]
T = TypeVar("T")

#: What a checkpoint leaves of the write-ahead log.
MAX_LOG_BYTES = 16 * 1024 * 1024


@define(kw_only=True, eq=False)
class ChatWrites:
    """What was written of one chat since the last commit."""

    erased: bool = False
    """Everything that is kept of it goes first."""
    record: ChatRecord | None = None
    turns_from: int | None = None
    """Kept turns from this number on go, before `turns` come."""
    turns: dict[int, Json] = field(factory=dict)
    actions: list[bytes] = field(factory=list)
    """Those after `record`."""


@define(kw_only=True, eq=False)
class Batch:
    """What was written since the last commit. Its parts may be done in this order."""

    must_commit: bool = False
    sessions: dict[str, SessionRecord] = field(factory=dict)
    chats: dict[str, ChatWrites] = field(factory=dict)
    clients: dict[str, ClientRecord | None] = field(factory=dict)
    seq: int | None = None
    removed: str | None = None
    """A session that goes: nothing more is put into a batch that has one."""


class SqliteStore(Store):
    """Keeps records in a database. Not for subclassing.

    Args:
        path: the database; made, for its owner alone, when it is not there.
        durability: what a commit survives.

    Attributes:
        commits: how many transactions were written since it was made.
    """

    def __init__(self, path: Path, *, durability: Durability = "process") -> None:
        self.on_write: Callable[[], None] = lambda: None
        self._path = path
        self._durability = durability
        self._batches = [Batch()]
        self.commits = 0
        self._written = False
        self._committing = False
        self._commit_lock = trio.Lock()
        self._writer = trio.CapacityLimiter(1)
        self._reader = trio.CapacityLimiter(1)
        self._write_connection: sqlite3.Connection | None = None
        self._read_connection: sqlite3.Connection | None = None

    # -- opening and closing ----------------------------------------------------------

    async def open(self) -> Kept:
        return await self._in(self._writer, self._open)

    def _open(self) -> Kept:
        try:
            os.close(os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
            writing = connect(self._path)
            self._write_connection = writing
            bring_up_to_date(writing)
            # Set after the first look: a file that is not ours must not be changed.
            writing.execute("PRAGMA journal_mode = WAL")
            level = "FULL" if self._durability == "power" else "NORMAL"
            writing.execute(f"PRAGMA synchronous = {level}")
            writing.execute(f"PRAGMA journal_size_limit = {MAX_LOG_BYTES}")
            self._read_connection = connect(self._path)
            self._read_connection.execute("PRAGMA query_only = ON")
            return rows.read_catalogue(self._read_connection)
        except OSError as error:
            self._close_connections()
            raise StoreError(f"cannot use {self._path}: {error.strerror or error}") from None
        except WrongDatabase as error:
            self._close_connections()
            raise StoreError(f"{self._path} {error}; it was left as it is") from None
        except sqlite3.Error as error:
            self._close_connections()
            raise StoreError(
                f"cannot read the database {self._path}: {error}; it was left as it is"
            ) from None

    async def close(self) -> None:
        try:
            await self.commit()
        finally:
            with trio.CancelScope(shield=True):
                async with self._commit_lock:
                    await trio.to_thread.run_sync(self._close_connections, limiter=self._writer)

    def _close_connections(self) -> None:
        for connection in (self._read_connection, self._write_connection):
            if connection is not None:
                connection.close()
        self._read_connection = self._write_connection = None

    # -- writing ----------------------------------------------------------------------

    def put_session(self, record: SessionRecord) -> None:
        self._batch().sessions[record.id] = record

    def remove_session(self, id: str) -> None:
        self._batch().removed = id
        self._batches.append(Batch())

    def put_chat(self, record: ChatRecord) -> None:
        writes = self._chat(record.id)
        writes.record = record
        writes.actions.clear()
        _forget_turns(writes, record.turn_count)

    def put_turn(self, chat: str, number: int, turn: Json) -> None:
        writes = self._chat(chat)
        _forget_turns(writes, number)
        writes.turns[number] = turn

    def add_action(self, chat: str, action_json: bytes, *, may_lag: bool) -> None:
        self._chat(chat, may_lag=may_lag).actions.append(action_json)

    def remove_chat(self, id: str) -> None:
        self._batch().chats[id] = ChatWrites(erased=True)

    def put_client(self, record: ClientRecord) -> None:
        self._batch().clients[record.id] = record

    def remove_client(self, id: str) -> None:
        self._batch().clients[id] = None

    def put_seq(self, seq: int) -> None:
        self._batch().seq = seq

    def _batch(self, *, may_lag: bool = False) -> Batch:
        batch = self._batches[-1]
        self._written = True
        batch.must_commit = batch.must_commit or not may_lag
        self.on_write()
        return batch

    def _chat(self, id: str, *, may_lag: bool = False) -> ChatWrites:
        chats = self._batch(may_lag=may_lag).chats
        if id not in chats:
            chats[id] = ChatWrites()
        return chats[id]

    @property
    def must_commit(self) -> bool:
        return self._committing or any(batch.must_commit for batch in self._batches)

    @property
    def behind(self) -> bool:
        return self._committing or self._written

    async def commit(self) -> None:
        async with self._commit_lock:
            if not self._written:
                return
            taken, self._batches, self._written = self._batches, [Batch()], False
            self._committing = any(batch.must_commit for batch in taken)
            try:
                await self._in(self._writer, self._write, taken)
                self.commits += 1
            except BaseException:
                # Refused, or cancelled before it began: the next commit has it all.
                self._batches, self._written = [*taken, *self._batches], True
                raise
            finally:
                self._committing = False

    def _write(self, batches: list[Batch]) -> None:
        connection = self._connection(self._write_connection)
        try:
            connection.execute("BEGIN IMMEDIATE")
            try:
                for batch in batches:
                    _write_batch(connection, batch)
                rows.put_fact(connection, "committed_ms", unix_ms())
                connection.execute("COMMIT")
            except BaseException:
                # A full disk may have rolled it back already.
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise
        except sqlite3.Error as error:
            raise StoreError(f"the database {self._path} cannot be written: {error}") from None

    # -- reading ----------------------------------------------------------------------

    async def session(self, id: str) -> KeptSession | None:
        return await self._in(self._reader, self._read_session, id)

    def _read_session(self, id: str) -> KeptSession | None:
        connection = self._connection(self._read_connection)
        try:
            # One transaction: a commit in between would tear what belongs together.
            connection.execute("BEGIN")
            try:
                return rows.read_session(connection, id)
            finally:
                connection.execute("ROLLBACK")
        except sqlite3.Error as error:
            raise Unreadable(f"The session {id} cannot be read from disk: {error}.") from None

    async def turns(self, chat: str, first: int, count: int) -> list[Json]:
        def read() -> list[Json]:
            connection = self._connection(self._read_connection)
            try:
                return rows.read_turns(connection, chat, first, first + count)
            except (sqlite3.Error, JsonError) as error:
                raise Unreadable(f"The chat {chat} cannot be read from disk: {error}.") from None

        return await self._in(self._reader, read)

    async def check(self) -> list[str]:
        def read() -> list[str]:
            return check_database(self._path)

        return await self._in(self._reader, read)

    async def backup(self, path: Path) -> None:
        def copy() -> None:
            copy_database(self._connection(self._read_connection), path)

        await self._in(self._reader, copy)

    async def _in(self, limiter: trio.CapacityLimiter, call: Callable[..., T], *args: Any) -> T:
        return await trio.to_thread.run_sync(call, *args, limiter=limiter)

    def _connection(self, connection: sqlite3.Connection | None) -> sqlite3.Connection:
        if connection is None:
            raise StoreError(f"the database {self._path} is closed")
        return connection


def _forget_turns(writes: ChatWrites, first: int) -> None:
    for number in [number for number in writes.turns if number >= first]:
        del writes.turns[number]
    writes.turns_from = first if writes.turns_from is None else min(writes.turns_from, first)


def _write_batch(connection: sqlite3.Connection, batch: Batch) -> None:
    for session in batch.sessions.values():
        rows.write_session(connection, session)
    for id, writes in batch.chats.items():
        _write_chat(connection, id, writes)
    for id, client in batch.clients.items():
        if client is None:
            connection.execute("DELETE FROM clients WHERE id = ?", (id,))
        else:
            connection.execute(
                "INSERT OR REPLACE INTO clients (id, version, last_seen) VALUES (?, ?, ?)",
                (client.id, client.version, client.last_seen),
            )
    if batch.seq is not None:
        rows.put_fact(connection, "seq", batch.seq)
    if batch.removed is not None:
        rows.remove_session(connection, batch.removed)


def _write_chat(connection: sqlite3.Connection, id: str, writes: ChatWrites) -> None:
    if writes.erased:
        rows.remove_chat(connection, id)
    if writes.turns_from is not None:
        connection.execute(
            "DELETE FROM turns WHERE chat = ? AND number >= ?", (id, writes.turns_from)
        )
    connection.executemany(
        "INSERT INTO turns (chat, number, body) VALUES (?, ?, ?)",
        [(id, number, encode_json(turn)) for number, turn in writes.turns.items()],
    )
    if writes.record is not None:
        rows.write_chat(connection, writes.record)
        connection.execute("DELETE FROM actions WHERE chat = ?", (id,))
    connection.executemany(
        "INSERT INTO actions (chat, body) VALUES (?, ?)",
        [(id, action) for action in writes.actions],
    )
