"""Agents that die in the middle of a turn, each in another way."""

import ctypes
import os
import signal
import sys

import trio
from fixture_base import Agent
from hostile_base import Hostile, Plain, agent


class Exits(Hostile):
    """Leaves with status 3 and a last word; no interpreter tidies up."""

    async def misbehave(self, turn_id: str) -> None:
        print("first words", file=sys.stderr)
        print("I have had enough", file=sys.stderr)
        os._exit(3)


class ExitsWithParked(Hostile):
    """The same while two approvals and a question wait on a person."""

    async def misbehave(self, turn_id: str) -> None:
        self.park_two(turn_id)
        self.ask(turn_id)
        os._exit(3)


class ExitsNought(Hostile):
    """Leaves as if all were well."""

    async def misbehave(self, turn_id: str) -> None:
        os._exit(0)


class Aborts(Hostile):
    async def misbehave(self, turn_id: str) -> None:
        print("an assertion failed", file=sys.stderr)
        os.abort()


class SysExits(Hostile):
    """`sys.exit` from within the turn's task."""

    async def misbehave(self, turn_id: str) -> None:
        await trio.lowlevel.checkpoint()
        sys.exit(3)


class SysExitsPlainly(Plain):
    def misbehave_plainly(self, turn_id: str) -> None:
        sys.exit(3)


class Segfaults(Hostile):
    async def misbehave(self, turn_id: str) -> None:
        print("reading address nought", file=sys.stderr)
        ctypes.string_at(0)


class KillsItself(Hostile):
    async def misbehave(self, turn_id: str) -> None:
        self.park_two(turn_id)
        os.kill(os.getpid(), signal.SIGKILL)


class DiesTalking(Hostile):
    """A last line that is long, and not fit for a terminal."""

    async def misbehave(self, turn_id: str) -> None:
        os.write(2, b"\x1b[2J\xff" + b"w" * 5000)
        os._exit(4)


def exits() -> Agent:
    return agent(Exits)


def exits_with_parked() -> Agent:
    return agent(ExitsWithParked)


def exits_nought() -> Agent:
    return agent(ExitsNought)


def aborts() -> Agent:
    return agent(Aborts)


def sys_exits() -> Agent:
    return agent(SysExits)


def sys_exits_plainly() -> Agent:
    return agent(SysExitsPlainly)


def segfaults() -> Agent:
    return agent(Segfaults)


def kills_itself() -> Agent:
    return agent(KillsItself)


def dies_talking() -> Agent:
    return agent(DiesTalking)
