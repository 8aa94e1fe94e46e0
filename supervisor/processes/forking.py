"""From fork to exec: what a child of the keeper does to become a worker.

The standard library alone. Everything here runs in the child of a program of
one thread, so any Python may run between fork and exec.
"""

import fcntl
import os
import resource
import signal
from typing import NamedTuple, NoReturn

from .kernel import PR_SET_PDEATHSIG, become_subreaper, prctl

FRAMES_IN_FD = 3
FRAMES_OUT_FD = 4
_ERROR_FD = 5
_FIRST_SPARE_FD = 6
# Above every number that is about to be written over.
_ASIDE_FD = 16


class Program(NamedTuple):
    """What to execute, as bytes for the kernel."""

    argv: list[bytes]
    env: dict[bytes, bytes]
    cwd: bytes


class WorkerEnds(NamedTuple):
    """The worker's ends of its pipes, by their numbers in the keeper."""

    frames_in: int
    frames_out: int
    stdout: int
    stderr: int


def fork_worker(program: Program, ends: WorkerEnds, nofile: tuple[int, int]) -> tuple[int, int]:
    """Forks a child that becomes the program; answers at once with its number and its error pipe.

    The error pipe ends empty when the exec has succeeded (or the child died
    first), and else holds `step NUL errno`. It does not block.

    Args:
        nofile: the limit of open descriptors that the worker gets.

    Raises:
        OSError: no process or descriptor could be had.
    """
    keeper = os.getpid()
    error_read, error_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    # Blocked until the child has put every disposition back: a signal must
    # neither run the keeper's handlers in the child nor be lost.
    mask = signal.pthread_sigmask(signal.SIG_SETMASK, signal.valid_signals())
    try:
        pid = os.fork()
        if pid == 0:
            become_worker(program, ends, error_write, keeper, nofile)
    except OSError:
        os.close(error_read)
        raise
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        os.close(error_write)
    return pid, error_read


def become_worker(
    program: Program, ends: WorkerEnds, error_fd: int, keeper: int, nofile: tuple[int, int]
) -> NoReturn:
    """Sets this process up as a worker and executes the program; never returns.

    When a step fails it writes `step NUL errno` to the error pipe and exits
    with status 127.
    """
    step = b"setup"
    try:
        os.setsid()
        become_subreaper()
        # Told when the keeper's only thread is gone. When it was gone before
        # that was set, nobody tells: so look.
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != keeper:
            os._exit(127)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        error_fd = _place_descriptors(ends, error_fd)
        resource.setrlimit(resource.RLIMIT_NOFILE, nofile)
        _restore_signals()
        step = b"folder"
        os.chdir(program.cwd)
        step = b"program"
        os.execvpe(program.argv[0], program.argv, program.env)
    except OSError as error:
        _report(error_fd, step, error.errno or 0)
    except BaseException:
        # Nothing may unwind into the keeper's loop: this is another process.
        _report(error_fd, step, 0)
    os._exit(127)


def _place_descriptors(ends: WorkerEnds, error_fd: int) -> int:
    """Puts the pipes on their numbers, closes everything else; answers the error pipe's new one."""
    aside = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _ASIDE_FD) for fd in (*ends, error_fd)]
    null = os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC)
    os.dup2(null, 0)
    targets = (FRAMES_IN_FD, FRAMES_OUT_FD, 1, 2)
    for fd, target in zip(aside[:-1], targets, strict=True):
        os.dup2(fd, target)
    os.dup2(aside[-1], _ERROR_FD, inheritable=False)
    os.closerange(_FIRST_SPARE_FD, os.sysconf("SC_OPEN_MAX"))
    return _ERROR_FD


def _restore_signals() -> None:
    for number in signal.valid_signals():
        if number not in (signal.SIGKILL, signal.SIGSTOP):
            try:
                signal.signal(number, signal.SIG_DFL)
            except OSError:
                continue  # the C library keeps a few for itself
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _report(error_fd: int, step: bytes, number: int) -> None:
    try:
        os.write(error_fd, b"%s\0%d" % (step, number))
    except OSError:
        pass  # nobody listens any more
