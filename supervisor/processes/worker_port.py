"""Frames to and from one worker: the thin shell of trio around the codec of the pipe framing.

What comes out of a worker is hostile until it is checked; here it is only cut
into frames, within bounds of size and time.
"""

import time
from collections import deque
from collections.abc import AsyncIterator

import trio

from ...contracts.frames import (
    MAX_FRAME_BYTES,
    MAX_FRAME_VALUES,
    BadFrame,
    Frame,
    FrameTooLong,
    LineDecoder,
    encode_frame,
    parse_frame,
)
from ...contracts.json import holds_more_values
from .launcher import WorkerProcess
from .pipe_reader import PipeReader

#: What may wait for a worker that does not read, by size and by number.
MAX_OUTBOX_BYTES = 32 * 1024 * 1024
MAX_OUTBOX_FRAMES = 10_000

#: How old a partial frame may become, counting only the time that we read.
MAX_PARTIAL_FRAME_S = 10.0

READ_CHUNK_BYTES = 64 * 1024

#: After so many frames of one chunk, or so long over them, the other tasks have a turn.
#: What a frame costs grows with the state that it changes, so counting alone is not fair.
FRAMES_PER_TURN = 32
TURN_S = 0.003

#: What one frame may cost without a rest. The frames of a worker that are dearer than
#: that are taken so that at most half of the loop's time goes to them.
DEAR_FRAME_S = 0.01

# A pause of our own loop must not make a frame older than one look at the pipe.
_LOOK_S = 0.5


class OutboxFull(Exception):
    """The worker has not read for so long that no more may wait for it."""


class WorkerPort:
    """A `FramePort` over the pipes of one worker. Not for subclassing.

    `run` must run in a task of the owner's as long as frames are to be passed.
    Reading happens only when the next frame is asked for: a worker that writes
    without end blocks in its pipe.

    Args:
        process: its frame pipes belong to the port from now on.
        max_partial_s: seconds until an unfinished frame ends the iteration.
    """

    def __init__(
        self,
        process: WorkerProcess,
        *,
        max_outbox_bytes: int = MAX_OUTBOX_BYTES,
        max_outbox_frames: int = MAX_OUTBOX_FRAMES,
        max_partial_s: float = MAX_PARTIAL_FRAME_S,
        max_frame_bytes: int = MAX_FRAME_BYTES,
        max_frame_values: int = MAX_FRAME_VALUES,
    ) -> None:
        self._process = process
        self._reader = PipeReader(process.frames_out, READ_CHUNK_BYTES)
        self._max_outbox_bytes = max_outbox_bytes
        self._max_outbox_frames = max_outbox_frames
        self._max_partial_s = max_partial_s
        self._max_frame_bytes = max_frame_bytes
        self._max_frame_values = max_frame_values
        self._outbox: deque[bytes] = deque()
        self._outbox_bytes = 0
        self._changed = trio.Event()
        self._broken = False
        self._closed = False

    def send_nowait(self, frame: Frame) -> None:
        """Puts a frame behind those that wait; never blocks.

        To a worker that is gone it is lost in silence, as it would be in the
        pipe: a death is told by the process.

        Raises:
            OutboxFull: no more may wait.
            FrameTooLong: the frame is larger than any may be.
            ahpd.contracts.json.JsonError: the payload cannot be said in JSON.
            trio.ClosedResourceError: the port was closed.
        """
        line = self._encode(frame)
        if self._closed:
            raise trio.ClosedResourceError
        if self._broken:
            return
        if not self._has_room(line):
            raise OutboxFull(
                f"the worker does not read: {len(self._outbox)} frames and "
                f"{self._outbox_bytes} bytes wait for it"
            )
        self._put(line)

    async def send(self, frame: Frame) -> None:
        """Puts a frame behind those that wait, once there is room for it.

        Raises:
            trio.BrokenResourceError: the worker is gone.
            trio.ClosedResourceError: the port was closed.
            FrameTooLong: the frame is larger than any may be.
            ahpd.contracts.json.JsonError: the payload cannot be said in JSON.
        """
        line = self._encode(frame)
        await trio.lowlevel.checkpoint()
        while not self._closed and not self._broken and not self._has_room(line):
            await self._changed.wait()
        if self._closed:
            raise trio.ClosedResourceError
        if self._broken:
            raise trio.BrokenResourceError("the worker is gone")
        self._put(line)

    async def run(self) -> None:
        """Writes what waits, until the worker has died or the port is closed."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._send_all)
            await self._process.wait()
            nursery.cancel_scope.cancel()
        self._break()
        self._reader.worker_died()

    def __aiter__(self) -> AsyncIterator[Frame | BadFrame]:
        return self._frames()

    async def discard(self) -> None:
        """Reads and throws away until the worker has died, so that it is never blocked in a write.

        For a worker that is closing: one that waits for its full pipe cannot hear.
        Nobody may be iterating any more.
        """
        while await self._reader.receive():
            pass

    async def aclose(self) -> None:
        """Closes both pipes. Nothing more is sent, a running iteration ends."""
        self._closed = True
        self._break()
        await self._process.frames_in.aclose()
        await self._process.frames_out.aclose()

    async def _frames(self) -> AsyncIterator[Frame | BadFrame]:
        decoder = LineDecoder(self._max_frame_bytes)
        left_s = self._max_partial_s
        while True:
            began = trio.current_time()
            try:
                chunk = await self._reader.receive(
                    min(left_s, _LOOK_S) if decoder.partial_bytes else float("inf")
                )
            except trio.TooSlowError:
                chunk = None
            if decoder.partial_bytes:
                left_s -= min(trio.current_time() - began, _LOOK_S)
            if chunk == b"":
                return
            if chunk is not None:
                turn_began, count = time.perf_counter(), 0
                try:
                    for line in decoder.feed(chunk):
                        frame_began = time.perf_counter()
                        frame = self._parse(line)
                        await rest_after(frame_began)
                        yield frame
                        left_s = self._max_partial_s
                        count += 1
                        if count == FRAMES_PER_TURN or time.perf_counter() - turn_began > TURN_S:
                            await trio.lowlevel.checkpoint()
                            turn_began, count = time.perf_counter(), 0
                except FrameTooLong as error:
                    yield BadFrame(str(error))
                    return
            if decoder.partial_bytes and left_s <= 0:
                yield BadFrame(
                    f"a frame of which {decoder.partial_bytes} bytes came was not finished "
                    f"within {self._max_partial_s:g} s"
                )
                return

    def _parse(self, line: bytes) -> Frame | BadFrame:
        if holds_more_values(line, self._max_frame_values):
            return BadFrame(f"a frame holds more than {self._max_frame_values} values")
        return parse_frame(line)

    async def _send_all(self) -> None:
        try:
            while not self._closed:
                while self._outbox:
                    line = self._outbox[0]
                    await self._process.frames_in.send_all(line)
                    if self._outbox:
                        self._outbox.popleft()
                        self._outbox_bytes -= len(line)
                    self._tell_changed()
                changed = self._changed
                await changed.wait()
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            self._break()

    def _put(self, line: bytes) -> None:
        self._outbox.append(line)
        self._outbox_bytes += len(line)
        self._tell_changed()

    def _break(self) -> None:
        self._broken = True
        self._outbox.clear()
        self._outbox_bytes = 0
        self._tell_changed()

    def _tell_changed(self) -> None:
        changed, self._changed = self._changed, trio.Event()
        changed.set()

    def _has_room(self, line: bytes) -> bool:
        # One frame alone is always let through: its size has a limit of its own.
        return not self._outbox or (
            len(self._outbox) < self._max_outbox_frames
            and self._outbox_bytes + len(line) <= self._max_outbox_bytes
        )

    def _encode(self, frame: Frame) -> bytes:
        line = encode_frame(frame)
        if len(line) > self._max_frame_bytes:
            raise FrameTooLong(f"a frame is larger than {self._max_frame_bytes} bytes")
        return line + b"\n"


async def rest_after(began_s: float) -> None:
    """Lets everybody else run for as long as a dear step took; returns at once after a cheap one.

    A step cannot be cut, so whoever waits for one worker's waits once and not for each.

    Args:
        began_s: when the step began, on `time.perf_counter`.
    """
    took_s = time.perf_counter() - began_s
    if took_s > DEAR_FRAME_S:
        await trio.sleep(took_s)
