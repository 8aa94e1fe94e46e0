"""Starts workers through the keeper, and starts another keeper when that one dies.

`async with open_keeper() as launcher:` is the way in. Linux alone.
"""

import json
import os
import sys
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from typing import Any

import structlog
import trio

from . import descriptors
from .keeper_link import KeeperLink
from .keeper_worker import KeeperWorker, Pipes, close_all
from .kernel import become_subreaper, descends_from, read_stat
from .launcher import Exit, Launcher, LaunchError, LaunchSpec
from .strays import list_strays, sweep_strays

#: From `start` to a process that runs, a new keeper included.
START_LIMIT_S = 30.0

#: Between SIGTERM and SIGKILL for what still runs when the launcher is left.
STOP_GRACE_S = 0.5

#: From the launcher's leaving to the keeper's: then it is killed, and its workers with it.
STOP_LIMIT_S = 5.0

#: What a dead keeper left has this long to die before the next one starts.
SWEEP_LIMIT_S = 5.0

#: Between two tries to start a keeper: doubles from the first to the last.
FIRST_RETRY_S = 0.1
LAST_RETRY_S = 10.0

_log = structlog.get_logger(__name__)


@asynccontextmanager
async def open_keeper(
    *,
    known_children: Callable[[], Collection[int]] = frozenset,
    on_keeper_death: Callable[[int], None] | None = None,
) -> AsyncIterator["KeeperLauncher"]:
    """A launcher with a running keeper. On leaving, every worker's tree is ended.

    Makes this process a child subreaper for good, so that what a dead keeper
    leaves falls to us. An exception of the body comes out in a group, as from
    any nursery.

    Args:
        known_children: processes of another session that this program started
            itself; they are never taken for strays of a dead keeper.
        on_keeper_death: called with how many workers it took along, before the
            next keeper starts.

    Raises:
        LaunchError: workers cannot be started on this machine; the sentence says why.
    """
    if sys.platform != "linux":
        raise LaunchError("workers can be started on Linux only, for now")
    become_subreaper()
    launcher = KeeperLauncher(await KeeperLink.start(), known_children, on_keeper_death)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(launcher._run)
        try:
            yield launcher
        finally:
            await launcher._stop()


class KeeperLauncher(Launcher):
    """Starts workers on this machine. Made by `open_keeper`; not for subclassing."""

    def __init__(
        self,
        link: KeeperLink,
        known_children: Callable[[], Collection[int]],
        on_keeper_death: Callable[[int], None] | None,
    ) -> None:
        self._link: KeeperLink | None = link
        self._up = trio.Event()
        self._up.set()
        self._known_children = known_children
        self._on_keeper_death = on_keeper_death
        self._workers: dict[int, KeeperWorker] = {}
        self._starting: dict[int, _Starting] = {}
        self._last_ident = 0
        self._stopping = False
        self._stopped = trio.Event()
        self._scope = trio.CancelScope(shield=True)

    @property
    def pid(self) -> int | None:
        """The keeper's process; None between two keepers."""
        return self._link.pid if self._link is not None else None

    def is_descendant(self, pid: int) -> bool:
        """Whether a process belongs to a worker's tree, or may: for those who ask over a socket.

        What cannot be looked at any more counts as one, and so does what a dead
        keeper left to us.
        """
        if read_stat(pid) is None:
            return True
        ancestors = set(list_strays(self._known_children()))
        if self._link is not None:
            ancestors.add(self._link.pid)
        return any(
            pid == ancestor or descends_from(pid, ancestor) is not False for ancestor in ancestors
        )

    async def start(self, spec: LaunchSpec) -> KeeperWorker:
        program = _pack(spec)
        with trio.move_on_after(START_LIMIT_S):
            while not self._stopping:
                await self._up.wait()
                worker = await self._try_start(spec, program)
                if worker is not None:
                    return worker
        if self._stopping:
            raise LaunchError("the worker could not be started: the host is stopping")
        raise LaunchError(f"the worker could not be started within {START_LIMIT_S:g} s")

    async def _try_start(self, spec: LaunchSpec, program: bytes) -> KeeperWorker | None:
        """None: the keeper died before it answered."""
        link = self._link
        if link is None:
            return None
        if descriptors.are_scarce():
            raise LaunchError(f"the worker could not be started: {descriptors.scarcity()}")
        try:
            program_fd = _file_of(program)
            try:
                pipes = Pipes()
            except OSError:
                os.close(program_fd)
                raise
        except OSError as error:
            raise LaunchError(f"the worker could not be started: {error.strerror}") from error
        self._last_ident += 1
        ident = self._last_ident
        worker = KeeperWorker(ident, spec.label, self._end)
        starting = self._starting[ident] = _Starting()
        self._workers[ident] = worker
        link.post({"op": "start", "id": ident}, (*pipes.theirs, program_fd))
        try:
            await starting.answered.wait()
        except trio.Cancelled:
            close_all(pipes.ours)
            self._end(ident, 0)
            raise
        finally:
            del self._starting[ident]
        if starting.why is not None or not starting.started:
            close_all(pipes.ours)
            if starting.why is not None:
                raise LaunchError(starting.why)
            return None
        worker.take_pipes(pipes.ours)
        return worker

    def _end(self, ident: int, grace_s: float) -> None:
        if self._link is not None:
            self._link.post({"op": "end", "id": ident, "grace_s": grace_s})

    async def _run(self) -> None:
        """Keeps a keeper until `_stop`. Shielded: a cancelled host's workers are ended in order."""
        with self._scope:
            try:
                while self._link is not None:
                    await self._link.run(self._hear)
                    link, self._link = self._link, None
                    self._up = trio.Event()
                    await link.aclose()
                    await self._settle_death()
                    self._link = await self._next_keeper()
                    self._up.set()
            finally:
                if self._link is not None:
                    await self._link.aclose()
                self._stopped.set()

    async def _next_keeper(self) -> KeeperLink | None:
        pause_s = FIRST_RETRY_S
        while not self._stopping:
            try:
                link = await KeeperLink.start()
                if self._stopping:
                    _post_stop(link)
                return link
            except LaunchError as error:
                _log.error("no keeper", why=str(error), next_try_s=pause_s)
            await trio.sleep(pause_s)
            pause_s = min(pause_s * 2, LAST_RETRY_S)
        return None

    async def _settle_death(self) -> None:
        """Ends what a dead keeper left and tells everybody who waits for one of its workers."""
        lost = list(self._workers.values())
        if not self._stopping:
            _log.error("the keeper died; its workers are ended", workers=len(lost))
        pids = {worker.pid: worker for worker in lost if worker.pid}

        def reaped(pid: int, how: Exit) -> None:
            if pid in pids:
                pids[pid].set_exited(how)

        left = await sweep_strays(self._known_children, reaped, SWEEP_LIMIT_S)
        if left:
            _log.error("processes of a dead keeper cannot be ended", pids=left)
        for starting in self._starting.values():
            starting.answered.set()
        for worker in lost:
            worker.set_gone(1)
        self._workers.clear()
        if self._on_keeper_death is not None and not self._stopping:
            self._on_keeper_death(len(lost))

    async def _stop(self) -> None:
        self._stopping = True
        with trio.CancelScope(shield=True):
            if self._link is not None:
                _post_stop(self._link)
            with trio.move_on_after(STOP_LIMIT_S):
                await self._stopped.wait()
            if self._link is not None and not self._stopped.is_set():
                _log.error("the keeper does not end; it is killed", pid=self._link.pid)
                self._link.kill()
                with trio.move_on_after(STOP_LIMIT_S + SWEEP_LIMIT_S):
                    await self._stopped.wait()
            self._scope.cancel()

    def _hear(self, said: dict[str, Any]) -> None:
        if said["event"] == "escapee":
            _log.warning("a process left its worker's tree and is killed", **_named(said))
            return
        ident = said["id"]
        worker = self._workers.get(ident)
        starting = self._starting.get(ident)
        if worker is None:
            return
        match said["event"]:
            case "started":
                assert self._link is not None
                worker.set_started(said["pid"], self._link.pid)
                if starting is not None:
                    starting.started = True
                    starting.answered.set()
            case "failed":
                del self._workers[ident]
                if starting is not None:
                    starting.why = said["why"]
                    starting.answered.set()
            case "exited":
                worker.set_exited(Exit(code=said["code"], signal=said["signal"]))
            case "gone":
                del self._workers[ident]
                worker.set_gone(said["count"])


class _Starting:
    """A start that waits for the keeper's word; neither started nor why: the keeper died."""

    def __init__(self) -> None:
        self.answered = trio.Event()
        self.started = False
        self.why: str | None = None


def _post_stop(link: KeeperLink) -> None:
    link.post({"op": "stop", "grace_s": STOP_GRACE_S})


def _named(said: dict[str, Any]) -> dict[str, Any]:
    return {"pid": said["pid"], "process": said["name"]}


def _pack(spec: LaunchSpec) -> bytes:
    """The spec as the keeper reads it. Bytes of any kind pass as surrogate escapes."""
    if not spec.argv or not spec.argv[0]:
        raise LaunchError("the worker could not be started: no program is named")
    words = [*spec.argv, spec.cwd, *spec.env.keys(), *spec.env.values()]
    if any("\0" in word for word in words) or any("=" in name or not name for name in spec.env):
        raise LaunchError(
            "the worker could not be started: a NUL in its arguments or environment, "
            "or a variable without a proper name"
        )
    try:
        said = {
            "argv": [_as_utf8(word) for word in spec.argv],
            "env": {_as_utf8(name): _as_utf8(value) for name, value in spec.env.items()},
            "cwd": _as_utf8(spec.cwd),
        }
    except UnicodeEncodeError as error:
        raise LaunchError(
            f"the worker could not be started: its arguments or environment hold {error.object!r}, "
            "which this locale cannot say"
        ) from None
    return json.dumps(said).encode("ascii")


def _as_utf8(word: str) -> str:
    # What the kernel would get from here, whatever the keeper's own locale is.
    return os.fsencode(word).decode("utf-8", "surrogateescape")


def _file_of(data: bytes) -> int:
    # A packet is limited by the socket's buffer, a file in memory is not.
    fd = os.memfd_create("ahpd-start", os.MFD_CLOEXEC)
    try:
        with open(fd, "wb", closefd=False) as file:
            file.write(data)
    except OSError:
        os.close(fd)
        raise
    return fd
