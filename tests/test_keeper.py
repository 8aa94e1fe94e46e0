"""The keeper's own word: its protocol, and that no supervisor can make it wait."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ahpd.supervisor.processes import keeper as program
from keeper_probes import MARK, alive, new_mark

LIMIT_S = 10.0
NOFILE = "1024"


class Driver:
    """A supervisor of few words."""

    def __init__(self) -> None:
        self.socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.settimeout(LIMIT_S)
        self.process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-B", program.__file__, str(theirs.fileno()), NOFILE],
            pass_fds=[theirs.fileno()],
            start_new_session=True,
            stdin=subprocess.DEVNULL,
        )
        theirs.close()

    def hear(self) -> dict[str, Any]:
        said: dict[str, Any] = json.loads(self.socket.recv(65536))
        return said

    def say(self, **message: Any) -> None:
        self.socket.send(json.dumps(message).encode())

    def start(self, ident: int, code: str, mark: str) -> None:
        said = {
            "argv": ["/bin/sh", "-c", code],
            "env": {"PATH": os.environ["PATH"], MARK: mark},
            "cwd": "/",
        }
        fd = os.memfd_create("start")
        os.write(fd, json.dumps(said).encode())
        null = os.open("/dev/null", os.O_RDWR)
        message = json.dumps({"op": "start", "id": ident}).encode()
        try:
            socket.send_fds(self.socket, [message], [null, null, null, null, fd])
        finally:
            os.close(fd)
            os.close(null)


def until(true: Callable[[], object]) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.fixture
def keeper() -> Iterator[Driver]:
    driver = Driver()
    with driver.process, driver.socket:
        assert driver.hear() == {"event": "ready"}
        yield driver
        driver.socket.close()
        driver.process.wait(LIMIT_S)


def test_it_tells_each_step_of_a_worker_in_order(keeper: Driver) -> None:
    keeper.start(7, "exit 3", new_mark())
    started = keeper.hear()
    assert (started["event"], started["id"]) == ("started", 7)
    assert keeper.hear() == {"event": "exited", "id": 7, "code": 3, "signal": None}
    assert keeper.hear() == {"event": "gone", "id": 7, "count": 1}


def test_a_supervisor_that_does_not_listen_does_not_hold_it_up(keeper: Driver) -> None:
    # Some thousand events: far more than the socket holds.
    mark = new_mark()
    keeper.socket.setblocking(False)
    started = 0
    for _ in range(1500):
        try:
            keeper.start(started, "exit 1", mark)
        except BlockingIOError:
            time.sleep(0.002)
        else:
            started += 1
    until(lambda: not alive(mark))
    keeper.socket.settimeout(LIMIT_S)
    # All of it is told, once, when somebody listens; and it still obeys.
    events = [keeper.hear()["event"] for _ in range(3 * started)]
    assert {name: events.count(name) for name in set(events)} == {
        "started": started,
        "exited": started,
        "gone": started,
    }
    keeper.start(99_999, "exit 2", mark)
    assert [keeper.hear()["event"] for _ in range(3)] == ["started", "exited", "gone"]


def test_it_hears_the_end_of_a_supervisor_that_left_everything_unread(keeper: Driver) -> None:
    mark = new_mark()
    for ident in range(30):
        keeper.start(ident, "setsid sleep 100 & sleep 100", mark)
    keeper.socket.close()
    assert keeper.process.wait(LIMIT_S) == 0
    assert alive(mark) == []


def test_stop_ends_everything_tells_it_and_leaves(keeper: Driver) -> None:
    mark = new_mark()
    keeper.start(1, "trap '' TERM; setsid sleep 100 & while :; do sleep 0.1; done", mark)
    keeper.hear()
    until(lambda: len(alive(mark)) > 1)  # then SIGTERM is ignored already
    began = time.monotonic()
    keeper.say(op="stop", grace_s=0.3)
    assert keeper.hear() == {"event": "exited", "id": 1, "code": None, "signal": signal.SIGKILL}
    assert keeper.hear()["event"] == "gone"
    assert keeper.process.wait(LIMIT_S) == 0
    assert 0.3 <= time.monotonic() - began < 3
    assert alive(mark) == []


def test_a_stopping_keeper_starts_nothing(keeper: Driver) -> None:
    mark = new_mark()
    keeper.start(1, "trap '' TERM; sleep 100 & while :; do sleep 0.1; done", mark)
    keeper.hear()
    until(lambda: len(alive(mark)) > 1)  # then SIGTERM is ignored already
    keeper.say(op="stop", grace_s=0.3)
    keeper.start(2, "sleep 100", mark)
    assert keeper.hear() == {
        "event": "failed",
        "id": 2,
        "why": "the worker could not be started: the host is stopping",
    }


def test_ending_what_is_not_there_is_nothing(keeper: Driver) -> None:
    keeper.say(op="end", id=12345, grace_s=0)
    keeper.start(1, "exit 0", new_mark())
    assert keeper.hear()["event"] == "started"
