"""A store that keeps everything for as long as the host lives."""

from typing import Any

from ..sessions.clock import unix_ms
from .interface import ChatRecord, ClientRecord, Kept, SessionRecord, Store

Json = dict[str, Any]


class MemoryStore(Store):
    """Keeps records in memory: written is committed, and a restart forgets all of it.

    So that numbers never go back for a client that saw an earlier life, a life
    starts at the Unix time in milliseconds.
    """

    def __init__(self) -> None:
        self.sessions: dict[str, SessionRecord] = {}
        self.chats: dict[str, ChatRecord] = {}
        self.clients: dict[str, ClientRecord] = {}
        self._turns: dict[str, list[Json]] = {}
        self._seq = unix_ms()

    async def open(self) -> Kept:
        return Kept(
            next_seq=self._seq,
            sessions=list(self.sessions.values()),
            chats=list(self.chats.values()),
            clients=list(self.clients.values()),
        )

    def put_session(self, record: SessionRecord) -> None:
        self.sessions[record.id] = record

    def remove_session(self, id: str) -> None:
        self.sessions.pop(id, None)
        for chat in [chat.id for chat in self.chats.values() if chat.session == id]:
            self.remove_chat(chat)

    def put_chat(self, record: ChatRecord) -> None:
        self.chats[record.id] = record
        del self._turns.setdefault(record.id, [])[record.turn_count :]

    def remove_chat(self, id: str) -> None:
        self.chats.pop(id, None)
        self._turns.pop(id, None)

    def put_turn(self, chat: str, number: int, turn: Json) -> None:
        turns = self._turns.setdefault(chat, [])
        turns[number:] = [turn]

    def put_client(self, record: ClientRecord) -> None:
        self.clients[record.id] = record

    def put_seq(self, seq: int) -> None:
        self._seq = max(self._seq, seq)

    async def turns(self, chat: str, first: int, count: int) -> list[Json]:
        return self._turns.get(chat, [])[first : first + count]

    @property
    def dirty(self) -> bool:
        return False

    async def commit(self) -> None:
        return None

    async def close(self) -> None:
        return None
