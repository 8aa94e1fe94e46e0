"""Every hostile agent of the table, held to the same laws.

Its turn ends exactly once, parked requests settled first, and says how; the
next message is answered by a process that knows the turns before; killing it
leaves nothing; and a sibling in the same host loses not a word.
"""

from pathlib import Path

import pytest
import trio

from hostile_stage import CANCEL_GRACE_S, KILL_GRACE_S, SLACK_S, Stage, stage
from hostile_table import CREATED, Row, Then

#: A row's whole test, on a machine that is busy.
LIMIT_S = 60


def _named(row: Row) -> str:
    return row.name


@pytest.mark.parametrize("row", CREATED, ids=_named)
async def test_its_turn_ends_once_and_the_next_message_is_answered(
    row: Row, state_dir: Path
) -> None:
    with trio.fail_after(LIMIT_S):
        async with stage(state_dir, row.factory, **row.bounds) as play:
            first = await play.report("t1")
            assert (first["resume"], first["seed"]) == (None, [])
            await _misbehave(play, row)
            if row.then is Then.CANCEL:
                await play.cancel("t2", by=play.two)
            turn = await play.ended("t2")
            ending = play.saw_it_end("t2", row.ending, parked=row.parked)
            _says(row, ending)
            assert turn["state"] == _STATES[row.ending]
            second = await play.report("t3")
            if row.lives_on:
                assert second["pid"] == first["pid"]
            else:
                assert second["pid"] != first["pid"]
                assert second["resume"] == f"hostile-{first['pid']}"
                assert second["seed"] == [["t1", "report"], ["t2", "misbehave"]]
                # The one before is replaced, with everything that it started.
                await play.only_runs(second["pid"], CANCEL_GRACE_S + KILL_GRACE_S + SLACK_S)
            play.saw_it_end("t2", row.ending, parked=row.parked)
            await play.all_see_the_same()
            await play.dispose()
            await play.nothing_is_left(KILL_GRACE_S + SLACK_S)


@pytest.mark.parametrize("row", [row for row in CREATED if row.goes_on], ids=_named)
async def test_killing_it_in_mid_turn_leaves_nothing(row: Row, state_dir: Path) -> None:
    with trio.fail_after(LIMIT_S):
        async with stage(state_dir, row.factory, **row.bounds) as play:
            await _misbehave(play, row)
            for client in play.clients:
                client.envelopes.clear()
            await play.dispose()
            if not row.lives_on:
                _saw_it_killed(play, row)
            await play.nothing_is_left(KILL_GRACE_S + SLACK_S)


async def _misbehave(play: Stage, row: Row) -> None:
    await play.misbehave("t2", parked=row.parked)
    if row.leaves:
        strays = (await play.told("t2"))["strays"]
        assert len(strays) == row.leaves
        play.meet(strays)


def _says(row: Row, ending: dict[str, object]) -> None:
    if row.ending != "chat/error":
        return
    error = ending["part"]["error"]  # type: ignore[index]  # JSON
    error_type, *texts = row.says
    assert error["errorType"] == error_type
    message = error["message"]
    assert len(message) < 700
    places = [message.find(text) for text in texts]
    assert -1 not in places, message
    assert places == sorted(places), message


def _saw_it_killed(play: Stage, row: Row) -> None:
    for client in play.clients:
        kinds = [
            action["type"]
            for action in client.actions()
            if action["type"] in _OF_AN_END and action["type"] != "session/inputNeededRemoved"
        ]
        settled = kinds[: row.parked]
        assert set(settled) <= {"chat/toolCallConfirmed", "chat/inputCompleted"}
        assert kinds[row.parked :] == ["chat/turnCancelled", "session/chatRemoved"]


_STATES = {
    "chat/error": "error",
    "chat/turnCancelled": "cancelled",
    "chat/turnComplete": "complete",
}

_OF_AN_END = (
    "chat/toolCallConfirmed",
    "chat/inputCompleted",
    "chat/turnCancelled",
    "chat/turnComplete",
    "chat/error",
    "session/inputNeededRemoved",
    "session/chatRemoved",
)
