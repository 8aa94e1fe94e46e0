"""Which version of the protocol a connection speaks (reference: "Versions").

Canonical is 1.0: what the host keeps and reduces. Every other line of versions is
spoken through its lens.
"""

import re
from collections.abc import Sequence
from typing import Any, Final

from attrs import field, frozen

_SEMVER: Final = re.compile(
    r"(0|[1-9]\d{0,8})\.(0|[1-9]\d{0,8})\.(0|[1-9]\d{0,8})"
    r"(?:-((?:0|[1-9]\d*|\d*[A-Za-z-][0-9A-Za-z-]*)(?:\.(?:0|[1-9]\d*|\d*[A-Za-z-][0-9A-Za-z-]*))*))?"
    r"(?:\+[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*)?",
    re.ASCII,
)

_MAX_VERSION_CHARS: Final = 128


@frozen(order=True)
class Version:
    """A semantic version, ordered by precedence; build metadata has none."""

    major: int
    minor: int
    patch: int
    #: Sorts a release above its own pre-releases, numbers below words.
    precedence: tuple[tuple[int, int, str], ...] = field(default=((2, 0, ""),))


@frozen(kw_only=True)
class Line:
    """Versions that are spoken alike: those within caret range of each other."""

    major: int
    #: None: every minor of that major.
    minor: int | None = None
    #: What is named to a client that offers none of ours.
    supported: str

    def covers(self, version: Version) -> bool:
        """Whether that version is one of this line."""
        return version.major == self.major and self.minor in (None, version.minor)


#: Newest first. What each spells otherwise than 1.0 stands in `lens.differences`.
LINES: Final = (
    Line(major=1, supported="1.0.0"),
    Line(major=0, minor=10, supported="0.10.0"),
    Line(major=0, minor=9, supported="0.9.0"),
    Line(major=0, minor=8, supported="0.8.0"),
    Line(major=0, minor=7, supported="0.7.0"),
    Line(major=0, minor=6, supported="0.6.0"),
)

#: For `data.supportedVersions` of the refusal.
SUPPORTED_VERSIONS: Final = tuple(line.supported for line in LINES)


def parse_version(text: Any) -> Version:
    """The version a client wrote.

    Raises:
        ValueError: it is no string or no semantic version; the message is for the client.
    """
    if not isinstance(text, str):
        raise ValueError("a protocol version is a string such as '1.0.0'")
    found = _SEMVER.fullmatch(text) if len(text) <= _MAX_VERSION_CHARS else None
    if found is None:
        raise ValueError(f"{text[:40]!r} is no protocol version such as '1.0.0'")
    major, minor, patch, prerelease = found.groups()
    numbers = (int(major), int(minor), int(patch))
    if prerelease is None:
        return Version(*numbers)
    return Version(*numbers, tuple(map(_identifier, prerelease.split("."))))


def line_of(version: str) -> Line | None:
    """The line that version is spoken in, or None when it is not spoken. Raises `ValueError`."""
    parsed = parse_version(version)
    return next((line for line in LINES if line.covers(parsed)), None)


def negotiate(offered: Sequence[Any]) -> str | None:
    """The newest of the offered versions that we speak, as it was written; None for none.

    Raises:
        ValueError: an entry is no string or no version; the message is for the client.
    """
    spoken = [
        (version, text)
        for version, text in ((parse_version(text), text) for text in offered)
        if any(line.covers(version) for line in LINES)
    ]
    if not spoken:
        return None
    return str(max(spoken, key=lambda pair: pair[0])[1])


def _identifier(text: str) -> tuple[int, int, str]:
    return (0, int(text), "") if text.isdigit() else (1, 0, text)
