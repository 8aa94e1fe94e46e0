"""The mark of a host: what every process of its conversations has in its environment.

By it the next host on a state directory finds what an earlier one left, when
both the supervisor and its keeper were killed at once and nobody could end it.
What cleared its environment is missed.
"""

import hashlib
import os
import signal
import time
from pathlib import Path

from .kernel import read_stat

MARK_VARIABLE = "AHPD_MARK"

#: An environment is read no further.
MAX_ENVIRONMENT_BYTES = 4 * 1024 * 1024

FIRST_ROUND_S = 0.005
LAST_ROUND_S = 0.1


def mark_of(state_dir: Path) -> str:
    """The mark of the host on a state directory: the same in each of its lives."""
    return hashlib.sha256(str(state_dir.resolve()).encode()).hexdigest()[:16]


def list_marked(mark: str) -> list[int]:
    """This user's processes that bear the mark, and live; this one is none of them."""
    wanted = f"{MARK_VARIABLE}={mark}".encode()
    return [
        pid
        for name in os.listdir("/proc")
        if name.isdecimal() and (pid := int(name)) != os.getpid() and _bears(pid, wanted)
    ]


def end_marked(mark: str, limit_s: float) -> tuple[int, list[int]]:
    """Kills every process that bears the mark, round after round until none is left.

    Blocks; for the start of a host, before it has any process of its own.

    Returns:
        How many were found in all, and those that were left after the limit.
    """
    met: set[tuple[int, int]] = set()
    ends = time.monotonic() + limit_s
    round_s = FIRST_ROUND_S
    wanted = f"{MARK_VARIABLE}={mark}".encode()
    while (marked := list_marked(mark)) and time.monotonic() < ends:
        for pid in marked:
            _kill(pid, wanted, met)
        time.sleep(round_s)
        round_s = min(round_s * 2, LAST_ROUND_S)
    return len(met), marked


def _kill(pid: int, wanted: bytes, met: set[tuple[int, int]]) -> None:
    try:
        pidfd = os.pidfd_open(pid)
    except OSError:
        return  # gone
    try:
        # Looked at again: by now the number may be another's.
        stat = read_stat(pid)
        if stat is not None and _bears(pid, wanted):
            met.add(stat.identity)
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)
    except OSError:
        pass  # it ended meanwhile, or changed its user and is beyond our reach
    finally:
        os.close(pidfd)


def _bears(pid: int, wanted: bytes) -> bool:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            environment = file.read(MAX_ENVIRONMENT_BYTES)
    except OSError:
        return False  # gone, or another user's
    if wanted not in environment.split(b"\0"):
        return False
    stat = read_stat(pid)
    return stat is not None and not stat.is_dead
