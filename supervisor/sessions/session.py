"""One session: its channel, its chats, and what is projected from them.

The session's catalogue, its roll-up of what waits on a person, its status and
its row in the list are projections of the chats: they change here, after a
chat's action, and nowhere else.
"""

from typing import TYPE_CHECKING, Any

from ...contracts.ahp.reducers import reduce_session
from ...contracts.ahp.status import IDLE, is_read, with_activity
from ...contracts.ahp.uris import (
    chat_uri,
    default_chat_uri,
    parse_channel,
    subagent_chat_id,
    subagent_turn_id,
)
from ...contracts.worker_wire import Create, Created, StopSubagent
from ..store.interface import SessionRecord
from . import session_actions
from .channel import Channel
from .chat import Chat
from .chat_actions import paths_of
from .clock import now
from .conversation import Conversation, Plan
from .dispatch import Dispatched, DispatchLine
from .parked import input_needed, parked_in
from .row_news import RowNews
from .sizes import MAX_PARKED_BYTES, cut, parked_bytes, session_outgrown, size_of
from .stream import Origin
from .summaries import (
    changed_fields,
    chat_summary,
    derived_activity,
    session_summary,
    shown_activity,
)
from .turns import Happening

if TYPE_CHECKING:
    from ..host import Host

Json = dict[str, Any]

#: How much of the first message names a session that has no title.
TITLE_CHARS = 80

#: Subagent chats of one session; further ones are refused to the agent.
MAX_SUBAGENT_CHATS = 200

#: What a subagent was asked to do, as its chat shows it; and the id of the call that asked,
#: which stands in the session's catalogue.
MAX_TASK_CHARS = 64 * 1024
MAX_CALL_ID_CHARS = 1000


class Session:
    """A session and its chats.

    Attributes:
        id: what identifies it in every spelling.
        spelling: the URI that it was created under: the one that is listed.
        agent: the configured name of its agent.
    """

    def __init__(
        self,
        host: "Host",
        *,
        id: str,
        spelling: str,
        agent: str,
        state: Json,
        created_at: str,
    ) -> None:
        self.host = host
        self.id = id
        self.spelling = spelling
        self.agent = agent
        self.created_at = created_at
        self.modified_at = created_at
        self.titled_by_person = False
        self.removed = False
        self.progress_token: str | None = None
        self.channel = Channel(
            uri=spelling,
            family="session",
            owner_id=id,
            state=state,
            reduce=reduce_session,
            stream=host.stream,
            ledger=host.ledger,
            keep=lambda envelope: self.keep(),
            view=lambda: self.state,
        )
        self.line = DispatchLine(host.nursery, lambda given: session_actions.take(self, given))
        self.chats: dict[str, Chat] = {}
        self._disposed_subagents: set[str] = set()
        self.default_chat: Chat
        """There as soon as the session is: `create` and `restore` see to it."""
        self._told: Json = {}
        self.row = RowNews(host.nursery, self._tell_summary)

    @classmethod
    def create(
        cls,
        host: "Host",
        *,
        id: str,
        spelling: str,
        agent: str,
        directories: list[str],
        settings: Json | None,
        progress_token: str | None = None,
    ) -> "Session":
        """A new session with its default chat; nothing is told of it yet."""
        state: Json = {
            "provider": agent,
            "title": "",
            "status": IDLE,
            "lifecycle": "creating",
            "activeClients": [],
            "chats": [],
        }
        if directories:
            state["workingDirectories"] = directories
        if settings is not None:
            state["config"] = settings
        session = cls(host, id=id, spelling=spelling, agent=agent, state=state, created_at=now())
        session.progress_token = progress_token
        # The default chat is there from the first snapshot on: no action adds it.
        session.default_chat = session._make_chat(id, default_chat_uri(spelling), "")
        state["chats"] = [chat_summary(session.default_chat.state)]
        state["defaultChat"] = session.default_chat.channel.uri
        session._told = session.summary()
        session.keep()
        return session

    def restored(self, record: SessionRecord, chats: dict[str, Chat]) -> None:
        """Takes what is kept beside the state, in place of what a new session begins with."""
        self.modified_at = record.modified_at
        self.titled_by_person = record.titled_by_person
        self.chats = chats
        self.default_chat = chats[record.default_chat]
        self._told = self.summary()

    # -- looking ----------------------------------------------------------------------

    @property
    def state(self) -> Json:
        """The session's state as clients see it: the low status bits derived from its chats."""
        return {**self.channel.state, "status": self._status()}

    @property
    def failed(self) -> bool:
        """Whether the session could not be created."""
        return bool(self.channel.state["lifecycle"] == "failed")

    @property
    def settings(self) -> Json:
        """The values of its configuration."""
        config = self.channel.state.get("config")
        return dict(config["values"]) if config is not None else {}

    def summary(self) -> Json:
        """Its row in the list."""
        return self._summary_of(self.channel.state)

    def _summary_of(self, state: Json) -> Json:
        return session_summary(
            {**state, "status": self._status()},
            resource=self.spelling,
            created_at=self.created_at,
            modified_at=self.modified_at,
        )

    def subagents_of(self, chat: Chat) -> list[Chat]:
        """The subagent chats that this chat's agent opened."""
        return [held for held in self.chats.values() if held.parent is chat]

    def was_subagent(self, uri: str) -> bool:
        """Whether that was a subagent's chat that somebody disposed of, whatever its agent says."""
        name = parse_channel(uri)
        return name is not None and name.id in self._disposed_subagents

    def subagent_on(self, chat: Chat, uri: str) -> Chat | None:
        """The subagent chat at that URI, when this chat's agent opened it."""
        return next((held for held in self.subagents_of(chat) if held.channel.uri == uri), None)

    def may_park(self, chat: Chat, action: Json) -> bool:
        """Whether the request that an action of this chat opens may wait on a person, too."""
        if len(parked_in(chat.state)) >= self.host.bounds.max_parked_requests:
            return False
        # What waits is part of a turn, and turns are small as a rule.
        if sum(held.turn_size.at_most for held in self.chats.values()) <= MAX_PARKED_BYTES:
            return True
        uri = chat.channel.uri
        needed = self.channel.state.get("inputNeeded", [])
        others = sum(size_of(entry) for entry in needed if entry["chat"] != uri)
        parked = parked_bytes(chat.channel.reduce(chat.state, action))
        return others + parked <= MAX_PARKED_BYTES

    def may_become(self, action: Json) -> bool:
        """Whether the session is still small enough for everybody after an agent's action."""
        state = self.channel.reduce(self.channel.state, action)
        return not session_outgrown(state, self._summary_of(state))

    def record(self) -> SessionRecord:
        """What a store keeps of this session."""
        return SessionRecord(
            id=self.id,
            spelling=self.spelling,
            agent=self.agent,
            created_at=self.created_at,
            modified_at=self.modified_at,
            titled_by_person=self.titled_by_person,
            default_chat=self.default_chat.id,
            state=self.channel.state,
            summary=self.summary(),
        )

    def _status(self) -> int:
        own = [chat.state for chat in self.chats.values() if not chat.removed]
        return with_activity(self.channel.state["status"], derived_activity(own))

    # -- changing ---------------------------------------------------------------------

    def say(self, action: Json, origin: Origin | None = None) -> bool:
        """Publishes an action on the session's channel; answers whether it changed anything."""
        changed = self.channel.publish(action, origin) is not None
        if changed:
            self.after_change(action)
        return changed

    def accept(self, dispatched: Dispatched) -> bool:
        """Applies a client's action and echoes it; answers whether it changed anything."""
        changed = dispatched.accept()
        if changed:
            self.after_change(dispatched.action)
        return changed

    def after_change(self, action: Json) -> None:
        """Tells the list what of the session's row is other now."""
        if self.removed:
            return
        if action["type"] in _MODIFYING:
            self.modified_at = now()
            self.keep()
        self.row.changed()

    def keep(self) -> None:
        """Writes the session down as it is now."""
        if not self.removed:
            self.host.ledger.store.put_session(self.record())

    def dispatch(self, dispatched: Dispatched) -> None:
        """Answers a client's action on the session, now or when those before it are answered."""
        self.line.add(dispatched)

    def chat_changed(self, chat: Chat, kind: str) -> None:
        """A chat's state changed: mirrors it in the catalogue, the roll-up and the list."""
        if self.removed or chat.removed:
            return
        if kind not in _UNSEEN:
            self._mirror_row(chat)
            self._mirror_parked(chat)
            if kind in _ADVANCING:
                # By our own clock: a chat's time is as right as its client's.
                self.modified_at = now()
                self.keep()
            activity = shown_activity(self.channel.state["chats"], self.default_chat.channel.uri)
            said = {"type": "session/activityChanged"}
            self.say(said if activity is None else {**said, "activity": activity})
            self.row.changed()
        if kind == "chat/turnStarted" and chat is self.default_chat:
            self._title_by_first_words(chat)
        if kind in _UNREADS and is_read(self.channel.state["status"]):
            self.say({"type": "session/isReadChanged", "isRead": False})

    def _title_by_first_words(self, chat: Chat) -> None:
        """A session that nobody named yet is called by what was said first."""
        if self.channel.state["title"] or self.titled_by_person:
            return
        words = chat.state["activeTurn"]["message"]["text"].split("\n", 1)[0].strip()
        if words:
            title = words if len(words) <= TITLE_CHARS else words[: TITLE_CHARS - 1] + "…"
            self.say({"type": "session/titleChanged", "title": title})

    def _mirror_row(self, chat: Chat) -> None:
        row = chat_summary(chat.state)
        told = next(
            (held for held in self.channel.state["chats"] if held["resource"] == row["resource"]),
            None,
        )
        if told is None or told.keys() - row.keys():
            # `chatUpdated` cannot take a field away; `chatAdded` replaces the row.
            self.say({"type": "session/chatAdded", "summary": row})
            return
        changes = changed_fields(told, row)
        if changes:
            uri = chat.channel.uri
            self.say({"type": "session/chatUpdated", "chat": uri, "changes": changes})

    def _mirror_parked(self, chat: Chat) -> None:
        uri = chat.channel.uri
        wanted = {entry["id"]: entry for entry in self._needed(chat)}
        held = [
            entry for entry in self.channel.state.get("inputNeeded", []) if entry["chat"] == uri
        ]
        for entry in held:
            if entry["id"] not in wanted:
                self.say({"type": "session/inputNeededRemoved", "id": entry["id"]})
        arrived = {entry["id"] for entry in wanted.values()} - {entry["id"] for entry in held}
        for entry in wanted.values():
            self.say({"type": "session/inputNeededSet", "request": entry})
        if arrived and is_read(self.channel.state["status"]):
            self.say({"type": "session/isReadChanged", "isRead": False})

    def _needed(self, chat: Chat) -> list[Json]:
        return [input_needed(parked, chat.channel.uri) for parked in parked_in(chat.state)]

    def _tell_summary(self) -> bool:
        summary = self.summary()
        changes = changed_fields(self._told, summary)
        if self.removed or not changes:
            return False
        self._told = summary
        params = {"session": self.spelling, "changes": changes}
        self.host.notify("root/sessionSummaryChanged", params)
        return True

    # -- chats ------------------------------------------------------------------------

    def _make_chat(
        self,
        id: str,
        uri: str,
        title: str,
        *,
        parent: Chat | None = None,
        tool_call_id: str | None = None,
        origin: Json | None = None,
        directories: list[str] | None = None,
    ) -> Chat:
        state: Json = {
            "resource": uri,
            "title": title,
            "status": IDLE,
            "modifiedAt": now(),
            "origin": origin or {"kind": "user"},
            "turns": [],
        }
        if parent is not None:
            state["interactivity"] = "read-only"
        if directories:
            state["workingDirectories"] = directories
        chat = Chat(self, id=id, uri=uri, state=state, parent=parent, tool_call_id=tool_call_id)
        self.chats[id] = chat
        self.host.add_chat(chat)
        chat.begin_keeping()
        return chat

    def _add_chat(self, id: str, uri: str, title: str, **what: Any) -> Chat:
        chat = self._make_chat(id, uri, title, **what)
        self.say({"type": "session/chatAdded", "summary": chat_summary(chat.state)})
        return chat

    def open_chat(self, id: str, uri: str, *, title: str, directories: list[str]) -> Chat:
        """Adds a further chat, with a worker of its own."""
        chat = self._add_chat(id, uri, title, directories=directories)
        chat.start_worker()
        return chat

    def open_subagent(self, parent: Chat, tool_call_id: str, request: Json) -> None:
        """An agent opens a chat for a subagent. A second one for the same call changes nothing."""
        id = subagent_chat_id(parent.id, tool_call_id)
        if id in self.chats or id in self._disposed_subagents:
            return
        if len(tool_call_id) > MAX_CALL_ID_CHARS:
            parent.missed("well-formed", "the id of a subagent's tool call is too long")
            return
        opened = sum(chat.parent is not None for chat in self.chats.values())
        opened += len(self._disposed_subagents)
        if opened >= MAX_SUBAGENT_CHATS or self.host.has(id):
            parent.missed("too-many-subagents", f"no subagent chat for {tool_call_id[:80]}")
            return
        title, text = request.get("title"), request.get("text")
        origin = {"kind": "tool", "chat": parent.channel.uri, "toolCallId": tool_call_id}
        chat = self._add_chat(
            id,
            chat_uri(id),
            cut(title) if isinstance(title, str) else "Subagent",
            parent=parent,
            tool_call_id=tool_call_id,
            origin=origin,
        )
        text = cut(text, MAX_TASK_CHARS) if isinstance(text, str) else ""
        message = {"text": text, "origin": {"kind": "agent"}}
        turn = {"turnId": subagent_turn_id(id), "startedAt": now(), "message": message}
        chat.say({"type": "chat/turnStarted", **turn})

    def dispose_subagent(self, chat: Chat) -> None:
        """Ends a subagent's chat before its parent does: the agent is told to stop it."""
        if chat.worker is not None and chat.turn_id is not None:
            chat.worker.tell("subagent.stop", StopSubagent(tool_call_id=chat.tool_call_id or ""))
        self._disposed_subagents.add(chat.id)
        self.remove_chat(chat)

    def remove_chat(self, chat: Chat, happening: Happening = Happening.KILLED) -> None:
        """Ends a chat's turn and worker, and takes it out of the session. Its subagents' first."""
        for subagent in self.subagents_of(chat):
            self.remove_chat(subagent, happening)
        chat.happens(happening)
        for entry in self._needed_of(chat.channel.uri):
            self.say({"type": "session/inputNeededRemoved", "id": entry["id"]})
        self.chats.pop(chat.id, None)
        self.host.forget_chat(chat)
        self.say({"type": "session/chatRemoved", "chat": chat.channel.uri})
        self.row.changed()

    def _needed_of(self, uri: str) -> list[Json]:
        needed = self.channel.state.get("inputNeeded", [])
        return [entry for entry in needed if entry["chat"] == uri]

    # -- workers ----------------------------------------------------------------------

    def make_conversation(self, chat: Chat) -> Conversation:
        """A worker for a chat: not started yet."""
        directories = chat.state.get("workingDirectories") or self.channel.state.get(
            "workingDirectories", []
        )
        paths = paths_of(directories) or []
        create = Create(
            uri=self.spelling,
            chat_uri=chat.channel.uri,
            chat_id=chat.id,
            settings=self.settings,
            working_directory=paths[0] if paths else None,
            additional=paths[1:],
            tools=session_actions.tools_of(self) or None,
            resume=chat.agent_id,
            rewind_at=chat.rewind_at,
        )
        spec, load = self.host.agents.worker_of(self.agent, label=chat.id)
        return Conversation(
            launcher=self.host.launcher,
            plan=Plan(spec=spec, load=load, create=create, seed=chat.state["turns"]),
            bounds=self.host.bounds,
            log=chat.log,
            listener=chat,
            gate=self.host.ledger,
        )

    def on_created(self, chat: Chat, created: Created) -> None:
        """A chat's worker is there; the first one makes the session ready."""
        session_actions.tell_tools(self, chat)
        if chat is self.default_chat:
            if created.title and not self.titled_by_person:
                self.say({"type": "session/titleChanged", "title": cut(created.title)})
            if created.customizations is not None:
                changed = {"customizations": created.customizations}
                session_actions.say_if_well_formed(
                    self, {"type": "session/customizationsChanged", **changed}
                )
            if self.channel.state["lifecycle"] == "creating":
                self.say({"type": "session/ready"})
                self._progress(1)

    def go_on_creating(self) -> None:
        """A session that an earlier life of the host did not finish creating is created now."""
        if self.channel.state["lifecycle"] == "creating":
            if self.agent in self.host.agents.by_name:
                self.default_chat.start_worker()
            else:
                self.fail_creation(f"This host has no agent {self.agent!r} any more.")

    def on_creation_failed(self, chat: Chat, reason: str) -> None:
        """A worker never came to be; for a session that is being created, that is its end.

        Not when the host stops: its next life goes on creating it.
        """
        if chat.stopping:
            return
        if chat is self.default_chat and self.channel.state["lifecycle"] == "creating":
            self.fail_creation(reason)

    def fail_creation(self, reason: str) -> None:
        """The session cannot be created, for a reason that a person can act on."""
        if self.channel.state["lifecycle"] != "creating":
            return
        error = {"errorType": "creationFailed", "message": reason}
        self.default_chat.log.write_host_line(f"session not created: {reason}")
        self.default_chat.fail_turn("creationFailed", reason)
        self.say({"type": "session/creationFailed", "error": error})
        self._progress(1)

    def _progress(self, progress: int) -> None:
        if self.progress_token is not None:
            token = {"progressToken": self.progress_token}
            self.host.notify("root/progress", {**token, "progress": progress, "total": 1})

    def client_left(self, client_id: str) -> None:
        """A connection ended: its part in the session ends with it."""
        removed = {"type": "session/activeClientRemoved", "clientId": client_id}
        was_active = self.say(removed)
        for chat in list(self.chats.values()):
            chat.client_left(client_id, was_active=was_active)
            session_actions.tell_tools(self, chat)


#: Deltas: they change nothing that anybody sees outside of the chat.
_UNSEEN = frozenset({"chat/delta", "chat/reasoning", "chat/toolCallDelta", "chat/usage"})

#: What clears a session's read flag.
_UNREADS = frozenset({"chat/turnStarted", "chat/turnResume"})

#: What of a chat moves its session up in the list.
_ADVANCING = frozenset(
    {
        "chat/turnStarted",
        "chat/turnResume",
        "chat/turnComplete",
        "chat/turnCancelled",
        "chat/error",
        "chat/truncated",
        "chat/inputRequested",
        "chat/toolCallReady",
    }
)

#: What moves a session up in the list; mirrors of its chats carry their own time.
_MODIFYING = frozenset(
    {
        "session/titleChanged",
        "session/configChanged",
        "session/workingDirectorySet",
        "session/workingDirectoryRemoved",
        "session/workingDirectoryReplaced",
        "session/chatAdded",
        "session/chatRemoved",
        "session/ready",
        "session/creationFailed",
    }
)
