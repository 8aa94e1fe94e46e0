"""The payloads and results of the `chat.*` and `skills.*` requests.

What each request does stands in the documentation of the wire; here is what it
takes and answers. `Empty` is `{}`.
"""

from typing import Annotated, Literal, TypeAlias

from attrs import frozen

from .attachments import AttachmentUploads
from .events import ChatEvent
from .infos import ChatInfo, QueuedMessage
from .items import ChatItem, CheckpointDiff
from .limits import (
    MAX_CHATS,
    MAX_FORK_TITLE,
    MAX_HISTORY_CURSOR,
    MAX_HISTORY_PAGE_ITEMS,
    MAX_MENTIONS,
    MAX_SKILLS,
    MAX_SUBAGENT_CURSOR,
    MAX_TASK_ID,
    MAX_TOOL_USE_ID,
)
from .marks import BookmarkName, Bookmarks, Visuals
from .models import ModelSelection
from .names import AccountId, AgentKind, ChatId, RuntimeMode
from .shape import (
    Between,
    Count,
    Entries,
    Length,
    NonEmpty,
    NotNegative,
    Shape,
    TrimmedLength,
    require_words_or,
)

_PageLimit = Annotated[int, Between(1, MAX_HISTORY_PAGE_ITEMS)]
_Title = Annotated[str, TrimmedLength(1, MAX_FORK_TITLE)]
_ToolUseId = Annotated[str, Length(1, MAX_TOOL_USE_ID)]


@frozen(kw_only=True)
class Empty(Shape):
    """Nothing to say: `{}`."""


# -- open and read ------------------------------------------------------------------


@frozen(kw_only=True)
class ChatTarget(Shape):
    """A chat."""

    chat_id: ChatId


@frozen(kw_only=True)
class ChatCreate(Shape):
    """`chat.create`. `resume` is an agent's session to go on with.

    `agent` is ours beside the source's: the agent's own id, where several agents
    show themselves as one provider.
    """

    chat_id: ChatId
    provider: AgentKind | None = None
    account: AccountId | None = None
    cwd: str | None = None
    resume: str | None = None
    selection: ModelSelection | None = None
    runtime_mode: RuntimeMode | None = None
    agent: str | None = None


@frozen(kw_only=True)
class ChatListResult(Shape):
    """The infos of all chats."""

    chats: tuple[ChatInfo, ...]


@frozen(kw_only=True)
class ChatAttach(Shape):
    """`chat.attach`. `since` is the last `seq` the client applied."""

    chat_id: ChatId
    history_limit: _PageLimit | None = None
    since: Count | None = None


@frozen(kw_only=True)
class HistoryPage(Shape):
    """Where a page begins in the whole thread, and the cursor of the page before it."""

    start: Count
    cursor: str | None


@frozen(kw_only=True)
class ChatAttachResult(Shape):
    """A thread, or its newest page, or what happened `since`.

    `events` is there only when `since` was honoured: then `items` is empty, and
    there is neither `history` nor `pending`.
    """

    info: ChatInfo
    items: tuple[ChatItem, ...]
    history: HistoryPage | None = None
    pending: tuple[ChatItem, ...] | None = None
    seq: Count | None = None
    events: tuple[ChatEvent, ...] | None = None
    bookmarks: Bookmarks | None = None
    visuals: Visuals | None = None


@frozen(kw_only=True)
class ChatHistory(Shape):
    """`chat.history`: the page before the one that gave this cursor."""

    chat_id: ChatId
    cursor: Annotated[str, Length(1, MAX_HISTORY_CURSOR)]
    limit: _PageLimit | None = None


@frozen(kw_only=True)
class ChatHistoryResult(Shape):
    """A page of a thread."""

    items: tuple[ChatItem, ...]
    history: HistoryPage


# -- send and control ---------------------------------------------------------------

ChatDelivery: TypeAlias = Literal["steer", "queue"]


@frozen(kw_only=True)
class ChatSend(Shape):
    """`chat.send`: text that is not blank, or an attachment."""

    chat_id: ChatId
    text: str
    delivery: ChatDelivery | None = None
    mentions: Annotated[tuple[NonEmpty, ...], Entries(0, MAX_MENTIONS)] | None = None
    skills: Annotated[tuple[NonEmpty, ...], Entries(0, MAX_SKILLS)] | None = None
    chats: Annotated[tuple[ChatId, ...], Entries(0, MAX_CHATS)] | None = None
    attachments: AttachmentUploads | None = None

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        require_words_or("text", self.text, bool(self.attachments))


@frozen(kw_only=True)
class ChatSendResult(Shape):
    """Whether the message waits, and the turn that it begins, will begin or went into."""

    queued: bool
    turn_id: NonEmpty | None = None


@frozen(kw_only=True)
class ChatQueue(Shape):
    """A message of the queue."""

    chat_id: ChatId
    message_id: NonEmpty


@frozen(kw_only=True)
class ChatUnqueueResult(Shape):
    """The message as it left the queue."""

    message: QueuedMessage | None = None


@frozen(kw_only=True)
class ChatCancel(Shape):
    """`chat.cancel`; with `subagents` also those that the chat opened."""

    chat_id: ChatId
    subagents: bool | None = None


@frozen(kw_only=True)
class ChatClear(Shape):
    """`chat.clear`; `force` ends a turn that is in the way."""

    chat_id: ChatId
    force: bool | None = None


# -- answer -------------------------------------------------------------------------


@frozen(kw_only=True)
class ChatApprove(Shape):
    """`chat.approve`; `message` is the reason of a denial."""

    chat_id: ChatId
    request_id: NonEmpty
    decision: Literal["allow", "allow-always", "deny"]
    message: str | None = None


@frozen(kw_only=True)
class ChatAnswer(Shape):
    """`chat.answer`: text by question id; a choice's answer is its label."""

    chat_id: ChatId
    request_id: NonEmpty
    answers: dict[str, str]


@frozen(kw_only=True)
class ChatDismiss(Shape):
    """`chat.dismiss`: an `async` question, by its item."""

    chat_id: ChatId
    item_id: NonEmpty


# -- configure ----------------------------------------------------------------------


@frozen(kw_only=True)
class ChatConfigure(Shape):
    """`chat.configure`: what is absent stays."""

    chat_id: ChatId
    account: AccountId | None = None
    selection: ModelSelection | None = None
    runtime_mode: RuntimeMode | None = None
    resume_at_reset: bool | None = None


@frozen(kw_only=True)
class ChatPreferences(Shape):
    """`chat.setPreferences`: what this connection's chats start with, all of it.

    `changed_at` is when the person changed it last, in milliseconds since the epoch.
    """

    runtime_mode: RuntimeMode | None = None
    terminal_runtime_mode: RuntimeMode | None = None
    selections: dict[AgentKind, ModelSelection] | None = None
    accounts: dict[AgentKind, AccountId] | None = None
    changed_at: NotNegative | None = None


@frozen(kw_only=True)
class Skill(Shape):
    """A skill, and where it was found."""

    name: NonEmpty
    description: str
    source: Literal["user", "project", "plugin"]


@frozen(kw_only=True)
class SkillsListResult(Shape):
    """The skills of a chat's agent."""

    skills: tuple[Skill, ...]


# -- turns and forks ----------------------------------------------------------------


@frozen(kw_only=True)
class ChatTurn(Shape):
    """A turn of a chat."""

    chat_id: ChatId
    turn_id: NonEmpty


@frozen(kw_only=True)
class ChatTurnDiffResult(Shape):
    """What a turn changed; None outside a repository."""

    diff: CheckpointDiff | None


@frozen(kw_only=True)
class ForkWorktree(Shape):
    """A worktree of the fork's own, on a new branch."""

    branch: _Title | None = None


@frozen(kw_only=True)
class ChatFork(Shape):
    """`chat.fork`: a chat that goes on after a turn."""

    chat_id: ChatId
    turn_id: NonEmpty
    title: _Title | None = None
    view_id: NonEmpty | None = None
    as_view: bool | None = None
    worktree: ForkWorktree | None = None
    files_after_turn: bool | None = None
    provider: AgentKind | None = None
    selection: ModelSelection | None = None
    account: AccountId | None = None


@frozen(kw_only=True)
class WorktreeWork(Shape):
    """What a worktree holds that its branch lacks."""

    changed: Count
    untracked: Count
    ahead: Count
    operation: str | None = None
    behind: Count | None = None


@frozen(kw_only=True)
class WorktreeFrom(Shape):
    """What a worktree was made from."""

    commit: str
    branch: str | None = None


@frozen(kw_only=True)
class Worktree(Shape):
    """A git worktree; one made by hand says only where it is and on which branch."""

    path: str
    branch: str
    from_: WorktreeFrom | None = None
    project_id: str | None = None
    node_id: str | None = None
    made_at: float | None = None
    missing: bool | None = None
    locked: bool | None = None
    work: WorktreeWork | None = None


@frozen(kw_only=True)
class ChatForkResult(Shape):
    """The fork, and where it landed."""

    info: ChatInfo
    node_id: str
    view_id: str
    edge_id: str | None
    worktree: Worktree | None = None


@frozen(kw_only=True)
class ChatForkInfoResult(Shape):
    """What can be forked into: the branches taken, and a free one."""

    repository: bool
    branches: tuple[str, ...]
    branch: str | None
    files_after_turn: bool


@frozen(kw_only=True)
class ChatSummarizeResult(Shape):
    """The turn that writes the summary."""

    turn_id: str


@frozen(kw_only=True)
class ChatContinueOn(Shape):
    """`chat.continueOn`: goes on under another account."""

    chat_id: ChatId
    account: AccountId


@frozen(kw_only=True)
class ChatContinueOnResult(Shape):
    """The chat that goes on: this one, or a fork."""

    chat_id: ChatId
    fork: ChatForkResult | None = None


# -- delegated work -----------------------------------------------------------------


@frozen(kw_only=True)
class ChatSubagent(Shape):
    """`chat.subagent`: a page of a subagent's own conversation.

    `watch` true keeps this client told of changes, false lets go, absent leaves it.
    """

    chat_id: ChatId
    tool_use_id: _ToolUseId
    cursor: Annotated[str, Length(1, MAX_SUBAGENT_CURSOR)] | None = None
    limit: _PageLimit | None = None
    watch: bool | None = None


@frozen(kw_only=True)
class SubagentHistory(Shape):
    """Where the page stands; `start` only from a source that numbers its items."""

    cursor: str | None
    start: Count | None = None


@frozen(kw_only=True)
class SubagentContext(Shape):
    """What the subagent runs as, and where."""

    provider: AgentKind
    cwd: str
    chat_id: ChatId | None = None


@frozen(kw_only=True)
class ChatSubagentResult(Shape):
    """A page; `live` says whether the subagent still writes."""

    items: tuple[ChatItem, ...]
    history: SubagentHistory
    source: Literal["claude-transcript", "codex-thread"]
    live: bool
    context: SubagentContext | None = None


@frozen(kw_only=True)
class ChatStopSubagent(Shape):
    """`chat.stopSubagent`."""

    chat_id: ChatId
    tool_use_id: _ToolUseId


@frozen(kw_only=True)
class ChatStopTask(Shape):
    """`chat.stopTask`: a command or a monitor that runs in the background."""

    chat_id: ChatId
    task_id: Annotated[str, Length(1, MAX_TASK_ID)]


# -- bookmarks and visuals ----------------------------------------------------------


@frozen(kw_only=True)
class ChatAddBookmark(Shape):
    """`chat.addBookmark`: a message that has one keeps it, and is named when a name comes."""

    chat_id: ChatId
    item_id: NonEmpty
    name: BookmarkName | None = None


@frozen(kw_only=True)
class ChatRenameBookmark(Shape):
    """`chat.renameBookmark`: an empty name takes the name away."""

    chat_id: ChatId
    item_id: NonEmpty
    name: BookmarkName


@frozen(kw_only=True)
class ChatRemoveBookmark(Shape):
    """`chat.removeBookmark`: one that is gone already is no error."""

    chat_id: ChatId
    item_id: NonEmpty


@frozen(kw_only=True)
class ChatBookmarksResult(Shape):
    """The whole list."""

    bookmarks: Bookmarks


@frozen(kw_only=True)
class ChatRemoveVisual(Shape):
    """`chat.removeVisual`."""

    chat_id: ChatId
    visual_id: NonEmpty


@frozen(kw_only=True)
class ChatVisualsResult(Shape):
    """The whole list."""

    visuals: Visuals
