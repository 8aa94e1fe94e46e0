"""A store that keeps everything for as long as the program lives."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from ...contracts.json import encode_json
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
    Store,
    StoreError,
    decode_kept,
)

Json = dict[str, Any]


class MemoryStore(Store):
    """Keeps records in memory: written is committed. It can be opened again after it was closed.

    So that numbers never go back for a client that saw an earlier life, a life
    starts at the Unix time in milliseconds.
    """

    def __init__(self) -> None:
        self.on_write: Callable[[], None] = lambda: None
        self._sessions: dict[str, SessionRecord] = {}
        self._chats: dict[str, ChatRecord] = {}
        self._turns: dict[str, list[Json]] = {}
        self._actions: dict[str, list[bytes]] = {}
        self._clients: dict[str, ClientRecord] = {}
        self._seq = 0
        self._committed_ms = 0

    async def open(self) -> Kept:
        rows = [
            SessionRow(
                id=record.id,
                modified_at=record.modified_at,
                summary_json=encode_json(record.summary),
            )
            for record in self._sessions.values()
        ]
        running = {
            chat.session
            for chat in self._chats.values()
            if {"activeTurn", "activity"} & chat.head.keys()
        }
        running.update(self._chats[id].session for id, told in self._actions.items() if told)
        return Kept(
            next_seq=max(self._seq, unix_ms()),
            committed_ms=self._committed_ms,
            sessions=sorted(rows, key=lambda row: (row.modified_at, row.id), reverse=True),
            chats=[
                ChatRow(id=chat.id, session=chat.session, uri=chat.uri)
                for chat in self._chats.values()
            ],
            cut_off=sorted(running & self._sessions.keys()),
            clients=sorted(self._clients.values(), key=lambda client: client.last_seen),
        )

    def put_session(self, record: SessionRecord) -> None:
        self._sessions[record.id] = record
        self._written()

    def remove_session(self, id: str) -> None:
        self._sessions.pop(id, None)
        for chat in [chat.id for chat in self._chats.values() if chat.session == id]:
            self.remove_chat(chat)

    def put_chat(self, record: ChatRecord) -> None:
        self._chats[record.id] = record
        del self._turns.setdefault(record.id, [])[record.turn_count :]
        self._actions[record.id] = []
        self._written()

    def put_turn(self, chat: str, number: int, turn: Json) -> None:
        self._turns.setdefault(chat, [])[number:] = [turn]

    def add_action(self, chat: str, action_json: bytes, *, may_lag: bool) -> None:
        self._actions[chat].append(action_json)
        self._written()

    def remove_chat(self, id: str) -> None:
        self._chats.pop(id, None)
        self._turns.pop(id, None)
        self._actions.pop(id, None)

    def put_client(self, record: ClientRecord) -> None:
        self._clients[record.id] = record

    def remove_client(self, id: str) -> None:
        self._clients.pop(id, None)

    def put_seq(self, seq: int) -> None:
        self._seq = max(self._seq, seq)

    def _written(self) -> None:
        self._committed_ms = unix_ms()

    @property
    def must_commit(self) -> bool:
        return False

    @property
    def behind(self) -> bool:
        return False

    async def commit(self) -> None:
        return None

    async def session(self, id: str) -> KeptSession | None:
        record = self._sessions.get(id)
        if record is None:
            return None
        chats = [
            KeptChat(
                record=chat,
                turns=list(self._turns.get(chat.id, [])),
                actions=[decode_kept(action) for action in self._actions.get(chat.id, [])],
            )
            for chat in self._chats.values()
            if chat.session == id
        ]
        return KeptSession(record=record, chats=chats)

    async def turns(self, chat: str, first: int, count: int) -> list[Json]:
        return self._turns.get(chat, [])[first : first + count]

    async def check(self) -> list[str]:
        return []

    async def backup(self, path: Path) -> None:
        raise StoreError("This host keeps nothing on disk: there is nothing to back up.")

    async def close(self) -> None:
        return None
