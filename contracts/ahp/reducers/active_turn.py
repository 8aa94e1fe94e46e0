"""The running turn of a chat: its parts, and the chat's status, which follows from them."""

from typing import Any

from ..status import IDLE, IN_PROGRESS, INPUT_NEEDED, status_of, with_activity
from .steps import Action, State, list_in, object_in, replaced, text_in

#: Statuses of a tool call in which the turn waits for somebody outside it.
_WAITING = ("pending-confirmation", "pending-result-confirmation", "auth-required")


def active_turn_named(state: State, action: Action) -> State | None:
    """The running turn, when it is the one the action names."""
    active, turn_id = object_in(state, "activeTurn"), text_in(action, "turnId")
    if active is None or turn_id is None:
        return None
    return active if active.get("id") == turn_id else None


def parts_of(turn: State) -> list[Any]:
    """The response parts of a turn; not to be changed."""
    return list_in(turn, "responseParts") or []


def tool_call_of(part: Any) -> State | None:
    """The tool call a part is, or None when it is another kind of part."""
    if not isinstance(part, dict) or part.get("kind") != "toolCall":
        return None
    return object_in(part, "toolCall")


def open_request_of(part: Any) -> State | None:
    """The request a part asks and nobody has answered yet, or None."""
    if not isinstance(part, dict) or part.get("kind") != "inputRequest":
        return None
    return object_in(part, "request") if part.get("response") is None else None


def with_parts(state: State, active: State, parts: list[Any]) -> State:
    """The chat with other response parts in its running turn."""
    return {**state, "activeTurn": {**active, "responseParts": parts}}


def with_part(state: State, active: State, index: int, part: State) -> State:
    """The chat with one part of its running turn replaced; every other part is shared."""
    return with_parts(state, active, replaced(parts_of(active), index, part))


def with_appended_part(state: State, active: State, part: State) -> State:
    """The chat with one more part in its running turn."""
    return with_parts(state, active, [*parts_of(active), part])


def find_open_request(active: State, request_id: str) -> tuple[int, State] | None:
    """Where the open request of that id stands, and its part."""
    for index, part in enumerate(parts_of(active)):
        request = open_request_of(part)
        if request is not None and request.get("id") == request_id:
            return index, part
    return None


def with_derived_status(state: State) -> State:
    """The chat with the five low bits of its status following from its running turn."""
    active = object_in(state, "activeTurn")
    if active is None:
        value = IDLE
    elif any(_waits(part) for part in parts_of(active)):
        value = INPUT_NEEDED
    else:
        value = IN_PROGRESS
    return {**state, "status": with_activity(status_of(state), value)}


def _waits(part: Any) -> bool:
    tool_call = tool_call_of(part)
    if tool_call is not None:
        return tool_call.get("status") in _WAITING
    return open_request_of(part) is not None
