"""What commands print: tables, sizes, ages, JSON, and text that may not drive the terminal."""

import io
import json
import os
import re
import sys
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Any

from .failures import OutputRefused

# Control characters but tab and newline, and what makes a terminal show other
# text than is there (separators, bidirectional marks and overrides).
_UNPRINTABLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)


def printable(text: str) -> str:
    """`text` without anything that a terminal would obey; its lines and tabs stay."""
    # A carriage return is half of a line's end far more often than a trick.
    return _UNPRINTABLE.sub("\ufffd", text.replace("\r", ""))


def on_one_line(text: str, max_cells: int | None = None) -> str:
    """`text` printable and on one line, cut to so many cells of a terminal."""
    line = " ".join(printable(text).split())
    if max_cells is None or cells(line) <= max_cells:
        return line
    line = line[: 4 * max_cells]
    while line and cells(line) >= max_cells:
        line = line[:-1]
    return line.rstrip() + "…"


def as_json(value: Any) -> str:
    """`value` as JSON on one line. A terminal is not driven by it either: ASCII alone."""
    return json.dumps(value, separators=(",", ":"))


def guard_streams() -> None:
    """Makes of the standard streams what every command can rely on. Called once, at the start.

    A stream that was closed is `/dev/null`: else the next socket would get its number, and
    with it what is printed. A stdout that cannot be written to raises `OutputRefused`.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            # The lowest number that is free: the stream's own.
            descriptor = os.open(os.devnull, os.O_RDWR)
            setattr(sys, name, open(descriptor, mode, closefd=False))  # noqa: SIM115  # it stays
    given = sys.stdout
    sys.stdout = io.TextIOWrapper(
        io.BufferedWriter(_Stdout(1, "w", closefd=False)),
        encoding=given.encoding,
        errors=given.errors,
        line_buffering=given.isatty(),
    )


class _Stdout(io.FileIO):
    """Descriptor 1, whose refusal is told apart from every other `OSError`."""

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            raise
        except OSError as error:
            give_up_stdout()
            raise OutputRefused(error) from None


def give_up_stdout() -> None:
    """Nobody reads our output any more: what is still written, at exit too, goes nowhere."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.close(nowhere)


def size(count: int) -> str:
    """Bytes for a person: `58.1 MB`."""
    value, unit = float(count), "B"
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if value < 1000 or unit == "TB":
            break
        value /= 1000
    return f"{value:.0f} {unit}" if unit == "B" or value >= 100 else f"{value:.1f} {unit}"


def age(seconds: float) -> str:
    """A time for a person, its two greatest units: `45 s`, `3 m 20 s`, `2 d 4 h`."""
    whole = max(0, int(seconds))
    units = (("d", 86_400), ("h", 3600), ("m", 60), ("s", 1))
    for index, (unit, length) in enumerate(units):
        if whole >= length:
            said = f"{whole // length} {unit}"
            rest = whole % length
            if index + 1 < len(units) and rest >= units[index + 1][1]:
                said += f" {rest // units[index + 1][1]} {units[index + 1][0]}"
            return said
    return "0 s"


def cells(text: str) -> int:
    """How many cells of a terminal a line takes."""
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1
        for char in text
    )


def table(heads: Sequence[str], rows: Iterable[Sequence[str]], right: Iterable[int] = ()) -> str:
    """Lines of aligned columns; those whose numbers are in `right` end at the same cell."""
    lines = [list(heads), *(list(row) for row in rows)]
    widths = [max(cells(line[column]) for line in lines) for column in range(len(heads))]
    to_the_right = set(right)
    said = []
    for line in lines:
        padded = [
            " " * (width - cells(text)) + text
            if column in to_the_right
            else text + " " * (width - cells(text))
            for column, (text, width) in enumerate(zip(line, widths, strict=True))
        ]
        said.append("  ".join(padded).rstrip())
    return "\n".join(said)


def shortened(ids: Iterable[str], keep: int = 16, least: int = 8) -> dict[str, str]:
    """Each id's shortest beginning that names it alone among these; short ids stay whole."""
    given = set(ids)
    short = {}
    for id in given:
        length = least
        while length < len(id) and any(
            other != id and other.startswith(id[:length]) for other in given
        ):
            length += 1
        short[id] = id if len(id) <= keep else id[:length]
    return short
