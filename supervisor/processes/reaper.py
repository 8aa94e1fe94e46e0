"""The keeper's children: ended, hunted down, reaped by number, counted. The standard library alone.

Workers are known from the statement that forks them. Any other child of ours
is an escapee: it belonged to a worker that is gone, or got past a living one,
and is killed. Death needs no walk of the tree: whatever a dead process leaves
falls to us, and is struck in its turn.
"""

import os
import signal
import time
from collections.abc import Callable

from .kernel import Stat, children_of_this_thread, read_stat, signal_tree

#: Between two looks at what was killed: doubles from the first to the last.
FIRST_ROUND_S = 0.005
LAST_ROUND_S = 0.25
#: A killed process that is still there so long after is looked into: its tree is
#: walked and signalled too.
WALK_AFTER_S = 0.1
#: Hunting in one go, before the keeper listens again.
MAX_TURN_S = 0.02
#: Processes of one worker remembered by identity.
MAX_MET = 65_536


class Worker:
    """A worker from its fork until nothing of its tree is left."""

    def __init__(self, ident: int, pid: int, error_fd: int, what: str) -> None:
        self.ident = ident
        self.pid = pid
        #: Open until the exec has succeeded or failed.
        self.error_fd: int | None = error_fd
        self.failed = False
        self.what = what
        self.running = True
        #: When SIGKILL is due; None while nobody asked to end it.
        self.kill_at: float | None = None
        #: The processes of its tree that were told to end, or killed.
        self.met: set[tuple[int, int]] = set()

    def meet(self, stats: list[Stat]) -> None:
        if len(self.met) < MAX_MET:
            self.met.update(stat.identity for stat in stats)


class Escapee:
    """An unknown child of the keeper, and whose tree it may have belonged to."""

    def __init__(self, owners: list[Worker], shares_grace: bool, met_at: float) -> None:
        self.owners = owners
        #: It was met in its owner's tree or bears its session.
        self.shares_grace = shares_grace
        self.met_at = met_at


class Reaper:
    """Owns all children of a program of one thread.

    Args:
        on_exit: told once how a worker's own process ended, when it is reaped.
        on_gone: told once when nothing of a worker's tree is left, and how many
            processes of it have ended.
        on_escapee: told of an unknown child that was nobody's, by number and name.
    """

    def __init__(
        self,
        on_exit: Callable[[Worker, os.waitid_result], None],
        on_gone: Callable[[Worker, int], None],
        on_escapee: Callable[[int, str], None],
    ) -> None:
        self._on_exit = on_exit
        self._on_gone = on_gone
        self._on_escapee = on_escapee
        #: Children by number, from their fork until they are reaped.
        self._known: dict[int, Worker] = {}
        #: Until nothing of the tree is left.
        self._workers: list[Worker] = []
        self._escapees: dict[int, Escapee] = {}
        #: Children that SIGKILL was sent to, and when: it is enough once.
        self._struck: dict[int, float] = {}
        self._next_due = float("inf")
        self._round_s = FIRST_ROUND_S
        self._group = os.getpgrp()

    @property
    def has_running(self) -> bool:
        """Whether a worker's own process runs, or is not reaped yet."""
        return bool(self._known)

    def adopt(self, worker: Worker) -> None:
        """Makes a child known: before anything else is done after its fork."""
        self._known[worker.pid] = worker
        self._workers.append(worker)

    def end(self, worker: Worker, grace_s: float) -> None:
        """SIGTERM to the whole tree now, SIGKILL after the grace; a shorter grace replaces one."""
        first = worker.kill_at is None
        due = time.monotonic() + grace_s
        worker.kill_at = due if worker.kill_at is None else min(worker.kill_at, due)
        self._round_s = FIRST_ROUND_S
        if first and grace_s > 0 and worker.running:
            worker.meet(signal_tree(worker.pid, signal.SIGTERM))

    def end_everything(self, grace_s: float) -> None:
        """Ends every worker; see `end`."""
        for worker in self._workers:
            self.end(worker, grace_s)

    def sweep(self) -> float:
        """One round over everything that has to end. Answers in how many seconds to look again."""
        turn_ends = time.monotonic() + MAX_TURN_S
        hunting = True
        while hunting and time.monotonic() < turn_ends:
            self._reap(turn_ends)
            hunting = self._strike()
        now = time.monotonic()
        for pid, struck_at in self._struck.items():
            if struck_at + WALK_AFTER_S <= now:
                # The kernel does not let it die yet, so its children do not fall to us.
                signal_tree(pid, signal.SIGKILL)
        if hunting:
            return 0.0  # what was found last may have left children
        self._tell_gone()
        wait_s = max(0.0, self._next_due - now)
        if not self._struck:
            self._round_s = FIRST_ROUND_S
            return wait_s
        wait_s = min(wait_s, self._round_s)
        self._round_s = min(self._round_s * 2, LAST_ROUND_S)
        return wait_s

    def _strike(self) -> bool:
        """Kills every child that is due, the youngest first; answers whether there was one.

        What forks and exits as fast as it can is hit only when next to nothing
        is done between finding and killing it. A number alone is safe here: it
        is a child's until we reap it. What a child leaves behind falls to us and
        is struck in the next round.
        """
        now = time.monotonic()
        self._next_due = float("inf")
        somebody_has_time = any(_in_grace(worker, now) for worker in self._workers)
        found = False
        for pid in reversed(children_of_this_thread()):
            if pid in self._struck:
                continue
            worker = self._known.get(pid)
            if worker is not None:
                due = float("inf") if worker.kill_at is None else worker.kill_at
            else:
                due = self._escapee_due(pid, now) if somebody_has_time else now
            if due > now:
                self._next_due = min(self._next_due, due)
                continue
            try:
                os.kill(pid, signal.SIGKILL)
            except PermissionError:
                pass  # it changed its user, and is beyond our reach
            found = True
            # Most children of what forks and exits are dead when they are found:
            # they cost nothing more until they are reaped.
            if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
                self._struck[pid] = now
                if worker is None and pid not in self._escapees:
                    self._meet_escapee(pid, now)
        return found

    def _escapee_due(self, pid: int, now: float) -> float:
        """When an unknown child has to be killed.

        What was told to end together with its worker has the same grace, also
        when the worker was the quicker one. Everything else has none.
        """
        escapee = self._escapees.get(pid) or self._meet_escapee(pid, now)
        if escapee.shares_grace:
            dues = [one.kill_at for one in escapee.owners if one.kill_at is not None]
            return min(dues, default=escapee.met_at)
        return escapee.met_at

    def _meet_escapee(self, pid: int, now: float) -> Escapee:
        session = os.getsid(pid)
        owners = [one for one in self._workers if one.pid == session]
        if not owners:
            stat = read_stat(pid)
            owners = [one for one in self._workers if stat is not None and stat.identity in one.met]
        shares_grace = bool(owners)
        if not owners:
            # Nobody can tell whose it was: everyone who is on the way out waits for it.
            owners = [one for one in self._workers if not one.running or one.kill_at is not None]
        if not owners:
            self._on_escapee(pid, stat.name if stat is not None else "")
        escapee = self._escapees[pid] = Escapee(owners, shares_grace, now)
        self._round_s = FIRST_ROUND_S
        return escapee

    def _reap(self, turn_ends: float) -> None:
        """Reaps what died, by number."""
        now = time.monotonic()
        somebody_has_time = any(_in_grace(worker, now) for worker in self._workers)
        groups = {self._group}
        while time.monotonic() < turn_ends:
            try:
                # Only looks who it is (WNOWAIT): a status is taken by number, for its owner.
                dead = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if dead is None:
                return
            pid = dead.si_pid
            worker = self._known.get(pid)
            if worker is not None:
                has_time = _in_grace(worker, now)
            else:
                has_time = somebody_has_time and self._escapee_due(pid, now) > now
            group = os.getpgid(pid)
            if group not in groups and not has_time and not self._may_be_wanted(pid, worker, now):
                groups.add(group)
                _kill_group(group)
            by_kill = dead.si_code != os.CLD_EXITED and dead.si_status == signal.SIGKILL
            if worker is None and by_kill:
                self._count_killed(pid, now)
            os.waitpid(pid, 0)
            self._escapees.pop(pid, None)
            self._struck.pop(pid, None)
            if worker is not None:
                del self._known[pid]
                worker.running = False
                self._on_exit(worker, dead)

    def _may_be_wanted(self, pid: int, worker: Worker | None, now: float) -> bool:
        """Whether a dead child's group may be of a worker that nobody ends."""
        if worker is not None:
            return False
        owner = self._known.get(os.getsid(pid))
        if owner is not None:
            return owner.kill_at is None or owner.kill_at > now
        return all(one.running and one.kill_at is None for one in self._workers)

    def _count_killed(self, pid: int, now: float) -> None:
        escapee = self._escapees.get(pid) or self._meet_escapee(pid, now)
        stat = read_stat(pid)
        if escapee.owners and stat is not None:
            escapee.owners[0].meet([stat])

    def _tell_gone(self) -> None:
        waited_for = {id(owner) for one in self._escapees.values() for owner in one.owners}
        for worker in [one for one in self._workers if not one.running]:
            if id(worker) not in waited_for:
                self._workers.remove(worker)
                others = {pid for pid, _ in worker.met} - {worker.pid}
                self._on_gone(worker, 1 + len(others))


def _in_grace(worker: Worker, now: float) -> bool:
    return worker.kill_at is not None and worker.kill_at > now


def _kill_group(group: int) -> None:
    """Kills a process group at one stroke: also what forks faster than it can be found.

    Only while an unreaped child of ours is its member: then the number is taken,
    and all its members are of a worker's tree, since a group can be joined only
    from within its session.
    """
    try:
        os.killpg(group, signal.SIGKILL)
    except OSError:
        pass  # nobody but the dead is in it, or it is another user's
