"""Every chat's thread, and every connection of this wire: computed once, told to all.

A seat like a client's, on every channel of the host: what is told to AHP's clients is
told here at the same moment, in the same order, and becomes the words of this wire.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final

import structlog
import trio

from ....contracts.chats import (
    AgentKind,
    ChatError,
    ChatPreferences,
    ChatSubagentChangedEvent,
    Shape,
)
from ...agents import Agent
from ...host import Host
from ...sessions.channel import Channel, Subscription
from ...sessions.chat import Chat
from ...sessions.session import Session
from ...sessions.stream import Envelope
from .attaching import drop_uploads
from .facts import kind_of, own_of
from .live import Listener, LiveThread, encode_event

Json = dict[str, Any]

#: Changes of a subagent's conversation within this window are one event.
SUBAGENT_WINDOW_S: Final = 0.15

#: What of a session is seen in its chats' infos.
_SHOWN: Final = frozenset(
    {
        "session/titleChanged",
        "session/configChanged",
        "session/customizationsChanged",
        "session/customizationUpdated",
        "session/customizationRemoved",
        "session/customizationToggled",
        "session/workingDirectorySet",
        "session/workingDirectoryRemoved",
        "session/workingDirectoryReplaced",
        "session/creationFailed",
    }
)

_log = structlog.get_logger(__name__)


class Threads:
    """The threads of a host's chats. One a host; not for subclassing."""

    #: As a seat: nothing that is sent here is an answer to anybody.
    client_id = ""

    def __init__(self, host: Host) -> None:
        self.host = host
        self._live: dict[str, LiveThread] = {}
        self._by_channel: dict[int, LiveThread] = {}
        self._connections: dict[int, Listener] = {}
        self._preferences: dict[int, ChatPreferences] = {}
        self._stirring: set[int] = set()
        host.watchers.append(self)
        for chat in list(host.chats.values()):
            self.chat_added(chat, made=False)

    # -- connections ------------------------------------------------------------------

    @property
    def empty(self) -> bool:
        """Whether nobody is connected."""
        return not self._connections

    def connect(self, listener: Listener) -> None:
        """A connection is there: from now on every chat's status is told to it."""
        self._connections[id(listener)] = listener

    def disconnect(self, listener: Listener) -> None:
        """A connection ended, and with it what it was attached to and what it preferred."""
        self._connections.pop(id(listener), None)
        self._preferences.pop(id(listener), None)
        for live in self._live.values():
            live.detach(listener)

    def tell_all(self, event: str, payload: Shape) -> None:
        """Tells every connection, attached or not."""
        if self._connections:
            text = encode_event(event, payload)
            for listener in list(self._connections.values()):
                listener.send_text(text)

    def prefer(self, listener: Listener, preferences: ChatPreferences) -> None:
        """What a connection's person prefers: in place of what it said before, and told last."""
        self._preferences.pop(id(listener), None)
        self._preferences[id(listener)] = preferences

    @property
    def preferences(self) -> ChatPreferences:
        """What new chats start with: of all connections the newest word, of a tie the last told."""
        said = list(self._preferences.values())
        newest = ChatPreferences()
        for one in said:
            if (one.changed_at or 0) >= (newest.changed_at or 0):
                newest = one
        return newest

    # -- chats ------------------------------------------------------------------------

    def chat(self, chat_id: str) -> Chat:
        """A chat by its id.

        Raises:
            ChatError: `chat-not-found`.
        """
        chat = self.host.chats.get(chat_id)
        if chat is None or chat.removed:
            unreadable = self.host.kept.unreadable.get(chat_id)
            if unreadable is not None:
                raise ChatError("chat-unreadable", unreadable)
            raise ChatError("chat-not-found", f"There is no chat {chat_id[:200]!r}.")
        return chat

    def live(self, chat: Chat) -> LiveThread:
        """The thread of a chat.

        Raises:
            ChatError: `chat-not-found`, it is gone meanwhile.
        """
        live = self._live.get(chat.id)
        if live is None or live.chat is not chat:
            raise ChatError("chat-not-found", f"There is no chat {chat.id[:200]!r}.")
        return live

    def all(self) -> Iterable[LiveThread]:
        """Every thread, in the order in which the chats were made."""
        return list(self._live.values())

    def agent_of(self, chat: Chat) -> Agent | None:
        """The agent of a chat; None where it is configured no more."""
        return self.host.agents.by_name.get(chat.session.agent)

    def agents_of(self, kind: AgentKind) -> list[Agent]:
        """The agents that show themselves as this kind; the default of the kind first."""
        return [agent for agent in self.host.agents.by_name.values() if kind_of(agent) == kind]

    # -- what watchers hear (sessions.watching.Watcher) -------------------------------

    def agents_changed(self) -> None:
        for live in self.all():
            self.host.ledger.tell(partial(self._guarded, live.take_agent))

    def chat_added(self, chat: Chat, *, made: bool) -> None:
        bounds = self.host.bounds
        live = LiveThread(
            chat,
            self,
            max_events=bounds.chat_events,
            max_events_bytes=bounds.chat_events_bytes,
        )
        self._live[chat.id] = live
        self._by_channel[id(chat.channel)] = live
        chat.channel.subscribe(self, chat.channel.uri)
        session = chat.session.channel
        if session.subscription_of(self) is None:
            session.subscribe(self, session.uri)
        if made:
            self.host.ledger.tell(lambda: self._guarded(live.begun))

    def chat_changed(self, chat: Chat) -> None:
        live = self._live.get(chat.id)
        if live is not None and live.chat is chat:
            own = own_of(chat)
            self.host.ledger.tell(lambda: self._guarded(lambda: live.take_own(own)))

    def chat_removed(self, chat: Chat) -> None:
        live = self._by_channel.get(id(chat.channel))
        if live is not None:
            self.host.ledger.tell(lambda: self._guarded(lambda: self._gone(live)))

    def _gone(self, live: LiveThread) -> None:
        chat = live.chat
        if self._live.get(chat.id) is live:
            del self._live[chat.id]
        self._by_channel.pop(id(chat.channel), None)
        parent = self._parent_of(chat)
        if parent is not None:
            parent.take_subagent(chat.channel.uri, None)
            self._stir(live)
        live.gone()
        self.host.nursery.start_soon(drop_uploads, self.host.state_dir, chat.id)

    # -- what the host sends (sessions.channel.Seat) ----------------------------------

    def send_envelope(self, envelope: Envelope, subscription: Subscription) -> None:
        """An action: the chat or session that it changed is looked at."""
        channel, after = subscription.channel, envelope.after
        if after is not None:
            self._guarded(lambda: self._take(channel, envelope.action, after))

    def send_answer(self, envelope: Envelope, spelling: str) -> None:
        """Nothing is dispatched from this seat."""

    def send_notification(self, method: str, params: Json) -> None:
        """Rows of the session list are AHP's own."""

    def _take(self, channel: Channel, action: Json, after: Json) -> None:
        kind = action["type"]
        if channel.family == "chat":
            live = self._by_channel.get(id(channel))
            if live is None:
                return
            live.take(action, after)
            parent = self._parent_of(live.chat)
            if parent is not None:
                self._stir(live)
                # What a subagent streams stays in its own chat.
                if kind not in _OF_ITS_OWN:
                    parent.take_subagent(channel.uri, after)
        elif channel.family == "session":
            session = self._session_at(channel)
            for chat in list(session.chats.values()) if session is not None else ():
                held = self._by_channel.get(id(chat.channel))
                if held is not None:
                    held.take_session(after, shown=kind in _SHOWN)

    def _session_at(self, channel: Channel) -> Session | None:
        session = self.host.sessions.get(channel.owner_id)
        return session if session is not None and session.channel is channel else None

    def _parent_of(self, chat: Chat) -> LiveThread | None:
        return self._by_channel.get(id(chat.parent.channel)) if chat.parent is not None else None

    def _guarded(self, telling: Callable[[], None]) -> None:
        # A fault of ours in one thread must not end the telling of everything else.
        try:
            telling()
        except Exception:
            _log.exception("a thread could not be told")

    # -- subagents that are watched ---------------------------------------------------

    def _stir(self, live: LiveThread) -> None:
        """A subagent's conversation changed: who watches it hears of that within the window."""
        if live.watchers and id(live) not in self._stirring:
            self._stirring.add(id(live))
            self.host.nursery.start_soon(self._tell_stirred, live)

    async def _tell_stirred(self, live: LiveThread) -> None:
        await trio.sleep(SUBAGENT_WINDOW_S)
        self._stirring.discard(id(live))
        chat = live.chat
        if chat.parent is not None and live.watchers:
            changed = ChatSubagentChangedEvent(
                chat_id=chat.parent.id, tool_use_id=chat.tool_call_id or ""
            )
            text = encode_event("chat.subagentChanged", changed)
            for listener in list(live.watchers.values()):
                listener.send_text(text)


_OF_ITS_OWN: Final[frozenset[str]] = frozenset(
    {"chat/delta", "chat/reasoning", "chat/toolCallDelta", "chat/toolCallContentChanged"}
)
