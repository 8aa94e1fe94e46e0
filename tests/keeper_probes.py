"""What the tests of processes share: marked workers, and looking for what is left of them."""

import os
import sys
import textwrap
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import trio

from ahpd.supervisor.processes.launcher import LaunchSpec

#: For children of our own children: a marker in the environment is inherited by all.
MARK = "AHPD_TEST_MARK"


def new_mark() -> str:
    return uuid.uuid4().hex


def python(code: str, mark: str = "none", *args: str) -> LaunchSpec:
    """A worker that runs `code`; `args` are its `sys.argv[1:]`."""
    return spec(sys.executable, "-S", "-c", textwrap.dedent(code), *args, mark=mark)


def shell(code: str, mark: str = "none") -> LaunchSpec:
    return spec("/bin/sh", "-c", code, mark=mark)


def spec(*argv: str, mark: str = "none", cwd: str = "/") -> LaunchSpec:
    env = {"PATH": os.environ["PATH"], MARK: mark}
    return LaunchSpec(argv=argv, env=env, cwd=cwd, label="chat of a test")


def alive(mark: str) -> list[int]:
    """The processes that bear the mark, without zombies."""
    wanted = f"{MARK}={mark}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if wanted in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


def runs(pid: int) -> bool:
    """Whether a process is there and no zombie."""
    return any(one == pid and state != "Z" for one, state, _ in _states())


def zombies_of(pid: int) -> list[int]:
    """Children of a process that are dead and not reaped."""
    return [child for child, state, parent in _states() if parent == pid and state == "Z"]


def status_field(pid: int, name: str) -> str:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(name + ":"):
            return line.partition(":")[2].strip()
    raise AssertionError(f"no {name} of {pid}")


async def until(true: Callable[[], object], limit_s: float = 10) -> None:
    """Waits until something holds, and fails when it does not in time."""
    with trio.fail_after(limit_s):
        while not true():  # noqa: ASYNC110 - what is waited for happens in another process
            await trio.sleep(0.01)


async def read_until(stream: trio.abc.ReceiveStream, ending: bytes) -> bytes:
    """What a worker prints, up to and with `ending`."""
    data = b""
    while not data.endswith(ending):
        more = await stream.receive_some(4096)
        assert more, f"the pipe ended after {data!r}"
        data += more
    return data


def _states() -> Iterator[tuple[int, str, int]]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            yield int(entry.name), fields[0], int(fields[1])
