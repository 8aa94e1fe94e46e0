"""A real host inside a test: keeper, workers, listener; nothing of it is pretended."""

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import trio

from ahp_client import AhpClient, connect
from ahpd.contracts.control_wire import Access
from ahpd.supervisor.admission import Admission
from ahpd.supervisor.bounds import Bounds
from ahpd.supervisor.configuration import AgentConfig
from ahpd.supervisor.host import Host, open_host
from ahpd.supervisor.listener import Listener, bind
from ahpd.supervisor.operations import Operations, Surroundings
from ahpd.supervisor.processes.keeper_launcher import KeeperLauncher, open_keeper
from ahpd.supervisor.store.interface import Store
from ahpd.supervisor.store.memory import MemoryStore
from ahpd.supervisor.wires.ahp import ahp_route
from ahpd.supervisor.wires.chats.connection import chats_route
from chats_client import ChatsClient, connect_chats

Json = dict[str, Any]

#: Agents for tests live here; it is the host's only agent path.
AGENTS_FOLDER = Path(__file__).parent / "fixtures_agents"
HOSTILE_FOLDER = Path(__file__).parent / "hostile"

TOKEN = "t" * 43


class LiveHost:
    """A running host and the means to talk to it."""

    def __init__(self, host: Host, launcher: KeeperLauncher, url: str, stack: AsyncExitStack):
        self.host = host
        self.chats_url = url.replace("/?", "/chats?")
        self.launcher = launcher
        self.url = url
        self._stack = stack
        self._sessions = 0

    async def client(self, client_id: str = "tester", *, initialize: bool = True) -> AhpClient:
        """A further connection, open as long as the host."""
        client = await self._stack.enter_async_context(connect(self.url, client_id))
        if initialize:
            await client.initialize(initialSubscriptions=["ahp-root://"])
        return client

    async def chats(self) -> ChatsClient:
        """A further connection of the other wire, open as long as the host."""
        return await self._stack.enter_async_context(connect_chats(self.chats_url))

    async def session(
        self, client: AhpClient, agent: str, *, ready: bool = True, **params: Any
    ) -> tuple[str, str]:
        """A new session of that agent, subscribed with its default chat: their URIs."""
        self._sessions += 1
        uri = f"ahp-session:/{agent}-{self._sessions}"
        await client.request("createSession", channel=uri, provider=agent, **params)
        state = await client.subscribe(uri)
        chat = state["defaultChat"] if "defaultChat" in state else state["chats"][0]["resource"]
        await client.subscribe(chat)
        if ready:
            await client.until(
                lambda: client.states[uri]["lifecycle"] != "creating", what="session/ready"
            )
            assert client.states[uri]["lifecycle"] == "ready", client.states[uri]
        return uri, chat

    def pids(self, session_uri: str) -> list[int]:
        """The processes of a session's workers, everything they started included."""
        session = self.host.session_at(session_uri)
        return [
            process.pid
            for chat in session.chats.values()
            if chat.conversation is not None and chat.conversation.process is not None
            for process in chat.conversation.process.processes()
        ]


@asynccontextmanager
async def live_host(
    state_dir: Path,
    agents: Mapping[str, str] | None = None,
    *,
    options: Mapping[str, Json] | None = None,
    store: Store | None = None,
    **bounds: Any,
) -> AsyncIterator[LiveHost]:
    """A host serving these agents (name to factory); echo and notes unless told.

    Without a store it forgets everything with its end.
    """
    named = agents or {"echo": "ahpd.agents.echo:create", "notes": "ahpd.agents.notes:create"}
    configs = {
        name: AgentConfig(factory=factory, options=(options or {}).get(name, {}))
        for name, factory in named.items()
    }
    limits = Bounds(**bounds)
    async with (
        open_keeper() as launcher,
        open_host(
            launcher=launcher,
            store=store or MemoryStore(),
            bounds=limits,
            agents=configs,
            agent_path=[str(AGENTS_FOLDER), str(HOSTILE_FOLDER)],
            state_dir=state_dir,
        ) as host,
        trio.open_nursery() as nursery,
    ):
        binding = await bind("127.0.0.1", 0)
        url = binding.address.url("/", token=TOKEN)
        around = Surroundings(
            version="0",
            ahp=url,
            access=Access(ahp=url),
            started_s=trio.current_time(),
            connections=lambda: listener.connections,
            keeper_pid=lambda: launcher.pid,
        )
        listener = Listener(
            binding,
            admission=Admission(token=TOKEN),
            routes={
                "/": ahp_route(host),
                "/chats": chats_route(host, Operations(host, around)),
            },
            bounds=limits,
        )
        await nursery.start(listener.serve)
        async with AsyncExitStack() as stack:
            yield LiveHost(host, launcher, url, stack)
        await listener.stop()
