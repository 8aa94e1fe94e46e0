"""The client behind `chat`: it holds what the host holds, and comes back after it was cut off."""

from collections.abc import Iterator
from typing import Any

import pytest
import trio

from ahpd.contracts.ahp.errors import ErrorCode
from ahpd.contracts.ahp.uris import ROOT_URI
from ahpd.supervisor.client import (
    AhpClient,
    DispatchRefused,
    Envelope,
    RequestRefused,
    open_client,
)
from ahpd.supervisor.client_dial import ClientError
from cli_host import FIXTURE_AGENTS, OPERATED, CliHost

TEST_LIMIT_S = 60


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CliHost]:
    state_dir = tmp_path_factory.mktemp("client") / "state"
    with CliHost(state_dir, "--agent-path", FIXTURE_AGENTS, "--agent", OPERATED) as running:
        yield running


async def new_chat(client: AhpClient, id: str) -> str:
    """A ready session, subscribed with its chat: the chat's URI."""
    await client.create_session(f"ahp-session:/{id}", provider="operated")
    session = await client.subscribe(f"ahp-session:/{id}")
    await client.until(lambda: session.state["lifecycle"] == "ready")
    (row,) = session.state["chats"]
    await client.subscribe(row["resource"])
    return str(row["resource"])


def states(client: AhpClient) -> dict[str, Any]:
    return {uri: mirror.state for uri, mirror in client.mirrors.items()}


async def say(client: AhpClient, chat: str, turn_id: str, text: str) -> None:
    """Starts a turn and waits until it has ended."""
    message = {"text": text, "origin": {"kind": "user"}}
    started = {"turnId": turn_id, "startedAt": "2026-10-01T00:00:00.000Z", "message": message}
    await client.dispatched(chat, {"type": "chat/turnStarted", **started})
    turns = client.mirrors[chat]
    await client.until(lambda: any(turn["id"] == turn_id for turn in turns.state["turns"]))


async def test_what_it_reduced_is_what_a_fresh_snapshot_says(host: CliHost) -> None:
    heard: list[Envelope] = []
    with trio.fail_after(TEST_LIMIT_S):
        async with open_client(host.ahp, on_envelope=heard.append) as client:
            chat = await new_chat(client, "same")
            await say(client, chat, "t1", "hello")
            await say(client, chat, "t2", "again")
            async with open_client(host.ahp, subscriptions=list(client.mirrors)) as fresh:
                # What follows from a turn's end comes a moment after it.
                await client.until(lambda: states(client) == states(fresh))
            numbers = [envelope.server_seq for envelope in heard if not envelope.client_id]
            assert numbers == sorted(numbers)
            assert client.server_seq == max(numbers)


async def test_a_client_that_was_cut_off_misses_nothing(host: CliHost) -> None:
    with trio.fail_after(TEST_LIMIT_S):
        async with open_client(host.ahp) as client:
            chat = await new_chat(client, "cut")
            await say(client, chat, "t1", "hello")
        async with open_client(host.ahp) as other:
            await other.subscribe(chat)
            await say(other, chat, "t2", "meanwhile")
            async with open_client(host.ahp, resume=client) as back:
                assert back.client_id == client.client_id
                assert back.welcome["type"] == "replay"
                assert back.mirrors[chat].state == other.mirrors[chat].state
                await say(back, chat, "t3", "after")
                assert "heard after" in str(back.mirrors[chat].state["turns"][-1])


async def test_refusals_are_told_with_their_code_or_reason(host: CliHost) -> None:
    with trio.fail_after(TEST_LIMIT_S):
        async with open_client(host.ahp) as client:
            chat = await new_chat(client, "refused")
            with pytest.raises(RequestRefused) as refused:
                await client.create_session("ahp-session:/refused", provider="operated")
            assert refused.value.code == ErrorCode.SESSION_ALREADY_EXISTS
            cancel = {"type": "chat/turnCancelled", "turnId": "t", "duration": 1}
            with pytest.raises(DispatchRefused, match="no turn is running"):
                await client.dispatched(chat, cancel)
            assert await client.dispatch(chat, cancel) > 0
            with pytest.raises(ClientError, match=r"did not come within 0\.1 s"):
                await client.until(lambda: False, limit_s=0.1)


async def test_the_end_of_a_connection_ends_every_wait(host: CliHost) -> None:
    with trio.fail_after(TEST_LIMIT_S):
        async with open_client(host.ahp, client_id="twice") as first:
            async with trio.open_nursery() as nursery:

                async def wait() -> None:
                    with pytest.raises(ClientError, match=r"closed the connection \(4001\)"):
                        await first.until(lambda: False, limit_s=TEST_LIMIT_S)

                nursery.start_soon(wait)
                async with open_client(host.ahp, client_id="twice") as second:
                    await first.closed.wait()
                    assert second.root.uri == ROOT_URI
            with pytest.raises(ClientError, match=r"closed the connection \(4001\)"):
                await first.request("ping", {"channel": ROOT_URI})
