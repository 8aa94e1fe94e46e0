"""The log: set up here and nowhere else, one line an event for a person, on stderr.

Every module says `log = structlog.get_logger()` and logs events with fields; a
line about a session has its id in the field `session`. What goes into a log may
come from a client or a worker: control characters are escaped, so that nobody
forges a line or drives the terminal of the person who reads it.
"""

import logging
import os
import re
import socket
import stat
import sys
import traceback
from collections.abc import Callable
from typing import TextIO, cast

import structlog
from structlog.typing import EventDict, ExcInfo, WrappedLogger

LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}

#: A field longer than this is cut: a log is read by a person.
MAX_FIELD_CHARS = 2000

# Control characters of both sets, and what reorders text (bidirectional overrides).
_UNPRINTABLE = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def configure(stream: TextIO | None = None, *, level: str = "info") -> None:
    """Sends structlog's and the standard library's log to `stream` (default: stderr).

    Args:
        stream: where lines go. One that breaks or is not read (a closed pipe, a full
            one) loses them and harms nothing.
        level: `debug`, `info`, `warning` or `error`.

    Raises:
        KeyError: no such level.
    """
    lines = _Lines(sys.stderr if stream is None else stream)
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="%Y-%m-%d %H:%M:%S", utc=False),
            _escape_fields,
            structlog.dev.ConsoleRenderer(
                colors=lines.isatty(), exception_formatter=_write_traceback
            ),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(LEVELS[level]),
        # It writes and flushes; the rest of a text stream is never asked for.
        logger_factory=structlog.PrintLoggerFactory(cast("TextIO", lines)),
        cache_logger_on_first_use=False,
    )
    root = logging.getLogger()
    for handler in [one for one in root.handlers if isinstance(one, _ToStructlog)]:
        root.removeHandler(handler)
    root.addHandler(_ToStructlog())
    # Libraries tell of each packet at debug; what is worth a person's eye is a warning.
    root.setLevel(max(LEVELS[level], logging.WARNING))


def escaped(text: str) -> str:
    """`text` on one line, without control characters, cut at `MAX_FIELD_CHARS`."""
    if len(text) > MAX_FIELD_CHARS:
        text = text[:MAX_FIELD_CHARS] + f"… ({len(text)} characters)"
    return _printable(text)


def _printable(text: str) -> str:
    return _UNPRINTABLE.sub(lambda match: ascii(match.group())[1:-1], text)


def _escape_fields(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    for key, value in event.items():
        if isinstance(value, str):
            event[key] = escaped(value)
    return event


def _write_traceback(output: TextIO, exc_info: ExcInfo) -> None:
    # An exception's message may repeat what a client sent.
    lines = "".join(traceback.format_exception(*exc_info)).rstrip("\n").split("\n")
    output.write("\n".join(_printable(line) for line in lines))


class _ToStructlog(logging.Handler):
    """Passes on what libraries log."""

    def emit(self, record: logging.LogRecord) -> None:
        logger = structlog.get_logger()
        info = record.exc_info
        logger.log(record.levelno, record.getMessage(), logger=record.name, exc_info=info)


class _Lines:
    """A text stream whose reader may be gone, or not read: then lines are lost, and nothing else.

    The host has one loop: a write that waits, for a terminal that somebody stopped or
    for the program behind a pipe, would hold up every conversation.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._write_now = _writer_of(stream)
        self._held: list[str] = []
        self._lost = 0
        self._cut = False

    def isatty(self) -> bool:
        try:
            return self._stream.isatty()
        except ValueError:
            return False

    def write(self, text: str) -> int:
        self._held.append(text)
        return len(text)

    def flush(self) -> None:
        text = "".join(self._held)
        self._held.clear()
        if self._cut:
            text = "\n" + text
        if self._lost:
            text = f"({self._lost} lines of the log are missing: they could not be written)\n{text}"
        data = text.encode("utf-8", "backslashreplace")
        try:
            written = self._write_now(data)
        except (OSError, ValueError):
            self._lost += 1
            return
        self._lost = 0
        self._cut = written < len(data)


def _writer_of(stream: TextIO) -> Callable[[bytes], int]:
    """What writes to the file behind the stream at once, or as much as there is room for.

    Whether writing waits is a property of the open file, which the shell and others may
    share: so a pipe or a terminal is opened once more.
    """

    def write_as_text(data: bytes) -> int:
        stream.write(data.decode())
        stream.flush()
        return len(data)

    try:
        fd = stream.fileno()
        mode = os.fstat(fd).st_mode
        if stat.S_ISSOCK(mode):
            journal = socket.socket(fileno=os.dup(fd))
            return lambda data: journal.send(data, socket.MSG_DONTWAIT)
        if stat.S_ISFIFO(mode) or os.isatty(fd):
            flags = os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
            own = os.open(f"/proc/self/fd/{fd}", flags)
            return lambda data: os.write(own, data)
    except (OSError, ValueError):
        # No file of the system's, or one that may not be opened again.
        pass
    return write_as_text
