"""Over the protocol's own cases: what is said to an older client fits that version's schema.

A case holds what it needs and no more, so not each of its states is a whole
one. Those that the schema of 0.9 takes as they are must, through a lens, be
taken by the schema of every older version.
"""

from typing import Any

import pytest

from ahpd.contracts.ahp.lens import lens_for
from ahpd.contracts.ahp.reducers import REDUCERS
from old_reducers import VERSIONS, knows, lens_version, release_of
from test_lens_law import CASES, without_nulls
from version_schema import THERE, faults

Json = dict[str, Any]

pytestmark = pytest.mark.skipif(not (THERE and CASES), reason="no AHP data: name it in AHP_DATA")

_STATES = {"root": "RootState", "session": "SessionState", "chat": "ChatState"}
_OLDER = [version for version in VERSIONS if release_of(version) < (0, 10)]


@pytest.mark.parametrize("version", _OLDER)
def test_states_and_actions_of_the_cases_fit_the_schema_of(version: str) -> None:
    lens = lens_for(lens_version(version))
    states = actions = 0
    for name, case in CASES.items():
        family = case["reducer"]
        state = without_nulls(case["initial"])
        for action in without_nulls(case["actions"]):
            before, state = state, REDUCERS[family](state, action)
            if faults("0.9.0", _STATES[family], state) == []:
                shown = lens.snapshot(family, state)
                assert faults(version, _STATES[family], shown) == [], name
                states += 1
            if state is before or faults("0.9.0", "StateAction", action):
                continue
            for said in lens.actions(action, before, state):
                assert knows(version, said["type"]), name
                assert faults(version, "StateAction", said) == [], name
                actions += 1
    assert states > 60 and actions > 100, (states, actions)


def test_the_schema_of_a_version_refuses_another_versions_failed_turn() -> None:
    """Else the tests above would prove nothing."""
    error = {"errorType": "e", "message": "m"}
    ended = {"type": "chat/error", "turnId": "t", "duration": 1}
    new, old = {**ended, "part": {"kind": "error", "error": error}}, {**ended, "error": error}
    assert faults("0.9.0", "StateAction", new) == []
    assert faults("0.9.0", "StateAction", old) != []
    assert faults("0.8.0", "StateAction", old) == []
    assert faults("0.8.0", "StateAction", new) != []
