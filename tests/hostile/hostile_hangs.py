"""Agents that never come back: in Python, in C, stopped, deaf to a cancel or to SIGTERM."""

import ctypes
import os
import signal
import time
from typing import Any

import trio
from fixture_base import Agent
from hostile_base import Hostile, Plain, agent


class Loops(Hostile):
    """An endless loop that never lets the worker's own loop run."""

    async def misbehave(self, turn_id: str) -> None:
        while True:
            pass


class LoopsPlainly(Plain):
    def misbehave_plainly(self, turn_id: str) -> None:
        while True:
            pass


class LoopsCatchingAll(Hostile):
    """Waits, and takes every exception that comes for a reason to go on: a cancel too."""

    async def misbehave(self, turn_id: str) -> None:
        while True:
            try:
                await trio.sleep(3600)
            except BaseException:
                time.sleep(0.01)  # noqa: ASYNC251  # what hostile code does


class SleepsInC(Hostile):
    """No Python runs any more, and every signal that can be is blocked."""

    async def misbehave(self, turn_id: str) -> None:
        _sleep_in_c()


class SleepsInCPlainly(Plain):
    def misbehave_plainly(self, turn_id: str) -> None:
        _sleep_in_c()


class Stopped(Hostile):
    async def misbehave(self, turn_id: str) -> None:
        os.kill(os.getpid(), signal.SIGSTOP)
        await trio.sleep_forever()


class IgnoresSigterm(Hostile):
    """And does not hear its cancellation either."""

    async def misbehave(self, turn_id: str) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        with trio.CancelScope(shield=True):
            await trio.sleep_forever()


class NeverSettles(Hostile):
    """Parks two approvals and a question, and leaves them so, whatever it is told."""

    def confirm(self, tool_call_id: str, approved: bool) -> bool:
        return False

    async def misbehave(self, turn_id: str) -> None:
        self.park_two(turn_id)
        self.ask(turn_id)
        with trio.CancelScope(shield=True):
            await trio.sleep_forever()


class NeverSettlesPlainly(Plain):
    """The same in its own ways: `cancel` answers that it does not."""

    def misbehave_plainly(self, turn_id: str) -> None:
        self.park_two(turn_id)
        self.ask(turn_id)

    def cancel(self, turn_id: str) -> bool:
        return False


class CancelHangs(Plain):
    """Whose `cancel` never answers."""

    def misbehave_plainly(self, turn_id: str) -> None:
        self.park_two(turn_id)

    def cancel(self, turn_id: str) -> Any:
        while True:
            pass


class ParksInSubagent(Hostile):
    """Two requests of its own, and one in the chat of a subagent that it opens."""

    async def misbehave(self, turn_id: str) -> None:
        self.park_two(turn_id)
        handle = self.start.subagent(f"{turn_id}-one", {"title": "Below", "text": "go"})
        chat_id = handle.chat_uri.rpartition("/")[2]
        request = {"id": f"{chat_id}-question", "message": "Down here?"}
        handle.emit({"type": "chat/inputRequested", "request": request})
        with trio.CancelScope(shield=True):
            await trio.sleep_forever()


def _sleep_in_c() -> None:
    libc = ctypes.CDLL(None)
    every = (ctypes.c_ubyte * 128)(*([0xFF] * 128))
    libc.sigprocmask(0, every, None)  # SIG_BLOCK
    # With the interpreter's lock held: no other thread of it ever runs again.
    pylibc = ctypes.PyDLL(None)
    while True:
        pylibc.sleep(3600)


def loops() -> Agent:
    return agent(Loops)


def loops_plainly() -> Agent:
    return agent(LoopsPlainly)


def takes_no_turn() -> Agent:
    """The same, for a host that is left to find out by itself."""
    return agent(LoopsPlainly)


def loops_catching_all() -> Agent:
    return agent(LoopsCatchingAll)


def sleeps_in_c() -> Agent:
    return agent(SleepsInC)


def sleeps_in_c_plainly() -> Agent:
    return agent(SleepsInCPlainly)


def stopped() -> Agent:
    return agent(Stopped)


def ignores_sigterm() -> Agent:
    return agent(IgnoresSigterm)


def never_settles() -> Agent:
    return agent(NeverSettles)


def never_settles_plainly() -> Agent:
    return agent(NeverSettlesPlainly)


def cancel_hangs() -> Agent:
    return agent(CancelHangs)


def parks_in_subagent() -> Agent:
    return agent(ParksInSubagent)
