"""One AHP connection: reading its messages, answering them, and sending it what happens.

A wire keeps no state beyond its connection: who the client is, what it is
subscribed to, which turns it holds. Reading never waits: what takes time runs
beside, and `ping` and refusals are answered at once.
"""

from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import structlog
import trio

from ....contracts.ahp import jsonrpc
from ....contracts.ahp.commands import (
    BEFORE_INITIALIZE,
    COMMANDS,
    NOTIFICATIONS,
    CreateSession,
    DispatchAction,
    Unsubscribe,
)
from ....contracts.ahp.errors import AhpError, ErrorCode
from ....contracts.ahp.lens import CANONICAL, Lens, lens_for
from ....contracts.ahp.uris import parse_channel
from ....contracts.shapes import ShapeError, structure
from ...host import Host
from ...sessions.channel import Channel, Subscription
from ...sessions.stream import Envelope
from ..text_line import TextLine
from . import catalogue, connecting, settings, subscribing, windows
from .catalogue import Then
from .subscribing import unsubscribe

Json = dict[str, Any]

#: Of a client that is gone, how many ids of turns its windows may hold to be remembered.
MAX_REMEMBERED_TURNS = 10_000

#: The close code for a client whose place was taken by a newer connection of its own.
REPLACED = 4001
#: The close code after a version that we do not speak.
REFUSED = 1002

_log = structlog.get_logger(__name__)


def ahp_route(host: Host) -> Callable[[TextLine], Awaitable[None]]:
    """What serves one AHP connection, for the listener's table of routes."""

    async def route(line: TextLine) -> None:
        await AhpConnection(host, line).serve()

    return route


class AhpConnection:
    """One client's connection. Its subscriptions end with it.

    Attributes:
        client_id: what the client called itself; empty before it was let in.
        version, lens: what it speaks, and what turns canonical shapes into that.
        channels: those it was subscribed to, by identity; one may be gone by now.
    """

    def __init__(self, host: Host, line: TextLine) -> None:
        self.client_id = ""
        self.host = host
        self.line = line
        self.version: str | None = None
        self.lens: Lens = CANONICAL
        self.channels: dict[int, Channel] = {}
        self._nursery: trio.Nursery | None = None
        self._waiting = 0
        self._behind: dict[str, deque[Callable[[], None]]] = {}
        self._left = False

    async def serve(self) -> None:
        """Serves until the connection is over."""
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                async for text in self.line:
                    await self._receive(text)
                nursery.cancel_scope.cancel()
        finally:
            self.leave()

    def leave(self) -> None:
        """The connection is over, or a newer one of its client took its place."""
        if self._left or not self.client_id:
            return
        self._left = True
        held = {
            channel.uri: frozenset(subscription.held_turns)
            for channel in self.channels.values()
            if (subscription := channel.subscription_of(self)) is not None
            and subscription.held_turns is not None
        }
        kept = held if sum(map(len, held.values())) <= MAX_REMEMBERED_TURNS else None
        self.host.leave_seat(self)
        self.host.admit(self.client_id, self.version or "", windows=kept)

    def let_in(self, client_id: str, version: str) -> windows.Windows | None:
        """The client is here now. Answers the windows that it held when it was here last."""
        self.client_id = client_id
        self.version = version
        self.lens = lens_for(version)
        replaced = self.host.take_seat(self)
        if isinstance(replaced, AhpConnection):
            replaced.leave()
            self.host.nursery.start_soon(
                replaced.line.close, REPLACED, "a newer connection took this client's place"
            )
        known = self.host.admitted(client_id)
        self.host.admit(client_id, version)
        return known.windows if known is not None else {}

    # -- what the host sends (sessions.channel.Seat) ----------------------------------

    def send_envelope(self, envelope: Envelope, subscription: Subscription) -> None:
        """Sends a numbered action in this client's words, after the turns that it lacks of them."""
        held = subscription.held_turns
        for index, action in enumerate(self.said(envelope)):
            if held is not None:
                state = envelope.after or subscription.channel.state
                missing = windows.missing_for(state, held, action)
                if missing is not None:
                    # Numbered as what was told before it: what comes next is not told yet.
                    self.load_turns(subscription, missing, envelope.server_seq - 1)
                windows.remember(held, action)
            self.line.send(envelope.text(subscription.spelling, action, first=index == 0))

    def send_answer(self, envelope: Envelope, spelling: str) -> None:
        """Sends the answer to this client's own action, as this client spells it."""
        self.line.send(envelope.text(spelling, self.lens.said_back(envelope.action)))

    def send_notification(self, method: str, params: Json) -> None:
        """Sends a notification that is no action."""
        said = self.lens.notification(method, params)
        self.line.send(jsonrpc.notification(method, said).decode())

    def said(self, envelope: Envelope) -> tuple[Json, ...]:
        """What this client is told of a numbered action: of its own at least that it happened."""
        said = envelope.said(self.lens)
        own = envelope.origin is not None and envelope.origin.client_id == self.client_id
        return said if said or not own else (self.lens.said_back(envelope.action),)

    def load_turns(self, subscription: Subscription, action: Json, seq: int) -> None:
        envelope = Envelope(channel=subscription.channel.uri, action=action, server_seq=seq)
        if subscription.held_turns is not None:
            windows.remember(subscription.held_turns, action)
        for said in envelope.said(self.lens):
            self.line.send(envelope.text(subscription.spelling, said))

    # -- what the client sends --------------------------------------------------------

    async def _receive(self, text: str) -> None:
        message = jsonrpc.parse_message(text)
        if isinstance(message, jsonrpc.Request | jsonrpc.Notification):
            # What is only kept is read first: what this client says next waits behind it.
            for uri in _named_in(message.params):
                if self.host.asleep(uri):
                    await self.host.wake(uri)
        if self._left:
            return
        match message:
            case jsonrpc.Malformed():
                if not message.silent:
                    self._refuse(message.id, message.code, message.message)
            case jsonrpc.Notification():
                self._notified(message)
            case jsonrpc.Request():
                self._requested(message)
            case jsonrpc.Response():
                _log.info("an answer nobody asked for", client=self.client_id)

    def _notified(self, message: jsonrpc.Notification) -> None:
        if not self.client_id or message.method not in NOTIFICATIONS:
            return
        try:
            params = structure(message.params, COMMANDS[message.method])
        except ShapeError as error:
            _log.info("faulty notification", client=self.client_id, why=str(error))
            return
        if isinstance(params, DispatchAction):
            dispatch = params

            def act() -> None:
                action = self._canonical(dispatch.channel, dispatch.action)
                self.host.dispatch(self, dispatch.channel, dispatch.client_seq, action)
        elif isinstance(params, Unsubscribe):
            unsubscribed = params.channel

            def act() -> None:
                unsubscribe(self, unsubscribed)
        else:
            return
        if not self._goes_behind_creation(params.channel, act):
            act()

    def _canonical(self, uri: str, action: Json) -> Json:
        """This client's action in canonical shapes."""
        channel = None if self.lens.identity else self.host.resolve(uri)
        return action if channel is None else self.lens.client_action(action, channel.state)

    def _goes_behind_creation(self, uri: str, act: Callable[[], None]) -> bool:
        """Whether what names a session that is just being made now stands in line behind that.

        A client may create, subscribe and speak in one breath. What it says of one
        session keeps its order, also what arrives while the line moves.
        """
        made = self.host.being_created(uri)
        if made is None and not self._behind:
            return False
        name = parse_channel(uri)
        if name is None or self._nursery is None or (made is None and name.id not in self._behind):
            return False
        if not self._has_room_to_wait:
            _log.info("too much waits for a session that is being made", client=self.client_id)
            return True
        self._waiting += 1
        if name.id in self._behind:
            self._behind[name.id].append(act)
        elif made is not None:
            self._behind[name.id] = deque([act])
            self._nursery.start_soon(self._follow_creation, name.id, made)
        return True

    async def _follow_creation(self, id: str, made: trio.Event) -> None:
        await made.wait()
        line = self._behind[id]
        while line:
            self._waiting -= 1
            act = line.popleft()
            if not self._left:
                act()
        del self._behind[id]

    @property
    def _has_room_to_wait(self) -> bool:
        return self._waiting < self.host.bounds.max_waiting_per_connection

    def _requested(self, message: jsonrpc.Request) -> None:
        if message.method not in AT_ONCE and message.method not in BESIDE:
            self._refuse(
                message.id, ErrorCode.METHOD_NOT_FOUND, f"there is no method {message.method[:80]}"
            )
            return
        if not self.client_id and message.method not in BEFORE_INITIALIZE:
            self._refuse(
                message.id,
                ErrorCode.INVALID_REQUEST,
                f"{message.method} is served after `initialize` or `reconnect`",
            )
            return
        try:
            said = self.lens.params(message.method, message.params)
            params = structure(said, COMMANDS[message.method])
        except (ShapeError, ValueError) as error:
            self._refuse(message.id, ErrorCode.INVALID_PARAMS, str(error))
            return
        if not self._has_room_to_wait:
            self._refuse(
                message.id, ErrorCode.INTERNAL_ERROR, "too many requests of this client are waiting"
            )
            return
        self._serve_request(message, params)

    def _serve_request(self, message: jsonrpc.Request, params: Any) -> None:
        """Answers before the next message is read, or beside where something has to be waited for.

        Whatever names a session that is just being made waits for it, in its order.
        """

        def act() -> None:
            beside = BESIDE.get(message.method)
            if beside is None:
                with self._answering(message):
                    result = AT_ONCE[message.method](self, params)
                    told = result if isinstance(result, Then) else Then(result=result)
                    self._succeed(message, told.result)
                    told.then()
            elif self._nursery is not None:
                self._waiting += 1
                self._nursery.start_soon(self._serve_beside, message, params, beside)

        # A second session of that id is refused while the first is being made.
        if isinstance(params, CreateSession) or not self._goes_behind_creation(params.channel, act):
            act()

    async def _serve_beside(self, message: jsonrpc.Request, params: Any, beside: "Beside") -> None:
        try:
            with self._answering(message):
                self._succeed(message, await beside(self, params))
        finally:
            self._waiting -= 1

    @contextmanager
    def _answering(self, message: jsonrpc.Request) -> Iterator[None]:
        """Turns what a handler raises into the request's error."""
        try:
            yield
        except AhpError as error:
            self._refuse(message.id, error.code, error.message, error.data)
        except Exception:
            # Whatever fails in here is ours: logged whole, and told in one sentence.
            _log.exception("request failed", method=message.method, client=self.client_id)
            self._refuse(message.id, ErrorCode.INTERNAL_ERROR, "the host failed; see its log")

    def _succeed(self, message: jsonrpc.Request, result: Any) -> None:
        said = self.lens.result(message.method, result)
        text = jsonrpc.success(message.id, said).decode()
        self.host.ledger.answer(lambda: self.line.send(text))

    def _refuse(
        self, ident: jsonrpc.Id | None, code: ErrorCode, message: str, data: Any = None
    ) -> None:
        text = jsonrpc.error(ident, code, message, data).decode()
        if code == ErrorCode.UNSUPPORTED_PROTOCOL_VERSION and self._nursery is not None:
            self.line.send(text)
            self._nursery.start_soon(self.line.close, REFUSED, "unsupported protocol version")
        else:
            self.host.ledger.answer(lambda: self.line.send(text))


def _named_in(params: Any) -> Iterator[str]:
    """The channels that a message's parameters name, whatever else is wrong with them."""
    if not isinstance(params, dict):
        return
    lists = [params.get(key) for key in ("initialSubscriptions", "subscriptions")]
    for named in [[params.get("channel")], *lists]:
        for uri in named if isinstance(named, list) else ():
            if isinstance(uri, str):
                yield uri


Beside = Callable[[AhpConnection, Any], Awaitable[Any]]

#: Answered before the next message is read.
AT_ONCE: Mapping[str, Callable[[AhpConnection, Any], Any]] = {
    "initialize": connecting.initialize,
    "ping": connecting.ping,
    "reconnect": connecting.reconnect,
    "subscribe": subscribing.subscribe,
    "disposeSession": catalogue.dispose_session,
    "listSessions": catalogue.list_sessions,
    "createChat": catalogue.create_chat,
    "disposeChat": catalogue.dispose_chat,
    "fetchTurns": subscribing.fetch_turns,
}

#: Answered when an agent did.
BESIDE: Mapping[str, Beside] = {
    "createSession": catalogue.create_session,
    "resolveSessionConfig": settings.resolve_session_config,
    "sessionConfigCompletions": settings.session_config_completions,
    "completions": settings.completions,
}
