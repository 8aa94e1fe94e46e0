"""A host that is started again: what it was told is there, what was cut off is ended."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from ahp_client import AhpClient, Refused, text_of, turn_started
from ahpd.supervisor.sessions import chat as chats
from ahpd.supervisor.store.memory import MemoryStore
from ahpd.supervisor.store.sqlite import SqliteStore
from live_host import LiveHost, live_host
from test_store_sqlite import change

Json = dict[str, Any]
SCRIPTED = {"scripted": "fixture_scripted:scripted"}

#: A whole test, workers that start included.
LIMIT_S = 60


class Lives:
    """One host after the other on the same state directory."""

    def __init__(self, state_dir: Path, store: str) -> None:
        self.state_dir = state_dir
        self._memory = MemoryStore() if store == "memory" else None

    @asynccontextmanager
    async def life(self, **more: Any) -> AsyncIterator[LiveHost]:
        store = self._memory or SqliteStore(self.state_dir / "state.db")
        more.setdefault("agents", SCRIPTED)
        with trio.fail_after(LIMIT_S):
            async with live_host(self.state_dir, store=store, **more) as live:
                yield live


@pytest.fixture(params=["memory", "sqlite"])
def lives(request: pytest.FixtureRequest, state_dir: Path) -> Lives:
    return Lives(state_dir, request.param)


@pytest.fixture
def on_disk(state_dir: Path) -> Lives:
    return Lives(state_dir, "sqlite")


def queued(id: str, text: str) -> Json:
    message = {"text": text, "origin": {"kind": "user"}}
    return {"type": "chat/pendingMessageSet", "kind": "queued", "id": id, "message": message}


async def parked(client: AhpClient, session: str, count: int) -> None:
    await client.until(
        lambda: len(client.states[session].get("inputNeeded", [])) == count, what="what is parked"
    )


async def reopened(live: LiveHost, session: str, chat: str, client_id: str = "again") -> AhpClient:
    """A client that was not there before, subscribed to both."""
    client = await live.client(client_id)
    await client.subscribe(session)
    await client.subscribe(chat)
    return client


async def test_everything_that_a_client_sees_is_there_again(lives: Lives) -> None:
    async with lives.life() as live:
        client = await live.client()
        session, chat = await live.session(
            client, "scripted", workingDirectories=["file:///tmp"], config={"mood": "merry"}
        )
        await client.say(chat, "t1", "stream 5; think; free; title A name")
        await client.say(chat, "t2", "fail")
        draft = {"text": "half a thought", "origin": {"kind": "user"}}
        await client.act(chat, {"type": "chat/draftChanged", "draft": draft})
        await client.act(session, {"type": "session/titleChanged", "title": "A person's name"})
        await client.act(session, {"type": "session/isReadChanged", "isRead": True})
        await client.act(session, {"type": "session/isArchivedChanged", "isArchived": True})
        more = "ahp-chat:/more"
        await client.request("createChat", channel=session, chat=more)
        await client.subscribe(more)
        await client.say(more, "m1", "stream")
        before = {uri: await client.snapshot(uri) for uri in (session, chat, more)}
        listed = await client.request("listSessions")
        seen = client.last_seq
    async with lives.life() as live:
        client = await live.client("another")
        assert client.last_seq > seen, "numbers go on"
        assert client.states["ahp-root://"]["activeSessions"] == 1
        assert live.host.sessions == {}, "nothing but the catalogue was read"
        assert await client.request("listSessions") == listed
        assert live.host.sessions == {}
        for uri, state in before.items():
            assert await client.snapshot(uri) == state, uri
        assert (await client.request("listSessions")) == listed
        # The same under every spelling.
        for spelling in (f"scripted:/{session.rsplit('/', 1)[1]}", session):
            assert (await client.snapshot(spelling))["title"] == "A person's name"


async def test_the_first_message_starts_a_worker_that_goes_on(lives: Lives) -> None:
    async with lives.life() as live:
        client = await live.client()
        session, chat = await live.session(client, "scripted", config={"mood": "merry"})
        await client.say(chat, "t1", "stream")
        await client.say(chat, "t2", "stream")
    async with lives.life() as live:
        client = await reopened(live, session, chat)
        assert live.pids(session) == []
        turn = await client.say(chat, "t3", "recall; settings")
        assert text_of(turn) == (
            f"scripted:{session.rsplit('/', 1)[1]} ['t1', 't2'] None"
            "{'fixed': False, 'level': 1, 'mood': 'merry'}"
        )
        assert [one["id"] for one in client.states[chat]["turns"]] == ["t1", "t2", "t3"]
        said = await client.start_turn(chat, "t1", "once more")
        assert said["rejectionReason"] == "the turn t1 is there already"
    async with lives.life() as live:
        client = await reopened(live, session, chat)
        assert [one["id"] for one in client.states[chat]["turns"]] == ["t1", "t2", "t3"]


async def test_a_truncation_is_gone_back_to_by_the_next_life(lives: Lives) -> None:
    async with lives.life() as live:
        client = await live.client()
        session, chat = await live.session(client, "scripted")
        for name in ("t1", "t2", "t3"):
            await client.say(chat, name, "stream 1")
        await client.act(chat, {"type": "chat/truncated", "turnId": "t2"})
    async with lives.life() as live:
        client = await reopened(live, session, chat)
        turn = await client.say(chat, "t4", "recall")
        assert text_of(turn).endswith(" ['t1', 't2'] t2")
    async with lives.life() as live:
        client = await reopened(live, session, chat)
        assert [one["id"] for one in client.states[chat]["turns"]] == ["t1", "t2", "t4"]


async def test_a_graceful_stop_writes_down_that_turns_were_interrupted(lives: Lives) -> None:
    async with lives.life() as live:
        client = await live.client()
        session, chat = await live.session(client, "scripted")
        await client.start_turn(chat, "t1", "stream 3; park; wait")
        await parked(client, session, 2)
        await client.act(chat, queued("q1", "stream 1"))
    async with lives.life() as live:
        client = await reopened(live, session, chat)
        state = client.states[chat]
        (turn,) = state["turns"]
        assert turn["state"] == "error"
        assert turn["responseParts"][-1]["error"]["errorType"] == "interrupted"
        assert "activeTurn" not in state
        assert [one["id"] for one in state["queuedMessages"]] == ["q1"]
        assert client.states[session].get("inputNeeded", []) == []
        # The queue waits for a person's word, and then goes on.
        await client.say(chat, "t2", "stream 1")
        await client.until(
            lambda: len(client.states[chat]["turns"]) == 3, what="the queue to drain"
        )
        assert client.states[chat].get("queuedMessages", []) == []


async def test_a_client_that_was_here_before_comes_back_to_snapshots(lives: Lives) -> None:
    async with lives.life() as live:
        client = await live.client("known")
        session, chat = await live.session(client, "scripted")
        await client.say(chat, "t1", "stream")
        seen = client.last_seq
    async with lives.life() as live:
        for last_seen in (seen, seen - 1, 0, seen + 10**6):
            again = await live.client("known", initialize=False)
            result = await again.request(
                "reconnect",
                clientId="known",
                lastSeenServerSeq=last_seen,
                subscriptions=["ahp-root://", session, chat, "ahp-chat:/never"],
            )
            assert result["type"] == "snapshot", last_seen
            assert [one["resource"] for one in result["snapshots"]] == [
                "ahp-root://",
                session,
                chat,
            ]
            assert all(one["fromSeq"] > seen for one in result["snapshots"])
        stranger = await live.client("stranger", initialize=False)
        with pytest.raises(Refused) as refused:
            await stranger.request(
                "reconnect", clientId="stranger", lastSeenServerSeq=0, subscriptions=[]
            )
        assert refused.value.code == -32008
        # Within the new life it is replayed again.
        for snapshot in result["snapshots"]:
            again.hold(snapshot)
        turn = again.last_seq
        await again.say(chat, "t2", "stream")
        once_more = await live.client("known", initialize=False)
        replay = await once_more.request(
            "reconnect", clientId="known", lastSeenServerSeq=turn, subscriptions=[chat]
        )
        assert replay["type"] == "replay"
        assert replay["actions"][0]["action"]["type"] == "chat/turnStarted"


async def test_clients_are_forgotten_in_their_order_also_across_lives(lives: Lives) -> None:
    async with lives.life(admitted_clients=3) as live:
        for name in ("one", "two", "three", "four"):
            await live.client(name)
    # They left in the other order: who was seen last is remembered longest.
    async with lives.life(admitted_clients=3) as live:
        assert live.host.admitted("four") is None
        assert live.host.admitted("one") is not None
    async with lives.life(admitted_clients=3, admitted_days=1e-9) as live:
        assert live.host.admitted("one") is None


async def test_a_session_that_was_disposed_does_not_come_back(on_disk: Lives) -> None:
    async with on_disk.life() as live:
        client = await live.client()
        session, chat = await live.session(client, "scripted")
        await client.say(chat, "t1", "print a line for the log")
        kept, _ = await live.session(client, "scripted")
        logs = on_disk.state_dir / "logs"
        before = len(list(logs.iterdir()))
        await client.request("disposeSession", channel=session)
        with trio.fail_after(20):
            while len(list(logs.iterdir())) != before - 1:  # noqa: ASYNC110  # a file, no event
                await trio.sleep(0.01)
    async with on_disk.life() as live:
        client = await live.client()
        listed = await client.request("listSessions")
        assert [row["resource"] for row in listed["items"]] == [kept]
        with pytest.raises(Refused) as refused:
            await client.subscribe(session)
        assert refused.value.code == -32001
        # One that nobody looked at can be disposed of too, and its id is free then.
        await client.request("disposeSession", channel=kept)
        assert (await client.request("listSessions"))["items"] == []
        await client.request("createSession", channel=kept, provider="scripted")
        assert (await client.snapshot(kept))["chats"][0]["title"] == ""


async def test_an_id_that_is_kept_is_taken(lives: Lives) -> None:
    async with lives.life() as live:
        client = await live.client()
        session, _ = await live.session(client, "scripted")
        await client.request("createChat", channel=session, chat="ahp-chat:/taken")
        other, _ = await live.session(client, "scripted")
    async with lives.life() as live:
        client = await live.client()
        for uri in (session, f"notes:/{session.rsplit('/', 1)[1]}"):
            with pytest.raises(Refused) as refused:
                await client.request("createSession", channel=uri, provider="scripted")
            assert refused.value.code == -32003
        with pytest.raises(Refused) as refused:
            await client.request("createChat", channel=other, chat="ahp-chat:/taken")
        assert refused.value.code == -32010


async def test_a_session_whose_agent_is_gone_can_be_read_and_says_so(lives: Lives) -> None:
    async with lives.life() as live:
        client = await live.client()
        session, chat = await live.session(client, "scripted")
        await client.say(chat, "t1", "stream")
    async with lives.life(agents={"echo": "ahpd.agents.echo:create"}) as live:
        client = await reopened(live, session, chat)
        turn = await client.say(chat, "t2", "hello")
        assert turn["state"] == "error"
        error = turn["responseParts"][-1]["error"]
        assert error["message"] == "This host has no agent 'scripted' any more."


async def test_subagents_come_back_as_they_were_left(lives: Lives) -> None:
    async with lives.life() as live:
        client = await live.client()
        session, chat = await live.session(client, "scripted")
        await client.start_turn(chat, "t1", "subagent ask")
        await parked(client, session, 1)
    async with lives.life() as live:
        client = await reopened(live, session, chat)
        rows = client.states[session]["chats"]
        (sub,) = [row["resource"] for row in rows if row["resource"] != chat]
        state = await client.subscribe(sub)
        assert state["interactivity"] == "read-only"
        assert state["origin"]["chat"] == chat
        (turn,) = state["turns"]
        assert turn["responseParts"][-1]["error"]["errorType"] == "interrupted"
        assert client.states[session].get("inputNeeded", []) == []
        said = await client.start_turn(sub, "x", "hello")
        assert "read-only" in said["rejectionReason"]


async def test_pages_of_the_list_cross_from_memory_to_disk(lives: Lives) -> None:
    uris = []
    async with lives.life() as live:
        client = await live.client()
        for _ in range(7):
            session, _ = await live.session(client, "scripted")
            uris.append(session)
    async with lives.life() as live:
        client = await live.client()
        for uri in uris[1::3]:
            await client.subscribe(uri)
        await client.act(uris[1], {"type": "session/titleChanged", "title": "newest change"})
        pages, cursor = [], None
        while True:
            more = {} if cursor is None else {"cursor": cursor}
            page = await client.request("listSessions", limit=3, **more)
            pages.append([row["resource"] for row in page["items"]])
            cursor = page.get("nextCursor")
            if cursor is None:
                break
        assert [len(page) for page in pages] == [3, 3, 1]
        wanted = [uris[1], *reversed([uri for uri in uris if uri != uris[1]])]
        assert [uri for page in pages for uri in page] == wanted


async def test_what_cannot_be_read_is_named_and_costs_nothing_else(on_disk: Lives) -> None:
    async with on_disk.life() as live:
        client = await live.client()
        bad, bad_chat = await live.session(client, "scripted")
        await client.say(bad_chat, "t1", "stream")
        good, good_chat = await live.session(client, "scripted")
        await client.say(good_chat, "t1", "stream")
        for name in ("torn", "whole"):
            await client.request("createChat", channel=good, chat=f"ahp-chat:/{name}")
    database = on_disk.state_dir / "state.db"
    change(database, "UPDATE turns SET body = x'7b' WHERE chat = ?", bad.rsplit("/", 1)[1])
    change(database, "UPDATE chats SET head = x'7b' WHERE id = 'torn'")
    async with on_disk.life() as live:
        client = await live.client()
        listed = await client.request("listSessions")
        assert len(listed["items"]) == 2
        for uri in (bad, bad_chat):
            with pytest.raises(Refused) as refused:
                await client.subscribe(uri)
            assert refused.value.code == -32603
            assert "cannot be read from disk" in str(refused.value)
        await client.subscribe(good)
        await client.subscribe("ahp-chat:/whole")
        with pytest.raises(Refused, match="The chat torn cannot be read from disk"):
            await client.subscribe("ahp-chat:/torn")
        await client.subscribe(good_chat)
        await client.say(good_chat, "t2", "stream")
        # It can be removed without having been read.
        await client.request("disposeSession", channel=bad)
        assert len((await client.request("listSessions"))["items"]) == 1
    async with on_disk.life() as live:
        client = await live.client()
        assert len((await client.request("listSessions"))["items"]) == 1
        assert "torn" not in live.host.chats


async def test_a_kept_shape_that_is_not_ours_is_that_sessions_loss(on_disk: Lives) -> None:
    async with on_disk.life() as live:
        client = await live.client()
        bad, _ = await live.session(client, "scripted")
        good, good_chat = await live.session(client, "scripted")
    database = on_disk.state_dir / "state.db"
    body = json.dumps({"turns": 5}).encode()
    change(database, "UPDATE chats SET head = ? WHERE id = ?", body, bad.rsplit("/", 1)[1])
    async with on_disk.life() as live:
        client = await live.client()
        with pytest.raises(Refused, match="cannot be brought back"):
            await client.subscribe(bad)
        await client.subscribe(good)
        await client.subscribe(good_chat)
        await client.say(good_chat, "t1", "stream")


async def test_a_long_turn_is_kept_by_what_is_new_of_it(
    on_disk: Lives, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A long turn in small pieces must not be written down anew for each of them."""
    monkeypatch.setattr(chats, "JOURNAL_BYTES", 1000)
    async with on_disk.life() as live:
        client = await live.client()
        session, chat = await live.session(client, "scripted")
        store = live.host.ledger.store
        written: list[int] = []
        put_chat = store.put_chat

        def counting(record: Any) -> None:
            written.append(len(json.dumps(record.head)))
            put_chat(record)

        store.put_chat = counting  # type: ignore[method-assign]  # counted on its way
        await client.start_turn(chat, "t1", "stream 1200; park; wait")
        await parked(client, session, 2)
        length = len(text_of(client.states[chat]["activeTurn"]))
        assert length > 5000
        assert len(written) > 2, "it was written down anew, now and then"
        assert sum(written) < 6 * length
    async with on_disk.life() as live:
        client = await reopened(live, session, chat)
        (turn,) = client.states[chat]["turns"]
        assert len(text_of(turn)) == length


async def test_a_session_that_was_being_created_is_created_by_the_next_life(lives: Lives) -> None:
    async with lives.life(agents={"slow": "fixture_ahp:hangs_in_create"}) as live:
        client = await live.client()
        session, chat = await live.session(client, "slow", ready=False)
        other, _ = await live.session(client, "slow", ready=False)
        assert client.states[session]["lifecycle"] == "creating"
        await client.start_turn(chat, "t1", "hello")
    async with lives.life(agents={"slow": "fixture_scripted:scripted"}) as live:
        client = await reopened(live, session, chat)
        await client.until(lambda: client.states[session]["lifecycle"] == "ready")
        (turn,) = client.states[chat]["turns"]
        assert turn["responseParts"][-1]["error"]["errorType"] == "interrupted"
        await client.say(chat, "t2", "stream")
    async with lives.life(agents={"echo": "ahpd.agents.echo:create"}) as live:
        client = await live.client()
        state = await client.subscribe(other)
        assert state["lifecycle"] == "failed"
        assert "has no agent 'slow'" in state["creationError"]["message"]


async def test_a_message_to_a_session_that_nobody_opened_wakes_it(lives: Lives) -> None:
    async with lives.life() as live:
        client = await live.client()
        _, chat = await live.session(client, "scripted")
    async with lives.life() as live:
        client = await live.client()
        # Not subscribed: the sender hears of its own action all the same.
        echo = await client.act(chat, turn_started("t1", "stream 2"))
        assert "rejectionReason" not in echo
        await client.subscribe(chat)
        await client.ended(chat, "t1")
