"""The stream under a WebSocket: it holds our rules where the library has none, or ends badly.

trio-websocket reads and writes through it. What it adds (each was seen to be
needed with trio-websocket 0.12.2):

- frames are measured before they are buffered (`FrameMeter`);
- the library closes the stream without a close frame after bytes it cannot
  decode: here closing only takes the library off the stream, so that a close
  frame can still be sent;
- a close frame that is sent while the client still writes would be lost to the
  reset that closing causes: the rest is read and thrown away first (`linger`);
- a client that takes no bytes is given up;
- messages that wait for one client go out together: the library spends several turns
  of the loop and a system call on each.
"""

import re
import socket
import struct
from collections.abc import Callable, Sequence
from typing import TypeAlias

import trio

from .websocket_frames import (
    FrameMeter,
    Violation,
    close_frame,
    is_close_frame,
    text_frame,
)

Transport: TypeAlias = "trio.SocketStream | trio.SSLStream[trio.SocketStream]"

#: One read, and one write whose progress is watched.
READ_BYTES = 64 * 1024
WRITE_BYTES = 256 * 1024

#: A request's head ends where h11 thinks that it does.
_HEAD_END = re.compile(rb"\n\r?\n")


class HeadTooLong(Exception):
    """A handshake's request line and headers are longer than their bound."""


class WebSocketStream(trio.abc.Stream):
    """One connection's bytes, for trio-websocket. Whoever made it closes the transport.

    Attributes:
        finished: The library reads no more: it let go, the client is gone, or a
            rule was broken. Set before `on_finished` is called, once.
        on_finished: Called at that moment, from whichever task found out.
        close_sent: A close frame has been written, or has begun to be.
        bytes_sent: What was given to the transport.
    """

    def __init__(self, transport: Transport, meter: FrameMeter, *, send_stall_s: float) -> None:
        self._transport = transport
        self._meter = meter
        self._send_stall_s = send_stall_s
        # Read before the library asks: the head, and what a hasty client sent with it.
        self._head: bytes | None = None
        self._early = b""
        # Frames begin once our `101` is out. The library would lose what it read before.
        self._opened = trio.Event()
        self._receiving = trio.Lock()
        # The library answers pings while we write messages.
        self._sending = trio.Lock()
        self._receive_scope: trio.CancelScope | None = None
        self._send_scope: trio.CancelScope | None = None
        self._detached = False
        self._mid_write = False
        self.finished = False
        self.on_finished: Callable[[], None] = lambda: None
        self.close_sent = False
        self.bytes_sent = 0

    @property
    def violation(self) -> Violation | None:
        """The rule of ours that the client broke, if any."""
        return self._meter.violation

    async def read_head(self, max_bytes: int) -> bool:
        """Reads the handshake's head, which the library is then given at once.

        Returns:
            False if the client left before it was whole.

        Raises:
            HeadTooLong: it is longer than `max_bytes`.
            trio.BrokenResourceError: the connection broke.
        """
        data = bytearray()
        while True:
            chunk = await self._transport.receive_some(READ_BYTES)
            if not chunk:
                return False
            searched = max(0, len(data) - 2)
            data += chunk
            end = _HEAD_END.search(data, searched)
            if (end.end() if end else len(data)) > max_bytes:
                raise HeadTooLong
            if end:
                self._head = bytes(data[: end.end()])
                self._early = bytes(data[end.end() :])
                return True

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        """The head, then the client's frames up to the first that breaks a rule, then the end."""
        if self._head is not None:
            head, self._head = self._head, None
            await trio.lowlevel.checkpoint()
            return head
        if self._detached:
            raise trio.ClosedResourceError
        with trio.CancelScope() as self._receive_scope:
            await self._opened.wait()
            if self._meter.violation is not None:
                self._finish()
                return b""
            data = await self._receive_frames(max_bytes or READ_BYTES)
            if not data:
                self._finish()
            return data
        # The library, or `abort`, has let go of the stream.
        raise trio.ClosedResourceError

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """Writes `data`.

        Raises:
            trio.BrokenResourceError: the client is gone, or took nothing for `send_stall_s`.
            trio.ClosedResourceError: the library or `abort` let go of the stream.
        """
        if self._detached:
            raise trio.ClosedResourceError
        if not self._opened.is_set() and bytes(data[:12]) == b"HTTP/1.1 101":
            self._opened.set()
        elif self._opened.is_set() and is_close_frame(data):
            self.close_sent = True
        try:
            await self._write(data)
        except trio.BrokenResourceError:
            self._finish()
            raise

    async def send_texts(self, texts: Sequence[str]) -> None:
        """Writes whole messages beside the library, which cuts none of its own into ours.

        Raises:
            UnicodeEncodeError: a text holds a lone surrogate; nothing was sent.
            trio.BrokenResourceError: the client is gone, or took nothing for `send_stall_s`.
            trio.ClosedResourceError: a close frame was sent, or the stream was let go of.
        """
        data = b"".join(map(text_frame, texts))
        if self._detached or self.close_sent:
            raise trio.ClosedResourceError
        try:
            await self._write(data)
        except trio.BrokenResourceError:
            self._finish()
            raise

    async def wait_send_all_might_not_block(self) -> None:
        """Waits until the transport could take a byte."""
        await self._transport.wait_send_all_might_not_block()

    async def aclose(self) -> None:
        """Takes the library off the stream. The transport stays open; a write under way goes on."""
        self._detach()
        await trio.lowlevel.checkpoint()

    def abort(self) -> None:
        """Ends every read and write at once."""
        self._detach()
        if self._send_scope is not None:
            self._send_scope.cancel()

    async def send_close(self, code: int, reason: str) -> bool:
        """Sends a close frame behind the library's back, if none was sent and one can be.

        Returns:
            Whether this call sent it.
        """
        if self.close_sent or self._mid_write or not self._opened.is_set():
            return False
        self.close_sent = True
        try:
            await self._write(close_frame(code, reason))
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return False
        return True

    async def linger(self) -> None:
        """Says that nothing more will come, and throws away what the client still sends.

        Returns when its close frame or its end has come. The caller limits the time.
        """
        try:
            if isinstance(self._transport, trio.SocketStream):
                await self._transport.send_eof()
            async with self._receiving:
                while not self._meter.saw_close:
                    data = await self._transport.receive_some(READ_BYTES)
                    if not data:
                        return
                    self._meter.feed(data)
        except (trio.BrokenResourceError, trio.ClosedResourceError, trio.BusyResourceError):
            return

    def reset_if_mid_write(self) -> None:
        """Makes closing the transport drop what the kernel still holds for a stuck client."""
        if self._mid_write:
            reset_on_close(socket_of(self._transport))

    async def _receive_frames(self, max_bytes: int) -> bytes | bytearray:
        while True:
            if self._early:
                data: bytes | bytearray = self._early
                self._early = b""
            else:
                async with self._receiving:
                    try:
                        data = await self._transport.receive_some(max_bytes)
                    except trio.BrokenResourceError:
                        self._finish()
                        raise
            passed = self._meter.feed(data)
            if self.close_sent:
                # We closed. The library may still want to answer a ping, and fails:
                # it is told of nothing but the end.
                if not data or self._meter.saw_close:
                    return b""
                continue
            return data if passed == len(data) else data[:passed]

    async def _write(self, data: bytes | bytearray | memoryview) -> None:
        try:
            # Waiting for a lock that nobody holds would cost a turn of the loop.
            self._sending.acquire_nowait()
        except trio.WouldBlock:
            await self._sending.acquire()
        try:
            if self._mid_write:
                # Something was cut off in the middle: whatever follows would be read as its rest.
                raise trio.ClosedResourceError
            await self._write_all(data)
        finally:
            self._sending.release()

    async def _write_all(self, data: bytes | bytearray | memoryview) -> None:
        self._mid_write = True
        with trio.CancelScope() as self._send_scope, memoryview(data) as view:
            for start in range(0, len(view), WRITE_BYTES):
                piece = view[start : start + WRITE_BYTES]
                with trio.move_on_after(self._send_stall_s) as stall:
                    self.bytes_sent += len(piece)
                    await self._transport.send_all(piece)
                if stall.cancelled_caught:
                    raise trio.BrokenResourceError("the client takes no bytes")
            self._mid_write = False
            return
        raise trio.ClosedResourceError

    def _detach(self) -> None:
        self._detached = True
        if self._receive_scope is not None:
            self._receive_scope.cancel()
        self._finish()

    def _finish(self) -> None:
        if not self.finished:
            self.finished = True
            self.on_finished()


def socket_of(transport: Transport) -> trio.socket.SocketType:
    """The socket under the transport."""
    if isinstance(transport, trio.SSLStream):
        return transport.transport_stream.socket
    return transport.socket


def reset_on_close(sock: trio.socket.SocketType) -> None:
    """Closing the socket will send a reset and drop what was not sent (SO_LINGER of 0 s)."""
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    except OSError:
        # Already closed: then nothing is held.
        return


def give_up_on_silence(
    sock: trio.socket.SocketType, *, idle_s: int, interval_s: int, probes: int, unacked_s: float
) -> None:
    """Lets the kernel find out that a peer vanished without a FIN, also while we write to it."""
    options = [
        ("SO_KEEPALIVE", socket.SOL_SOCKET, 1),
        ("TCP_KEEPIDLE", socket.IPPROTO_TCP, idle_s),
        ("TCP_KEEPINTVL", socket.IPPROTO_TCP, interval_s),
        ("TCP_KEEPCNT", socket.IPPROTO_TCP, probes),
        ("TCP_USER_TIMEOUT", socket.IPPROTO_TCP, int(unacked_s * 1000)),
        ("TCP_NODELAY", socket.IPPROTO_TCP, 1),
    ]
    for name, level, value in options:
        option = getattr(socket, name, None)
        if option is not None:
            try:
                sock.setsockopt(level, option, value)
            except OSError:
                # A value out of the kernel's range (127 probes at most), or a peer
                # that is gone already. Neither is a reason to refuse a client.
                continue
