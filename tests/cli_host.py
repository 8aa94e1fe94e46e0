"""A host as a user starts it: the installed program in a process of its own, and its commands."""

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import trio

from ahpd.contracts.ahp.uris import ChannelName, parse_channel
from ahpd.supervisor.client import AhpClient, open_client

FIXTURE_AGENTS = Path(__file__).parent / "fixtures_agents"
PROGRAM = str(Path(sys.executable).with_name("ahpd-supervisor"))

#: Of one command, and of a start; on a loaded machine.
COMMAND_LIMIT_S = 60
START_LIMIT_S = 60

OPERATED = "operated=fixture_operated:create"


def run(
    *arguments: str | Path, input: str | None = None, cwd: Path | None = None, **env: str
) -> Any:
    """Runs the program with these arguments to its end; a `CompletedProcess` of text."""
    return subprocess.run(
        [PROGRAM, *map(str, arguments)],
        input="" if input is None else input,
        capture_output=True,
        text=True,
        timeout=COMMAND_LIMIT_S,
        check=False,
        cwd=cwd,
        env={**os.environ, **env},
    )


def until(condition: Callable[[], Any], what: str, limit_s: float = 30) -> Any:
    """Looks until the condition holds, and answers what it gave."""
    deadline = time.monotonic() + limit_s
    while not (found := condition()):
        assert time.monotonic() < deadline, f"not within {limit_s:g} s: {what}"
        time.sleep(0.02)
    return found


def until_said(output: IO[str], text: str, limit_s: float = 30) -> str:
    """Reads lines until one holds that text; what was read."""
    deadline = time.monotonic() + limit_s
    read = ""
    while text not in read:
        ready, _, _ = select.select([output], [], [], max(0, deadline - time.monotonic()))
        chunk = os.read(output.fileno(), 65536) if ready else b""
        assert chunk, f"not said: {text!r}, but {read!r}"
        read += chunk.decode()
    return read


def is_running(pid: int) -> bool:
    """Whether a process is there and no zombie."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return text[text.rfind(")") + 2] not in "ZX"


class CliHost:
    """A started host. Use it in a `with`: on leaving it is killed if it still runs."""

    def __init__(self, state_dir: Path, *arguments: str | Path, cwd: Path | None = None) -> None:
        self.state_dir = state_dir
        self.stderr = tempfile.TemporaryFile("w+")  # noqa: SIM115  # closed on leaving
        self.process = subprocess.Popen(
            [
                *(PROGRAM, "start", "--json", "--port", "0", "--state-dir", str(state_dir)),
                *map(str, arguments),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self.stderr,
            text=True,
            cwd=cwd,
            # Its keeper and workers are in sessions of their own; a test's Ctrl-C is not its.
            start_new_session=True,
        )
        try:
            assert self.process.stdout is not None
            watchdog = threading.Timer(START_LIMIT_S, self.process.kill)
            watchdog.start()
            self.line = self.process.stdout.readline()
            watchdog.cancel()
            assert self.line, f"it did not start: {self.log()}"
        except BaseException:
            self._end()
            raise
        self.told = json.loads(self.line)
        self.ahp: str = self.told["ahp"]
        self.pid: int = self.told["pid"]

    def __enter__(self) -> "CliHost":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._end()

    def _end(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()
        self.stderr.close()

    def run(self, *arguments: str | Path, **options: Any) -> Any:
        """Runs a command on this host."""
        return run(*arguments, "--state-dir", self.state_dir, **options)

    def json(self, *arguments: str) -> Any:
        """What a command prints with `--json`."""
        done = self.run(*arguments, "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def rows(self) -> list[dict[str, Any]]:
        """The workers of conversations."""
        return [row for row in self.json("ps") if row["chat"] is not None]

    def chat(self, *lines: str, agent: str | None = "operated", id: str | None = None) -> Any:
        """Says these lines in a new session, or in the chat named."""
        to = (id,) if id is not None else ("--agent", agent) if agent is not None else ()
        return self.run("chat", *to, input="".join(f"{line}\n" for line in lines))

    def create_session(self, id: str, agent: str = "operated") -> None:
        """Creates a session of this id and waits until it is ready."""

        async def create(client: AhpClient) -> None:
            await client.create_session(f"ahp-session:/{id}", provider=agent)
            session = await client.subscribe(f"ahp-session:/{id}")
            await client.until(lambda: session.state["lifecycle"] == "ready")

        self.as_client(create)

    def create_chat(self, session: str, id: str) -> None:
        """Adds a chat of this id to a session."""

        async def create(client: AhpClient) -> None:
            params = {"channel": f"ahp-session:/{session}", "chat": f"ahp-chat:/{id}"}
            await client.request("createChat", params)

        self.as_client(create)

    def chats(self, session: str) -> list[ChannelName]:
        """The chats of a session."""
        found: list[ChannelName] = []

        async def look(client: AhpClient) -> None:
            state = (await client.subscribe(f"ahp-session:/{session}")).state
            names = [parse_channel(row["resource"]) for row in state["chats"]]
            found.extend(name for name in names if name is not None)

        self.as_client(look)
        return found

    def as_client(self, act: Callable[[AhpClient], Awaitable[None]]) -> None:
        """Does something as a client of this host."""

        async def connected() -> None:
            async with open_client(self.ahp) as client:
                await act(client)

        trio.run(connected)

    def log(self) -> str:
        """What it logged so far."""
        self.stderr.seek(0)
        return self.stderr.read()

    def wait(self, limit_s: float) -> int:
        """Waits until it has exited; its status."""
        return self.process.wait(limit_s)


@contextmanager
def talking(host: CliHost, *lines: str, id: str | None = None) -> Iterator["subprocess.Popen[str]"]:
    """A chat that said these lines and stays, with its input open; ended on leaving."""
    to = ["--agent", "operated"] if id is None else [id]
    process = subprocess.Popen(
        [PROGRAM, "chat", *to, "--state-dir", str(host.state_dir)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdin is not None
    try:
        for line in lines:
            process.stdin.write(line + "\n")
            process.stdin.flush()
        yield process
    finally:
        process.kill()
        process.communicate()
