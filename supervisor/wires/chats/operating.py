"""The `host.*` requests of the control socket, beside the contracts' own on this wire.

The shapes are the control wire's. Its hello is this wire's handshake, and `host.stop`
is the control socket's alone: both are unknown here.
"""

import codecs
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final

import trio

from ....contracts.chats import ChatError
from ....contracts.control_wire import (
    FAILURE_BUSY,
    LogEnded,
    LogPiece,
    Logs,
    LogTail,
    Named,
    Nothing,
    StopLogs,
    read_payload,
)
from ....contracts.frames import Event, Request, encode_frame
from ....contracts.shapes import unstructure
from ...operations import OperationRefused, Operations
from ...processes.output_log import OutputLog
from .answers import Answer, Later, Told

if TYPE_CHECKING:
    from .connection import ChatsConnection

__all__ = ["OPERATING", "Following", "OperationRefused", "answer", "read_payload"]

#: Logs that one connection follows at one time.
MAX_FOLLOWED: Final = 16

#: The requests that are served here.
OPERATING: Final = frozenset(
    {
        "host.status",
        "host.access",
        "host.processes",
        "host.kill",
        "host.restart",
        "host.logs",
        "host.logs.stop",
    }
)


def answer(connection: "ChatsConnection", request: Request, payload: Any) -> Answer:
    """Answers a request of `OPERATING`.

    Raises:
        ChatError, OperationRefused: it cannot be done; with a code and a sentence.
    """
    operations = connection.operations
    if operations is None:
        raise ChatError("chat-unsupported", "This host is operated from elsewhere.")
    if request.type == "host.logs.stop":
        return _stop_logs(connection, payload)
    if request.type == "host.logs":
        return _logs(connection, operations, request.id, payload)
    done = _DONE[request.type]
    return Later(lambda: done(operations, payload))


async def _status(operations: Operations, payload: Nothing) -> Any:
    return operations.status()


async def _access(operations: Operations, payload: Nothing) -> Any:
    return operations.access()


async def _processes(operations: Operations, payload: Nothing) -> Any:
    return await operations.processes()


async def _kill(operations: Operations, payload: Named) -> Any:
    return await operations.kill(payload.id)


async def _restart(operations: Operations, payload: Named) -> Any:
    return await operations.restart(payload.id)


_DONE: Mapping[str, Callable[[Operations, Any], Awaitable[Any]]] = {
    "host.status": _status,
    "host.access": _access,
    "host.processes": _processes,
    "host.kill": _kill,
    "host.restart": _restart,
}


# -- logs ---------------------------------------------------------------------------------


class Following:
    """A log that one connection follows, until it is stopped, ends, or the connection does."""

    def __init__(self) -> None:
        self._scope = trio.CancelScope()

    def stop(self) -> None:
        """Ends the following."""
        self._scope.cancel()

    async def run(
        self, connection: "ChatsConnection", request: str, log: OutputLog, tail: int
    ) -> None:
        """Sends the tail and each further piece, and in the end that it is over."""
        # A piece may end inside of a character.
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        with self._scope:
            async with aclosing(log.follow(tail)) as pieces:
                async for piece in pieces:
                    text = decoder.decode(piece)
                    if text:
                        _send(connection, "host.log", LogPiece(request=request, text=text))
                    await trio.lowlevel.checkpoint()
        connection.following.pop(request, None)
        _send(connection, "host.logEnded", LogEnded(request=request))


def _send(connection: "ChatsConnection", event: str, payload: Any) -> None:
    frame = Event(event=event, payload=unstructure(payload))
    connection.send_text(encode_frame(frame).decode())


def _logs(
    connection: "ChatsConnection", operations: Operations, ident: str, payload: Logs
) -> Answer:
    if ident in connection.following:
        raise ChatError("bad-request", f"The request {ident[:200]!r} follows a log.")
    if payload.follow and len(connection.following) >= MAX_FOLLOWED:
        many = f"{MAX_FOLLOWED} logs are followed on this connection already."
        raise OperationRefused(FAILURE_BUSY, many)
    return Later(lambda: _read_log(connection, operations, ident, payload))


async def _read_log(
    connection: "ChatsConnection", operations: Operations, ident: str, payload: Logs
) -> Any:
    chat, log = await operations.log_of(payload.id)
    if not payload.follow:
        text = log.tail(payload.tail_bytes).decode("utf-8", "replace")
        return LogTail(chat=chat, text=text)
    following = connection.following[ident] = Following()

    def told() -> Any:
        # The task begins after the answer went out: its first event is the tail.
        connection.start(following.run, connection, ident, log, payload.tail_bytes)
        return LogTail(chat=chat, text="")

    return Told(told)


def _stop_logs(connection: "ChatsConnection", payload: StopLogs) -> Answer:
    following = connection.following.get(payload.request)
    if following is not None:
        following.stop()
    return Told(Nothing)
