"""One client's WebSocket as a `TextLine`: a bounded buffer out, an iterator in, an orderly end."""

import trio
from trio_websocket import ConnectionClosed, WebSocketConnection

from ..bounds import Bounds
from .text_line import OutboundBuffer, TextLine
from .websocket_frames import INVALID_TEXT, PROTOCOL_ERROR, TRY_AGAIN_LATER, UNSUPPORTED_DATA
from .websocket_stream import WRITE_BYTES, WebSocketStream

#: Recorded, never sent: the client was gone without a closing handshake (RFC 6455, 7.4.1).
ABNORMAL = 1006


class WebSocketLine(TextLine):
    """The line of one WebSocket connection whose handshake is done.

    `write_out` must run in a task beside the route; it alone writes messages
    and it alone ends the connection. The listener starts it.

    Attributes:
        close_code: Why the connection ended, once `closed` is set: the code that
            was sent or received, 1006 for neither.
        close_reason: Its reason, as sent or received.
    """

    def __init__(
        self, connection: WebSocketConnection, stream: WebSocketStream, *, peer: str, bounds: Bounds
    ) -> None:
        self.peer = peer
        self.closed = trio.Event()
        self.close_code = ABNORMAL
        self.close_reason = ""
        self._connection = connection
        self._stream = stream
        self._close_timeout_s = bounds.close_timeout_s
        self._buffer = OutboundBuffer(bounds.max_outbound_bytes)
        self._wake = trio.Event()
        # Bounds the end of the connection: its deadline is set when the end begins.
        self._writing = trio.CancelScope()
        # The code and reason with which this side closes, once it has decided to.
        self._closing: tuple[int, str] | None = None
        stream.on_finished = self._begin_end
        if stream.finished:
            self._begin_end()

    def send(self, text: str) -> None:
        if self._closing is not None or self._stream.finished:
            return
        if self._buffer.put(text):
            self._wake.set()
            return
        self._buffer.clear()
        self._begin_close(TRY_AGAIN_LATER, "too much waits to be read by this client")

    @property
    def buffered_bytes(self) -> int:
        return self._buffer.size_bytes

    @property
    def is_closing(self) -> bool:
        """This end has begun to close."""
        return self._closing is not None

    async def close(self, code: int = 1000, reason: str = "") -> None:
        self._begin_close(code, reason)
        await self.closed.wait()

    async def __anext__(self) -> str:
        if self._closing is not None:
            raise StopAsyncIteration
        try:
            message = await self._connection.get_message()
        except ConnectionClosed:
            raise StopAsyncIteration from None
        if isinstance(message, str):
            return message
        # The stream refuses a binary frame by its header, so that none comes here.
        self._begin_close(UNSUPPORTED_DATA, "messages are text")
        raise StopAsyncIteration

    async def write_out(self) -> None:
        """Writes what is sent until the connection ends, and ends it. Runs once.

        Returns within `close_timeout_s` after the end began, whatever the client does.
        """
        try:
            with self._writing:
                await self._drain()
                await self._say_goodbye()
        finally:
            self._buffer.clear()
            self._stream.reset_if_mid_write()
            # Wakes the library's reader, and with it whoever iterates.
            self._stream.abort()
            self.closed.set()

    def _begin_close(self, code: int, reason: str) -> None:
        if self._closing is None and not self._stream.finished:
            self._closing = self.close_code, self.close_reason = code, reason
            self._begin_end()

    def _begin_end(self) -> None:
        latest = trio.current_time() + self._close_timeout_s
        self._writing.deadline = min(self._writing.deadline, latest)
        self._wake.set()

    async def _drain(self) -> None:
        while not self._stream.finished:
            texts = self._buffer.oldest(WRITE_BYTES)
            if texts:
                try:
                    await self._stream.send_texts(texts)
                except (trio.BrokenResourceError, trio.ClosedResourceError):
                    return
                self._buffer.drop(len(texts))
            elif self._closing is not None:
                return
            else:
                self._wake = trio.Event()
                await self._wake.wait()

    async def _say_goodbye(self) -> None:
        if self._closing is not None and self._connection.closed is None:
            await self._connection.aclose(*self._closing)
            return
        # The client ended it, or a fault of its. The route may hear of that before the
        # library has let go of the stream, and have asked to close: nothing is sent
        # while the library may still be answering.
        self._begin_end()
        while not self._stream.finished:
            self._wake = trio.Event()
            await self._wake.wait()
        fault = self._fault()
        self.close_code, self.close_reason = fault or self._told()
        if fault is not None and await self._stream.send_close(*fault):
            await self._stream.linger()

    def _fault(self) -> tuple[int, str] | None:
        """What the client did wrong that it has not been told of yet."""
        if self._stream.violation is not None:
            return self._stream.violation.code, self._stream.violation.reason
        told = self._connection.closed
        if told is None or self._stream.close_sent:
            return None
        # The library found bytes that it cannot decode and let go of the stream in silence.
        code = int(told.code)
        return (code, told.reason or "") if code in (PROTOCOL_ERROR, INVALID_TEXT) else None

    def _told(self) -> tuple[int, str]:
        told = self._connection.closed
        return (ABNORMAL, "") if told is None else (int(told.code), told.reason or "")
