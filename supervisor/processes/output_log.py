"""A chat's log: what its workers print, and the host's own lines about them; capped while written.

A line is `TIME MARK text`: the time in UTC, the mark `out`, `err` or `host`.
Workers are hostile to terminals too: what is not printable stands escaped.
"""

import hashlib
import os
import re
import time
from collections.abc import AsyncGenerator
from pathlib import Path

import structlog
import trio

from .launcher import WorkerProcess
from .pipe_reader import PipeReader

#: One file; with the one before it, a chat keeps at most twice as much.
MAX_LOG_FILE_BYTES = 1024 * 1024

#: What a worker prints faster waits in its pipe.
MAX_OUTPUT_BYTES_PER_S = 1024 * 1024

#: A line without an end is cut here.
MAX_LINE_BYTES = 8 * 1024

#: What is told of the last line of stderr, in characters.
MAX_LAST_LINE = 500

READ_CHUNK_BYTES = 16 * 1024

#: What a follower reads in one go.
FOLLOW_CHUNK_BYTES = 64 * 1024

_log = structlog.get_logger(__name__)

# Controls of C0 and C1 and DEL, but tabs; line and direction marks that make a
# terminal show another text than is there.
_UNPRINTABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")


def log_name(chat_id: str) -> str:
    """The file of a chat's log: never a path, whatever the id is."""
    digest = hashlib.sha256(chat_id.encode("utf-8", "surrogatepass")).hexdigest()
    return f"{digest[:32]}.log"


class OutputLog:
    """The log of one chat, over all its workers. Not for subclassing.

    A disk that refuses loses lines of the log and nothing else.

    Args:
        folder: made if it is missing, 0700.
        chat_id: any text.
        max_bytes: of one file; a full one becomes `.log.1`.
    """

    def __init__(self, folder: Path, chat_id: str, *, max_bytes: int = MAX_LOG_FILE_BYTES) -> None:
        self.path = folder / log_name(chat_id)
        self.last_stderr_line = ""
        self._chat_id = chat_id
        self._max_bytes = max_bytes
        self._older = self.path.with_name(self.path.name + ".1")
        self._fd: int | None = None
        self._refused = False
        self._closed = False
        self._changed = trio.Event()
        #: Positions count every byte since this object was made; what was there before is negative.
        self._file_start = 0
        self._end = 0
        self._older_start = 0
        self._open()

    async def run(self, process: WorkerProcess) -> None:
        """Reads a worker's stdout and stderr until it has died and what it printed is read.

        Afterwards `last_stderr_line` is what it said last.
        """
        self.last_stderr_line = ""
        readers = [
            PipeReader(stream, READ_CHUNK_BYTES) for stream in (process.stdout, process.stderr)
        ]
        async with trio.open_nursery() as nursery:
            for reader, mark in zip(readers, ("out", "err"), strict=True):
                nursery.start_soon(self._copy, reader, mark)
            await process.wait()
            for reader in readers:
                reader.worker_died()

    def write_host_line(self, text: str) -> None:
        """Writes a line of the host's own, such as a rule that the agent broke."""
        self._write("host", text[:MAX_LINE_BYTES].split("\n"))

    def tail(self, max_bytes: int = FOLLOW_CHUNK_BYTES) -> bytes:
        """The last whole lines that fit, oldest first."""
        start = max(self._oldest(), self._end - max_bytes)
        data = b""
        while start + len(data) < self._end:
            more = self._read(start + len(data), max_bytes)
            if not more:
                break
            data += more
        if start > self._oldest():
            data = data[data.find(b"\n") + 1 :]
        return data

    async def follow(self, tail_bytes: int = FOLLOW_CHUNK_BYTES) -> AsyncGenerator[bytes, None]:
        """The tail, then what is written from now on, in pieces, until the log is closed.

        A follower that is slower than the log rotates loses the oldest and is
        told so in a line. Nothing is held for it.
        """
        first = self.tail(tail_bytes)
        position = self._end
        if first:
            yield first
        while True:
            changed = self._changed
            if position >= self._end:
                if self._closed:
                    return
                await changed.wait()
                continue
            if position < self._oldest():
                lost, position = self._oldest() - position, self._oldest()
                yield f"({lost} bytes of the log were overwritten unseen)\n".encode()
            data = self._read(position, FOLLOW_CHUNK_BYTES)
            if not data:
                position = self._end  # the disk refuses; go on with what comes
                continue
            data = data[: data.rfind(b"\n") + 1] or data
            position += len(data)
            yield data
            await trio.lowlevel.checkpoint()

    def close(self) -> None:
        """Closes the file. What is written afterwards is lost, and followers come to an end."""
        self._closed = True
        self._close_file()
        self._tell_changed()

    def remove(self) -> None:
        """Removes a closed log's files."""
        for path in (self.path, self._older):
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                self._tell_refused(error)

    def _close_file(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    async def _copy(self, reader: PipeReader, mark: str) -> None:
        held = b""
        while chunk := await reader.receive():
            until = trio.current_time() + len(chunk) / MAX_OUTPUT_BYTES_PER_S
            *lines, held = (held + chunk).split(b"\n")
            while len(held) > MAX_LINE_BYTES:
                lines.append(held[:MAX_LINE_BYTES])
                held = held[MAX_LINE_BYTES:]
            self._copy_lines(mark, lines)
            await trio.sleep_until(until)
        self._copy_lines(mark, [held] if held else [])

    def _copy_lines(self, mark: str, lines: list[bytes]) -> None:
        if not lines:
            return
        texts = b"\n".join(lines).decode("utf-8", "replace").split("\n")
        self._write(mark, texts)
        if mark == "err":
            for text in reversed(texts):
                if text.strip():
                    cut = text.strip()[:MAX_LAST_LINE]
                    self.last_stderr_line = _printable(cut)[:MAX_LAST_LINE]
                    break

    def _write(self, mark: str, texts: list[str]) -> None:
        now = time.time()
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now))
        start = f"{stamp}.{int(now * 1000) % 1000:03d}Z {mark:4} "
        # As one text: a flood of short lines costs little.
        body = _printable("\n".join(texts)).replace("\n", "\n" + start)
        data = (start + body + "\n").encode("utf-8", "replace")
        for offset in range(0, len(data), self._max_bytes):
            self._append(data[offset : offset + self._max_bytes])
        self._tell_changed()

    def _tell_changed(self) -> None:
        changed, self._changed = self._changed, trio.Event()
        changed.set()

    def _append(self, data: bytes) -> None:
        if self._fd is None:
            return
        try:
            if self._end - self._file_start + len(data) > self._max_bytes:
                self._rotate()
            written = os.write(self._fd, data)
            self._end += written
        except OSError as error:
            self._tell_refused(error)

    def _rotate(self) -> None:
        fd = self._fd
        try:
            os.replace(self.path, self._older)
            self._older_start = self._file_start
        except FileNotFoundError:
            # Somebody removed it, perhaps with its folder. It begins anew.
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._older_start = self._end
        self._file_start = self._end
        self._fd = _open_for_append(self.path)
        if fd is not None:
            os.close(fd)

    def _open(self) -> None:
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._fd = _open_for_append(self.path)
            self._file_start = -os.fstat(self._fd).st_size
            self._older_start = self._file_start
            if self._older.exists():
                self._older_start -= self._older.stat().st_size
        except OSError as error:
            self._tell_refused(error)

    def _oldest(self) -> int:
        return self._older_start

    def _read(self, position: int, max_bytes: int) -> bytes:
        """What stands at a position, from one file; empty when it cannot be read."""
        in_older = position < self._file_start
        path, start = (
            (self._older, self._older_start) if in_older else (self.path, self._file_start)
        )
        end = self._file_start if in_older else self._end
        try:
            with open(path, "rb") as file:
                file.seek(position - start)
                return file.read(min(max_bytes, end - position))
        except OSError as error:
            self._tell_refused(error)
            return b""

    def _tell_refused(self, error: OSError) -> None:
        if not self._refused:
            self._refused = True
            _log.error("a chat's log is refused by the disk", chat=self._chat_id, why=str(error))


def _printable(text: str) -> str:
    return _UNPRINTABLE.sub(_escape, text)


def _escape(found: re.Match[str]) -> str:
    number = ord(found.group())
    return f"\\x{number:02x}" if number < 256 else f"\\u{number:04x}"


def _open_for_append(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
