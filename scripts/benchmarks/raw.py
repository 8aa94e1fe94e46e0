"""Raw limits: what the same work costs with nothing of ours in it."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from attrs import frozen

from .client import Client, drain

#: Sends the texts of a file, one a line, over plain trio-websocket, to whoever says `go`.
_SENDER = """
import sys
import trio
from trio_websocket import ConnectionClosed, serve_websocket

texts = open(sys.argv[1]).read().splitlines()

async def serve(request):
    connection = await request.accept()
    try:
        while await connection.get_message():
            for text in texts:
                await connection.send_message(text)
            await connection.send_message("end")
    except ConnectionClosed:
        pass

async def main():
    async with trio.open_nursery() as nursery:
        server = await nursery.start(serve_websocket, serve, "127.0.0.1", 0, None)
        print(server.port, flush=True)

trio.run(main)
"""

#: Says back each byte it is told.
_ECHO = """
import os
while data := os.read(0, 4096):
    os.write(1, data)
"""

#: A process that has a worker's modules loaded, and forks for each line it is told.
_WARM = """
import os, sys
import ahpd.worker.main
for line in sys.stdin:
    if (pid := os.fork()) == 0:
        os.write(1, b"x")
        os._exit(0)
    os.waitpid(pid, 0)
"""


def interpreter_start_s() -> float:
    """A bare interpreter, from its start to its end."""
    began_s = time.perf_counter()
    subprocess.run([sys.executable, "-P", "-c", "pass"], check=True)
    return time.perf_counter() - began_s


@contextmanager
def warm_forks() -> Iterator["Talker"]:
    """A warm process: each `talk` is a fork of it that says one byte."""
    with _talker(_WARM) as talker:
        yield talker


@contextmanager
def pipe_echo() -> Iterator["Talker"]:
    """Another process at the end of two pipes: each `talk` is a round trip."""
    with _talker(_ECHO) as talker:
        yield talker


class Talker:
    """A process that answers a line with a byte or more."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._stdin, self._stdout = process.stdin.fileno(), process.stdout.fileno()

    def talk_s(self) -> float:
        """How long one answer took."""
        began_s = time.perf_counter()
        os.write(self._stdin, b"\n")
        os.read(self._stdout, 4096)
        return time.perf_counter() - began_s


@contextmanager
def _talker(program: str) -> Iterator[Talker]:
    command = [sys.executable, "-P", "-c", program]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        talker = Talker(process)
        for _ in range(5):
            talker.talk_s()
        yield talker
        assert process.stdin is not None
        process.stdin.close()


@frozen(kw_only=True)
class Sender:
    """A plain trio-websocket server that sends given texts."""

    url: str
    pid: int


@contextmanager
def sender(texts: Sequence[bytes]) -> Iterator[Sender]:
    """Sends these texts to each client that asks, then `end`."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(b"\n".join(texts))
        file.flush()
        command = [sys.executable, "-P", "-c", _SENDER, file.name]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            try:
                assert process.stdout is not None
                port = int(process.stdout.readline())
                yield Sender(url=f"ws://127.0.0.1:{port}/", pid=process.pid)
            finally:
                process.kill()


def send_all_s(clients: Sequence[Client]) -> float:
    """How long a sender takes to send everything to these clients of it."""
    began_s = time.perf_counter()
    for client in clients:
        client.send("go")
    drain(clients, b"end")
    return time.perf_counter() - began_s


def kill_s() -> float:
    """From SIGTERM to a bare interpreter's death."""
    program = "import sys; print(flush=True); sys.stdin.read()"
    command = [sys.executable, "-P", "-c", program]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, **pipes) as process:
        assert process.stdout is not None
        process.stdout.readline()
        began_s = time.perf_counter()
        process.send_signal(signal.SIGTERM)
        process.wait()
        return time.perf_counter() - began_s


@contextmanager
def idle_interpreter() -> Iterator[int]:
    """A bare interpreter that waits: its process."""
    program = "import sys; print(flush=True); sys.stdin.read()"
    command = [sys.executable, "-P", "-c", program]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, **pipes) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process.pid
        process.kill()


def started_at_once_s(count: int, at_once: int) -> float:
    """So many bare interpreters, so many of them at one time."""
    command = [sys.executable, "-P", "-c", "pass"]
    began_s = time.perf_counter()
    running: list[subprocess.Popen[bytes]] = []
    for _ in range(count):
        if len(running) == at_once:
            running.pop(0).wait()
        running.append(subprocess.Popen(command))
    for process in running:
        process.wait()
    return time.perf_counter() - began_s
