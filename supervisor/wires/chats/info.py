"""A chat's info on `/chats`, from its reduced states and what else the host knows of it.

Pure. Decisions, where the contracts leave them open:

- What is steered and not taken yet waits, so it leads `info.queue`: where the agent
  does not take it, it goes before the queue.
- Of the tokens in context the last request's are told: `_meta.contextTokens` of its
  usage where the agent says so, else its input, with what it read from a cache when
  that cannot be a part of it.
- `delegating` is a running subagent whose turn is over, or background work of an agent.
"""

from typing import Any, Final

from attrs import frozen

from ....contracts.ahp.status import is_error, is_in_progress, is_input_needed, status_of
from ....contracts.ahp.uris import parse_channel
from ....contracts.chats import (
    AgentKind,
    AgentStatus,
    BackgroundTask,
    ChatInfo,
    ChatUsage,
    ForkOf,
    ModelSelection,
    QueuedMessage,
    RequestSummary,
    RuntimeMode,
    clip_text,
    is_blank,
    request_summaries,
)
from ....contracts.chats.limits import SUGGESTED_TITLE_LIMIT
from ....contracts.chats.text import first_line
from .calls import edited_paths
from .items import limit_of
from .memory import Memory, waiting_in
from .messages import extras_of
from .places import amount_in
from .words import milliseconds, prose

Json = dict[str, Any]


@frozen(kw_only=True)
class Facts:
    """What a chat's info says that stands in no state of the protocol.

    `spent_before_usd` and `turns_before` are what a clear took out of the thread: the
    totals stay. `selection` and `runtime_mode` are what the person asked for.
    """

    chat_id: str
    provider: AgentKind
    cwd: str
    created_at: float
    selection: ModelSelection
    agent: str | None = None
    account: str | None = None
    agent_session_id: str | None = None
    model: str | None = None
    runtime_mode: RuntimeMode = "full-access"
    effective_runtime_mode: RuntimeMode | None = None
    running: bool = False
    exited: bool = False
    slash_commands: tuple[str, ...] = ()
    skills: tuple[str, ...] | None = None
    queue_paused: bool = False
    context_window: int | None = None
    spent_before_usd: float = 0
    turns_before: int = 0
    resume_at_reset: bool | None = None
    resume_at: float | None = None


def info_of(chat_state: Json, session_state: Json, facts: Facts, memory: Memory) -> ChatInfo:
    """The info of a chat that `remember` has seen in this very state."""
    active = memory.active
    ended = memory.ended.seen
    settings = (session_state.get("config") or {}).get("values") or {}
    permission = settings.get("permissionMode")
    return ChatInfo(
        chat_id=facts.chat_id,
        provider=facts.provider,
        agent=facts.agent,
        account=facts.account,
        cwd=facts.cwd,
        agent_session_id=facts.agent_session_id,
        model=prose(memory.last_usage.get("model")) or facts.model,
        selection=facts.selection,
        runtime_mode=facts.runtime_mode,
        effective_runtime_mode=facts.effective_runtime_mode,
        permission_mode=permission if isinstance(permission, str) else None,
        status=_status(chat_state, facts),
        running=facts.running,
        active_turn_id=None if active is None else str(active.turn["id"]),
        slash_commands=facts.slash_commands,
        skills=facts.skills,
        queue=_queue(chat_state, memory) or None,
        queue_paused=True if facts.queue_paused else None,
        background=_background(chat_state) or None,
        delegating=True if _delegates(chat_state, memory) else None,
        usage=_usage(memory, facts),
        suggested_title=_title(chat_state, session_state),
        hidden=True if chat_state.get("interactivity") == "hidden" else None,
        fork_of=_fork_of(chat_state, facts),
        resume_at_reset=facts.resume_at_reset,
        limit=limit_of(ended[-1].turn) if ended and active is None else None,
        resume_at=facts.resume_at,
        requests=_requests(memory) or None,
        created_at=facts.created_at,
    )


def _status(chat_state: Json, facts: Facts) -> AgentStatus:
    if facts.exited:
        return "exited"
    status = status_of(chat_state)
    # What needs a person is in progress too: it is asked first.
    if is_input_needed(status):
        return "needs-you"
    if is_in_progress(status):
        return "running"
    return "error" if is_error(status) else "idle"


def _queue(chat_state: Json, memory: Memory) -> tuple[QueuedMessage, ...]:
    queue = []
    for one in waiting_in(chat_state):
        ident, message = one["id"], one.get("message")
        message = message if isinstance(message, dict) else {}
        extras = extras_of(message, ident)
        appeared = memory.queued_ms.get(ident, 0)
        queue.append(
            QueuedMessage(
                id=ident,
                text=prose(message.get("text")),
                created_at=appeared if extras.created_at is None else extras.created_at,
                turn_id=extras.turn_id,
                mentions=extras.mentions,
                skills=extras.skills,
                chats=extras.chats,
                attachments=extras.attachments,
            )
        )
    return tuple(queue)


#: What AHP calls background work that is an agent's, not a command's.
_AGENTS_WORK: Final = ("agent", "subagent")


def _background(chat_state: Json) -> tuple[BackgroundTask, ...]:
    return tuple(
        BackgroundTask(
            id=work["id"],
            kind="shell" if work.get("type") == "shell" else "monitor",
            description=prose(work.get("label")),
            command=None,
            started_at=milliseconds(work.get("startedAt")) or 0,
        )
        for work in chat_state.get("backgroundWork", ())
        if work.get("type") not in _AGENTS_WORK and prose(work.get("id"))
    )


def _delegates(chat_state: Json, memory: Memory) -> bool:
    if any(work.get("type") in _AGENTS_WORK for work in chat_state.get("backgroundWork", ())):
        return True
    return any(
        part.subagent is not None and isinstance(part.subagent.get("activeTurn"), dict)
        for turn in memory.ended.seen
        if turn.delegates
        for part in turn.parts
    )


def _usage(memory: Memory, facts: Facts) -> ChatUsage:
    last = memory.last_usage
    meta = last.get("_meta")
    meta = meta if isinstance(meta, dict) else {}
    given = amount_in(last.get("inputTokens")) or 0
    cached = amount_in(last.get("cacheReadTokens")) or 0
    told = amount_in(meta.get("contextTokens"))
    window = amount_in(meta.get("contextWindow")) or facts.context_window
    return ChatUsage(
        context_tokens=int(
            told if told is not None else given if given >= cached else given + cached
        ),
        context_window=int(window) if window is not None and window >= 1 else None,
        cost_usd=facts.spent_before_usd + memory.spent_usd,
        turns=facts.turns_before + len(memory.ended.seen),
    )


def _title(chat_state: Json, session_state: Json) -> str | None:
    titles = (prose(chat_state.get("title")), prose(session_state.get("title")))
    title = next((first_line(one) for one in titles if not is_blank(one)), "")
    return clip_text(title, SUGGESTED_TITLE_LIMIT) or None


def _fork_of(chat_state: Json, facts: Facts) -> ForkOf | None:
    origin = chat_state.get("origin")
    if not isinstance(origin, dict) or origin.get("kind") != "fork":
        return None
    name, turn_id = parse_channel(prose(origin.get("chat"))), prose(origin.get("turnId"))
    if name is None or not name.id or not turn_id:
        return None
    return ForkOf(chat_id=name.id, turn_id=turn_id, at=facts.created_at)


def _requests(memory: Memory) -> tuple[RequestSummary, ...]:
    """What waits; only a turn that runs has anything that does."""
    running = memory.active
    if running is None:
        return ()
    paths = {
        item.id: edited
        for part in running.parts
        for item in part.items
        if item.kind == "approval" and (edited := edited_paths(part.part))
    }
    return request_summaries(running.items, paths)
