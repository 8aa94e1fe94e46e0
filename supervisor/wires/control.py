"""The control socket: who may steer the host, and the frames by which they do.

A Unix socket in the state directory. Workers run as the same user and could
connect, whatever the file's mode: so a peer that descends from the keeper is
refused by its process number, and everybody else must say the token first.
"""

import codecs
import hmac
import math
import os
import socket
import struct
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing
from pathlib import Path
from typing import Any

import structlog
import trio

from ...contracts.control_wire import (
    CONTROL_SOCKET,
    CONTROL_WIRE_VERSION,
    FAILURE_BAD_REQUEST,
    FAILURE_BUSY,
    FAILURE_INTERNAL,
    FAILURE_REFUSED,
    FAILURE_UNKNOWN_REQUEST,
    MAX_CONTROL_REQUEST_BYTES,
    FileNamed,
    HelloAnswer,
    LogEnded,
    LogPiece,
    Logs,
    LogTail,
    Named,
    Nothing,
    StopLogs,
    read_payload,
)
from ...contracts.frames import (
    BadFrame,
    Event,
    Failure,
    Frame,
    FrameTooLong,
    LineDecoder,
    Request,
    Success,
    encode_frame,
    parse_request,
)
from ...contracts.shapes import ShapeError, unstructure
from ..bounds import Bounds
from ..operations import OperationRefused, Operations
from ..state_dir import socket_path

log = structlog.get_logger()

#: Requests of one connection that are worked on at one time, followed logs included.
MAX_REQUESTS_AT_ONCE = 16

READ_CHUNK_BYTES = 16 * 1024

_PEER_CREDENTIALS = struct.Struct("iII")


class ControlSocket:
    """Serves operators. Not for subclassing.

    Args:
        folder: the state directory; the socket is made in it.
        token: what `host.hello` must present.
        version: the host's own.
        is_descendant: whether a process is a worker's, or may be.
        stop: called for `host.stop`; must answer at once.
    """

    def __init__(
        self,
        operations: Operations,
        *,
        folder: Path,
        token: str,
        version: str,
        bounds: Bounds,
        is_descendant: Callable[[int], bool],
        stop: Callable[[], None],
    ) -> None:
        self.operations = operations
        self.token = token
        self.version = version
        self.bounds = bounds
        self.stop = stop
        self._folder = folder
        self._is_descendant = is_descendant
        self._connections = 0

    async def serve(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serves until cancelled; then every connection is closed and the socket is gone.

        Whoever calls it holds the state directory: a socket that stands there is a dead host's.

        Raises:
            OSError: the socket cannot be made.
        """
        listener = trio.SocketListener(self._listen())
        task_status.started()
        try:
            await trio.serve_listeners(self._serve_one, [listener])
        finally:
            (self._folder / CONTROL_SOCKET).unlink(missing_ok=True)

    def _listen(self) -> trio.socket.SocketType:
        (self._folder / CONTROL_SOCKET).unlink(missing_ok=True)
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        try:
            with socket_path(self._folder, CONTROL_SOCKET) as path:
                sock.bind(path)
                # Before `listen`: until then nobody can connect.
                os.chmod(path, 0o600)
            sock.listen(self.bounds.max_control_connections)
        except OSError:
            sock.close()
            raise
        return trio.socket.from_stdlib_socket(sock)

    async def _serve_one(self, stream: trio.SocketStream) -> None:
        connection = ControlConnection(self, stream)
        self._connections += 1
        try:
            refused = self._refusal(stream)
            if refused is not None:
                await connection.refuse(*refused)
            else:
                await connection.run()
        except* trio.BrokenResourceError:
            pass  # The peer is gone, which is its right at any moment.
        except* Exception:
            # Whatever one operator provokes ends that connection and nothing else.
            log.exception("a control connection failed")
        finally:
            self._connections -= 1
            await trio.aclose_forcefully(stream)

    def _refusal(self, stream: trio.SocketStream) -> tuple[str, str] | None:
        """Why this peer is not even heard: a code and a sentence."""
        limit = self.bounds.max_control_connections
        if self._connections > limit:
            return FAILURE_BUSY, f"The host has {limit} control connections already."
        data = stream.socket.getsockopt(
            socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER_CREDENTIALS.size
        )
        pid, uid, _gid = _PEER_CREDENTIALS.unpack(data)
        if uid != os.geteuid():
            log.warning("control connection refused: another user", uid=uid)
            return FAILURE_REFUSED, "This host belongs to another user."
        if self._is_descendant(pid):
            log.warning("control connection refused: a worker's process", pid=pid)
            return FAILURE_REFUSED, "A worker does not steer its host."
        return None


class ControlConnection:
    """One operator, from the hello to the end."""

    def __init__(self, control: ControlSocket, stream: trio.SocketStream) -> None:
        self._control = control
        self._stream = stream
        self._sending = trio.Lock()
        self._working = 0
        self._following: dict[str, _Following] = {}

    async def refuse(self, code: str, message: str, id: str | None = None) -> None:
        """Says why, and leaves the closing to the caller."""
        with trio.move_on_after(self._control.bounds.close_timeout_s):
            await self._send(Failure(id=id, code=code, message=message))

    async def run(self) -> None:
        """Serves the connection until the peer leaves or breaks the rules."""
        async with aclosing(self._requests()) as requests:
            with trio.move_on_after(self._control.bounds.handshake_timeout_s) as handshake:
                if await self._let_in(await anext(requests, None)):
                    handshake.deadline = math.inf
                    await self._serve(requests)
            if handshake.cancelled_caught:
                await self.refuse(FAILURE_REFUSED, "The hello took too long.")

    async def _serve(self, requests: AsyncIterator[Request | BadFrame]) -> None:
        async with trio.open_nursery() as nursery:
            async for request in requests:
                if isinstance(request, BadFrame):
                    await self._send(
                        Failure(id=request.id, code=FAILURE_BAD_REQUEST, message=request.message)
                    )
                elif request.type in AT_ONCE:
                    await self._answer(request)
                elif self._working >= MAX_REQUESTS_AT_ONCE:
                    busy = f"{MAX_REQUESTS_AT_ONCE} requests of this connection are not done yet."
                    await self._send(Failure(id=request.id, code=FAILURE_BUSY, message=busy))
                else:
                    nursery.start_soon(self._work_on, request)
                    self._working += 1
            nursery.cancel_scope.cancel()

    async def _let_in(self, first: Request | BadFrame | None) -> bool:
        if first is None:
            return False
        if isinstance(first, BadFrame):
            await self.refuse(FAILURE_BAD_REQUEST, first.message, first.id)
            return False
        if first.type != "host.hello":
            await self.refuse(FAILURE_REFUSED, "A connection begins with host.hello.", first.id)
            return False
        try:
            token = read_payload(first.type, first.payload).token
        except ShapeError as error:
            await self.refuse(FAILURE_BAD_REQUEST, str(error), first.id)
            return False
        if not hmac.compare_digest(token.encode(), self._control.token.encode()):
            log.warning("control connection refused: wrong token")
            await self.refuse(FAILURE_REFUSED, "The token is not this host's.", first.id)
            return False
        answer = HelloAnswer(
            wire=CONTROL_WIRE_VERSION, version=self._control.version, pid=os.getpid()
        )
        await self._send(Success(id=first.id, result=unstructure(answer)))
        return True

    async def _requests(self) -> AsyncGenerator[Request | BadFrame, None]:
        """Each frame as it comes; ends with the connection, or after one that is too long."""
        decoder = LineDecoder(MAX_CONTROL_REQUEST_BYTES)
        while chunk := await self._stream.receive_some(READ_CHUNK_BYTES):
            try:
                for line in decoder.feed(chunk):
                    yield parse_request(line)
            except FrameTooLong as error:
                yield BadFrame(str(error))
                return

    async def _work_on(self, request: Request) -> None:
        try:
            await self._answer(request)
        finally:
            self._working -= 1

    async def _answer(self, request: Request) -> None:
        reply = await self._reply(request)
        if reply is not None:
            await self._send(reply)

    async def _reply(self, request: Request) -> Frame | None:
        answer = ANSWERS.get(request.type)
        if answer is None:
            unknown = f"There is no request {request.type[:80]!r}."
            return Failure(id=request.id, code=FAILURE_UNKNOWN_REQUEST, message=unknown)
        try:
            payload = read_payload(request.type, request.payload)
            result = await answer(self, request.id, payload)
        except ShapeError as error:
            return Failure(id=request.id, code=FAILURE_BAD_REQUEST, message=str(error))
        except OperationRefused as refused:
            return Failure(id=request.id, code=refused.code, message=refused.message)
        except trio.BrokenResourceError:
            return None
        except Exception:
            # A fault of ours: the operator is told that there was one, the log says which.
            log.exception("a control request failed", request=request.type)
            failed = "The host failed to do this; its log says more."
            return Failure(id=request.id, code=FAILURE_INTERNAL, message=failed)
        return Success(id=request.id, result=unstructure(result)) if result is not None else None

    async def _send(self, frame: Frame) -> None:
        async with self._sending:
            await self._stream.send_all(encode_frame(frame) + b"\n")

    # -- each request -----------------------------------------------------------------

    async def _status(self, id: str, payload: Nothing) -> Any:
        return self._control.operations.status()

    async def _access(self, id: str, payload: Nothing) -> Any:
        return self._control.operations.access()

    async def _processes(self, id: str, payload: Nothing) -> Any:
        return await self._control.operations.processes()

    async def _kill(self, id: str, payload: Named) -> Any:
        return await self._control.operations.kill(payload.id)

    async def _restart(self, id: str, payload: Named) -> Any:
        return await self._control.operations.restart(payload.id)

    async def _backup(self, id: str, payload: FileNamed) -> Any:
        await self._control.operations.backup(Path(payload.path))
        return Nothing()

    async def _import(self, id: str, payload: FileNamed) -> Any:
        return await self._control.operations.import_session(Path(payload.path))

    async def _logs(self, id: str, payload: Logs) -> Any:
        chat, output = await self._control.operations.log_of(payload.id)
        if not payload.follow:
            text = output.tail(payload.tail_bytes).decode("utf-8", "replace")
            return LogTail(chat=chat, text=text)
        if id in self._following:
            raise OperationRefused(FAILURE_BAD_REQUEST, f"The request {id!r} follows a log.")
        following = self._following[id] = _Following()
        try:
            await self._send(Success(id=id, result=unstructure(LogTail(chat=chat, text=""))))
            # The tail is the first event, so that nothing falls between it and the rest.
            async with aclosing(output.follow(payload.tail_bytes)) as pieces:
                await self._follow(id, following, pieces)
        finally:
            del self._following[id]
        return None

    async def _follow(self, id: str, following: "_Following", pieces: AsyncIterator[bytes]) -> None:
        # A piece may end inside of a character.
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        while (piece := await following.next(pieces)) is not None:
            text = decoder.decode(piece)
            if text:
                told = LogPiece(request=id, text=text)
                await self._send(Event(event="host.log", payload=unstructure(told)))
        ended = unstructure(LogEnded(request=id))
        await self._send(Event(event="host.logEnded", payload=ended))

    async def _stop_logs(self, id: str, payload: StopLogs) -> Any:
        following = self._following.get(payload.request)
        if following is not None:
            following.stop()
        return Nothing()

    async def _stop(self, id: str, payload: Nothing) -> Any:
        self._control.stop()
        return Nothing()


class _Following:
    """A followed log, which can be stopped between two pieces and never inside of a frame."""

    def __init__(self) -> None:
        self._stopped = False
        self._waiting: trio.CancelScope | None = None

    async def next(self, pieces: AsyncIterator[bytes]) -> bytes | None:
        """The next piece; None at the log's end, or when it was stopped."""
        if self._stopped:
            return None
        with trio.CancelScope() as self._waiting:
            return await anext(pieces, None)
        return None

    def stop(self) -> None:
        """Ends the following."""
        self._stopped = True
        if self._waiting is not None:
            self._waiting.cancel()


_Answer = Callable[[ControlConnection, str, Any], Awaitable[Any]]

#: Requests that never wait, and make room for others: answered before the next is read.
AT_ONCE = frozenset({"host.logs.stop"})

#: What answers each request; None as an answer: it was answered already.
ANSWERS: Mapping[str, _Answer] = {
    "host.status": ControlConnection._status,
    "host.access": ControlConnection._access,
    "host.processes": ControlConnection._processes,
    "host.kill": ControlConnection._kill,
    "host.logs": ControlConnection._logs,
    "host.logs.stop": ControlConnection._stop_logs,
    "host.restart": ControlConnection._restart,
    "host.backup": ControlConnection._backup,
    "host.import": ControlConnection._import,
    "host.stop": ControlConnection._stop,
}
