"""A tool call as items of `/chats`: its row, and what it asks leave for.

Pure. Decisions, where the contracts leave them open:

- A tool call is a `tool` item, or a `subagent` item once its content names a subagent's
  chat, whose own work stays there. When it asks there is an `approval` item beside it
  (`result:` when the result asks), which stays with its decision. From a state alone one
  that was skipped cannot be told from a call that never asked: it then has none.
- A call's input is the JSON object it holds, else the text as it is, and null while the
  agent still writes it. Its output is its text; where it has none, what AHP's clients
  are told in the past tense.
"""

from collections.abc import Mapping
from typing import Any, Literal

import attrs

from ....contracts.chats import (
    ApprovalItem,
    ChatItem,
    FileChange,
    SubagentItem,
    SubagentUsage,
    ToolItem,
    ToolProgress,
    is_blank,
)
from ....contracts.chats.items import ApprovalDecision
from ....contracts.json import JsonError, decode_json
from .places import Place, Sight, amount_in
from .words import allow_always_of, milliseconds, path_of, prose, says_always

Json = dict[str, Any]


def call_items(part: Json, place: Place) -> tuple[ChatItem, ...]:
    call = part.get("toolCall")
    if not isinstance(call, dict):
        return ()
    subagent = subagent_content(call)
    row = _call(call, place) if subagent is None else _subagent(call, subagent, place)
    asked = (_approval(call, place), _result_approval(call, place))
    return (row, *(one for one in asked if one is not None))


def _call(call: Json, place: Place) -> ToolItem:
    ident, sight = place.item_id("tool"), place.sight
    created_at = place.created_at(ident)
    text, state = _text_in(call), _tool_state(call, sight)
    running = state == "running"
    described = prose(call.get("invocationMessage")) or prose(call.get("intention"))
    progress = ToolProgress(
        started_at=created_at, description=described or None, output=text or None
    )
    return ToolItem(
        id=ident,
        created_at=created_at,
        turn_id=sight.turn_id,
        tool_use_id=prose(call.get("toolCallId")),
        name=prose(call.get("toolName")),
        output=None if running else _output_of(call, text),
        state=state,
        parent_tool_use_id=None,
        input=input_of(call),
        progress=progress if running else None,
        changes=_changes_in(call),
    )


def _tool_state(call: Json, sight: Sight) -> Literal["running", "done", "error"]:
    match call.get("status"):
        case "completed":
            return "done" if call.get("success") is True else "error"
        case "cancelled":
            return "error"
        case _:
            return "running" if sight.running else "error"


def input_of(call: Mapping[str, Any]) -> Any:
    """What a call was given: the JSON object its input holds, else the input as it is."""
    given = call.get("toolInput")
    if isinstance(given, str) and given.lstrip()[:1] == "{":
        try:
            return decode_json(given)
        except JsonError:
            return given
    return given


def _output_of(call: Json, text: str) -> str | None:
    if call.get("status") == "cancelled":
        return prose(call.get("reasonMessage")) or None
    error = call.get("error")
    said = prose(error.get("message")) if isinstance(error, dict) else ""
    whole = "\n".join(filter(None, (text, "" if said and said in text else said)))
    return whole or prose(call.get("pastTenseMessage")) or None


def _text_in(call: Json) -> str:
    """What a call's content says, in the order it says it."""
    said = []
    for one in _contents_in(call):
        match one.get("type"):
            case "text":
                said.append(prose(one.get("text")))
            case "resource":
                said.append(prose(one.get("uri")))
            case "terminal" if isinstance(one.get("result"), dict):
                said.append(prose(one["result"].get("preview")))
    return "\n".join(filter(None, said))


def _changes_in(call: Json) -> tuple[FileChange, ...] | None:
    changes = []
    for one in _contents_in(call):
        if one.get("type") == "fileEdit":
            before, after = one.get("before"), one.get("after")
            kind: Literal["add", "update", "delete"] = (
                "update" if before and after else "delete" if before else "add"
            )
            changes.append(FileChange(path=edited_path(one), kind=kind, diff=""))
    return tuple(changes) or None


def edited_path(edit: Mapping[str, Any]) -> str:
    """The file that AHP's `FileEdit` is of."""
    side = edit.get("after") or edit.get("before")
    return path_of(side.get("uri")) if isinstance(side, dict) else ""


def subagent_content(call: Mapping[str, Any]) -> Json | None:
    """The content that names a subagent's chat, or None."""
    return next((one for one in _contents_in(call) if one.get("type") == "subagent"), None)


def _contents_in(call: Mapping[str, Any]) -> list[Json]:
    content = call.get("content")
    return [one for one in content if isinstance(one, dict)] if isinstance(content, list) else []


def _subagent(call: Json, content: Json, place: Place) -> SubagentItem:
    """The row of a delegation; its own work stays in its own chat, which `chat.subagent` pages."""
    ident, sight = place.item_id("tool"), place.sight
    created_at = place.created_at(ident)
    chat = sight.subagents.get(prose(content.get("resource")), {})
    turns = [one for one in (*_turns_in(chat), chat.get("activeTurn")) if isinstance(one, dict)]
    parts = [part for one in turns for part in one.get("responseParts", ())]
    calls = [part["toolCall"] for part in parts if part.get("kind") == "toolCall"]
    state = _tool_state(call, sight)
    begun = milliseconds(turns[0].get("startedAt")) if turns else None
    given = input_of(call)
    asked = given.get("prompt") if isinstance(given, dict) else None
    first = turns[0].get("message") if turns else None
    return SubagentItem(
        id=ident,
        created_at=created_at,
        turn_id=sight.turn_id,
        tool_use_id=prose(call.get("toolCallId")),
        description=prose(content.get("title")) or prose(content.get("description")),
        subagent_type=prose(content.get("agentName")) or None,
        prompt=(prose(first.get("text")) if isinstance(first, dict) else "")
        or prose(asked)
        or None,
        background=False,
        status="running" if state == "running" else "done" if state == "done" else "failed",
        started_at=created_at if begun is None else begun,
        finished_at=None if state == "running" else _finished_at(turns, place, ident),
        summary=prose(chat.get("activity")) or None,
        result=None if state == "running" else _output_of(call, _text_in(call)),
        usage=_subagent_usage(turns, len(calls)),
        last_tool=prose(calls[-1].get("toolName")) or None if calls else None,
        items_truncated=bool(parts),
    )


def _finished_at(turns: list[Json], place: Place, ident: str) -> float:
    held = place.held.get(ident)
    if isinstance(held, SubagentItem) and held.finished_at is not None:
        return held.finished_at
    if turns:
        last = turns[-1]
        began, took = milliseconds(last.get("startedAt")), amount_in(last.get("duration"))
        if began is not None and took is not None:
            return began + took
    return place.sight.now_ms


def _subagent_usage(turns: list[Json], calls: int) -> SubagentUsage | None:
    used = [one["usage"] for one in turns if isinstance(one.get("usage"), dict)]
    if not used:
        return None
    keys = ("inputTokens", "outputTokens")
    tokens = sum(amount_in(one.get(key)) or 0 for one in used for key in keys)
    took = sum(amount_in(one.get("duration")) or 0 for one in turns)
    return SubagentUsage(total_tokens=int(tokens), tool_uses=calls, duration_ms=int(took))


def _turns_in(chat: Mapping[str, Any]) -> list[Any]:
    turns = chat.get("turns")
    return turns if isinstance(turns, list) else []


# -- leave to do it, and to use what came of it -------------------------------------


def _approval(call: Json, place: Place) -> ApprovalItem | None:
    ident = place.item_id("approval")
    held = place.held.get(ident)
    if call.get("status") == "pending-confirmation" and place.sight.running:
        rule = allow_always_of(call.get("options"))
        asked = prose(call.get("confirmationTitle")) or prose(call.get("invocationMessage"))
        return attrs.evolve(
            _asking(ident, call, place, asked), can_allow_always=rule is not None, allow_always=rule
        )
    decision = _decision(call, held)
    if decision is None:
        return None
    if isinstance(held, ApprovalItem):
        # What was asked stays as it was asked, its rule with it.
        return attrs.evolve(held, decision=decision, input=input_of(call))
    asked = prose(call.get("invocationMessage"))
    return attrs.evolve(_asking(ident, call, place, asked), decision=decision)


def _decision(call: Json, held: ChatItem | None) -> ApprovalDecision | None:
    """What came of a call's asking; None when nothing says that it ever asked."""
    chosen = call.get("selectedOption")
    match call.get("status"), call.get("confirmed"), call.get("reason"):
        case "cancelled", _, "denied":
            return "deny"
        case "cancelled", _, "result-denied":
            return None if held is None else _settled(held)
        case (_, "user-action", _):
            rule = held.allow_always if isinstance(held, ApprovalItem) else None
            label = prose(chosen.get("label")) if isinstance(chosen, dict) else None
            lasts = rule is not None and label == rule.label
            return "allow-always" if lasts or says_always(chosen) else "allow"
        case _:
            return None if held is None else _settled(held)


def _settled(held: ChatItem) -> ApprovalDecision:
    """What stood already; a request that nobody answered came to nothing."""
    decision = held.decision if isinstance(held, ApprovalItem) else "cancelled"
    return "cancelled" if decision == "pending" else decision


def _result_approval(call: Json, place: Place) -> ApprovalItem | None:
    ident = place.item_id("result")
    held = place.held.get(ident)
    status = call.get("status")
    if status == "pending-result-confirmation" and place.sight.running:
        return _asking(ident, call, place, prose(call.get("pastTenseMessage")))
    denied = status == "cancelled" and call.get("reason") == "result-denied"
    if isinstance(held, ApprovalItem):
        if status == "completed" and held.decision in ("pending", "allow"):
            return attrs.evolve(held, decision="allow")
        return attrs.evolve(held, decision="deny" if denied else _settled(held))
    if not denied:
        return None
    asked = prose(call.get("invocationMessage"))
    return attrs.evolve(_asking(ident, call, place, asked), decision="deny")


def _asking(ident: str, call: Json, place: Place, asked: str) -> ApprovalItem:
    call_id = prose(call.get("toolCallId"))
    return ApprovalItem(
        id=ident,
        created_at=place.created_at(ident),
        turn_id=place.sight.turn_id,
        request_id=call_id,
        tool_use_id=call_id,
        tool_name=prose(call.get("toolName")),
        description=None if is_blank(asked) else asked,
        can_allow_always=False,
        decision="pending",
        input=input_of(call),
    )


def edited_paths(part: Any) -> tuple[str, ...]:
    """The files that a call which waits would change, as AHP names them beside its input."""
    call = part.get("toolCall") if isinstance(part, dict) else None
    edits = call.get("edits") if isinstance(call, dict) else None
    items = edits.get("items") if isinstance(edits, dict) else None
    found = [edited_path(one) for one in items or () if isinstance(one, dict)]
    return tuple(filter(None, found))
