"""The Agent Host Protocol on one connection: translation between its messages and the host.

A wire keeps no state beyond its connection: who the client is, what it is
subscribed to, which turns it holds. Reading never waits: what takes time runs
beside, and `ping` and refusals are answered at once.
"""

import base64
import binascii
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version as installed_version
from itertools import islice
from pathlib import Path
from typing import Any

import structlog
import trio
from attrs import frozen

from ...contracts.ahp import jsonrpc
from ...contracts.ahp.absence import without_nulls
from ...contracts.ahp.commands import (
    BEFORE_INITIALIZE,
    COMMANDS,
    NOTIFICATIONS,
    Completions,
    CreateChat,
    CreateSession,
    DispatchAction,
    DisposeChat,
    DisposeSession,
    FetchTurns,
    Initialize,
    ListSessions,
    Ping,
    Reconnect,
    ResolveSessionConfig,
    SessionConfigCompletions,
    Subscribe,
    Unsubscribe,
)
from ...contracts.ahp.errors import AhpError, ErrorCode
from ...contracts.ahp.lens import CANONICAL, Lens, lens_for
from ...contracts.ahp.uris import file_uri, parse_channel, path_of_file_uri
from ...contracts.ahp.versions import SUPPORTED_VERSIONS, negotiate
from ...contracts.json import decode_json, encode_json
from ...contracts.shapes import ShapeError, structure
from ...contracts.worker_wire import Completions as AskCompletions
from ...contracts.worker_wire import Items
from ..agents import AgentUnavailable
from ..host import Host
from ..processes.worker_client import WorkerGone, WorkerRefused
from ..sessions.channel import Channel, Subscription
from ..sessions.settings import initial_settings
from ..sessions.stream import Envelope
from . import windows
from .text_line import TextLine

Json = dict[str, Any]
Waiting = Callable[["AhpConnection", Any], Awaitable[Any]]

#: A client's own id: longer ones are not remembered, so they are not let in.
MAX_CLIENT_ID_CHARS = 512

#: What an answer may weigh beside its snapshots.
ENVELOPE_BYTES = 64 * 1024

#: Of a client that is gone, how many ids of turns its windows may hold to be remembered.
MAX_REMEMBERED_TURNS = 10_000

#: How many sessions one answer lists, also to a client that asks for no pages.
MAX_LISTED = 20_000

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


@frozen(kw_only=True)
class Then:
    """A result, and what happens when it was sent."""

    result: Any
    then: Callable[[], None] = lambda: None


class AhpConnection:
    """One client's connection. Its subscriptions end with it.

    Attributes:
        client_id: what the client called itself; empty before it was let in.
    """

    def __init__(self, host: Host, line: TextLine) -> None:
        self.client_id = ""
        self._host = host
        self._line = line
        self._version: str | None = None
        self._lens: Lens = CANONICAL
        self._channels: dict[int, Channel] = {}
        self._nursery: trio.Nursery | None = None
        self._waiting = 0
        self._behind: dict[str, deque[Callable[[], None]]] = {}
        self._left = False

    async def serve(self) -> None:
        """Serves until the connection is over."""
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                async for text in self._line:
                    await self._receive(text)
                nursery.cancel_scope.cancel()
        finally:
            self._leave()

    def _leave(self) -> None:
        """The connection is over, or a newer one of its client took its place."""
        if self._left or not self.client_id:
            return
        self._left = True
        held = {
            channel.uri: frozenset(subscription.held_turns)
            for channel in self._channels.values()
            if (subscription := channel.subscription_of(self)) is not None
            and subscription.held_turns is not None
        }
        kept = held if sum(map(len, held.values())) <= MAX_REMEMBERED_TURNS else None
        self._host.leave_seat(self)
        self._host.admit(self.client_id, self._version or "", windows=kept)

    # -- what the host sends (sessions.channel.Seat) ----------------------------------

    def send_envelope(self, envelope: Envelope, subscription: Subscription) -> None:
        """Sends a numbered action in this client's words, after the turns that it lacks of them."""
        held = subscription.held_turns
        for index, action in enumerate(self._said(envelope)):
            if held is not None:
                state = envelope.after or subscription.channel.state
                missing = windows.missing_for(state, held, action)
                if missing is not None:
                    # Numbered as what was told before it: what comes next is not told yet.
                    self._load_turns(subscription, missing, envelope.server_seq - 1)
                windows.remember(held, action)
            self._line.send(envelope.text(subscription.spelling, action, first=index == 0))

    def send_answer(self, envelope: Envelope, spelling: str) -> None:
        """Sends the answer to this client's own action, as this client spells it."""
        self._line.send(envelope.text(spelling, self._lens.said_back(envelope.action)))

    def send_notification(self, method: str, params: Json) -> None:
        """Sends a notification that is no action."""
        said = self._lens.notification(method, params)
        self._line.send(jsonrpc.notification(method, said).decode())

    def _said(self, envelope: Envelope) -> tuple[Json, ...]:
        """What this client is told of a numbered action: of its own at least that it happened."""
        said = envelope.said(self._lens)
        own = envelope.origin is not None and envelope.origin.client_id == self.client_id
        return said if said or not own else (self._lens.said_back(envelope.action),)

    def _load_turns(self, subscription: Subscription, action: Json, seq: int) -> None:
        envelope = Envelope(channel=subscription.channel.uri, action=action, server_seq=seq)
        if subscription.held_turns is not None:
            windows.remember(subscription.held_turns, action)
        for said in envelope.said(self._lens):
            self._line.send(envelope.text(subscription.spelling, said))

    # -- what the client sends --------------------------------------------------------

    async def _receive(self, text: str) -> None:
        message = jsonrpc.parse_message(text)
        if isinstance(message, jsonrpc.Request | jsonrpc.Notification):
            # What is only kept is read first: what this client says next waits behind it.
            for uri in _named_in(message.params):
                if self._host.asleep(uri):
                    await self._host.wake(uri)
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
                self._host.dispatch(self, dispatch.channel, dispatch.client_seq, action)
        elif isinstance(params, Unsubscribe):
            unsubscribed = params.channel

            def act() -> None:
                self._unsubscribe(unsubscribed)
        else:
            return
        if not self._goes_behind_creation(params.channel, act):
            act()

    def _canonical(self, uri: str, action: Json) -> Json:
        """This client's action in canonical shapes."""
        channel = None if self._lens.identity else self._host.resolve(uri)
        return action if channel is None else self._lens.client_action(action, channel.state)

    def _goes_behind_creation(self, uri: str, act: Callable[[], None]) -> bool:
        """Whether what names a session that is just being made now stands in line behind that.

        A client may create, subscribe and speak in one breath. What it says of one
        session keeps its order, also what arrives while the line moves.
        """
        made = self._host.being_created(uri)
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
        return self._waiting < self._host.bounds.max_waiting_per_connection

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
            said = self._lens.params(message.method, message.params)
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

    async def _serve_beside(self, message: jsonrpc.Request, params: Any, beside: "Waiting") -> None:
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
        said = self._lens.result(message.method, result)
        text = jsonrpc.success(message.id, said).decode()
        self._host.ledger.answer(lambda: self._line.send(text))

    def _refuse(
        self, ident: jsonrpc.Id | None, code: ErrorCode, message: str, data: Any = None
    ) -> None:
        text = jsonrpc.error(ident, code, message, data).decode()
        if code == ErrorCode.UNSUPPORTED_PROTOCOL_VERSION and self._nursery is not None:
            self._line.send(text)
            self._nursery.start_soon(self._line.close, REFUSED, "unsupported protocol version")
        else:
            self._host.ledger.answer(lambda: self._line.send(text))

    # -- connecting -------------------------------------------------------------------

    def _initialize(self, params: Initialize) -> Json:
        if self.client_id:
            raise AhpError(ErrorCode.INVALID_REQUEST, "This connection is initialized already.")
        if not 0 < len(params.client_id) <= MAX_CLIENT_ID_CHARS:
            raise AhpError(
                ErrorCode.INVALID_PARAMS,
                f"params.clientId: expected 1 to {MAX_CLIENT_ID_CHARS} characters",
            )
        try:
            version = negotiate(params.protocol_versions)
        except ValueError as error:
            raise AhpError(ErrorCode.INVALID_PARAMS, f"params.protocolVersions: {error}") from None
        if version is None:
            supported = list(SUPPORTED_VERSIONS)
            raise AhpError(
                ErrorCode.UNSUPPORTED_PROTOCOL_VERSION,
                f"This host speaks {', '.join(supported)}.",
                {"supportedVersions": supported},
            )
        wanted = self._named(params.initial_subscriptions)
        self._hold_subscriptions(wanted.values())
        self._let_in(params.client_id, version)
        # Taking a snapshot publishes what is being gathered, so the number is read after it.
        snapshots = self._subscribe_all(wanted)
        return {
            "protocolVersion": version,
            "serverSeq": self._host.stream.seq,
            "serverInfo": {
                "name": "ahpd-supervisor",
                "version": installed_version("ahpd-supervisor"),
            },
            "snapshots": snapshots,
            "defaultDirectory": file_uri(str(Path.home())),
        }

    def _reconnect(self, params: Reconnect) -> Json:
        if self.client_id:
            raise AhpError(ErrorCode.INVALID_REQUEST, "This connection is initialized already.")
        known = self._host.admitted(params.client_id)
        if known is None:
            raise AhpError(
                ErrorCode.RESOURCE_NOT_FOUND,
                f"This host does not know the client {params.client_id[:80]}; initialize instead.",
            )
        named = self._named(params.subscriptions)
        missing = [uri for uri in dict.fromkeys(params.subscriptions) if uri not in named]
        self._hold_subscriptions(named.values())
        held = self._let_in(params.client_id, known.version)
        replayed = self._replay(named, params.last_seen_server_seq, held)
        if replayed is not None:
            replay: Json = {"type": "replay", "actions": replayed, "missing": missing}
            if len(encode_json(replay)) < self._room_bytes:
                return replay
        return {"type": "snapshot", "snapshots": self._subscribe_all(named)}

    def _named(self, uris: Iterable[str]) -> dict[str, Channel]:
        """The channels that are there, by the spellings they are asked for under."""
        return {uri: channel for uri in uris if (channel := self._host.resolve(uri)) is not None}

    def _replay(
        self, named: Mapping[str, Channel], seen_seq: int, windows_held: windows.Windows | None
    ) -> list[Json] | None:
        """Subscribes to the channels and answers what was missed of them since that number.

        None when that cannot be told as actions: some are held no longer, a channel
        is younger than what the client saw, or it lacks turns that they name.
        """
        for channel in named.values():
            channel.flush()
        envelopes = self._host.stream.since(seen_seq)
        if envelopes is None or windows_held is None or self._may_have_missed(named, seen_seq):
            return None
        if any(channel.born_seq > seen_seq for channel in named.values()):
            return None
        held = {
            channel.uri: set(windows_held[channel.uri])
            for channel in named.values()
            if channel.uri in windows_held
        }
        spellings = {channel.uri: uri for uri, channel in named.items()}
        missed = [envelope for envelope in envelopes if envelope.channel in spellings]
        for envelope in missed:
            turns = held.get(envelope.channel)
            if turns is not None:
                turn_id = envelope.action.get("turnId")
                windows.remember(turns, envelope.action)
                if isinstance(turn_id, str) and turn_id not in turns:
                    return None
        for uri, channel in named.items():
            self._subscribe(channel, uri)
            subscription = channel.subscription_of(self)
            if subscription is not None:
                subscription.held_turns = held.get(channel.uri)
        return [
            envelope.params(spellings[envelope.channel], action, first=index == 0)
            for envelope in missed
            for index, action in enumerate(self._said(envelope))
        ]

    def _may_have_missed(self, named: Mapping[str, Channel], seen_seq: int) -> bool:
        """Whether a replay could fall short for this client's version.

        What an older version is told in several actions for one number may have been
        cut off between them, and what is said from the states around an action
        cannot be said again: those are not kept. Snapshots answer instead.
        """
        if self._lens.identity:
            return False
        envelopes = self._host.stream.since(seen_seq - 1)
        uris = {channel.uri for channel in named.values()}
        return envelopes is None or any(
            envelope.channel in uris and self._lens.needs_states(envelope.action)
            for envelope in envelopes
        )

    def _let_in(self, client_id: str, version: str) -> windows.Windows | None:
        """The client is here now. Answers the windows that it held when it was here last."""
        self.client_id = client_id
        self._version = version
        self._lens = lens_for(version)
        replaced = self._host.take_seat(self)
        if isinstance(replaced, AhpConnection):
            replaced._leave()
            self._host.nursery.start_soon(
                replaced._line.close, REPLACED, "a newer connection took this client's place"
            )
        known = self._host.admitted(client_id)
        self._host.admit(client_id, version)
        return known.windows if known is not None else {}

    def _ping(self, params: Ping) -> Json:
        return {}

    # -- subscribing ------------------------------------------------------------------

    @property
    def _room_bytes(self) -> int:
        return self._host.bounds.max_frame_bytes - ENVELOPE_BYTES

    def _subscribe_request(self, params: Subscribe) -> Json:
        channel = self._host.resolve(params.channel)
        if channel is None:
            unreadable = self._host.unreadable(params.channel)
            if unreadable is not None:
                raise AhpError(ErrorCode.INTERNAL_ERROR, unreadable)
            name = parse_channel(params.channel)
            code = (
                ErrorCode.SESSION_NOT_FOUND
                if name is not None and name.family == "session"
                else ErrorCode.RESOURCE_NOT_FOUND
            )
            raise AhpError(code, f"There is no channel {params.channel[:200]}.")
        self._hold_subscriptions([channel])
        latency_ms = params.delivery.max_latency_ms if params.delivery else None
        turns = params.view.turns if params.view else None
        snapshot = self._subscribe(channel, params.channel, latency_ms=latency_ms, turns=turns)
        return {"snapshot": self._fitted(snapshot, channel, self._room_bytes)}

    def _subscribe_all(self, named: Mapping[str, Channel]) -> list[Json]:
        """Snapshots of all of them, together within one frame."""
        snapshots = [self._subscribe(channel, uri) for uri, channel in named.items()]
        sizes = [len(encode_json(snapshot)) for snapshot in snapshots]
        if sum(sizes) <= self._room_bytes:
            return snapshots
        share = self._room_bytes // len(snapshots)
        return [
            self._fitted(snapshot, channel, share)
            for snapshot, channel in zip(snapshots, named.values(), strict=True)
        ]

    def _subscribe(
        self,
        channel: Channel,
        spelling: str,
        *,
        latency_ms: float | None = None,
        turns: int | None = None,
    ) -> Json:
        state = channel.snapshot()
        held: set[str] | None = None
        if channel.family == "chat":
            state, held = windows.windowed(state, turns)
        channel.subscribe(self, spelling, max_latency_ms=latency_ms, held_turns=held)
        self._channels[id(channel)] = channel
        shown = self._lens.snapshot(channel.family, state)
        return {"resource": spelling, "state": shown, "fromSeq": channel.stream.seq}

    def _fitted(self, snapshot: Json, channel: Channel, room_bytes: int) -> Json:
        """The snapshot with so few turns that it fits; its window is narrowed with it."""
        subscription = channel.subscription_of(self)
        while channel.family == "chat" and len(encode_json(snapshot)) > room_bytes:
            turns = len(snapshot["state"]["turns"])
            if turns == 0 or subscription is None:
                break
            state, held = windows.windowed(channel.state, turns // 2)
            subscription.held_turns = held
            snapshot = {**snapshot, "state": self._lens.snapshot(channel.family, state)}
        return snapshot

    def _hold_subscriptions(self, wanted: Iterable[Channel]) -> None:
        """Refuses more channels than one connection may be subscribed to."""
        # A channel that is gone took its subscriptions along.
        self._channels = {
            key: channel
            for key, channel in self._channels.items()
            if channel.subscription_of(self) is not None
        }
        limit = self._host.bounds.max_subscriptions_per_connection
        if len({*self._channels, *map(id, wanted)}) > limit:
            raise AhpError(
                ErrorCode.INVALID_PARAMS, f"A connection may subscribe to {limit} channels."
            )

    def _unsubscribe(self, uri: str) -> None:
        channel = self._host.resolve(uri)
        if channel is not None:
            channel.unsubscribe(self)
            self._channels.pop(id(channel), None)

    def _fetch_turns(self, params: FetchTurns) -> Json:
        chat = self._host.chat_at(params.channel)
        subscription = chat.channel.subscription_of(self)
        if subscription is None:
            raise AhpError(
                ErrorCode.INVALID_PARAMS, "params.channel: subscribe to the chat before its turns"
            )
        state, held = chat.channel.snapshot(), subscription.held_turns
        if params.cursor is None:
            page = None if held is None else windows.next_page(state, held)
        else:
            turn_id = windows.turn_of(params.cursor)
            page = windows.page_before(state, turn_id) if turn_id is not None else None
            if page is None:
                raise AhpError(
                    ErrorCode.INVALID_PARAMS, "params.cursor: expected a cursor of this chat"
                )
        # Who holds these turns is not sent them: their cursor would lead backwards.
        if page is not None and held is not None:
            lacks = any(turn["id"] not in held for turn in page["turns"])
            if lacks:
                seq = chat.channel.stream.seq
                self._host.ledger.answer(lambda: self._load_turns(subscription, page, seq))
        return {}

    # -- sessions and chats -----------------------------------------------------------

    async def _create_session(self, params: CreateSession) -> None:
        directories = self._folders(params.working_directories)
        client = params.active_client
        if client is not None and client["clientId"] != self.client_id:
            raise AhpError(
                ErrorCode.INVALID_PARAMS, "params.activeClient.clientId: expected this client's own"
            )
        await self._host.create_session(
            params.channel,
            provider=params.provider,
            directories=directories,
            config=params.config,
            progress_token=params.progress_token,
            active_client=client,
        )

    def _dispose_session(self, params: DisposeSession) -> None:
        self._host.hold_keeping()
        if self._host.remove_unreadable(params.channel):
            return
        self._host.dispose_session(self._host.session_at(params.channel))

    def _list_sessions(self, params: ListSessions) -> Json:
        listed = self._host.listed()
        if params.cursor is not None:
            after = _listed_after(params.cursor)
            if after is None:
                raise AhpError(
                    ErrorCode.INVALID_PARAMS, "params.cursor: expected a cursor of listSessions"
                )
            listed = (held for held in listed if (held.modified_at, held.id) < after)
        limit = min(params.limit or MAX_LISTED, MAX_LISTED)
        page = list(islice(listed, limit))
        result: Json = {"items": [session.summary() for session in page]}
        if next(listed, None) is not None:
            result["nextCursor"] = _list_cursor(page[-1].modified_at, page[-1].id)
        return result

    def _create_chat(self, params: CreateChat) -> "Then":
        session = self._host.session_at(params.channel)
        if params.source is not None:
            raise AhpError(
                ErrorCode.INVALID_PARAMS, "params.source: this host does not fork chats yet"
            )
        message = params.initial_message
        if message is not None and message["origin"].get("kind") != "user":
            raise AhpError(
                ErrorCode.INVALID_PARAMS, "params.initialMessage.origin.kind: expected `user`"
            )
        directories = self._folders(params.working_directories)
        chat = self._host.create_chat(session, params.chat, directories=directories)

        def start() -> None:
            if message is not None:
                chat.start_turn(without_nulls(message))

        # The protocol's order: the catalogue has the chat, the client its answer, then the turn.
        return Then(result=None, then=start)

    def _dispose_chat(self, params: DisposeChat) -> None:
        self._host.hold_keeping()
        self._host.remove_chat(self._host.chat_at(params.channel))

    @staticmethod
    def _folders(uris: tuple[str, ...] | None) -> list[str]:
        for index, uri in enumerate(uris or ()):
            if path_of_file_uri(uri) is None:
                raise AhpError(
                    ErrorCode.INVALID_PARAMS,
                    f"params.workingDirectories[{index}]: expected a file:// URI",
                )
        return list(uris or ())

    # -- settings and completions -----------------------------------------------------

    def _provider(self, named: str | None) -> str:
        provider = named or self._host.agents.default
        if provider is None or provider not in self._host.agents.by_name:
            raise AhpError(ErrorCode.PROVIDER_NOT_FOUND, f"There is no agent {provider}.")
        return provider

    async def _resolve_session_config(self, params: ResolveSessionConfig) -> Json:
        provider = self._provider(params.provider)
        try:
            described = await self._host.agents.describe(provider)
        except AgentUnavailable as fault:
            raise AhpError(ErrorCode.PROVIDER_NOT_FOUND, str(fault)) from None
        values = initial_settings(described.schema, described.defaults, params.config or {})
        if isinstance(values, str):
            raise AhpError(ErrorCode.INVALID_PARAMS, f"params.config: {values}")
        return {"schema": described.schema, "values": values}

    async def _session_config_completions(self, params: SessionConfigCompletions) -> Json:
        provider = self._provider(params.provider)
        directory = params.working_directory
        path = path_of_file_uri(directory) if directory is not None else None
        try:
            items = await self._host.agents.config_completions(
                provider, params.property, params.query or "", params.config or {}, path
            )
        except AgentUnavailable as fault:
            raise AhpError(ErrorCode.PROVIDER_NOT_FOUND, str(fault)) from None
        return {"items": [item for item in items if _is_value_item(item)]}

    async def _completions(self, params: Completions) -> Json:
        channel = self._host.resolve(params.channel)
        chat = (
            self._host.session_at(params.channel).default_chat
            if channel is None or channel.family != "chat"
            else self._host.chat_at(params.channel)
        )
        worker = chat.worker
        if worker is None or "completions" not in worker.members:
            return {"items": []}
        asked = AskCompletions(kind=params.kind, text=params.text, offset=params.offset)
        try:
            answered: Items = await worker.ask("session.completions", asked)
        except (WorkerGone, WorkerRefused, trio.TooSlowError) as error:
            _log.info("no completions", chat=chat.id, why=str(error))
            return {"items": []}
        return {"items": [item for item in answered.items if _is_completion(item)]}


def _named_in(params: Any) -> Iterator[str]:
    """The channels that a message's parameters name, whatever else is wrong with them."""
    if not isinstance(params, dict):
        return
    lists = [params.get(key) for key in ("initialSubscriptions", "subscriptions")]
    for named in [[params.get("channel")], *lists]:
        for uri in named if isinstance(named, list) else ():
            if isinstance(uri, str):
                yield uri


def _is_value_item(item: Any) -> bool:
    return (
        isinstance(item, dict)
        and isinstance(item.get("value"), str)
        and isinstance(item.get("label"), str)
    )


def _is_completion(item: Any) -> bool:
    return (
        isinstance(item, dict)
        and isinstance(item.get("insertText"), str)
        and isinstance(item.get("attachment"), dict)
    )


def _list_cursor(modified_at: str, id: str) -> str:
    return base64.urlsafe_b64encode(encode_json([modified_at, id])).decode()


def _listed_after(cursor: str) -> tuple[str, str] | None:
    try:
        data = base64.b64decode(cursor.encode(), altchars=b"-_", validate=True)
        modified_at, id = structure(decode_json(data), list[str], "cursor")
    except (ValueError, binascii.Error):
        return None
    return modified_at, id


#: Answered before the next message is read.
AT_ONCE: Mapping[str, Callable[[AhpConnection, Any], Any]] = {
    "initialize": AhpConnection._initialize,
    "ping": AhpConnection._ping,
    "reconnect": AhpConnection._reconnect,
    "subscribe": AhpConnection._subscribe_request,
    "disposeSession": AhpConnection._dispose_session,
    "listSessions": AhpConnection._list_sessions,
    "createChat": AhpConnection._create_chat,
    "disposeChat": AhpConnection._dispose_chat,
    "fetchTurns": AhpConnection._fetch_turns,
}

#: Answered when an agent did.
BESIDE: Mapping[str, Waiting] = {
    "createSession": AhpConnection._create_session,
    "resolveSessionConfig": AhpConnection._resolve_session_config,
    "sessionConfigCompletions": AhpConnection._session_config_completions,
    "completions": AhpConnection._completions,
}
