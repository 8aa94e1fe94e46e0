"""What is killed from outside in mid-turn: a worker, the keeper, the supervisor; and what hangs.

Turns end, processes go, the next message is answered, and who had no part in it
streams on.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import trio

import host_program
from ahp_client import PATIENCE_S, connect, text_of
from ahpd.supervisor.processes.kernel import Stat, read_stat
from hostile_stage import (
    HERE_IT_COMES,
    KILL_GRACE_S,
    SLACK_S,
    Stage,
    gone,
    mark_of,
    marked_pids,
    open_in,
    same_process,
    stage,
    theatre,
)
from hostile_table import CREATED, Row, Then
from keeper_probes import runs

LIMIT_S = 60


async def test_a_worker_killed_in_mid_turn_is_followed_by_one_that_knows_the_turns_before(
    state_dir: Path,
) -> None:
    with trio.fail_after(LIMIT_S):
        async with stage(state_dir, "hostile_hangs:never_settles") as play:
            first = await play.report("t1")
            await play.misbehave("t2", parked=3)
            os.kill(first["pid"], signal.SIGKILL)
            await play.ended("t2")
            ending = play.saw_it_end("t2", "chat/error", parked=3)
            assert ending["part"]["error"] == {
                "errorType": "workerDied",
                "message": "The agent's process was killed by SIGKILL",
            }
            second = await play.report("t3")
            assert second["pid"] != first["pid"]
            assert second["resume"] == f"hostile-{first['pid']}"
            assert second["seed"] == [["t1", "report"], ["t2", "misbehave"]]
            await play.all_see_the_same()
            await play.dispose()
            await play.nothing_is_left(KILL_GRACE_S + SLACK_S)


async def test_a_worker_killed_while_nothing_runs_is_no_news_and_is_replaced(
    state_dir: Path,
) -> None:
    with trio.fail_after(LIMIT_S):
        async with stage(state_dir, "hostile_hangs:never_settles") as play:
            first = await play.report("t1")
            play.meet()
            seen = len(play.one.actions(play.chat))
            os.kill(first["pid"], signal.SIGKILL)
            await play.nothing_is_left(SLACK_S)
            assert len(play.one.actions(play.chat)) == seen
            second = await play.report("t2")
            assert (second["resume"], second["seed"]) == (
                f"hostile-{first['pid']}",
                [["t1", "report"]],
            )
            await play.dispose()
            await play.nothing_is_left(KILL_GRACE_S + SLACK_S)


async def test_a_turn_that_a_dying_worker_never_heard_of_is_answered_by_the_next(
    state_dir: Path,
) -> None:
    with trio.fail_after(LIMIT_S):
        async with stage(state_dir, "hostile_hangs:never_settles") as play:
            first = await play.report("t1")
            chat = play.live.host.chat_at(play.chat)
            assert chat.conversation is not None
            # Given up, and in the same breath, while it still dies, somebody speaks.
            chat.conversation.fail("was given up")
            turn_id = chat.start_turn({"text": "report", "origin": {"kind": "user"}})
            turn = await play.ended(turn_id)
            assert turn["state"] == "complete"
            second = json.loads(text_of(turn))
            assert second["pid"] != first["pid"]
            assert second["seed"] == [["t1", "report"]]
            await play.dispose()
            await play.nothing_is_left(KILL_GRACE_S + SLACK_S)


@pytest.mark.parametrize("agent", ["loops", "loops_plainly"])
async def test_cancelling_an_endless_loop_ends_the_turn_before_its_process_is_gone(
    agent: str, state_dir: Path
) -> None:
    with trio.fail_after(LIMIT_S):
        async with stage(state_dir, f"hostile_hangs:{agent}", cancel_grace_s=2) as play:
            first = await play.report("t1")
            await play.misbehave("t2")
            worker = read_stat(first["pid"])
            assert worker is not None
            await play.cancel("t2", by=play.two)
            await play.ended("t2")
            play.saw_it_end("t2", "chat/turnCancelled")
            # It cannot have heard, so it is still there: nobody had to wait for it.
            assert same_process(worker)
            # The next message may be said at once; the next process answers it.
            began_s = trio.current_time()
            turn = await play.one.say(play.chat, "t3", "report")
            assert json.loads(text_of(turn))["seed"] == [["t1", "report"], ["t2", "misbehave"]]
            await gone(lambda: [worker] if same_process(worker) else [], 2 + SLACK_S)
            print(f"replaced {trio.current_time() - began_s:.2f} s after the cancel")
            await play.misbehave("t4")
            play.live.host.dispose_session(play.live.host.session_at(play.session))
            await play.nothing_is_left(KILL_GRACE_S + SLACK_S)
            assert play.session not in [
                row["resource"] for row in (await play.two.request("listSessions"))["items"]
            ]


async def test_the_keeper_killed_alone_ends_every_turn_and_another_takes_over(
    state_dir: Path,
) -> None:
    with trio.fail_after(LIMIT_S):
        async with stage(
            state_dir, "hostile_strays:leaves_and_waits", sibling_survives=False
        ) as play:
            first = await play.report("t1")
            await play.misbehave("t2", parked=2)
            strays = (await play.told("t2"))["strays"]
            assert len(strays) == 5
            play.meet(strays)
            met = {stat.pid for stat in play.met}
            assert {*strays, first["pid"]} <= met
            keeper = play.live.launcher.pid
            assert keeper is not None
            os.kill(keeper, signal.SIGKILL)
            await play.ended("t2")
            ending = play.saw_it_end("t2", "chat/error", parked=2)
            message = ending["part"]["error"]["message"]
            assert message == "The agent's process was killed by SIGKILL"
            await play.nothing_is_left(SLACK_S)
            # The sibling's process had the same parent. Its turn ends as well.
            beside = await play.sibling.client.ended(play.sibling.chat, "steady")
            assert beside["state"] == "error"
            second = await play.report("t3")
            assert second["seed"] == [["t1", "report"], ["t2", "misbehave"]]
            assert play.live.launcher.pid not in (None, keeper)
            await play.all_see_the_same()
            await play.dispose()
            await play.nothing_is_left(KILL_GRACE_S + SLACK_S)


async def test_the_supervisor_killed_alone_leaves_nothing(state_dir: Path) -> None:
    with trio.fail_after(LIMIT_S), _host(state_dir, "hostile_strays:leaves_and_waits") as program:
        mark, met, keeper = await _leave_strays(program)
        program.kill()
        await gone(lambda: marked_pids(mark), SLACK_S)
        await gone(lambda: [stat for stat in met if same_process(stat)], SLACK_S)
        await gone(lambda: [keeper] if runs(keeper) else [], SLACK_S)


@contextmanager
def _host(state_dir: Path, factory: str) -> Iterator["subprocess.Popen[bytes]"]:
    """A host of its own process that serves that agent."""
    command = [sys.executable, host_program.__file__, str(state_dir), factory]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL) as program:
        try:
            yield program
        finally:
            program.kill()


async def _leave_strays(program: "subprocess.Popen[bytes]") -> tuple[str, list[Stat], int]:
    """Has a session of that host leave strays in mid-turn: its mark, what runs, its keeper."""
    assert program.stdout is not None
    told = json.loads(await trio.to_thread.run_sync(program.stdout.readline))
    async with connect(told["url"]) as client:
        await client.initialize()
        session = "ahp-session:/one"
        await client.request("createSession", channel=session, provider="hostile")
        chat = (await client.subscribe(session))["defaultChat"]
        await client.subscribe(chat)
        first = json.loads(text_of(await client.say(chat, "t1", "report")))
        await client.start_turn(chat, "t2", "misbehave")

        def said() -> list[str]:
            running = client.states[chat].get("activeTurn") or {"responseParts": []}
            parts = [part for part in running["responseParts"] if part["kind"] == "markdown"]
            return [part["content"] for part in parts]

        await client.until(lambda: len(said()) == 2, what="the strays", within_s=PATIENCE_S)
        assert said()[0] == HERE_IT_COMES
        strays = json.loads(said()[1])["strays"]
        assert len(strays) == 5
        mark = mark_of(first["pid"])
        # The worker, the catalogue's, and the strays; one of these cleared its environment.
        assert len(marked_pids(mark)) >= 5
        stats = [read_stat(pid) for pid in {*strays, first["pid"], *marked_pids(mark)}]
        return mark, [stat for stat in stats if stat is not None], told["keeper"]


@pytest.mark.parametrize("how", ["cancel", "kill"])
async def test_what_a_subagent_parked_is_settled_with_its_parent(how: str, state_dir: Path) -> None:
    with trio.fail_after(LIMIT_S):
        async with stage(state_dir, "hostile_hangs:parks_in_subagent") as play:
            await play.report("t1")
            await play.misbehave("t2", parked=3)
            session = play.two.states[play.session]
            below = next(row["resource"] for row in session["chats"] if row["title"] == "Below")
            assert "activeTurn" in await play.two.subscribe(below)
            if how == "cancel":
                await play.cancel("t2")
            else:
                os.kill(play.live.pids(play.session)[0], signal.SIGKILL)
            await play.two.until(lambda: play.two.states[below]["turns"], what="its end")
            ended = play.two.states[below]["turns"][0]
            assert ended["state"] == ("cancelled" if how == "cancel" else "error")
            assert open_in(ended) == []
            kinds = [action["type"] for action in play.two.actions(below)]
            ending = "chat/turnCancelled" if how == "cancel" else "chat/error"
            assert kinds == ["chat/inputCompleted", ending]
            await play.ended("t2")
            await play.report("t3")
            play.saw_it_end("t2", ending, parked=2)
            await play.all_see_the_same()
            await play.dispose()
            await play.nothing_is_left(KILL_GRACE_S + SLACK_S)


#: One of each kind, for the day on which everything goes wrong.
CROWD = (
    "exits_with_parked",
    "segfaults",
    "loops",
    "sleeps_in_c",
    "stopped",
    "never_settles",
    "leaves_and_waits",
    "garbage",
    "floods_deltas_for_ever",
    "floods_parts",
    "floods_output",
)


async def test_all_of_them_at_once_and_the_sibling_streams_on(state_dir: Path) -> None:
    rows = {row.factory.partition(":")[2]: row for row in CREATED}
    factories = {name: rows[name].factory for name in CROWD}
    with trio.fail_after(2 * LIMIT_S):
        async with theatre(state_dir, factories, begin_timeout_s=30) as house:
            plays = {name: await house.enter(name) for name in CROWD}
            async with trio.open_nursery() as nursery:
                for name, play in plays.items():
                    nursery.start_soon(_act, play, rows[name])
            for play in plays.values():
                play.meet()
                await play.one.request("disposeSession", channel=play.session)
            for play in plays.values():
                await play.nothing_is_left(KILL_GRACE_S + SLACK_S)


async def _act(play: Stage, row: Row) -> None:
    await play.misbehave("t1", parked=row.parked)
    if row.then is Then.CANCEL:
        await play.cancel("t1", by=play.two)
    await play.ended("t1")
    play.saw_it_end("t1", row.ending, parked=row.parked)
