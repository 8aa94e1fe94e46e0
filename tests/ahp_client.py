"""An AHP client for tests: a real WebSocket, each message kept, state by the reducers."""

import itertools
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import trio
from trio_websocket import ConnectionClosed, WebSocketConnection, open_websocket_url

from ahpd.contracts.ahp.reducers import REDUCERS
from ahpd.contracts.ahp.uris import parse_channel

Json = dict[str, Any]

#: How long anything a test waits for may take, on a machine that is busy.
PATIENCE_S = 20.0


class Refused(Exception):
    """A request was answered with an error."""

    def __init__(self, error: Json) -> None:
        super().__init__(error)
        self.code = error["code"]
        self.data = error.get("data")


class AhpClient:
    """One connection. `states` holds each subscribed channel as the reducers make it."""

    def __init__(self, socket: WebSocketConnection, client_id: str) -> None:
        self.socket = socket
        self.client_id = client_id
        self.states: dict[str, Json] = {}
        self.from_seq: dict[str, int] = {}
        self.envelopes: list[Json] = []
        self.notifications: list[Json] = []
        self.last_seq = 0
        self.closed: tuple[int, str] | None = None
        self._ids = itertools.count(1)
        self._client_seqs = itertools.count(1)
        self._answers: dict[int, Json] = {}
        self._then: dict[int, Callable[[Json], None]] = {}
        self._changed = trio.Event()

    async def read(self) -> None:
        """Reads until the connection is over."""
        while True:
            try:
                text = await self.socket.get_message()
            except ConnectionClosed:
                break
            self.take(json.loads(text))
        reason = self.socket.closed
        self.closed = (reason.code, reason.reason or "") if reason else (1006, "")
        self._tell()

    def take(self, message: Json) -> None:
        """Takes one message of the host."""
        if "method" not in message:
            then = self._then.pop(message["id"], None)
            if then is not None and "result" in message:
                then(message["result"])
            self._answers[message["id"]] = message
        elif message["method"] == "action":
            self.apply(message["params"])
        else:
            self.notifications.append(message)
        self._tell()

    def apply(self, envelope: Json) -> None:
        """Reduces an envelope, unless it was refused."""
        self.envelopes.append(envelope)
        self.last_seq = max(self.last_seq, envelope["serverSeq"])
        channel = envelope["channel"]
        if "rejectionReason" not in envelope and channel in self.states:
            family = parse_channel(channel)
            assert family is not None, channel
            reduce = REDUCERS[family.family]
            self.states[channel] = reduce(self.states[channel], envelope["action"])

    def _tell(self) -> None:
        changed, self._changed = self._changed, trio.Event()
        changed.set()

    async def send(self, message: Any) -> None:
        """Sends a message as it is."""
        await self.socket.send_message(message if isinstance(message, str) else json.dumps(message))

    async def request(
        self, method: str, *, then: Callable[[Json], None] | None = None, **params: Any
    ) -> Any:
        """Asks and waits for the result; `channel` is the root's unless told.

        `then` takes the result before the next message is looked at: what a
        snapshot says must be held before the envelopes that follow it.
        """
        ident = next(self._ids)
        if then is not None:
            self._then[ident] = then
        params.setdefault("channel", "ahp-root://")
        await self.send({"jsonrpc": "2.0", "id": ident, "method": method, "params": params})
        await self.until(lambda: ident in self._answers, what=f"the answer to {method}")
        answer = self._answers.pop(ident)
        if "error" in answer:
            raise Refused(answer["error"])
        return answer["result"]

    async def initialize(self, versions: tuple[str, ...] = ("1.0.0",), **params: Any) -> Json:
        """Opens the connection, and holds the snapshots it was given."""

        def hold_all(result: Json) -> None:
            for snapshot in result["snapshots"]:
                self.hold(snapshot)

        result: Json = await self.request(
            "initialize",
            then=hold_all,
            protocolVersions=list(versions),
            clientId=self.client_id,
            **params,
        )
        return result

    def hold(self, snapshot: Json) -> None:
        """Takes a snapshot as the state of its channel."""
        self.states[snapshot["resource"]] = snapshot["state"]
        self.from_seq[snapshot["resource"]] = snapshot["fromSeq"]
        self.last_seq = max(self.last_seq, snapshot["fromSeq"])

    async def subscribe(self, channel: str, **params: Any) -> Json:
        """Subscribes and holds the snapshot."""
        result = await self.request(
            "subscribe", then=lambda got: self.hold(got["snapshot"]), channel=channel, **params
        )
        return dict(result["snapshot"]["state"])

    async def snapshot(self, channel: str, **params: Any) -> Json:
        """A fresh snapshot of a channel; what is held of it is left as it is.

        The subscription goes on with the preferences in `params`, if any.
        """
        held = self.states.get(channel)
        seq = self.last_seq
        result = await self.request("subscribe", channel=channel, **params)
        if held is not None:
            self.last_seq = max(seq, self.last_seq)
        return dict(result["snapshot"]["state"])

    async def dispatch(self, channel: str, action: Json) -> int:
        """Sends an action; answers its client sequence number."""
        seq = next(self._client_seqs)
        params = {"channel": channel, "clientSeq": seq, "action": action}
        await self.send({"jsonrpc": "2.0", "method": "dispatchAction", "params": params})
        return seq

    async def echo(self, seq: int) -> Json:
        """The one envelope that answers the action of that number."""
        own = {"clientId": self.client_id, "clientSeq": seq}

        def found() -> Json | None:
            return next((e for e in self.envelopes if e.get("origin") == own), None)

        await self.until(lambda: found() is not None, what=f"the echo of action {seq}")
        envelope = found()
        assert envelope is not None
        return envelope

    async def act(self, channel: str, action: Json) -> Json:
        """Sends an action and waits for its echo."""
        return await self.echo(await self.dispatch(channel, action))

    async def until(
        self, holds: Callable[[], Any], *, what: str = "it", within_s: float = PATIENCE_S
    ) -> None:
        """Waits until something holds of what was received."""
        with trio.move_on_after(within_s) as scope:
            while not holds():
                if self.closed is not None:
                    raise AssertionError(f"closed with {self.closed} before {what}")
                changed = self._changed
                await changed.wait()
        if scope.cancelled_caught:
            raise AssertionError(f"{what} did not come within {within_s:g} s")

    # -- a person's words -------------------------------------------------------------

    async def start_turn(self, chat: str, turn_id: str, text: str) -> Json:
        """Starts a turn; answers the echo."""
        return await self.act(chat, turn_started(turn_id, text))

    async def say(self, chat: str, turn_id: str, text: str) -> Json:
        """Starts a turn and waits until it has ended; answers the ended turn."""
        await self.start_turn(chat, turn_id, text)
        return await self.ended(chat, turn_id)

    async def ended(self, chat: str, turn_id: str) -> Json:
        """Waits until that turn has ended; answers it."""

        def turn() -> Json | None:
            return next((t for t in self.states[chat]["turns"] if t["id"] == turn_id), None)

        await self.until(lambda: turn() is not None, what=f"the end of turn {turn_id}")
        found = turn()
        assert found is not None
        return found

    def actions(self, channel: str | None = None) -> list[Json]:
        """Every accepted action received, on one channel or on all."""
        return [
            envelope["action"]
            for envelope in self.envelopes
            if channel in (None, envelope["channel"]) and "rejectionReason" not in envelope
        ]


def turn_started(turn_id: str, text: str) -> Json:
    """A person's message that starts a turn."""
    return {
        "type": "chat/turnStarted",
        "turnId": turn_id,
        "startedAt": "2026-10-01T00:00:00.000Z",
        "message": {"text": text, "origin": {"kind": "user"}},
    }


def text_of(turn: Json) -> str:
    """What a turn's markdown parts say."""
    return "".join(part["content"] for part in turn["responseParts"] if part["kind"] == "markdown")


@asynccontextmanager
async def connect(url: str, client_id: str = "tester") -> AsyncIterator[AhpClient]:
    """A connection, before `initialize`."""
    async with open_websocket_url(url, max_message_size=64 * 1024 * 1024) as socket:
        client = AhpClient(socket, client_id)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.read)
            yield client
            nursery.cancel_scope.cancel()
