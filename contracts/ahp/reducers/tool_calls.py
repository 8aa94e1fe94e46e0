"""A tool call's states, and the actions that move it from one to the next.

    streaming ──ready──▶ pending-confirmation ──confirmed──▶ running ──complete──▶ completed
        │                        ▲   │ refused                │ ▲  │
        └──ready, confirmed──────┼───┼──────────▶─────────────┘ │  └─complete, to be confirmed─┐
                                 │   ▼                          │                              ▼
                    ready again ─┘ cancelled ◀──refused── pending-result-confirmation ──▶ completed

A running call of an MCP server may go to auth-required and come back. A call
that no rule moves stays as it is. Moving carries over the members named here
and no others, as every client's reducer does.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from .active_turn import (
    active_turn_named,
    parts_of,
    tool_call_of,
    with_appended_part,
    with_derived_status,
    with_parts,
)
from .steps import (
    Action,
    Rule,
    State,
    list_in,
    object_in,
    objects,
    present,
    text_in,
    with_member,
    without_nulls,
)

#: Tells the call's next state from its present one; the very same means unmoved.
_Move = Callable[[State, Action], State]

_IDENTITY = ("toolCallId", "toolName", "displayName", "intention", "contributor", "_meta")
_INVOCATION = ("invocationMessage", "toolInput")
_APPROVAL = ("confirmed", "selectedOption")
_RESULT = ("success", "pastTenseMessage", "content", "structuredContent", "error")
_ASKING = ("confirmationTitle", "riskAssessment", "edits", "editable", "options")


def cancelled_by_end(tool_call: State) -> State:
    """The call as an ended turn keeps it: what was not finished was skipped."""
    status = tool_call.get("status")
    if status in ("completed", "cancelled"):
        return tool_call
    members = _carried(tool_call, _IDENTITY, _INVOCATION)
    if status == "streaming":
        # Nothing was invoked yet: there is no input, and maybe no message, to show.
        members.pop("toolInput", None)
        members.setdefault("invocationMessage", "")
    return {**members, "status": "cancelled", "reason": "skipped"}


def _start(state: State, action: Action) -> State:
    active = active_turn_named(state, action)
    named = [text_in(action, key) for key in ("toolCallId", "toolName", "displayName")]
    if active is None or None in named:
        return state
    tool_call = {**_carried(action, _IDENTITY), "status": "streaming"}
    return with_appended_part(state, active, {"kind": "toolCall", "toolCall": tool_call})


def _delta(tool_call: State, action: Action) -> State:
    content = action.get("content")
    if tool_call.get("status") != "streaming" or not (content is None or isinstance(content, str)):
        return tool_call
    after = {**tool_call, **_said(action, "_meta", "invocationMessage")}
    if content is not None:
        after["partialInput"] = (text_in(tool_call, "partialInput") or "") + content
    return after


def _ready(tool_call: State, action: Action) -> State:
    status, confirmed = tool_call.get("status"), action.get("confirmed")
    if (
        status not in ("streaming", "running", "pending-confirmation")
        or not _is_message(action.get("invocationMessage"))
        or not (confirmed is None or isinstance(confirmed, str))
    ):
        return tool_call
    after = {
        **_carried(tool_call, _IDENTITY, () if status == "streaming" else ("toolInput",)),
        **_said(action, "_meta", "intention", *_INVOCATION),
    }
    after = with_member(after, "contributor", _refined_contributor(tool_call, action))
    if confirmed:
        return {**after, "status": "running", "confirmed": confirmed}
    if status == "pending-confirmation":
        after |= _carried(tool_call, _ASKING)
    return {**after, **_said(action, *_ASKING), "status": "pending-confirmation"}


def _confirmed(tool_call: State, action: Action) -> State:
    approved = action.get("approved")
    because = text_in(action, "confirmed" if approved is True else "reason")
    if (
        tool_call.get("status") != "pending-confirmation"
        or not isinstance(approved, bool)
        or because is None
    ):
        return tool_call
    after = {
        **_carried(tool_call, _IDENTITY, _INVOCATION),
        **_said(action, "_meta"),
        **present(selectedOption=_selected_option(tool_call, action)),
    }
    if not approved:
        why = _said(action, "reasonMessage", "userSuggestion")
        return {**after, **why, "status": "cancelled", "reason": because}
    edited = text_in(action, "editedToolInput")
    if edited is not None and isinstance(tool_call.get("toolInput"), str):
        after["toolInput"] = edited
    return {**after, "status": "running", "confirmed": because}


def _complete(tool_call: State, action: Action) -> State:
    status, result = tool_call.get("status"), object_in(action, "result")
    if status not in ("running", "pending-confirmation", "auth-required") or result is None:
        return tool_call
    # A call that waits for a token never ran on: only its failure can be true,
    # and there is no result that anybody could be asked about.
    if status == "auth-required" and result.get("success") is not False:
        return tool_call
    asks = action.get("requiresResultConfirmation") is True and status != "auth-required"
    before = _carried(tool_call, ("content",)) if status == "auth-required" else {}
    approval = (
        {"confirmed": "not-needed"}
        if status == "pending-confirmation"
        else _carried(tool_call, _APPROVAL)
    )
    return {
        **before,
        # What the call is comes from the call: a result cannot rename or move it.
        **without_nulls(result),
        **_carried(tool_call, _IDENTITY, _INVOCATION),
        **_said(action, "_meta"),
        **approval,
        "status": "pending-result-confirmation" if asks else "completed",
    }


def _result_confirmed(tool_call: State, action: Action) -> State:
    approved = action.get("approved")
    if tool_call.get("status") != "pending-result-confirmation" or not isinstance(approved, bool):
        return tool_call
    after = {**_carried(tool_call, _IDENTITY, _INVOCATION), **_said(action, "_meta")}
    if approved:
        return {**after, **_carried(tool_call, _APPROVAL, _RESULT), "status": "completed"}
    option = _carried(tool_call, ("selectedOption",))
    return {**after, **option, "status": "cancelled", "reason": "result-denied"}


def _content_changed(tool_call: State, action: Action) -> State:
    content = list_in(action, "content")
    if tool_call.get("status") != "running" or content is None:
        return tool_call
    return {**tool_call, **_said(action, "_meta"), "content": content}


def _auth_required(tool_call: State, action: Action) -> State:
    auth, contributor = object_in(action, "auth"), object_in(tool_call, "contributor") or {}
    if tool_call.get("status") != "running" or contributor.get("kind") != "mcp" or auth is None:
        return tool_call
    return {**_paused_or_resumed(tool_call, action), "status": "auth-required", "auth": auth}


def _auth_resolved(tool_call: State, action: Action) -> State:
    if tool_call.get("status") != "auth-required":
        return tool_call
    return {**_paused_or_resumed(tool_call, action), "status": "running"}


def _paused_or_resumed(tool_call: State, action: Action) -> State:
    kept = _carried(tool_call, _IDENTITY, _INVOCATION, _APPROVAL, ("content",))
    return {**kept, **_said(action, "_meta")}


def _refined_contributor(tool_call: State, action: Action) -> State | None:
    """Who runs the call. A client's part in it is settled when the call starts, and stays."""
    now, new = object_in(tool_call, "contributor"), object_in(action, "contributor")
    if new is None:
        return now
    if now is not None and now.get("kind") == "client":
        same = new.get("kind") == "client" and new.get("clientId") == now.get("clientId")
        return new if same else now
    return now if new.get("kind") == "client" else new


def _selected_option(tool_call: State, action: Action) -> State | None:
    chosen = text_in(action, "selectedOptionId")
    options = objects(list_in(tool_call, "options"))
    return next((one for one in options if chosen and one.get("id") == chosen), None)


def _carried(source: Mapping[str, Any], *groups: tuple[str, ...]) -> dict[str, Any]:
    """The members of those names that are there."""
    names = (name for group in groups for name in group)
    return {name: source[name] for name in names if source.get(name) is not None}


def _said(action: Action, *names: str) -> dict[str, Any]:
    return _carried(action, names)


def _is_message(value: Any) -> bool:
    return isinstance(value, (str, dict))


def _moving(move: _Move, *, changes_status: bool = True) -> Rule:
    """The rule that moves every call of the action's id in the running turn."""

    def rule(state: State, action: Action) -> State:
        active, tool_call_id = active_turn_named(state, action), text_in(action, "toolCallId")
        if active is None or tool_call_id is None:
            return state
        parts, moved = list(parts_of(active)), False
        for index, part in enumerate(parts):
            tool_call = tool_call_of(part)
            if tool_call is None or tool_call.get("toolCallId") != tool_call_id:
                continue
            after = move(tool_call, action)
            if after is not tool_call:
                parts[index] = {**part, "toolCall": after}
                moved = True
        if not moved:
            return state
        after_parts = with_parts(state, active, parts)
        return with_derived_status(after_parts) if changes_status else after_parts

    return rule


TOOL_CALL_RULES: Final[Mapping[str, Rule]] = {
    "chat/toolCallStart": _start,
    "chat/toolCallDelta": _moving(_delta, changes_status=False),
    "chat/toolCallReady": _moving(_ready),
    "chat/toolCallConfirmed": _moving(_confirmed),
    "chat/toolCallComplete": _moving(_complete),
    "chat/toolCallResultConfirmed": _moving(_result_confirmed),
    "chat/toolCallContentChanged": _moving(_content_changed, changes_status=False),
    "chat/toolCallAuthRequired": _moving(_auth_required),
    "chat/toolCallAuthResolved": _moving(_auth_resolved),
}
