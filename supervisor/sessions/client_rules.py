"""What a client may do now: a check for each action that depends on the chat's state.

Each check answers None, or the sentence that goes back as `rejectionReason`.
The shape of an action is checked before (`contracts/ahp/actions`), what happens
after it is the chat's business. Source: reference "Dispatching" and the
design's table "Each action has one rule".
"""

from collections.abc import Callable, Mapping
from typing import Any

from .clock import is_timestamp

Json = dict[str, Any]
Check = Callable[[Json, Json, str], str | None]


def refusal(state: Json, action: Json, client_id: str) -> str | None:
    """Why this client's action cannot be taken on a chat in that state, or None."""
    check = CHECKS.get(action["type"])
    return check(state, action, client_id) if check else None


def tool_call(state: Json, tool_call_id: str) -> Json | None:
    """The running turn's tool call of that id."""
    for part in _parts(state):
        if part.get("kind") == "toolCall" and part["toolCall"].get("toolCallId") == tool_call_id:
            return dict(part["toolCall"])
    return None


def open_request(state: Json, request_id: str) -> Json | None:
    """The running turn's input request of that id, when it is not answered yet."""
    for part in _parts(state):
        if (
            part.get("kind") == "inputRequest"
            and "response" not in part
            and part["request"].get("id") == request_id
        ):
            return dict(part["request"])
    return None


def owner_of(call: Json) -> str | None:
    """The client that runs this tool call, when a client does."""
    contributor = call.get("contributor")
    if isinstance(contributor, dict) and contributor.get("kind") == "client":
        return str(contributor.get("clientId"))
    return None


def _parts(state: Json) -> list[Json]:
    turn = state.get("activeTurn")
    return turn["responseParts"] if isinstance(turn, dict) else []


def _is_running(state: Json, turn_id: Any) -> bool:
    turn = state.get("activeTurn")
    return isinstance(turn, dict) and turn["id"] == turn_id


def _user_message(message: Any) -> str | None:
    if message["origin"].get("kind") != "user":
        return "a client may only send messages of origin `user`"
    return None


def _turn_started(state: Json, action: Json, client_id: str) -> str | None:
    if not is_timestamp(action["startedAt"]):
        return f"`startedAt` is no timestamp: {action['startedAt'][:40]}"
    turn_id = action["turnId"]
    if _is_running(state, turn_id) or any(turn["id"] == turn_id for turn in state["turns"]):
        return f"the turn {turn_id} is there already"
    queued = action.get("queuedMessageId")
    if queued is not None and not _is_pending(state, queued):
        return f"no message {queued} is waiting"
    return _user_message(action["message"])


def _turn_cancelled(state: Json, action: Json, client_id: str) -> str | None:
    if not isinstance(state.get("activeTurn"), dict):
        return "no turn is running"
    if not _is_running(state, action["turnId"]):
        return f"the running turn is not {action['turnId']}"
    if action["duration"] < 0:
        return "`duration` is negative"
    return None


def _confirmed(state: Json, action: Json, client_id: str) -> str | None:
    call = _call_waiting_in(state, action, "pending-confirmation")
    if isinstance(call, str):
        return call
    option = action.get("selectedOptionId")
    if option is not None and all(
        offered.get("id") != option for offered in call.get("options", ())
    ):
        return f"the tool call offers no option {option}"
    if action.get("editedToolInput") is not None and not call.get("editable"):
        return "the input of this tool call cannot be edited"
    return None


def _result_confirmed(state: Json, action: Json, client_id: str) -> str | None:
    call = _call_waiting_in(state, action, "pending-result-confirmation")
    return call if isinstance(call, str) else None


def _call_waiting_in(state: Json, action: Json, status: str) -> Json | str:
    call_id = action["toolCallId"]
    if not _is_running(state, action["turnId"]):
        return f"the running turn is not {action['turnId']}"
    call = tool_call(state, call_id)
    if call is None or call.get("status") != status:
        return f"the tool call {call_id} is not waiting for this"
    return call


def _owned_call(state: Json, action: Json, client_id: str) -> str | None:
    if not _is_running(state, action["turnId"]):
        return f"the running turn is not {action['turnId']}"
    call = tool_call(state, action["toolCallId"])
    if call is None:
        return f"there is no tool call {action['toolCallId']}"
    owner = owner_of(call)
    if owner is None:
        return "this tool call is the agent's"
    if owner != client_id:
        return "this tool call is another client's"
    if call.get("status") != "running":
        return f"the tool call {action['toolCallId']} is not running"
    return None


def _input_completed(state: Json, action: Json, client_id: str) -> str | None:
    request = open_request(state, action["requestId"])
    if request is None:
        return f"the request {action['requestId']} is not open"
    if action["response"] != "accept":
        return None
    answers = {**request.get("answers", {}), **action.get("answers", {})}
    for question in request.get("questions", ()):
        answer = answers.get(question.get("id"))
        if question.get("required") and (answer is None or answer.get("state") == "skipped"):
            return f"the question {question.get('id')} needs an answer"
    return None


def _answer_changed(state: Json, action: Json, client_id: str) -> str | None:
    request = open_request(state, action["requestId"])
    if request is None:
        return f"the request {action['requestId']} is not open"
    questions = request.get("questions", ())
    if all(question.get("id") != action["questionId"] for question in questions):
        return f"the request has no question {action['questionId']}"
    return None


def _pending_set(state: Json, action: Json, client_id: str) -> str | None:
    if action["kind"] not in ("queued", "steering"):
        return f"no such kind of pending message: {action['kind']}"
    if action["kind"] == "steering" and not isinstance(state.get("activeTurn"), dict):
        return "no turn is running that could be steered"
    return _user_message(action["message"])


def _pending_removed(state: Json, action: Json, client_id: str) -> str | None:
    held = (
        [state["steeringMessage"]]
        if action["kind"] == "steering" and "steeringMessage" in state
        else state.get("queuedMessages", ())
        if action["kind"] == "queued"
        else ()
    )
    if all(message["id"] != action["id"] for message in held):
        return f"no message {action['id']} is waiting"
    return None


def _draft_changed(state: Json, action: Json, client_id: str) -> str | None:
    draft = action.get("draft")
    return _user_message(draft) if draft is not None else None


def _truncated(state: Json, action: Json, client_id: str) -> str | None:
    if isinstance(state.get("activeTurn"), dict):
        return "a turn is running"
    turn_id = action.get("turnId")
    if turn_id is not None and all(turn["id"] != turn_id for turn in state["turns"]):
        return f"there is no turn {turn_id}"
    return None


def _turn_resume(state: Json, action: Json, client_id: str) -> str | None:
    if isinstance(state.get("activeTurn"), dict):
        return "a turn is running"
    turns = state["turns"]
    if not turns or turns[-1]["id"] != action["turnId"]:
        return f"{action['turnId']} is not the last turn"
    last = turns[-1]["responseParts"][-1:]
    if turns[-1].get("state") != "error" or not any(
        part.get("kind") == "error" and part.get("resumable") is True for part in last
    ):
        return "this turn cannot be resumed"
    return None


def _is_pending(state: Json, message_id: str) -> bool:
    steering = state.get("steeringMessage")
    if isinstance(steering, dict) and steering["id"] == message_id:
        return True
    return any(message["id"] == message_id for message in state.get("queuedMessages", ()))


CHECKS: Mapping[str, Check] = {
    "chat/turnStarted": _turn_started,
    "chat/turnCancelled": _turn_cancelled,
    "chat/turnResume": _turn_resume,
    "chat/toolCallConfirmed": _confirmed,
    "chat/toolCallResultConfirmed": _result_confirmed,
    "chat/toolCallComplete": _owned_call,
    "chat/toolCallContentChanged": _owned_call,
    "chat/inputCompleted": _input_completed,
    "chat/inputAnswerChanged": _answer_changed,
    "chat/pendingMessageSet": _pending_set,
    "chat/pendingMessageRemoved": _pending_removed,
    "chat/draftChanged": _draft_changed,
    "chat/truncated": _truncated,
}
