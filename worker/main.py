"""The worker as a process: its descriptors, its one event loop, and how it leaves."""

import io
import os
import sys
import threading
import traceback
from collections.abc import Sequence
from functools import partial

import trio

from ..contracts.worker_wire import FRAMES_IN_FD, FRAMES_OUT_FD, WORKER_WIRE_VERSION, Hello
from .members import leaves
from .port import WorkerPort
from .service import serve

#: What a worker that was told to leave, or lost its host, still waits for: threads
#: that the agent left running, and tasks that do not hear their cancellation.
LEAVE_GRACE_S = 2.0

_USAGE = "usage: python -P -m ahpd.worker [--frames IN,OUT]"


def main(arguments: Sequence[str]) -> int:
    """Runs the worker until it is told to close or its host is gone; answers the exit status."""
    descriptors = _descriptors(arguments)
    if isinstance(descriptors, str):
        print(f"{descriptors}\n{_USAGE}", file=sys.stderr)
        return 2
    fd_in, fd_out = _set_apart(descriptors)
    for stream in (sys.stdout, sys.stderr):
        # What an agent prints goes to its log line by line, and never raises.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(line_buffering=True, errors="backslashreplace")
    try:
        port = WorkerPort(fd_in, fd_out, on_gone=_leave_at_once)
    except OSError as error:
        print(f"the frame descriptors {fd_in},{fd_out} cannot be used: {error}", file=sys.stderr)
        return 2
    port.tell("worker.hello", Hello(wire=WORKER_WIRE_VERSION, pid=os.getpid()))
    try:
        trio.run(serve, port, partial(_leave_within_grace, port))
    except BaseException as error:
        return _status_of(error)
    return 0


def _descriptors(arguments: Sequence[str]) -> tuple[int, int] | str:
    match list(arguments):
        case []:
            return FRAMES_IN_FD, FRAMES_OUT_FD
        case ["--frames", pair]:
            first, comma, second = pair.partition(",")
            if comma and first.isdecimal() and second.isdecimal():
                return int(first), int(second)
            return f"--frames takes two descriptor numbers, such as 3,4, not {pair!r}"
        case _:
            return "a worker takes no other arguments than --frames"


def _set_apart(descriptors: tuple[int, int]) -> tuple[int, int]:
    """Frames that came on stdin or stdout move away, so that no print can reach them."""
    fd_in, fd_out = descriptors
    if fd_in == 0:
        fd_in = os.dup(0)
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.close(null)
    if fd_out == 1:
        fd_out = os.dup(1)
        os.dup2(2, 1)
    return fd_in, fd_out


def _leave_within_grace(port: WorkerPort) -> None:
    """From now on the process has `LEAVE_GRACE_S` left, whatever still runs in it."""
    port.leave()
    timer = threading.Timer(LEAVE_GRACE_S, _leave_at_once)
    timer.daemon = True
    timer.start()


def _leave_at_once() -> None:
    # A thread of the agent may hold the interpreter open, and any thread may
    # be the one that finds the pipe broken: only this ends all of them.
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, AttributeError):
            pass  # Closed, full, or never there: nothing is lost that could be kept.
    os._exit(0)


def _status_of(error: BaseException) -> int:
    """The exit status for what ended the loop: the agent's own `sys.exit`, or a fault."""
    for leaf in leaves(error):
        if isinstance(leaf, SystemExit):
            if leaf.code is None or isinstance(leaf.code, int):
                return leaf.code or 0
            print(leaf.code, file=sys.stderr)
            return 1
    if any(isinstance(leaf, KeyboardInterrupt) for leaf in leaves(error)):
        return 130
    traceback.print_exception(error)
    return 1
