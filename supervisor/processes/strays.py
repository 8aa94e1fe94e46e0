"""What a dead keeper leaves to the supervisor: found, killed, and reaped by number.

Workers die with their keeper (PR_SET_PDEATHSIG); what escaped from them, or
cleared that signal, falls to the supervisor, the next subreaper. It starts
nothing itself beside keepers. Every worker led a session of its own, and nobody
can join ours: so a child of another session that is no keeper and not known
is a stray.
"""

import os
import signal
import time
from collections.abc import Callable, Collection

import trio

from .keeper_link import KEEPER_PIDS
from .kernel import children_of, signal_tree
from .launcher import Exit

_FIRST_ROUND_S = 0.005
_LAST_ROUND_S = 0.1
_STRIKE_S = 0.02


def list_strays(known: Collection[int]) -> list[int]:
    """Children of this process that a dead keeper left."""
    session = os.getsid(0)
    return [
        pid
        for pid in children_of(os.getpid())
        if pid not in KEEPER_PIDS and pid not in known and _session_of(pid) not in (None, session)
    ]


async def sweep_strays(
    known: Callable[[], Collection[int]], reaped: Callable[[int, Exit], None], limit_s: float
) -> list[int]:
    """Kills strays and what they started, round after round until none is left.

    Args:
        known: children that are none.
        reaped: called with each stray's number and how it ended.
        limit_s: seconds after which it gives up.

    Returns:
        What was left when it gave up.
    """
    round_s = _FIRST_ROUND_S
    with trio.move_on_after(limit_s):
        while True:
            _strike(known(), reaped)
            strays = list_strays(known())
            if not strays:
                return []
            for pid in strays:
                signal_tree(pid, signal.SIGKILL)
            await trio.sleep(round_s)
            round_s = min(round_s * 2, _LAST_ROUND_S)
    return list_strays(known())


def _strike(known: Collection[int], reaped: Callable[[int, Exit], None]) -> None:
    """Kills and reaps without a pause, for a moment: what forks and exits is hit only so."""
    ends = time.monotonic() + _STRIKE_S
    while time.monotonic() < ends and (strays := list_strays(known)):
        for pid in reversed(strays):
            try:
                os.kill(pid, signal.SIGKILL)
            except PermissionError:
                pass  # it changed its user, and is beyond our reach
        for pid in strays:
            _reap(pid, reaped)


def _session_of(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return None  # a child of somebody's thread, reaped just now


def _reap(pid: int, reaped: Callable[[int, Exit], None]) -> None:
    dead, status = os.waitpid(pid, os.WNOHANG)
    if dead:
        code = os.waitstatus_to_exitcode(status)
        reaped(pid, Exit(code=code) if code >= 0 else Exit(signal=-code))
