"""What Linux offers to hold a process tree: prctl, `/proc`, pidfds. The standard library alone.

Used on both sides: by the keeper, which runs without our packages, and by the
supervisor. Nothing here decides whom to end; it only finds, looks and signals.
"""

import ctypes
import os
import signal
from typing import NamedTuple

PR_SET_PDEATHSIG = 1
PR_SET_NAME = 15
PR_SET_CHILD_SUBREAPER = 36

#: How much of one tree is looked at in one round. A larger tree takes more
#: rounds; each needs a descriptor a process while it lasts.
MAX_TREE_PER_ROUND = 2048

CLOCK_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class Stat(NamedTuple):
    """What `/proc/<pid>/stat` says of a process."""

    pid: int
    name: str
    state: str
    ppid: int
    group: int
    session: int
    cpu_ticks: int
    threads: int
    #: Clock ticks after boot; with the number it names a process beyond reuse.
    started_ticks: int
    memory_pages: int

    @property
    def identity(self) -> tuple[int, int]:
        """What tells this process from a later one of the same number."""
        return self.pid, self.started_ticks

    @property
    def is_dead(self) -> bool:
        """A zombie through and through: not one whose first thread alone has ended."""
        return self.state in "ZX" and self.threads <= 1


class _Held(NamedTuple):
    stat: Stat
    pidfd: int


def prctl(option: int, argument: int | bytes) -> None:
    """Calls prctl(2).

    Raises:
        OSError: the kernel refused.
    """
    value = argument if isinstance(argument, bytes) else ctypes.c_ulong(argument)
    zero = ctypes.c_ulong(0)
    if _libc.prctl(ctypes.c_int(option), value, zero, zero, zero) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def become_subreaper() -> None:
    """Makes this process the new parent of every orphan among its descendants.

    It survives exec; children do not inherit it.
    """
    prctl(PR_SET_CHILD_SUBREAPER, 1)


def read_stat(pid: int) -> Stat | None:
    """What the kernel says of a process, zombies too; None when it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            text = file.read()
    except OSError:
        return None
    # The name may hold spaces and brackets: a process names itself.
    opening, closing = text.find(b"("), text.rfind(b")")
    fields = text[closing + 2 :].split()
    if opening < 0 or len(fields) < 22:
        return None
    return Stat(
        pid=pid,
        name=text[opening + 1 : closing].decode("utf-8", "replace"),
        state=fields[0].decode("ascii", "replace"),
        ppid=int(fields[1]),
        group=int(fields[2]),
        session=int(fields[3]),
        cpu_ticks=int(fields[11]) + int(fields[12]),
        threads=int(fields[17]),
        started_ticks=int(fields[19]),
        memory_pages=int(fields[21]),
    )


def children_of(pid: int) -> list[int]:
    """The children of every thread of a process; empty when it is gone.

    It may miss one while a sibling is being reaped.
    """
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return []
    found: list[int] = []
    for thread in threads:
        try:
            with open(f"/proc/{pid}/task/{thread}/children", "rb") as file:
                found.extend(map(int, file.read().split()))
        except OSError:
            continue
    return found


def children_of_this_thread() -> list[int]:
    """Our own children, the oldest first, quickly.

    Exact in a program of one thread: nobody leaves the list unless we reap.
    """
    with open("/proc/thread-self/children", "rb", buffering=0) as file:
        data = file.read()
    return [int(word) for word in data.split()]


def read_tree(root: int) -> list[Stat]:
    """A process and its descendants, parents first, without zombies.

    For looking only, as a number may be another's by the time it is used.
    """
    found: list[Stat] = []
    pending = [root]
    met = {root}
    while pending and len(found) < MAX_TREE_PER_ROUND:
        stat = read_stat(pending.pop(0))
        if stat is None or stat.is_dead:
            continue
        found.append(stat)
        for child in children_of(stat.pid):
            if child not in met:
                met.add(child)
                pending.append(child)
    return found


def signal_tree(root: int, signal_number: int) -> list[Stat]:
    """Signals a child of this process and all its descendants that live; says who they are.

    Each is opened as a pidfd first and then looked at again: it is signalled
    only when its parent is the one through which it was found, and that parent
    still holds its number. So no reused number is ever hit. What reparents or
    is born meanwhile is missed and belongs to the next round.
    """
    held: list[_Held] = []
    met = {root}
    try:
        first = _hold(root, os.getpid(), None)
        if first is None:
            return []
        held.append(first)
        for parent in held:  # grows while it is walked: breadth first
            for pid in children_of(parent.stat.pid):
                if pid in met or len(held) >= MAX_TREE_PER_ROUND:
                    continue
                met.add(pid)
                child = _hold(pid, parent.stat.pid, parent.pidfd)
                if child is not None:
                    held.append(child)
        for process in held:
            _send(process.pidfd, signal_number)
        return [process.stat for process in held]
    finally:
        for process in held:
            os.close(process.pidfd)


def descends_from(pid: int, ancestor: int) -> bool | None:
    """Whether a process is a descendant of another; None when the chain could not be read."""
    for _ in range(100_000):
        stat = read_stat(pid)
        if stat is None:
            return None
        if stat.ppid == ancestor:
            return True
        if stat.ppid <= 1:
            return False
        pid = stat.ppid
    return None


def _hold(pid: int, parent: int, parent_pidfd: int | None) -> _Held | None:
    try:
        pidfd = os.pidfd_open(pid)
    except OSError:
        # Gone already, or no descriptor is free: then the next round has some.
        return None
    stat = read_stat(pid)
    # `parent` is ourselves when it has no pidfd. Else its number must still be
    # its own after we read that it is the parent.
    if (
        stat is not None
        and not stat.is_dead
        and stat.ppid == parent
        and (parent_pidfd is None or _holds_number(parent_pidfd))
    ):
        return _Held(stat, pidfd)
    os.close(pidfd)
    return None


def _holds_number(pidfd: int) -> bool:
    try:
        signal.pidfd_send_signal(pidfd, 0)
    except PermissionError:
        return True  # alive, under another user
    except OSError:
        return False
    return True


def _send(pidfd: int, signal_number: int) -> None:
    try:
        signal.pidfd_send_signal(pidfd, signal_number)
    except OSError:
        # Reaped meanwhile, or it changed its user and is beyond our reach.
        pass


_libc = ctypes.CDLL(None, use_errno=True)
