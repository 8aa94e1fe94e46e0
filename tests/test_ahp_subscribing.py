"""Subscribing over AHP: snapshot and stream, spellings, windows of turns, and coming back."""

import base64
import json
from pathlib import Path
from typing import Any

import pytest
import trio

from ahp_client import AhpClient, Refused, text_of, turn_started
from ahpd.contracts.ahp.uris import default_chat_uri
from live_host import LiveHost, live_host

Json = dict[str, Any]

PLAY = {"play": "fixture_ahp:play"}


def script(*steps: Any) -> str:
    return json.dumps(steps)


async def turns(client: AhpClient, chat: str, count: int, text: str = "so") -> list[str]:
    """That many ended turns, oldest first; answers their ids."""
    ids = [f"t{number}" for number in range(count)]
    for ident in ids:
        await client.say(chat, ident, text)
    return ids


async def come_back(
    live: LiveHost, client: AhpClient, uris: list[str], seq: int, *, streaming: bool = False
) -> Json:
    """A new connection of that client that reconnects; answers what it was told.

    With `streaming` the replay is applied before anything that follows it is.
    """
    again = await live.client(client.client_id, initialize=False)
    again.states, again.last_seq = dict(client.states), seq

    def catch_up(result: Json) -> None:
        for envelope in result["actions"]:
            again.apply(envelope)

    result: Json = await again.request(
        "reconnect",
        then=catch_up if streaming else None,
        clientId=client.client_id,
        lastSeenServerSeq=seq,
        subscriptions=uris,
    )
    return {"client": again, **result}


def held(state: Json) -> list[str]:
    return [turn["id"] for turn in state["turns"]]


# -- snapshot and stream ---------------------------------------------------------------


async def test_nothing_falls_between_snapshot_and_stream_and_nothing_comes_twice(
    state_dir: Path,
) -> None:
    words = " ".join(f"word{number}" for number in range(100))
    with trio.fail_after(40):
        options = {"echo": {"delay_ms": 5}}
        agents = {"echo": "ahpd.agents.echo:create"}
        async with live_host(state_dir, agents, options=options, gather_window_ms=7) as live:
            one = await live.client("one")
            _session, chat = await live.session(one, "echo")
            await one.start_turn(chat, "t1", words)
            late: list[AhpClient] = []
            while "activeTurn" in one.states[chat]:
                late.append(await live.client(f"late{len(late)}"))
                await late[-1].subscribe(chat)
            assert len(late) > 2
            for client in late:
                await client.ended(chat, "t1")
                assert client.states[chat] == one.states[chat]
                seqs = [e["serverSeq"] for e in client.envelopes if e["channel"] == chat]
                assert seqs == sorted(set(seqs))
                assert all(seq > client.from_seq[chat] for seq in seqs)
            assert text_of(await one.ended(chat, "t1")) == words


async def test_a_snapshot_is_never_newer_than_the_number_that_comes_with_it(
    state_dir: Path,
) -> None:
    # What is being gathered is published by taking the snapshot: it must be counted too.
    said = script(["say", "p", ""], *([["delta", "p", "x"]] * 30), ["hang"])
    with trio.fail_after(30):
        async with live_host(state_dir, PLAY, gather_window_ms=60_000) as live:
            one = await live.client("one")
            _session, chat = await live.session(one, "play")
            await one.start_turn(chat, "t1", said)
            await one.until(lambda: one.states[chat]["activeTurn"]["responseParts"])
            channel = live.host.resolve(chat)
            assert channel is not None
            owner = live.host.chats[channel.owner_id]
            for _ in range(500):
                if sum(map(len, owner.gathering._texts)) == 30:
                    break
                await trio.sleep(0.01)
            two = await live.client("two", initialize=False)
            reply = await two.initialize(initialSubscriptions=[chat])
            (snapshot,) = reply["snapshots"]
            part = snapshot["state"]["activeTurn"]["responseParts"][0]
            assert part["content"] == "x" * 30
            assert snapshot["fromSeq"] == reply["serverSeq"]


async def test_unsubscribing_ends_ones_own_subscription_alone(state_dir: Path) -> None:
    with trio.fail_after(30):
        async with live_host(state_dir) as live:
            one, two = await live.client("one"), await live.client("two")
            session, chat = await live.session(one, "echo")
            await two.subscribe(chat)
            # In any spelling of the channel.
            bare = f"ahp-chat:/{session.rpartition('/')[2]}"
            message = {"jsonrpc": "2.0", "method": "unsubscribe", "params": {"channel": bare}}
            await two.send(message)
            unknown = {"channel": "ahp-chat:/nobody"}
            await two.send({"jsonrpc": "2.0", "method": "unsubscribe", "params": unknown})
            await two.request("ping")
            seen = len(two.envelopes)
            await one.say(chat, "t1", "hello")
            await two.request("ping")
            assert [e for e in two.envelopes[seen:] if e["channel"] != "ahp-root://"] == []


async def test_subscribing_again_answers_afresh_and_stays_one_subscription(
    state_dir: Path,
) -> None:
    with trio.fail_after(30):
        async with live_host(state_dir, max_subscriptions_per_connection=3) as live:
            client = await live.client()
            _session, chat = await live.session(client, "echo")
            await client.say(chat, "t1", "one")
            for _ in range(3):  # the bound counts channels, not requests
                again = await client.subscribe(chat)
            assert held(again) == ["t1"]
            await client.say(chat, "t2", "two")
            started = [a for a in client.actions(chat) if a["type"] == "chat/turnStarted"]
            assert [a["turnId"] for a in started] == ["t1", "t2"]


async def test_a_connection_may_subscribe_to_so_many_channels(state_dir: Path) -> None:
    with trio.fail_after(30):
        async with live_host(state_dir, max_subscriptions_per_connection=3) as live:
            client = await live.client()
            session, chat = await live.session(client, "echo")
            await client.request("createSession", channel="ahp-session:/second", provider="echo")
            with pytest.raises(Refused) as refused:
                await client.subscribe("ahp-session:/second")
            assert refused.value.code == -32602
            # What is let go of, and what is gone, makes room.
            gone = {"jsonrpc": "2.0", "method": "unsubscribe", "params": {"channel": chat}}
            await client.send(gone)
            await client.subscribe("ahp-session:/second")
            await client.request("disposeSession", channel="ahp-session:/second")
            await client.subscribe(chat)
            assert set(client.states) >= {session, chat}


async def test_a_channel_that_is_not_there_is_named_by_its_code(state_dir: Path) -> None:
    with trio.fail_after(30):
        async with live_host(state_dir) as live:
            client = await live.client()
            for uri, code in (
                ("ahp-session:/none", -32001),
                ("echo:/6f2f6f9e", -32001),
                ("ahp-chat:/none", -32008),
                (default_chat_uri("ahp-session:/none"), -32008),
                ("ahp-chat://default/%%%", -32008),
                ("ahp-terminal:/x", -32008),
                ("ahp-otlp:/logs", -32008),
                ("ahp-root:///other", -32008),
                ("", -32008),
                ("no uri at all", -32008),
            ):
                with pytest.raises(Refused) as refused:
                    await client.subscribe(uri)
                assert refused.value.code == code, uri


async def test_gathering_is_off_for_all_while_one_subscriber_wants_no_latency(
    state_dir: Path,
) -> None:
    said = script(["say", "p", ""], *(["delta", "p", f"{n} "] for n in range(40)))
    with trio.fail_after(30):
        async with live_host(state_dir, PLAY, gather_window_ms=400) as live:
            one, two = await live.client("one"), await live.client("two")
            _session, chat = await live.session(one, "play")

            async def deltas(turn_id: str) -> int:
                await one.say(chat, turn_id, said)
                of_turn = [a for a in one.actions(chat) if a.get("turnId") == turn_id]
                return sum(a["type"] == "chat/delta" for a in of_turn)

            assert await deltas("gathered") == 1
            await two.subscribe(chat, delivery={"maxLatencyMs": 0})
            assert await deltas("each") == 40
            await two.send({"jsonrpc": "2.0", "method": "unsubscribe", "params": {"channel": chat}})
            await two.request("ping")
            assert await deltas("again") == 1


# -- spellings -------------------------------------------------------------------------


async def test_every_spelling_of_an_id_is_one_session_and_is_echoed_as_it_was_asked(
    state_dir: Path,
) -> None:
    uuid = "2b9f3c9e-0f0a-4b7c-8a51-0d7d6f1f2e11"
    spelt, ours = f"echo:/{uuid}", f"ahp-session:/{uuid}"
    with trio.fail_after(30):
        async with live_host(state_dir) as live:
            maker = await live.client("maker")
            await maker.request("createSession", channel=spelt, provider="echo")
            state = await maker.subscribe(spelt)
            encoded = base64.urlsafe_b64encode(spelt.encode()).decode().rstrip("=")
            assert state["defaultChat"] == f"ahp-chat://default/{encoded}"
            assert state["chats"][0]["resource"] == state["defaultChat"]
            listed = await maker.request("listSessions")
            assert [item["resource"] for item in listed["items"]] == [spelt]

            spellings = [state["defaultChat"], default_chat_uri(ours), f"ahp-chat:/{uuid}"]
            clients = []
            for number, chat in enumerate(spellings):
                client = await live.client(f"client{number}")
                await client.subscribe(ours)
                snapshot = await client.subscribe(chat)
                assert snapshot["resource"] == state["defaultChat"]
                clients.append((client, chat))
            speaker, chat = clients[1]
            echo = await speaker.start_turn(chat, "t1", "one two three")
            assert echo["channel"] == chat
            for client, chat in clients:
                await client.ended(chat, "t1")
                channels = {e["channel"] for e in client.envelopes} - {"ahp-root://"}
                assert channels == {chat, ours}
            assert {json.dumps(c.states[chat]) for c, chat in clients} == {
                json.dumps(speaker.states[clients[1][1]])
            }
            with pytest.raises(Refused) as refused:
                await maker.request("createSession", channel=ours, provider="echo")
            assert refused.value.code == -32003


async def test_a_dispatch_from_outside_is_answered_under_the_spelling_it_used(
    state_dir: Path,
) -> None:
    with trio.fail_after(30):
        async with live_host(state_dir) as live:
            one = await live.client("one")
            session, chat = await live.session(one, "echo")
            outside = await live.client("outside")
            bare = f"ahp-chat:/{session.rpartition('/')[2]}"
            echo = await outside.start_turn(bare, "t1", "hi")
            assert echo["channel"] == bare and "rejectionReason" not in echo
            await one.ended(chat, "t1")
            apart = [e for e in outside.envelopes if e["channel"] != "ahp-root://"]
            assert apart == [echo]


# -- windows ---------------------------------------------------------------------------


async def test_a_view_holds_the_newest_turns_and_a_cursor_leads_to_the_older(
    state_dir: Path,
) -> None:
    with trio.fail_after(40):
        async with live_host(state_dir, PLAY) as live:
            one = await live.client("one")
            _session, chat = await live.session(one, "play")
            ids = await turns(one, chat, 7)
            two = await live.client("two")
            state = await two.subscribe(chat, view={"turns": 3})
            assert held(state) == ids[-3:]
            seq, replayable = two.last_seq, len(one.envelopes)
            assert (
                await two.request("fetchTurns", channel=chat, cursor=state["turnsNextCursor"]) == {}
            )
            assert held(two.states[chat]) == ids
            assert "turnsNextCursor" not in two.states[chat]
            loaded = [e for e in two.envelopes if e["action"]["type"] == "chat/turnsLoaded"]
            assert [e["serverSeq"] for e in loaded] == [seq]
            await one.request("ping")
            # It is this connection's alone, and spends no number.
            assert len(one.envelopes) == replayable
            await one.say(chat, "t7", "on")
            await two.ended(chat, "t7")
            assert two.states[chat] == one.states[chat]


async def test_older_turns_come_page_by_page_with_and_without_a_cursor(state_dir: Path) -> None:
    with trio.fail_after(60):
        async with live_host(state_dir, PLAY) as live:
            one = await live.client("one")
            _session, chat = await live.session(one, "play")
            ids = await turns(one, chat, 130, "x")
            two = await live.client("two")
            first = await two.subscribe(chat, view={"turns": 5})
            cursor = first["turnsNextCursor"]
            await two.request("fetchTurns", channel=chat, cursor=cursor)
            second = two.states[chat]
            assert held(second) == ids[-65:]
            # Asking for the same page again changes nothing: nothing comes twice.
            await two.request("fetchTurns", channel=chat, cursor=cursor)
            assert two.states[chat] == second
            # Without a cursor: the next older page, if there is one.
            await two.request("fetchTurns", channel=chat)
            assert held(two.states[chat]) == ids[-125:]
            await two.request("fetchTurns", channel=chat)
            assert held(two.states[chat]) == ids
            assert two.states[chat] == one.states[chat]
            seen = len(two.envelopes)
            await two.request("fetchTurns", channel=chat)
            assert len(two.envelopes) == seen
            # Who holds everything is given nothing, and above all no cursor.
            await one.request("fetchTurns", channel=chat)
            await one.request("fetchTurns", channel=chat, cursor=cursor)
            assert all(a["type"] != "chat/turnsLoaded" for a in one.actions(chat))


async def test_a_window_of_no_turns_still_leads_to_all(state_dir: Path) -> None:
    with trio.fail_after(30):
        async with live_host(state_dir, PLAY) as live:
            one = await live.client("one")
            _session, chat = await live.session(one, "play")
            ids = await turns(one, chat, 2)
            two = await live.client("two")
            state = await two.subscribe(chat, view={"turns": 0})
            assert state["turns"] == []
            await two.request("fetchTurns", channel=chat, cursor=state["turnsNextCursor"])
            assert held(two.states[chat]) == ids
            everything = await two.subscribe(chat, view={"turns": 2})
            assert held(everything) == ids and "turnsNextCursor" not in everything


async def test_a_cursor_that_is_not_of_this_chat_is_bad_params(state_dir: Path) -> None:
    with trio.fail_after(30):
        async with live_host(state_dir, PLAY) as live:
            one = await live.client("one")
            _session, chat = await live.session(one, "play")
            await turns(one, chat, 3)
            _other, elsewhere = await live.session(one, "play")
            await one.say(elsewhere, "apart", "x")
            await one.say(elsewhere, "apart2", "x")
            foreign = (await one.subscribe(elsewhere, view={"turns": 1}))["turnsNextCursor"]
            for cursor in (foreign, "", "t1", "YmVmb3JlOg", "é", "=" * 8):
                with pytest.raises(Refused) as refused:
                    await one.request("fetchTurns", channel=chat, cursor=cursor)
                assert refused.value.code == -32602, cursor
            outside = await live.client("outside")
            with pytest.raises(Refused) as refused:
                await outside.request("fetchTurns", channel=chat)
            assert refused.value.code == -32602
            with pytest.raises(Refused) as refused:
                await outside.request("fetchTurns", channel="ahp-chat:/none")
            assert refused.value.code == -32008


async def test_an_action_that_names_a_turn_outside_a_window_brings_the_turns_first(
    state_dir: Path,
) -> None:
    with trio.fail_after(30):
        async with live_host(state_dir, PLAY) as live:
            one = await live.client("one")
            _session, chat = await live.session(one, "play")
            ids = await turns(one, chat, 6)
            two = await live.client("two")
            await two.subscribe(chat, view={"turns": 1})
            await one.act(chat, {"type": "chat/truncated", "turnId": ids[2]})
            await two.until(lambda: two.states[chat]["turns"][-1]["id"] == ids[2])
            kinds = [a["type"] for a in two.actions(chat)]
            assert kinds == ["chat/turnsLoaded", "chat/truncated"]
            assert held(two.states[chat]) == [ids[2]]
            await two.request("fetchTurns", channel=chat)
            assert two.states[chat] == one.states[chat]


async def test_a_truncation_of_everything_leaves_a_window_without_a_cursor(
    state_dir: Path,
) -> None:
    with trio.fail_after(30):
        async with live_host(state_dir, PLAY) as live:
            one = await live.client("one")
            _session, chat = await live.session(one, "play")
            await turns(one, chat, 3)
            two = await live.client("two")
            await two.subscribe(chat, view={"turns": 1})
            await one.act(chat, {"type": "chat/truncated"})
            await two.until(lambda: not two.states[chat]["turns"])
            assert "turnsNextCursor" not in two.states[chat]
            assert two.states[chat] == await one.snapshot(chat)


async def test_a_snapshot_larger_than_a_frame_is_narrowed_with_a_cursor(state_dir: Path) -> None:
    with trio.fail_after(40):
        bounds = {"max_frame_bytes": 200_000, "max_outbound_bytes": 10_000_000}
        async with live_host(state_dir, PLAY, **bounds) as live:
            one = await live.client("one")
            _session, chat = await live.session(one, "play")
            ids = await turns(one, chat, 12, "w" * 30_000)
            two = await live.client("two", initialize=False)
            result = await two.initialize(initialSubscriptions=["ahp-root://", chat])
            assert len(json.dumps(result)) < 200_000
            state = two.states[chat]
            assert 0 < len(state["turns"]) < 12
            assert held(state) == ids[-len(state["turns"]) :]
            while "turnsNextCursor" in two.states[chat]:
                cursor = two.states[chat]["turnsNextCursor"]
                await two.request("fetchTurns", channel=chat, cursor=cursor)
            assert two.states[chat] == one.states[chat]
            three = await live.client("three")
            assert 0 < len((await three.subscribe(chat))["turns"]) < 12


# -- coming back -----------------------------------------------------------------------


async def test_who_was_cut_off_comes_back_and_is_told_what_it_missed(state_dir: Path) -> None:
    with trio.fail_after(30):
        async with live_host(state_dir) as live:
            one, two = await live.client("one"), await live.client("two")
            session, chat = await live.session(one, "echo")
            await two.subscribe(session)
            await two.subscribe(chat)
            await one.say(chat, "t1", "hello")
            await two.ended(chat, "t1")
            seq = two.last_seq
            await two.socket.aclose()
            await one.say(chat, "t2", "while you were away")
            # VS Code says each of them more than once; twice is not told twice.
            uris = ["ahp-root://", session, chat, chat, "ahp-session:/gone", session]
            back = await come_back(live, two, uris, seq)
            client = back["client"]
            assert back["type"] == "replay"
            assert back["missing"] == ["ahp-session:/gone"]
            for envelope in back["actions"]:
                client.apply(envelope)
            assert {e["channel"] for e in back["actions"]} >= {session, chat}
            seqs = [e["serverSeq"] for e in back["actions"]]
            assert seqs == sorted(set(seqs)) and seqs[0] > seq
            assert client.states[chat] == one.states[chat]
            await one.say(chat, "t3", "and on")
            await client.ended(chat, "t3")
            assert client.states[chat] == one.states[chat]
            assert client.states[session] == one.states[session]


async def test_a_replay_is_said_under_the_spelling_that_is_asked_for(state_dir: Path) -> None:
    with trio.fail_after(30):
        async with live_host(state_dir) as live:
            one = await live.client("one")
            session, chat = await live.session(one, "echo")
            bare = f"ahp-chat:/{session.rpartition('/')[2]}"
            seq = one.last_seq
            await one.say(chat, "t1", "hello")
            back = await come_back(live, one, [bare], seq)
            assert {e["channel"] for e in back["actions"]} == {bare}
            own = {"clientId": "one", "clientSeq": 1}
            assert own in [e.get("origin") for e in back["actions"]]


@pytest.mark.parametrize("seq", ["too old", "from the future", "of no life"])
async def test_a_number_that_cannot_be_gone_on_from_means_snapshots(
    state_dir: Path, seq: str
) -> None:
    with trio.fail_after(30):
        async with live_host(state_dir, replay_events=5) as live:
            one = await live.client("one")
            session, chat = await live.session(one, "echo")
            old = one.last_seq
            await one.say(chat, "t1", "hello there")
            number = {"too old": old, "from the future": one.last_seq + 1000, "of no life": 3}[seq]
            back = await come_back(live, one, [session, "ahp-session:/gone", chat, chat], number)
            assert back["type"] == "snapshot"
            assert [s["resource"] for s in back["snapshots"]] == [session, chat]
            client = back["client"]
            for snapshot in back["snapshots"]:
                client.hold(snapshot)
            assert client.states[chat] == one.states[chat]
            await client.say(chat, "t2", "and on")


async def test_a_session_made_anew_under_the_name_of_one_that_is_gone_is_a_snapshot(
    state_dir: Path,
) -> None:
    with trio.fail_after(30):
        async with live_host(state_dir) as live:
            one, two = await live.client("one"), await live.client("two")
            session, chat = await live.session(one, "echo")
            await one.say(chat, "t1", "the first life")
            seq = one.last_seq
            await two.request("disposeSession", channel=session)
            await two.request("createSession", channel=session, provider="echo")
            await two.subscribe(chat)
            back = await come_back(live, one, [session, chat], seq)
            assert back["type"] == "snapshot"
            assert [s["state"].get("turns") for s in back["snapshots"]] == [None, []]


async def test_what_a_client_did_not_subscribe_to_is_not_replayed(state_dir: Path) -> None:
    with trio.fail_after(30):
        async with live_host(state_dir) as live:
            one = await live.client("one")
            session, chat = await live.session(one, "echo")
            seq = one.last_seq
            await one.say(chat, "t1", "hello")
            back = await come_back(live, one, [session], seq)
            assert {e["channel"] for e in back["actions"]} == {session}
            client = back["client"]
            await client.start_turn(chat, "t2", "not subscribed")
            await client.until(lambda: client.states[session]["status"] & 31 == 1)
            said = {a["type"] for a in client.actions(chat)}
            assert said == {"chat/turnStarted"}  # the echo of its own action alone


async def test_a_window_is_remembered_by_who_comes_back(state_dir: Path) -> None:
    with trio.fail_after(30):
        async with live_host(state_dir, PLAY) as live:
            one, two = await live.client("one"), await live.client("two")
            _session, chat = await live.session(one, "play")
            ids = await turns(one, chat, 5)
            await two.subscribe(chat, view={"turns": 1})
            seq = two.last_seq
            await two.socket.aclose()
            await one.say(chat, "t5", "more")
            back = await come_back(live, two, [chat], seq)
            assert back["type"] == "replay"
            client = back["client"]
            for envelope in back["actions"]:
                client.apply(envelope)
            assert held(client.states[chat]) == [ids[4], "t5"]
            await one.act(chat, {"type": "chat/truncated", "turnId": ids[3]})
            await client.until(lambda: client.states[chat]["turns"][-1]["id"] == ids[3])
            await client.request("fetchTurns", channel=chat)
            assert client.states[chat] == one.states[chat]


async def test_a_window_that_lacks_what_was_missed_gets_a_snapshot(state_dir: Path) -> None:
    with trio.fail_after(30):
        async with live_host(state_dir, PLAY) as live:
            one, two = await live.client("one"), await live.client("two")
            _session, chat = await live.session(one, "play")
            ids = await turns(one, chat, 4)
            await two.subscribe(chat, view={"turns": 1})
            seq = two.last_seq
            await two.socket.aclose()
            await one.act(chat, {"type": "chat/truncated", "turnId": ids[0]})
            back = await come_back(live, two, [chat], seq)
            assert back["type"] == "snapshot"
            assert back["snapshots"][0]["state"] == one.states[chat]


async def test_protocol_notifications_are_never_replayed(state_dir: Path) -> None:
    with trio.fail_after(30):
        async with live_host(state_dir) as live:
            one, two = await live.client("one"), await live.client("two")
            seq = two.last_seq
            await two.socket.aclose()
            await live.session(one, "echo")
            back = await come_back(live, two, ["ahp-root://"], seq)
            assert {e["action"]["type"] for e in back["actions"]} <= {
                "root/activeSessionsChanged",
                "root/agentsChanged",
            }
            await back["client"].request("ping")
            assert back["client"].notifications == []


async def test_a_reconnect_while_the_old_connection_still_lives_takes_its_place(
    state_dir: Path,
) -> None:
    with trio.fail_after(30):
        async with live_host(state_dir, PLAY) as live:
            one = await live.client("one")
            session, chat = await live.session(one, "play")
            await one.act(
                session,
                {
                    "type": "session/activeClientSet",
                    "activeClient": {"clientId": "one", "tools": []},
                },
            )
            await one.start_turn(chat, "t1", script(["say", "p", "x"], ["hang"]))
            back = await come_back(live, one, [session, chat], one.last_seq)
            client = back["client"]
            client.last_seq = one.last_seq
            assert [c["clientId"] for c in client.states[session]["activeClients"]] == ["one"]
            await client.act(chat, {"type": "chat/turnCancelled", "turnId": "t1", "duration": 1})
            assert all(a["type"] != "session/activeClientRemoved" for a in client.actions(session))


async def test_a_turn_in_flight_streams_on_for_who_comes_back(state_dir: Path) -> None:
    words = " ".join(str(number) for number in range(40))
    options = {"echo": {"delay_ms": 15}}
    with trio.fail_after(30):
        async with live_host(
            state_dir, {"echo": "ahpd.agents.echo:create"}, options=options
        ) as live:
            one, two = await live.client("one"), await live.client("two")
            _session, chat = await live.session(one, "echo")
            await two.subscribe(chat)
            await one.dispatch(chat, turn_started("t1", words))
            await two.until(lambda: "activeTurn" in two.states[chat])
            client = two
            for _ in range(4):
                await trio.sleep(0.05)
                await client.socket.aclose()
                # What was still read while it closed is seen too.
                back = await come_back(live, client, [chat], client.last_seq, streaming=True)
                assert back["type"] == "replay"
                client = back["client"]
            await client.ended(chat, "t1")
            await one.ended(chat, "t1")
            assert client.states[chat] == one.states[chat]
