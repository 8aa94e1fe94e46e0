"""Settings: a session's configuration held against its agent's schema.

The schema is AHP's `SessionConfigSchema`: an object schema whose properties say
a type, sometimes an enum, whether a running session may change them
(`sessionMutable`) and whether they are a session's or a chat's (`scope`).
Pure; what an agent itself refuses is its own affair.
"""

import math
from typing import Any

Json = dict[str, Any]

#: How deep a value is looked into; what lies deeper is the agent's to check.
MAX_SCHEMA_DEPTH = 16


def normal_schema(schema: Json) -> Json:
    """The agent's schema with what the protocol requires of one, whatever it left out.

    JSON Schema's whole numbers are AHP's numbers; a type that AHP has no word for is a string.
    """
    properties = {
        key: {"title": key, **rule, "type": _protocol_type(rule.get("type"))}
        for key, rule in _properties(schema).items()
        if isinstance(rule, dict)
    }
    return {**schema, "type": "object", "properties": properties}


def _protocol_type(kind: Any) -> str:
    if kind == "integer":
        return "number"
    return kind if isinstance(kind, str) and kind in _TYPES else "string"


def initial_settings(schema: Json, defaults: Json, wished: Json) -> Json | str:
    """The values a new session starts with, or the sentence that says what does not fit.

    A wish for a setting that the agent does not have is passed over: an editor
    sends its own along.
    """
    properties = _properties(schema)
    values: Json = {
        key: rule["default"]
        for key, rule in properties.items()
        if isinstance(rule, dict) and "default" in rule
    }
    values |= {key: value for key, value in defaults.items() if key in properties}
    for key, value in wished.items():
        if key not in properties:
            continue
        wrong = setting_fault(schema, key, value, running=False)
        if wrong is not None:
            return wrong
        values[key] = value
    return values


def setting_fault(schema: Json, key: str, value: Any, *, running: bool) -> str | None:
    """Why this value cannot be set, or None.

    Args:
        running: whether the session is there already, so that `sessionMutable` counts.
    """
    rule = _properties(schema).get(key)
    if not isinstance(rule, dict):
        return f"there is no setting {key}"
    if rule.get("readOnly") is True:
        return f"the setting {key} cannot be changed"
    if running and rule.get("sessionMutable") is False:
        return f"the setting {key} cannot be changed in a session that runs"
    return _fault(rule, value, key, MAX_SCHEMA_DEPTH)


def _properties(schema: Json) -> Json:
    properties = schema.get("properties")
    return properties if isinstance(properties, dict) else {}


def _fault(rule: Json, value: Any, at: str, depth: int) -> str | None:
    if depth == 0:
        return None
    kind = rule.get("type")
    if isinstance(kind, str) and kind in _TYPES and not _is(kind, value):
        return f"{at} is to be {_TYPES[kind]}"
    choices = rule.get("enum")
    if isinstance(choices, list) and rule.get("enumDynamic") is not True and value not in choices:
        return f"{at} is to be one of {', '.join(str(choice) for choice in choices[:20])}"
    if isinstance(value, list) and isinstance(rule.get("items"), dict):
        for index, item in enumerate(value):
            wrong = _fault(rule["items"], item, f"{at}[{index}]", depth - 1)
            if wrong is not None:
                return wrong
    if isinstance(value, dict):
        properties = _properties(rule)
        for key in value.keys() & properties.keys():
            if isinstance(properties[key], dict):
                wrong = _fault(properties[key], value[key], f"{at}.{key}", depth - 1)
                if wrong is not None:
                    return wrong
    return None


_TYPES = {
    "string": "a string",
    "number": "a number",
    "boolean": "true or false",
    "array": "a list",
    "object": "an object",
}


def _is(kind: str, value: Any) -> bool:
    match kind:
        case "string":
            return isinstance(value, str)
        case "boolean":
            return isinstance(value, bool)
        case "array":
            return isinstance(value, list)
        case "object":
            return isinstance(value, dict)
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return number and math.isfinite(value)
