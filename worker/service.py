"""Serving the host: each request is checked, started in the order it came, and answered once."""

from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import Any

import trio

from ..contracts.frames import BadFrame, Failure, Request
from ..contracts.shapes import ShapeError, structure
from ..contracts.worker_wire import (
    FAILURE_BAD_REQUEST,
    FAILURE_LOAD,
    FAILURE_RAISED,
    FAILURE_UNKNOWN_REQUEST,
    WORKER_REQUESTS,
    Close,
    Description,
    Load,
    Nothing,
)
from .answers import Answered, Handler, Refused, reply
from .catalogue import Catalogue
from .loading import LoadError, describe, load
from .members import report, sentence
from .port import WorkerPort
from .session import SessionRunner


async def serve(port: WorkerPort, leaving: Callable[[], None]) -> None:
    """Serves until the host closes the session or is gone.

    Args:
        port: where requests come from and answers go.
        leaving: called once, before what still runs is cancelled.
    """
    async with trio.open_nursery() as nursery:

        async def leave() -> None:
            leaving()
            nursery.cancel_scope.cancel()

        service = _Service(port, nursery, leave)
        async with aclosing(port.requests()) as requests:
            async for request in requests:
                if isinstance(request, BadFrame):
                    failure = Failure(
                        id=request.id, code=FAILURE_BAD_REQUEST, message=request.message
                    )
                    port.send(failure)
                else:
                    await service.take(request)
        await leave()


class _Service:
    """The table of handlers, which grows when the agent is loaded."""

    def __init__(
        self, port: WorkerPort, nursery: trio.Nursery, leave: Callable[[], Awaitable[None]]
    ) -> None:
        self._port = port
        self._nursery = nursery
        self._leave = leave
        self._handlers: dict[str, Handler] = {
            "worker.load": self._load,
            "session.close": self._close_unloaded,
        }
        self._loaded = False

    async def take(self, request: Request) -> None:
        """Starts the request; returns once the agent's member has run to its first wait."""
        shapes = WORKER_REQUESTS.get(request.type)
        if shapes is None:
            self._fail(request, FAILURE_UNKNOWN_REQUEST, f"no request is called {request.type!r}")
            return
        handler = self._handlers.get(request.type)
        if handler is None:
            self._fail(request, FAILURE_BAD_REQUEST, "`worker.load` comes before everything else")
            return
        try:
            payload: Any = structure(request.payload, shapes[0])
        except ShapeError as error:
            self._fail(request, FAILURE_BAD_REQUEST, f"{request.type}: {error}")
            return
        await self._nursery.start(self._answer, request, handler, payload)

    async def _answer(
        self,
        request: Request,
        handler: Handler,
        payload: Any,
        *,
        task_status: trio.TaskStatus[None],
    ) -> None:
        # The one who reads requests goes on only at a later turn of the loop, so
        # what follows runs to its first wait before the next request is read.
        task_status.started()
        try:
            result = await handler(payload)
        except Refused as error:
            self._fail(request, error.code, str(error))
            return
        except Exception as error:
            report(request.type, error)
            self._fail(request, FAILURE_RAISED, sentence(error))
            return
        answered = result if isinstance(result, Answered) else Answered(result=result)
        reply(self._port, request.id, answered)
        if answered.then is not None:
            await answered.then()

    async def _load(self, request: Load) -> Description:
        if self._loaded:
            raise Refused(FAILURE_BAD_REQUEST, "an agent is loaded already")
        try:
            agent = load(request)
            description = await describe(agent, request.factory)
        except LoadError as error:
            raise Refused(FAILURE_LOAD, str(error)) from None
        self._loaded = True
        self._handlers |= Catalogue(agent).handlers()
        self._handlers |= SessionRunner(self._port, agent, self._nursery, self._leave).handlers()
        return description

    async def _close_unloaded(self, request: Close) -> Answered:
        return Answered(result=Nothing(), then=self._leave)

    def _fail(self, request: Request, code: str, message: str) -> None:
        self._port.send(Failure(id=request.id, code=code, message=message))
