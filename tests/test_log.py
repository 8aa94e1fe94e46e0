"""The log: lines for a person on one stream, which no client can forge and no reader can break."""

import io
import logging
import os
import socket
from collections.abc import Iterator
from typing import TextIO

import pytest
import structlog

from ahpd.supervisor.log import MAX_FIELD_CHARS, configure, escaped


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    structlog.reset_defaults()
    root.handlers[:] = handlers
    root.setLevel(level)


def test_an_event_is_one_line_with_its_fields_on_that_stream_alone(
    capsys: pytest.CaptureFixture[str],
) -> None:
    stream = io.StringIO()
    configure(stream)
    structlog.get_logger().info("session created", session="abc", agent="echo")
    line = stream.getvalue()
    assert line.count("\n") == 1
    assert "session created" in line
    assert "session=abc" in line
    assert capsys.readouterr() == ("", "")


def test_the_default_stream_is_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    configure()
    structlog.get_logger().warning("hello")
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "hello" in printed.err


def test_a_level_hides_what_is_below_it() -> None:
    stream = io.StringIO()
    configure(stream, level="warning")
    structlog.get_logger().info("quiet")
    structlog.get_logger().error("loud")
    assert "quiet" not in stream.getvalue()
    assert "loud" in stream.getvalue()


def test_nobody_forges_a_line_or_drives_the_terminal() -> None:
    stream = io.StringIO()
    configure(stream)
    structlog.get_logger().info("refused", origin="x\n2030-01-01 [info] all is well\x1b[2J\u202e")
    try:
        raise ValueError("bad\x1b]0;title\x07")
    except ValueError:
        structlog.get_logger().exception("failed")
    text = stream.getvalue()
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "\\x1b[2J" in text
    assert not any(line.startswith("2030") for line in text.splitlines())
    assert "Traceback" in text


def test_a_long_field_is_cut() -> None:
    assert len(escaped("x" * 100_000)) < MAX_FIELD_CHARS + 50
    assert escaped("short, grüße, 🦀\ttab") == "short, grüße, 🦀\ttab"


def test_what_libraries_warn_of_is_in_the_same_log_once() -> None:
    stream = io.StringIO()
    configure(io.StringIO())
    configure(stream)
    logging.getLogger("some.library").warning("careful: %s", "hot")
    logging.getLogger("some.library").info("chatter")
    assert stream.getvalue().count("careful: hot") == 1
    assert "chatter" not in stream.getvalue()


def test_a_stream_whose_reader_is_gone_loses_lines_and_nothing_else() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "w", buffering=1) as stream:
        configure(stream)
        structlog.get_logger().info("nobody reads this")
        # Python would complain at closing of what could not be flushed.
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    configure(stream)
    structlog.get_logger().info("nor this, on a closed file")


@pytest.fixture(params=["pipe", "terminal", "socket"])
def unread(request: pytest.FixtureRequest) -> Iterator[tuple[TextIO, int]]:
    """A stream for the log, and the descriptor where nobody reads it yet."""
    if request.param == "pipe":
        reading, writing = os.pipe()
    elif request.param == "terminal":
        reading, writing = os.openpty()
    else:
        ends = socket.socketpair()
        reading, writing = (end.detach() for end in ends)
    with open(writing, "w", encoding="utf-8") as stream, open(reading, "rb", buffering=0):
        yield stream, reading


def test_what_nobody_reads_is_lost_and_never_waited_for(unread: tuple[TextIO, int]) -> None:
    stream, reading = unread
    configure(stream)
    log = structlog.get_logger()
    for number in range(20_000):
        log.info("nobody reads this", number=number, padding="x" * 100)
    os.set_blocking(reading, False)
    said = read_all(reading)
    assert b"nobody reads this" in said
    log.info("somebody reads again")
    said = read_all(reading)
    assert b"lines of the log are missing" in said
    assert b"somebody reads again" in said


def read_all(reading: int) -> bytes:
    said = b""
    try:
        while piece := os.read(reading, 65536):
            said += piece
    except BlockingIOError:
        return said
    return said
