"""What one agent says, everybody is sent: so there is only so much of it, and the rest lives on."""

import json
from pathlib import Path
from typing import Any

import trio

from ahp_client import AhpClient
from hostile_stage import stage
from live_host import live_host

LIMIT_S = 90

#: What a client may be sent of agents that say as much as they can.
SOME_MIB = 2 * 1024 * 1024


def agent_infos(client: AhpClient) -> dict[str, Any]:
    return {info["provider"]: info for info in client.states["ahp-root://"]["agents"]}


async def test_agents_that_describe_themselves_at_length_keep_nobody_out(state_dir: Path) -> None:
    agents = {"echo": "ahpd.agents.echo:create"}
    agents |= {f"swollen-{number}": "hostile_swollen:describes" for number in range(3)}
    with trio.fail_after(LIMIT_S):
        async with live_host(state_dir, agents) as live:
            client = await live.client()
            await client.until(
                lambda: all(
                    info["models"] for name, info in agent_infos(client).items() if name != "echo"
                ),
                what="what the agents say of themselves",
            )
            late = await live.client("late")
            infos = agent_infos(late)
            assert len(json.dumps(late.states["ahp-root://"])) < SOME_MIB
            assert infos["swollen-0"]["displayName"].startswith("nnn")
            assert infos["swollen-0"]["description"].startswith("ddd")
            # The model that is too large is left out, and those past a thousand.
            assert [model["id"] for model in infos["swollen-0"]["models"]][:2] == ["m1", "m2"]
            assert len(infos["swollen-0"]["models"]) < 1000
            _, chat = await live.session(late, "echo")
            assert (await late.say(chat, "t1", "hello"))["state"] == "complete"


async def test_an_agent_whose_schema_is_too_large_is_listed_with_that_reason(
    state_dir: Path,
) -> None:
    with trio.fail_after(LIMIT_S):
        async with live_host(state_dir, {"swollen": "hostile_swollen:has_a_schema"}) as live:
            client = await live.client()
            uri, _ = await live.session(client, "swollen", ready=False)
            await client.until(lambda: client.states[uri]["lifecycle"] == "failed")
            reason = client.states[uri]["creationError"]["message"]
            assert "schema is larger than" in reason
            assert agent_infos(client)["swollen"]["description"] == reason


async def test_a_reason_without_end_is_cut(state_dir: Path) -> None:
    with trio.fail_after(LIMIT_S):
        async with live_host(state_dir, {"swollen": "hostile_swollen:refuses"}) as live:
            client = await live.client()
            uri, _ = await live.session(client, "swollen", ready=False)
            await client.until(lambda: client.states[uri]["lifecycle"] == "failed")
            reason = client.states[uri]["creationError"]["message"]
            assert "www" in reason
            assert len(reason) < 3000


async def test_a_session_that_swells_is_sent_to_nobody_at_length(state_dir: Path) -> None:
    with trio.fail_after(LIMIT_S):
        async with stage(state_dir, "hostile_swollen:swells") as play:
            await play.misbehave("t1")
            turn = await play.ended("t1")
            assert turn["state"] == "error"
            assert "sss" in turn["responseParts"][-1]["error"]["message"]
            assert len(turn["responseParts"][-1]["error"]["message"]) < 5000
            session = play.one.states[play.session]
            assert session["title"].startswith("sss")
            assert len(json.dumps(session)) < SOME_MIB
            # Of what it wanted to ask, no more waited at one time than a session can show.
            assert all(
                len(json.dumps(action)) < 8 * 1024 * 1024
                for action in play.one.actions(play.session)
            )
            chat = play.one.states[play.chat]
            assert len(chat.get("activity", "")) < 1000
            assert not chat.get("backgroundWork")
            listed = await play.sibling.client.request("listSessions")
            assert len(json.dumps(listed)) < 64 * 1024
            await play.all_see_the_same()
            await play.dispose()


async def test_a_turn_without_end_is_ended_while_a_snapshot_can_still_hold_it(
    state_dir: Path,
) -> None:
    with trio.fail_after(LIMIT_S):
        async with stage(state_dir, "hostile_swollen:streams_without_end") as play:
            await play.misbehave("t1")
            turn = await play.ended("t1")
            assert turn["state"] == "error"
            error = turn["responseParts"][-1]["error"]
            assert error["errorType"] == "workerDied"
            assert "more in one turn than 12582912 bytes" in error["message"]
            assert 11 * 1024 * 1024 < len(json.dumps(turn)) < 14 * 1024 * 1024
            await play.all_see_the_same()
            await play.dispose()


async def test_an_agent_that_goes_on_by_itself_fills_its_chat_and_no_more(state_dir: Path) -> None:
    bounds = {"max_chat_bytes": 1_000_000}
    with trio.fail_after(LIMIT_S):
        async with stage(state_dir, "hostile_swollen:takes_turn_after_turn", **bounds) as play:
            await play.misbehave("t1")
            await play.one.until(
                lambda: (
                    play.one.states["ahp-root://"] and len(play.one.states[play.chat]["turns"]) > 10
                ),
                what="a full chat",
            )
            echo = await play.one.start_turn(play.chat, "t2", "are you there?")
            assert "the chat holds all that a chat may" in echo["rejectionReason"]
            assert len(json.dumps(play.one.states[play.chat])) < 1_300_000
            # Who makes room goes on.
            await play.one.act(play.chat, {"type": "chat/truncated", "turnId": "t1"})
            assert (await play.one.say(play.chat, "t3", "report"))["state"] == "complete"
            await play.all_see_the_same()
            await play.dispose()


async def test_what_nests_deep_is_told_to_the_next_worker_or_never_taken(state_dir: Path) -> None:
    with trio.fail_after(LIMIT_S):
        async with stage(state_dir, "hostile_swollen:nests_deep") as play:
            await play.misbehave("t1")
            turn = await play.ended("t1")
            depths = [int(part["id"].removeprefix("t1-")) for part in turn["responseParts"][1:]]
            assert 91 in depths
            assert 124 not in depths
            play.live.host.chat_at(play.chat).restart()
            answer = await play.one.say(play.chat, "t2", "report")
            assert answer["state"] == "complete", answer
            told = json.loads(answer["responseParts"][-1]["content"])
            assert [ident for ident, _ in told["seed"]] == ["t1"]
