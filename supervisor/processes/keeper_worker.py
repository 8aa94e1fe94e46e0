"""A worker that the keeper started: its pipes, and what the keeper says of it."""

import os
from collections.abc import Callable, Iterable

import trio

from .kernel import CLOCK_TICKS_PER_S, PAGE_BYTES, read_tree
from .launcher import Exit, ProcessInfo, WorkerProcess

#: How long `aclose` waits for the last process: one that the kernel does not
#: let die (a dead network folder, another user's) must not hold the host.
CLOSE_LIMIT_S = 5.0


class Pipes:
    """The four pipes of a worker that is about to start: our ends and its ends."""

    def __init__(self) -> None:
        """Makes the pipes.

        Raises:
            OSError: no descriptors are free.
        """
        made: list[int] = []
        try:
            for _ in range(4):
                made.extend(os.pipe())  # close-on-exec, both ends
        except OSError:
            close_all(made)
            raise
        #: In the order of a start message: frames in, frames out, stdout, stderr.
        self.theirs = (made[0], made[3], made[5], made[7])
        #: In the same order.
        self.ours = (made[1], made[2], made[4], made[6])


class KeeperWorker(WorkerProcess):
    """A worker of this machine. Made by `KeeperLauncher.start`; the keeper's events settle it."""

    def __init__(self, ident: int, label: str, end: Callable[[int, float], None]) -> None:
        self.ident = ident
        self.label = label
        self.pid = 0
        self._keeper_pid = 0
        self._end = end
        self._exit: Exit | None = None
        self._ended = 0
        self._exited = trio.Event()
        self._gone = trio.Event()

    def take_pipes(self, ours: tuple[int, int, int, int]) -> None:
        """Wraps our ends; they are closed with this object from now on."""
        frames_in, frames_out, stdout, stderr = map(trio.lowlevel.FdStream, ours)
        self.frames_in, self.frames_out = frames_in, frames_out
        self.stdout, self.stderr = stdout, stderr

    def set_started(self, pid: int, keeper_pid: int) -> None:
        self.pid = pid
        self._keeper_pid = keeper_pid

    def set_exited(self, how: Exit) -> None:
        """The worker's own process has ended; what is said first holds."""
        if self._exit is None:
            self._exit = how
            self._exited.set()

    def set_gone(self, count: int) -> None:
        """Nothing of the tree is left; `count` processes of it have ended."""
        self.set_exited(Exit())
        if not self._gone.is_set():
            self._ended = count
            self._gone.set()

    async def wait(self) -> Exit:
        await self._exited.wait()
        assert self._exit is not None
        return self._exit

    def end(self, grace_s: float) -> None:
        if not self._gone.is_set():
            self._end(self.ident, max(0.0, grace_s))

    async def gone(self) -> int:
        await self._gone.wait()
        return self._ended

    def processes(self) -> list[ProcessInfo]:
        if self._exited.is_set():
            return []
        tree = read_tree(self.pid)
        if not tree or tree[0].ppid != self._keeper_pid:
            return []  # it died this instant, and its number may be another's
        return [
            ProcessInfo(
                pid=stat.pid,
                ppid=stat.ppid,
                memory_bytes=stat.memory_pages * PAGE_BYTES,
                cpu_s=stat.cpu_ticks / CLOCK_TICKS_PER_S,
            )
            for stat in tree
        ]

    async def aclose(self) -> None:
        self.end(0)
        with trio.CancelScope(shield=True):
            with trio.move_on_after(CLOSE_LIMIT_S):
                await self._gone.wait()
            for stream in (self.frames_in, self.frames_out, self.stdout, self.stderr):
                await stream.aclose()


def close_all(descriptors: Iterable[int]) -> None:
    for fd in descriptors:
        os.close(fd)
