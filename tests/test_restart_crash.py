"""A host that was killed: nothing told is lost, nothing runs on, nothing stays parked."""

import os
import random
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import trio

from ahp_client import AhpClient, connect, text_of
from ahpd.supervisor.processes.marks import list_marked, mark_of
from ahpd.supervisor.store.upkeep import check_database
from cli_host import FIXTURE_AGENTS, OPERATED, CliHost, is_running
from crashing import SCRIPTED, crash
from test_restart import parked, queued

Json = dict[str, Any]

#: How often the short form kills a host; scripts/crash is the long one.
KILLS = 20


def started(state_dir: Path) -> CliHost:
    return CliHost(state_dir, "--agent-path", FIXTURE_AGENTS, "--agent", SCRIPTED)


@asynccontextmanager
async def talking_to(host: CliHost, client_id: str) -> AsyncIterator[AhpClient]:
    async with connect(host.ahp, client_id) as client:
        await client.initialize(initialSubscriptions=["ahp-root://"])
        yield client


async def opened(client: AhpClient, session: str, agent: str) -> str:
    """A new session, ready; its default chat."""
    await client.request("createSession", channel=session, provider=agent)
    state = await client.subscribe(session)
    await client.subscribe(state["defaultChat"])
    await client.until(lambda: client.states[session]["lifecycle"] == "ready", what="ready")
    return str(state["defaultChat"])


async def test_a_host_that_was_killed_in_the_middle_of_everything(state_dir: Path) -> None:
    session = "ahp-session:/s"
    with trio.fail_after(120):
        with started(state_dir) as host:
            async with talking_to(host, "before") as client:
                chat = await opened(client, session, "scripted")
                await client.say(chat, "t1", "stream 3")
                await client.start_turn(chat, "t2", "stream 200; tools")
                await parked(client, session, 2)
                for number in (1, 2):
                    await client.act(chat, queued(f"q{number}", f"stream {number}"))
                state, seen = client.states[chat], client.last_seq
                workers = [row["pid"] for row in host.rows()]
                os.kill(host.pid, signal.SIGKILL)
                await client.until(lambda: client.closed is not None, what="the end")
        assert workers
        with started(state_dir) as host:
            # Its keeper ended them, or the new host did before it listened.
            assert not any(is_running(pid) for pid in workers)
            async with talking_to(host, "after") as client:
                assert client.last_seq > seen
                now = await client.subscribe(session)
                after = await client.subscribe(chat)
                assert after["turns"][0] == state["turns"][0]
                turn = after["turns"][1]
                running = state["activeTurn"]
                assert (turn["id"], turn["message"]) == ("t2", running["message"])
                # Approvals were asked for after all of the text: so it is all there.
                assert text_of(turn) == text_of(running)
                *parts, error = turn["responseParts"]
                assert [part["kind"] for part in parts] == [
                    part["kind"] for part in running["responseParts"]
                ]
                calls = [part["toolCall"] for part in parts if part["kind"] == "toolCall"]
                assert [call["status"] for call in calls] == ["cancelled", "cancelled"]
                assert error["error"]["errorType"] == "interrupted"
                assert turn["duration"] >= 0
                assert "activeTurn" not in after
                assert [one["id"] for one in after["queuedMessages"]] == ["q1", "q2"]
                assert now.get("inputNeeded", []) == []
                assert now["status"] & 31 == 2
                # The queue is paused: it goes on with a person's next message, after that.
                await client.say(chat, "t3", "stream 1")
                await client.until(lambda: len(client.states[chat]["turns"]) == 5, what="drained")
                ids = [turn["id"] for turn in client.states[chat]["turns"]]
                assert ids[:3] == ["t1", "t2", "t3"]
                assert len(set(ids)) == 5
                # And a client of the earlier life comes back to what is there now.
            async with connect(host.ahp, "before") as client:
                result = await client.request(
                    "reconnect", clientId="before", lastSeenServerSeq=seen, subscriptions=[chat]
                )
                assert result["type"] == "snapshot"
                assert len(result["snapshots"][0]["state"]["turns"]) == 5
        assert check_database(state_dir / "state.db") == []


def test_what_both_left_when_they_were_killed_at_once_is_ended_first(state_dir: Path) -> None:
    with CliHost(state_dir, "--agent-path", FIXTURE_AGENTS, "--agent", OPERATED) as host:
        host.create_session("s", "operated")
        host.chat("children 3", id="s")
        keeper = host.json("status")["keeper_pid"]
        # The workers' environment has the host's mark, and what they start has it too.
        marked = list_marked(mark_of(state_dir))
        assert len(marked) >= 4
        # Stopped first, so that neither does anything when the other is gone.
        for pid in (keeper, host.pid):
            os.kill(pid, signal.SIGSTOP)
        for pid in (keeper, host.pid):
            os.kill(pid, signal.SIGKILL)
        host.wait(20)
        left = [pid for pid in marked if is_running(pid)]
        assert len(left) >= 3, "children of an agent outlive both"
    with CliHost(state_dir, "--agent-path", FIXTURE_AGENTS, "--agent", OPERATED) as host:
        assert not any(is_running(pid) for pid in left)
        assert "processes of an earlier host were ended" in host.log()
        assert host.json("status")["sessions"] == 1


def test_a_neighbours_processes_are_left_alone(state_dir: Path) -> None:
    other, own = state_dir / "other", state_dir / "own"
    with CliHost(other, "--agent-path", FIXTURE_AGENTS, "--agent", OPERATED) as neighbour:
        neighbour.create_session("s", "operated")
        neighbour.chat("children 1", id="s")
        marked = list_marked(mark_of(other))
        assert len(marked) >= 2
        with CliHost(own, "--agent-path", FIXTURE_AGENTS, "--agent", OPERATED):
            assert all(is_running(pid) for pid in marked)


async def test_everything_that_was_told_is_there_wherever_it_is_killed(state_dir: Path) -> None:
    seed = random.randrange(10**6)
    with trio.fail_after(400):
        done = await crash(state_dir, KILLS, seed)
    assert done.cut_off > 0, "turns were cut off"
