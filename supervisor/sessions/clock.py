"""The host's clocks: wall time as AHP writes it, and durations in milliseconds."""

import re
from datetime import UTC, datetime

import trio

_TIMESTAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)")


def now() -> str:
    """The current time, RFC 3339 in UTC with milliseconds: `2026-10-01T00:00:01.500Z`."""
    return format_time(datetime.now(UTC))


def unix_ms() -> int:
    """Milliseconds since the Unix epoch."""
    return int(datetime.now(UTC).timestamp() * 1000)


def unix_ms_of(text: str) -> int | None:
    """Milliseconds since the Unix epoch of a moment as AHP writes it; None for no moment."""
    if not is_timestamp(text):
        return None
    return int(datetime.fromisoformat(text).timestamp() * 1000)


def format_time(moment: datetime) -> str:
    """A moment as AHP writes it."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def is_timestamp(text: str) -> bool:
    """Whether `text` is a moment that every client can read."""
    if not _TIMESTAMP.fullmatch(text):
        return False
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


class Stopwatch:
    """How long something has run, by a clock that nobody sets back.

    Args:
        elapsed_ms: how long it had run already, in an earlier life of the host.
    """

    def __init__(self, elapsed_ms: float = 0) -> None:
        self._started_s = trio.current_time() - elapsed_ms / 1000

    @property
    def elapsed_ms(self) -> int:
        """Whole milliseconds since it was made, never negative."""
        return max(0, round((trio.current_time() - self._started_s) * 1000))
