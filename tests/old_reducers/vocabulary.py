"""What a version would call wrong: shapes of later versions where an older one looks."""

from typing import Any

from old_reducers import release_of

Json = dict[str, Any]


def wrong_in_state(version: str, family: str, state: Json) -> list[str]:
    """Everything in a state that the version would call wrong, as sentences."""
    release = release_of(version)
    if family == "session":
        return [*_session(release, state), *_rows(release, [state, *state["chats"]])]
    if family == "chat":
        return [*_chat(release, state), *_rows(release, [state])]
    wrong: list[str] = []
    for agent in state.get("agents", ()):
        wrong += _customizations(release, agent.get("customizations", ()))
    for terminal in state.get("terminals", ()):
        if release < (0, 9) and "lifecycle" in terminal:
            wrong.append("a terminal with a lifecycle")
    return wrong


def wrong_in_action(version: str, action: Json) -> list[str]:
    """Everything in an action that the version would call wrong, as sentences."""
    release = release_of(version)
    wrong: list[str] = []
    match action["type"]:
        case "chat/error":
            member = "part" if release >= (0, 9) else "error"
            wrong += [] if set(action) & {"part", "error"} == {member} else [f"{action}"]
        case "chat/toolCallDelta" if release < (0, 7):
            wrong += [] if isinstance(action.get("content"), str) else ["a delta without content"]
        case "chat/toolCallReady" if release < (0, 7):
            wrong += [] if isinstance(action.get("toolInput", ""), str) else ["input by reference"]
            wrong += [k for k in ("contributor", "intention") if k in action]
        case "chat/responsePart":
            wrong += _parts(release, [action["part"]])
        case "chat/turnsLoaded":
            wrong += [sentence for turn in action["turns"] for sentence in _turn(release, turn)]
        case "chat/toolCallContentChanged":
            wrong += _content(release, action["content"])
        case "chat/toolCallComplete":
            wrong += _content(release, action["result"].get("content", ()))
        case "session/chatAdded":
            wrong += _rows(release, [action["summary"]])
        case "session/chatUpdated":
            wrong += _rows(release, [action["changes"]])
        case "session/customizationToggled":
            needed = {"enablement"} if release >= (0, 9) else {"enabled"}
            needed |= {"enablement"} if release == (0, 8) else set()
            wrong += sorted(needed ^ (set(action) & {"enabled", "enablement"}))
        case "session/customizationUpdated":
            wrong += _customizations(release, [action["customization"]])
        case "session/customizationsChanged":
            wrong += _customizations(release, action["customizations"])
        case "session/activeClientSet":
            wrong += _customizations(release, action["activeClient"].get("customizations", ()))
    return wrong


def _session(release: tuple[int, int], state: Json) -> list[str]:
    wrong = [f"lifecycle {state['lifecycle']}"] if _bad_lifecycle(release, state) else []
    wrong += _customizations(release, state.get("customizations", ()))
    for client in state["activeClients"]:
        wrong += _customizations(release, client.get("customizations", ()))
    waiting = state.get("inputNeeded", ())
    asks = [one for one in waiting if release < (0, 8) or one["kind"] != "toolClientExecution"]
    if asks and state["status"] & 24 != 24:
        wrong.append(f"status {state['status']} with {len(asks)} waiting")
    for request in waiting:
        if "toolCall" in request:
            wrong += _call(release, request["toolCall"])
    return wrong


def _bad_lifecycle(release: tuple[int, int], state: Json) -> bool:
    return state["lifecycle"] == ("creationFailed" if release >= (0, 9) else "failed")


def _customizations(release: tuple[int, int], entries: Any) -> list[str]:
    wrong: list[str] = []
    for entry in entries:
        if entry["type"] in ("plugin", "mcpServer"):
            if release < (0, 9) and not isinstance(entry.get("enabled"), bool):
                wrong.append(f"{entry['id']} without enabled")
            if release < (0, 8) and "enablement" in entry:
                wrong.append(f"{entry['id']} with enablement")
        wrong += _customizations(release, entry.get("children", ()))
    return wrong


def _rows(release: tuple[int, int], rows: list[Json]) -> list[str]:
    wrong: list[str] = []
    for row in rows:
        if release < (0, 7):
            wrong += ["workingDirectories"] if "workingDirectories" in row else []
            wrong += ["a side chat"] if row.get("origin", {}).get("kind") == "sideChat" else []
        else:
            wrong += ["workingDirectory"] if "workingDirectory" in row else []
    return wrong


def _chat(release: tuple[int, int], state: Json) -> list[str]:
    wrong: list[str] = []
    if release < (0, 10):
        later = {"backgroundWork", "movable", "changesets", "canvases"}
        wrong += sorted(later & state.keys())
        wrong += ["a read or archived chat"] if state["status"] & 96 else []
    for turn in state["turns"]:
        wrong += _turn(release, turn)
    if "activeTurn" in state:
        wrong += _parts(release, state["activeTurn"]["responseParts"])
    return wrong


def _turn(release: tuple[int, int], turn: Json) -> list[str]:
    wrong = _parts(release, turn["responseParts"])
    if release >= (0, 9) and "error" in turn:
        wrong.append("a turn's error")
    if release < (0, 9) and "error" in turn and turn["state"] != "error":
        wrong.append(f"an error of a turn that is {turn['state']}")
    return wrong


def _parts(release: tuple[int, int], parts: list[Json]) -> list[str]:
    wrong: list[str] = []
    for part in parts:
        if part["kind"] == "error" and release < (0, 9):
            wrong.append("an error part")
        if part["kind"] == "toolCall":
            wrong += _call(release, part["toolCall"])
    return wrong


def _call(release: tuple[int, int], call: Json) -> list[str]:
    wrong = _content(release, call.get("content", ()))
    if release < (0, 7) and not isinstance(call.get("toolInput", ""), str):
        wrong.append("input by reference")
    return wrong


def _content(release: tuple[int, int], content: Any) -> list[str]:
    if release >= (0, 7):
        return ["terminalComplete"] if _has(content, "terminalComplete") else []
    return ["a terminal's result"] if any("result" in block for block in content) else []


def _has(content: Any, kind: str) -> bool:
    return any(block["type"] == kind for block in content)
