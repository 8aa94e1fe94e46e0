"""Canonical actions in one line's words: one, several, or none.

Each rule is given the canonical action and, where it asks for them, the
canonical states before and after it. The reducer of the older line, given what
is said here, arrives at what `shapes` makes of the state after.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

from ..reducers.active_turn import open_request_of, parts_of, tool_call_of
from ..reducers.steps import index_of, list_in, objects
from . import differences as rows
from .shapes import Shapes, is_decided, is_enabled, with_each, with_value, without

Json = dict[str, Any]
Saying = Callable[[Shapes, Json, Json, Json], list[Json]]
#: A rule that looks at the action alone, and says one.
Spelling = Callable[[Shapes, Json], Json]

# -- what the action alone decides --------------------------------------------------------


def _part(shapes: Shapes, action: Json) -> Json:
    return with_value(action, "part", shapes.part(action.get("part")))


def _turns(shapes: Shapes, action: Json) -> Json:
    return with_each(action, "turns", shapes.turn)


def _failure(shapes: Shapes, action: Json) -> Json:
    if not shapes.has(rows.ERROR_PART):
        return action
    return {**without(action, ("part",)), "error": action["part"]["error"]}


def _tool_delta(shapes: Shapes, action: Json) -> Json:
    absent = shapes.has(rows.TOOL_DELTA) and action.get("content") is None
    return {**action, "content": ""} if absent else action


def _result(shapes: Shapes, action: Json) -> Json:
    result = action.get("result")
    if not isinstance(result, dict):
        return action
    return with_value(action, "result", shapes.with_content(result))


def _content(shapes: Shapes, action: Json) -> Json:
    return shapes.with_content(action)


def _chat_added(shapes: Shapes, action: Json) -> Json:
    return with_value(action, "summary", shapes.chat_row(action["summary"]))


def _chat_updated(shapes: Shapes, action: Json) -> Json:
    return with_value(action, "changes", shapes.chat_row(action["changes"]))


def _active_client(shapes: Shapes, action: Json) -> Json:
    return with_value(action, "activeClient", shapes.client(action["activeClient"]))


def _input_needed(shapes: Shapes, action: Json) -> Json:
    return with_value(action, "request", shapes.request(action["request"]))


def _customizations(shapes: Shapes, action: Json) -> Json:
    return with_each(action, "customizations", shapes.customization)


def _customization(shapes: Shapes, action: Json) -> Json:
    return with_value(action, "customization", shapes.customization(action["customization"]))


def _agents(shapes: Shapes, action: Json) -> Json:
    return with_each(action, "agents", shapes.agent)


def _terminals(shapes: Shapes, action: Json) -> Json:
    return with_each(action, "terminals", shapes.terminal)


SPELLINGS: Final[Mapping[str, Spelling]] = MappingProxyType(
    {
        "root/agentsChanged": _agents,
        "root/terminalsChanged": _terminals,
        "session/chatAdded": _chat_added,
        "session/chatUpdated": _chat_updated,
        "session/activeClientSet": _active_client,
        "session/inputNeededSet": _input_needed,
        "session/customizationsChanged": _customizations,
        "session/customizationUpdated": _customization,
        "chat/responsePart": _part,
        "chat/turnsLoaded": _turns,
        "chat/error": _failure,
        "chat/toolCallDelta": _tool_delta,
        "chat/toolCallComplete": _result,
        "chat/toolCallContentChanged": _content,
    }
)

# -- what the states decide ---------------------------------------------------------------


def _turn_resumed(shapes: Shapes, action: Json, before: Json, after: Json) -> list[Json]:
    kept = after.get("turns") or []
    truncated = {"type": "chat/truncated"}
    if kept:
        truncated["turnId"] = kept[-1]["id"]
    return [truncated, *_said_again(shapes, after["activeTurn"])]


def _said_again(shapes: Shapes, turn: Json) -> list[Json]:
    """A running turn from its first word on, for a reducer that has another turn or none."""
    turn_id = turn["id"]
    started = {"type": "chat/turnStarted", "turnId": turn_id, "message": turn["message"]}
    if "startedAt" in turn:
        started["startedAt"] = turn["startedAt"]
    said = [started]
    for part in shapes.parts(parts_of(turn)):
        # A question that is still open makes the chat wait, which a part alone would not.
        asked = open_request_of(part)
        if asked is not None:
            said.append({"type": "chat/inputRequested", "request": asked})
        else:
            said.append({"type": "chat/responsePart", "turnId": turn_id, "part": part})
    if "usage" in turn:
        said.append({"type": "chat/usage", "turnId": turn_id, "usage": turn["usage"]})
    return said


def _tool_ready(shapes: Shapes, action: Json, before: Json, after: Json) -> list[Json]:
    was, now = _call(before, action), _call(after, action)
    if was is None or now is None:
        return [action]
    # The older reducer forgets the input where the newer one keeps it.
    said = without(action, ("contributor", "intention"))
    if "toolInput" in now:
        said = shapes.with_tool_input({**said, "toolInput": now["toolInput"]})
    refined = {key: now[key] for key in ("contributor", "intention") if key in now}
    if all(was.get(key) == now.get(key) for key in ("contributor", "intention")):
        return [said]
    turn = before["activeTurn"]
    parts = [
        {**part, "toolCall": {**call, **refined}}
        if (call := tool_call_of(part)) is not None and call["toolCallId"] == now["toolCallId"]
        else part
        for part in parts_of(turn)
    ]
    return [*_said_again(shapes, {**turn, "responseParts": parts}), said]


def _tool_confirmed(shapes: Shapes, action: Json, before: Json, after: Json) -> list[Json]:
    now = _call(after, action)
    # The older reducer takes edited input even where the newer one leaves a reference alone.
    unused = now is None or now.get("toolInput") != action.get("editedToolInput")
    return [without(action, ("editedToolInput",)) if unused else action]


def _call(state: Json, action: Json) -> Json | None:
    for part in parts_of(state.get("activeTurn") or {}):
        call = tool_call_of(part)
        if call is not None and call.get("toolCallId") == action.get("toolCallId"):
            return call
    return None


def _chats_reordered(shapes: Shapes, action: Json, before: Json, after: Json) -> list[Json]:
    old, new = before.get("chats") or [], after.get("chats") or []
    first = next((i for i, (a, b) in enumerate(zip(old, new, strict=True)) if a != b), len(new))
    said = [{"type": "session/chatRemoved", "chat": chat["resource"]} for chat in old[first:]]
    said += [
        {"type": "session/chatAdded", "summary": shapes.chat_row(chat)} for chat in new[first:]
    ]
    default = after.get("defaultChat")
    if default is not None and index_of(new[first:], "resource", default) >= 0:
        said.append({"type": "session/defaultChatChanged", "defaultChat": default})
    return said


def _directory_replaced(shapes: Shapes, action: Json, before: Json, after: Json) -> list[Json]:
    old, new = before["workingDirectories"], after["workingDirectories"]
    first = next((i for i, folder in enumerate(old) if i >= len(new) or new[i] != folder), len(old))
    return [
        *({"type": "session/workingDirectoryRemoved", "directory": item} for item in old[first:]),
        *({"type": "session/workingDirectorySet", "directory": item} for item in new[first:]),
    ]


def _toggled(shapes: Shapes, action: Json, before: Json, after: Json) -> list[Json]:
    container, entry = _entry(after, action["id"])
    said = _with_enabled(shapes, action, action if entry is None else entry)
    if container is None or entry is None or shapes.has(rows.ENABLEMENT) or not is_decided(entry):
        return [said]
    whole = shapes.customization(container)
    return [said, {"type": "session/customizationUpdated", "customization": whole}]


def _with_enabled(shapes: Shapes, action: Json, decided: Json) -> Json:
    said = without(action, ("enablement",)) if shapes.has(rows.ENABLEMENT) else action
    return {**said, "enabled": is_enabled(decided)}


def _mcp_background(shapes: Shapes, action: Json, before: Json, after: Json) -> list[Json]:
    _container, entry = _entry(after, action["id"])
    if entry is None or "state" not in entry:
        return []
    said = {"type": "session/mcpServerStateChanged", "id": action["id"], "state": entry["state"]}
    return [{**said, "channel": entry["channel"]} if "channel" in entry else said]


def _entry(state: Json, ident: str) -> tuple[Json | None, Json | None]:
    """The customization of that id, behind the one on top that it is or that holds it."""
    entries = objects(list_in(state, "customizations"))
    for entry in entries:
        if entry.get("id") == ident:
            return entry, entry
    for entry in entries:
        for child in objects(list_in(entry, "children")):
            if child.get("id") == ident:
                return entry, child
    return None, None


#: By the row that makes a line need them: the actions that are said from the states.
FROM_STATES: Final[Mapping[str, Mapping[str, Saying]]] = MappingProxyType(
    {
        rows.CHAT_ORDER: {"session/chatsReordered": _chats_reordered},
        rows.MCP_BACKGROUND: {"session/mcpServerBackgroundRequested": _mcp_background},
        rows.TURN_RESUME: {"chat/turnResume": _turn_resumed},
        rows.ENABLED_BESIDE: {"session/customizationToggled": _toggled},
        rows.DIRECTORY_REPLACED: {"session/workingDirectoryReplaced": _directory_replaced},
        rows.TOOL_READY: {"chat/toolCallReady": _tool_ready},
        rows.TOOL_INPUT: {"chat/toolCallConfirmed": _tool_confirmed},
    }
)

#: By row: the actions of which an older line hears nothing.
UNSAID: Final[Mapping[str, frozenset[str]]] = MappingProxyType(
    {
        rows.CHAT_FLAGS: rows.FLAG_ACTIONS,
        rows.CHAT_EXTRAS: rows.EXTRA_ACTIONS,
        rows.DIRECTORIES: rows.DIRECTORY_ACTIONS,
    }
)


def spelled_back(shapes: Shapes, action: Json) -> Json:
    """A client's own action in its spelling; malformed members stay as they are."""
    match action.get("type"):
        case "session/customizationToggled" if shapes.has(rows.ENABLED_BESIDE):
            return _with_enabled(shapes, action, action) if "enablement" in action else action
        case "session/activeClientSet" if isinstance(action.get("activeClient"), dict):
            return _active_client(shapes, action)
        case "chat/toolCallComplete" | "chat/toolCallContentChanged" as kind:
            return SPELLINGS[kind](shapes, action)
        case _:
            return action
