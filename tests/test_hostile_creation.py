"""Agents whose session never comes to be: it fails with a reason, and nothing is left."""

import re
from pathlib import Path

import pytest
import trio

from hostile_stage import KILL_GRACE_S, SLACK_S, Stage, stage
from hostile_table import NEVER_CREATED, Row

LIMIT_S = 60


async def failed(play: Stage) -> str:
    """Waits until both clients see that the session failed; answers the reason."""
    for client in play.clients:
        await client.until(
            lambda client=client: client.states[play.session]["lifecycle"] == "failed",
            what="the end of the creation",
        )
    error = play.one.states[play.session]["creationError"]
    assert error == play.two.states[play.session]["creationError"]
    assert error["errorType"] == "creationFailed"
    return str(error["message"])


@pytest.mark.parametrize("row", NEVER_CREATED, ids=lambda row: row.name)
async def test_the_session_fails_with_a_reason_and_its_process_is_gone(
    row: Row, state_dir: Path
) -> None:
    with trio.fail_after(LIMIT_S):
        async with stage(state_dir, row.factory, create=False, **row.bounds) as play:
            reason = await failed(play)
            assert row.says[1] in reason
            told = re.search(r"for nothing: \[(.*)\]", reason)
            if row.leaves:
                assert told is not None
                strays = [int(number) for number in told[1].split(", ")]
                assert len(strays) == row.leaves
                play.meet(strays)
            # It has no second try in it: what it left goes with it, before anybody asks.
            await play.nothing_is_left(KILL_GRACE_S + SLACK_S)
            echo = await play.one.start_turn(play.chat, "t1", "are you there?")
            assert "could not be created" in echo["rejectionReason"]
            await play.all_see_the_same()
            await play.dispose()
            await play.nothing_is_left(KILL_GRACE_S + SLACK_S)


async def test_a_message_sent_while_it_is_created_ends_with_the_reason(state_dir: Path) -> None:
    with trio.fail_after(LIMIT_S):
        async with stage(
            state_dir, "hostile_creation:loops", create=False, create_timeout_s=1.5
        ) as play:
            await play.one.start_turn(play.chat, "t1", "are you there?")
            turn = await play.ended("t1")
            assert turn["state"] == "error"
            ending = play.saw_it_end("t1", "chat/error")
            assert "within 1.5 s" in ending["part"]["error"]["message"]
            await failed(play)
            await play.nothing_is_left(KILL_GRACE_S + SLACK_S)


async def test_it_can_be_killed_while_it_hangs_in_its_creation(state_dir: Path) -> None:
    with trio.fail_after(LIMIT_S):
        async with stage(state_dir, "hostile_creation:loops", create=False) as play:
            await play.one.start_turn(play.chat, "t1", "are you there?")
            with trio.fail_after(10):
                while not play.live.pids(play.session):  # noqa: ASYNC110  # a process is started
                    await trio.sleep(0.01)
            await play.dispose()
            play.saw_it_end("t1", "chat/turnCancelled")
            await play.nothing_is_left(KILL_GRACE_S + SLACK_S)
