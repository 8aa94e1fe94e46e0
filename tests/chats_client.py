"""A client of `/chats` for tests: every frame of the host is held against the schema.

It reduces as any client does: a thread a chat, by the events it hears and nothing else.
"""

import itertools
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import trio
from trio_websocket import WebSocketConnection, open_websocket_url

from agent_contracts import faults, schema
from ahpd.contracts.chats import (
    AGENT_EVENTS,
    AGENT_REQUESTS,
    ChatEvent,
    Thread,
    read_event,
    read_result,
)
from ahpd.contracts.frames import BadFrame, parse_server_frame

Json = dict[str, Any]

#: How long anything a test waits for may take, on a machine that is busy.
PATIENCE_S = 20.0


class ChatsRefused(Exception):
    """A request was answered with a failure."""

    def __init__(self, error: Json) -> None:
        super().__init__(error)
        self.code: str = error["code"]
        self.message: str = error["message"]


class ChatsClient:
    """One connection.

    Attributes:
        threads: what is held of each chat that it is attached to.
        seqs: the last number applied, by chat.
        events: every event heard, oldest first: its name and its payload.
    """

    def __init__(self, socket: WebSocketConnection) -> None:
        self.socket = socket
        self.threads: dict[str, Thread] = {}
        self.seqs: dict[str, int] = {}
        self.events: list[tuple[str, Json]] = []
        self.closed: tuple[int, str] | None = None
        self.nameless: list[Json] = []
        self._ids = itertools.count(1)
        self._asked: dict[str, str] = {}
        self._answers: dict[str, Json] = {}
        self._attaching: dict[str, str] = {}
        self._changed = trio.Event()
        self.broken: list[str] = []

    async def read(self) -> None:
        """Reads until the connection is over."""
        try:
            while True:
                self.take(await self.socket.get_message())
        except Exception as error:
            reason = self.socket.closed
            if reason is None:
                self.broken.append(repr(error))
            self.closed = (reason.code, reason.reason or "") if reason else (1006, "")
            self._tell()

    def take(self, text: Any) -> None:
        """Takes one frame of the host, and holds it against the schema."""
        frame = json.loads(text)
        self.broken += faults("ServerFrame", frame)
        if isinstance(parse_server_frame(text), BadFrame):
            self.broken.append(f"no frame: {text[:200]}")
        if frame.get("type") == "event":
            self._heard(frame["event"], frame["payload"])
        elif frame["id"] is None:
            self.nameless.append(frame)
        else:
            self._answered(frame)
        self._tell()

    def _heard(self, name: str, payload: Json) -> None:
        self.events.append((name, payload))
        if name not in AGENT_EVENTS:
            return
        self.broken += faults(_definition(schema()["x-events"][name]), payload)
        if name == "chat.event":
            told = read_event(name, payload)
            self._apply(told.chat_id, told.event, told.seq)

    def _apply(self, chat_id: str, event: ChatEvent, seq: int | None) -> None:
        held = self.threads.get(chat_id)
        if held is None or seq is None:
            return
        if seq != self.seqs[chat_id] + 1:
            self.broken.append(f"{chat_id}: {seq} came after {self.seqs[chat_id]}")
        self.threads[chat_id] = held.apply(event)
        self.seqs[chat_id] = seq

    def _answered(self, frame: Json) -> None:
        ident = frame["id"]
        name = self._asked.get(ident, "")
        if frame["ok"] and name in AGENT_REQUESTS:
            definition = _definition(schema()["x-requests"][name]["result"])
            self.broken += faults(definition, frame["result"])
            chat_id = self._attaching.pop(ident, None)
            if chat_id is not None:
                self._hold(chat_id, read_result(name, frame["result"]))
        self._answers[ident] = frame

    def _hold(self, chat_id: str, result: Any) -> None:
        self.seqs[chat_id] = result.seq
        if result.events is None:
            self.threads[chat_id] = Thread(info=result.info, items=result.items)
            return
        for event in result.events:
            self.threads[chat_id] = self.threads[chat_id].apply(event)
        if self.threads[chat_id].info != result.info:
            self.broken.append(f"{chat_id}: what happened since leads to another info")

    def _tell(self) -> None:
        changed, self._changed = self._changed, trio.Event()
        changed.set()

    # -- asking -----------------------------------------------------------------------

    async def send(self, name: str, payload: Any = None, *, ident: str | None = None) -> str:
        """Sends a request and does not wait; answers its id."""
        ident = ident or f"q{next(self._ids)}"
        self._asked[ident] = name
        if name == "chat.attach":
            self._attaching[ident] = payload["chatId"]
        request = {"id": ident, "type": name, "payload": {} if payload is None else payload}
        await self.socket.send_message(json.dumps(request))
        return ident

    async def answer(self, ident: str) -> Any:
        """Waits for the result of the request of that id."""
        await self.until(lambda: ident in self._answers, what=f"the answer to {self._asked[ident]}")
        frame = self._answers.pop(ident)
        if not frame["ok"]:
            raise ChatsRefused(frame["error"])
        return frame["result"]

    async def ask(self, name: str, /, **payload: Any) -> Any:
        """Asks and waits for the result."""
        return await self.answer(await self.send(name, payload))

    async def refused(self, name: str, /, **payload: Any) -> str:
        """Asks what is to be refused; answers the code."""
        try:
            result = await self.ask(name, **payload)
        except ChatsRefused as refusal:
            return refusal.code
        raise AssertionError(f"{name} was answered {result}")

    async def until(
        self, holds: Callable[[], Any], *, what: str = "it", within_s: float = PATIENCE_S
    ) -> None:
        """Waits until something holds of what was received."""
        with trio.move_on_after(within_s) as scope:
            while not holds():
                assert not self.broken, self.broken[:3]
                if self.closed is not None:
                    raise AssertionError(f"closed with {self.closed} before {what}")
                changed = self._changed
                await changed.wait()
        assert not self.broken, self.broken[:3]
        if scope.cancelled_caught:
            raise AssertionError(f"{what} did not come within {within_s:g} s")

    # -- a person's words -------------------------------------------------------------

    async def create(self, chat_id: str, **wishes: Any) -> Json:
        """Makes a chat and attaches to it; answers its info."""
        info: Json = await self.ask("chat.create", chatId=chat_id, **wishes)
        await self.attach(chat_id)
        return info

    async def attach(self, chat_id: str, **wishes: Any) -> Json:
        """Attaches, and holds the thread."""
        result: Json = await self.ask("chat.attach", chatId=chat_id, **wishes)
        return result

    async def say(self, chat_id: str, text: str, **more: Any) -> Json:
        """Sends a message; answers what was answered."""
        result: Json = await self.ask("chat.send", chatId=chat_id, text=text, **more)
        return result

    async def talk(self, chat_id: str, text: str) -> str:
        """Sends a message and waits until its turn is over; answers the turn's id."""
        turn_id: str = (await self.say(chat_id, text))["turnId"]
        await self.turn_over(chat_id, turn_id)
        return turn_id

    async def turn_over(self, chat_id: str, turn_id: str) -> Any:
        """Waits until that turn has ended; answers its item."""
        await self.until(
            lambda: (
                self.turn(chat_id, turn_id) and self.turn(chat_id, turn_id).ended_at is not None
            ),
            what=f"the end of turn {turn_id}",
        )
        return self.turn(chat_id, turn_id)

    async def is_like_a_fresh_attach_of(self, fresh: "ChatsClient", chat_id: str) -> None:
        """Holds what this client reduced against what another is answered right now."""
        await fresh.attach(chat_id)
        while self.seqs[chat_id] != fresh.seqs[chat_id]:
            one, other = (
                (self, fresh) if self.seqs[chat_id] < fresh.seqs[chat_id] else (fresh, self)
            )
            await one.until(
                partial(_reached, one.seqs, chat_id, other.seqs[chat_id]), what="the same number"
            )
        assert self.threads[chat_id] == fresh.threads[chat_id]

    def turn(self, chat_id: str, turn_id: str) -> Any:
        """The item of that turn."""
        return next((one for one in self.items(chat_id, "turn") if one.id == turn_id), None)

    def items(self, chat_id: str, kind: str | None = None) -> list[Any]:
        """The items held of a chat, of one kind or all."""
        return [one for one in self.threads[chat_id].items if kind in (None, one.kind)]

    def replies(self, chat_id: str) -> list[str]:
        """What the agent replied."""
        return [one.text for one in self.items(chat_id, "assistant")]

    async def pending(self, chat_id: str) -> Any:
        """Waits until something waits on a person; answers the first item of it."""

        def waiting() -> Any:
            for one in self.items(chat_id):
                asks = getattr(one, "decision", None) or getattr(one, "state", None)
                if one.kind in ("approval", "question") and asks == "pending":
                    return one
            return None

        await self.until(lambda: waiting() is not None, what="a request")
        return waiting()

    def statuses(self, chat_id: str) -> list[Json]:
        """The infos that were told of a chat by `chat.status`."""
        return [
            payload["info"]
            for name, payload in self.events
            if name == "chat.status" and payload["chatId"] == chat_id
        ]

    def heard(self, name: str) -> list[Json]:
        """The payloads of every event of that name."""
        return [payload for event, payload in self.events if event == name]


def _reached(seqs: dict[str, int], chat_id: str, seq: int) -> bool:
    return seqs[chat_id] >= seq


def _definition(ref: str) -> str:
    return ref.rpartition("/")[2]


@asynccontextmanager
async def connect_chats(url: str) -> AsyncIterator[ChatsClient]:
    """A connection. What was wrong with any frame fails the test at the latest when it ends."""
    async with open_websocket_url(url, max_message_size=64 * 1024 * 1024) as socket:
        client = ChatsClient(socket)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.read)
            yield client
            nursery.cancel_scope.cancel()
        assert not client.broken, client.broken[:3]
