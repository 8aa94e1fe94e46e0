"""What a flood comes to: what was rightly said arrives whole, and nobody else drowns in it."""

from pathlib import Path

import trio

from ahp_client import text_of
from ahpd.supervisor.sessions.row_news import AT_ONCE, WINDOW_S
from hostile_stage import KILL_GRACE_S, SLACK_S, stage

LIMIT_S = 90

#: As in `hostile/hostile_bytes.py`.
FLOOD = 100_000
TITLES = 3_000


async def test_a_hundred_thousand_deltas_arrive_whole_and_in_order(state_dir: Path) -> None:
    with trio.fail_after(LIMIT_S):
        async with stage(state_dir, "hostile_bytes:floods_deltas") as play:
            await play.misbehave("t1")
            for client in play.clients:
                await client.until(
                    lambda client=client: client.states[play.chat]["turns"],
                    what="the end of the flood",
                    within_s=LIMIT_S,
                )
            turn = await play.ended("t1")
            assert turn["state"] == "complete"
            assert text_of(turn).endswith("".join(f"{number} " for number in range(FLOOD)))
            play.saw_it_end("t1", "chat/turnComplete")
            # Gathered: clients were told in far fewer pieces.
            assert len(play.one.envelopes) < FLOOD / 20
            await play.all_see_the_same()
            await play.dispose()
            await play.nothing_is_left(KILL_GRACE_S + SLACK_S)


async def test_a_session_that_changes_without_end_does_not_drown_who_lists_it(
    state_dir: Path,
) -> None:
    with trio.fail_after(LIMIT_S):
        async with stage(state_dir, "hostile_bytes:floods_titles") as play:
            began_s = trio.current_time()
            await play.misbehave("t1")
            await play.ended("t1")
            windows = (trio.current_time() - began_s) / WINDOW_S + 2
            last = f"title {TITLES - 1}"
            for client in play.clients:
                assert client.states[play.session]["title"] == last
            # The sibling's client never looked at this session, but lists all.
            beside = play.sibling.client
            rows = (await beside.request("listSessions"))["items"]
            assert [row["title"] for row in rows if row["resource"] == play.session] == [last]
            told = [
                note["params"]["changes"]["title"]
                for note in beside.notifications
                if note["method"] == "root/sessionSummaryChanged"
                and note["params"]["session"] == play.session
                and "title" in note["params"]["changes"]
            ]
            assert told[-1] == last
            assert len(told) <= windows * (AT_ONCE + 1)
            await play.all_see_the_same()
            await play.dispose()
            await play.nothing_is_left(KILL_GRACE_S + SLACK_S)


async def test_complaints_without_end_do_not_fill_the_log(state_dir: Path) -> None:
    with trio.fail_after(LIMIT_S):
        async with stage(state_dir, "hostile_bytes:floods_complaints") as play:
            await play.misbehave("t1")
            turn = await play.ended("t1")
            assert turn["state"] == "complete"
            log = play.live.host.chat_at(play.chat).log.tail(16 * 1024 * 1024)
            assert 0 < log.count(b"complaint") <= 100
            await play.dispose()
            await play.nothing_is_left(KILL_GRACE_S + SLACK_S)
