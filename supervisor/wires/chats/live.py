"""One chat's thread as clients were told of it so far, and the clients attached to it.

Everything here happens while something is told (`Ledger.tell`): the thread that is
shown is made of what is kept, and an attach that is answered then stands exactly
between two events. A state is looked at when somebody may hear of it; while nobody is
attached, streamed text waits for the next look.
"""

import secrets
from collections.abc import Mapping
from typing import Any, Final, Protocol

import attrs

from ....contracts.chats import (
    ChatAttachResult,
    ChatBookmarksEvent,
    ChatError,
    ChatEvent,
    ChatEventEnvelope,
    ChatHistoryResult,
    ChatInfo,
    ChatItem,
    ChatStatusEvent,
    HistoryPage,
    InfoEvent,
    ResetEvent,
    Shape,
    SubagentHistory,
    Thread,
    write,
)
from ....contracts.chats.limits import HISTORY_PAGE_ITEMS
from ....contracts.frames import Event, encode_frame
from ...agents import Agent
from ...sessions.chat import Chat
from ...sessions.clock import unix_ms
from .facts import Own, bookmarks_of, facts_of, own_of, with_bookmarks
from .info import Facts
from .log import EventLog
from .memory import Memory, remember
from .view import events_between, is_status_news, page_start, pending_of, thread_of

Json = dict[str, Any]

#: What of a chat changes nothing that anybody sees who is not attached.
STREAMED: Final = frozenset(
    {
        "chat/delta",
        "chat/reasoning",
        "chat/toolCallDelta",
        "chat/toolCallContentChanged",
        "chat/responsePart",
        "chat/usage",
    }
)


class Listener(Protocol):
    """A connection of this wire."""

    def send_text(self, text: str) -> None:
        """Sends an encoded frame."""


class Audience(Protocol):
    """Every connection of this wire."""

    @property
    def empty(self) -> bool:
        """Whether nobody is connected."""

    def tell_all(self, event: str, payload: Shape) -> None:
        """Tells every connection, attached or not."""

    def agent_of(self, chat: Chat) -> Agent | None:
        """The agent of a chat."""


def encode_event(event: str, payload: Shape) -> str:
    """An event's frame as text: made once, whoever reads it."""
    return encode_frame(Event(event=event, payload=write(payload))).decode()


class LiveThread:
    """The thread of one chat. Not for subclassing.

    Attributes:
        chat: the chat itself, which may be ahead of what was told.
        watchers: who watches this subagent's conversation, by identity.
    """

    def __init__(
        self, chat: Chat, audience: Audience, *, max_events: int, max_events_bytes: int
    ) -> None:
        self.chat = chat
        self.watchers: dict[int, Listener] = {}
        self._audience = audience
        self._own = own_of(chat)
        self._state = chat.state
        self._session_state = chat.session.channel.state
        self._subagents: Mapping[str, Json] = {}
        self._facts: Facts | None = None
        self._memory = Memory()
        self._shown: Thread | None = None
        self._current = False
        self._unseen = False
        self._held: Thread | None = None
        self._marked = False
        self._attached: dict[int, Listener] = {}
        self._epoch = secrets.token_hex(8)
        self._log = EventLog(first_seq=unix_ms(), max_events=max_events, max_bytes=max_events_bytes)

    # -- what changed -----------------------------------------------------------------

    def take(self, action: Json, state: Json) -> None:
        """The chat's state after an action."""
        self._state = state
        self._changed(streamed=action["type"] in STREAMED)
        if action["type"] == "chat/truncated":
            kept = self._kept_marks()
            if kept is not None:
                self.chat.beside = kept

    def take_subagent(self, uri: str, state: Json | None) -> None:
        """The state of a subagent's chat that this chat's agent opened; None: it is gone."""
        others = {key: held for key, held in self._subagents.items() if key != uri}
        self._subagents = others if state is None else {**others, uri: state}
        self._changed(streamed=False)

    def take_session(self, state: Json, *, shown: bool) -> None:
        """The session's state; `shown` says whether anything of it is seen here."""
        self._session_state = state
        if shown:
            self._facts = None
            self._changed(streamed=False)

    def take_own(self, own: Own) -> None:
        """The chat's members that no action tells of."""
        before, self._own = self._own, own
        self._facts = None
        self._changed(streamed=False)
        marks = bookmarks_of(own.beside)
        if self._held is None and marks != bookmarks_of(before.beside):
            self._tell_attached(
                "chat.bookmarks", ChatBookmarksEvent(chat_id=self.chat.id, bookmarks=marks)
            )

    def take_agent(self) -> None:
        """The agent said something else of itself."""
        self._facts = None
        self._changed(streamed=False)

    def _changed(self, *, streamed: bool) -> None:
        self._current = False
        if self._held is not None:
            return
        if self._audience.empty:
            self._unseen = True
        elif self._attached or not streamed:
            self.look()

    # -- looking ----------------------------------------------------------------------

    def look(self) -> Thread:
        """The thread as it is now; what changed since the last look is told."""
        if self._held is not None:
            return self._held
        before = self._shown
        if self._current and before is not None:
            return before
        after = self._made()
        self._shown, self._current = after, True
        if before is not None:
            for event in events_between(before, after):
                self._tell(event)
            if is_status_news(before.info, after.info):
                self._tell_status(after.info)
        return after

    def _made(self) -> Thread:
        # What appeared while nobody looked on did not appear just now.
        memory = attrs.evolve(self._memory, began=False) if self._unseen else self._memory
        self._unseen = False
        self._memory = remember(memory, self._state, at_ms=unix_ms(), subagents=self._subagents)
        if self._facts is None:
            agent = self._audience.agent_of(self.chat)
            self._facts = facts_of(self.chat, self._own, self._session_state, agent)
        made = thread_of(self._state, self._session_state, self._facts, self._memory)
        if self.chat.parent is not None:
            # A subagent's own chat is read beside its parent's, and is no row of a list.
            made = attrs.evolve(made, info=attrs.evolve(made.info, hidden=True))
        return made

    def begun(self) -> None:
        """The chat was made: every client hears of it."""
        if not self._audience.empty:
            self._tell_status(self.look().info)

    def hold(self) -> None:
        """The thread is about to be emptied: what leads to that is not told one by one."""
        self._held = self.look()
        self._marked = bool(bookmarks_of(self._own.beside))

    def reset(self, own: Own, state: Json) -> None:
        """The thread was emptied: one reset for whoever is attached, whatever there was before."""
        before, self._held = self._held or self.look(), None
        self._own, self._state, self._facts = own, state, None
        after = self._shown = self._made()
        self._current = True
        self._tell(ResetEvent(info=after.info, items=after.items))
        if self._marked:
            self._tell_attached(
                "chat.bookmarks", ChatBookmarksEvent(chat_id=self.chat.id, bookmarks=())
            )
        if is_status_news(before.info, after.info):
            self._tell_status(after.info)

    def gone(self) -> None:
        """The chat was killed: a last word to whoever is attached, and one to everybody."""
        if self._audience.empty:
            return
        info = attrs.evolve(self.look().info, status="exited", running=False)
        self._tell(InfoEvent(info=info))
        self._tell_status(info)
        self._attached.clear()

    # -- telling ----------------------------------------------------------------------

    def _tell(self, event: ChatEvent) -> None:
        if isinstance(event, ResetEvent):
            # Where a page began means nothing in another thread.
            self._epoch = secrets.token_hex(8)
        envelope = ChatEventEnvelope(chat_id=self.chat.id, event=event, seq=self._log.next_seq)
        text = encode_event("chat.event", envelope)
        self._log.add(event, len(text))
        for listener in list(self._attached.values()):
            listener.send_text(text)

    def _tell_attached(self, event: str, payload: Shape) -> None:
        if self._attached:
            text = encode_event(event, payload)
            for listener in list(self._attached.values()):
                listener.send_text(text)

    def _tell_status(self, info: ChatInfo) -> None:
        self._audience.tell_all("chat.status", ChatStatusEvent(chat_id=self.chat.id, info=info))

    # -- reading ----------------------------------------------------------------------

    def attach(
        self, listener: Listener, *, limit: int | None, since: int | None
    ) -> ChatAttachResult:
        """The thread, its newest page, or what happened since; from now on it is streamed too.

        Args:
            limit: how many items the page has; None for the whole thread.
            since: the last number the client applied.
        """
        shown = self.look()
        self._attached[id(listener)] = listener
        marks = bookmarks_of(self._own.beside)
        events = None if since is None else self._log.since(since)
        if events is not None:
            return ChatAttachResult(
                info=shown.info,
                items=(),
                seq=self._log.seq,
                events=tuple(events),
                bookmarks=marks,
                visuals=(),
            )
        count, paged = len(shown.items), limit is not None
        start = page_start(shown.items, count, limit) if limit is not None else 0
        return ChatAttachResult(
            info=shown.info,
            items=shown.items[start:],
            history=self._page(start) if paged else None,
            pending=pending_of(shown.items) if paged else None,
            seq=self._log.seq,
            bookmarks=marks,
            visuals=(),
        )

    def detach(self, listener: Listener) -> None:
        """Streams to this connection no longer."""
        self._attached.pop(id(listener), None)
        self.watchers.pop(id(listener), None)

    def is_attached(self, listener: Listener) -> bool:
        """Whether it is streamed to this connection."""
        return id(listener) in self._attached

    def history(self, cursor: str, limit: int | None) -> ChatHistoryResult:
        """The page before the one that gave this cursor.

        Raises:
            ChatError: `history-expired`, it is none of this thread's.
        """
        items = self.look().items
        end = self._place_of(cursor, len(items))
        start = page_start(items, end, limit or HISTORY_PAGE_ITEMS)
        return ChatHistoryResult(items=items[start:end], history=self._page(start))

    def subagent_page(
        self, cursor: str | None, limit: int | None
    ) -> tuple[tuple[ChatItem, ...], SubagentHistory]:
        """A page of a subagent's conversation, the newest where there is no cursor.

        Raises:
            ChatError: `history-expired`, the cursor is none of this thread's.
        """
        items = self.look().items
        end = len(items) if cursor is None else self._place_of(cursor, len(items))
        start = page_start(items, end, limit or HISTORY_PAGE_ITEMS)
        page = self._page(start)
        return items[start:end], SubagentHistory(cursor=page.cursor, start=page.start)

    def _page(self, start: int) -> HistoryPage:
        return HistoryPage(start=start, cursor=f"{self._epoch}.{start}" if start > 0 else None)

    def _place_of(self, cursor: str, count: int) -> int:
        epoch, _, place = cursor.partition(".")
        known = epoch == self._epoch and place.isascii() and place.isdigit() and len(place) < 12
        if not known or not 0 < int(place) <= count:
            raise ChatError("history-expired", "This cursor is not known any more: attach again.")
        return int(place)

    def _kept_marks(self) -> Json | None:
        """What is beside the chat without the bookmarks of messages that are gone; None when
        there are none of those."""
        marks = bookmarks_of(self._own.beside)
        if not marks:
            return None
        there = {item.id for item in self.look().items}
        kept = [mark for mark in marks if mark.item_id in there]
        return None if len(kept) == len(marks) else with_bookmarks(self._own.beside, kept)

    def item(self, item_id: str) -> ChatItem | None:
        """The item of that id."""
        return next((item for item in self.look().items if item.id == item_id), None)
