"""WebSocket frames as far as our own rules need them: measured by their headers, never decoded.

Pure. What a server sends is written here too: it is never masked, and our messages
are never cut. The library that decodes them counts characters, and only what it has
already buffered; our limit is in bytes and holds from a frame's header on, so
that nothing of a message that is too large is ever kept. (RFC 6455, 5.2.)
"""

from attrs import frozen

#: Close codes (RFC 6455, 7.4.1) that this host gives a reason of its own.
PROTOCOL_ERROR = 1002
UNSUPPORTED_DATA = 1003
INVALID_TEXT = 1007
MESSAGE_TOO_BIG = 1009
INTERNAL_ERROR = 1011
TRY_AGAIN_LATER = 1013

_CONTINUATION, _TEXT, _BINARY, _CLOSE = 0x0, 0x1, 0x2, 0x8
_FIN, _MASKED, _OPCODE, _LENGTH = 0x80, 0x80, 0x0F, 0x7F
_LENGTH_IN_2, _LENGTH_IN_8 = 126, 127

#: A control frame's payload is at most 125 bytes, two of them the code.
_MAX_REASON_BYTES = 123


@frozen
class Violation:
    """A rule of ours that a client's frame broke: with what to close the connection."""

    code: int
    reason: str


class FrameMeter:
    """Reads along with the bytes of a connection's frames and stops what breaks our rules.

    Rules: no binary message (1003); a message of at most `max_message_bytes`
    bytes over all its fragments (1009), which arrives in at most `max_pieces`
    pieces (1009). All other faults are the decoder's to find: headers that it
    will refuse are read here without complaint.

    Attributes:
        violation: The first rule that was broken, if any.
        saw_close: A close frame has begun.
    """

    def __init__(self, *, max_message_bytes: int, max_pieces: int) -> None:
        self._max_message_bytes = max_message_bytes
        self._max_pieces = max_pieces
        self._header = bytearray()
        self._payload_left = 0
        self._is_data = False
        self._message_bytes = 0
        self._pieces = 0
        self.violation: Violation | None = None
        self.saw_close = False

    def feed(self, data: bytes | bytearray) -> int:
        """Reads `data`; how many of its first bytes come before anything that breaks a rule.

        After a violation it goes on reading frames, to see the close frame, and
        answers 0.
        """
        broken_before = self.violation is not None
        passed = len(data)
        at = 0
        while at < len(data):
            start = at
            if self._payload_left:
                step = min(self._payload_left, len(data) - at)
                self._payload_left -= step
                at += step
                violation = self._count_piece() if self._is_data else None
            else:
                # A header that began in an earlier chunk was passed on with it.
                start = max(0, at - len(self._header))
                at, violation = self._read_header(data, at)
            if violation is not None and self.violation is None:
                self.violation = violation
                passed = start
        return 0 if broken_before else passed

    def _read_header(self, data: bytes | bytearray, at: int) -> tuple[int, Violation | None]:
        header = self._header
        while at < len(data):
            header.append(data[at])
            at += 1
            if len(header) >= 2 and len(header) == _header_bytes(header[1]):
                violation = self._begin_frame(header)
                header.clear()
                return at, violation
        return at, None

    def _begin_frame(self, header: bytearray) -> Violation | None:
        opcode = header[0] & _OPCODE
        self._payload_left = length = _payload_bytes(header)
        self._is_data = opcode in (_CONTINUATION, _TEXT, _BINARY)
        if opcode == _CLOSE:
            self.saw_close = True
        if opcode == _BINARY:
            return Violation(UNSUPPORTED_DATA, "messages are text: one JSON document each")
        if not self._is_data:
            return None
        if opcode != _CONTINUATION:
            self._message_bytes = self._pieces = 0
        self._message_bytes += length
        if self._message_bytes > self._max_message_bytes:
            limit = self._max_message_bytes
            return Violation(MESSAGE_TOO_BIG, f"a message is at most {limit} bytes")
        return None if length else self._count_piece()

    def _count_piece(self) -> Violation | None:
        self._pieces += 1
        if self._pieces > self._max_pieces:
            return Violation(MESSAGE_TOO_BIG, f"a message in more than {self._max_pieces} pieces")
        return None


def text_frame(text: str) -> bytes:
    """A server's text message in one frame.

    Raises:
        UnicodeEncodeError: the text holds a lone surrogate.
    """
    payload = text.encode()
    length = len(payload)
    if length < _LENGTH_IN_2:
        head = bytes((_FIN | _TEXT, length))
    elif length < 1 << 16:
        head = bytes((_FIN | _TEXT, _LENGTH_IN_2)) + length.to_bytes(2, "big")
    else:
        head = bytes((_FIN | _TEXT, _LENGTH_IN_8)) + length.to_bytes(8, "big")
    return head + payload


def close_frame(code: int, reason: str) -> bytes:
    """A server's close frame; a reason that is too long is cut between characters."""
    text = reason.encode("utf-8", "replace")[:_MAX_REASON_BYTES]
    payload = code.to_bytes(2, "big") + text.decode("utf-8", "ignore").encode()
    return bytes((_FIN | _CLOSE, len(payload))) + payload


def is_close_frame(data: bytes | bytearray | memoryview) -> bool:
    """Whether `data` begins with the header of a close frame."""
    return len(data) > 0 and data[0] == _FIN | _CLOSE


def _header_bytes(second: int) -> int:
    length = second & _LENGTH
    extended = {_LENGTH_IN_2: 2, _LENGTH_IN_8: 8}.get(length, 0)
    return 2 + extended + (4 if second & _MASKED else 0)


def _payload_bytes(header: bytearray) -> int:
    length = header[1] & _LENGTH
    if length == _LENGTH_IN_2:
        return int.from_bytes(header[2:4], "big")
    if length == _LENGTH_IN_8:
        return int.from_bytes(header[2:10], "big")
    return length
