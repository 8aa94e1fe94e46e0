"""Open files: the host takes what it needs, its workers get what it got, and it never runs dry."""

import os
import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ahpd.supervisor.client import AhpClient, RequestRefused
from ahpd.supervisor.processes.descriptors import RESERVED
from cli_host import FIXTURE_AGENTS, OPERATED, CliHost, until


@contextmanager
def operated(state_dir: Path, soft_limit: int) -> Iterator[CliHost]:
    """A host that was started under a soft limit of open files."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft_limit, before[1]))
    try:
        host = CliHost(state_dir, "--agent-path", FIXTURE_AGENTS, "--agent", OPERATED)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    with host:
        yield host


def create_until_refused(host: CliHost) -> str:
    """Creates sessions one after the other; what the first one that is refused was told."""
    told: list[str] = []

    async def create(client: AhpClient) -> None:
        for number in range(20):
            uri = f"ahp-session:/further-{number}"
            try:
                await client.create_session(uri, provider="operated")
            except RequestRefused as refused:
                told.append(str(refused))
                return
            session = await client.subscribe(uri)
            await client.until(lambda session=session: session.state["lifecycle"] == "ready")

    host.as_client(create)
    return told[0]


def soft_limit_of(pid: int) -> int:
    return resource.prlimit(pid, resource.RLIMIT_NOFILE)[0]


def test_the_host_raises_its_limit_and_its_workers_keep_the_one_it_was_given(
    state_dir: Path,
) -> None:
    with operated(state_dir, 200) as host:
        host.create_session("one")
        assert soft_limit_of(host.pid) > 1024
        assert [soft_limit_of(row["pid"]) for row in host.rows()] == [200]
        # Also after another keeper took over.
        os.kill(host.json("status")["keeper_pid"], signal.SIGKILL)
        until(lambda: not host.rows(), "the worker's death")
        host.create_session("two")
        assert [soft_limit_of(row["pid"]) for row in host.rows()] == [200]


def test_a_host_that_has_no_descriptors_left_for_a_session_says_so_and_goes_on(
    state_dir: Path,
) -> None:
    with operated(state_dir, 200) as host:
        host.create_session("kept")
        used = len(os.listdir(f"/proc/{host.pid}/fd"))
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.prlimit(host.pid, resource.RLIMIT_NOFILE, (used + RESERVED + 30, hard))
        refused = create_until_refused(host)
        assert "ulimit -n" in refused
        # Clients, operators and the next keeper still find some.
        rows = host.rows()
        assert rows
        assert host.chat("pid", id="kept").returncode == 0
        os.kill(host.json("status")["keeper_pid"], signal.SIGKILL)
        until(lambda: not host.rows(), "the workers' death")
        assert "after 1 turns" in host.chat("pid", id="kept").stdout
        for row in rows:
            assert host.run("kill", row["session"]).returncode == 0
        host.create_session("again")
