"""The agent-contracts schema as tests use it: validators, and strategies of what it describes.

The schema stands beside the AHP data: `../reference/agent-contracts.schema.json`
from the folder that `AHP_DATA` names.
"""

import json
import os
import re
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import strategies as st

from ahpd.contracts import chats
from ahpd.contracts.chats import Shape

REPOSITORY = Path(__file__).resolve().parent.parent
AHP_DATA = Path(os.environ.get("AHP_DATA") or REPOSITORY / "../shared/ahp").resolve()
SCHEMA_FILE = AHP_DATA.parent / "reference" / "agent-contracts.schema.json"

#: Members that are ours beside the schema's, by the class that has them.
OURS = {"ChatInfo": {"agent"}, "ChatCreate": {"agent"}, "ProviderInfo": {"agent"}}

needs_schema = pytest.mark.skipif(
    not SCHEMA_FILE.is_file(), reason=f"there is no schema at {SCHEMA_FILE}"
)


@cache
def schema() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(SCHEMA_FILE.read_text())
    return loaded


def defined() -> dict[str, Any]:
    definitions: dict[str, Any] = schema()["$defs"]
    return definitions


@cache
def validator(name: str) -> jsonschema.Draft202012Validator:
    """What validates a value as the definition of that name."""
    return jsonschema.Draft202012Validator(
        {"$ref": f"#/$defs/{name}", "$defs": defined(), "$schema": schema()["$schema"]}
    )


def faults(name: str, value: Any) -> list[str]:
    """What the schema has against a value, one line a fault."""
    return [f"{e.json_path}: {e.message[:200]}" for e in validator(name).iter_errors(value)]


def class_of(name: str) -> type[Shape] | None:
    """Our class of a definition; None for words, unions and lists, which are no classes."""
    found = getattr(chats, name, None)
    return found if isinstance(found, type) and issubclass(found, Shape) else None


# -- instances of the schema --------------------------------------------------------

TEXT = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=6) | st.sampled_from(
    ["", " ", "a\n", "👨‍👩‍👧", "e\u0301", "-- x", "\u00a0"]
)
NUMBERS = st.integers(-5, 2**53) | st.floats(-1e6, 1e6) | st.sampled_from([0, 1, 1.0, 0.5])
ANYTHING: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXT,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXT, inner, max_size=2),
    max_leaves=4,
)
#: A text that fits each pattern of the schema.
PATTERNS = {
    r"^[a-z][a-z0-9_-]{0,63}$": st.from_regex(r"[a-z][a-z0-9_-]{0,5}", fullmatch=True),
    r"^[A-Za-z_][A-Za-z0-9_]{0,127}$": st.from_regex(r"[A-Za-z_][A-Z0-9_]{0,5}", fullmatch=True),
    r"\S": TEXT.filter(lambda text: bool(chats.trimmed(text))),
    r"^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$": st.sampled_from(
        ["AAAA", "AA==", "aGk=", "AAAAaGk="]
    ),
}


@cache
def instances(name: str) -> st.SearchStrategy[Any]:
    """Values that the definition of that name describes."""
    return st.deferred(lambda: _instances(defined()[name]))


def _instances(part: dict[str, Any]) -> st.SearchStrategy[Any]:
    if "$ref" in part:
        return instances(part["$ref"].rpartition("/")[2])
    if "const" in part:
        return st.just(part["const"])
    if "enum" in part:
        return st.sampled_from(part["enum"])
    for several in ("anyOf", "oneOf"):
        if several in part:
            return st.one_of(*map(_instances, part[several]))
    kinds = part.get("type")
    if kinds is None:
        return ANYTHING
    if isinstance(kinds, list):
        return st.one_of(*(_instances({**part, "type": kind}) for kind in kinds))
    return _OF_TYPE[kinds](part)


def _texts(part: dict[str, Any]) -> st.SearchStrategy[str]:
    if "pattern" in part:
        return PATTERNS[part["pattern"]]
    return TEXT.filter(bool) if part.get("minLength") else TEXT


def _whole_numbers(part: dict[str, Any]) -> st.SearchStrategy[Any]:
    least, most = part.get("minimum", -100), part.get("maximum", 100)
    return st.integers(least, min(most, least + 200)) | st.just(most) | st.just(float(least))


def _numbers(part: dict[str, Any]) -> st.SearchStrategy[Any]:
    least = part.get("minimum", part.get("exclusiveMinimum", -1e12))
    most = part.get("maximum", 1e12)
    floats = st.floats(least, most, allow_nan=False)
    return floats.filter(lambda n: n != part.get("exclusiveMinimum"))


def _arrays(part: dict[str, Any]) -> st.SearchStrategy[Any]:
    if "prefixItems" in part:
        return st.tuples(*map(_instances, part["prefixItems"])).map(list)
    least = part.get("minItems", 0)
    return st.lists(_instances(part["items"]), min_size=least, max_size=least + 2)


def _objects(part: dict[str, Any]) -> st.SearchStrategy[Any]:
    if "properties" not in part:
        items = _instances(part["additionalProperties"]) if "additionalProperties" in part else None
        if items is None:
            return st.just({})
        keys = _instances(part["propertyNames"]) if "propertyNames" in part else TEXT
        return st.dictionaries(keys, items, max_size=2)
    members = {key: _instances(of) for key, of in part["properties"].items()}
    required = set(part.get("required", []))
    return st.fixed_dictionaries(
        {key: of for key, of in members.items() if key in required},
        optional={key: of for key, of in members.items() if key not in required},
    )


_OF_TYPE = {
    "string": _texts,
    "integer": _whole_numbers,
    "number": _numbers,
    "boolean": lambda _: st.booleans(),
    "null": lambda _: st.none(),
    "array": _arrays,
    "object": _objects,
}

# -- and what is nearly one ---------------------------------------------------------

#: What a member is not, more often than not.
WRONG: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 1.0, 1.5, 2**53, -(2**53), 10**400, float("inf")),
    *("", "x", " ", "a\n", "claude", "A===", "x" * 81, "x" * 300, "claude\n"),
    *([], {}, [None], ["x"], ["x"] * 9, ["x"] * 70, [[1, 2, 3]], [[1, 2]], [[0, 2]]),
    *({"a": None}, {"a": "x"}, {"a": True}, {"claude": "x"}, {"kind": "user"}),
)
JUNK = st.sampled_from(WRONG)


@st.composite
def mutated(draw: st.DrawFn, values: st.SearchStrategy[Any]) -> Any:
    """A value with one thing in it gone, replaced, or added."""
    return _mutated(draw, draw(values))


def _mutated(draw: st.DrawFn, value: Any) -> Any:
    inner = list(value) if isinstance(value, dict) else range(len(value)) if _is_list(value) else ()
    if not inner or draw(st.integers(0, 3)) == 0:
        if isinstance(value, dict) and draw(st.booleans()):
            return {**value, draw(st.sampled_from(["x", "since", "agent", "title"])): draw(JUNK)}
        return draw(JUNK)
    key: Any = draw(st.sampled_from(list(inner)))
    copied = value.copy()
    if draw(st.integers(0, 3)) == 0:
        del copied[key]
    else:
        copied[key] = _mutated(draw, value[key])
    return copied


def _is_list(value: Any) -> bool:
    return isinstance(value, list)


# -- one value of each definition, and what lies at the edges of it -----------------

_EXAMPLES = {
    r"^[a-z][a-z0-9_-]{0,63}$": "work",
    r"^[A-Za-z_][A-Za-z0-9_]{0,127}$": "HOME",
    r"\S": "a title",
}


def example(name: str) -> Any:
    """A value of the definition of that name with every member there."""
    return _example(defined()[name])


def _example(part: dict[str, Any]) -> Any:
    if "$ref" in part:
        return example(part["$ref"].rpartition("/")[2])
    if "const" in part:
        return part["const"]
    if "enum" in part:
        return part["enum"][0]
    for several in ("anyOf", "oneOf"):
        if several in part:
            return _example(part[several][0])
    kinds = part.get("type")
    match kinds[0] if isinstance(kinds, list) else kinds:
        case "string":
            return _EXAMPLES.get(part.get("pattern", ""), "AAAA")
        case "integer" | "number":
            least = max(part.get("minimum", 0), part.get("exclusiveMinimum", -1) + 1)
            return min(least + 1, part.get("maximum", 10))
        case "boolean":
            return True
        case "array" if "prefixItems" in part:
            return [_example(one) for one in part["prefixItems"]]
        case "array":
            return [_example(part["items"])]
        case "object" if "properties" in part:
            return {key: _example(of) for key, of in part["properties"].items()}
        case "object" if "additionalProperties" in part:
            key = _example(part.get("propertyNames", {"type": "string"}))
            return {key: _example(part["additionalProperties"])}
    return {} if part.get("type") == "object" else {"any": ["thing", 1, None]}


def edges(part: dict[str, Any]) -> list[Any]:
    """Values just within and just beyond what a member's definition says."""
    if "$ref" in part:
        return edges(defined()[part["$ref"].rpartition("/")[2]])
    found: list[Any] = []
    for several in ("anyOf", "oneOf"):
        found += [edge for one in part.get(several, ()) for edge in edges(one)]
    for key in ("minimum", "maximum", "exclusiveMinimum"):
        if key in part:
            found += [part[key] - 1, part[key], part[key] + 1]
    for key in ("minLength", "maxLength"):
        if key in part:
            found += ["x" * (part[key] - 1), "x" * part[key], "x" * (part[key] + 1)]
    for key in ("minItems", "maxItems"):
        if key in part:
            one = _example(part["items"] if "items" in part else part["prefixItems"][0])
            found += [[one] * max(0, part[key] - 1), [one] * part[key], [one] * (part[key] + 1)]
    if "enum" in part:
        found += part["enum"]
    if part.get("type") == "array" and "items" in part:
        found += [[edge] for edge in edges(part["items"])]
    return found


# -- where our classes are stricter than the schema, by name ------------------------

STRICTER = {
    "numbers are finite, as JavaScript would read them": re.compile(r"finite number"),
    "a pattern is matched to the very end": re.compile(
        r"an account's id|the name of a variable|base64"
    ),
    "titles, branches and labels are not blank, and short": re.compile(
        r"not blank|at most (80|120) characters"
    ),
    "lengths are UTF-16 units": re.compile(r"at most \d+ characters"),
    "a message has text or an attachment": re.compile(r"or an attachment"),
    "attachments have at most 10 MiB": re.compile(r"bytes"),
    "our own optional member `agent` is a text": re.compile(r"\.agent: "),
}


def named_difference(message: str) -> str | None:
    """The name of the rule by which ours refuses what the schema lets through."""
    return next((name for name, rule in STRICTER.items() if rule.search(message)), None)
