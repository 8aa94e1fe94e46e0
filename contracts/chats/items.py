"""The items of a thread, one class a kind.

A client may validate a whole thread at once: never a further kind here, and never
a further word in a state; what grows grows by optional members.
"""

from typing import Annotated, Any, Final, Literal, TypeAlias

from attrs import field, frozen

from .attachments import Attachment
from .infos import TurnLimit
from .names import ChatId
from .questions import AllowAlways, Question
from .shape import Count, Entries, NonEmpty, NotNegative, PositiveCount, Shape, WholeNumber


@frozen(kw_only=True)
class UserItem(Shape):
    """A message, with what the person picked for it."""

    id: NonEmpty
    created_at: float
    turn_id: str | None
    kind: Literal["user"] = "user"
    text: str
    mentions: tuple[str, ...] | None = None
    skills: tuple[str, ...] | None = None
    chats: tuple[str, ...] | None = None
    attachments: tuple[Attachment, ...] | None = None


@frozen(kw_only=True)
class AssistantItem(Shape):
    """A reply; `streaming` while text still arrives. A subagent's names the call that opened it.

    On the wire `parentToolUseId` may be null as well as absent; both read as None.
    """

    id: NonEmpty
    created_at: float
    turn_id: str | None
    kind: Literal["assistant"] = "assistant"
    text: str
    streaming: bool
    phase: str | None = None
    parent_tool_use_id: str | None = field(default=None, metadata={"null": True})


@frozen(kw_only=True)
class ThinkingItem(Shape):
    """A stretch of thinking before an answer; `ended_at` is None while it goes on."""

    id: NonEmpty
    created_at: float
    turn_id: str | None
    kind: Literal["thinking"] = "thinking"
    text: str
    streaming: bool
    ended_at: float | None


@frozen(kw_only=True)
class FileChange(Shape):
    """A file that a call changed; `diff` is unified text, or empty where there is none."""

    path: str
    kind: Literal["add", "update", "delete"]
    diff: str


@frozen(kw_only=True)
class ToolProgress(Shape):
    """What is known of a call while it runs; a delta appends to `output`."""

    started_at: float | None
    description: str | None
    output: str | None


@frozen(kw_only=True)
class WorkflowPhase(Shape):
    """A phase that a workflow announced."""

    index: WholeNumber
    title: str


@frozen(kw_only=True)
class WorkflowAgent(Shape):
    """An agent that a workflow started; `chat.subagent` reads it by `workflow_agent_ref`."""

    index: WholeNumber
    label: str
    phase_index: WholeNumber | None
    agent_id: str | None
    status: Literal["running", "done", "failed"]
    started_at: float | None
    duration_ms: Count | None
    last_tool: str | None


@frozen(kw_only=True)
class Workflow(Shape):
    """What a workflow's call runs, whole in every report."""

    name: str | None
    phases: tuple[WorkflowPhase, ...]
    agents: tuple[WorkflowAgent, ...]
    task_id: str | None = None
    last_progress_at: float | None = None
    stalled_at: float | None = None


@frozen(kw_only=True)
class ToolItem(Shape):
    """A tool call; `input` is whatever JSON the tool was given."""

    id: NonEmpty
    created_at: float
    turn_id: str | None
    kind: Literal["tool"] = "tool"
    tool_use_id: str
    name: str
    output: str | None
    state: Literal["running", "done", "error"]
    parent_tool_use_id: str | None
    input: Any
    progress: ToolProgress | None = None
    changes: tuple[FileChange, ...] | None = None
    workflow: Workflow | None = None


@frozen(kw_only=True)
class SubagentUsage(Shape):
    """What a subagent used."""

    total_tokens: Count
    tool_uses: Count
    duration_ms: Count


@frozen(kw_only=True)
class SubagentNative(Shape):
    """Where the agent keeps the subagent's own conversation."""

    agent_id: str | None = None
    thread_id: str | None = None


#: Who opened a subagent. The second word is another host's and stays as it came.
SubagentOrigin: TypeAlias = Literal["native", "ruimte"]


@frozen(kw_only=True)
class SubagentItem(Shape):
    """An agent that the agent delegated to; `result` is the report it ended with.

    `items_truncated` says that it did more than the thread holds: `chat.subagent`
    pages its own conversation.
    """

    id: NonEmpty
    created_at: float
    turn_id: str | None
    kind: Literal["subagent"] = "subagent"
    tool_use_id: str
    description: str
    subagent_type: str | None
    prompt: str | None
    background: bool
    status: Literal["running", "done", "failed"]
    started_at: float
    finished_at: float | None
    summary: str | None
    result: str | None
    usage: SubagentUsage | None
    last_tool: str | None
    items_truncated: bool
    model: str | None = None
    output_file: str | None = None
    native: SubagentNative | None = None
    origin: SubagentOrigin | None = None
    child_id: str | None = None
    parent_tool_use_id: str | None = None


ApprovalDecision: TypeAlias = Literal["pending", "allow", "allow-always", "deny", "cancelled"]


@frozen(kw_only=True)
class ApprovalItem(Shape):
    """A request for leave, and what came of it."""

    id: NonEmpty
    created_at: float
    turn_id: str | None
    kind: Literal["approval"] = "approval"
    request_id: str
    tool_use_id: str | None
    tool_name: str
    description: str | None
    can_allow_always: bool
    decision: ApprovalDecision
    input: Any
    allow_always: AllowAlways | None = None


@frozen(kw_only=True)
class QuestionItem(Shape):
    """Questions, and their answers by question id once given.

    `async_` says that the agent goes on while it waits: the only kind that a
    person may dismiss.
    """

    id: NonEmpty
    created_at: float
    turn_id: str | None
    kind: Literal["question"] = "question"
    request_id: str
    questions: Annotated[tuple[Question, ...], Entries(1)]
    answers: dict[str, str] | None
    state: Literal["pending", "answered", "cancelled", "dismissed"]
    async_: bool | None = None


@frozen(kw_only=True)
class CheckpointFile(Shape):
    """A file that a turn changed: lines added and deleted, and the unified diff.

    `omitted` says why the diff is empty.
    """

    path: str
    kind: Literal["add", "update", "delete"]
    added: Count
    deleted: Count
    diff: str
    omitted: Literal["binary", "too-large"] | None = None


@frozen(kw_only=True)
class CheckpointDiff(Shape):
    """What a turn changed in the working tree; `truncated`: more files than are listed."""

    files: tuple[CheckpointFile, ...]
    truncated: bool


@frozen(kw_only=True)
class TurnNative(Shape):
    """What the agent itself calls the place where a turn ended."""

    turn_id: str | None = None
    last_uuid: str | None = None


@frozen(kw_only=True)
class TurnItem(Shape):
    """A run of the agent. Absent `origin` is a person's, absent `attempt` is one process.

    A turn that a limit stopped is an `error` with `limit`.
    """

    id: NonEmpty
    created_at: float
    turn_id: str | None
    kind: Literal["turn"] = "turn"
    state: Literal["running", "done", "aborted", "error"]
    ended_at: float | None
    cost_usd: NotNegative
    origin: Literal["user", "agent"] | None = None
    label: str | None = None
    task_tool_use_id: str | None = None
    checkpoint: str | None = None
    checkpoint_diff: CheckpointDiff | None = None
    checkpoint_after: str | None = None
    attempt: PositiveCount | None = None
    resume_pending: bool | None = None
    delivery_pending: bool | None = None
    task_ids: tuple[str, ...] | None = None
    message_from: tuple[str, ...] | None = None
    native: TurnNative | None = None
    summary_for: ChatId | None = None
    limit: TurnLimit | None = None


@frozen(kw_only=True)
class NoteItem(Shape):
    """Something the host says in the thread."""

    id: NonEmpty
    created_at: float
    turn_id: str | None
    kind: Literal["note"] = "note"
    level: Literal["info", "warning", "error"]
    text: str
    from_: ChatId | None = None


@frozen(kw_only=True)
class CompactionItem(Shape):
    """The moment at which the context was folded; `pre_tokens` is its size before."""

    id: NonEmpty
    created_at: float
    turn_id: str | None
    kind: Literal["compaction"] = "compaction"
    pre_tokens: Count | None


ChatItem: TypeAlias = (
    UserItem
    | AssistantItem
    | ThinkingItem
    | ToolItem
    | SubagentItem
    | ApprovalItem
    | QuestionItem
    | TurnItem
    | NoteItem
    | CompactionItem
)

_NOT_RESUMED: Final = "This turn could not be resumed after the machine restarted: "


def not_resumed_note(reason: str) -> str:
    """What the warning note says in a turn that a restart of the host ended."""
    return _NOT_RESUMED + reason


def aborted_by_machine(turn: TurnItem, items: "tuple[ChatItem, ...] | list[ChatItem]") -> bool:
    """Whether a restart ended this turn, rather than a person."""
    return turn.state == "aborted" and any(
        isinstance(item, NoteItem)
        and item.turn_id == turn.id
        and item.level == "warning"
        and item.text.startswith(_NOT_RESUMED)
        for item in items
    )


def is_pending(item: ChatItem) -> bool:
    """Whether the item waits on a person."""
    match item:
        case ApprovalItem(decision="pending") | QuestionItem(state="pending"):
            return True
        case _:
            return False


def is_bookmarkable(item: ChatItem) -> bool:
    """Whether a bookmark may hang on it: a person's message, or the chat's own reply."""
    return isinstance(item, UserItem) or (
        isinstance(item, AssistantItem) and item.parent_tool_use_id is None
    )
