"""The status bitset: what its bits say, and that bits nobody knows stay."""

from hypothesis import given
from hypothesis import strategies as st

from ahpd.contracts.ahp.errors import AhpError, ErrorCode
from ahpd.contracts.ahp.status import (
    ACTIVITY_MASK,
    ARCHIVED,
    ERROR,
    IDLE,
    IN_PROGRESS,
    INPUT_NEEDED,
    READ,
    activity,
    is_archived,
    is_error,
    is_idle,
    is_in_progress,
    is_input_needed,
    is_read,
    status_of,
    with_activity,
    with_flag,
)


def test_the_numbers_are_the_protocols() -> None:
    numbers = (IDLE, ERROR, IN_PROGRESS, INPUT_NEEDED, READ, ARCHIVED, ACTIVITY_MASK)
    assert numbers == (1, 2, 8, 24, 32, 64, 31)


@given(st.integers(min_value=0), st.sampled_from([IDLE, ERROR, IN_PROGRESS, INPUT_NEEDED]))
def test_another_activity_leaves_every_flag(status: int, value: int) -> None:
    after = with_activity(status, value)
    assert activity(after) == value
    assert after & ~ACTIVITY_MASK == status & ~ACTIVITY_MASK


@given(st.integers(min_value=0), st.sampled_from([READ, ARCHIVED]), st.booleans())
def test_a_flag_leaves_everything_else(status: int, flag: int, on: bool) -> None:
    after = with_flag(status, flag, on)
    assert bool(after & flag) is on
    assert after & ~flag == status & ~flag


def test_who_waits_on_a_person_is_in_progress_too() -> None:
    assert is_input_needed(INPUT_NEEDED | READ) and is_in_progress(INPUT_NEEDED)
    assert not is_input_needed(IN_PROGRESS) and is_in_progress(IN_PROGRESS)
    assert is_error(ERROR) and not is_idle(ERROR) and is_idle(IDLE | ARCHIVED)
    assert is_read(READ | IDLE) and not is_read(ARCHIVED)
    assert is_archived(ARCHIVED) and not is_archived(READ)


def test_a_state_without_a_usable_status_has_none_set() -> None:
    assert [status_of(state) for state in ({}, {"status": True}, {"status": "8"})] == [0, 0, 0]
    assert status_of({"status": 8.0}) == 8


def test_an_error_says_its_message_and_its_number() -> None:
    error = AhpError(ErrorCode.SESSION_NOT_FOUND, "no session `x`", {"session": "x"})
    assert str(error) == "no session `x` (-32001)"
    assert (error.code, error.data) == (-32001, {"session": "x"})
