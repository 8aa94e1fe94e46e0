"""A chat's info: what it is, what it is doing, what it waits on, and what it used."""

from typing import Literal

from attrs import frozen

from .attachments import Attachment
from .models import ModelSelection
from .names import AccountId, AgentKind, AgentStatus, ChatId, RuntimeMode, SuggestedTitle
from .questions import AllowAlways, Question
from .shape import Count, NonEmpty, NotNegative, PositiveCount, Shape, WholeNumber


@frozen(kw_only=True)
class QueuedMessage(Shape):
    """A message that waits its turn; `turn_id` is the turn that is reserved for it."""

    id: NonEmpty
    text: str
    created_at: float
    turn_id: NonEmpty | None = None
    mentions: tuple[str, ...] | None = None
    skills: tuple[str, ...] | None = None
    chats: tuple[str, ...] | None = None
    attachments: tuple[Attachment, ...] | None = None


@frozen(kw_only=True)
class BackgroundTask(Shape):
    """A command or a monitor that the agent keeps running beside its turns."""

    id: NonEmpty
    kind: Literal["shell", "monitor"]
    description: str
    command: str | None
    started_at: float


@frozen(kw_only=True)
class TurnLimit(Shape):
    """Why a turn stopped short: a plan's limit, or a model too busy. No state of its own."""

    kind: Literal["usage", "overload"]
    resets_at: float | None = None


@frozen(kw_only=True)
class ContextBreakdown(Shape):
    """What a context is made of, in tokens, as the host estimates it."""

    tool_output: Count
    files_read: Count
    conversation: Count
    system: Count


@frozen(kw_only=True)
class ChatUsage(Shape):
    """What one chat used: tokens of the last request, dollars and turns of the whole chat."""

    context_tokens: Count
    context_window: PositiveCount | None
    cost_usd: NotNegative
    turns: Count
    breakdown: ContextBreakdown | None = None


@frozen(kw_only=True)
class RequestApproval(Shape):
    """An approval that waits, cut to what a card needs (`REQUEST_LIMITS`).

    `truncated` says that the command or the diff was cut; the thread has the whole
    call. `files` is there when the change touches more than one.
    """

    tool_name: str
    subject: str
    description: str | None
    can_allow_always: bool
    path: str | None = None
    files: WholeNumber | None = None
    diff: str | None = None
    command: str | None = None
    truncated: bool | None = None
    allow_always: AllowAlways | None = None


@frozen(kw_only=True)
class RequestQuestions(Shape):
    """Questions that wait, cut; ids and labels are whole, since answers name them."""

    questions: tuple[Question, ...]
    async_: bool | None = None


@frozen(kw_only=True)
class RequestSummary(Shape):
    """An approval or a question that a chat waits on, to be answered without its thread.

    `chat.approve` and `chat.answer` take `request_id`, `chat.dismiss` takes `item_id`.
    """

    request_id: str
    item_id: str
    kind: Literal["approval", "question"]
    created_at: float
    approval: RequestApproval | None = None
    question: RequestQuestions | None = None


@frozen(kw_only=True)
class ForkOf(Shape):
    """The chat that this one was forked from, the turn it goes on after, and when."""

    chat_id: ChatId
    turn_id: NonEmpty
    at: float


@frozen(kw_only=True)
class ChatInfo(Shape):
    """A chat, without its thread. Instants are milliseconds since the epoch.

    `running` says whether its process lives, which an idle chat's does between
    turns. `agent` is ours beside the source's: the agent's own id, where `provider`
    is only the kind it shows itself as.
    """

    chat_id: ChatId
    provider: AgentKind
    cwd: str
    agent_session_id: str | None
    model: str | None
    selection: ModelSelection
    runtime_mode: RuntimeMode
    status: AgentStatus
    running: bool
    active_turn_id: str | None
    slash_commands: tuple[str, ...]
    usage: ChatUsage
    created_at: float
    account: AccountId | None = None
    effective_runtime_mode: RuntimeMode | None = None
    permission_mode: str | None = None
    skills: tuple[str, ...] | None = None
    queue: tuple[QueuedMessage, ...] | None = None
    queue_paused: bool | None = None
    background: tuple[BackgroundTask, ...] | None = None
    delegating: bool | None = None
    suggested_title: SuggestedTitle | None = None
    hidden: bool | None = None
    fork_of: ForkOf | None = None
    resume_at_reset: bool | None = None
    limit: TurnLimit | None = None
    resume_at: float | None = None
    requests: tuple[RequestSummary, ...] | None = None
    agent: str | None = None
