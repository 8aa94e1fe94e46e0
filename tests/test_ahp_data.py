"""The protocol's own cases: every reducer case of root, session and chat, and every wire shape."""

import copy
import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from ahpd.contracts.ahp.reducers import REDUCERS, same_json

DATA = Path(os.environ.get("AHP_DATA") or Path(__file__).parents[1] / ".." / "shared" / "ahp")

if not (DATA / "reducers").is_dir():
    pytest.skip(f"no AHP data at {DATA}: name its folder in AHP_DATA", allow_module_level=True)


def _load(folder: str) -> dict[str, dict[str, Any]]:
    return {path.stem: json.loads(path.read_text()) for path in sorted((DATA / folder).iterdir())}


CASES = _load("reducers")


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
    assert len(_load("round-trips")) == 39


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
