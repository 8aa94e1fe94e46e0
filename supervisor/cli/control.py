"""The command line's end of the control socket: plain, blocking, without an event loop.

A command such as `ps` is to feel instant, so nothing heavy is imported here.
"""

import os
import select
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

from ...contracts.control_wire import (
    CONTROL_EVENTS,
    CONTROL_REQUESTS,
    CONTROL_SOCKET,
    CONTROL_WIRE_VERSION,
    MAX_CONTROL_REPLY_BYTES,
    HelloAnswer,
    HostHello,
)
from ...contracts.frames import (
    BadFrame,
    Event,
    Failure,
    FrameTooLong,
    LineDecoder,
    Request,
    Success,
    encode_frame,
    parse_server_frame,
)
from ...contracts.shapes import ShapeError, structure, unstructure
from ..state_dir import read_own_token, socket_path
from .failures import CommandFailed, NoHost

#: What the host answers at once. Ending a process has no limit here: the host has one.
ANSWER_LIMIT_S = 10.0

READ_CHUNK_BYTES = 64 * 1024

_PEER_CREDENTIALS = struct.Struct("iII")


class RequestFailed(CommandFailed):
    """The host answered with a failure."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class ControlClient:
    """A connection to the running host, let in. Made by `connect`; use it in a `with`."""

    def __init__(self, state_dir: Path, sock: socket.socket) -> None:
        self._state_dir = state_dir
        self._socket = sock
        self._decoder = LineDecoder(MAX_CONTROL_REPLY_BYTES)
        self._lines: list[bytes] = []
        self._asked = 0

    @classmethod
    def connect(cls, state_dir: Path) -> "ControlClient":
        """Connects to the host on a state directory and says hello.

        Raises:
            NoHost: none is running.
            CommandFailed: it does not let us in, or speaks another wire.
        """
        token = read_own_token(state_dir)
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        try:
            with socket_path(state_dir, CONTROL_SOCKET) as path:
                sock.connect(path)
        except OSError as error:
            sock.close()
            if isinstance(error, FileNotFoundError | ConnectionRefusedError | NotADirectoryError):
                raise NoHost(state_dir) from None
            why = error.strerror or error
            raise CommandFailed(f"Cannot reach the host on {state_dir}: {why}.") from None
        client = cls(state_dir, sock)
        try:
            if token is None:
                raise CommandFailed(f"There is no token in {state_dir} to show to its host.")
            answer: HelloAnswer = client.ask("host.hello", HostHello(token=token))
            if answer.wire.partition(".")[0] != CONTROL_WIRE_VERSION.partition(".")[0]:
                raise CommandFailed(
                    f"The host is of version {answer.version} and does not speak with this one."
                )
        except BaseException:
            sock.close()
            raise
        return client

    def __enter__(self) -> "ControlClient":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._socket.close()

    @property
    def host_pid(self) -> int:
        """The host's process, as the kernel says; 0 where it cannot be seen from here."""
        data = self._socket.getsockopt(
            socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER_CREDENTIALS.size
        )
        return int(_PEER_CREDENTIALS.unpack(data)[0])

    def ask(self, kind: str, payload: Any, *, limit_s: float | None = ANSWER_LIMIT_S) -> Any:
        """The result of a request, in its shape.

        Args:
            limit_s: how long to wait for it; None for as long as the host lives.

        Raises:
            RequestFailed: the host refused.
            NoHost: it ended meanwhile.
            CommandFailed: it does not answer.
        """
        ident = self.send(kind, payload)
        self._socket.settimeout(limit_s)
        while True:
            frame = self._frame()
            match frame:
                case Success(id=id, result=result) if id == ident:
                    return self._structured(result, CONTROL_REQUESTS[kind][1])
                # Without an id it is the connection that is refused.
                case Failure(id=id, code=code, message=message) if id in (ident, None):
                    raise RequestFailed(code, message)

    def send(self, kind: str, payload: Any) -> str:
        """Sends a request without waiting; answers its id."""
        self._asked += 1
        ident = str(self._asked)
        frame = encode_frame(Request(id=ident, type=kind, payload=unstructure(payload)))
        try:
            self._socket.sendall(frame + b"\n")
        except OSError:
            # A host that does not let us in says why before it closes.
            pass
        return ident

    def events(self) -> Iterator[Any]:
        """What the host tells, in its shape, for as long as the connection holds."""
        self._socket.settimeout(None)
        while True:
            try:
                frame = self._frame()
            except NoHost:
                return
            if isinstance(frame, Event) and frame.event in CONTROL_EVENTS:
                yield self._structured(frame.payload, CONTROL_EVENTS[frame.event])

    def _structured(self, value: Any, shape: type) -> Any:
        try:
            return structure(value, shape, at="answer")
        except ShapeError as error:
            raise CommandFailed(f"The host answered what was not asked: {error}.") from None

    def _frame(self) -> Success | Failure | Event:
        while not self._lines:
            try:
                chunk = self._socket.recv(READ_CHUNK_BYTES)
                self._lines.extend(self._decoder.feed(chunk))
            except TimeoutError:
                raise CommandFailed("The host does not answer.") from None
            except OSError:
                chunk = b""
            except FrameTooLong as error:
                raise CommandFailed(f"The host answered too much: {error}.") from None
            if not chunk:
                raise NoHost(self._state_dir)
        frame = parse_server_frame(self._lines.pop(0))
        if isinstance(frame, BadFrame):
            raise CommandFailed(f"The host answered what was not asked: {frame.message}.")
        return frame


@contextmanager
def watched_process(pid: int) -> Iterator[select.poll]:
    """A poll that is ready once a process has ended; at once when it cannot be seen."""
    poll = select.poll()
    try:
        descriptor = os.pidfd_open(pid) if pid > 0 else os.open(os.devnull, os.O_RDONLY)
    except OSError:
        descriptor = os.open(os.devnull, os.O_RDONLY)
    try:
        poll.register(descriptor, select.POLLIN)
        yield poll
    finally:
        os.close(descriptor)
