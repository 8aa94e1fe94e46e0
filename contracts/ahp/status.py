"""The status bitset of sessions and chats (reference: "A session's life")."""

from typing import Any, Final

#: The five low bits exclude each other; the flags above them are independent.
ACTIVITY_MASK: Final = 0b1_1111

IDLE: Final = 1
ERROR: Final = 2
IN_PROGRESS: Final = 8
#: Contains `IN_PROGRESS`: whoever waits on a person has a turn running.
INPUT_NEEDED: Final = 24

READ: Final = 32
ARCHIVED: Final = 64


def status_of(state: dict[str, Any]) -> int:
    """The status a state or summary carries; 0 where it carries none that is a whole number."""
    value = state.get("status")
    if isinstance(value, bool):
        return 0
    if isinstance(value, int):
        return value
    return int(value) if isinstance(value, float) and value.is_integer() else 0


def activity(status: int) -> int:
    """The part of `status` that says what is going on: the five low bits."""
    return status & ACTIVITY_MASK


def with_activity(status: int, value: int) -> int:
    """`status` with its five low bits replaced by `value`; every other bit, known or not, stays."""
    return (status & ~ACTIVITY_MASK) | (value & ACTIVITY_MASK)


def with_flag(status: int, flag: int, on: bool) -> int:
    """`status` with `flag` set or cleared."""
    return status | flag if on else status & ~flag


def is_input_needed(status: int) -> bool:
    """Whether somebody has to answer something. Test this before `is_in_progress`."""
    return status & INPUT_NEEDED == INPUT_NEEDED


def is_in_progress(status: int) -> bool:
    """Whether a turn is running, waiting on a person included."""
    return status & IN_PROGRESS != 0


def is_error(status: int) -> bool:
    """Whether the last turn failed."""
    return status & ERROR != 0


def is_idle(status: int) -> bool:
    """Whether nothing is running and nothing failed."""
    return activity(status) in (0, IDLE)


def is_read(status: int) -> bool:
    """Whether a person has seen the latest."""
    return status & READ != 0


def is_archived(status: int) -> bool:
    """Whether a person put it away."""
    return status & ARCHIVED != 0
