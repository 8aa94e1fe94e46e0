"""Reads a worker's pipe until its end, or, once the worker has died, what is still in it.

End-of-file alone is no measure: a grandchild that inherited the pipe can hold
it open, and write, for as long as it likes.
"""

import trio

#: The largest a pipe may be made without privileges: more than that was not
#: written before the worker died.
MAX_REST_BYTES = 1024 * 1024

#: A pause this long after the death means that nothing is left to read.
REST_PAUSE_S = 0.05


class PipeReader:
    """One pipe, read by one task at a time. Not for subclassing."""

    def __init__(self, stream: trio.abc.ReceiveStream, chunk_bytes: int) -> None:
        self._stream = stream
        self._chunk_bytes = chunk_bytes
        self._rest_bytes: int | None = None
        self._waiting: trio.CancelScope | None = None

    def worker_died(self) -> None:
        """From now on only what is there is read."""
        if self._rest_bytes is None:
            self._rest_bytes = MAX_REST_BYTES
            if self._waiting is not None:
                self._waiting.cancel()

    async def receive(self, timeout_s: float = float("inf")) -> bytes:
        """The next bytes, at most a chunk; empty when there are no more.

        Either bytes are answered or nothing was taken from the pipe, so it may
        be cancelled.

        Raises:
            trio.TooSlowError: none came within the timeout.
        """
        while self._rest_bytes is None:
            with trio.move_on_after(timeout_s) as self._waiting:
                return await self._receive()
            self._waiting = None
            if self._rest_bytes is None:
                raise trio.TooSlowError
        if self._rest_bytes <= 0:
            return b""
        with trio.move_on_after(REST_PAUSE_S):
            data = await self._receive()
            self._rest_bytes -= len(data)
            return data
        return b""

    async def _receive(self) -> bytes:
        try:
            return bytes(await self._stream.receive_some(self._chunk_bytes))
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return b""
