"""Frames: the envelope of requests, replies and events, its codec, and the port that passes it.

Used between supervisor and worker, on the control socket and, later, at `/chats`.
The envelope is agent-contracts' (reference: its section "Envelope"): a request
`{id, type, payload}`, a success `{id, ok: true, result}`, a failure
`{id, ok: false, error: {code, message}}`, an event `{type: 'event', event, payload}`.
"""

from collections.abc import AsyncIterator, Iterator
from typing import Any, Protocol, TypeAlias

from attrs import frozen

from .json import JsonError, decode_json, encode_json

#: A frame on a pipe, without its newline. A larger one ends the worker that
#: sends it, so nothing legitimate may need one (see `PART_BYTES`).
MAX_FRAME_BYTES = 16 * 1024 * 1024

#: How many JSON values a worker's frame may hold (`json.holds_more_values`): far more
#: than anything of an agent's does, and few enough to be looked at in a moment.
MAX_FRAME_VALUES = 100_000

#: What travels in parts (seed turns, transcripts, lists) is cut at this size.
PART_BYTES = 1024 * 1024


@frozen(kw_only=True)
class Request:
    """Asks the other end for something; answered by one `Success` or `Failure` of the same id."""

    id: str
    type: str
    payload: Any


@frozen(kw_only=True)
class Success:
    """The answer to the request of that id."""

    id: str
    result: Any


@frozen(kw_only=True)
class Failure:
    """The refusal of the request of that id; `id` is None when the frame had no usable one."""

    id: str | None
    code: str
    message: str


@frozen(kw_only=True)
class Event:
    """Something that happened; nobody answers."""

    event: str
    payload: Any


@frozen
class BadFrame:
    """What was received is no frame; `message` is for a person, `id` what could be read of it."""

    message: str
    id: str | None = None


Reply: TypeAlias = Success | Failure
Frame: TypeAlias = Request | Success | Failure | Event


def parse_request(data: bytes | str) -> Request | BadFrame:
    """A request's envelope, or what is wrong with it. Never raises; the payload stays unchecked."""
    value = _parse(data)
    if isinstance(value, BadFrame):
        return value
    ident, kind = value.get("id"), value.get("type")
    usable = ident if isinstance(ident, str) and ident else None
    if usable is None:
        return BadFrame("a request needs `id`, a nonempty string")
    if not isinstance(kind, str) or not kind:
        return BadFrame("a request needs `type`, a nonempty string", usable)
    if "payload" not in value:
        return BadFrame("a request needs `payload`", usable)
    return Request(id=usable, type=kind, payload=value["payload"])


def parse_server_frame(data: bytes | str) -> Success | Failure | Event | BadFrame:
    """A reply's or event's envelope, or what is wrong with it. Never raises."""
    value = _parse(data)
    return value if isinstance(value, BadFrame) else _server_frame(value)


def parse_frame(data: bytes | str) -> Frame | BadFrame:
    """Any frame's envelope, for a port on which both ends ask. Never raises."""
    value = _parse(data)
    if isinstance(value, BadFrame):
        return value
    if value.get("type") == "event" or "ok" in value:
        return _server_frame(value)
    ident, kind = value.get("id"), value.get("type")
    if isinstance(ident, str) and ident and isinstance(kind, str) and kind and "payload" in value:
        return Request(id=ident, type=kind, payload=value["payload"])
    return BadFrame("neither a request, a reply nor an event")


def encode_frame(frame: Frame) -> bytes:
    """The frame as one JSON document, without a newline.

    Raises:
        JsonError: the payload cannot be said in JSON.
    """
    match frame:
        case Request():
            value: dict[str, Any] = {"id": frame.id, "type": frame.type, "payload": frame.payload}
        case Success():
            value = {"id": frame.id, "ok": True, "result": frame.result}
        case Failure():
            error = {"code": frame.code, "message": frame.message}
            value = {"id": frame.id, "ok": False, "error": error}
        case Event():
            value = {"type": "event", "event": frame.event, "payload": frame.payload}
    return encode_json(value)


class FrameTooLong(ValueError):
    """A line grew past the limit before it ended."""


class LineDecoder:
    """Bytes in, whole lines out: the pure half of the pipe framing.

    Not thread-safe. Once it raised `FrameTooLong` the stream cannot be trusted
    and the decoder must not be fed again.
    """

    def __init__(self, max_bytes: int = MAX_FRAME_BYTES) -> None:
        self._max_bytes = max_bytes
        self._parts: list[bytes] = []
        self._held = 0

    @property
    def partial_bytes(self) -> int:
        """How many bytes of an unfinished line are held."""
        return self._held

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The lines that `data` completes, without their newline; empty lines are passed over.

        Raises:
            FrameTooLong: a line is longer than the limit.
        """
        start = 0
        while (end := data.find(b"\n", start)) >= 0:
            piece = data[start:end]
            if self._held + len(piece) > self._max_bytes:
                raise FrameTooLong(f"a frame is larger than {self._max_bytes} bytes")
            line = b"".join([*self._parts, piece]) if self._parts else piece
            self._parts.clear()
            self._held = 0
            start = end + 1
            if line:
                yield line
        if start < len(data):
            rest = data[start:] if start else data
            self._parts.append(rest)
            self._held += len(rest)
            if self._held > self._max_bytes:
                raise FrameTooLong(f"a frame is larger than {self._max_bytes} bytes")
            if len(self._parts) > 512:
                # A peer that writes one byte at a time must not cost an object a byte.
                self._parts = [b"".join(self._parts)]


class FramePort(Protocol):
    """Passes frames between two ends. Knows nothing of connecting, timeouts or who is there.

    Iterating yields each incoming frame unchecked, and `BadFrame` for what is
    none; it ends when the other end is gone.
    """

    async def send(self, frame: Frame) -> None:
        """Sends one frame, waiting while the other end is not reading.

        Raises:
            trio.BrokenResourceError: the other end is gone.
            trio.ClosedResourceError: this end was closed.
        """

    def __aiter__(self) -> AsyncIterator[Frame | BadFrame]: ...


def _parse(data: bytes | str) -> dict[str, Any] | BadFrame:
    try:
        value = decode_json(data)
    except JsonError as error:
        return BadFrame(str(error))
    return value if isinstance(value, dict) else BadFrame("a frame is a JSON object")


def _server_frame(value: dict[str, Any]) -> Success | Failure | Event | BadFrame:
    if value.get("type") == "event":
        name = value.get("event")
        if not isinstance(name, str) or not name or "payload" not in value:
            return BadFrame("an event needs `event`, a nonempty string, and `payload`")
        return Event(event=name, payload=value["payload"])
    ident, ok = value.get("id"), value.get("ok")
    usable = ident if isinstance(ident, str) and ident else None
    if ok is True:
        if usable is None or "result" not in value:
            return BadFrame("a success needs `id`, a nonempty string, and `result`", usable)
        return Success(id=usable, result=value["result"])
    if ok is False:
        error = value.get("error")
        code = error.get("code") if isinstance(error, dict) else None
        message = error.get("message") if isinstance(error, dict) else None
        if not isinstance(code, str) or not isinstance(message, str):
            return BadFrame("a failure needs `error` with `code` and `message`", usable)
        if ident is not None and usable is None:
            return BadFrame("a failure's `id` is a nonempty string or null")
        return Failure(id=usable, code=code, message=message)
    return BadFrame("neither a reply nor an event")
