"""The service: everything a running host is made of, in the order it starts and stops.

Starting: the state directory, the token, the port (all of it quick, so that bad
input is told at once); then what an earlier life left running is ended, the
store is opened, and the keeper, the host, the listener and the control socket
come. Stopping, by a signal or `host.stop`: nobody new is let in, turns end as
interrupted and clients hear of it, workers end, connections and the control
socket close, the keeper ends.
"""

import signal
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import (
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
)
from importlib.metadata import version as installed_version
from pathlib import Path

import structlog
import trio
from attrs import evolve, field, frozen

from ..contracts.control_wire import Access
from .admission import (
    Admission,
    TokenError,
    checked_token,
    ensure_token,
    exposure_fault,
    exposure_warnings,
    read_token,
)
from .bounds import Bounds
from .configuration import AgentConfig
from .host import Host, open_host
from .listener import Binding, Listener, ListenError, bind, tls_context
from .operations import Operations, Surroundings
from .processes import descriptors
from .processes.keeper_launcher import KeeperLauncher, open_keeper
from .processes.launcher import LaunchError
from .processes.marks import end_marked, mark_of
from .state_dir import DATABASE_FILE, StateDir, StateDirError, hold_state_dir
from .store.interface import Durability, StoreError
from .store.sqlite import SqliteStore
from .wires.ahp import ahp_route
from .wires.chats.connection import chats_route
from .wires.control import ControlSocket

DISTRIBUTION = "ahpd-supervisor"

#: Where the agent-contracts wire is served; AHP is at the root.
CHATS_PATH = "/chats"

#: What an earlier life left running has this long to die.
STRAYS_LIMIT_S = 10.0

log = structlog.get_logger()


class StartError(Exception):
    """The host cannot start as it was told; the message is one sentence for a person."""


@frozen(kw_only=True)
class Options:
    """How a host is to run.

    Attributes:
        token: what clients must present, when it was given; else `token_file` is
            read; else the state directory's own is, unless `no_token`.
        agents: by name; the first is the default.
        agent_path: folders where agents' modules are looked up, beside the environment.
        durability: what a client was told survives at least: the end of the program, or a
            power cut too.
    """

    state_dir: Path
    host: str
    port: int
    agents: Mapping[str, AgentConfig]
    agent_path: Sequence[str] = ()
    durability: Durability = "process"
    bounds: Bounds = field(factory=Bounds)
    allow_origin: Sequence[str] = ()
    token: str | None = field(default=None, repr=False)
    token_file: Path | None = None
    no_token: bool = False
    tls_cert: Path | None = None
    tls_key: Path | None = None
    insecure: bool = False


@frozen(kw_only=True)
class Running:
    """A host that listens.

    Attributes:
        ahp, chats: the WebSocket addresses of its wires, with the token.
        stopping: set when it begins to stop.
    """

    ahp: str = field(repr=False)
    chats: str = field(repr=False)
    stopping: trio.Event


async def serve(
    options: Options, *, task_status: trio.TaskStatus[Running] = trio.TASK_STATUS_IGNORED
) -> None:
    """Runs a host until SIGINT, SIGTERM, SIGHUP or `host.stop`; returns after a graceful stop.

    A second signal hurries: workers are killed where they stand. Only for the
    main thread of a program, since it receives signals.

    Raises:
        StartError: it cannot start; nothing is left running.
    """
    fault = exposure_fault(
        host=options.host,
        has_token=not options.no_token,
        tls_cert=options.tls_cert is not None,
        tls_key=options.tls_key is not None,
        insecure=options.insecure,
    )
    if fault is not None:
        raise StartError(fault)
    descriptors.raise_limit()
    stop = _Stop()
    with (
        start_errors_unwrapped(),
        _state_dir(options.state_dir) as state_dir,
        _signals() as signals,
    ):
        tokens = _tokens(options)
        async with _bound(options) as binding, trio.open_nursery() as nursery:
            nursery.start_soon(stop.hear, signals)
            await _end_strays(options.state_dir)
            async with _keeper() as launcher, _host(options, state_dir, launcher) as host:
                routes = {"/": ahp_route(host)}
                listener = Listener(
                    binding,
                    admission=Admission(token=tokens.client, allowed_origins=options.allow_origin),
                    routes=routes,
                    bounds=options.bounds,
                )
                service = _Service(options, state_dir, tokens, launcher, host, listener, stop)
                routes[CHATS_PATH] = chats_route(host, service.operations)
                await service.run(task_status)
            nursery.cancel_scope.cancel()


@contextmanager
def start_errors_unwrapped() -> Iterator[None]:
    """A `StartError` comes out of the nurseries as it went in."""
    try:
        yield
    except BaseExceptionGroup as group:
        found: BaseException | None = group.subgroup(StartError)
        if found is None:
            raise
        while isinstance(found, BaseExceptionGroup):
            found = found.exceptions[0]
        raise found from None


class _Stop:
    """The wish that the host stops, and that it hurries."""

    def __init__(self) -> None:
        self.asked = trio.Event()
        self.hurried = trio.Event()

    def ask(self) -> None:
        """An operator asks for it."""
        log.info("stopping", asked_by="host.stop")
        self.asked.set()

    async def hear(self, signals: AsyncIterator[int]) -> None:
        """Takes signals as wishes, until cancelled."""
        async for number in signals:
            log.info("stopping", signal=signal.Signals(number).name)
            if self.asked.is_set():
                self.hurried.set()
            self.asked.set()


@frozen(kw_only=True)
class _Tokens:
    control: str = field(repr=False)
    client: str | None = field(repr=False)


class _Service:
    """A host with its listener and its control socket."""

    def __init__(
        self,
        options: Options,
        state_dir: StateDir,
        tokens: _Tokens,
        launcher: KeeperLauncher,
        host: Host,
        listener: Listener,
        stop: _Stop,
    ) -> None:
        self._state_dir = state_dir
        self._options = options
        self._host = host
        self._listener = listener
        self._stop = stop
        self._stopping = trio.Event()
        address = listener.address
        self._ahp = address.url(token=tokens.client)
        self._chats = address.url(CHATS_PATH, token=tokens.client)
        self._plain_ahp = address.url()
        version = installed_version(DISTRIBUTION)
        self.operations = Operations(
            host,
            Surroundings(
                version=version,
                ahp=self._plain_ahp,
                access=Access(
                    ahp=evolve(address, host=_reachable(address.host)).url(token=tokens.client),
                    tls_cert=str(options.tls_cert.absolute()) if options.tls_cert else None,
                ),
                started_s=trio.current_time(),
                connections=lambda: listener.connections,
                keeper_pid=lambda: launcher.pid,
            ),
        )
        self._control = ControlSocket(
            self.operations,
            folder=state_dir.path,
            token=tokens.control,
            version=version,
            bounds=options.bounds,
            is_descendant=launcher.is_descendant,
            stop=stop.ask,
        )

    async def run(self, task_status: trio.TaskStatus[Running]) -> None:
        """Serves until the stop is asked for and done."""
        async with trio.open_nursery() as nursery:
            await nursery.start(self._listener.serve)
            try:
                await nursery.start(self._control.serve)
                self._state_dir.announce(ahp=self._plain_ahp)
            except OSError as error:
                why = error.strerror or error
                raise StartError(f"cannot make the control socket: {why}") from None
            self._warn()
            running = Running(ahp=self._ahp, chats=self._chats, stopping=self._stopping)
            task_status.started(running)
            await self._stop.asked.wait()
            self._stopping.set()
            await self._end()
            nursery.cancel_scope.cancel()

    def _warn(self) -> None:
        options = self._options
        warnings = exposure_warnings(
            host=options.host,
            has_token=not options.no_token,
            tls=options.tls_cert is not None,
        )
        for warning in warnings:
            log.warning(warning)

    async def _end(self) -> None:
        self._listener.stop_accepting()
        # Its own limit leaves room within `stop_timeout_s` for what follows.
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._cancel_when_hurried, nursery.cancel_scope)
            await self._host.stop()
            nursery.cancel_scope.cancel()
        for chat in self._host.chats.values():
            for life in chat.lives:
                life.end(0)
        await self._listener.stop()

    async def _cancel_when_hurried(self, scope: trio.CancelScope) -> None:
        await self._stop.hurried.wait()
        scope.cancel()


# -- the parts, and what is said when one cannot be had -----------------------------------


@contextmanager
def _state_dir(path: Path) -> Iterator[StateDir]:
    try:
        with hold_state_dir(path) as held:
            yield held
    except StateDirError as error:
        raise StartError(str(error)) from None


def _tokens(options: Options) -> _Tokens:
    """What operators and clients must present. Operators always have the state directory's."""
    try:
        control = ensure_token(options.state_dir)
        if options.no_token:
            return _Tokens(control=control, client=None)
        if options.token is not None:
            return _Tokens(control=control, client=checked_token(options.token))
        if options.token_file is not None:
            return _Tokens(control=control, client=read_token(options.token_file))
    except TokenError as error:
        raise StartError(str(error)) from None
    return _Tokens(control=control, client=control)


def _signals() -> AbstractContextManager[AsyncIterator[int]]:
    numbers = {signal.SIGINT, signal.SIGTERM}
    # Under `nohup` a hangup is ignored, and stays so.
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        numbers.add(signal.SIGHUP)
    return trio.open_signal_receiver(*numbers)


@asynccontextmanager
async def _bound(options: Options) -> AsyncIterator[Binding]:
    try:
        tls = None
        if options.tls_cert is not None and options.tls_key is not None:
            tls = tls_context(options.tls_cert, options.tls_key)
        binding = await bind(options.host, options.port, tls=tls)
    except ListenError as error:
        raise StartError(str(error)) from None
    try:
        yield binding
    finally:
        with trio.CancelScope(shield=True):
            await binding.aclose()


@asynccontextmanager
async def _keeper() -> AsyncIterator[KeeperLauncher]:
    try:
        async with open_keeper() as launcher:
            yield launcher
    except LaunchError as error:
        raise StartError(str(error)) from None


async def _end_strays(state_dir: Path) -> None:
    """Ends what an earlier life left, when its supervisor and its keeper were killed at once."""
    count, left = await trio.to_thread.run_sync(end_marked, mark_of(state_dir), STRAYS_LIMIT_S)
    if count:
        log.warning("processes of an earlier host were ended", count=count)
    if left:
        log.error("processes of an earlier host cannot be ended", pids=left)


@asynccontextmanager
async def _host(
    options: Options, state_dir: StateDir, launcher: KeeperLauncher
) -> AsyncIterator[Host]:
    try:
        async with open_host(
            launcher=launcher,
            store=SqliteStore(state_dir.path / DATABASE_FILE, durability=options.durability),
            bounds=options.bounds,
            agents=options.agents,
            agent_path=options.agent_path,
            state_dir=state_dir.path,
        ) as host:
            yield host
    except StoreError as error:
        raise StartError(str(error)) from None


def _reachable(host: str) -> str:
    """An address of this machine at which what is bound to `host` can be reached."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
