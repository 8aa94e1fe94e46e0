"""Lines from the standard input, of a terminal, a pipe or a file, without blocking the loop.

The descriptor is not made non-blocking: it is shared with the shell, and often
with stdout.
"""

import os
from collections import deque

import trio

#: One line; a longer one is cut into several.
MAX_LINE_BYTES = 1024 * 1024

READ_CHUNK_BYTES = 64 * 1024


class Lines:
    """Reads a descriptor line by line. One task at a time."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._lines: deque[bytes] = deque()
        self._held = b""
        self._ended = False

    async def next(self) -> str | None:
        """The next line without its newline; None at the end of the input."""
        while not self._lines:
            if self._ended:
                return None
            await self._read()
        return self._lines.popleft().decode("utf-8", "replace").removesuffix("\r")

    async def _read(self) -> None:
        try:
            await trio.lowlevel.wait_readable(self._descriptor)
        except PermissionError:
            # A regular file cannot be waited for, and never lets one wait.
            await trio.lowlevel.checkpoint()
        try:
            chunk = os.read(self._descriptor, READ_CHUNK_BYTES)
        except OSError:
            # A terminal that is gone.
            chunk = b""
        if not chunk:
            self._ended = True
            if self._held:
                self._lines.append(self._held)
                self._held = b""
            return
        *lines, self._held = (self._held + chunk).split(b"\n")
        self._lines.extend(lines)
        if len(self._held) > MAX_LINE_BYTES:
            self._lines.append(self._held)
            self._held = b""
