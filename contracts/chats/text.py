"""Text cut to a length: counted in UTF-16 units, cut between characters as a person sees them.

A cut inside a surrogate pair leaves half a character, which a strict client
refuses along with its whole frame; a cut inside a grapheme cluster (Unicode
UAX #29: a family emoji, a letter with its accents, a flag) shows another one.
"""

from collections.abc import Sequence

# The library ships no types. `\X` is a grapheme cluster.
import regex  # type: ignore[import-untyped]

from ..json import mend_surrogates

#: What a cut text ends with, and a cut path begins with.
ELLIPSIS = "…"

_CLUSTER = regex.compile(r"\X")

#: How far back a place is looked for at which a cluster begins for certain.
_LOOK_BACK_CHARS = 64 * 1024

#: White space as JavaScript's `trim` knows it, which is not quite Python's.
BLANKS = (
    "\t\n\v\f\r \u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000\ufeff"
)


def utf16_length(text: str, enough: int | None = None) -> int:
    """How long a text is in UTF-16 units.

    Args:
        enough: a length past which the exact one does not matter; then at least
            `enough + 1` is answered, without looking at the rest.
    """
    if text.isascii() or (enough is not None and len(text) > enough):
        return len(text)
    return len(text) + sum(char > "\uffff" for char in text)


def trimmed(text: str) -> str:
    """The text without the white space around it."""
    return text.strip(BLANKS)


def is_blank(text: str) -> bool:
    """Whether there is nothing but white space in it."""
    return not trimmed(text)


def clip_text(text: str, max_units: int, mark: str = ELLIPSIS) -> str:
    """The text, or as much of its beginning as fits with a mark behind it.

    Never cut inside a surrogate pair or a grapheme cluster; a lone surrogate
    within reach becomes U+FFFD.

    Args:
        max_units: UTF-16 units, the mark's own counted in.
        mark: what a cut text ends with; may be empty.
    """
    # Whether a cluster ends at a place depends on what is before it and on the
    # one character after it, so nothing further has to be looked at.
    text = _mended(text[: 2 * max_units + 2]) if len(text) > max_units else _mended(text)
    if utf16_length(text, max_units) <= max_units:
        return text
    room = max_units - utf16_length(mark)
    if room < 0:
        return ""
    end = units = 0
    for cluster in _CLUSTER.finditer(text):
        units += utf16_length(cluster[0])
        if units > room:
            break
        end = cluster.end()
    return text[:end] + mark


def clip_path(path: str, max_units: int) -> str:
    """The path, or as much of its end as fits behind an ellipsis: the file's name stays."""
    if utf16_length(path, max_units) <= max_units:
        return _mended(path)
    kept = _mended(path[-(2 * max_units + _LOOK_BACK_CHARS) :])
    room = max_units - utf16_length(ELLIPSIS)
    start, units = len(kept), 0
    while start > 0 and (units := units + utf16_length(kept[start - 1])) <= room:
        start -= 1
    begin = _certain_break(kept, start)
    for cluster in _CLUSTER.finditer(kept, begin):
        if cluster.start() >= start:
            return ELLIPSIS + kept[cluster.start() :]
    return ELLIPSIS if room >= 0 else ""


def clip_lines(lines: Sequence[str], max_lines: int, max_units: int) -> tuple[str, bool]:
    """As many whole lines as fit, and whether any was left out.

    A first line that does not fit is cut in itself.

    Args:
        max_units: UTF-16 units of all lines together, their newlines counted in.
    """
    kept: list[str] = []
    units = 0
    for line in lines:
        units += utf16_length(line, max_units) + (1 if kept else 0)
        if len(kept) == max_lines or units > max_units:
            if not kept and max_lines > 0:
                return clip_text(line, max_units), True
            # A carriage return at the end stood before a newline: it goes with it.
            return _mended("\n".join(kept).removesuffix("\r")), True
        kept.append(line)
    return _mended("\n".join(kept)), False


def first_line(text: str) -> str:
    """The first line that has something in it, without the white space around it."""
    return trimmed(trimmed(text).split("\n", 1)[0])


def lines_of(text: str) -> list[str]:
    """The lines of a text; a newline at its very end begins none."""
    return text.removesuffix("\n").split("\n") if text else []


def _certain_break(text: str, index: int) -> int:
    """The last place up to `index` at which a cluster begins for certain; 0 is one."""
    for place in range(index, 0, -1):
        pair = text[place - 1 : place + 1]
        if pair.isascii() and len(pair) == 2 and pair != "\r\n":
            return place
    return 0


def _mended(text: str) -> str:
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return str(mend_surrogates(text))
    return text
