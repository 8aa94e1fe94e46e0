"""Agents that write what no worker writes, or more than anybody can read."""

import os
import random
import sys
import time
from typing import Any

import trio
from fixture_base import Agent
from hostile_base import Hostile, Plain, agent

FLOOD = 100_000

#: Fewer of these: nothing gathers them, so each is read by the test's own clients.
TITLES = 3_000


#: Each of these becomes some 10 MB of objects in whoever holds it.
DENSE = 10


class Garbage(Hostile):
    """Random bytes into every descriptor that takes some, then half a frame."""

    async def misbehave(self, turn_id: str) -> None:
        noise = random.Random(5).randbytes(3000) + b"\n"
        for name in os.listdir("/proc/self/fd"):
            for data in (noise, b'{"type":"eve'):
                try:
                    os.write(int(name), data)
                except OSError:
                    continue
        await trio.sleep_forever()


class HalfAFrame(Hostile):
    """The beginning of a good frame, and no end."""

    async def misbehave(self, turn_id: str) -> None:
        write_raw(b'{"type":"event","event":"turn.over","payl')
        with trio.CancelScope(shield=True):
            await trio.sleep_forever()


class HugeFrame(Hostile):
    """One frame of 1 GiB."""

    async def misbehave(self, turn_id: str) -> None:
        write_raw(b'{"type":"event","event":"agent.emit","payload":"')
        for _ in range(1024):
            write_raw(b"x" * 1024 * 1024)
        write_raw(b'"}\n')


class DenseFrame(Hostile):
    """A good action just within the limit of bytes, of as many small values as go in."""

    async def misbehave(self, turn_id: str) -> None:
        self.emit("chat", _dense_part(turn_id, 0, 1_500_000))
        await trio.sleep_forever()


class FloodsDense(Hostile):
    """Actions just within the limit of values."""

    async def misbehave(self, turn_id: str) -> None:
        for number in range(DENSE):
            self.emit("chat", _dense_part(turn_id, number, 49_000))


def _dense_part(turn_id: str, number: int, objects: int) -> dict[str, Any]:
    part = {"kind": "markdown", "id": f"{turn_id}-{number}", "content": ""}
    dense = {"_meta": {"dense": [{"": None}] * objects}}
    return {"type": "chat/responsePart", "turnId": turn_id, "part": {**part, **dense}}


class FallsSilent(Plain):
    """Closes what it was given to speak through, and lives on."""

    def misbehave_plainly(self, turn_id: str) -> None:
        os.close(4)
        while True:
            time.sleep(1)


class Forged(Hostile):
    """A frame that is well made and that no worker may send: it asks the host."""

    async def misbehave(self, turn_id: str) -> None:
        write_raw(b'{"type":"host.stop","id":"1","payload":{}}\n')
        await trio.sleep_forever()


class FloodsDeltas(Hostile):
    """100,000 deltas that keep every rule, as fast as the pipe takes them."""

    async def misbehave(self, turn_id: str) -> None:
        self.say(turn_id, "", "flood")
        delta = {"type": "chat/delta", "turnId": turn_id, "partId": f"{turn_id}-flood"}
        for number in range(FLOOD):
            self.emit("chat", {**delta, "content": f"{number} "})


class FloodsDeltasForEver(Hostile):
    async def misbehave(self, turn_id: str) -> None:
        self.say(turn_id, "", "flood")
        delta = {"type": "chat/delta", "turnId": turn_id, "partId": f"{turn_id}-flood"}
        while True:
            self.emit("chat", {**delta, "content": "more "})


class FloodsBroken(Hostile):
    """100,000 deltas for a part that nobody opened."""

    async def misbehave(self, turn_id: str) -> None:
        for number in range(FLOOD):
            part_id = f"{turn_id}-{number}"
            delta = {"type": "chat/delta", "turnId": turn_id, "partId": part_id}
            self.emit("chat", {**delta, "content": "x"})


class FloodsTitles(Hostile):
    """Changes that a session's row mirrors, so that they concern everybody who lists it."""

    async def misbehave(self, turn_id: str) -> None:
        for number in range(TITLES):
            self.emit("session", {"type": "session/titleChanged", "title": f"title {number}"})


class FloodsParts(Hostile):
    """As many parts as it can, each a small one of its own."""

    async def misbehave(self, turn_id: str) -> None:
        for number in range(FLOOD):
            self.say(turn_id, "x", f"part-{number}")


class FloodsComplaints(Hostile):
    """Each time another rule that the worker itself saw broken, which is counted for nobody."""

    async def misbehave(self, turn_id: str) -> None:
        for number in range(FLOOD // 10):
            write_raw(
                b'{"type":"event","event":"worker.ruleBroken",'
                b'"payload":{"rule":"none","detail":"complaint %d"}}\n' % number
            )


class FloodsOutput(Hostile):
    """Prints without end, on both."""

    async def misbehave(self, turn_id: str) -> None:
        while True:
            os.write(1, b"\x00out " * 10_000)
            os.write(2, b"\x1b]err " * 10_000)


def write_raw(data: bytes) -> None:
    """Writes all of it into the frames' own descriptor."""
    sys.stdout.flush()
    while data:
        data = data[os.write(4, data) :]


def garbage() -> Agent:
    return agent(Garbage)


def half_a_frame() -> Agent:
    return agent(HalfAFrame)


def huge_frame() -> Agent:
    return agent(HugeFrame)


def dense_frame() -> Agent:
    return agent(DenseFrame)


def floods_dense() -> Agent:
    return agent(FloodsDense)


def falls_silent() -> Agent:
    return agent(FallsSilent)


def forged() -> Agent:
    return agent(Forged)


def floods_deltas() -> Agent:
    return agent(FloodsDeltas)


def floods_deltas_for_ever() -> Agent:
    return agent(FloodsDeltasForEver)


def floods_broken() -> Agent:
    return agent(FloodsBroken)


def floods_titles() -> Agent:
    return agent(FloodsTitles)


def floods_parts() -> Agent:
    return agent(FloodsParts)


def floods_complaints() -> Agent:
    return agent(FloodsComplaints)


def floods_output() -> Agent:
    return agent(FloodsOutput)
