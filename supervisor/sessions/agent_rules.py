"""What an agent may say now: one judgement for each action that a worker emits.

In the order of the design ("What a worker emits"): swallowed by identity;
allowed for an agent; well formed; keeps the rules of reference "Writing an
agent". Whether it changes anything is asked last, by whoever applies it.

Swallowing goes by identity and never by comparing fields: a turn that is said
back would rebuild `activeTurn` and wipe its parts.

Pure: the chat's state and memory go in, a verdict comes out.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

from attrs import field, frozen

from ...contracts.ahp.actions import ACTIONS, check_action
from .client_rules import open_request, tool_call
from .sizes import MAX_ERROR_CHARS, MAX_TITLE_CHARS, cut, size_of

Json = dict[str, Any]

#: An ending with more in it says no more than that and why.
MAX_ENDING_BYTES = 64 * 1024

ENDINGS = ("chat/turnComplete", "chat/error", "chat/turnCancelled")


@frozen
class Accept:
    """The action may be applied; `mended` names the rule that had to be kept for the agent."""

    action: Json
    mended: str | None = None


@frozen
class Swallow:
    """The action says what is already so, or what is not the agent's to say."""


@frozen
class Drop:
    """The action breaks the rule of that name."""

    rule: str
    detail: str
    counted: bool = True


Verdict = Accept | Swallow | Drop


@frozen(kw_only=True)
class Memory:
    """What a chat remembers beside its state, for judging."""

    elapsed_ms: int
    """How long the running turn has run by our clock."""
    known_turns: set[str] = field(factory=set)
    """The ids of every turn that ever was in this chat."""
    known_requests: set[str] = field(factory=set)
    """The ids of every tool call and input request that ever was in this chat."""
    unacknowledged: set[str] = field(factory=set)
    """Turns that were cancelled and whose end the agent has not acknowledged yet."""
    titled_by_person: bool = False


def judge_chat_action(action: Json, state: Json, memory: Memory) -> Verdict:
    """What to do with an action that a worker emitted on a chat."""
    kind = action.get("type")
    if not isinstance(kind, str) or kind not in ACTIONS:
        return Drop("well-formed", f"no such action: {str(kind)[:80]}")
    if not kind.startswith("chat/"):
        return Drop("own-channel", f"{kind} was emitted on a chat")
    if kind in NOT_SERVED:
        return Drop("not-served", kind, counted=False)
    turn_id = action.get("turnId")
    if isinstance(turn_id, str) and turn_id in memory.unacknowledged:
        return Swallow()
    if kind == "chat/inputRequested" and memory.unacknowledged:
        # A question names no turn. No later one has reached the agent yet, so it is
        # the cancelled turn's.
        return Swallow()
    if kind in SWALLOWED:
        return Swallow()
    if kind in NOT_AN_AGENTS:
        return Drop("own-channel", f"{kind} is not an agent's to say")
    if kind == "chat/turnStarted":
        return _turn_started(action, state, memory)
    if kind in ENDINGS:
        return _ending(action, state, memory)
    if kind in SETTLINGS and not _still_open(kind, action, state):
        return Swallow()
    if kind == "chat/toolCallComplete" and _says_status(action):
        return _judged_without_status(action, state, memory)
    wrong = check_action(action)
    if wrong is not None:
        rule = "result-is-one-object" if kind == "chat/toolCallComplete" else "well-formed"
        return Drop(rule, f"{kind}: {wrong}")
    if "turnId" in action and _running_turn(state) != turn_id:
        return Drop("turn-id-matches", f"{kind} for {turn_id}, which is not the running turn")
    check = RULES.get(kind)
    return check(action, state, memory) if check else Accept(action)


def judge_session_action(action: Json, memory: Memory) -> Verdict:
    """What to do with an action that a worker emitted on its session."""
    kind = action.get("type")
    if not isinstance(kind, str) or kind not in ACTIONS:
        return Drop("well-formed", f"no such action: {str(kind)[:80]}")
    if not kind.startswith("session/"):
        return Drop("own-channel", f"{kind} was emitted on a session")
    if kind in NOT_SERVED:
        return Drop("not-served", kind, counted=False)
    if kind in SWALLOWED or (kind == "session/titleChanged" and memory.titled_by_person):
        return Swallow()
    wrong = check_action(action)
    if wrong is not None:
        return Drop("well-formed", f"{kind}: {wrong}")
    if kind == "session/titleChanged" and len(action["title"]) > MAX_TITLE_CHARS:
        return Accept({**action, "title": cut(action["title"])}, "too-large")
    return Accept(action)


def _turn_started(action: Json, state: Json, memory: Memory) -> Verdict:
    turn_id = action.get("turnId")
    if isinstance(turn_id, str) and turn_id in memory.known_turns:
        return Swallow()
    wrong = check_action(action)
    if wrong is not None:
        return Drop("well-formed", f"chat/turnStarted: {wrong}")
    running = _running_turn(state)
    if running is not None:
        return Drop("turn-id-matches", f"chat/turnStarted {turn_id} while {running} runs")
    message = {**action["message"], "origin": {"kind": "agent"}}
    return Accept({**action, "message": message})


def _ending(action: Json, state: Json, memory: Memory) -> Verdict:
    turn_id, running = action.get("turnId"), _running_turn(state)
    if running is None or running != turn_id:
        if isinstance(turn_id, str) and turn_id in memory.known_turns:
            return Drop("one-ending", f"{action['type']} for {turn_id}, which has ended")
        return Drop("turn-id-matches", f"{action['type']} for {str(turn_id)[:80]}")
    mended = dict(action)
    broken: str | None = None
    if not _is_duration(action.get("duration")):
        broken = "duration-required"
        mended["duration"] = memory.elapsed_ms
    if check_action(mended) is not None:
        broken = broken or "well-formed"
        mended = {"type": action["type"], "turnId": running, "duration": mended["duration"]}
        if action["type"] == "chat/error":
            mended["part"] = _mended_error(action)
    if size_of(mended) > MAX_ENDING_BYTES:
        broken = broken or "too-large"
        mended = {"type": action["type"], "turnId": running, "duration": mended["duration"]}
        if action["type"] == "chat/error":
            mended["part"] = _mended_error(action)
    return Accept(mended, broken)


def _mended_error(action: Json) -> Json:
    part = action.get("part")
    error = part.get("error") if isinstance(part, dict) else action.get("error")
    message = error.get("message") if isinstance(error, dict) else None
    kind = error.get("errorType") if isinstance(error, dict) else None
    return {
        "kind": "error",
        "error": {
            "errorType": cut(kind) if isinstance(kind, str) else "agentError",
            "message": (
                cut(message, MAX_ERROR_CHARS)
                if isinstance(message, str)
                else "The agent did not say why."
            ),
        },
    }


def _delta(action: Json, state: Json, memory: Memory) -> Verdict:
    wanted = "markdown" if action["type"] == "chat/delta" else "reasoning"
    # A delta nearly always continues the newest part.
    for part in reversed(state["activeTurn"]["responseParts"]):
        if part.get("id") == action["partId"] and part.get("kind") != "toolCall":
            if part.get("kind") != wanted:
                detail = f"{action['type']} for the {part.get('kind')} part {action['partId']}"
                return Drop("append-follows-part", detail)
            return Accept(action)
    return Drop("part-before-delta", f"{action['type']} for {action['partId']}")


def _response_part(action: Json, state: Json, memory: Memory) -> Verdict:
    part = action["part"]
    if part.get("kind") in ("toolCall", "inputRequest"):
        return Drop("tool-start-is-the-part", f"chat/responsePart of kind {part['kind']}")
    part_id = part.get("id")
    if part_id is not None and any(
        held.get("id") == part_id for held in state["activeTurn"]["responseParts"]
    ):
        return Drop("id-is-unique", f"a part {part_id} is open already")
    return Accept(action)


def _activity(action: Json, state: Json, memory: Memory) -> Verdict:
    activity = action.get("activity")
    if activity is not None and len(activity) > MAX_TITLE_CHARS:
        return Accept({**action, "activity": cut(activity)}, "too-large")
    return Accept(action)


def _new_call(action: Json, state: Json, memory: Memory) -> Verdict:
    if action["toolCallId"] in memory.known_requests:
        return Drop("id-is-unique", f"the tool call {action['toolCallId']} was opened before")
    return Accept(action)


def _new_request(action: Json, state: Json, memory: Memory) -> Verdict:
    if _running_turn(state) is None:
        return Drop("turn-id-matches", "chat/inputRequested while no turn runs")
    if action["request"]["id"] in memory.known_requests:
        return Drop("id-is-unique", f"the request {action['request']['id']} was opened before")
    return Accept(action)


def _call_ready(action: Json, state: Json, memory: Memory) -> Verdict:
    return _call_in(action, state, ("streaming", "running", "pending-confirmation"))


def _call_delta(action: Json, state: Json, memory: Memory) -> Verdict:
    return _call_in(action, state, ("streaming",))


def _call_running(action: Json, state: Json, memory: Memory) -> Verdict:
    return _call_in(action, state, ("running",))


def _call_complete(action: Json, state: Json, memory: Memory) -> Verdict:
    call = tool_call(state, action["toolCallId"])
    if call is not None and call.get("status") == "pending-confirmation":
        detail = f"the tool call {action['toolCallId']} was completed while it waits for leave"
        return Drop("ready-says-confirmed", detail)
    if call is not None and call.get("status") in ("completed", "cancelled"):
        # Settled meanwhile, by an answer that the agent had not heard of.
        return Swallow()
    verdict = _call_in(action, state, ("running", "auth-required"))
    if not isinstance(verdict, Accept):
        return verdict
    beside = {"success", "pastTenseMessage", "content", "error", "structuredContent"} & set(action)
    if beside:
        kept = {key: value for key, value in action.items() if key not in beside}
        return Accept(kept, "result-is-one-object")
    return Accept(action)


def _says_status(action: Json) -> bool:
    result = action.get("result")
    return isinstance(result, dict) and "status" in result


def _judged_without_status(action: Json, state: Json, memory: Memory) -> Verdict:
    # `success` and `error` say it; a status would replace the call's own in every client.
    result = {key: value for key, value in action["result"].items() if key != "status"}
    verdict = judge_chat_action({**action, "result": result}, state, memory)
    if isinstance(verdict, Accept) and verdict.mended is None:
        return Accept(verdict.action, "failed-is-completed")
    return verdict


def _call_in(action: Json, state: Json, statuses: tuple[str, ...]) -> Verdict:
    call = tool_call(state, action["toolCallId"])
    if call is None:
        return Drop("part-before-delta", f"{action['type']} for {action['toolCallId']}")
    if call.get("status") not in statuses:
        if call.get("status") in ("cancelled", "completed"):
            return Swallow()
        detail = f"{action['type']} for {action['toolCallId']}, which is {call.get('status')}"
        return Drop("tool-call-order", detail)
    return Accept(action)


def _still_open(kind: str, action: Json, state: Json) -> bool:
    if kind == "chat/inputCompleted":
        return open_request(state, str(action.get("requestId"))) is not None
    call = tool_call(state, str(action.get("toolCallId")))
    waits = "pending-confirmation" if kind == "chat/toolCallConfirmed" else None
    return call is not None and call.get("status") == (waits or "pending-result-confirmation")


def _running_turn(state: Json) -> str | None:
    turn = state.get("activeTurn")
    return str(turn["id"]) if isinstance(turn, dict) else None


def _is_duration(value: Any) -> bool:
    return (
        isinstance(value, (int, float))
        and not isinstance(value, bool)
        and math.isfinite(value)
        and value >= 0
    )


#: A person's answer that the agent says back; while the request is still open
#: it is the agent's own answer (a rule that it applies) and settles it.
SETTLINGS = ("chat/toolCallConfirmed", "chat/toolCallResultConfirmed", "chat/inputCompleted")

#: The supervisor's own, or a client's, said back.
SWALLOWED = frozenset(
    {
        "chat/inputAnswerChanged",
        "chat/draftChanged",
        "chat/pendingMessageSet",
        "chat/pendingMessageRemoved",
        "chat/queuedMessagesReordered",
        "chat/turnResume",
        "chat/isReadChanged",
        "chat/isArchivedChanged",
        "session/inputNeededSet",
        "session/inputNeededRemoved",
        "session/activityChanged",
        "session/chatAdded",
        "session/chatRemoved",
        "session/chatUpdated",
        "session/defaultChatChanged",
        "session/ready",
        "session/creationFailed",
        "session/isReadChanged",
        "session/isArchivedChanged",
        "session/activeClientSet",
        "session/activeClientRemoved",
    }
)

#: What would rewrite history that is not the agent's.
NOT_AN_AGENTS = frozenset({"chat/truncated", "chat/turnsLoaded"})

#: Families and actions that this host does not serve yet: dropped, logged once, not counted.
NOT_SERVED = frozenset(
    {
        "chat/changesetsChanged",
        "chat/canvasesChanged",
        "chat/movableChanged",
        "session/changesetsChanged",
        "session/chatsReordered",
    }
)

RULES: Mapping[str, Callable[[Json, Json, Memory], Verdict]] = {
    "chat/delta": _delta,
    "chat/reasoning": _delta,
    "chat/responsePart": _response_part,
    "chat/activityChanged": _activity,
    "chat/toolCallStart": _new_call,
    "chat/inputRequested": _new_request,
    "chat/toolCallReady": _call_ready,
    "chat/toolCallDelta": _call_delta,
    "chat/toolCallContentChanged": _call_running,
    "chat/toolCallAuthRequired": _call_running,
    "chat/toolCallComplete": _call_complete,
}
