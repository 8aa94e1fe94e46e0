"""Agents that leave processes behind, each out of its worker's reach in another way.

Every stray ignores what can be ignored, holds the worker's pipes open where it
can, and has its number told in the turn.
"""

import os
import signal
import subprocess
import sys
from typing import Any

import trio
from fixture_base import Agent
from hostile_base import Hostile, agent

#: A process that hears nothing and says its number on a pipe once it hears nothing.
STRAY = """
import os, signal, sys, time
for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
    try:
        signal.signal(number, signal.SIG_IGN)
    except OSError:
        pass
os.write(int(sys.argv[1]), b"%d " % os.getpid())
os.close(int(sys.argv[1]))
time.sleep(3600)
"""


def leave_strays() -> list[int]:
    """Starts five that escape and answers their numbers, when each of them is deaf."""
    read, write = os.pipe()
    stray = [sys.executable, "-S", "-c", STRAY, str(write)]
    given: dict[str, Any] = {"pass_fds": [write]}
    # A session of its own, with the worker's stdout and stderr.
    subprocess.Popen(stray, start_new_session=True, **given)
    # As the tools do it, and without a trace of the worker's environment.
    subprocess.Popen(["setsid", *stray], env={}, **given)
    subprocess.Popen(["nohup", *stray], stdout=subprocess.DEVNULL, **given)
    # An orphan: its parent is gone at once.
    subprocess.Popen(["/bin/sh", "-c", '"$@" &', "sh", *stray], **given)
    _fork_twice(write)
    os.close(write)
    with os.fdopen(read) as told:
        return [int(number) for number in told.read().split()]


def _fork_twice(write: int) -> None:
    """A daemon by the book, without exec: it keeps the worker's frames open as well."""
    first = os.fork()
    if first:
        os.waitpid(first, 0)
        return
    os.setsid()
    if os.fork():
        os._exit(0)
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    os.write(write, b"%d " % os.getpid())
    os.close(write)
    while True:
        signal.pause()


def leave_by_nohup() -> list[int]:
    """Starts one as a shell does and answers its number, when it is deaf."""
    read, write = os.pipe()
    stray = [sys.executable, "-S", "-c", STRAY, str(write)]
    line = 'nohup "$@" >/dev/null 2>&1 &'
    subprocess.Popen(["/bin/sh", "-c", line, "sh", *stray], pass_fds=[write])
    os.close(write)
    with os.fdopen(read) as told:
        return [int(number) for number in told.read().split()]


class LeavesAndExits(Hostile):
    async def misbehave(self, turn_id: str) -> None:
        self.tell(turn_id, {"strays": leave_strays()})
        os._exit(3)


class LeavesAndWaits(Hostile):
    """And has two approvals open, deaf to SIGTERM and to its cancel."""

    async def misbehave(self, turn_id: str) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        self.park_two(turn_id)
        self.tell(turn_id, {"strays": leave_strays()})
        with trio.CancelScope(shield=True):
            await trio.sleep_forever()


class LeavesAndCompletes(Hostile):
    """Its turn ends as it should; what it started goes on."""

    async def misbehave(self, turn_id: str) -> None:
        self.tell(turn_id, {"strays": leave_strays()})


class LeavesByNohup(Hostile):
    """As a shell's `nohup … &` leaves one behind; and says goodbye as if all were well."""

    async def misbehave(self, turn_id: str) -> None:
        self.tell(turn_id, {"strays": leave_by_nohup()})
        os._exit(0)


class StartsProcesses(Hostile):
    """Starts processes as fast as it can: a hundred, each of which starts two more."""

    async def misbehave(self, turn_id: str) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        read, write = os.pipe()
        for _ in range(100):
            if os.fork() == 0:
                _be_many(write)
        os.close(write)
        with os.fdopen(read) as told:
            self.tell(turn_id, {"strays": [int(number) for number in told.read().split()]})
        with trio.CancelScope(shield=True):
            await trio.sleep_forever()


def _be_many(write: int) -> None:
    """This process and two more, in a session of their own; none hears or returns."""
    os.setsid()
    if os.fork():
        os.fork()
    os.write(write, b"%d " % os.getpid())
    os.close(write)
    while True:
        signal.pause()


class ForksWithoutEnd(Hostile):
    """A chain: each process starts the next and leaves, so that none is there for long."""

    async def misbehave(self, turn_id: str) -> None:
        if os.fork() == 0:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            while True:
                os.setsid()
                if os.fork():
                    os._exit(0)
        with trio.CancelScope(shield=True):
            await trio.sleep_forever()


class StopsItsKeeper(Hostile):
    """Stops who would end it, which runs as the same user; then itself."""

    async def misbehave(self, turn_id: str) -> None:
        os.kill(os.getppid(), signal.SIGSTOP)
        os.kill(os.getpid(), signal.SIGSTOP)


def leaves_and_exits() -> Agent:
    return agent(LeavesAndExits)


def leaves_and_waits() -> Agent:
    return agent(LeavesAndWaits)


def leaves_and_completes() -> Agent:
    return agent(LeavesAndCompletes)


def leaves_by_nohup() -> Agent:
    return agent(LeavesByNohup)


def starts_processes() -> Agent:
    return agent(StartsProcesses)


def stops_its_keeper() -> Agent:
    return agent(StopsItsKeeper)


def forks_without_end() -> Agent:
    return agent(ForksWithoutEnd)
