"""What each action of a client does to a chat, once it may be taken: one handler an action.

The shape was checked before; `client_rules` says whether the action fits the
chat's state; the handler applies, echoes and tells the worker. A handler that
needs the agent's word first answers what has to be waited for.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

import trio

from ...contracts.ahp.uris import path_of_file_uri
from ...contracts.worker_wire import (
    Answer,
    CompleteToolCall,
    Confirm,
    SetAnswer,
    SetWorkingDirectories,
    StopSubagent,
    Taken,
    TurnNamed,
)
from ..processes.worker_client import WorkerGone, WorkerRefused
from .client_rules import refusal
from .turns import Happening

if TYPE_CHECKING:
    from .chat import Chat
    from .dispatch import Dispatched

Json = dict[str, Any]
Question = Callable[[], Awaitable[None]]
Handler = Callable[["Chat", "Dispatched"], Question | None]


def take(chat: "Chat", dispatched: "Dispatched") -> Question | None:
    """Answers the action, or answers what has to be waited for before it is answered."""
    action = dispatched.action
    handler = HANDLERS.get(action["type"])
    if handler is None:
        dispatched.refuse(f"this host does not serve {action['type']}")
        return None
    if chat.removed or chat.stopping:
        dispatched.refuse("the chat has ended")
        return None
    if chat.parent is not None and action["type"] in NOT_ON_SUBAGENTS:
        dispatched.refuse("this chat is a subagent's: it is read-only")
        return None
    reason = refusal(chat.state, action, dispatched.seat.client_id)
    if reason is not None:
        dispatched.refuse(reason)
        return None
    return handler(chat, dispatched)


def overtakes(chat: "Chat", dispatched: "Dispatched") -> bool:
    """Whether this action is a cancel that will be taken: it waits for nobody's answer."""
    action = dispatched.action
    return (
        dispatched.unfit is None
        and action["type"] == "chat/turnCancelled"
        and chat.parent is None
        and refusal(chat.state, action, dispatched.seat.client_id) is None
    )


def _turn_started(chat: "Chat", dispatched: "Dispatched") -> None:
    from .chat import Facts

    if chat.session.failed:
        dispatched.refuse("the session could not be created")
    elif dispatched.action["turnId"] in chat.memory.known_turns:
        dispatched.refuse(f"the turn {dispatched.action['turnId']} was there before")
    elif chat.is_full:
        dispatched.refuse("the chat holds all that a chat may: truncate it, or begin another")
    else:
        chat.happens(Happening.TURN_ASKED, Facts(dispatched=dispatched))


def _turn_cancelled(chat: "Chat", dispatched: "Dispatched") -> Question | None:
    from .chat import Facts

    if chat.parent is None:
        chat.happens(Happening.CANCEL, Facts(dispatched=dispatched))
        return None

    async def stop_subagent() -> None:
        stop = StopSubagent(tool_call_id=chat.tool_call_id or "")
        reason = await asked(chat, "subagent.stop", stop)
        if dispatched.answered:
            return
        if reason is not None or refusal(chat.state, dispatched.action, "") is not None:
            dispatched.refuse(reason or "the turn has ended")
        else:
            chat.happens(Happening.CANCEL, Facts(dispatched=dispatched))

    return stop_subagent


def _turn_resume(chat: "Chat", dispatched: "Dispatched") -> Question:
    async def resume() -> None:
        turn_id = dispatched.action["turnId"]
        chat.hold_back()
        try:
            reason = await asked(chat, "turn.resume", TurnNamed(turn_id=turn_id))
            if dispatched.answered:
                return
            reason = reason or refusal(chat.state, dispatched.action, dispatched.seat.client_id)
            if reason is not None:
                dispatched.refuse(reason)
            else:
                chat.accept(dispatched)
        finally:
            chat.hear_held_back()

    return resume


def _tool_call_confirmed(chat: "Chat", dispatched: "Dispatched") -> None:
    chat.accept(dispatched)
    action = dispatched.action
    _tell(
        chat,
        "request.confirm",
        Confirm(
            tool_call_id=action["toolCallId"],
            approved=action["approved"],
            option_id=action.get("selectedOptionId"),
            edited_input=action.get("editedToolInput"),
        ),
    )


def _tool_result_confirmed(chat: "Chat", dispatched: "Dispatched") -> None:
    chat.accept(dispatched)
    action = dispatched.action
    confirm = Confirm(tool_call_id=action["toolCallId"], approved=action["approved"], result=True)
    _tell(chat, "request.confirm", confirm)


def _tool_call_complete(chat: "Chat", dispatched: "Dispatched") -> None:
    chat.accept(dispatched)
    action = dispatched.action
    complete = CompleteToolCall(
        tool_call_id=action["toolCallId"],
        client_id=dispatched.seat.client_id,
        result=action["result"],
    )
    _tell(chat, "tool.complete", complete)


def _input_completed(chat: "Chat", dispatched: "Dispatched") -> None:
    from .client_rules import open_request

    action = dispatched.action
    request = open_request(chat.state, action["requestId"]) or {}
    chat.accept(dispatched)
    _tell(
        chat,
        "request.answer",
        Answer(
            request_id=action["requestId"],
            accepted=action["response"] == "accept",
            response=action["response"],
            answers={**request.get("answers", {}), **action.get("answers", {})},
        ),
    )


def _input_answer_changed(chat: "Chat", dispatched: "Dispatched") -> None:
    chat.accept(dispatched)
    action = dispatched.action
    if chat.worker is not None and "set_answer" in chat.worker.members:
        _tell(
            chat,
            "request.setAnswer",
            SetAnswer(
                request_id=action["requestId"],
                question_id=action["questionId"],
                answer=action.get("answer"),
            ),
        )


def _pending_message_set(chat: "Chat", dispatched: "Dispatched") -> None:
    action = dispatched.action
    if chat.session.failed:
        dispatched.refuse("the session could not be created")
        return
    if action["kind"] == "steering":
        if chat.worker is None or "steer" not in chat.worker.members:
            dispatched.refuse("this agent cannot be steered; queue the message instead")
            return
        if chat.accept(dispatched):
            chat.steer(action["id"], action["message"])
        return
    limit = chat.session.host.bounds.max_queued_messages
    queued = chat.state.get("queuedMessages", [])
    if len(queued) >= limit and all(message["id"] != action["id"] for message in queued):
        dispatched.refuse(f"{limit} messages are waiting already")
        return
    chat.accept(dispatched)
    chat.happens(Happening.MESSAGE_QUEUED)


def _truncated(chat: "Chat", dispatched: "Dispatched") -> None:
    if chat.accept(dispatched):
        chat.rewind_at = dispatched.action.get("turnId")
        if chat.rewind_at is None:
            # Nothing is left to go on from: the next worker starts a conversation of its own.
            chat.agent_id = None
        chat.keep()
        chat.replace_worker("the chat was cut to an earlier turn")


def _working_directories(chat: "Chat", dispatched: "Dispatched") -> Question:
    kind = "session.setWorkingDirectories"

    async def ask() -> None:
        changed = chat.channel.reduce(chat.state, dispatched.action)
        directories = paths_of(changed.get("workingDirectories", []))
        before = paths_of(chat.state.get("workingDirectories", []))
        if directories is None or before is None:
            dispatched.refuse("a working directory is a file:// URI")
            return
        reason = await asked(chat, kind, SetWorkingDirectories(directories=directories))
        if dispatched.answered:
            # A cancel overtook it and it was refused: what the agent took is set back.
            if reason is None:
                _tell(chat, kind, SetWorkingDirectories(directories=before))
        elif reason is not None:
            dispatched.refuse(reason)
        else:
            chat.accept(dispatched)

    return ask


def _apply(chat: "Chat", dispatched: "Dispatched") -> None:
    chat.accept(dispatched)


def paths_of(uris: list[str]) -> list[str] | None:
    """The paths that file URIs name; None when one of them is no file URI."""
    paths = [path_of_file_uri(uri) for uri in uris]
    return None if None in paths else [path for path in paths if path is not None]


async def asked(chat: "Chat", kind: str, payload: Any) -> str | None:
    """Asks the chat's worker for leave: None when it said True, else why not."""
    worker = chat.worker
    if worker is None:
        return "no process of the agent is running"
    try:
        taken: Taken = await worker.ask(kind, payload)
    except WorkerRefused as refused:
        return f"the agent cannot do this: {refused}"
    except WorkerGone:
        return "the agent's process ended"
    except trio.TooSlowError:
        return "the agent did not answer in time"
    if taken.accepted:
        return None
    return taken.reason or "the agent refused"


def _tell(chat: "Chat", kind: str, payload: Any) -> None:
    if chat.worker is not None:
        chat.worker.tell(kind, payload)


#: What a client may not do in a subagent's chat.
NOT_ON_SUBAGENTS = frozenset(
    {
        "chat/turnStarted",
        "chat/turnResume",
        "chat/pendingMessageSet",
        "chat/pendingMessageRemoved",
        "chat/queuedMessagesReordered",
        "chat/draftChanged",
        "chat/truncated",
        "chat/workingDirectorySet",
        "chat/workingDirectoryRemoved",
    }
)

HANDLERS: Mapping[str, Handler] = {
    "chat/turnStarted": _turn_started,
    "chat/turnCancelled": _turn_cancelled,
    "chat/turnResume": _turn_resume,
    "chat/toolCallConfirmed": _tool_call_confirmed,
    "chat/toolCallResultConfirmed": _tool_result_confirmed,
    "chat/toolCallComplete": _tool_call_complete,
    "chat/toolCallContentChanged": _apply,
    "chat/inputCompleted": _input_completed,
    "chat/inputAnswerChanged": _input_answer_changed,
    "chat/pendingMessageSet": _pending_message_set,
    "chat/pendingMessageRemoved": _apply,
    "chat/queuedMessagesReordered": _apply,
    "chat/draftChanged": _apply,
    "chat/truncated": _truncated,
    "chat/workingDirectorySet": _working_directories,
    "chat/workingDirectoryRemoved": _working_directories,
    "chat/isReadChanged": _apply,
    "chat/isArchivedChanged": _apply,
}
