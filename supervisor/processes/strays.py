"""What a dead keeper leaves to the supervisor: found, killed, and reaped by number.

Workers die with their keeper (PR_SET_PDEATHSIG); what escaped from them, or
cleared that signal, falls to the supervisor, the next subreaper. It starts
nothing itself beside keepers. Every worker led a session of its own, and nobody
can join ours: so a child of another session that is no keeper and not known
is a stray.
"""

import os
import signal
from collections.abc import Callable, Collection

import trio

from .keeper_link import KEEPER_PIDS
from .kernel import children_of, read_stat, signal_tree
from .launcher import Exit

_FIRST_ROUND_S = 0.005
_LAST_ROUND_S = 0.1


def list_strays(known: Collection[int]) -> list[int]:
    """Children of this process that a dead keeper left."""
    session = os.getsid(0)
    strays = []
    for pid in children_of(os.getpid()):
        if pid in KEEPER_PIDS or pid in known:
            continue
        stat = read_stat(pid)
        if stat is not None and stat.session != session:
            strays.append(pid)
    return strays


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
            for pid in list_strays(known()):
                signal_tree(pid, signal.SIGKILL)
            for pid in list_strays(known()):
                _reap(pid, reaped)
            if not list_strays(known()):
                return []
            await trio.sleep(round_s)
            round_s = min(round_s * 2, _LAST_ROUND_S)
    return list_strays(known())


def _reap(pid: int, reaped: Callable[[int, Exit], None]) -> None:
    dead, status = os.waitpid(pid, os.WNOHANG)
    if dead:
        code = os.waitstatus_to_exitcode(status)
        reaped(pid, Exit(code=code) if code >= 0 else Exit(signal=-code))
