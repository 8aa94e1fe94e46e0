"""The host that is measured: the program itself, started as a person starts it."""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from attrs import define

from . import kernel
from .client import Client

FOLDER = Path(__file__).parent

#: Bounds that would hold a measurement back; all others are the defaults.
CONFIGURATION = """
[bounds]
sessions_per_minute = 1000000
actions_per_s = 1000000000
actions_burst = 1000000000
replay_events = 20000
catalogue_idle_s = 3600

[agents.bench]
factory = "bench_agent:create"
"""


@define(eq=False)
class Host:
    """A running host, and its first client."""

    url: str
    pid: int
    client: Client
    _catalogue: frozenset[int] = frozenset()
    _made: int = 0
    _turns: int = 0

    def connect(self, name: str) -> Client:
        """A further client."""
        client = Client(self.url)
        client.initialize(name)
        return client

    def session(self, client: Client, *, max_latency_ms: float | None = None) -> tuple[str, str]:
        """A new session that is ready, subscribed with its chat: their URIs."""
        self._made += 1
        uri = f"ahp-session:/bench-{self._made}"
        client.request("createSession", channel=uri, provider="bench")
        state = client.request("subscribe", channel=uri)["snapshot"]["state"]
        if state["lifecycle"] == "creating":
            client.until(b'"session/ready"')
        chat = state["defaultChat"]
        subscribe(client, chat, max_latency_ms)
        return uri, chat

    def turn_id(self) -> str:
        """An id that no other turn has."""
        self._turns += 1
        return f"turn-{self._turns}"

    def workers(self) -> set[int]:
        """The processes of its sessions."""
        keepers = kernel.children(self.pid)
        return {pid for keeper in keepers for pid in kernel.descendants(keeper)} - self._catalogue

    def until_gone(self) -> None:
        """Waits until no process of a session is left."""
        while self.workers():
            time.sleep(0.0005)

    def warm_up(self) -> None:
        """Has the agent described, and a first session made and ended."""
        uri, _chat = self.session(self.client)
        self.client.request("disposeSession", channel=uri)
        # The catalogue worker stays: it belongs to the agent and to no session.
        while len(left := self.workers()) > 1:
            time.sleep(0.01)
        self._catalogue = frozenset(left)


def subscribe(client: Client, channel: str, max_latency_ms: float | None = None) -> None:
    """Subscribes; a latency of 0 asks for every action by itself."""
    wish = {} if max_latency_ms is None else {"delivery": {"maxLatencyMs": max_latency_ms}}
    client.request("subscribe", channel=channel, **wish)


@contextmanager
def running_host() -> Iterator[Host]:
    """A host with a state directory of its own, gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="ahpd-", dir="/tmp") as folder:
        config = Path(folder) / "bench.toml"
        config.write_text(CONFIGURATION)
        command = [
            Path(sys.executable).with_name("ahpd-supervisor"),
            "start",
            *("--json", "--no-token", "--port", "0"),
            *("--config", config, "--agent-path", FOLDER),
            *("--state-dir", Path(folder) / "state"),
        ]
        log = (Path(folder) / "log").open("w+")
        with log, subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True) as host:
            try:
                assert host.stdout is not None
                line = host.stdout.readline()
                if not line:
                    log.seek(0)
                    raise RuntimeError(f"the host did not start: {log.read()}")
                told = json.loads(line)
                client = Client(told["ahp"])
                client.initialize("bench")
                measured = Host(url=told["ahp"], pid=told["pid"], client=client)
                measured.warm_up()
                yield measured
            finally:
                host.terminate()
                host.wait(30)
