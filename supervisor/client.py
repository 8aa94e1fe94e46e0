"""An AHP client over WebSocket: asks, subscribes, dispatches, and holds the state it reduced.

What the terminal client and the tests stand on. It speaks 1.0, keeps what it was
sent and nothing that it hopes for: a dispatched action changes a state when the
host echoes it. Its only knowledge of a channel is the contracts' reducers.
"""

import ssl
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import count
from typing import Any
from uuid import uuid4

import trio
from attrs import define, field, frozen
from trio_websocket import ConnectionClosed, WebSocketConnection

from ..contracts.ahp import jsonrpc
from ..contracts.ahp.reducers import REDUCERS, Reducer
from ..contracts.ahp.uris import ROOT_URI, parse_channel
from .client_dial import ClientError, dial

Json = dict[str, Any]

PROTOCOL_VERSION = "1.0.0"

#: Of one request, unless its caller knows better. A session's creation asks the agent.
ANSWER_LIMIT_S = 30.0


class RequestRefused(ClientError):
    """The host answered a request with an error."""

    def __init__(self, error: jsonrpc.ResponseError) -> None:
        super().__init__(error.message)
        self.code = error.code
        self.data = error.data


class DispatchRefused(ClientError):
    """The host did not take an action; the message is its reason."""


@frozen(kw_only=True)
class Envelope:
    """An action as the host sent it."""

    channel: str
    action: Json
    server_seq: int
    client_id: str | None = None
    """Who dispatched it; None: the host or the agent."""
    client_seq: int | None = None
    rejection: str | None = None
    """Why it was refused; such an envelope changes no state."""


@frozen(kw_only=True)
class Notification:
    """What the host told beside the envelopes, such as `root/sessionAdded`."""

    method: str
    params: Json


@define(eq=False)
class Mirror:
    """One subscribed channel as this client sees it.

    Attributes:
        uri: as it was subscribed.
        state: the snapshot, reduced by everything since.
        from_seq: of the snapshot.
    """

    uri: str
    state: Json
    from_seq: int
    _reduce: Reducer = field(repr=False)

    def apply(self, action: Json) -> None:
        """Reduces an action of the host's."""
        self.state = self._reduce(self.state, action)


@frozen(kw_only=True)
class LastSeen:
    """What a client that was cut off comes back with."""

    client_id: str
    server_seq: int
    subscriptions: Sequence[str]


@define(eq=False)
class _Asked:
    """A request that waits for its response."""

    then: Callable[[Any], None] | None
    """Called by the reader with the result, before it reads on."""
    response: jsonrpc.Response | None = None
    answered: trio.Event = field(factory=trio.Event)


class AhpClient:
    """One connection of one client. Made by `open_client`; not for subclassing.

    Attributes:
        client_id: what it calls itself.
        server_seq: the greatest number it has seen.
        mirrors: the subscribed channels, by the URI they were subscribed under.
        welcome: the result of `initialize` or `reconnect`.
        messages: how many have come.
        closed: set when the connection is over.
    """

    def __init__(
        self,
        connection: WebSocketConnection,
        client_id: str,
        on_envelope: Callable[[Envelope], None] | None,
        on_notification: Callable[[Notification], None] | None,
    ) -> None:
        self.client_id = client_id
        self.server_seq = 0
        self.mirrors: dict[str, Mirror] = {}
        self.welcome: Json = {}
        self.messages = 0
        self.closed = trio.Event()
        self.why_closed = "the connection is over"
        self._connection = connection
        self._on_envelope = on_envelope
        self._on_notification = on_notification
        self._asked: dict[int, _Asked] = {}
        self._ids = count(1)
        self._client_seqs = count(1)
        self._echoes: dict[int, tuple[trio.Event, list[Envelope]]] = {}
        self._changed = trio.Event()

    @property
    def root(self) -> Mirror:
        """The root channel."""
        return self.mirrors[ROOT_URI]

    @property
    def last_seen(self) -> LastSeen:
        """With what to come back after this connection."""
        return LastSeen(
            client_id=self.client_id,
            server_seq=self.server_seq,
            subscriptions=list(self.mirrors),
        )

    # -- asking -----------------------------------------------------------------------

    async def request(
        self,
        method: str,
        params: Json,
        *,
        limit_s: float = ANSWER_LIMIT_S,
        then: Callable[[Any], None] | None = None,
    ) -> Any:
        """The result of a request.

        Args:
            then: called with the result before anything that came after it is read.

        Raises:
            RequestRefused: the host answered with an error.
            ClientError: the connection is over, or no answer came within the limit.
        """
        ident = next(self._ids)
        asked = self._asked[ident] = _Asked(then=then)
        try:
            await self._send(jsonrpc.request(ident, method, params))
            with trio.move_on_after(limit_s):
                await asked.answered.wait()
        finally:
            self._asked.pop(ident, None)
        if asked.response is None:
            if self.closed.is_set():
                raise ClientError(self.why_closed)
            raise ClientError(f"the host did not answer {method} within {limit_s:g} s")
        if asked.response.error is not None:
            raise RequestRefused(asked.response.error)
        return asked.response.result

    async def notify(self, method: str, params: Json) -> None:
        """Sends a notification. Raises `ClientError` when the connection is over."""
        await self._send(jsonrpc.notification(method, params))

    async def subscribe(self, uri: str, **options: Json) -> Mirror:
        """Subscribes to a channel and answers what it holds, kept up to date from then on.

        Args:
            options: `view` and `delivery`, as `subscribe` has them.

        Raises:
            RequestRefused: there is no such channel.
            ClientError: as `request`.
        """
        params = {"channel": uri, **options}
        await self.request("subscribe", params, then=lambda result: self._take(uri, result))
        return self.mirrors[uri]

    async def unsubscribe(self, uri: str) -> None:
        """Ends a subscription; what still comes of the channel is passed over."""
        self.mirrors.pop(uri, None)
        await self.notify("unsubscribe", {"channel": uri})

    async def create_session(self, uri: str, **params: Any) -> None:
        """Creates a session; it becomes ready, or fails, on its channel."""
        await self.request("createSession", {"channel": uri, **params})

    async def dispatch(self, uri: str, action: Json) -> int:
        """Sends an action without waiting for what comes of it; answers its `clientSeq`."""
        seq = next(self._client_seqs)
        await self.notify("dispatchAction", {"channel": uri, "clientSeq": seq, "action": action})
        return seq

    async def dispatched(
        self, uri: str, action: Json, *, limit_s: float = ANSWER_LIMIT_S
    ) -> Envelope:
        """Sends an action on a subscribed channel, and answers the host's envelope of it.

        Raises:
            DispatchRefused: the host did not take it.
            ClientError: as `request`.
        """
        seq = next(self._client_seqs)
        heard: list[Envelope] = []
        event = trio.Event()
        self._echoes[seq] = (event, heard)
        try:
            params = {"channel": uri, "clientSeq": seq, "action": action}
            await self.notify("dispatchAction", params)
            with trio.move_on_after(limit_s):
                await event.wait()
        finally:
            del self._echoes[seq]
        if not heard:
            if self.closed.is_set():
                raise ClientError(self.why_closed)
            raise ClientError(f"the host did not answer {action['type']} within {limit_s:g} s")
        if heard[0].rejection is not None:
            raise DispatchRefused(heard[0].rejection)
        return heard[0]

    async def changed_since(self, seen: int) -> int:
        """Waits until more came than `seen` messages, or the connection is over; how many did."""
        while self.messages == seen and not self.closed.is_set():
            await self._changed.wait()
        return self.messages

    async def until(
        self, condition: Callable[[], bool], *, limit_s: float = ANSWER_LIMIT_S
    ) -> None:
        """Waits until the condition holds; it is looked at after everything that comes.

        Raises:
            ClientError: it does not hold within the limit, or when the connection is over.
        """
        with trio.move_on_after(limit_s):
            while not condition():
                if self.closed.is_set():
                    raise ClientError(self.why_closed)
                await self._changed.wait()
            return
        raise ClientError(f"what was waited for did not come within {limit_s:g} s")

    # -- hearing ----------------------------------------------------------------------

    async def run(self) -> None:
        """Reads until the connection is over. `open_client` does this."""
        try:
            while True:
                self._hear(await self._connection.get_message())
                self.messages += 1
                self._tell_changed()
        except ConnectionClosed as closed:
            reason = closed.reason
            if reason is not None and reason.code is not None:
                said = f": {reason.reason}" if reason.reason else ""
                self.why_closed = f"the host closed the connection ({reason.code}){said}"
        finally:
            self.closed.set()
            for asked in self._asked.values():
                asked.answered.set()
            for event, _ in self._echoes.values():
                event.set()
            self._tell_changed()

    def _tell_changed(self) -> None:
        changed, self._changed = self._changed, trio.Event()
        changed.set()

    def _hear(self, text: str | bytes) -> None:
        match jsonrpc.parse_message(text):
            case jsonrpc.Response() as response:
                asked = self._asked.get(response.id) if isinstance(response.id, int) else None
                if asked is not None:
                    asked.response = response
                    if response.error is None and asked.then is not None:
                        asked.then(response.result)
                    asked.answered.set()
            case jsonrpc.Notification(method="action", params=params):
                self._hear_envelope(params)
            case jsonrpc.Notification(method=method, params=params):
                if self._on_notification is not None:
                    self._on_notification(Notification(method=method, params=params))

    def _hear_envelope(self, params: Json) -> None:
        origin = params.get("origin") or {}
        envelope = Envelope(
            channel=params["channel"],
            action=params["action"],
            server_seq=params["serverSeq"],
            client_id=origin.get("clientId"),
            client_seq=origin.get("clientSeq"),
            rejection=params.get("rejectionReason"),
        )
        self.server_seq = max(self.server_seq, envelope.server_seq)
        mirror = self.mirrors.get(envelope.channel)
        if mirror is not None and envelope.rejection is None:
            mirror.apply(envelope.action)
        if envelope.client_id == self.client_id and envelope.client_seq in self._echoes:
            event, heard = self._echoes[envelope.client_seq]
            heard.append(envelope)
            event.set()
        if self._on_envelope is not None:
            self._on_envelope(envelope)

    def _take(self, uri: str, result: Json) -> None:
        snapshot = result.get("snapshot")
        if snapshot is not None:
            self._take_snapshot(uri, snapshot)

    def _take_snapshot(self, uri: str, snapshot: Json) -> None:
        name = parse_channel(uri)
        if name is None:
            return
        self.server_seq = max(self.server_seq, snapshot["fromSeq"])
        self.mirrors[uri] = Mirror(
            uri=uri,
            state=snapshot["state"],
            from_seq=snapshot["fromSeq"],
            reduce=REDUCERS[name.family],
        )

    async def open(self, subscriptions: Sequence[str]) -> None:
        """Initializes the connection. `open_client` does this."""
        params = {
            "channel": ROOT_URI,
            "protocolVersions": [PROTOCOL_VERSION],
            "clientId": self.client_id,
            "clientInfo": {"name": "ahpd-supervisor"},
            "initialSubscriptions": list(subscriptions),
        }

        def take(result: Json) -> None:
            self.server_seq = max(self.server_seq, result["serverSeq"])
            for snapshot in result["snapshots"]:
                self._take_snapshot(snapshot["resource"], snapshot)

        self.welcome = await self.request("initialize", params, then=take)

    async def reopen(self, last_seen: LastSeen, mirrors: Sequence[Mirror]) -> None:
        """Reconnects: `mirrors` are brought up to date by replay, or replaced by snapshots.

        Raises:
            RequestRefused: the host does not know the client any more (-32008).
        """
        self.server_seq = last_seen.server_seq
        self.mirrors = {mirror.uri: mirror for mirror in mirrors}
        params = {
            "channel": ROOT_URI,
            "clientId": last_seen.client_id,
            "lastSeenServerSeq": last_seen.server_seq,
            "subscriptions": list(last_seen.subscriptions),
        }

        def take(result: Json) -> None:
            if result["type"] == "replay":
                for gone in result["missing"]:
                    self.mirrors.pop(gone, None)
                for envelope in result["actions"]:
                    self._hear_envelope(envelope)
                return
            self.mirrors.clear()
            for snapshot in result["snapshots"]:
                self._take_snapshot(snapshot["resource"], snapshot)

        self.welcome = await self.request("reconnect", params, then=take)

    async def _send(self, data: bytes) -> None:
        try:
            await self._connection.send_message(data.decode())
        except ConnectionClosed:
            # The reader knows why, as soon as it has its turn.
            with trio.move_on_after(1):
                await self.closed.wait()
            raise ClientError(self.why_closed) from None


@asynccontextmanager
async def open_client(
    url: str,
    *,
    client_id: str | None = None,
    subscriptions: Sequence[str] = (ROOT_URI,),
    tls: ssl.SSLContext | None = None,
    resume: AhpClient | None = None,
    on_envelope: Callable[[Envelope], None] | None = None,
    on_notification: Callable[[Notification], None] | None = None,
) -> AsyncIterator[AhpClient]:
    """A connected client. An exception of the body comes out in a group, as from any nursery.

    Args:
        url: `ws://` or `wss://`, with the token.
        client_id: a fresh one unless given.
        subscriptions: channels to hold from the beginning.
        tls: how to check a `wss://` host; the system's certificates unless given.
        resume: a client that was cut off: this one reconnects in its place.
        on_envelope, on_notification: called in order with all that comes; may not wait.

    Raises:
        ClientError: the host cannot be reached, or does not let us in.
    """
    ident = resume.client_id if resume is not None else client_id or f"client-{uuid4()}"
    async with AsyncExitStack() as stack:
        connection = await dial(stack, url, tls)
        nursery = await stack.enter_async_context(trio.open_nursery())
        client = AhpClient(connection, ident, on_envelope, on_notification)
        nursery.start_soon(client.run)
        if resume is not None:
            await client.reopen(resume.last_seen, list(resume.mirrors.values()))
        else:
            await client.open(subscriptions)
        yield client
        nursery.cancel_scope.cancel()
