"""What a worker tells of its conversation, judged and applied to the chat it belongs to.

Ask of each line: what if the worker means harm? Names and shapes were checked
where the frame came in; here every action is judged by `agent_rules` before it
touches state, and lands on a channel that this worker may speak on, or nowhere.
"""

from typing import TYPE_CHECKING, Any

from ...contracts.ahp.absence import without_nulls
from ...contracts.worker_wire import (
    Account,
    AgentId,
    Emit,
    FileEdit,
    RuleBroken,
    SubagentOpened,
    TurnOver,
)
from .agent_rules import ENDINGS, Drop, Swallow, judge_chat_action, judge_session_action
from .sizes import chat_head_outgrown, size_of
from .turns import Happening

if TYPE_CHECKING:
    from .chat import Chat

Json = dict[str, Any]

#: An agent's own id for its conversation is kept and travels back; longer ones are not taken.
MAX_AGENT_ID_CHARS = 4096


def on_event(chat: "Chat", name: str, payload: Any) -> None:
    """Takes an event of the chat's worker."""
    match payload:
        case Emit():
            _emit(chat, payload.channel, without_nulls(payload.action))
        case TurnOver():
            chat.on_turn_over(payload.turn_id)
        case AgentId():
            if len(payload.agent_id) <= MAX_AGENT_ID_CHARS:
                chat.agent_id = payload.agent_id
            else:
                chat.missed("well-formed", "agent_id() is too long to be kept")
        case SubagentOpened():
            chat.session.open_subagent(chat, payload.tool_call_id, payload.request)
        case RuleBroken():
            chat.missed(payload.rule[:80], payload.detail[:1000], counted=False)
        case FileEdit() | Account():
            chat.missed("not-served", name, counted=False)


def _emit(chat: "Chat", channel: str, action: Json) -> None:
    kind = action.get("type")
    family = kind.partition("/")[0] if isinstance(kind, str) else ""
    if channel == "chat" or channel == chat.channel.uri:
        apply_chat_action(chat, action)
    elif channel == "session":
        _apply_session_action(chat, action)
    elif channel == "terminal" or family in ("terminal", "changeset", "annotations", "canvas"):
        chat.missed("not-served", f"{family} actions", counted=False)
    else:
        subagent = chat.session.subagent_on(chat, channel)
        if subagent is None and chat.session.was_subagent(channel):
            return
        if subagent is None:
            chat.missed("own-channel", f"{str(kind)[:80]} on a channel that is not this agent's")
        else:
            apply_chat_action(subagent, action)


def apply_chat_action(chat: "Chat", action: Json) -> None:
    """Judges an agent's action on a chat and applies what it may say."""
    if chat.stopping:
        return
    verdict = judge_chat_action(action, chat.state, chat.memory)
    if isinstance(verdict, Swallow):
        return
    if isinstance(verdict, Drop):
        chat.missed(verdict.rule, verdict.detail, counted=verdict.counted)
        return
    if verdict.mended is not None:
        chat.missed(verdict.mended, f"{action['type']} was mended")
    kind = verdict.action["type"]
    if kind not in ENDINGS and not _has_room(chat, verdict.action):
        return
    if kind in ENDINGS:
        from .chat import Facts

        completed = kind == "chat/turnComplete"
        chat.happens(
            Happening.COMPLETED if completed else Happening.FAILED, Facts(action=verdict.action)
        )
    elif not chat.gathering.add(verdict.action):
        if _parks(verdict.action) and not chat.session.may_park(chat, verdict.action):
            chat.missed("too-many-parked", f"{kind}: too many requests wait on a person already")
            return
        chat.flush()
        if not chat.publish(verdict.action) and kind in _MUST_CHANGE:
            chat.missed("changes-nothing", kind)


def _apply_session_action(chat: "Chat", action: Json) -> None:
    if chat.stopping:
        return
    verdict = judge_session_action(action, chat.memory)
    if isinstance(verdict, Drop):
        chat.missed(verdict.rule, verdict.detail, counted=verdict.counted)
    elif not isinstance(verdict, Swallow):
        if verdict.mended is not None:
            chat.missed(verdict.mended, f"{action['type']} was mended")
        if chat.session.may_become(verdict.action):
            chat.session.say(verdict.action)
        else:
            chat.missed("too-large", f"{action['type']}: a session may not hold so much")
        if chat.worker is not None:
            chat.worker.pace.spend()


def _has_room(chat: "Chat", action: Json) -> bool:
    """Whether the chat can hold what the action adds. An agent without end is ended."""
    kind, running = action["type"], chat.state.get("activeTurn")
    if kind == "chat/turnStarted" and chat.is_full:
        chat.missed("too-large", "chat/turnStarted: the chat holds all that a chat may")
        return False
    if running is None or ("turnId" not in action and kind != "chat/inputRequested"):
        if kind != "chat/turnStarted" and chat_head_outgrown(
            chat.channel.reduce(chat.state, action)
        ):
            chat.missed("too-large", f"{kind}: a chat may not hold so much")
            return False
        return True
    streamed = kind in ("chat/delta", "chat/reasoning")
    size = size_of(action["content"] if streamed else action)
    bounds = chat.session.host.bounds
    if not chat.turn_size.has_room(running, size):
        _end_without_room(chat, f"more in one turn than {bounds.max_turn_bytes} bytes")
        return False
    if chat.parent is not None:
        chat.parent.subagents_bytes += size
        if chat.parent.subagents_bytes > bounds.max_chat_bytes:
            _end_without_room(chat, f"more for its subagents than {bounds.max_chat_bytes} bytes")
            return False
    return True


def _end_without_room(chat: "Chat", said: str) -> None:
    # Until it is gone it says more, which is over the limit, too.
    if chat.worker is not None and chat.worker.ready:
        chat.worker.fail(f"was ended: it said {said}, which is all that it may")


def _parks(action: Json) -> bool:
    """Whether something waits on a person once this is applied."""
    match action["type"]:
        case "chat/inputRequested":
            return True
        case "chat/toolCallReady":
            return not action.get("confirmed")
        case "chat/toolCallComplete":
            return action.get("requiresResultConfirmation") is True
    return False


#: Actions that mean something went wrong when they change nothing.
_MUST_CHANGE = frozenset({"chat/toolCallStart", "chat/toolCallComplete", "chat/inputRequested"})
