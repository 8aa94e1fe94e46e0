"""The agents of this host: what is configured, what each says of itself, and the workers asked.

Describing and probing an agent is agent code, so it runs in a catalogue worker
of its own: started on demand, gone when idle. Listening never waits for it: an
agent is listed by its name at once and described when it answered.
"""

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import structlog
import trio
from attrs import define, evolve, field

from ..contracts.ahp.absence import without_nulls
from ..contracts.ahp.actions import check_action
from ..contracts.json import encode_json
from ..contracts.worker_wire import (
    WORKER_REQUESTS,
    ConfigCompletions,
    Description,
    Items,
    Load,
    Nothing,
    Probe,
)
from .bounds import Bounds
from .configuration import AgentConfig
from .processes.launcher import Launcher, LaunchError, LaunchSpec, WorkerProcess
from .processes.output_log import OutputLog
from .processes.worker_client import WorkerClient, WorkerFault, WorkerGone, WorkerRefused
from .processes.worker_port import OutboxFull, WorkerPort
from .sessions.settings import normal_schema

if TYPE_CHECKING:
    from collections.abc import Awaitable

Json = dict[str, Any]

#: What of the host's own environment a worker gets; and what begins with `LC_`.
ALLOWED_ENVIRONMENT = ("PATH", "HOME", "LANG", "TZ", "TMPDIR")

#: What an agent says of itself is sent to every client, in one message with what all others
#: say: so each may say only so much of it. Its name and description are cut at these, in
#: characters; of its models the first so many are shown; models, capabilities and
#: customizations that do not fit into the bytes are left out.
MAX_NAME_CHARS = 200
MAX_DESCRIPTION_CHARS = 2000
MAX_MODELS = 1000
MAX_INFO_BYTES = 256 * 1024

#: A schema is part of every session of its agent.
MAX_SCHEMA_BYTES = 256 * 1024

#: How many agents are described at once when the host starts.
DESCRIBED_AT_ONCE = 2


class AgentUnavailable(Exception):
    """The agent cannot be asked; the message is a sentence that a person can act on."""


def worker_environment(
    config: AgentConfig, mark: str, environment: Mapping[str, str]
) -> dict[str, str]:
    """A worker's whole environment: an allow list, the host's mark, and what is configured."""
    allowed = {
        name: value
        for name, value in environment.items()
        if name in ALLOWED_ENVIRONMENT or name.startswith("LC_") or name in config.pass_env
    }
    return {**allowed, **config.env, "AHPD_MARK": mark}


@define(eq=False)
class Agent:
    """One configured agent and what is known of it."""

    name: str
    config: AgentConfig
    description: Description | None = None
    probe: Probe | None = None
    fault: str | None = None
    """Why it could not be described, when it could not."""
    catalogue: "CatalogueWorker | None" = None
    describing: trio.Lock = field(factory=trio.Lock)

    def info(self) -> Json:
        """AHP's `AgentInfo`. There is no word for "unavailable": no models, and the reason."""
        described, probed = self.description, self.probe
        display_name = described.display_name if described else self.name
        description = self.fault or (described.description if described else None) or ""
        info: Json = {
            "provider": self.name,
            "displayName": display_name[:MAX_NAME_CHARS],
            "description": description[:MAX_DESCRIPTION_CHARS],
            "models": [],
        }
        told: Json = {}
        if described is not None and described.capabilities is not None:
            told["capabilities"] = without_nulls(described.capabilities)
        if probed is not None:
            told["customizations"] = without_nulls(probed.customizations)
        room_bytes = MAX_INFO_BYTES
        for key, value in told.items():
            size = len(encode_json(value))
            if value is not None and size <= room_bytes and _fits({**info, key: value}):
                info[key] = value
                room_bytes -= size
        for model in probed.models[:MAX_MODELS] if probed is not None else ():
            if isinstance(model, dict):
                # Whatever an agent calls itself, clients know it by its configured name.
                named = without_nulls({**model, "provider": self.name})
                size = len(encode_json(named))
                if size <= room_bytes and _fits({**info, "models": [named]}):
                    info["models"].append(named)
                    room_bytes -= size
        return info


class Agents:
    """Every agent of the host, by its configured name.

    Args:
        on_change: called when what is known of an agent changed.
    """

    def __init__(
        self,
        configs: Mapping[str, AgentConfig],
        *,
        launcher: Launcher,
        bounds: Bounds,
        nursery: trio.Nursery,
        mark: str,
        agent_path: Sequence[str],
        log_of: Callable[[str], OutputLog],
        on_change: Callable[[], None],
    ) -> None:
        self.by_name = {name: Agent(name, config) for name, config in configs.items()}
        self._launcher = launcher
        self._bounds = bounds
        self._nursery = nursery
        self._mark = mark
        self._agent_path = list(agent_path)
        self._log_of = log_of
        self._on_change = on_change

    @property
    def default(self) -> str | None:
        """The agent of a session that names none: the first one configured."""
        return next(iter(self.by_name), None)

    def infos(self) -> list[Json]:
        """Every agent as the root channel shows it."""
        return [agent.info() for agent in self.by_name.values()]

    def worker_of(self, name: str, *, label: str) -> tuple[LaunchSpec, Load]:
        """How a worker for this agent is started, and what it is to load."""
        config = self.by_name[name].config
        spec = LaunchSpec(
            argv=(sys.executable, "-P", "-m", "ahpd.worker"),
            env=worker_environment(config, self._mark, os.environ),
            cwd="/",
            label=label,
        )
        load = Load(
            factory=config.factory, options=dict(config.options), agent_path=self._agent_path
        )
        return spec, load

    async def describe_all(self) -> None:
        """Describes and probes every agent, a few at a time. For the host's start."""
        limiter = trio.CapacityLimiter(DESCRIBED_AT_ONCE)

        async def describe_one(name: str) -> None:
            async with limiter:
                try:
                    await self.describe(name)
                except AgentUnavailable as fault:
                    structlog.get_logger().warning("agent unavailable", agent=name, why=str(fault))

        async with trio.open_nursery() as nursery:
            for name in self.by_name:
                nursery.start_soon(describe_one, name)

    async def describe(self, name: str) -> Description:
        """What the agent says of itself; asked once, and again after it could not answer.

        Raises:
            AgentUnavailable: it cannot be imported, raised, or did not answer.
        """
        agent = self.by_name[name]
        async with agent.describing:
            if agent.description is not None:
                return agent.description
            try:
                worker = await self._catalogue(agent)
                description = worker.description
                if len(encode_json(description.schema)) > MAX_SCHEMA_BYTES:
                    limit_kib = MAX_SCHEMA_BYTES // 1024
                    raise AgentUnavailable(f"The agent's schema is larger than {limit_kib} KiB.")
            except AgentUnavailable as fault:
                agent.fault = str(fault)
                self._on_change()
                raise
            agent.fault = None
            schema = normal_schema(description.schema)
            agent.description = description = evolve(description, schema=schema)
        await self._probe(agent)
        self._on_change()
        return description

    async def config_completions(
        self, name: str, key: str, query: str, config: Json, directory: str | None
    ) -> list[Any]:
        """Values of a setting that is completed and not listed; none where the agent has none.

        Raises:
            AgentUnavailable: it could not be asked.
        """
        asked = ConfigCompletions(key=key, query=query, config=config, directory=directory)
        items: Items = await self._ask(
            self.by_name[name], "agent.configCompletions", asked, Items()
        )
        return items.items

    def workers(self) -> list[tuple[str, "CatalogueWorker"]]:
        """The catalogue workers that run now, by agent."""
        return [
            (agent.name, agent.catalogue)
            for agent in self.by_name.values()
            if agent.catalogue is not None and not agent.catalogue.over
        ]

    async def _probe(self, agent: Agent) -> None:
        try:
            agent.probe = await self._ask(agent, "agent.probe", Nothing(), Probe())
        except AgentUnavailable as fault:
            structlog.get_logger().warning("probe failed", agent=agent.name, why=str(fault))

    async def _ask(self, agent: Agent, kind: str, payload: Any, absent: Any) -> Any:
        worker = await self._catalogue(agent)
        return await worker.ask(kind, payload, absent)

    async def _catalogue(self, agent: Agent) -> "CatalogueWorker":
        if agent.catalogue is None or agent.catalogue.over:
            spec, load = self.worker_of(agent.name, label=f"catalogue of {agent.name}")
            agent.catalogue = CatalogueWorker(
                self._launcher, spec, load, self._bounds, self._log_of(f"catalogue/{agent.name}")
            )
            self._nursery.start_soon(agent.catalogue.run)
        await agent.catalogue.loaded()
        return agent.catalogue


class CatalogueWorker:
    """A worker that answers for an agent without a conversation, until nobody asks any more."""

    def __init__(
        self,
        launcher: Launcher,
        spec: LaunchSpec,
        load: Load,
        bounds: Bounds,
        log: OutputLog,
    ) -> None:
        self._launcher = launcher
        self._spec = spec
        self._load = load
        self._bounds = bounds
        self._log = log
        self._client: WorkerClient | None = None
        self._loaded_or_over = trio.Event()
        self._asking = 0
        self._asked_s = trio.current_time()
        self._fault: str | None = None
        self._description: Description | None = None
        self.process: WorkerProcess | None = None
        self.over = False
        self.started_s = trio.current_time()

    @property
    def description(self) -> Description:
        """What the agent said when it was loaded."""
        if self._description is None:
            raise AgentUnavailable(self._fault or "the agent's process ended")
        return self._description

    async def loaded(self) -> None:
        """Waits until the agent is loaded.

        Raises:
            AgentUnavailable: it could not be, or not within the limit.
        """
        limit_s = self._bounds.catalogue_timeout_s
        with trio.move_on_after(limit_s):
            await self._loaded_or_over.wait()
        if self._description is None or self.over:
            if self._fault is None:
                self._fault = f"The agent did not load within {limit_s:g} s."
                self._end()
            raise AgentUnavailable(self._fault)

    async def ask(self, kind: str, payload: Any, absent: Any) -> Any:
        """Asks the agent; `absent` is the answer where it has no such member.

        Raises:
            AgentUnavailable: it raised, ended, or did not answer within the limit.
        """
        if self._client is None or self.over:
            raise AgentUnavailable(self._fault or "The agent's process ended.")
        self._asking += 1
        try:
            timeout_s = self._bounds.catalogue_timeout_s
            asked = self._client.ask_nowait(kind, payload)
            with trio.fail_after(timeout_s):
                return await asked.result(WORKER_REQUESTS[kind][1])
        except WorkerRefused as refused:
            if refused.code == "no-member":
                return absent
            raise AgentUnavailable(f"The agent failed to answer: {refused}") from None
        except WorkerGone:
            raise AgentUnavailable(self._fault or "The agent's process ended.") from None
        except trio.TooSlowError:
            self._fault = f"The agent did not answer within {self._bounds.catalogue_timeout_s:g} s."
            self._end()
            raise AgentUnavailable(self._fault) from None
        except (OutboxFull, WorkerFault) as error:
            self._fault = f"The agent's process {error}."
            self._end()
            raise AgentUnavailable(self._fault) from None
        finally:
            self._asking -= 1
            self._asked_s = trio.current_time()

    async def run(self) -> None:
        """Lives until the agent was not asked for a while, or its process ends."""
        try:
            process = await self._launcher.start(self._spec)
        except LaunchError as error:
            self._fault = f"The agent's process could not be started: {error}."
            self.over = True
            self._loaded_or_over.set()
            return
        self.process = process
        try:
            await self._live(process)
        except* Exception:
            # Whatever of ours fails on a worker's words ends this worker, and not the host.
            log = structlog.get_logger()
            log.exception("the host failed on a worker's words", worker=self._spec.label)
            self._fault = self._fault or "The host failed on what the agent said; see its log."
        finally:
            self.over = True
            self._loaded_or_over.set()
            await process.aclose()

    async def _live(self, process: WorkerProcess) -> None:
        port = WorkerPort(
            process,
            max_frame_bytes=self._bounds.max_frame_bytes,
            max_frame_values=self._bounds.max_frame_values,
            max_partial_s=self._bounds.partial_frame_s,
        )
        self._client = client = WorkerClient(port, lambda name, payload: None)
        async with trio.open_nursery() as nursery:
            logged = trio.Event()

            async def write_log() -> None:
                await self._log.run(process)
                logged.set()

            nursery.start_soon(port.run)
            nursery.start_soon(write_log)
            nursery.start_soon(self._read, client)
            nursery.start_soon(self._load_agent, client)
            nursery.start_soon(self._leave_when_idle)
            ended = await process.wait()
            with trio.move_on_after(1):
                await logged.wait()
            if self._fault is None:
                words = self._log.last_stderr_line
                said = f" Its last words were: {words}" if words else ""
                self._fault = f"The agent's process {ended.sentence()}.{said}"
            self.over = True
            self._loaded_or_over.set()
            client.close()
            nursery.cancel_scope.cancel()

    async def _read(self, client: WorkerClient) -> None:
        try:
            await client.run()
        except WorkerFault as fault:
            self._fault = f"The agent's process {fault}."
            self._end()

    async def _load_agent(self, client: WorkerClient) -> None:
        asking: Awaitable[Description] = client.ask_nowait("worker.load", self._load).result(
            Description
        )
        try:
            self._description = await asking
        except WorkerRefused as refused:
            self._fault = str(refused)
            self._end()
        except WorkerGone:
            return
        self._loaded_or_over.set()

    async def _leave_when_idle(self) -> None:
        idle_s = self._bounds.catalogue_idle_s
        while True:
            await trio.sleep(idle_s / 4)
            if self._asking == 0 and trio.current_time() - self._asked_s > idle_s:
                self._end()
                return

    def _end(self) -> None:
        self.over = True
        if self.process is not None:
            self.process.end(0)


def _fits(info: Json) -> bool:
    """Whether clients can read what an agent says of itself."""
    return check_action({"type": "root/agentsChanged", "agents": [info]}) is None
