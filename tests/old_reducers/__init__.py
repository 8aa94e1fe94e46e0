"""What the reducers of older versions do, said as differences from ours for 1.0.

Our own statement, made to be held against the lens: where a version's reducer
does what 1.0's does, ours is used, on that version's shapes. Times that older
reducers read from a clock are ours here too; whoever compares masks them.

An action that a version does not have is no part of its vocabulary: `reducer_of`
raises for it, where a client would pass over it in silence and fall behind.
"""

from collections.abc import Callable
from typing import Any

from ahpd.contracts.ahp.actions import ACTIONS
from ahpd.contracts.ahp.reducers import REDUCERS
from ahpd.contracts.ahp.status import INPUT_NEEDED, with_activity
from ahpd.contracts.ahp.versions import parse_version

Json = dict[str, Any]
Reduce = Callable[[Json, Json], Json]

#: Every line, and 0.8 as builds before its release spoke it.
VERSIONS = ("0.6.0", "0.7.0", "0.8.0-before", "0.8.0", "0.9.0", "0.10.0", "1.0.0")

#: Came with 1.0, whatever an earlier date of the registry says.
_SINCE_1_0 = {"session/chatsReordered"}


def lens_version(version: str) -> str:
    """The version that such a client negotiates."""
    return version.removesuffix("-before")


def release_of(version: str) -> tuple[int, int]:
    """Major and minor."""
    parsed = parse_version(lens_version(version))
    return parsed.major, parsed.minor


def knows(version: str, kind: str) -> bool:
    """Whether that version has an action of that type."""
    release = release_of(version)
    if release >= (0, 10):
        return True
    since = parse_version(ACTIONS[kind].introduced_in)
    return kind not in _SINCE_1_0 and (since.major, since.minor) <= release


def reducer_of(version: str, family: str) -> Reduce:
    """The reducer of that version for a family of channels."""
    canonical = REDUCERS[family]
    rules = _rules(version)

    def reduce(state: Json, action: Json) -> Json:
        kind = action["type"]
        if not knows(version, kind):
            raise AssertionError(f"{version} has no {kind}")
        rule = rules.get(kind)
        return canonical(state, action) if rule is None else rule(canonical, state, action)

    return reduce


Rule = Callable[[Reduce, Json, Json], Json]


def _rules(version: str) -> dict[str, Rule]:
    release = release_of(version)
    rules: dict[str, Rule] = {}
    if release < (0, 9):
        rules["chat/error"] = _failed_turn_has_an_error
        rules["session/creationFailed"] = _creation_failed
    if release < (0, 8) or version == "0.8.0-before":
        rules["session/customizationToggled"] = _toggled_sets_enabled
    if release < (0, 8):
        rules["session/inputNeededSet"] = _anything_waits_on_a_person
        rules["session/inputNeededRemoved"] = _anything_waits_on_a_person
    if release < (0, 7):
        rules["chat/toolCallDelta"] = _delta_always_appends
        rules["chat/toolCallReady"] = _ready_forgets
        rules["chat/toolCallConfirmed"] = _edited_input_always_replaces
    return rules


# -- below 0.9 ----------------------------------------------------------------------------


def _failed_turn_has_an_error(canonical: Reduce, state: Json, action: Json) -> Json:
    error = action["error"]
    ended = canonical(state, {**action, "part": {"kind": "error", "error": error}})
    if ended is state:
        return state
    *turns, last = ended["turns"]
    return {
        **ended,
        "turns": [*turns, {**last, "responseParts": last["responseParts"][:-1], "error": error}],
    }


def _creation_failed(canonical: Reduce, state: Json, action: Json) -> Json:
    return {**state, "lifecycle": "creationFailed", "creationError": action["error"]}


# -- below 0.8's release ------------------------------------------------------------------


def _toggled_sets_enabled(canonical: Reduce, state: Json, action: Json) -> Json:
    entries = state.get("customizations")
    if entries is None:
        return state
    ident, enabled = action["id"], action["enabled"]
    on_top = next((entry for entry in entries if entry["id"] == ident), None)
    if on_top is not None:
        return _with(state, on_top, {**on_top, "enabled": enabled})
    for container in entries:
        if container["type"] == "mcpServer":
            continue
        for child in container.get("children", ()):
            if child["id"] == ident:
                inside = [
                    {**one, "enabled": enabled} if one is child else one
                    for one in container["children"]
                ]
                return _with(state, container, {**container, "children": inside})
    return state


def _with(state: Json, entry: Json, other: Json) -> Json:
    entries = [other if one is entry else one for one in state["customizations"]]
    return {**state, "customizations": entries}


# -- below 0.8 ----------------------------------------------------------------------------


def _anything_waits_on_a_person(canonical: Reduce, state: Json, action: Json) -> Json:
    after = canonical(state, action)
    if after is state or "inputNeeded" not in after:
        return after
    return {**after, "status": with_activity(after["status"], INPUT_NEEDED)}


# -- below 0.7 ----------------------------------------------------------------------------


def _delta_always_appends(canonical: Reduce, state: Json, action: Json) -> Json:
    return canonical(state, {**action, "content": action["content"]})


def _ready_forgets(canonical: Reduce, state: Json, action: Json) -> Json:
    """Contributor and intention are the start's; input stays only from pending to pending."""

    def forgetting(call: Json) -> Json:
        stays = call.get("status") == "pending-confirmation" and not action.get("confirmed")
        return call if stays else {k: v for k, v in call.items() if k != "toolInput"}

    known = {k: v for k, v in action.items() if k not in ("contributor", "intention")}
    ready = canonical(_with_calls(state, action, forgetting), known)
    statuses = {"streaming", "running", "pending-confirmation"}
    reached = any(
        call["toolCallId"] == action["toolCallId"] and call["status"] in statuses
        for call in _calls(state, action)
    )
    return ready if reached else state


def _edited_input_always_replaces(canonical: Reduce, state: Json, action: Json) -> Json:
    if action.get("editedToolInput") is None:
        return canonical(state, action)
    return canonical(_with_calls(state, action, lambda call: {**call, "toolInput": ""}), action)


def _calls(state: Json, action: Json) -> list[Json]:
    active = state.get("activeTurn")
    if active is None or active["id"] != action["turnId"]:
        return []
    return [part["toolCall"] for part in active["responseParts"] if part["kind"] == "toolCall"]


def _with_calls(state: Json, action: Json, change: Callable[[Json], Json]) -> Json:
    if not any(call["toolCallId"] == action["toolCallId"] for call in _calls(state, action)):
        return state
    active = state["activeTurn"]
    parts = [
        {**part, "toolCall": change(part["toolCall"])}
        if part["kind"] == "toolCall" and part["toolCall"]["toolCallId"] == action["toolCallId"]
        else part
        for part in active["responseParts"]
    ]
    return {**state, "activeTurn": {**active, "responseParts": parts}}
