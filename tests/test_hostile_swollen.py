"""What one agent says, everybody is sent: so there is only so much of it, and the rest lives on."""

import json
from pathlib import Path
from typing import Any

import trio

from ahp_client import AhpClient
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
