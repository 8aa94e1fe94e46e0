"""Reduces a chat's channel: turns, streamed parts, questions, what is queued, the draft."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from ..status import ARCHIVED, ERROR, READ, status_of, with_activity, with_flag
from .active_turn import (
    active_turn_named,
    find_open_request,
    parts_of,
    tool_call_of,
    with_appended_part,
    with_derived_status,
    with_part,
)
from .steps import (
    Action,
    Rule,
    State,
    add_working_directory,
    finite_number_in,
    flag_from,
    index_of,
    list_in,
    object_in,
    objects,
    reducer_of,
    remove_working_directory,
    removed,
    set_from,
    set_or_clear_from,
    text_in,
    upserted,
    with_member,
    without_member,
)
from .tool_calls import TOOL_CALL_RULES, cancelled_by_end

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)

# -- a turn's life -------------------------------------------------------------


def _turn_started(state: State, action: Action) -> State:
    turn_id, started_at = text_in(action, "turnId"), text_in(action, "startedAt")
    message = object_in(action, "message")
    if turn_id is None or started_at is None or message is None:
        return state
    turn = {"id": turn_id, "startedAt": started_at, "message": message, "responseParts": []}
    after = _unread(with_derived_status({**state, "activeTurn": turn, "modifiedAt": started_at}))
    pending_id = text_in(action, "queuedMessageId")
    return _without_pending(after, pending_id) if pending_id else after


def _without_pending(state: State, pending_id: str) -> State:
    steering = object_in(state, "steeringMessage")
    if steering is not None and steering.get("id") == pending_id:
        state = without_member(state, "steeringMessage")
    return _without_queued(state, pending_id)


def _turn_complete(state: State, action: Action) -> State:
    return _end(state, action, "complete")


def _turn_cancelled(state: State, action: Action) -> State:
    return _end(state, action, "cancelled")


def _error(state: State, action: Action) -> State:
    part = object_in(action, "part")
    if part is None or part.get("kind") != "error":
        return state
    after = _end(state, action, "error", last=[part])
    if after is state:
        return state
    return {**after, "status": with_activity(status_of(after), ERROR)}


def _end(state: State, action: Action, how: str, last: list[State] | None = None) -> State:
    active, duration = active_turn_named(state, action), finite_number_in(action, "duration")
    if active is None or duration is None:
        return state
    duration_ms = max(0, duration)
    turn = {
        **active,
        "duration": duration_ms,
        "responseParts": [*map(_ended_part, parts_of(active)), *(last or [])],
        "state": how,
    }
    after = {**state, "turns": [*(list_in(state, "turns") or []), turn]}
    ended_at = _later(active.get("startedAt"), duration_ms)
    if ended_at is not None:
        after["modifiedAt"] = ended_at
    return with_derived_status(without_member(after, "activeTurn"))


def _ended_part(part: Any) -> Any:
    tool_call = tool_call_of(part)
    if tool_call is None:
        return part
    ended = cancelled_by_end(tool_call)
    return part if ended is tool_call else {**part, "toolCall": ended}


def _later(started_at: Any, duration_ms: int | float) -> str | None:
    """The time `duration_ms` after `started_at`, as JavaScript writes it; None for no time."""
    if not isinstance(started_at, str):
        return None
    try:
        start = datetime.fromisoformat(started_at)
        if start.tzinfo is None:
            start = start.replace(tzinfo=UTC)
        whole_ms = int((start - _EPOCH) // _MILLISECOND + duration_ms)
        ended = _EPOCH + timedelta(milliseconds=whole_ms)
    except (ValueError, OverflowError):
        return None
    return ended.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _turn_resume(state: State, action: Action) -> State:
    turns, turn_id = list_in(state, "turns") or [], text_in(action, "turnId")
    turn = turns[-1] if turns else None
    if object_in(state, "activeTurn") is not None or not isinstance(turn, dict) or turn_id is None:
        return state
    parts = parts_of(turn)
    last = parts[-1] if parts else None
    if (
        turn.get("id") != turn_id
        or turn.get("state") != "error"
        or not isinstance(last, dict)
        or last.get("kind") != "error"
        or last.get("resumable") is not True
    ):
        return state
    active = {key: value for key, value in turn.items() if key not in ("duration", "state")}
    if active.get("startedAt") is None:
        active = with_member(active, "startedAt", state.get("modifiedAt"))
    return _unread(with_derived_status({**state, "turns": turns[:-1], "activeTurn": active}))


def _unread(state: State) -> State:
    return {**state, "status": with_flag(status_of(state), READ, False)}


def _truncated(state: State, action: Action) -> State:
    kept, turn_id = list_in(state, "turns") or [], action.get("turnId")
    if turn_id is None:
        after = without_member({**state, "turns": []}, "turnsNextCursor")
    else:
        index = index_of(kept, "id", turn_id) if isinstance(turn_id, str) else -1
        if index < 0:
            return state
        after = {**state, "turns": kept[: index + 1]}
    return with_derived_status(without_member(after, "activeTurn"))


def _turns_loaded(state: State, action: Action) -> State:
    page, cursor = list_in(action, "turns"), action.get("turnsNextCursor")
    if page is None or not (cursor is None or isinstance(cursor, str)):
        return state
    held = list_in(state, "turns") or []
    ids = {turn["id"] for turn in objects(held) if text_in(turn, "id") is not None}
    older = [turn for turn in objects(page) if (ident := text_in(turn, "id")) and ident not in ids]
    return with_member({**state, "turns": [*older, *held]}, "turnsNextCursor", cursor)


# -- what a turn says ----------------------------------------------------------


def _response_part(state: State, action: Action) -> State:
    active, part = active_turn_named(state, action), object_in(action, "part")
    # An error part comes with `chat/error` alone, which ends the turn.
    if active is None or part is None or part.get("kind") == "error":
        return state
    return with_appended_part(state, active, part)


def _appending_to(kind: str) -> Rule:
    """The rule that lengthens a part of that kind; this is the hot path of streaming."""

    def rule(state: State, action: Action) -> State:
        active = active_turn_named(state, action)
        part_id, content = text_in(action, "partId"), text_in(action, "content")
        if active is None or part_id is None or not content:
            return state
        found = _find_part(parts_of(active), part_id)
        if found is None or found[1].get("kind") != kind:
            return state
        index, part = found
        text = text_in(part, "content") or ""
        return with_part(state, active, index, {**part, "content": text + content})

    return rule


def _find_part(parts: list[Any], part_id: str) -> tuple[int, State] | None:
    # The first of that id; a tool call's id is its `toolCallId`. Kept flat: with
    # a thousand parts this loop is what a delta costs.
    for index, part in enumerate(parts):
        if not isinstance(part, dict):
            continue
        if part.get("kind") == "toolCall":
            tool_call = part.get("toolCall")
            if isinstance(tool_call, dict) and tool_call.get("toolCallId") == part_id:
                return index, part
        elif part.get("id") == part_id:
            return index, part
    return None


def _usage(state: State, action: Action) -> State:
    active, usage = active_turn_named(state, action), object_in(action, "usage")
    if active is None or usage is None:
        return state
    return {**state, "activeTurn": {**active, "usage": usage}}


# -- questions -----------------------------------------------------------------


def _input_requested(state: State, action: Action) -> State:
    active, request = object_in(state, "activeTurn"), object_in(action, "request")
    request_id = None if request is None else text_in(request, "id")
    if active is None or request is None or request_id is None:
        return state
    found = find_open_request(active, request_id)
    answers = object_in(request, "answers")
    if answers is None and found is not None:
        # Asking again without answers keeps what was drafted so far.
        answers = object_in(found[1]["request"], "answers")
    part = {"kind": "inputRequest", "request": with_member(request, "answers", answers)}
    if found is None:
        after = with_appended_part(state, active, part)
    else:
        after = with_part(state, active, found[0], part)
    return _unread(with_derived_status(after))


def _input_answer_changed(state: State, action: Action) -> State:
    request_id, question_id = text_in(action, "requestId"), text_in(action, "questionId")
    answer = action.get("answer")
    active = object_in(state, "activeTurn")
    if active is None or request_id is None or question_id is None:
        return state
    found = find_open_request(active, request_id)
    if found is None or not (answer is None or isinstance(answer, dict)):
        return state
    index, part = found
    given = with_member(object_in(part["request"], "answers") or {}, question_id, answer)
    request = with_member(part["request"], "answers", given or None)
    return with_part(state, active, index, {**part, "request": request})


def _input_completed(state: State, action: Action) -> State:
    request_id, response = text_in(action, "requestId"), text_in(action, "response")
    final = action.get("answers")
    active = object_in(state, "activeTurn")
    if active is None or request_id is None or response is None:
        return state
    found = find_open_request(active, request_id)
    if found is None or not (final is None or isinstance(final, dict)):
        return state
    index, part = found
    given = {**(object_in(part["request"], "answers") or {}), **(final or {})}
    request = with_member(part["request"], "answers", given or None)
    answered = {**part, "request": request, "response": response}
    return with_derived_status(with_part(state, active, index, answered))


# -- what waits its turn -------------------------------------------------------


def _pending_message_set(state: State, action: Action) -> State:
    ident, message = text_in(action, "id"), object_in(action, "message")
    if ident is None or message is None:
        return state
    entry = {"id": ident, "message": message}
    match action.get("kind"):
        case "steering":
            return {**state, "steeringMessage": entry}
        case "queued":
            queued = list_in(state, "queuedMessages") or []
            return {**state, "queuedMessages": upserted(queued, "id", entry)}
        case _:
            return state


def _pending_message_removed(state: State, action: Action) -> State:
    ident = text_in(action, "id")
    if ident is None:
        return state
    match action.get("kind"):
        case "steering":
            steering = object_in(state, "steeringMessage") or {}
            gone = steering.get("id") == ident
            return without_member(state, "steeringMessage") if gone else state
        case "queued":
            return _without_queued(state, ident)
        case _:
            return state


def _without_queued(state: State, ident: str) -> State:
    queued = list_in(state, "queuedMessages")
    if queued is None:
        return state
    left = [entry for entry in objects(queued) if entry.get("id") != ident]
    return with_member(state, "queuedMessages", left or None)


def _queued_messages_reordered(state: State, action: Action) -> State:
    order, queued = list_in(action, "order"), list_in(state, "queuedMessages")
    if order is None or queued is None:
        return state
    by_id = {entry["id"]: entry for entry in objects(queued) if text_in(entry, "id") is not None}
    named = dict.fromkeys(ident for ident in order if isinstance(ident, str) and ident in by_id)
    # Who was not named keeps its place behind those who were.
    rest = [entry for ident, entry in by_id.items() if ident not in named]
    return {**state, "queuedMessages": [*map(by_id.__getitem__, named), *rest]}


# -- work that outlives turns --------------------------------------------------


def _background_work_set(state: State, action: Action) -> State:
    work = object_in(action, "work")
    if work is None or text_in(work, "id") is None:
        return state
    running = list_in(state, "backgroundWork") or []
    return {**state, "backgroundWork": upserted(running, "id", work)}


def _background_work_removed(state: State, action: Action) -> State:
    ident, running = text_in(action, "id"), list_in(state, "backgroundWork") or []
    index = -1 if ident is None else index_of(running, "id", ident)
    return state if index < 0 else {**state, "backgroundWork": removed(running, index)}


_RULES: Final[Mapping[str, Rule]] = {
    "chat/turnStarted": _turn_started,
    "chat/turnComplete": _turn_complete,
    "chat/turnCancelled": _turn_cancelled,
    "chat/error": _error,
    "chat/turnResume": _turn_resume,
    "chat/truncated": _truncated,
    "chat/turnsLoaded": _turns_loaded,
    "chat/responsePart": _response_part,
    "chat/delta": _appending_to("markdown"),
    "chat/reasoning": _appending_to("reasoning"),
    "chat/usage": _usage,
    "chat/inputRequested": _input_requested,
    "chat/inputAnswerChanged": _input_answer_changed,
    "chat/inputCompleted": _input_completed,
    "chat/pendingMessageSet": _pending_message_set,
    "chat/pendingMessageRemoved": _pending_message_removed,
    "chat/queuedMessagesReordered": _queued_messages_reordered,
    "chat/draftChanged": set_or_clear_from("draft", dict),
    "chat/activityChanged": set_or_clear_from("activity", str),
    "chat/isReadChanged": flag_from("isRead", READ),
    "chat/isArchivedChanged": flag_from("isArchived", ARCHIVED),
    "chat/movableChanged": set_from("movable", bool),
    "chat/changesetsChanged": set_or_clear_from("changesets", list),
    "chat/canvasesChanged": set_or_clear_from("canvases", list),
    "chat/workingDirectorySet": add_working_directory,
    "chat/workingDirectoryRemoved": remove_working_directory,
    "chat/backgroundWorkSet": _background_work_set,
    "chat/backgroundWorkRemoved": _background_work_removed,
    **TOOL_CALL_RULES,
}

reduce_chat = reducer_of(_RULES)
