"""The wire between supervisor and worker: each request and event of the pipe, with its shape.

Frames are those of `frames`; the supervisor asks, the worker replies and tells.
A worker's first frame is the event `worker.hello`; one of another major version
is refused. Then, in this order: `worker.load`; for a catalogue worker the
`agent.*` requests; for a conversation `session.seed` as often as needed,
`session.create`, and from then on the rest, in any order.

Requests are handled in the order they came, each started before the next is
read; a reply may overtake another. Whatever is long (turns, rows) travels
before its reply as `worker.part` events of at most `frames.PART_BYTES`.

The supervisor trusts none of it: names come from these tables, payloads are
structured by them, and what does not fit ends the worker.
"""

from collections.abc import Mapping
from typing import Any, Literal

from attrs import field, frozen

#: Major and minor. The major is the promise; a minor only adds optional fields.
WORKER_WIRE_VERSION = "1.0"

#: The option of `python -m ahpd.worker` that names its two frame descriptors.
FRAMES_IN_FD = 3
FRAMES_OUT_FD = 4


# -- what the supervisor asks ---------------------------------------------------------


@frozen(kw_only=True)
class Load:
    """Import the agent and call its factory; before the working folder is entered."""

    factory: str
    """`module:callable`, looked up in the environment and in `agent_path`."""
    options: dict[str, Any] = field(factory=dict)
    agent_path: list[str] = field(factory=list)


@frozen(kw_only=True)
class Description:
    """What the agent says of itself without being asked to do anything."""

    provider: str
    display_name: str
    description: str | None = None
    kind: str | None = None
    capabilities: dict[str, Any] | None = None
    schema: dict[str, Any] = field(factory=dict)
    """A JSON Schema object `{type: 'object', properties: …}` of AHP's `SessionConfigSchema`."""
    defaults: dict[str, Any] = field(factory=dict)
    protected_resources: list[Any] | None = None


@frozen(kw_only=True)
class Nothing:
    """No payload, or no result."""


@frozen(kw_only=True)
class Probe:
    """What a composer is drawn from; everything the agent left out is absent."""

    models: list[Any] = field(factory=list)
    commands: list[Any] = field(factory=list)
    customizations: list[Any] | None = None
    account: Any = None


@frozen(kw_only=True)
class ConfigCompletions:
    key: str
    query: str
    config: dict[str, Any] = field(factory=dict)
    directory: str | None = None


@frozen(kw_only=True)
class Items:
    """A list that fits one frame; longer ones come as `worker.part` events and `items` is empty."""

    items: list[Any] = field(factory=list)


@frozen(kw_only=True)
class At:
    """Where to look first: the folder the session ran in."""

    id: str
    at: str | None = None


@frozen(kw_only=True)
class Subagents:
    id: str
    turns: list[Any] = field(factory=list)
    at: str | None = None


@frozen(kw_only=True)
class Delete:
    id: str
    directory: str | None = None


@frozen(kw_only=True)
class Found:
    row: dict[str, Any] | None = None


@frozen(kw_only=True)
class Seed:
    """Turns already known, oldest first, added to those of earlier seeds."""

    turns: list[Any]


@frozen(kw_only=True)
class Create:
    """`Agent.create(start)`: the fields of `Start` that can travel."""

    uri: str
    chat_uri: str
    chat_id: str
    settings: dict[str, Any] = field(factory=dict)
    working_directory: str | None = None
    """A path; the worker enters it after the agent is loaded."""
    additional: list[str] = field(factory=list)
    """Further folders, as paths."""
    trusted: list[str] = field(factory=list)
    tools: list[Any] | None = None
    mcp_servers: list[Any] | None = None
    instructions: str | None = None
    resume: str | None = None
    fork_at: str | None = None
    rewind_at: str | None = None
    context: str | None = None
    credentials: dict[str, str] | None = None


@frozen(kw_only=True)
class Created:
    """What the session said of itself after `create`; its turns came as parts."""

    agent_id: str | None = None
    title: str | None = None
    activity: str | None = None
    models: list[Any] | None = None
    customizations: list[Any] | None = None
    working_directories: list[str] | None = None
    settings: dict[str, Any] | None = None
    members: list[str] = field(factory=list)
    """The optional members that the session has, by name (`steer`, `set_config`, …)."""


@frozen(kw_only=True)
class Begin:
    """`Session.begin`. `message` is AHP's whole message, `text` and `model` are taken from it."""

    turn_id: str
    text: str
    model: str | None = None
    message: dict[str, Any] = field(factory=dict)


@frozen(kw_only=True)
class TurnNamed:
    turn_id: str


@frozen(kw_only=True)
class Steer:
    id: str
    text: str
    message: dict[str, Any] = field(factory=dict)


@frozen(kw_only=True)
class StopSubagent:
    tool_call_id: str


@frozen(kw_only=True)
class Confirm:
    """`Session.confirm`. `result` says that what waits is the result, not the call."""

    tool_call_id: str
    approved: bool
    option_id: str | None = None
    edited_input: str | None = None
    result: bool = False


@frozen(kw_only=True)
class Answer:
    """`Session.answer`; `response` is AHP's `accept`, `decline` or `cancel`."""

    request_id: str
    accepted: bool
    response: str
    answers: dict[str, Any] = field(factory=dict)


@frozen(kw_only=True)
class SetAnswer:
    request_id: str
    question_id: str
    answer: Any = None


@frozen(kw_only=True)
class SetConfig:
    key: str
    value: Any


@frozen(kw_only=True)
class SetWorkingDirectories:
    directories: list[str]


@frozen(kw_only=True)
class SetCustomizationEnabled:
    id: str
    enabled: bool


@frozen(kw_only=True)
class Named:
    id: str


@frozen(kw_only=True)
class SetTools:
    tools: list[Any]


@frozen(kw_only=True)
class CompleteToolCall:
    tool_call_id: str
    client_id: str
    result: dict[str, Any]


@frozen(kw_only=True)
class ClientGone:
    client_id: str


@frozen(kw_only=True)
class Completions:
    kind: str
    text: str
    offset: int
    """UTF-16 units into `text`."""


@frozen(kw_only=True)
class Close:
    removing: bool = False


@frozen(kw_only=True)
class Taken:
    """Whether the agent took it: False is a real answer, `reason` its sentence."""

    accepted: bool
    reason: str | None = None


#: Request name to the shape of its payload and of its result.
WORKER_REQUESTS: Mapping[str, tuple[type, type]] = {
    "worker.load": (Load, Description),
    # a catalogue worker
    "agent.probe": (Nothing, Probe),
    "agent.directories": (Nothing, Items),
    "agent.configCompletions": (ConfigCompletions, Items),
    "agent.list": (Nothing, Items),
    "agent.find": (At, Found),
    "agent.transcript": (At, Items),
    "agent.subagents": (Subagents, Items),
    "agent.delete": (Delete, Taken),
    # a conversation
    "session.seed": (Seed, Nothing),
    "session.create": (Create, Created),
    "session.setConfig": (SetConfig, Taken),
    "session.setWorkingDirectories": (SetWorkingDirectories, Taken),
    "session.setCustomizationEnabled": (SetCustomizationEnabled, Taken),
    "session.startMcpServer": (Named, Taken),
    "session.stopMcpServer": (Named, Taken),
    "session.setTools": (SetTools, Taken),
    "session.clientGone": (ClientGone, Taken),
    "session.completions": (Completions, Items),
    "session.close": (Close, Nothing),
    "turn.begin": (Begin, Taken),
    "turn.cancel": (TurnNamed, Taken),
    "turn.steer": (Steer, Taken),
    "turn.resume": (TurnNamed, Taken),
    "subagent.stop": (StopSubagent, Taken),
    "request.confirm": (Confirm, Taken),
    "request.answer": (Answer, Taken),
    "request.setAnswer": (SetAnswer, Taken),
    "tool.complete": (CompleteToolCall, Taken),
}

#: Codes of a worker's `Failure`.
FAILURE_BAD_REQUEST = "bad-request"
FAILURE_UNKNOWN_REQUEST = "unknown-request"
FAILURE_NO_MEMBER = "no-member"
"""The agent or session has no such optional member: an answer, not a fault."""
FAILURE_RAISED = "raised"
"""The member raised; the message is `TypeName: text`, the traceback is on stderr."""
FAILURE_LOAD = "load-failed"
"""The module or factory could not be imported or called."""


# -- what the worker tells ------------------------------------------------------------


@frozen(kw_only=True)
class Hello:
    """The first frame of every worker."""

    wire: str
    pid: int


@frozen(kw_only=True)
class Emit:
    """An action of the agent. `channel` is `chat`, `session`, `terminal`, or the URI of a
    subagent chat that this worker opened."""

    channel: str
    action: dict[str, Any]


@frozen(kw_only=True)
class AgentId:
    """`Session.agent_id()`, told after `create` and after each turn: what `resume` will be."""

    agent_id: str


@frozen(kw_only=True)
class TurnOver:
    """The agent's part in a turn has ended: the acknowledgement that a cancel waits for.

    For an `async def begin`: its task ended. For a plain one: an ending was
    emitted, or `cancel` answered anything but False.
    """

    turn_id: str


@frozen(kw_only=True)
class SubagentOpened:
    """`start.subagent(tool_call_id, request)`. Its chat id is
    `uris.subagent_chat_id(chat_id, tool_call_id)` on both sides; a second one changes nothing."""

    tool_call_id: str
    request: dict[str, Any] = field(factory=dict)
    """`title?`, `text?` (the message that opens its turn), `agentName?`, `description?`."""


@frozen(kw_only=True)
class FileEdit:
    turn_id: str
    path: str
    phase: Literal["before", "after"]


@frozen(kw_only=True)
class Account:
    account: Any


@frozen(kw_only=True)
class RuleBroken:
    """A rule of reference "Writing an agent" that the worker itself saw broken."""

    rule: str
    detail: str


@frozen(kw_only=True)
class Part:
    """A piece of the long answer to the request `id`, in order, before its reply."""

    id: str
    items: list[Any]


#: Event name to the shape of its payload.
WORKER_EVENTS: Mapping[str, type] = {
    "worker.hello": Hello,
    "worker.part": Part,
    "worker.ruleBroken": RuleBroken,
    "agent.emit": Emit,
    "agent.id": AgentId,
    "agent.account": Account,
    "agent.fileEdit": FileEdit,
    "subagent.opened": SubagentOpened,
    "turn.over": TurnOver,
}
