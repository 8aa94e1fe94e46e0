"""The data's schema as each version has it: what is said to a client of it validates.

The data holds 0.8's schema brought to 0.9. Each change below is one of its known
gaps, or a row of the lens's table in the words of a schema. Values that an older
version must not have at all are looked for by `old_reducers.vocabulary`.
"""

import copy
import json
import os
from functools import lru_cache
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

from old_reducers import release_of

Json = dict[str, Any]

DATA = Path(os.environ.get("AHP_DATA") or Path(__file__).parents[1] / ".." / "shared" / "ahp")
THERE = (DATA / "schema").is_dir()

_DECIDED = ("PluginCustomization", "ClientPluginCustomization", "McpServerCustomization")

_TURN_RESUME: Json = {
    "type": "object",
    "properties": {"type": {"const": "chat/turnResume"}, "turnId": {"type": "string"}},
    "required": ["type", "turnId"],
}


def faults(version: str, shape: str, value: Any) -> list[str]:
    """What that version's schema has against a value of that shape, as sentences."""
    errors = _validator(version, shape).iter_errors(value)
    return [f"{error.json_path}: {error.message[:300]}" for error in errors]


@lru_cache
def _validator(version: str, shape: str) -> Draft202012Validator:
    file = _FILES.get(shape, "actions")
    schema = json.loads((DATA / "schema" / f"{file}.schema.json").read_text())
    definitions = _as_of(release_of(version), schema["$defs"])
    return Draft202012Validator({"$ref": f"#/$defs/{shape}", "$defs": definitions})


_FILES = {
    "InitializeResult": "commands",
    "ReconnectReplayResult": "commands",
    "ReconnectSnapshotResult": "commands",
    "SubscribeResult": "commands",
    "ListSessionsResult": "commands",
    "SessionAddedParams": "notifications",
    "SessionSummaryChangedParams": "notifications",
}


def _as_of(release: tuple[int, int], definitions: Json) -> Json:
    shapes = copy.deepcopy(definitions)
    toggled = shapes.get("SessionCustomizationToggledAction")
    if release >= (0, 9):
        # Known gap: since 0.9 customizations carry `enablement`, where `enabled` is asked for.
        for name in _DECIDED:
            _not_required(shapes, name, "enabled")
        if toggled is not None:
            toggled["required"] = ["type", "id", "enablement"]
        # Known gap: what else 0.9 added is missing.
        if "StateAction" in shapes:
            shapes["StateAction"]["oneOf"].append(_TURN_RESUME)
        return shapes
    _failed_turns_of_0_8(shapes)
    if release < (0, 7):
        _folders_and_input_of_0_6(shapes)
    return shapes


def _failed_turns_of_0_8(shapes: Json) -> None:
    """Row `failed-lifecycle` and row `error-part`."""
    _if_there(shapes, "SessionLifecycle", enum=["creating", "ready", "creationFailed"])
    if "ResponsePart" in shapes:
        shapes["ResponsePart"]["oneOf"] = [
            part
            for part in shapes["ResponsePart"]["oneOf"]
            if part["$ref"] != "#/$defs/ErrorResponsePart"
        ]
    if "Turn" in shapes:
        shapes["Turn"]["properties"]["error"] = {"$ref": "#/$defs/ErrorInfo"}
    failure = shapes.get("ChatErrorAction")
    if failure is not None:
        del failure["properties"]["part"]
        failure["properties"]["error"] = {"$ref": "#/$defs/ErrorInfo"}
        failure["required"] = ["type", "turnId", "duration", "error"]


def _folders_and_input_of_0_6(shapes: Json) -> None:
    """Rows `directories`, `tool-input` and `tool-delta`."""
    for name in ("SessionState", "SessionSummary", "ChatState", "ChatSummary"):
        if name in shapes:
            del shapes[name]["properties"]["workingDirectories"]
            shapes[name]["properties"]["workingDirectory"] = {"type": "string"}
    _if_there(shapes, "ToolInput", oneOf=[{"type": "string"}])
    if "ChatToolCallDeltaAction" in shapes:
        shapes["ChatToolCallDeltaAction"]["required"].append("content")


def _not_required(shapes: Json, name: str, member: str) -> None:
    if name in shapes and member in shapes[name].get("required", []):
        shapes[name]["required"].remove(member)


def _if_there(shapes: Json, name: str, **members: Any) -> None:
    if name in shapes:
        shapes[name].update(members)
