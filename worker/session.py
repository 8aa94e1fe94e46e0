"""Running one session of an agent: its start, its turns, what is asked of it, its end."""

import os
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

import trio

from ..contracts.authoring import SESSION_OPTIONAL, Start
from ..contracts.worker_wire import (
    FAILURE_BAD_REQUEST,
    FAILURE_RAISED,
    AgentId,
    Begin,
    Close,
    Completions,
    Create,
    Created,
    Items,
    Nothing,
    RuleBroken,
    Seed,
    Taken,
    TurnNamed,
    TurnOver,
)
from .answers import Answered, Handlers, Refused, no_member
from .emission import Outlet
from .members import (
    awaits,
    call,
    error_text,
    error_type,
    fields_of,
    items_of,
    member,
    paths_of,
    report,
    settled,
    text_of,
    verdict,
)
from .port import WorkerPort
from .turns import Turn, Turns

#: How long a cancelled or closed turn may still wait on a person before the worker
#: says that the rule `parked-settles` is broken.
PARKED_GRACE_S = 1.0

#: How long `agent_id` may take where no request of the host waits for it.
AGENT_ID_LIMIT_S = 5.0

#: Requests that are one call of one member, answered by its verdict: the member,
#: the fields it is always given, and those it is given where it has a parameter for them.
_ASKED: Mapping[str, tuple[str, tuple[str, ...], tuple[str, ...]]] = {
    "session.setConfig": ("set_config", ("key", "value"), ()),
    "session.setWorkingDirectories": ("set_working_directories", ("directories",), ()),
    "session.setCustomizationEnabled": ("set_customization_enabled", ("id", "enabled"), ()),
    "session.startMcpServer": ("start_mcp_server", ("id",), ()),
    "session.stopMcpServer": ("stop_mcp_server", ("id",), ()),
    "session.setTools": ("set_tools", ("tools",), ()),
    "session.clientGone": ("client_gone", ("client_id",), ()),
    "turn.steer": ("steer", ("id", "text"), ("message",)),
    "subagent.stop": ("stop_worker", ("tool_call_id",), ()),
    "request.confirm": (
        "confirm",
        ("tool_call_id", "approved"),
        ("option_id", "edited_input", "result"),
    ),
    "request.answer": ("answer", ("request_id", "accepted", "answers"), ("response",)),
    "request.setAnswer": ("set_answer", ("request_id", "question_id", "answer"), ()),
    "tool.complete": ("complete_tool_call", ("tool_call_id", "client_id", "result"), ()),
}

#: Of those, the field that names what is no longer parked once it was asked.
_SETTLES = {"request.confirm": "tool_call_id", "request.answer": "request_id"}


class SessionRunner:
    """Runs the one session of this process.

    Args:
        port: where events go.
        agent: the loaded agent.
        nursery: lives as long as the worker; turns and what follows them run in it.
        leave: ends the worker.
    """

    def __init__(
        self,
        port: WorkerPort,
        agent: Any,
        nursery: trio.Nursery,
        leave: Callable[[], Awaitable[None]],
    ) -> None:
        self._port = port
        self._agent = agent
        self._nursery = nursery
        self._leave = leave
        self._loop = trio.lowlevel.current_trio_token()
        self._seed: list[Any] = []
        self._outlet: Outlet | None = None
        self._live: Any = None
        self._turns = Turns(self._ended)

    def handlers(self) -> Handlers:
        asked = {request: partial(self._ask, request) for request in _ASKED}
        return asked | {
            "session.seed": self._add_seed,
            "session.create": self._create,
            "session.completions": self._completions,
            "session.close": self._close,
            "turn.begin": self._begin,
            "turn.cancel": self._cancel,
            "turn.resume": self._resume,
        }

    # -- the start --------------------------------------------------------------------

    async def _add_seed(self, request: Seed) -> Nothing:
        if self._outlet is not None:
            raise Refused(FAILURE_BAD_REQUEST, "a seed comes before `session.create`")
        self._seed.extend(request.turns)
        return Nothing()

    async def _create(self, request: Create) -> Answered:
        if self._outlet is not None:
            raise Refused(FAILURE_BAD_REQUEST, "this worker has its session already")
        if request.working_directory is not None:
            try:
                os.chdir(request.working_directory)
            except OSError as error:
                folder = request.working_directory
                message = f"the working folder {folder} cannot be entered: {error.strerror}"
                raise Refused(FAILURE_RAISED, message) from None
        self._outlet = Outlet(self._port, request, self._turns.heard)
        session = await settled(self._agent.create(self._start(request, self._outlet)))
        if member(session, "begin") is None:
            kind = type(session).__name__
            raise Refused(FAILURE_RAISED, f"`create` answered a {kind}, which has no `begin`")
        self._live = session
        return Answered(
            result=await self._created(),
            parts=[] if self._seed else await self._state("all_turns", items_of) or [],
            then=self._tell_agent_id,
        )

    def _start(self, request: Create, outlet: Outlet) -> Start:
        return Start(
            uri=request.uri,
            chat_uri=request.chat_uri,
            chat_id=request.chat_id,
            settings=request.settings,
            working_directory=request.working_directory,
            additional=request.additional,
            trusted=outlet.trusted,
            tools=request.tools,
            mcp_servers=request.mcp_servers,
            instructions=request.instructions,
            resume=request.resume,
            fork_at=request.fork_at,
            rewind_at=request.rewind_at,
            context=request.context,
            seed=list(self._seed) or None,
            credentials=request.credentials,
            emit=outlet.emit,
            subagent=outlet.subagent,
            on_file_edit=outlet.on_file_edit,
            on_account=outlet.on_account,
        )

    async def _created(self) -> Created:
        settings = await self._state("settings", fields_of)
        return Created(
            agent_id=await self._state("agent_id", text_of),
            title=await self._state("title", text_of),
            activity=await self._state("activity", text_of),
            models=await self._state("models", items_of),
            customizations=await self._state("customizations", items_of),
            working_directories=await self._state("working_directories", paths_of),
            settings=None if settings is None else dict(settings),
            members=[name for name in SESSION_OPTIONAL if member(self._live, name) is not None],
        )

    async def _state(self, name: str, checked: Callable[[Any, str], Any]) -> Any:
        """What a state member answers; None where it is left out or goes wrong, which is logged."""
        function = member(self._live, name)
        if function is None:
            return None
        try:
            answer = await settled(function())
            return None if answer is None else checked(answer, f"`{name}`")
        except Exception as error:
            report(f"`{name}`", error)
            return None

    # -- a turn -----------------------------------------------------------------------

    async def _begin(self, request: Begin) -> Taken | Answered:
        session = self._session()
        if self._turns.running(request.turn_id) is not None:
            return Taken(accepted=False, reason=f"the turn {request.turn_id} runs already")
        turn = self._turns.add(request.turn_id)
        try:
            answer = call(
                session.begin,
                request.turn_id,
                request.text,
                model=request.model,
                message=request.message,
            )
        except Exception as error:
            self._end_by(turn, error)
            return Answered(result=Taken(accepted=True), then=partial(self._over, turn))
        if awaits(answer):
            turn.scope = trio.CancelScope()
            run = partial(self._run, turn, turn.scope, answer)
            return Answered(result=Taken(accepted=True), then=run)
        taken = verdict(answer)
        if not taken.accepted:
            self._turns.forget(turn)
        return taken

    async def _run(self, turn: Turn, scope: trio.CancelScope, begun: Awaitable[Any]) -> None:
        """An `async def begin`, from its first statement to its last."""
        try:
            # The handler is outside: the scope takes its own Cancelled out of a group first.
            with scope:
                await begun
        except Exception as error:
            self._end_by(turn, error)
        else:
            self._end(turn, {"type": "chat/turnComplete"})
        await self._over(turn)

    def _end_by(self, turn: Turn, error: BaseException) -> None:
        report(f"`begin` of the turn {turn.id}", error)
        told = {"errorType": error_type(error), "message": error_text(error)}
        self._end(turn, {"type": "chat/error", "part": {"kind": "error", "error": told}})

    def _end(self, turn: Turn, ending: dict[str, Any]) -> None:
        """Says the ending, where the agent said none and nobody cancelled the turn."""
        if turn.ended or turn.cancelled or self._outlet is None:
            return
        whole = {**ending, "turnId": turn.id, "duration": turn.duration_ms()}
        self._outlet.emit("chat", whole)

    async def _over(self, turn: Turn) -> None:
        """Tells the host, once, that the agent's part in the turn is over."""
        if turn.over.is_set():
            return
        self._turns.forget(turn)
        await self._tell_agent_id()
        self._port.tell("turn.over", TurnOver(turn_id=turn.id))

    async def _tell_agent_id(self) -> None:
        ident = None
        with trio.move_on_after(AGENT_ID_LIMIT_S):
            ident = await self._state("agent_id", text_of)
        if ident is not None:
            self._port.tell("agent.id", AgentId(agent_id=ident))

    async def _cancel(self, request: TurnNamed) -> Taken | Answered:
        session = self._session()
        turn = self._turns.running(request.turn_id)
        if turn is None:
            return Taken(accepted=False, reason=f"no turn {request.turn_id} runs")
        function = member(session, "cancel")
        if turn.scope is not None:
            turn.cancelled = True
            turn.scope.cancel()
            if function is not None:
                try:
                    await settled(function(turn.id))
                except Exception as error:
                    report("`cancel`", error)
            return Answered(
                result=Taken(accepted=True), then=partial(self._watch_parked, [turn], "cancelled")
            )
        if function is None:
            raise no_member("session", "cancel")
        turn.cancelled = True
        if await settled(function(turn.id)) is False:
            return Taken(accepted=False)
        return Answered(result=Taken(accepted=True), then=partial(self._over, turn))

    async def _resume(self, request: TurnNamed) -> Taken:
        function = member(self._session(), "resume")
        if function is None:
            raise no_member("session", "resume")
        turn = self._turns.running(request.turn_id) or self._turns.add(request.turn_id)
        try:
            taken = verdict(await settled(function(request.turn_id)))
        except Exception:
            self._turns.forget(turn)
            raise
        if not taken.accepted:
            self._turns.forget(turn)
        return taken

    # -- what is asked, and the end ---------------------------------------------------

    async def _ask(self, request: str, payload: Any) -> Taken:
        name, given, optional = _ASKED[request]
        function = member(self._session(), name)
        if function is None:
            raise no_member("session", name)
        if settles := _SETTLES.get(request):
            self._turns.settle(getattr(payload, settles))
        result = call(
            function,
            *(getattr(payload, one) for one in given),
            **{one: getattr(payload, one) for one in optional},
        )
        return verdict(await settled(result))

    async def _completions(self, request: Completions) -> Items:
        function = member(self._session(), "completions")
        if function is None:
            raise no_member("session", "completions")
        answer = await settled(function(request.kind, request.text, request.offset))
        return Items(items=items_of(answer, "`completions`"))

    async def _close(self, request: Close) -> Answered:
        turns = [turn for turn in self._turns.all_running() if turn.scope is not None]
        for turn in turns:
            turn.cancelled = True
            if turn.scope is not None:
                turn.scope.cancel()
        function = None if self._live is None else member(self._live, "close")
        if function is not None:
            try:
                await settled(call(function, removing=request.removing))
            except Exception as error:
                # The process ends all the same; its log says what was left undone.
                report("`close`", error)
        await self._watch_parked(turns, "closed")
        return Answered(result=Nothing(), then=self._leave)

    async def _watch_parked(self, turns: list[Turn], what: str) -> None:
        with trio.move_on_after(PARKED_GRACE_S):
            for turn in turns:
                await turn.over.wait()
        for turn in turns:
            waits = self._turns.parked_in(turn)
            if waits and not turn.over.is_set():
                detail = f"the turn {turn.id} was {what} and still waits on {', '.join(waits)}"
                self._port.tell(
                    "worker.ruleBroken", RuleBroken(rule="parked-settles", detail=detail)
                )

    def _session(self) -> Any:
        if self._live is None:
            raise Refused(FAILURE_BAD_REQUEST, "there is no session yet")
        return self._live

    def _ended(self, turn: Turn) -> None:
        """A turn in the agent's own ways ended: has the loop say that it is over. Any thread."""

        def start() -> None:
            try:
                self._nursery.start_soon(self._over, turn)
            except RuntimeError:
                pass  # The worker is leaving, and nobody waits for this turn any more.

        try:
            self._loop.run_sync_soon(start)
        except trio.RunFinishedError:
            pass  # As above, said from a thread that outlives the loop.
