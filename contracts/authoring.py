"""What an agent is to the host: the contract that every agent fulfils, member by member.

An agent is any object with the members of `Agent`; `Agent.create` answers any
object with the members of `Session`, which is one chat. Nothing here is to be
inherited from. What may be left out stands in `AGENT_OPTIONAL` and
`SESSION_OPTIONAL`: absence is an answer, not a gap.

Every member but `begin` may be `def` or `async def`. The time limits are keys of
the host: `create` 60 s, what the catalogue asks 10 s, everything else 5 s.

A setter answers False for what it will not take (`set_config` may answer a
sentence instead), and the client's action is refused with it. Any other answer,
None included, says that it was taken.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal, Protocol, TypeAlias, TypeVar

from attrs import field, frozen

T = TypeVar("T")

#: What a member answers when it may be `def` or `async def`.
Answer: TypeAlias = T | Awaitable[T]

#: An AHP action of canonical version 1.0, such as `{"type": "chat/delta", …}`.
Action: TypeAlias = dict[str, Any]

#: What a setter answers: False refuses, a sentence refuses and says why.
Verdict: TypeAlias = bool | str | None


class SubagentHandle(Protocol):
    """The chat of an agent that this one started: read-only for clients, without a process."""

    @property
    def chat_uri(self) -> str:
        """The chat's AHP URI, as a `subagent` content of the tool call names it."""

    @property
    def turn_id(self) -> str:
        """The turn that the chat opens with: the one that the subagent's actions belong to."""

    def emit(self, action: Action) -> None:
        """Says one action on that chat; waits and raises as `Start.emit` does."""


def _nobody_said(folder: str) -> bool:
    return False


def _no_subagent(tool_call_id: str, request: Mapping[str, Any]) -> SubagentHandle:
    raise RuntimeError("this start has no host, so it can open no subagent chat")


def _unheard(*said: Any) -> None:
    """What is said where no host listens."""


@frozen(kw_only=True)
class Start:
    """What a session is started with. Its functions may be called from any thread."""

    uri: str
    """The AHP session this chat belongs to."""
    chat_uri: str
    chat_id: str | None = None

    emit: Callable[[str, Action], None]
    """`emit(channel, action)`: says one action. `channel` is `'chat'`, `'session'` or `'terminal'`.

    A plain function: the action is written before it returns, and it blocks
    while the host is not reading. Raises ValueError when the action cannot be
    said in JSON or is larger than a frame, TypeError when it is no action.
    """

    settings: Mapping[str, Any] = field(factory=dict)
    """Values of the keys of `Agent.schema`, the defaults filled in."""
    working_directory: str | None = None
    """A path; it is the process's working folder by the time `create` is called."""
    additional: Sequence[str] = ()
    """Further folders, as paths."""
    trusted: Callable[[str], bool] = _nobody_said
    """Whether a person said that a folder may be trusted. Nobody said is untrusted."""
    tools: Sequence[Any] | None = None
    """AHP `ToolDefinition`s of the clients."""
    mcp_servers: Sequence[Any] | None = None
    instructions: str | None = None
    resume: str | None = None
    """An `agent_id()` of an earlier process, whose conversation goes on."""
    fork_at: str | None = None
    """Where in the resumed conversation a fork leaves it (`Session.fork_point`)."""
    rewind_at: str | None = None
    """The last turn of the resumed conversation that still counts."""
    context: str | None = None
    """What a side chat is about."""
    seed: Sequence[Any] | None = None
    """The AHP `Turn`s so far, oldest first; None when the host knows of none."""
    credentials: Mapping[str, str] | None = None
    """A token for each protected resource that somebody authenticated for."""

    subagent: Callable[[str, Mapping[str, Any]], SubagentHandle] = _no_subagent
    """`subagent(tool_call_id, request)`: opens the chat of a subagent, at once.

    `request` is `{title?, text?, agentName?, description?}`, `text` being the
    message that opens its turn. A second call for a tool call answers the same chat.
    """
    on_file_edit: Callable[[str, str, Literal["before", "after"]], None] = _unheard
    """`on_file_edit(turn_id, path, phase)`: a file is about to be changed, or was."""
    on_account: Callable[[Any], None] = _unheard
    """`on_account(account)`: whom the agent's provider knows the person as, when it changes."""


class Session(Protocol):
    """One chat. These two members are required; the others stand in `SESSION_OPTIONAL`."""

    def begin(self, turn_id: str, text: str, model: str | None = None) -> Answer[Verdict]:
        """Starts a turn.

        As `async def` it is the turn: its return without an ending is
        `chat/turnComplete`, an exception is `chat/error`, and a cancel cancels
        its task. As a plain function it returns at once, and the turn ends when
        an ending is emitted; such a session needs `cancel`.

        A parameter named `message` is given AHP's whole message as well.
        """

    def close(self, removing: bool = False) -> Answer[None]:
        """The end of this process: settle everything parked and let go of everything held.

        `removing` says that the conversation itself goes, not only its process.
        A running turn of an `async def begin` has been cancelled before.
        """


class Agent(Protocol):
    """A backend. These members are required; the others stand in `AGENT_OPTIONAL`."""

    @property
    def provider(self) -> str:
        """The name clients use, unless the host's configuration gives another."""

    @property
    def display_name(self) -> str: ...

    def schema(self) -> Answer[Mapping[str, Any]]:
        """What a session can be told to do differently: AHP's `SessionConfigSchema`.

        `{"type": "object", "properties": {key: {"type", "title", …}}}`; the one
        schema is for the new-session screen and for every session. The host
        reads the keys `permissionMode`, `model`, `effortLevel` and
        `outputStyle` itself. A property may say `sessionMutable: false` (refused on a
        running session) and `scope: 'session' | 'chat'`.
        """

    def defaults(self) -> Answer[Mapping[str, Any]]:
        """The value of each key when nobody said another."""

    def create(self, start: Start) -> Answer[Session]:
        """Starts one session. With `start.resume` it goes on with an earlier one."""


#: What `module:factory` names: called with the configuration's options as keywords.
AgentFactory: TypeAlias = Callable[..., Agent]


@frozen
class Member:
    """An optional member: how it is called, what it answers, and whether the host calls it yet."""

    signature: str
    answers: str
    called: bool = True

    @property
    def name(self) -> str:
        return self.signature.partition("(")[0]


def _by_name(*members: Member) -> Mapping[str, Member]:
    return {member.name: member for member in members}


#: What an agent may leave out. A name without parentheses is an attribute.
AGENT_OPTIONAL: Mapping[str, Member] = _by_name(
    Member("description", "one line"),
    Member("kind", "how the agent shows itself on the agent-contracts wire"),
    Member(
        "capabilities",
        "`{multipleChats?: {fork?, sideChat?}, multipleWorkingDirectories?}`",
    ),
    Member("protected_resources", "RFC 9728 metadata of what a token can be given for"),
    Member(
        "probe()",
        "`{models?, commands?, customizations?, account?}`, from which a composer is drawn; "
        "asked once, before any session",
    ),
    Member("directories()", "folders the agent will work in; clients may read them"),
    Member("config_completions(key, query, config, directory)", "AHP `SessionConfigValueItem`s"),
    Member("list()", "a row for each session the agent already has"),
    Member("find(id, at)", "the row that `list` gives for it, or None; `at`: where it ran"),
    Member("transcript(id, at)", "its AHP `Turn`s, with nothing started"),
    Member("subagents(id, turns, at)", "its subagent chats"),
    Member("delete(id, directory)", "removes the agent's own copy; False: it would not"),
    Member("state_file(id, directory)", "where its own record of a session is", called=False),
    Member("endpoints()", "what to probe when the network is in question", called=False),
)

#: What a session may leave out. Those that only tell are read once, after `create`:
#: from then on only actions change state.
SESSION_OPTIONAL: Mapping[str, Member] = _by_name(
    # Identity.
    Member("uri", "as it was started with", called=False),
    Member("chat_uri", "as it was started with", called=False),
    Member("agent_id()", "what `Start.resume` will be; asked after `create` and each turn"),
    # State.
    Member("title()", "the conversation's title, or None"),
    Member("activity()", "what it is doing, in a few words, or None"),
    Member("all_turns()", "AHP `Turn`s; asked when the session was given no seed"),
    Member("working_directories()", "paths"),
    Member("models()", "AHP `SessionModelInfo`s"),
    Member("customizations()", "AHP `Customization`s"),
    Member("settings()", "the values in force, by key"),
    Member("session_state()", "AHP `SessionState`", called=False),
    Member("chat_state()", "AHP `ChatState`", called=False),
    Member("status()", "AHP `SessionStatus`", called=False),
    Member("modified_at()", "an ISO 8601 instant", called=False),
    # The turn.
    Member("cancel(turn_id)", "settles everything parked and stops; False: it could not"),
    Member("steer(id, text, message?)", "True: said to the running turn; False: it waits"),
    Member("resume(turn_id)", "goes on with a turn that an error ended"),
    Member("stop_worker(tool_call_id)", "stops the subagent of that tool call"),
    # Queue and draft are the host's own business.
    Member("queue(id, text, model=None)", "nothing", called=False),
    Member("unqueue(id)", "nothing", called=False),
    Member("reorder(order)", "nothing", called=False),
    Member("set_draft(draft)", "nothing", called=False),
    # Being asked.
    Member(
        "confirm(tool_call_id, approved, option_id=None, edited_input?, result?)",
        "False: nothing of that id waits; `result` says that the result waits, not the call",
    ),
    Member(
        "answer(request_id, accepted, answers, response?)",
        "True: it is answered, and the host says so; `answers`: AHP `ChatInputAnswer`s by question",
    ),
    Member("set_answer(request_id, question_id, answer)", "a draft of one answer"),
    # Controls.
    Member("set_config(key, value)", "False or a sentence: refused"),
    Member("set_working_directories(list)", "False: refused"),
    Member("completions(kind, text, offset)", "AHP `CompletionItem`s; `offset` in UTF-16 units"),
    # Customizations.
    Member("set_customization_enabled(id, enabled)", "False: refused"),
    Member("start_mcp_server(id)", "False: refused"),
    Member("stop_mcp_server(id)", "False: refused"),
    # Tools of clients.
    Member("set_tools(tools)", "the AHP `ToolDefinition`s that clients offer now"),
    Member("tool_call_owner(id)", "the client that is to run it", called=False),
    Member("complete_tool_call(id, client_id, result)", "a client's AHP `ToolCallResult`"),
    Member("client_gone(client_id)", "nothing"),
    # Forking.
    Member("fork_point(turn_id)", "what `Start.fork_at` will be", called=False),
    Member("end_point(turn_id)", "what `Start.rewind_at` will be", called=False),
)
