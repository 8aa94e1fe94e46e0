"""A client that costs next to nothing: a blocking socket, frames cut and not decoded.

What a client spends is not what is measured, and on a machine of two cores it would be.
"""

import base64
import json
import os
import selectors
import socket
import struct
import time
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

Json = dict[str, Any]

#: How long anything may take until the measurement is given up.
PATIENCE_S = 120.0

_READ_BYTES = 1024 * 1024


def drain(clients: Sequence["Client"], last: bytes) -> None:
    """Reads from all of them until each was sent these bytes; nothing is cut into messages."""
    with selectors.DefaultSelector() as selector:
        tails = dict.fromkeys(clients, b"")
        for client in clients:
            selector.register(client.socket, selectors.EVENT_READ, client)
        while tails:
            for key, _ in selector.select(PATIENCE_S):
                client = key.data
                data = client.socket.recv(_READ_BYTES)
                assert data, "the host closed the connection"
                seen = tails[client] + data
                if last in seen:
                    selector.unregister(client.socket)
                    del tails[client]
                else:
                    tails[client] = seen[-len(last) :]


class Client:
    """One WebSocket, read by hand."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self.socket = socket.create_connection((parts.hostname, parts.port), timeout=PATIENCE_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._data = bytearray()
        self._at = 0
        self._ids = 0
        self._seqs = 0
        key = base64.b64encode(os.urandom(16)).decode()
        self.socket.sendall(
            f"GET {parts.path or '/'} HTTP/1.1\r\nHost: {parts.netloc}\r\nUpgrade: websocket\r\n"
            f"Connection: Upgrade\r\nSec-WebSocket-Key: {key}\r\n"
            "Sec-WebSocket-Version: 13\r\n\r\n".encode()
        )
        while (end := self._data.find(b"\r\n\r\n")) < 0:
            self._more()
        assert b" 101 " in self._data[:end], bytes(self._data)
        self._at = end + 4

    def close(self) -> None:
        """Drops the connection."""
        self.socket.close()

    def send(self, message: Any) -> None:
        """One text message; the mask is all zeros."""
        payload = message.encode() if isinstance(message, str) else json.dumps(message).encode()
        size = len(payload)
        head = b"\x81"
        if size < 126:
            head += bytes([0x80 | size])
        elif size < 65536:
            head += bytes([0x80 | 126]) + struct.pack("!H", size)
        else:
            head += bytes([0x80 | 127]) + struct.pack("!Q", size)
        self.socket.sendall(head + bytes(4) + payload)

    def receive(self) -> bytes:
        """The next message."""
        first, size = self._exactly(2)
        size &= 0x7F
        if size == 126:
            (size,) = struct.unpack("!H", self._exactly(2))
        elif size == 127:
            (size,) = struct.unpack("!Q", self._exactly(8))
        payload = self._exactly(size)
        assert first & 0x0F == 1, (first, payload)
        return payload

    def until(self, said: bytes) -> list[bytes]:
        """Every message up to the first that holds these bytes, that one included."""
        messages = []
        while True:
            messages.append(self.receive())
            if said in messages[-1]:
                return messages

    def request(self, method: str, **params: Any) -> Any:
        """Asks and waits for the result; passes over whatever comes before it."""
        self._ids += 1
        params.setdefault("channel", "ahp-root://")
        said = {"jsonrpc": "2.0", "id": self._ids, "method": method, "params": params}
        self.send(said)
        while True:
            message = json.loads(self.receive())
            if message.get("id") == self._ids:
                assert "result" in message, message
                return message["result"]

    def dispatch(self, channel: str, action: Json) -> None:
        """Sends an action."""
        self._seqs += 1
        params = {"channel": channel, "clientSeq": self._seqs, "action": action}
        self.send({"jsonrpc": "2.0", "method": "dispatchAction", "params": params})

    def initialize(self, name: str) -> None:
        """Opens the connection as that client."""
        self.request("initialize", protocolVersions=["1.0.0"], clientId=name)

    def start_turn(self, chat: str, turn_id: str, text: str) -> None:
        """Says something."""
        message = {"text": text, "origin": {"kind": "user"}}
        started_at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        said = {"type": "chat/turnStarted", "turnId": turn_id, "startedAt": started_at}
        self.dispatch(chat, {**said, "message": message})

    def _exactly(self, count: int) -> bytes:
        while len(self._data) - self._at < count:
            self._more()
        data = bytes(self._data[self._at : self._at + count])
        self._at += count
        return data

    def _more(self) -> None:
        if self._at > _READ_BYTES or self._at == len(self._data):
            del self._data[: self._at]
            self._at = 0
        data = self.socket.recv(_READ_BYTES)
        assert data, "the host closed the connection"
        self._data += data
