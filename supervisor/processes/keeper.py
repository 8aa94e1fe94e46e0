"""The keeper: the parent of every worker, and the one place that forks, kills and reaps.

Started by the supervisor as `python -I -S -B keeper.py FD NOFILE`: the standard
library alone, one thread, one loop. NOFILE is the soft limit of open files that
workers get. FD is its end of a SOCK_SEQPACKET pair, one JSON object a packet:

    from the supervisor                        to the supervisor
    {op: start, id} and five descriptors:      {event: ready}
      frames in, frames out, stdout, stderr,   {event: started, id, pid}
      and a file with {argv, env, cwd}         {event: failed, id, why}
    {op: end, id, grace_s}                     {event: exited, id, code, signal}
    {op: stop, grace_s}                        {event: gone, id, count}
                                               {event: escapee, pid, name}
                                               {event: unfit, why}

How it finds what a worker left behind: the keeper and every worker are child
subreapers, so an orphan falls to its worker and, when that is gone, to the
keeper. A child is known from the statement that forks it; so any other child of
the keeper is an escapee, and is killed.

The supervisor's death is the end of file on the socket: everything is ended
then, and the keeper leaves when nothing is left.
"""

import collections
import errno
import json
import os
import resource
import select
import signal
import socket
import sys
import traceback
from typing import Any

if not __package__:
    # Run as a program: our own folder becomes the package, behind the standard library.
    sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    __package__ = os.path.basename(os.path.dirname(os.path.abspath(__file__)))

from .forking import Program, WorkerEnds, fork_worker
from .kernel import PR_SET_NAME, become_subreaper, children_of_this_thread, prctl
from .reaper import Reaper, Worker

#: Between SIGTERM and SIGKILL when the supervisor is gone without a word.
ORPHANED_GRACE_S = 0.5
#: While workers run, how often it looks for escapees that nothing announced.
SCAN_INTERVAL_S = 1.0
#: The file of a `start`: far above what execve takes, so that nothing larger is read.
MAX_PROGRAM_BYTES = 16 * 1024 * 1024
#: Unsent packets: above it nothing more is read from a supervisor that does not read.
MAX_OUTBOX_PACKETS = 4096
#: Handled in one go before the loop looks at everything else again.
MAX_PACKETS_PER_TURN = 64
#: Descriptors: each worker starting and each process in a round needs some.
WANTED_NOFILE = 65_536
PACKET_BYTES = 65_536
DESCRIPTORS_PER_START = 5


class Keeper:
    """The loop, and all it knows. Nothing in it may block."""

    def __init__(self, control: socket.socket, worker_nofile: int) -> None:
        control.setblocking(False)
        self._control = control
        self._control_fd = control.fileno()
        self._outbox: collections.deque[bytes] = collections.deque()
        #: By the supervisor's number, until nothing of the tree is left.
        self._workers: dict[int, Worker] = {}
        self._by_error_fd: dict[int, Worker] = {}
        self._reaper = Reaper(self._on_exit, self._on_gone, self._on_escapee)
        self._stopping = False
        self._supervisor_gone = False
        self._nofile = _raise_nofile(worker_nofile)
        self._wake_fd, write_fd = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.signal(signal.SIGCHLD, _ignore)
        signal.set_wakeup_fd(write_fd, warn_on_full_buffer=False)
        self._say(event="ready")

    def run(self) -> None:
        """Serves until the supervisor is gone or says stop, and nothing is left."""
        while True:
            timeout_s = self._reaper.sweep()
            if self._stopping and not children_of_this_thread():
                self._flush()
                return
            if self._reaper.has_running:
                timeout_s = min(timeout_s, SCAN_INTERVAL_S)
            self._wait(timeout_s)

    def _wait(self, timeout_s: float) -> None:
        poller = select.poll()
        poller.register(self._wake_fd, select.POLLIN)
        for fd in self._by_error_fd:
            poller.register(fd, select.POLLIN)
        if not self._supervisor_gone:
            # A hang-up is told even when nothing is asked for.
            wanted = select.POLLIN if len(self._outbox) < MAX_OUTBOX_PACKETS else 0
            poller.register(self._control, wanted | (select.POLLOUT if self._outbox else 0))
        milliseconds = None if timeout_s == float("inf") else max(0, int(timeout_s * 1000) + 1)
        for fd, happened in poller.poll(milliseconds):
            if fd == self._wake_fd:
                _drain(fd)
            elif fd in self._by_error_fd:
                self._hear_exec(self._by_error_fd[fd])
            elif fd != self._control_fd or self._supervisor_gone:
                continue
            elif happened & (select.POLLHUP | select.POLLERR | select.POLLNVAL):
                self._lose_supervisor()
            else:
                if happened & select.POLLIN:
                    self._receive()
                if happened & select.POLLOUT:
                    self._flush()

    # The supervisor

    def _receive(self) -> None:
        for _ in range(MAX_PACKETS_PER_TURN):
            try:
                data, descriptors, _, _ = socket.recv_fds(
                    self._control, PACKET_BYTES, DESCRIPTORS_PER_START, socket.MSG_CMSG_CLOEXEC
                )
            except BlockingIOError:
                return
            except OSError:
                data, descriptors = b"", []
            try:
                if not data:
                    self._lose_supervisor()
                    return
                self._obey(json.loads(data), descriptors)
            finally:
                for fd in descriptors:
                    os.close(fd)
            if len(self._outbox) >= MAX_OUTBOX_PACKETS:
                return

    def _obey(self, message: dict[str, Any], descriptors: list[int]) -> None:
        match message["op"]:
            case "start":
                self._start(message["id"], descriptors)
            case "end":
                worker = self._workers.get(message["id"])
                if worker is not None:
                    self._reaper.end(worker, message["grace_s"])
            case "stop":
                self._end_everything(message["grace_s"])

    def _lose_supervisor(self) -> None:
        if not self._supervisor_gone:
            self._supervisor_gone = True
            self._outbox.clear()
            self._control.close()
            self._end_everything(ORPHANED_GRACE_S)

    def _say(self, **message: Any) -> None:
        if not self._supervisor_gone:
            self._outbox.append(json.dumps(message).encode())
            self._flush()

    def _flush(self) -> None:
        while self._outbox:
            try:
                self._control.send(self._outbox[0])
            except BlockingIOError:
                return
            except OSError:
                self._lose_supervisor()
                return
            self._outbox.popleft()

    # Starting

    def _start(self, ident: int, descriptors: list[int]) -> None:
        what = "the worker"
        try:
            if self._stopping:
                raise InterruptedError("the host is stopping")
            if len(descriptors) != DESCRIPTORS_PER_START:
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
            program = _read_program(descriptors[-1])
            what = os.fsdecode(program.argv[0])
            ends = WorkerEnds(*descriptors[:-1])
            pid, error_fd = fork_worker(program, ends, self._nofile)
        except OSError as error:
            why = error.strerror or str(error)
            self._say(event="failed", id=ident, why=f"{what} could not be started: {why}")
            return
        worker = Worker(ident, pid, error_fd, what)
        self._reaper.adopt(worker)
        self._workers[ident] = self._by_error_fd[error_fd] = worker

    def _hear_exec(self, worker: Worker) -> None:
        """Reads how the exec went; called when the error pipe can be read or the child is dead."""
        fd = worker.error_fd
        if fd is None:
            return
        try:
            data = os.read(fd, 256)
        except BlockingIOError:
            if worker.running:
                return
            data = b""
        os.close(fd)
        del self._by_error_fd[fd]
        worker.error_fd = None
        if not data:
            self._say(event="started", id=worker.ident, pid=worker.pid)
            return
        worker.failed = True
        step, _, number = data.partition(b"\0")
        why = os.strerror(int(number)) if int(number) else "it could not be set up"
        if step == b"folder":
            why = f"its working folder cannot be entered: {why}"
        self._say(event="failed", id=worker.ident, why=f"{worker.what} could not be started: {why}")

    # Ending

    def _end_everything(self, grace_s: float) -> None:
        self._stopping = True
        self._reaper.end_everything(grace_s)

    def _on_exit(self, worker: Worker, dead: os.waitid_result) -> None:
        self._hear_exec(worker)
        if worker.failed:
            return
        by_exit = dead.si_code == os.CLD_EXITED
        self._say(
            event="exited",
            id=worker.ident,
            code=dead.si_status if by_exit else None,
            signal=None if by_exit else dead.si_status,
        )

    def _on_gone(self, worker: Worker, count: int) -> None:
        del self._workers[worker.ident]
        if not worker.failed:
            self._say(event="gone", id=worker.ident, count=count)

    def _on_escapee(self, pid: int, name: str) -> None:
        self._say(event="escapee", pid=pid, name=name)


def _read_program(fd: int) -> Program:
    size = os.fstat(fd).st_size
    if size > MAX_PROGRAM_BYTES:
        raise OSError(errno.E2BIG, os.strerror(errno.E2BIG))
    with open(fd, "rb", closefd=False) as file:
        file.seek(0)
        said = json.loads(file.read(size))
    return Program(
        argv=[_to_bytes(word) for word in said["argv"]],
        env={_to_bytes(name): _to_bytes(value) for name, value in said["env"].items()},
        cwd=_to_bytes(said["cwd"]),
    )


def _to_bytes(text: str) -> bytes:
    # Not os.fsencode: the two programs may run under different locales.
    return text.encode("utf-8", "surrogateescape")


def _raise_nofile(worker_soft: int) -> tuple[int, int]:
    """Takes more descriptors for ourselves; answers the limits that workers get."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = WANTED_NOFILE if hard == resource.RLIM_INFINITY else min(WANTED_NOFILE, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return worker_soft, hard


def _drain(fd: int) -> None:
    try:
        while os.read(fd, 4096):
            pass
    except BlockingIOError:
        pass


def _ignore(_number: int, _frame: object) -> None:
    """SIGCHLD needs a handler, or it wakes nobody."""


def main() -> int:
    """Runs the keeper; see above for its two arguments."""
    # Only the supervisor's word or its end stop us: not a terminal, not a shutdown
    # that signals everybody while workers still run.
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    control = socket.socket(fileno=int(sys.argv[1]))
    missing = _missing_means()
    if missing is not None:
        control.send(json.dumps({"event": "unfit", "why": missing}).encode())
        return 1
    become_subreaper()
    prctl(PR_SET_NAME, b"ahpd-keeper\0")
    Keeper(control, int(sys.argv[2])).run()
    return 0


def _missing_means() -> str | None:
    """What this machine lacks, as a sentence."""
    if not hasattr(os, "pidfd_open") or not hasattr(signal, "pidfd_send_signal"):
        return "this Python was built without pidfd_open, which ending processes needs (Linux 5.3)"
    try:
        os.close(os.pidfd_open(os.getpid()))
    except OSError as error:
        return f"the kernel refuses pidfd_open, which ending processes needs: {error.strerror}"
    if not os.path.exists("/proc/thread-self/children"):
        return "/proc/<pid>/task/<tid>/children is missing (a kernel without CONFIG_PROC_CHILDREN)"
    return None


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Exception:
        # Workers die with this thread; the supervisor sweeps what they leave.
        traceback.print_exc()
        sys.exit(1)
