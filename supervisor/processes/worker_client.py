"""Asking a worker: requests with replies, its events, and the suspicion that both deserve.

A worker is not trusted. Its first frame must be a hello of our major version;
every name must stand in `contracts/worker_wire`, every payload must fit its
shape, every reply must answer something that was asked. What does not fit is a
fault: reading stops, and whoever runs the worker ends it.
"""

import time
from collections.abc import Callable
from typing import Any, TypeVar, cast

import trio
from attrs import define, field

from ...contracts.frames import PART_BYTES, BadFrame, Event, Failure, Frame, Request, Success
from ...contracts.json import encode_json
from ...contracts.shapes import ShapeError, structure, unstructure
from ...contracts.worker_wire import (
    WORKER_EVENTS,
    WORKER_REQUESTS,
    WORKER_WIRE_VERSION,
    Hello,
    Part,
)
from .pace import Pace
from .worker_port import WorkerPort, rest_after

T = TypeVar("T")

#: How much one long answer may come to, over all its parts.
MAX_ANSWER_BYTES = 64 * 1024 * 1024

#: How many requests may wait for their replies at once.
MAX_PENDING = 10_000


#: What a worker's reason for a refusal is cut at: it is told to clients, and to many of them.
MAX_REASON_CHARS = 2000


class WorkerRefused(Exception):
    """The worker answered with a failure.

    Attributes:
        code: one of `contracts.worker_wire`'s `FAILURE_*`.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message[:MAX_REASON_CHARS])
        self.code = code


class WorkerGone(Exception):
    """The worker ended, or was given up, before it answered."""


class WorkerFault(Exception):
    """The worker sent what no worker of ours sends; the message is one sentence."""


@define(eq=False)
class Asked:
    """A request that was sent and its reply, when it is there."""

    kind: str
    heard: "Callable[[Asked], None] | None" = None
    """Called when the reply is there or never will be, before the next frame is looked at."""
    _answered: trio.Event = field(factory=trio.Event)
    _reply: Success | Failure | None = None
    parts: list[Any] = field(factory=list)
    """What came of a long answer before its reply."""
    _part_bytes: int = 0

    def settle(self, reply: Success | Failure | None) -> None:
        """The reply is there, or never will be (None)."""
        self._reply = reply
        self._answered.set()
        if self.heard is not None:
            self.heard(self)

    def add_part(self, items: list[Any]) -> None:
        """Adds a piece of a long answer.

        Raises:
            WorkerFault: the piece or the whole is larger than a worker may send.
        """
        size = len(encode_json(items))
        self._part_bytes += size
        # One item may be larger than a part, since an item is never cut.
        if (size > 2 * PART_BYTES and len(items) > 1) or self._part_bytes > MAX_ANSWER_BYTES:
            raise WorkerFault(f"sent a longer answer to {self.kind} than a worker may")
        self.parts.extend(items)

    async def settled(self) -> None:
        """Waits until the reply is there or never will be."""
        await self._answered.wait()

    async def result(self, shape: type[T]) -> T:
        """Waits for the reply and answers its result, or raises as `reply` does."""
        await self._answered.wait()
        return self.reply(shape)

    def reply(self, shape: type[T]) -> T:
        """The result, once the reply was heard.

        Raises:
            WorkerRefused: it was a failure, or its result does not fit the shape.
            WorkerGone: it will not come.
        """
        if self._reply is None:
            raise WorkerGone("the agent's process ended before it answered")
        if isinstance(self._reply, Failure):
            raise WorkerRefused(self._reply.code, self._reply.message)
        try:
            return structure(self._reply.result, shape)
        except ShapeError as error:
            raise WorkerRefused("bad-reply", f"the answer to {self.kind}: {error}") from None


class WorkerClient:
    """The asking side of one worker.

    Args:
        port: its frames.
        on_event: called with each event's name and structured payload, in order,
            before the next frame is read. `worker.hello` and `worker.part` are
            not handed on.
        pace: how fast it is read, for whoever spends from it; as fast as it can be
            when there is none.
    """

    def __init__(
        self,
        port: WorkerPort,
        on_event: Callable[[str, Any], None],
        *,
        pace: Pace | None = None,
    ) -> None:
        self._port = port
        self._on_event = on_event
        self._pace = pace
        self._asked: dict[str, Asked] = {}
        self._count = 0
        self._closed = False
        self.greeted = trio.Event()
        """Set when the worker said hello."""

    def ask_nowait(
        self, kind: str, payload: Any, heard: Callable[[Asked], None] | None = None
    ) -> Asked:
        """Sends a request, in the order of the calls, and answers what will hold its reply.

        Args:
            heard: see `Asked.heard`. A task that waits for the reply is woken only
                after whatever else the worker wrote with it was taken.

        Raises:
            OutboxFull: the worker has not read for so long that no more fits.
        """
        asked = Asked(kind, heard)
        if self._closed:
            asked.settle(None)
            return asked
        if len(self._asked) >= MAX_PENDING:
            raise WorkerFault("has left more requests unanswered than a worker may")
        self._count += 1
        ident = str(self._count)
        self._port.send_nowait(Request(id=ident, type=kind, payload=unstructure(payload)))
        self._asked[ident] = asked
        return asked

    async def ask(self, kind: str, payload: Any, timeout_s: float) -> Any:
        """Asks and waits; the result has the shape that `WORKER_REQUESTS` names.

        Raises:
            WorkerRefused, WorkerGone: see `Asked.result`.
            trio.TooSlowError: no reply within `timeout_s`; a late one is ignored.
        """
        asked = self.ask_nowait(kind, payload)
        with trio.fail_after(timeout_s):
            return await asked.result(WORKER_REQUESTS[kind][1])

    async def ask_long(self, kind: str, payload: Any, timeout_s: float) -> tuple[Any, list[Any]]:
        """Like `ask`, for an answer that may come in parts: the result, and the items of all."""
        asked = self.ask_nowait(kind, payload)
        with trio.fail_after(timeout_s):
            result: Any = await asked.result(WORKER_REQUESTS[kind][1])
        return result, [*asked.parts, *getattr(result, "items", [])]

    async def run(self) -> None:
        """Reads the worker's frames until there are no more, then fails what was still asked.

        Raises:
            WorkerFault: it sent what no worker sends; nothing more is read.
        """
        try:
            async for frame in self._port:
                began_s = time.perf_counter()
                self._handle(frame)
                await rest_after(began_s)
                if self._pace is not None and self._pace.owes:
                    await self._pace.settle()
        finally:
            self.close()

    def worker_died(self) -> None:
        """What it left in its pipe is bounded, and is read as fast as it can be."""
        self._pace = None

    def close(self) -> None:
        """Whatever was asked and is not answered yet never will be."""
        self._closed = True
        asked, self._asked = self._asked, {}
        for waiting in asked.values():
            waiting.settle(None)

    def _handle(self, frame: Frame | BadFrame) -> None:
        if not self.greeted.is_set():
            self._greet(frame)
            return
        match frame:
            case BadFrame():
                raise WorkerFault(f"sent bytes that are no frame: {frame.message}")
            case Event(event="worker.part"):
                part = cast(Part, _shaped(frame.payload, Part, "worker.part"))
                if part.id in self._asked:
                    self._asked[part.id].add_part(part.items)
            case Event():
                shape = WORKER_EVENTS.get(frame.event)
                if shape is None or shape is Hello:
                    raise WorkerFault(f"sent an event that no worker sends: {frame.event[:80]}")
                self._on_event(frame.event, _shaped(frame.payload, shape, frame.event))
            case Success() | Failure():
                asked = self._asked.pop(frame.id or "", None)
                if asked is None:
                    raise WorkerFault("answered what nobody asked")
                asked.settle(frame)
            case Request():
                raise WorkerFault("asked the host, which a worker never does")

    def _greet(self, frame: Frame | BadFrame) -> None:
        if not isinstance(frame, Event) or frame.event != "worker.hello":
            raise WorkerFault("did not say hello first")
        hello = cast(Hello, _shaped(frame.payload, Hello, "worker.hello"))
        ours = WORKER_WIRE_VERSION.partition(".")[0]
        if hello.wire.partition(".")[0] != ours:
            raise WorkerFault(
                f"speaks version {hello.wire[:20]} of the worker wire, and this host "
                f"{WORKER_WIRE_VERSION}: install the same ahpd-supervisor on both sides"
            )
        self.greeted.set()


def _shaped(payload: Any, shape: type, name: str) -> Any:
    try:
        return structure(payload, shape)
    except ShapeError as error:
        raise WorkerFault(f"sent a faulty {name}: {error}") from None
