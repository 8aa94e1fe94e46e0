"""The law of the lens: that version's reducer, over what it was sent, is at what it would be sent.

For each version, over random runs and over the protocol's own cases: the
snapshot before, reduced by that version's reducer with the actions said, equals
the snapshot after. Masked: `modifiedAt` of a chat, which older reducers read
from a clock, the low status bits of a session, which no action carries, and an
empty `partialInput`, which is an absent one.
"""

import copy
import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ahp_actions import INITIAL
from ahpd.contracts.ahp.lens import Lens, lens_for
from ahpd.contracts.ahp.lens.differences import waiting_for_snapshot
from ahpd.contracts.ahp.reducers import REDUCERS
from ahpd.contracts.json import same_json
from lens_actions import ACTIONS_BY_FAMILY, BEGINNINGS, runs
from old_reducers import VERSIONS, lens_version, reducer_of, release_of
from old_reducers.vocabulary import wrong_in_action, wrong_in_state

Json = dict[str, Any]

DATA = Path(os.environ.get("AHP_DATA") or Path(__file__).parents[1] / ".." / "shared" / "ahp")


def masked(family: str, version: str, state: Json) -> Json:
    state = copy.deepcopy(state)
    if family == "session":
        state["status"] &= ~0b11111
    if family == "chat" and release_of(version) < (0, 10):
        state.pop("modifiedAt", None)
    if family == "chat" and release_of(version) < (0, 7):
        for turn in [*state["turns"], state.get("activeTurn") or {}]:
            for part in turn.get("responseParts", ()):
                if part.get("toolCall", {}).get("partialInput") == "":
                    del part["toolCall"]["partialInput"]
    return state


def without_folder(state: Json) -> Json:
    return {key: value for key, value in state.items() if key != "workingDirectory"}


def says_an_id_again(state: Json, action: Json) -> bool:
    """A turn's and a call's id is unique in its chat: the host drops what opens one again."""
    turns = [*state.get("turns", ()), *filter(None, [state.get("activeTurn")])]
    if action["type"] == "chat/turnStarted":
        return any(turn["id"] == action["turnId"] for turn in turns)
    return action["type"] == "chat/toolCallStart" and any(
        part.get("toolCall", {}).get("toolCallId") == action["toolCallId"]
        for turn in turns
        for part in turn["responseParts"]
    )


def hold_the_law(version: str, family: str, initial: Json, actions: list[Json]) -> None:
    lens: Lens = lens_for(lens_version(version))
    reduce = reducer_of(version, family)
    waiting = waiting_for_snapshot(release_of(version))
    canonical, seen = initial, lens.snapshot(family, initial)
    for action in actions:
        before, canonical = canonical, REDUCERS[family](canonical, action)
        if canonical is before or says_an_id_again(before, action):
            canonical = before
            continue
        was, said_was = copy.deepcopy(before), copy.deepcopy(action)
        said = lens.actions(action, before, canonical)
        fresh = lens.snapshot(family, canonical)
        assert same_json(before, was) and same_json(action, said_was), "the lens changed its input"
        assert len(said) <= 1 or lens.needs_states(action)
        for one in said:
            assert wrong_in_action(version, one) == []
            seen = reduce(seen, one)
        assert wrong_in_state(version, family, fresh) == []
        if action["type"] in waiting:
            # The table says so: this client sees it with its next snapshot, and nothing else.
            assert said == []
            shown, held = (masked(family, version, one) for one in (fresh, seen))
            assert without_folder(held) == without_folder(shown)
            seen = fresh
        assert masked(family, version, seen) == masked(family, version, fresh), (action, said)


@pytest.mark.parametrize("family", ["root", "session", "chat"])
@pytest.mark.parametrize("version", VERSIONS)
def test_reducing_what_is_said_gives_the_next_snapshot(version: str, family: str) -> None:
    @settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
    @given(st.sampled_from(BEGINNINGS[family]), runs(family))
    def law(beginning: Json, actions: list[Json]) -> None:
        hold_the_law(version, family, beginning, actions)

    law()


def _cases() -> dict[str, Json]:
    folder = DATA / "reducers"
    if not folder.is_dir():
        return {}
    read = {path.stem: json.loads(path.read_text()) for path in sorted(folder.iterdir())}
    return {name: case for name, case in read.items() if case["reducer"] in REDUCERS}


def without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [without_nulls(item) for item in value]
    return value


CASES = _cases()


@pytest.mark.skipif(not CASES, reason=f"no AHP data at {DATA}: name its folder in AHP_DATA")
@pytest.mark.parametrize("version", VERSIONS)
def test_the_protocols_own_cases_keep_the_law(version: str) -> None:
    for case in CASES.values():
        hold_the_law(
            version,
            case["reducer"],
            without_nulls(case["initial"]),
            without_nulls(case["actions"]),
        )


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(ACTIONS_BY_FAMILY["chat"], max_size=14))
def test_a_page_of_turns_is_what_a_snapshot_would_show_of_them(actions: list[Json]) -> None:
    state = INITIAL["chat"]
    for action in actions:
        state = REDUCERS["chat"](state, action)
    for version in VERSIONS:
        lens = lens_for(lens_version(version))
        page = {"type": "chat/turnsLoaded", "turns": state["turns"]}
        (said,) = lens.actions(page, None, None)
        assert said["turns"] == lens.snapshot("chat", state)["turns"]


@pytest.mark.parametrize("family", ["root", "session", "chat"])
def test_what_does_not_differ_is_the_very_same_object(family: str) -> None:
    @settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
    @given(st.lists(ACTIONS_BY_FAMILY[family], max_size=8))
    def law(actions: list[Json]) -> None:
        state = INITIAL[family]
        for action in actions:
            after = REDUCERS[family](state, action)
            for version in ("1.0.0", "1.4.2", "0.10.0"):
                lens = lens_for(version)
                assert lens.snapshot(family, after) is after
                (said,) = lens.actions(action, state, after)
                assert said is action
            for version in VERSIONS:
                lens = lens_for(lens_version(version))
                shown = lens.snapshot(family, after)
                assert shown is after or shown != after
            state = after

    law()
