"""The log: set up here and nowhere else, one line an event for a person, on stderr.

Every module says `log = structlog.get_logger()` and logs events with fields; a
line about a session has its id in the field `session`. What goes into a log may
come from a client or a worker: control characters are escaped, so that nobody
forges a line or drives the terminal of the person who reads it.
"""

import logging
import re
import sys
import traceback
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
        stream: where lines go. One that breaks (a closed pipe) loses them and
            harms nothing.
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
    """A text stream whose reader may be gone: then lines are lost, and nothing else is."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def isatty(self) -> bool:
        try:
            return self._stream.isatty()
        except ValueError:
            return False

    def write(self, text: str) -> int:
        try:
            return self._stream.write(text)
        except (OSError, ValueError):
            return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except (OSError, ValueError):
            return
