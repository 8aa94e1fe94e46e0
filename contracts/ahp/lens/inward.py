"""What an older client says, in canonical shapes: parameters of requests, and its actions."""

from typing import Any

from ..reducers.steps import list_in, objects
from . import differences as rows
from .shapes import Shapes, is_decided, with_each, with_value, without

Json = dict[str, Any]


def canonical_params(shapes: Shapes, method: str, params: Json) -> Json:
    """A request's parameters.

    Raises:
        ValueError: this version can ask for what no later one has; the message is for the client.
    """
    match method:
        case "createSession":
            return _create_session(shapes, params)
        case "createChat":
            return _create_chat(shapes, params)
        case _:
            return params


def canonical_action(shapes: Shapes, action: Json, state: Json) -> Json:
    """A client's action; `state` is the channel's canonical state."""
    match action.get("type"):
        case "session/customizationToggled":
            return _toggled(shapes, action, state)
        case "session/activeClientSet":
            return _with_client(shapes, action)
        case "chat/toolCallComplete" if isinstance(action.get("result"), dict):
            return with_value(action, "result", _joined(shapes, action["result"]))
        case "chat/toolCallContentChanged":
            return _joined(shapes, action)
        case _:
            return action


def _create_session(shapes: Shapes, params: Json) -> Json:
    if shapes.has(rows.SESSION_FORK) and params.get("fork") is not None:
        raise ValueError("params.fork: this host does not fork sessions")
    folder = params.get("workingDirectory")
    if shapes.has(rows.DIRECTORIES) and folder is not None:
        params = {**without(params, ("workingDirectory",)), "workingDirectories": [folder]}
    return _with_client(shapes, params)


def _create_chat(shapes: Shapes, params: Json) -> Json:
    source = params.get("source")
    if not shapes.has(rows.CHAT_SOURCE) or not isinstance(source, dict) or "kind" in source:
        return params
    return {**params, "source": {**source, "kind": "fork"}}


def _with_client(shapes: Shapes, said: Json) -> Json:
    client = said.get("activeClient")
    if not shapes.has(rows.ENABLED_BESIDE) or not isinstance(client, dict):
        return said
    return with_value(said, "activeClient", with_each(client, "customizations", _customization))


def _customization(entry: Json) -> Json:
    entry = with_each(entry, "children", _customization)
    said = entry.get("enabled")
    if not is_decided(entry) or not isinstance(said, bool):
        return entry
    entry = without(entry, ("enabled",))
    # On is what an entry without a decision is.
    if said or "enablement" in entry:
        return entry
    return {**entry, "enablement": [{"kind": "session", "enabled": False}]}


def _toggled(shapes: Shapes, action: Json, state: Json) -> Json:
    said = action.get("enabled")
    if not shapes.has(rows.ENABLED_BESIDE) or "enablement" in action or not isinstance(said, bool):
        return action
    others = [one for one in _decisions(state, action.get("id")) if one.get("kind") != "session"]
    decided = [{"kind": "session", "enabled": said}, *others]
    return {**without(action, ("enabled",)), "enablement": decided}


def _decisions(state: Json, ident: Any) -> list[Json]:
    for entry in objects(list_in(state, "customizations")):
        for one in (entry, *objects(list_in(entry, "children"))):
            if one.get("id") == ident:
                return objects(list_in(one, "enablement"))
    return []


def _joined(shapes: Shapes, said: Json) -> Json:
    """Content in which a command's end is its terminal's `result`."""
    content = said.get("content")
    if not shapes.has(rows.TERMINAL_RESULT) or not isinstance(content, list):
        return said
    joined: list[Any] = []
    for block in content:
        if not isinstance(block, dict) or block.get("type") != "terminalComplete":
            joined.append(block)
            continue
        ended = {key: block[key] for key in ("exitCode", "preview", "truncated") if key in block}
        last = joined[-1] if joined else None
        if (
            isinstance(last, dict)
            and last.get("type") == "terminal"
            and last.get("resource") == block.get("resource")
        ):
            joined[-1] = {**last, "result": ended}
        else:
            joined.append({"type": "text", "text": str(ended.get("preview", ""))})
    return {**said, "content": joined}
