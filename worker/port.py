"""The worker's end of the pipe: requests come in on the loop, frames go out before a call ends.

Writing is plain and blocking, from any thread: a full pipe holds the agent back,
and that is the back-pressure. Reading is trio's.
"""

import os
import select
import threading
from collections.abc import AsyncGenerator, Callable
from typing import Any

import trio

from ..contracts.frames import (
    MAX_FRAME_BYTES,
    BadFrame,
    Event,
    Frame,
    FrameTooLong,
    LineDecoder,
    Request,
    encode_frame,
    parse_request,
)
from ..contracts.json import MAX_NESTING, JsonError, decode_json
from ..contracts.shapes import unstructure

READ_BYTES = 64 * 1024


class WorkerPort:
    """Passes frames over two descriptors, which it takes over.

    Args:
        fd_in: requests of the host.
        fd_out: replies and events.
        on_gone: called, in the thread that was writing, when the host no
            longer reads; it does not return.
    """

    def __init__(self, fd_in: int, fd_out: int, on_gone: Callable[[], None]) -> None:
        for fd in (fd_in, fd_out):
            # What the agent starts must not hold the pipe open, nor write into it.
            os.set_inheritable(fd, False)
        self._fd_in = fd_in
        self._fd_out = fd_out
        self._on_gone = on_gone
        self._leaving = False
        self._writing = threading.Lock()

    async def requests(self) -> AsyncGenerator[Request | BadFrame, None]:
        """The host's requests, unchecked but for their envelope; ends when the host is gone.

        A request longer than a frame ends it too, after one `BadFrame`: what
        follows in the stream cannot be trusted.
        """
        decoder = LineDecoder()
        async with trio.lowlevel.FdStream(self._fd_in) as stream:
            while True:
                try:
                    data = await stream.receive_some(READ_BYTES)
                except trio.BrokenResourceError:
                    return
                if not data:
                    return
                try:
                    for line in decoder.feed(data):
                        yield parse_request(line)
                except FrameTooLong as error:
                    yield BadFrame(str(error))
                    return

    def tell(self, event: str, payload: Any) -> None:
        """Sends the event whose payload is an object of the worker wire."""
        self.send(Event(event=event, payload=unstructure(payload)))

    def send(self, frame: Frame) -> None:
        """Sends one frame; raises as `encoded` does."""
        self.write(encoded(frame))

    def leave(self) -> None:
        """From now on it is no news that nobody reads: what is written then is dropped.

        So an agent's last words do not cut short what it still has to tidy up.
        """
        self._leaving = True

    def write(self, data: bytes) -> None:
        """Writes one encoded frame and its newline; waits while the pipe is full. Any thread."""
        line = memoryview(data + b"\n")
        with self._writing:
            try:
                while line:
                    line = line[self._write_some(line) :]
            except (BrokenPipeError, ConnectionResetError):
                if not self._leaving:
                    self._on_gone()

    def _write_some(self, line: memoryview) -> int:
        try:
            return os.write(self._fd_out, line)
        except BlockingIOError:
            # Not expected of a pipe of our own, but the descriptor is another's gift.
            poll = select.poll()
            poll.register(self._fd_out, select.POLLOUT)
            poll.poll()
            return 0


def encoded(frame: Frame) -> bytes:
    """The frame as the host will take it: it ends a worker that sends anything else.

    Raises:
        JsonError: it cannot be said in JSON, or is nested too deep.
        ValueError: it is larger than `MAX_FRAME_BYTES`.
    """
    data = encode_frame(frame)
    if data.count(b"{") + data.count(b"[") > MAX_NESTING:
        try:
            decode_json(data)
        except JsonError as error:
            raise JsonError(f"cannot be said in JSON: {error}") from None
    if len(data) > MAX_FRAME_BYTES:
        raise ValueError(f"is {len(data)} bytes, more than a frame holds ({MAX_FRAME_BYTES} bytes)")
    return data
