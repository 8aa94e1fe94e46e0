"""The host: the one nursery under which everything runs, and what all wires share.

It owns the numbered stream, the sessions and chats by id, the agents, the
clients it admitted and the seats of those that are connected. Wires translate
between a connection and the methods here; nothing here knows a wire.
"""

import heapq
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence, Set
from contextlib import asynccontextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import Any
from urllib.parse import quote, unquote

import structlog
import trio
from attrs import field, frozen

from ..contracts.ahp.absence import without_nulls
from ..contracts.ahp.actions import ACTIONS, check_action, client_may_dispatch
from ..contracts.ahp.errors import AhpError, ErrorCode
from ..contracts.ahp.reducers import reduce_root
from ..contracts.ahp.status import ERROR
from ..contracts.ahp.uris import ROOT_URI, parse_channel
from ..contracts.json import JsonError
from .agents import Agents, AgentUnavailable
from .bounds import Bounds
from .configuration import AgentConfig
from .processes import descriptors
from .processes.launcher import Launcher
from .processes.marks import mark_of
from .processes.output_log import OutputLog
from .sessions.channel import Channel, Seat
from .sessions.chat import Chat
from .sessions.clock import now, unix_ms, unix_ms_of
from .sessions.dispatch import Dispatched
from .sessions.restoring import Catalogue, restore_session
from .sessions.session import Session
from .sessions.settings import initial_settings
from .sessions.stream import Stream
from .sessions.turns import Happening
from .sessions.watching import Watcher
from .store.interface import (
    ClientRecord,
    Kept,
    KeptSession,
    SessionRow,
    Store,
    StoreError,
    Unreadable,
)
from .store.ledger import Ledger
from .store.transfer import put_session

Json = dict[str, Any]

_log = structlog.get_logger()

#: A client that holds all turns of every chat it is subscribed to.
EMPTY: Mapping[str, Set[str]] = MappingProxyType({})

#: How long burying the dead may take after a graceful stop, of `stop_timeout_s`.
BURIAL_SHARE = 0.8

#: The sessions that a beginning of an id can mean are looked at up to so many.
MAX_MEANT = 11


@frozen(kw_only=True)
class Admitted:
    """A client this host knows: it may `reconnect`."""

    client_id: str
    version: str
    last_seen_s: float
    windows: Mapping[str, Set[str]] | None = field(factory=dict)
    """The turns it held of each chat of which it did not hold all; None: too many to remember."""


@frozen(kw_only=True)
class Listed:
    """A session in the list."""

    id: str
    modified_at: str
    summary: Callable[[], Json]
    """Its row."""


class Host:
    """Everything that outlives a connection. Made by `open_host`.

    Attributes:
        nursery: what runs as long as the host does.
        stream: the numbers.
        root: the root channel.
        sessions, chats: those in memory, by id.
        kept: the sessions that are not, until somebody names them (`wake`).
        watchers: who hears of chats beside their subscribers.
    """

    def __init__(
        self,
        *,
        nursery: trio.Nursery,
        launcher: Launcher,
        ledger: Ledger,
        kept: Kept,
        bounds: Bounds,
        agents: Mapping[str, AgentConfig],
        agent_path: Sequence[str],
        state_dir: Path,
    ) -> None:
        self.nursery = nursery
        self.launcher = launcher
        self.ledger = ledger
        self.bounds = bounds
        self.state_dir = state_dir
        self.stopping = False
        self.stream = Stream(
            first_seq=kept.next_seq,
            max_events=bounds.replay_events,
            max_bytes=bounds.replay_bytes,
            reserve=ledger.store.put_seq,
        )
        self.sessions: dict[str, Session] = {}
        self.chats: dict[str, Chat] = {}
        self.watchers: list[Watcher] = []
        self.kept = Catalogue(kept)
        self._cut_off_ms = kept.committed_ms
        self._waking: dict[str, trio.Event] = {}
        self._by_uri: dict[str, Channel] = {}
        self._creating: dict[str, trio.Event] = {}
        self._logs: dict[str, OutputLog] = {}
        self._seats: dict[int, Seat] = {}
        self._admitted: OrderedDict[str, Admitted] = OrderedDict()
        self._created_s: deque[float] = deque(maxlen=bounds.sessions_per_minute)
        self.agents = Agents(
            agents,
            launcher=launcher,
            bounds=bounds,
            nursery=nursery,
            mark=mark_of(state_dir),
            agent_path=agent_path,
            log_of=self.log_of,
            on_change=self._agents_changed,
        )
        self.root = Channel(
            uri=ROOT_URI,
            family="root",
            state={"agents": self.agents.infos(), "activeSessions": self.session_count},
            owner_id="",
            reduce=reduce_root,
            stream=self.stream,
            ledger=ledger,
        )
        self._remember_clients(kept.clients)

    @property
    def session_count(self) -> int:
        """How many sessions there are, in memory or not."""
        return len(self.sessions) + len(self.kept.rows)

    @property
    def chat_count(self) -> int:
        """How many chats there are, in memory or not."""
        return len(self.chats) + self.kept.chat_count

    # -- names ------------------------------------------------------------------------

    def resolve(self, uri: str) -> Channel | None:
        """The channel that a URI in any spelling names, or None.

        A known channel under exactly this spelling comes first, then by id: one
        session's `annotations` is no session of that name.
        """
        if uri == ROOT_URI:
            return self.root
        exact = self._by_uri.get(uri)
        if exact is not None:
            return exact
        name = parse_channel(uri)
        if name is None:
            return None
        match name.family:
            case "root":
                return self.root
            case "session":
                session = self.sessions.get(name.id)
                return session.channel if session is not None else None
            case "chat":
                chat_named = self.chats.get(name.id)
                return chat_named.channel if chat_named is not None else None

    def session_at(self, uri: str) -> Session:
        """The session that a URI names.

        Raises:
            AhpError: -32001, there is none.
        """
        name = parse_channel(uri)
        session = self.sessions.get(name.id) if name and name.family == "session" else None
        if session is None:
            self._hold_readable(uri)
            raise AhpError(ErrorCode.SESSION_NOT_FOUND, f"There is no session {uri[:200]}.")
        return session

    def chat_at(self, uri: str) -> Chat:
        """The chat that a URI names.

        Raises:
            AhpError: -32008, there is none.
        """
        channel = self.resolve(uri)
        chat = self.owner_of(channel) if channel is not None else None
        if not isinstance(chat, Chat):
            self._hold_readable(uri)
            raise AhpError(ErrorCode.RESOURCE_NOT_FOUND, f"There is no chat {uri[:200]}.")
        return chat

    def owner_of(self, channel: Channel) -> "Session | Chat | None":
        """The session or chat whose channel this is; None for the root."""
        for held in (self.sessions, self.chats):
            owner = held.get(channel.owner_id)
            if owner is not None and owner.channel is channel:
                return owner
        return None

    def find(self, given: str) -> list["Session | Chat"]:
        """The sessions and chats that a person may mean: by id, URI, or beginning of an id.

        An exact match comes alone. A session's default chat has the session's id
        and is the session.
        """
        name = parse_channel(given) if ":" in given else None
        wanted = name.id if name is not None else unquote(given)
        if name is not None and name.family == "chat" and wanted not in self.sessions:
            exact: Session | Chat | None = self.chats.get(wanted)
        else:
            exact = self.sessions.get(wanted) or self.chats.get(wanted)
        if exact is not None:
            return [exact]
        sessions = [held for id, held in self.sessions.items() if id.startswith(wanted)]
        chats = [
            held
            for id, held in self.chats.items()
            if id.startswith(wanted) and id not in self.sessions
        ]
        return [*sessions, *chats] if wanted else []

    # -- what is only kept --------------------------------------------------------------

    def asleep(self, uri: str) -> bool:
        """Whether a URI names something that has to be woken before it is there."""
        return self.resolve(uri) is None and self.kept.session_named(uri) is not None

    async def wake(self, uri: str) -> None:
        """Brings the session that a URI names, or of which it names a chat, into memory."""
        if self.asleep(uri):
            id = self.kept.session_named(uri)
            if id is not None:
                await self._restore(id)

    async def wake_meant(self, given: str) -> None:
        """Brings into memory what a person may mean; for `find`."""
        name = parse_channel(given) if ":" in given else None
        wanted = name.id if name is not None else unquote(given)
        if not wanted:
            return
        meant = list(islice(dict.fromkeys(self.kept.meant(wanted)), MAX_MEANT))
        for id in meant:
            await self._restore(id)

    async def _restore(self, id: str) -> None:
        waking = self._waking.get(id)
        if waking is not None:
            await waking.wait()
            return
        if id not in self.kept.rows or id in self.kept.unreadable:
            return
        woken = self._waking[id] = trio.Event()
        try:
            kept = await self.ledger.store.session(id)
            if kept is not None and id in self.kept.rows:
                session = restore_session(self, kept, self._cut_off_ms)
                self.kept.take(id)
                self.kept.unreadable.update(kept.unreadable)
                self.sessions[id] = session
                for chat in session.chats.values():
                    self.add_chat(chat, made=False)
                # A subagent's first: its parent's end would end it as one whose worker died.
                for chat in sorted(session.chats.values(), key=lambda held: held.parent is None):
                    chat.happens(Happening.RESTORED)
                session.go_on_creating()
        except Unreadable as error:
            self._note_unreadable(id, str(error))
        except Exception as error:
            # What is kept has not the shape that it had: this session's loss and no other's.
            _log.exception("a kept session cannot be brought back", session=id)
            what = f"{type(error).__name__}: {error}"[:200]
            self._note_unreadable(id, f"The session {id} cannot be brought back ({what}).")
        finally:
            del self._waking[id]
            woken.set()

    def _note_unreadable(self, id: str, why: str) -> None:
        _log.error("a kept session cannot be read", session=id, why=why)
        self.kept.unreadable[id] = why

    def unreadable(self, uri: str) -> str | None:
        """Why what a URI names is kept and cannot be read; None when that is not so."""
        if not self.kept.unreadable:
            return None
        name = parse_channel(uri)
        for id in (name.id if name is not None else None, self.kept.session_named(uri)):
            if id is not None and id in self.kept.unreadable:
                return self.kept.unreadable[id]
        return None

    def _hold_readable(self, uri: str) -> None:
        why = self.unreadable(uri)
        if why is not None:
            raise AhpError(ErrorCode.INTERNAL_ERROR, why)

    def hold_keeping(self) -> None:
        """Refuses what would have to be kept, while nothing can be.

        Raises:
            AhpError: -32603, why nothing can be kept.
        """
        if self.ledger.refusing is not None:
            raise AhpError(ErrorCode.INTERNAL_ERROR, _cannot_keep(self.ledger.refusing))

    async def end_what_was_cut_off(self, ids: Sequence[str]) -> None:
        """Ends the turns that an earlier life of the host left running, parked requests first."""
        for id in ids:
            await self._restore(id)

    # -- seats ------------------------------------------------------------------------

    def take_seat(self, seat: Seat) -> Seat | None:
        """A connection is there. Answers the one of the same client that it takes the place of."""
        replaced = next(
            (held for held in self._seats.values() if held.client_id == seat.client_id), None
        )
        self._seats[id(seat)] = seat
        return replaced

    def leave_seat(self, seat: Seat) -> None:
        """A connection ended: its subscriptions go, and its client's part in sessions, unless
        the client is there on another connection already."""
        if self._seats.pop(id(seat), None) is None:
            return
        for channel in self._channels():
            channel.unsubscribe(seat)
        if all(held.client_id != seat.client_id for held in self._seats.values()):
            for session in self.sessions.values():
                session.client_left(seat.client_id)

    def admit(
        self, client_id: str, version: str, *, windows: Mapping[str, Set[str]] | None = EMPTY
    ) -> None:
        """Remembers a client, so that it may reconnect."""
        self._admitted.pop(client_id, None)
        self._admitted[client_id] = Admitted(
            client_id=client_id,
            version=version,
            last_seen_s=trio.current_time(),
            windows=windows,
        )
        self._forget_clients()
        self.ledger.store.put_client(ClientRecord(id=client_id, version=version, last_seen=now()))

    def _remember_clients(self, records: Sequence[ClientRecord]) -> None:
        """Those who were admitted in an earlier life may reconnect; what they missed is lost."""
        for record in records:
            age_s = (unix_ms() - (unix_ms_of(record.last_seen) or 0)) / 1000
            if age_s < self.bounds.admitted_days * 86_400:
                self._admitted[record.id] = Admitted(
                    client_id=record.id,
                    version=record.version,
                    last_seen_s=trio.current_time() - max(0, age_s),
                    windows=None,
                )
            else:
                self.ledger.store.remove_client(record.id)
        self._forget_clients()

    def _forget_clients(self) -> None:
        while len(self._admitted) > self.bounds.admitted_clients:
            forgotten, _ = self._admitted.popitem(last=False)
            self.ledger.store.remove_client(forgotten)

    def admitted(self, client_id: str) -> Admitted | None:
        """What is remembered of a client, if anything still is."""
        known = self._admitted.get(client_id)
        if known is None:
            return None
        age_s = trio.current_time() - known.last_seen_s
        return known if age_s < self.bounds.admitted_days * 86_400 else None

    def notify(self, method: str, params: Json) -> None:
        """Sends a notification of the root channel to everyone who is subscribed to it."""
        subscriptions = list(self.root.subscriptions.values())

        def telling() -> None:
            for subscription in subscriptions:
                subscription.seat.send_notification(
                    method, {"channel": subscription.spelling, **params}
                )

        self.ledger.tell(telling)

    # -- dispatching ------------------------------------------------------------------

    def dispatch(self, seat: Seat, uri: str, client_seq: int, action: Json) -> None:
        """A client's action: exactly one envelope answers it; silence for an unknown channel."""
        channel = self.resolve(uri)
        if channel is None:
            return
        unfit = self._unfit(channel, action)
        dispatched = Dispatched(
            seat=seat,
            channel=channel,
            spelling=uri,
            client_seq=client_seq,
            # What is refused goes back as it came.
            action=action if unfit is not None else without_nulls(action),
            unfit=unfit,
        )
        owner = self.owner_of(channel)
        if owner is not None:
            owner.dispatch(dispatched)
        else:
            dispatched.refuse(dispatched.unfit or f"this host does not serve {action['type']}")

    def _unfit(self, channel: Channel, action: Json) -> str | None:
        kind = action.get("type")
        if not isinstance(kind, str) or kind not in ACTIONS:
            return f"there is no action {str(kind)[:80]}"
        if self.stopping:
            return "the host is stopping"
        if self.ledger.refusing is not None:
            return _cannot_keep(self.ledger.refusing)
        if not client_may_dispatch(kind):
            return f"{kind} is not a client's to say"
        if kind.partition("/")[0] != channel.family:
            return f"{kind} does not belong on a {channel.family} channel"
        wrong = check_action(action)
        return f"{kind}: {wrong}" if wrong is not None else None

    # -- sessions ---------------------------------------------------------------------

    async def create_session(
        self,
        uri: str,
        *,
        provider: str | None = None,
        directories: Sequence[str] = (),
        config: Json | None = None,
        progress_token: str | None = None,
        active_client: Json | None = None,
        resume: str | None = None,
    ) -> Session:
        """Makes a session under the URI that its client chose; it becomes ready by itself.

        Waits for the agent's description, at most `catalogue_timeout_s`: no action
        carries a schema, so a session has its settings from its first snapshot on. With
        `resume` its agent goes on with a conversation of its own, by the agent's id of it.

        Raises:
            AhpError: -32003 taken, -32002 no such agent, -32602 the URI or a setting does
                not fit, or a bound is reached.
        """
        name = parse_channel(uri)
        if name is None or name.family != "session":
            raise AhpError(ErrorCode.INVALID_PARAMS, f"{uri[:200]} names no session.")
        if self.has(name.id) or name.id in self._creating:
            raise AhpError(ErrorCode.SESSION_ALREADY_EXISTS, f"There is a session {uri[:200]}.")
        agent = provider or self.agents.default
        if agent is None or agent not in self.agents.by_name:
            known = ", ".join(self.agents.by_name)
            raise AhpError(
                ErrorCode.PROVIDER_NOT_FOUND, f"There is no agent {agent}; there are: {known}."
            )
        self.hold_keeping()
        self._hold_rate()
        made = self._creating[name.id] = trio.Event()
        try:
            settings, fault = await self._settings_for(agent, config or {})
            if self.stopping:
                raise AhpError(ErrorCode.INTERNAL_ERROR, "The host is stopping.")
            self.hold_keeping()
            session = Session.create(
                self,
                id=name.id,
                spelling=uri,
                agent=agent,
                directories=list(directories),
                settings=settings,
                progress_token=progress_token,
            )
            self.sessions[name.id] = session
            session.default_chat.agent_id = resume
        finally:
            del self._creating[name.id]
            made.set()
        if active_client is not None:
            offered = {"type": "session/activeClientSet", "activeClient": active_client}
            session.say(without_nulls(offered))
        self._count_sessions()
        self.notify("root/sessionAdded", {"summary": session.summary()})
        if fault is not None:
            session.fail_creation(fault)
        else:
            session.default_chat.start_worker()
        return session

    def has(self, id: str) -> bool:
        """Whether a session or a chat of that id is there, in memory or not."""
        return id in self.sessions or id in self.chats or self.kept.has(id)

    def being_created(self, uri: str) -> trio.Event | None:
        """For a session, or its default chat, that is just being made: set when it is there.

        A client may subscribe in the same breath in which it creates.
        """
        name = parse_channel(uri) if self._creating else None
        return self._creating.get(name.id) if name is not None else None

    async def _settings_for(self, agent: str, wished: Json) -> tuple[Json | None, str | None]:
        try:
            described = await self.agents.describe(agent)
        except AgentUnavailable as fault:
            return None, str(fault)
        values = initial_settings(described.schema, described.defaults, wished)
        if isinstance(values, str):
            raise AhpError(ErrorCode.INVALID_PARAMS, f"config: {values}")
        return {"schema": described.schema, "values": values}, None

    def dispose_session(self, session: Session) -> list[Chat]:
        """Ends a session: what is parked settled, turns ended, processes told to end.

        Answers its chats, whose workers may still be dying.
        """
        session.line.refuse_all("the session was disposed")
        chats = list(session.chats.values())
        for chat in [chat for chat in chats if chat is not session.default_chat]:
            if chat.id in session.chats:
                session.remove_chat(chat)
        session.remove_chat(session.default_chat)
        session.removed = True
        del self.sessions[session.id]
        self.ledger.store.remove_session(session.id)
        self._count_sessions()
        self.notify("root/sessionRemoved", {"session": session.spelling})
        self.ledger.tell(session.channel.subscriptions.clear)
        return chats

    def create_chat(
        self,
        session: Session,
        uri: str,
        *,
        directories: Sequence[str],
    ) -> Chat:
        """Adds a chat to a session whose agent can have several.

        Raises:
            AhpError: -32010 taken, -32602 the agent has one chat a session, the session
                could not be created, or a bound.
        """
        name = parse_channel(uri)
        if name is None or name.family != "chat":
            raise AhpError(ErrorCode.INVALID_PARAMS, f"{uri[:200]} names no chat.")
        self.hold_keeping()
        if self.has(name.id):
            raise AhpError(ErrorCode.ALREADY_EXISTS, f"There is a chat {uri[:200]}.")
        if session.failed:
            raise AhpError(ErrorCode.INVALID_PARAMS, "The session could not be created.")
        agent = self.agents.by_name.get(session.agent)
        described = agent.description if agent is not None else None
        capabilities = (described.capabilities if described else None) or {}
        if "multipleChats" not in capabilities:
            raise AhpError(
                ErrorCode.INVALID_PARAMS, f"The agent {session.agent} has one chat a session."
            )
        self._hold_descriptors()
        if len(session.chats) >= self.bounds.max_chats_per_session:
            raise AhpError(
                ErrorCode.INVALID_PARAMS,
                f"The session has {self.bounds.max_chats_per_session} chats already.",
            )
        return session.open_chat(name.id, uri, title="", directories=list(directories))

    def remove_chat(self, chat: Chat) -> list[Chat]:
        """Ends a chat; a default chat ends its session. Answers the chats that ended."""
        session = chat.session
        if chat is session.default_chat:
            return self.dispose_session(session)
        if chat.parent is not None:
            session.dispose_subagent(chat)
        else:
            session.remove_chat(chat)
        return [chat]

    def listed(self) -> Iterator[Listed]:
        """Every session, newest change first; their rows were told as they are.

        Only for going through without a pause.
        """
        for session in self.sessions.values():
            session.row.flush()

        def key(listed: Listed) -> tuple[str, str]:
            return listed.modified_at, listed.id

        awake = [
            Listed(id=held.id, modified_at=held.modified_at, summary=held.summary)
            for held in self.sessions.values()
        ]
        asleep = (
            Listed(id=row.id, modified_at=row.modified_at, summary=partial(_kept_summary, row))
            for row in self.kept.rows.values()
        )
        return heapq.merge(sorted(awake, key=key, reverse=True), asleep, key=key, reverse=True)

    def take_in(self, kept: KeptSession) -> None:
        """Keeps a session that comes from elsewhere; it comes into memory when it is named.

        Raises:
            AhpError: -32010, an id of it is taken; -32602, there are too many sessions;
                -32603, nothing can be kept.
        """
        self.hold_keeping()
        ids = [kept.record.id, *(chat.record.id for chat in kept.chats)]
        taken = [id for id in ids if self.has(id) or id in self._creating]
        uris = [chat.record.uri for chat in kept.chats]
        taken += [uri for uri in uris if self.resolve(uri) or self.kept.session_named(uri)]
        if taken:
            raise AhpError(ErrorCode.ALREADY_EXISTS, f"There is {taken[0][:200]} already.")
        if self.session_count >= self.bounds.max_sessions:
            raise AhpError(
                ErrorCode.INVALID_PARAMS, f"The host has {self.bounds.max_sessions} sessions."
            )
        put_session(self.ledger.store, kept)
        self.kept.add(kept)
        self._count_sessions()
        self.notify("root/sessionAdded", {"summary": kept.record.summary})

    def remove_unreadable(self, uri: str) -> bool:
        """Removes a kept session that cannot be read; False when a URI names none."""
        id = self.kept.session_named(uri)
        if id is None or id not in self.kept.unreadable:
            return False
        summary = _kept_summary(self.kept.rows[id])
        self.kept.take(id)
        del self.kept.unreadable[id]
        self.ledger.store.remove_session(id)
        self._count_sessions()
        self.notify("root/sessionRemoved", {"session": summary["resource"]})
        return True

    def _hold_descriptors(self) -> None:
        if descriptors.are_scarce(descriptors.OF_A_CHAT):
            raise AhpError(
                ErrorCode.INTERNAL_ERROR, f"Nothing can be started: {descriptors.scarcity()}."
            )

    def _hold_rate(self) -> None:
        self._hold_descriptors()
        if self.session_count + len(self._creating) >= self.bounds.max_sessions:
            raise AhpError(
                ErrorCode.INVALID_PARAMS, f"The host has {self.bounds.max_sessions} sessions."
            )
        at_s, created = trio.current_time(), self._created_s
        if created and len(created) == created.maxlen and created[0] > at_s - 60:
            raise AhpError(
                ErrorCode.INVALID_PARAMS,
                f"More than {created.maxlen} sessions were created within a minute.",
            )
        created.append(at_s)

    def _count_sessions(self) -> None:
        count = self.session_count
        self.root.publish({"type": "root/activeSessionsChanged", "activeSessions": count})

    def _agents_changed(self) -> None:
        self.root.publish({"type": "root/agentsChanged", "agents": self.agents.infos()})
        for watcher in self.watchers:
            watcher.agents_changed()

    # -- chats ------------------------------------------------------------------------

    def add_chat(self, chat: Chat, *, made: bool = True) -> None:
        """A session made a chat, or has it back from what is kept."""
        self.chats[chat.id] = chat
        self._by_uri[chat.channel.uri] = chat.channel
        for watcher in self.watchers:
            watcher.chat_added(chat, made=made)

    def forget_chat(self, chat: Chat) -> None:
        """A session's chat is gone: nobody is subscribed to it any more."""
        self.chats.pop(chat.id, None)
        self._by_uri.pop(chat.channel.uri, None)
        self.ledger.store.remove_chat(chat.id)
        for watcher in self.watchers:
            watcher.chat_removed(chat)
        self.ledger.tell(chat.channel.subscriptions.clear)
        log = self._logs.pop(chat.id, None)
        if log is not None:
            self.nursery.start_soon(self._remove_log_after, chat, log)

    async def _remove_log_after(self, chat: Chat, log: OutputLog) -> None:
        for life in chat.lives:
            await life.ended.wait()
        log.close()
        # A newer chat of that id writes to the same file.
        if chat.id not in self._logs:
            log.remove()

    def log_of(self, id: str) -> OutputLog:
        """The log of a chat or of an agent's catalogue worker."""
        log = self._logs.get(id)
        if log is None:
            log = OutputLog(self.state_dir / "logs", id, max_bytes=self.bounds.log_bytes // 2)
            self._logs[id] = log
        return log

    def _channels(self) -> list[Channel]:
        sessions = [session.channel for session in self.sessions.values()]
        return [self.root, *sessions, *(chat.channel for chat in self.chats.values())]

    # -- the end ----------------------------------------------------------------------

    async def stop(self) -> None:
        """Ends every turn as interrupted and every worker with its grace, within the stop limit."""
        if self.stopping:
            return
        self.stopping = True
        for chat in list(self.chats.values()):
            chat.line.refuse_all("the host is stopping")
            chat.happens(Happening.HOST_STOPS)
        with trio.move_on_after(self.bounds.stop_timeout_s * BURIAL_SHARE):
            for life in [life for chat in self.chats.values() for life in chat.lives]:
                await life.ended.wait()
            await self.ledger.settle()


def _kept_summary(row: SessionRow) -> Json:
    try:
        return row.summary
    except JsonError:
        uri = f"ahp-session:/{quote(row.id, safe='')}"
        unread = {"resource": uri, "provider": "", "title": "", "status": ERROR}
        return {**unread, "createdAt": row.modified_at, "modifiedAt": row.modified_at}


def _cannot_keep(why: str) -> str:
    return f"The host cannot keep anything at the moment: {why}."


@asynccontextmanager
async def open_host(
    *,
    launcher: Launcher,
    store: Store,
    bounds: Bounds,
    agents: Mapping[str, AgentConfig],
    agent_path: Sequence[str],
    state_dir: Path,
) -> AsyncIterator[Host]:
    """A running host. On leaving it is stopped gracefully, then whatever is left is cancelled.

    What an earlier life left running is ended before it is there.

    Raises:
        StoreError: what is kept cannot be opened.
    """
    kept = await store.open()
    ledger = Ledger(store, flush_window_s=bounds.flush_window_ms / 1000)
    async with trio.open_nursery() as nursery:
        host = Host(
            nursery=nursery,
            launcher=launcher,
            ledger=ledger,
            kept=kept,
            bounds=bounds,
            agents=agents,
            agent_path=agent_path,
            state_dir=state_dir,
        )
        nursery.start_soon(ledger.run)
        await host.end_what_was_cut_off(kept.cut_off)
        nursery.start_soon(host.agents.describe_all)
        try:
            yield host
        finally:
            with trio.CancelScope(shield=True):
                await host.stop()
                try:
                    await store.close()
                except StoreError as error:
                    _log.error("not everything could be kept", why=str(error))
            nursery.cancel_scope.cancel()
    _log.info("host stopped", sessions=host.session_count)
