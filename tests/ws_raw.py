"""A WebSocket client on a bare socket, for what no library would let a client do.

It frames what it is told to frame, correct or not, and keeps no rules. Every
wait is the test's to bound.
"""

import base64
import os
import socket
import ssl
import struct
from collections.abc import Callable
from typing import Any

import trio

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0x0, 0x1, 0x2, 0x8, 0x9, 0xA


class Closed(Exception):
    """The server closed: with a close frame, or, when `code` is None, without one."""

    def __init__(self, code: int | None, reason: str = "") -> None:
        super().__init__(code, reason)
        self.code = code
        self.reason = reason


def frame(
    opcode: int, payload: bytes = b"", *, fin: bool = True, mask: bool = True, rsv: int = 0
) -> bytes:
    """One frame's bytes; the mask is all zeros, so that the payload stands as it is."""
    head = bytes([(0x80 if fin else 0) | (rsv << 4) | opcode])
    bit = 0x80 if mask else 0
    if len(payload) < 126:
        head += bytes([bit | len(payload)])
    elif len(payload) < 65536:
        head += bytes([bit | 126]) + struct.pack("!H", len(payload))
    else:
        head += bytes([bit | 127]) + struct.pack("!Q", len(payload))
    return head + (bytes(4) if mask else b"") + payload


def frame_head(opcode: int, length: int, *, fin: bool = True) -> bytes:
    """A masked frame's header alone, with any length it likes to claim."""
    return bytes([(0x80 if fin else 0) | opcode, 0x80 | 127]) + struct.pack("!Q", length) + bytes(4)


def request(
    target: str = "/",
    *,
    headers: dict[str, str | bytes] | None = None,
    without: tuple[str, ...] = (),
) -> bytes:
    """An upgrade request's bytes; `headers` replace or add to the usual ones."""
    fields: dict[str, str | bytes] = {
        "Host": "127.0.0.1",
        "Upgrade": "websocket",
        "Connection": "Upgrade",
        "Sec-WebSocket-Key": base64.b64encode(os.urandom(16)).decode(),
        "Sec-WebSocket-Version": "13",
        **(headers or {}),
    }
    lines = [f"GET {target} HTTP/1.1".encode()]
    for name, value in fields.items():
        if name not in without:
            raw = value if isinstance(value, bytes) else value.encode()
            lines.append(name.encode() + b": " + raw)
    return b"\r\n".join([*lines, b"", b""])


async def until(condition: Callable[[], bool]) -> None:
    """Waits for what the other side of a socket will have done soon; the test bounds the wait."""
    # What is asked is the server's own state: no event announces its change.
    while not condition():  # noqa: ASYNC110
        await trio.sleep(0.005)


class Response:
    """What the server answered to a handshake."""

    def __init__(self, head: bytes) -> None:
        first, *rest = head.decode("latin-1").split("\r\n")
        self.status = int(first.split()[1])
        self.headers = {
            name.strip().lower(): value.strip()
            for name, _, value in (line.partition(":") for line in rest if line)
        }


class RawClient:
    """One connection; use it as an async context manager, which closes the socket."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream
        self._data = b""

    @classmethod
    async def connect(
        cls,
        port: int,
        *,
        host: str = "127.0.0.1",
        tls: ssl.SSLContext | None = None,
        receive_buffer_bytes: int | None = None,
    ) -> "RawClient":
        """A TCP (or TLS) connection on which nothing has been said yet."""
        sock = trio.socket.socket()
        if receive_buffer_bytes is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        await sock.connect((host, port))
        stream: Any = trio.SocketStream(sock)
        if tls is not None:
            stream = trio.SSLStream(stream, tls, server_hostname=host, https_compatible=True)
            await stream.do_handshake()
        return cls(stream)

    @classmethod
    async def open(cls, port: int, target: str = "/", **options: Any) -> "RawClient":
        """A connection whose handshake the server accepted."""
        headers = options.pop("headers", None)
        client = await cls.connect(port, **options)
        response = await client.handshake(target, headers=headers)
        assert response.status == 101, f"the server answered {response.status}"
        return client

    async def __aenter__(self) -> "RawClient":
        return self

    async def __aexit__(self, *_: object) -> None:
        await trio.aclose_forcefully(self.stream)

    async def send(self, data: bytes) -> None:
        """Bytes as they are."""
        await self.stream.send_all(data)

    async def send_text(self, text: str) -> None:
        """A text message in one frame."""
        await self.send(frame(TEXT, text.encode()))

    async def handshake(self, target: str = "/", **options: Any) -> Response:
        """Sends an upgrade request and reads the head of its answer."""
        await self.send(request(target, **options))
        return await self.response()

    async def response(self) -> Response:
        """The head of an HTTP answer. Raises `Closed` if none comes."""
        while b"\r\n\r\n" not in self._data:
            await self._more()
        head, _, self._data = self._data.partition(b"\r\n\r\n")
        return Response(head)

    async def receive_frame(self) -> tuple[int, bytes, bool]:
        """The next frame: opcode, payload, fin. Raises `Closed(None)` at the end."""
        first, second = await self._exactly(2)
        length = second & 0x7F
        if length == 126:
            (length,) = struct.unpack("!H", await self._exactly(2))
        elif length == 127:
            (length,) = struct.unpack("!Q", await self._exactly(8))
        assert not second & 0x80, "a server must not mask"
        return first & 0x0F, await self._exactly(length), bool(first & 0x80)

    async def receive_text(self) -> str:
        """The next text message; pings and pongs are passed over. Raises `Closed`."""
        while True:
            opcode, payload, fin = await self.receive_frame()
            if opcode == CLOSE:
                code = int.from_bytes(payload[:2], "big") if payload else 1005
                raise Closed(code, payload[2:].decode())
            if opcode in (PING, PONG):
                continue
            assert opcode == TEXT
            assert fin
            return payload.decode()

    async def receive_close(self) -> Closed:
        """Reads on until the server closes; how it did."""
        while True:
            try:
                await self.receive_text()
            except Closed as closed:
                return closed

    async def ended(self) -> bool:
        """Reads on until the TCP connection is over; False if it was reset."""
        try:
            while await self.stream.receive_some(65536):
                pass
        except trio.BrokenResourceError:
            return False
        return True

    async def rest(self) -> bytes:
        """Everything until the end of the connection."""
        try:
            while True:
                await self._more()
        except Closed:
            data, self._data = self._data, b""
            return data

    async def _exactly(self, count: int) -> bytes:
        while len(self._data) < count:
            await self._more()
        data, self._data = self._data[:count], self._data[count:]
        return data

    async def _more(self) -> None:
        try:
            chunk = await self.stream.receive_some(262144)
        except trio.BrokenResourceError:
            raise Closed(None, "reset") from None
        if not chunk:
            raise Closed(None)
        self._data += chunk
