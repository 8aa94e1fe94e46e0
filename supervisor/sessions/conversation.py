"""One worker's life for one chat: launched, loaded, seeded, created, asked, and dead in the end.

The chat hears of it through a `Listener` and never waits for it: what it tells
the worker goes into a bounded outbox in order, what it asks is waited for in
tasks of this life's own nursery, which ends with the worker.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

import structlog
import trio
from attrs import frozen

from ...contracts.frames import MAX_FRAME_BYTES, PART_BYTES
from ...contracts.json import encode_json
from ...contracts.worker_wire import (
    FAILURE_NO_MEMBER,
    WORKER_REQUESTS,
    Close,
    Create,
    Created,
    Load,
    Nothing,
    Seed,
    Taken,
)
from ..bounds import Bounds
from ..processes.launcher import Exit, Launcher, LaunchError, LaunchSpec, WorkerProcess
from ..processes.output_log import OutputLog
from ..processes.pace import Gate, Pace
from ..processes.worker_client import Asked, WorkerClient, WorkerFault, WorkerGone, WorkerRefused
from ..processes.worker_port import OutboxFull, WorkerPort

Json = dict[str, Any]
Outcome = Taken | WorkerRefused | WorkerGone | trio.TooSlowError

#: After a worker's death its last frames are read; this bounds how long.
LAST_FRAMES_S = 1.0

#: Between the end of its frames and its death a worker has this long.
SILENT_S = 1.0

#: How long after the kill grace a tree may take to be gone before we stop waiting for the count.
BURIAL_S = 5.0


@frozen(kw_only=True)
class Plan:
    """Everything a worker needs to become this conversation."""

    spec: LaunchSpec
    load: Load
    create: Create
    seed: Sequence[Json] = ()
    """The ended turns so far, oldest first."""


class Listener(Protocol):
    """Who hears of a worker's life. Nothing here may wait."""

    def on_created(self, conversation: "Conversation", created: Created) -> None:
        """The agent's session is there; from now on it can be told things."""

    def on_worker_event(self, conversation: "Conversation", name: str, payload: Any) -> None:
        """The worker told something (`contracts.worker_wire.WORKER_EVENTS`)."""

    def on_ended(self, conversation: "Conversation", how: str) -> None:
        """The worker is gone and its last frames were read; `how` follows "the agent's process"."""


class Conversation:
    """The worker of one chat. Made once a life: a replacement is another one."""

    def __init__(
        self,
        *,
        launcher: Launcher,
        plan: Plan,
        bounds: Bounds,
        log: OutputLog,
        listener: Listener,
        gate: Gate | None = None,
    ) -> None:
        self._launcher = launcher
        self._plan = plan
        self._bounds = bounds
        self._log = log
        self._listener = listener
        self._nursery: trio.Nursery | None = None
        self._client: WorkerClient | None = None
        self._cause: str | None = None
        self._end_grace_s: float | None = None
        self.process: WorkerProcess | None = None
        self.members: frozenset[str] = frozenset()
        """The optional members that the agent's session has; empty until it is created."""
        self.tools: list[Any] = list(plan.create.tools or ())
        """The clients' tools that the agent was told of last."""
        self.ready = False
        """Whether the agent's session was created and the worker still runs."""
        self._ready_or_ended = trio.Event()
        self.ended = trio.Event()
        """Set when nothing of this worker is left."""
        self.processes_ended = 0
        """How many processes its tree came to, when `ended` is set."""
        self.started_s = trio.current_time()
        self.pace = Pace(
            bounds.actions_per_s,
            bounds.actions_burst,
            gate,
            bytes_per_s=bounds.action_bytes_per_s,
        )
        """What of this worker goes on to clients is spent from it."""

    @property
    def failed_to_create(self) -> bool:
        """Whether the worker ended before the agent's session was there."""
        return not self.members and self._cause is not None

    async def run(self) -> None:
        """Lives this life from launch to burial; returns when nothing is left of the worker."""
        try:
            process = await self._launcher.start(self._plan.spec)
        except LaunchError as error:
            self._finish(f"could not be started: {error}")
            return
        self.process = process
        if self._end_grace_s is not None:
            process.end(self._end_grace_s)
        how = "ended"
        try:
            how = await self._live(process)
        except* Exception:
            # Whatever of ours fails on a worker's words ends this worker, and not the host.
            structlog.get_logger().exception(
                "the host failed on a worker's words", chat=self._plan.create.chat_id
            )
            self._cause = self._cause or "was given up: the host failed on its words, see its log"
            self._log.write_host_line(f"worker {self._cause}")
        finally:
            self.ready = False
            self._ready_or_ended.set()
            with trio.CancelScope(shield=True):
                process.end(self._bounds.kill_grace_s if self._end_grace_s else 0)
                if self._cause is None:
                    self._cause = how
                self._listener.on_ended(self, self._cause)
                with trio.move_on_after(self._bounds.kill_grace_s + BURIAL_S):
                    self.processes_ended = await process.gone()
                await process.aclose()
                self.ended.set()

    async def _live(self, process: WorkerProcess) -> str:
        port = WorkerPort(
            process,
            max_frame_bytes=self._bounds.max_frame_bytes,
            max_frame_values=self._bounds.max_frame_values,
            max_partial_s=self._bounds.partial_frame_s,
        )
        self._client = client = WorkerClient(port, self._on_event, pace=self.pace)
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            read_all, logged_all = trio.Event(), trio.Event()
            nursery.start_soon(port.run)
            nursery.start_soon(self._write_log, process, logged_all)
            nursery.start_soon(self._read, client, read_all)
            nursery.start_soon(self._create, client)
            ended = await process.wait()
            # From now on a turn that begins waits for the next worker.
            self.ready = False
            client.worker_died()
            # What it managed to say before it died still counts.
            with trio.move_on_after(LAST_FRAMES_S):
                await read_all.wait()
                await logged_all.wait()
            client.close()
            nursery.cancel_scope.cancel()
        self._nursery = None
        self._log.write_host_line(f"worker ended: {ended.sentence()}")
        return self._last_words(ended)

    def _last_words(self, ended: Exit) -> str:
        line = self._log.last_stderr_line
        return f"{ended.sentence()}; its last words were: {line}" if line else ended.sentence()

    def _finish(self, how: str) -> None:
        self._cause = how
        self._log.write_host_line(f"worker {how}")
        self._ready_or_ended.set()
        self._listener.on_ended(self, how)
        self.ended.set()

    async def _read(self, client: WorkerClient, read_all: trio.Event) -> None:
        try:
            await client.run()
        except WorkerFault as fault:
            self.fail(str(fault))
            return
        finally:
            read_all.set()
        # A process that ends closes its pipes first, and this task ends with it. One
        # that lives on without them can neither be heard nor end its turn.
        await trio.sleep(SILENT_S)
        self.fail("closed the pipe through which it speaks")

    async def _write_log(self, process: WorkerProcess, logged_all: trio.Event) -> None:
        await self._log.run(process)
        logged_all.set()

    async def _create(self, client: WorkerClient) -> None:
        timeout_s = self._bounds.create_timeout_s
        plan = self._plan
        try:
            with trio.fail_after(timeout_s):
                await client.greeted.wait()
                await self._ask(client, "worker.load", plan.load)
                for turns in seed_parts(plan.seed):
                    await self._ask(client, "session.seed", Seed(turns=turns))
                created: Created = await self._ask(client, "session.create", plan.create)
        except trio.TooSlowError:
            self.fail(f"did not create the session within {timeout_s:g} s")
        except WorkerRefused as refused:
            self.fail(f"could not create the session: {refused}")
        except WorkerGone:
            return
        except (OutboxFull, WorkerFault) as error:
            self.fail(str(error))
        else:
            if self._cause is None:
                self.members = frozenset([*created.members, "begin"])
                self.ready = True
                self._ready_or_ended.set()
                self._listener.on_created(self, created)

    async def _ask(self, client: WorkerClient, kind: str, payload: Any) -> Any:
        return await client.ask_nowait(kind, payload).result(WORKER_REQUESTS[kind][1])

    def _on_event(self, name: str, payload: Any) -> None:
        self._listener.on_worker_event(self, name, payload)

    # -- telling and asking -----------------------------------------------------------

    def tell(
        self,
        kind: str,
        payload: Any,
        then: Callable[[Outcome], None] | None = None,
        *,
        timeout_s: float | None = None,
    ) -> None:
        """Sends a request, in the order of the calls, and calls `then` with what came of it.

        It is called in the order in which the worker speaks: before anything is
        taken that the worker said after its answer.
        A worker that is not ready or gone is told nothing, and `then` hears of that.
        """
        if not self.ready or self._client is None or self._nursery is None:
            if then is not None:
                then(WorkerGone("no process of the agent is there"))
            return
        hear = _once(then or partial(self._note, kind))
        try:
            asked = self._client.ask_nowait(kind, payload, lambda asked: hear(_outcome(asked)))
        except (OutboxFull, WorkerFault) as error:
            self.fail(str(error))
            hear(WorkerGone(str(error)))
            return
        self._nursery.start_soon(
            self._give_up, asked, hear, timeout_s or self._bounds.setter_timeout_s
        )

    async def _give_up(
        self, asked: Asked, hear: Callable[[Outcome], None], timeout_s: float
    ) -> None:
        with trio.move_on_after(timeout_s) as scope:
            await asked.settled()
        if scope.cancelled_caught:
            hear(trio.TooSlowError())

    def _note(self, kind: str, heard: Outcome) -> None:
        match heard:
            case Taken(accepted=False):
                self._log.write_host_line(f"setter-tells-truth: the agent answered False to {kind}")
            case WorkerRefused(code=code) if code != FAILURE_NO_MEMBER:
                self._log.write_host_line(f"{kind} failed: {heard}")
            case trio.TooSlowError():
                self._log.write_host_line(f"{kind} was not answered in time")

    async def ask(self, kind: str, payload: Any, timeout_s: float | None = None) -> Any:
        """Asks a worker that is there or still coming up, and answers the result.

        Raises:
            WorkerRefused: it answered with a failure.
            WorkerGone: it is not there, or went away.
            trio.TooSlowError: no answer within the limit, which counts from its creation on.
        """
        with trio.fail_after(self._bounds.create_timeout_s):
            await self._ready_or_ended.wait()
        if not self.ready or self._client is None:
            raise WorkerGone("no process of the agent is there")
        try:
            return await self._client.ask(kind, payload, timeout_s or self._bounds.setter_timeout_s)
        except (OutboxFull, WorkerFault) as error:
            self.fail(str(error))
            raise WorkerGone(str(error)) from None

    def after(self, seconds: float, call: Callable[[], None]) -> None:
        """Calls `call` after that time, unless the worker ended before."""
        if self._nursery is not None:
            self._nursery.start_soon(_later, seconds, call)

    # -- the end ----------------------------------------------------------------------

    def fail(self, cause: str) -> None:
        """Gives the worker up and kills its tree; `cause` follows "the agent's process"."""
        if self._cause is None:
            self._cause = cause
        self._log.write_host_line(f"given up: {cause}")
        self.end(0)

    def end(self, grace_s: float) -> None:
        """Ends the process tree: SIGTERM, and SIGKILL after the grace. Answers at once."""
        self.ready = False
        if self._end_grace_s is None or grace_s < self._end_grace_s:
            self._end_grace_s = grace_s
        if self.process is not None:
            self.process.end(grace_s)

    def close(self, *, removing: bool) -> None:
        """Asks the agent to close, and ends what has not left by itself within the kill grace."""
        grace_s = self._bounds.kill_grace_s
        if not self.ready or self._client is None or self._nursery is None:
            self.end(grace_s)
            return
        try:
            asked = self._client.ask_nowait("session.close", Close(removing=removing))
        except (OutboxFull, WorkerFault):
            self.end(grace_s)
            return
        self.ready = False

        async def wait_for_it() -> None:
            with trio.move_on_after(grace_s):
                try:
                    await asked.result(Nothing)
                except (WorkerRefused, WorkerGone) as error:
                    structlog.get_logger().info("close refused", reason=str(error))
                if self.process is not None:
                    await self.process.wait()
            self.end(grace_s)

        self._nursery.start_soon(wait_for_it)


def _once(then: Callable[[Outcome], None]) -> Callable[[Outcome], None]:
    heard = False

    def hear(outcome: Outcome) -> None:
        nonlocal heard
        if not heard:
            heard = True
            then(outcome)

    return hear


def _outcome(asked: Asked) -> Outcome:
    try:
        return asked.reply(Taken)
    except (WorkerRefused, WorkerGone) as error:
        return error


async def _later(seconds: float, call: Callable[[], None]) -> None:
    await trio.sleep(seconds)
    call()


def seed_parts(turns: Sequence[Json]) -> list[list[Json]]:
    """Turns cut into parts of about `PART_BYTES`; a turn too large for a frame loses its parts.

    Only the seed is cut: the host's own transcript keeps the turn whole.
    """
    parts: list[list[Json]] = []
    room = 0
    for turn in turns:
        size = len(encode_json(turn))
        if size > MAX_FRAME_BYTES // 2:
            note = {"kind": "systemNotification", "content": "This turn is too long to be told."}
            turn = {**turn, "responseParts": [note]}
            size = len(encode_json(turn))
        if size > room or not parts:
            parts.append([])
            room = PART_BYTES
        parts[-1].append(turn)
        room -= size
    return parts
