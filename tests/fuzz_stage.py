"""The stage of the fuzzing: a host in a process of its own, and somebody who works beside it.

What must hold after every example, whatever was sent, is `FuzzedHost.holds`: the host
lives, its log has no traceback and no client sees one, its memory stays within
`MEMORY_ROOM_BYTES`, and the neighbour's session streams on, its state equal to a
fresh snapshot.
"""

import json
import re
import sys
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from subprocess import PIPE
from typing import Any

import trio
from attrs import define

from ahp_client import AhpClient, connect, text_of
from ahpd.contracts.ahp.action_shapes import TURN
from fuzz_inputs import FUZZED, FUZZED_CHAT, NEIGHBOUR, NEIGHBOUR_CHAT

Json = dict[str, Any]

HOST = Path(__file__).parent / "fuzz_host.py"

#: How long anything may take, on a machine that is busy with other things.
PATIENCE_S = 15.0

#: What the host may grow by at its peak: what is held for replay (8 MiB in `fuzz_host`)
#: costs several times its JSON, and a frame may come to 1 MiB.
MEMORY_ROOM_BYTES = 96 * 1024 * 1024

#: After so many examples the fuzzed session is made anew, so that it does not grow.
EXAMPLES_A_SESSION = 40

#: What a traceback looks like, in a log and inside JSON.
TRACE = re.compile(r"Traceback|\.py\\?\", line \d|Exception Group")


class Neighbour:
    """Somebody well-behaved: a session of `echo` that streams turn after turn."""

    def __init__(self, client: AhpClient) -> None:
        self.client = client
        self.turns = 0
        self.longest_gap_s = 0.0
        self.failure: BaseException | None = None

    async def open(self) -> None:
        """Makes the session."""
        await self.client.initialize(initialSubscriptions=["ahp-root://"])
        await self.client.request("createSession", channel=NEIGHBOUR, provider="echo")
        await self.client.subscribe(NEIGHBOUR)
        await self.client.subscribe(NEIGHBOUR_CHAT)
        await self.client.until(lambda: self.client.states[NEIGHBOUR]["lifecycle"] == "ready")

    async def talk(self) -> None:
        """Says something, hears it word by word, and holds the state against a snapshot."""
        try:
            while True:
                turn_id = f"turn-{self.turns}"
                said = " ".join(f"{turn_id}:{number}" for number in range(20))
                turn = await self.client.say(NEIGHBOUR_CHAT, turn_id, said)
                assert turn["state"] == "complete", turn
                assert text_of(turn) == said
                held, fresh = await _seen(self.client, NEIGHBOUR_CHAT)
                assert held == fresh, _apart(held, fresh)
                assert TRACE.search(json.dumps(self.client.notifications)) is None
                self.client.notifications.clear()
                self.client.envelopes.clear()
                self.turns += 1
                if self.turns % 50 == 0:
                    await self.client.act(NEIGHBOUR_CHAT, {"type": "chat/truncated"})
        except Exception as failure:
            self.failure = failure

    async def measure(self) -> None:
        """The longest that the host kept it waiting for an answer."""
        while True:
            began_s = trio.current_time()
            await self.client.request("ping")
            self.longest_gap_s = max(self.longest_gap_s, trio.current_time() - began_s)
            await trio.sleep(0.02)


@define(eq=False)
class FuzzedHost:
    """A host that is fuzzed, from the outside. Made by `fuzzed_host`."""

    url: str
    pid: int
    log: Path
    process: trio.Process
    neighbour: Neighbour
    observer: AhpClient
    base_bytes: int = 0
    examples: int = 0
    _read: int = 0
    _made: int = 0
    _loop: trio.lowlevel.TrioToken | None = None

    def run(self, check: "Check", given: Any) -> None:
        """Holds one example against its strand's law and everybody's, from any thread."""
        trio.from_thread.run(self._one, check, given, trio_token=self._loop)

    async def _one(self, check: "Check", given: Any) -> None:
        self.examples += 1
        try:
            with trio.fail_after(4 * PATIENCE_S):
                await check(self, given)
                self.holds()
        except BaseException:
            # Whatever became of its session, the next example gets another.
            self._made = EXAMPLES_A_SESSION
            raise

    def holds(self) -> None:
        """What must hold after every example."""
        assert self.process.poll() is None, f"the host died: {self.log.read_text()[-4000:]}"
        said = self.log.read_text(errors="replace")
        fresh, self._read = said[self._read :], len(said)
        assert TRACE.search(fresh) is None, f"the host logged a fault of its own: {fresh[-6000:]}"
        if self.neighbour.failure is not None:
            raise self.neighbour.failure
        assert self.observer.closed is None, self.observer.closed
        grown = self.memory()["VmHWM"] - self.base_bytes
        assert grown < MEMORY_ROOM_BYTES, f"the host grew by {grown} bytes"

    def neighbour_works_on(self, turns: int) -> None:
        """Waits until the neighbour has finished a turn after so many."""

        async def wait() -> None:
            with trio.fail_after(PATIENCE_S):
                # The neighbour's own count: no event announces it.
                while self.neighbour.turns <= turns:
                    self.holds()
                    await trio.sleep(0.02)

        trio.from_thread.run(wait, trio_token=self._loop)

    def memory(self) -> dict[str, int]:
        """What the host's process holds now (`VmRSS`) and held at most (`VmHWM`), in bytes."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        rows = (line.split() for line in status.splitlines() if line.startswith("Vm"))
        return {name.rstrip(":"): int(kib) * 1024 for name, kib, *_ in rows}

    # -- the session that is open to everybody ------------------------------------------

    async def session(self) -> None:
        """Makes the fuzzed session, unless it is there and young."""
        state = self.observer.states.get(FUZZED)
        self._made += 1
        there = [row["resource"] for row in (await self.observer.request("listSessions"))["items"]]
        for made in there:
            if made not in (NEIGHBOUR, FUZZED):
                await self.observer.request("disposeSession", channel=made)
        ready = state is not None and state["lifecycle"] == "ready"
        if FUZZED in there and ready and self._made < EXAMPLES_A_SESSION:
            return
        if FUZZED in there:
            await self.observer.request("disposeSession", channel=FUZZED)
        self._made = 0
        self.observer.states.pop(FUZZED, None)
        self.observer.envelopes.clear()
        self.observer.notifications.clear()
        await self.observer.request("createSession", channel=FUZZED, provider="fuzzed")
        await self.observer.subscribe(FUZZED)
        await self.observer.subscribe(FUZZED_CHAT)
        await self.observer.until(lambda: self.observer.states[FUZZED]["lifecycle"] == "ready")

    async def settled(self) -> None:
        """Ends whatever runs in the fuzzed chat, and holds its state against a fresh snapshot."""
        observer = self.observer
        if FUZZED not in await self._listed():
            return
        for _ in range(30):
            running = observer.states[FUZZED_CHAT].get("activeTurn")
            if running is not None:
                cancel = {"type": "chat/turnCancelled", "turnId": running["id"], "duration": 0}
                await observer.act(FUZZED_CHAT, cancel)
            held, fresh = await _seen(observer, FUZZED_CHAT)
            assert held == fresh, _apart(held, fresh)
            held, session = await _seen(observer, FUZZED)
            # The low bits of a session's status follow from its chats; no action carries them.
            held, shown = ({**one, "status": one["status"] & ~31} for one in (held, session))
            assert held == shown, _apart(held, shown)
            # A worker that has more to say may begin a turn of its own, and park in it.
            if "activeTurn" not in fresh and "activeTurn" not in observer.states[FUZZED_CHAT]:
                break
        else:
            raise AssertionError("a turn runs again and again")
        assert not session.get("inputNeeded"), session["inputNeeded"]
        for turn in fresh["turns"]:
            wrong = TURN(turn, "turn")
            assert wrong is None, (wrong, turn)

    async def _listed(self) -> list[str]:
        return [row["resource"] for row in (await self.observer.request("listSessions"))["items"]]


async def _seen(client: AhpClient, channel: str) -> tuple[Json, Json]:
    """A channel's state as the client holds it, and a snapshot of the same moment."""
    seen: list[tuple[Json, Json]] = []

    def look(result: Json) -> None:
        seen.append((client.states[channel], result["snapshot"]["state"]))

    await client.request("subscribe", then=look, channel=channel)
    return seen[0]


def _apart(held: Json, fresh: Json) -> str:
    """Where a state and its snapshot differ."""
    keys = [key for key in held.keys() | fresh.keys() if held.get(key) != fresh.get(key)]
    return "; ".join(f"{key}: {held.get(key)} and {fresh.get(key)}" for key in keys)


Check = Callable[[FuzzedHost, Any], Coroutine[Any, Any, None]]


@contextmanager
def fuzzed_host(state_dir: Path) -> Iterator[FuzzedHost]:
    """A running host, with its neighbour at work. What talks to it runs in a thread."""
    ready, over = threading.Event(), trio.Event()
    told: list[FuzzedHost | BaseException] = []

    async def main() -> None:
        async with _started(state_dir) as host:
            host._loop = trio.lowlevel.current_trio_token()
            told.append(host)
            ready.set()
            await over.wait()

    def run() -> None:
        try:
            trio.run(main)
        except BaseException as failure:
            told.append(failure)
        finally:
            ready.set()

    thread = threading.Thread(target=run, name="fuzzing")
    thread.start()
    ready.wait()
    host = told[0]
    if isinstance(host, BaseException):
        raise host
    try:
        yield host
    finally:
        if thread.is_alive() and host._loop is not None:
            host._loop.run_sync_soon(over.set)
        thread.join()
    failures = [failure for failure in told if isinstance(failure, BaseException)]
    if failures:
        raise failures[0]


@asynccontextmanager
async def _started(state_dir: Path) -> AsyncIterator[FuzzedHost]:
    log = state_dir / "host.log"
    with log.open("wb") as stderr:
        command = [sys.executable, str(HOST), str(state_dir)]
        process = await trio.lowlevel.open_process(command, stdin=PIPE, stdout=PIPE, stderr=stderr)
    assert process.stdin is not None
    assert process.stdout is not None
    with trio.fail_after(PATIENCE_S):
        line = await process.stdout.receive_some(4096)
    told = json.loads(line)
    try:
        async with (
            connect(told["url"], "neighbour") as client,
            connect(told["url"], "observer") as observer,
            trio.open_nursery() as nursery,
        ):
            neighbour = Neighbour(client)
            await neighbour.open()
            await observer.initialize(initialSubscriptions=["ahp-root://"])
            host = FuzzedHost(
                url=told["url"],
                pid=told["pid"],
                log=log,
                process=process,
                neighbour=neighbour,
                observer=observer,
            )
            nursery.start_soon(neighbour.talk)
            nursery.start_soon(neighbour.measure)
            await host.session()
            host.base_bytes = host.memory()["VmRSS"]
            yield host
            nursery.cancel_scope.cancel()
    finally:
        with trio.CancelScope(shield=True):
            await process.stdin.aclose()
            with trio.move_on_after(PATIENCE_S):
                await process.wait()
            if process.poll() is None:
                process.kill()
                await process.wait()
    assert process.returncode == 0, f"exit {process.returncode}: {log.read_text()[-4000:]}"
