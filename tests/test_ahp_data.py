"""The protocol's own cases: every reducer case of root, session and chat, and every wire shape."""

import copy
import json
import os
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from ahp_actions import INITIAL, WELL_FORMED
from ahpd.contracts.ahp import action_shapes, commands, jsonrpc
from ahpd.contracts.ahp.actions import ACTIONS, check_action
from ahpd.contracts.ahp.checks import Check, Optional
from ahpd.contracts.ahp.reducers import REDUCERS
from ahpd.contracts.ahp.status import status_of, with_activity
from ahpd.contracts.json import decode_json, encode_json, same_json
from ahpd.contracts.shapes import structure, unstructure

DATA = Path(os.environ.get("AHP_DATA") or Path(__file__).parents[1] / ".." / "shared" / "ahp")

if not (DATA / "reducers").is_dir():
    pytest.skip(f"no AHP data at {DATA}: name its folder in AHP_DATA", allow_module_level=True)


def _load(folder: str) -> dict[str, dict[str, Any]]:
    return {path.stem: json.loads(path.read_text()) for path in sorted((DATA / folder).iterdir())}


CASES = _load("reducers")
TRIPS = _load("round-trips")


def without_nulls(value: Any) -> Any:
    """In the data null means absent; on the wire absent is absent."""
    if isinstance(value, dict):
        return {key: without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [without_nulls(item) for item in value]
    return value


def _reduced(case: dict[str, Any], initial: Any, actions: list[Any]) -> Any:
    reduce = REDUCERS[case["reducer"]]
    state = initial
    for action in actions:
        before, said = copy.deepcopy(state), copy.deepcopy(action)
        after = reduce(state, action)
        assert same_json(state, before), "the reducer changed the state it was given"
        assert same_json(action, said), "the reducer changed the action it was given"
        assert after is state or not same_json(after, before), "nothing changed, yet a new state"
        state = after
    return state


@pytest.mark.parametrize("name", CASES)
def test_reducer_case(name: str) -> None:
    case = CASES[name]
    if case["reducer"] not in REDUCERS:
        pytest.skip(f"{name}: no reducer for {case['reducer']} yet")
    initial, actions = without_nulls(case["initial"]), without_nulls(case["actions"])
    # Exact: a key that holds None where the case has none is a failure.
    assert _reduced(case, initial, actions) == without_nulls(case["expected"])


@pytest.mark.parametrize("name", [n for n, c in CASES.items() if c["reducer"] in REDUCERS])
def test_reducer_case_with_its_nulls_left_in(name: str) -> None:
    case = CASES[name]
    reduced = _reduced(case, case["initial"], case["actions"])
    assert without_nulls(reduced) == without_nulls(case["expected"])


def test_the_data_holds_as_many_cases_as_we_think() -> None:
    counts = Counter(case["reducer"] for case in CASES.values())
    assert (counts["root"], counts["session"], counts["chat"]) == (5, 56, 115)
    assert len(TRIPS) == 39


def test_the_run_says_how_many_cases_wait_for_a_reducer(
    capsys: pytest.CaptureFixture[str],
) -> None:
    waiting = Counter(c["reducer"] for c in CASES.values() if c["reducer"] not in REDUCERS)
    with capsys.disabled():
        print(f"\n{waiting.total()} reducer cases wait for their reducer: {dict(waiting)}")
    assert waiting.total() == len(CASES) - 5 - 56 - 115


def test_comparing_tells_an_absent_key_from_a_null_one() -> None:
    expected = without_nulls(CASES["014-session-turncomplete-finalizes-turn"]["expected"])
    with_null = {**expected, "activeTurn": None}
    assert with_null != expected
    assert without_nulls(with_null) == expected


# -- the table of actions, against the protocol's own list and schema -----------

FAMILIES = ("root", "session", "chat")
LISTED = json.loads((DATA / "actions.json").read_text())["actions"]
DEFINITIONS = json.loads((DATA / "schema" / "actions.schema.json").read_text())["$defs"]

#: Where the schema, 0.8's, is known to say something else than 1.0's shapes do.
CHANGED_SINCE = {"session/customizationToggled": {"enabled", "enablement"}}
#: Members of one half of a union, which the table holds in a check of the whole.
BY_APPROVAL = {"confirmed", "editedToolInput", "reason", "reasonMessage", "userSuggestion"}


def _schema_variants(name: str) -> list[dict[str, Any]]:
    schema = DEFINITIONS[name]
    parts = schema.get("oneOf") or schema.get("anyOf")
    return [DEFINITIONS[_name(part)] for part in parts] if parts else [schema]


def _name(reference: dict[str, str]) -> str:
    return reference["$ref"].rpartition("/")[2]


def _schemas_by_type() -> dict[str, str]:
    names = [_name(reference) for reference in DEFINITIONS["StateAction"]["oneOf"]]
    of_type = {n: _schema_variants(n)[0]["properties"]["type"] for n in names}
    return {schema.get("const") or schema["enum"][0]: name for name, schema in of_type.items()}


SCHEMAS = _schemas_by_type()


def test_the_table_lists_every_action_with_who_may_dispatch_it_and_since_when() -> None:
    assert {
        kind: {"clientDispatchable": rule.client, "introducedIn": rule.introduced_in}
        for kind, rule in ACTIONS.items()
    } == LISTED


@pytest.mark.parametrize("kind", [k for k in SCHEMAS if k.partition("/")[0] in FAMILIES])
def test_the_table_has_the_schemas_members(kind: str) -> None:
    variants, rule = _schema_variants(SCHEMAS[kind]), ACTIONS[kind]
    named = set().union(*(variant["properties"] for variant in variants)) - {"type"}
    needed = set.intersection(*(set(v.get("required", [])) for v in variants)) - {"type"}
    required = {name for name, member in rule.fields.items() if not isinstance(member, Optional)}
    changed = CHANGED_SINCE.get(kind, set())
    halves = BY_APPROVAL if kind == "chat/toolCallConfirmed" else set()
    assert named ^ set(rule.fields) <= changed | halves | {"_meta"}
    assert needed ^ required <= changed


def _actions_of_the_data() -> list[dict[str, Any]]:
    said = [action for case in CASES.values() for action in without_nulls(case["actions"])]
    for trip in TRIPS.values():
        if trip["type"] == "StateAction":
            said.append(trip["input"])
        elif trip["type"] == "ActionEnvelope":
            said.append(trip["input"]["action"])
    unique = {json.dumps(action, sort_keys=True): action for action in said}
    return [a for a in unique.values() if a["type"].partition("/")[0] in FAMILIES]


def test_every_action_of_the_data_is_well_formed() -> None:
    assert [fault for action in _actions_of_the_data() if (fault := check_action(action))] == []


def _places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, item in items:
        yield (*at, key)
        if isinstance(item, (dict, list)):
            yield from _places(item, (*at, key))


def _spoilt(action: dict[str, Any], place: tuple[Any, ...], how: Any) -> dict[str, Any]:
    spoilt = copy.deepcopy(action)
    inner = spoilt
    for key in place[:-1]:
        inner = inner[key]
    if how is GONE:
        del inner[place[-1]]
    else:
        inner[place[-1]] = how
    return spoilt


GONE = object()


def test_the_table_refuses_what_the_schema_refuses_and_nothing_else() -> None:
    """Spoils every member of every action of the data, and compares both opinions."""
    seen = 0
    for action in _actions_of_the_data():
        kind = action["type"]
        if kind not in SCHEMAS or kind in CHANGED_SINCE:
            continue
        schema = Draft202012Validator({"$ref": f"#/$defs/{SCHEMAS[kind]}", "$defs": DEFINITIONS})
        assert schema.is_valid(action), action
        for place in _places(action):
            if place == ("type",):
                continue
            for how in (GONE, 12345, 1.5, True, [], {}):
                spoilt = _spoilt(action, place, how)
                taken = check_action(spoilt) is None
                seen += 1
                if taken != schema.is_valid(spoilt):
                    assert (place[-1], how) in KNOWN_DIFFERENCES, (kind, place, how, taken)
    assert seen > 5_000


#: The schema takes anything as `approved`; 1.0 made `enabled` optional; that only
#: a server's call waits for a token is a rule of the reducer, not of the shape.
KNOWN_DIFFERENCES = [("approved", how) for how in (12345, 1.5, True, [], {})] + [
    ("enabled", GONE),
    ("contributor", GONE),
]
# -- wire shapes ----------------------------------------------------------------


def _through_json(value: Any) -> Any:
    return decode_json(encode_json(value))


def _held(check: Check) -> Callable[[Any], Any]:
    def trip(value: Any) -> Any:
        assert check(value, "value") is None
        return _through_json(value)

    return trip


def _notified(method: str) -> Callable[[Any], Any]:
    def trip(value: Any) -> Any:
        read = jsonrpc.parse_message(jsonrpc.notification(method, value))
        assert isinstance(read, jsonrpc.Notification)
        return read.params

    return trip


def _envelope(value: Any) -> Any:
    assert check_action(value["action"]) is None
    return _notified("action")(value)


def _dispatched(value: Any) -> Any:
    assert check_action(value) is None
    params = {"channel": "ahp-chat:/1", "clientSeq": 1, "action": value}
    read = structure(_through_json(params), commands.DispatchAction)
    return unstructure(read)["action"]


def _message(value: Any) -> Any:
    match jsonrpc.parse_message(encode_json(value)):
        case jsonrpc.Request() as call:
            written = jsonrpc.request(call.id, call.method, call.params)
        case jsonrpc.Notification() as call:
            written = jsonrpc.notification(call.method, call.params)
        case jsonrpc.Response(error=None) as answer:
            assert answer.id is not None
            written = jsonrpc.success(answer.id, answer.result)
        case jsonrpc.Response(error=refused) as answer:
            assert refused is not None
            written = jsonrpc.error(answer.id, refused.code, refused.message, refused.data)
        case malformed:
            pytest.fail(str(malformed))
    return decode_json(written)


def _status(value: Any) -> Any:
    return with_activity(status_of({"status": _through_json(value)}), value)


#: How each shape passes through the host. A shape that is state passes as it is.
PASSAGES: dict[str, Callable[[Any], Any]] = {
    "ActionEnvelope": _envelope,
    "StateAction": _dispatched,
    "JsonRpcMessage": _message,
    "Implementation": lambda value: unstructure(structure(value, commands.Implementation)),
    "SessionStatus": _status,
    "StringOrMarkdown": _held(action_shapes.PROSE),
    "Customization": _held(action_shapes.CUSTOMIZATION),
    "ChatInputQuestion": _held(action_shapes.QUESTION),
    "ChatSource": _held(action_shapes.CHAT_SOURCE),
    "SessionAddedParams": _notified("root/sessionAdded"),
    "SessionSummary": _through_json,
    "PartialSessionSummary": _through_json,
    "InitializeResult": _through_json,
    "ChangesetOperationTarget": _through_json,
}


@pytest.mark.parametrize("name", TRIPS)
def test_round_trip(name: str) -> None:
    trip = TRIPS[name]
    passed = PASSAGES[trip["type"]](trip["input"])
    expected = trip.get("preservedOutput")
    if expected is None:
        assert any(same_json(passed, output) for output in trip["acceptableOutputs"])
    else:
        assert same_json(passed, expected)


# -- states that we reduce, against the schema of states ------------------------

STATES = json.loads((DATA / "schema" / "state.schema.json").read_text())["$defs"]
STATE_NAMES = {"root": "RootState", "session": "SessionState", "chat": "ChatState"}


@pytest.mark.parametrize("family", STATE_NAMES)
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_well_formed_actions_reduce_to_states_of_the_schema(
    family: str, data: st.DataObject
) -> None:
    schema = Draft202012Validator({"$ref": f"#/$defs/{STATE_NAMES[family]}", "$defs": STATES})
    state = INITIAL[family]
    for action in data.draw(st.lists(WELL_FORMED[family], max_size=25)):
        state = REDUCERS[family](state, action)
    # 1.0's customizations carry `enablement` where this schema asks for `enabled`.
    state = {key: value for key, value in state.items() if key != "customizations"}
    assert [error.message for error in schema.iter_errors(state)] == []
