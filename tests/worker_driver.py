"""Drives a real worker process over real pipes, as the host does."""

import fcntl
import os
import signal
import subprocess
import sys
import termios
from array import array
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import trio

from ahpd.contracts.frames import (
    BadFrame,
    Event,
    Failure,
    LineDecoder,
    Request,
    Success,
    encode_frame,
    parse_server_frame,
)

#: What a test may take in all, a loaded machine included.
TEST_LIMIT_S = 60.0

#: Of one answer or one event.
WAIT_LIMIT_S = 20.0

FIXTURE_AGENTS = Path(__file__).parent / "fixtures_agents"

SESSION_URI = "ahp-session:/s1"
CHAT_URI = "ahp-chat:/s1"


class Driver:
    """One worker: its requests, and everything it said, in order."""

    def __init__(self, process: trio.Process, to_worker: int, from_worker: int) -> None:
        self.process = process
        #: Every frame since the start, in order.
        self.frames: list[Event | Success | Failure | BadFrame] = []
        self.stdout = b""
        self.stderr = b""
        #: While False, nothing is read and the pipe fills.
        self.reading = True
        self.gone = trio.Event()
        self._to_worker = trio.lowlevel.FdStream(to_worker)
        self._from_worker = trio.lowlevel.FdStream(from_worker)
        self._said = trio.Condition()
        self._resumed = trio.Event()
        self._ids = 0

    # -- asking -----------------------------------------------------------------------

    async def send(self, kind: str, payload: Any) -> str:
        """Sends a request without waiting for its answer; answers its id."""
        self._ids += 1
        ident = f"r{self._ids}"
        await self.send_bytes(encode_frame(Request(id=ident, type=kind, payload=payload)) + b"\n")
        return ident

    async def send_bytes(self, data: bytes) -> None:
        await self._to_worker.send_all(data)

    async def reply(self, ident: str) -> Success | Failure:
        frame = await self.until(lambda f: isinstance(f, (Success, Failure)) and f.id == ident)
        assert isinstance(frame, (Success, Failure))
        return frame

    async def ask(self, kind: str, /, **payload: Any) -> Any:
        """The result of a request that must succeed."""
        answer = await self.reply(await self.send(kind, payload))
        assert isinstance(answer, Success), answer
        return answer.result

    async def refused(self, kind: str, /, **payload: Any) -> Failure:
        """The failure of a request that must not succeed."""
        answer = await self.reply(await self.send(kind, payload))
        assert isinstance(answer, Failure), answer
        return answer

    async def load(self, factory: str, *path: Path, **options: Any) -> Any:
        folders = [str(folder) for folder in (path or (FIXTURE_AGENTS,))]
        return await self.ask("worker.load", factory=factory, options=options, agentPath=folders)

    async def create(self, **fields: Any) -> Any:
        base = {"uri": SESSION_URI, "chatUri": CHAT_URI, "chatId": "s1"}
        return await self.ask("session.create", **{**base, **fields})

    async def begin(self, turn_id: str, text: str, **fields: Any) -> Any:
        return await self.ask("turn.begin", turnId=turn_id, text=text, **fields)

    async def turn(self, turn_id: str, text: str) -> list[dict[str, Any]]:
        """Runs a turn that asks nothing; the actions of its chat."""
        start = len(self.frames)
        assert (await self.begin(turn_id, text))["accepted"] is True
        await self.over(turn_id)
        return self.actions("chat", start)

    # -- listening --------------------------------------------------------------------

    async def until(self, wanted: Callable[[Any], bool], start: int = 0) -> Any:
        """The first frame since `start` that is wanted, waiting for it."""
        with trio.fail_after(WAIT_LIMIT_S):
            seen = start
            async with self._said:
                while True:
                    while seen < len(self.frames):
                        if wanted(self.frames[seen]):
                            return self.frames[seen]
                        seen += 1
                    assert not self.gone.is_set(), f"the worker is gone: {self.stderr!r}"
                    await self._said.wait()

    async def event(self, name: str, start: int = 0, **payload: Any) -> Any:
        """The payload of the first such event that has these fields."""
        frame = await self.until(
            lambda f: (
                isinstance(f, Event)
                and f.event == name
                and all(f.payload.get(key) == value for key, value in payload.items())
            ),
            start,
        )
        return frame.payload

    async def action(self, kind: str, start: int = 0, **fields: Any) -> dict[str, Any]:
        """The first emitted action of that type that has these fields."""
        frame = await self.until(
            lambda f: (
                isinstance(f, Event)
                and f.event == "agent.emit"
                and f.payload["action"]["type"] == kind
                and all(f.payload["action"].get(key) == value for key, value in fields.items())
            ),
            start,
        )
        found: dict[str, Any] = frame.payload["action"]
        return found

    async def over(self, turn_id: str) -> None:
        await self.event("turn.over", turnId=turn_id)

    def events(self, name: str, start: int = 0) -> list[Any]:
        return [f.payload for f in self.frames[start:] if isinstance(f, Event) and f.event == name]

    def actions(self, channel: str, start: int = 0) -> list[dict[str, Any]]:
        emitted = self.events("agent.emit", start)
        return [said["action"] for said in emitted if said["channel"] == channel]

    def index(self, wanted: Callable[[Any], bool]) -> int:
        return next(index for index, frame in enumerate(self.frames) if wanted(frame))

    async def ended(self) -> int:
        """The worker's exit status, once it ended and everything it said was read."""
        with trio.fail_after(WAIT_LIMIT_S):
            status = await self.process.wait()
            await self.gone.wait()
        return status

    async def hang_up(self) -> None:
        await self._to_worker.aclose()

    async def stop_listening(self) -> None:
        await self._from_worker.aclose()

    def unread_bytes(self) -> int:
        """What the pipe from the worker holds."""
        held = array("i", [0])
        fcntl.ioctl(self._from_worker.fileno(), termios.FIONREAD, held)
        return held[0]

    async def full_pipe(self) -> int:
        """Waits until the pipe takes no more, while nothing is read; answers what it holds."""
        with trio.fail_after(WAIT_LIMIT_S):
            held = -1
            while held <= 0 or self.unread_bytes() != held:
                held = self.unread_bytes()
                await trio.sleep(0.1)
        return held

    def resume_reading(self) -> None:
        self.reading = True
        self._resumed.set()

    # -- plumbing ---------------------------------------------------------------------

    async def pump(self) -> None:
        decoder = LineDecoder()
        while True:
            try:
                await trio.lowlevel.wait_readable(self._from_worker.fileno())
                if not self.reading:
                    self._resumed = trio.Event()
                    await self._resumed.wait()
                data = await self._from_worker.receive_some(65536)
            except (trio.ClosedResourceError, OSError):
                data = b""
            async with self._said:
                self.frames.extend(parse_server_frame(line) for line in decoder.feed(data))
                if not data:
                    self.gone.set()
                self._said.notify_all()
            if not data:
                return

    async def drain(self, name: str) -> None:
        stream = getattr(self.process, name)
        async for data in stream:
            setattr(self, name, getattr(self, name) + data)


@asynccontextmanager
async def worker(*, cwd: Path | None = None, **env: str) -> AsyncIterator[Driver]:
    """A started worker whose hello was read; killed on leaving if it still runs."""
    in_read, in_write = os.pipe()
    out_read, out_write = os.pipe()
    with trio.fail_after(TEST_LIMIT_S):
        process = await trio.lowlevel.open_process(
            [sys.executable, "-P", "-m", "ahpd.worker", "--frames", f"{in_read},{out_write}"],
            pass_fds=(in_read, out_write),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=cwd,
            env={"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/"), **env},
            start_new_session=True,
        )
        os.close(in_read)
        os.close(out_write)
        driver = Driver(process, in_write, out_read)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(driver.pump)
            nursery.start_soon(driver.drain, "stdout")
            nursery.start_soon(driver.drain, "stderr")
            try:
                await driver.event("worker.hello")
                yield driver
            finally:
                # Shielded: a Cancelled raised here would stand in for what the test raised.
                with trio.CancelScope(shield=True):
                    if process.returncode is None:
                        os.killpg(process.pid, signal.SIGKILL)
                    await process.wait()
                    await driver.hang_up()
                    await driver.stop_listening()
                nursery.cancel_scope.cancel()
