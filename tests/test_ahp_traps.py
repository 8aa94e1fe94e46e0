"""Traps that other hosts fell into (reference: "Traps others fell into"), each a test of its name.

Not here, since what they are about is not served yet: the channels behind
`<session>/annotations` and `agenthost-terminal:/<uuid>` (only that they are no
sessions is), older versions' shapes, and numbers over a restart with a store
that outlives it (here a life begins above the one before by the clock). Held
elsewhere: everything sent against the schema (`test_ahp_schema`), and the law
that a snapshot is what its actions reduce to (`test_law`).
"""

import json
from pathlib import Path
from typing import Any

import pytest
import trio

from ahp_client import AhpClient, Refused, text_of, turn_started
from ahpd.contracts.ahp.uris import default_chat_uri
from live_host import live_host

Json = dict[str, Any]

PLAY = {"play": "fixture_ahp:play"}
USER = {"kind": "user"}
SECOND = "ahp-chat:/second"


def script(*steps: Any) -> str:
    return json.dumps(steps)


def cancelled(turn_id: str) -> Json:
    return {"type": "chat/turnCancelled", "turnId": turn_id, "duration": 1}


def confirmed(call: str, **more: Any) -> Json:
    base = {"type": "chat/toolCallConfirmed", "turnId": "t1", "toolCallId": call}
    return {**base, "approved": True, "confirmed": "user-action", **more}


def masked(state: Json) -> Json:
    """A session's state without what it is doing, which no action carries."""
    return {**state, "status": state["status"] & ~31}


async def test_route_by_what_was_created_and_not_by_the_uris_scheme(state_dir: Path) -> None:
    uuid = "9a0f1c1e-6a51-4d0a-9a35-3a1f0c7b2f10"
    with trio.fail_after(30):
        async with live_host(state_dir, PLAY) as live:
            client = await live.client()
            session = f"play:/{uuid}"
            await client.request("createSession", channel=session, provider="play")
            state = await client.subscribe(session)
            for uri in (
                f"{session}/annotations",
                f"ahp-session:/{uuid}/annotations",
                f"{session}/changeset/branch",
                f"agenthost-terminal:/{uuid[::-1]}",
                f"ahp-terminal:/{uuid}",
                f"ahp-chat:/{uuid[::-1]}",
            ):
                with pytest.raises(Refused) as refused:
                    await client.subscribe(uri)
                assert refused.value.code in (-32001, -32008)
                await client.dispatch(uri, {"type": "session/titleChanged", "title": "astray"})
            # A provider's scheme says nothing: another agent's session may be called so.
            await client.request("createSession", channel="echo:/x", provider="play")
            assert (await client.subscribe("echo:/x"))["provider"] == "play"
            assert client.states[session]["title"] == state["title"] == ""


async def test_initialize_and_list_sessions_answer_what_a_library_would_miss_in_silence(
    state_dir: Path,
) -> None:
    with trio.fail_after(30):
        async with live_host(state_dir, PLAY) as live:
            for number, subscriptions in enumerate((None, [], ["ahp-root://"], ["ahp-root:/"])):
                client = await live.client(f"c{number}", initialize=False)
                wanted = {} if subscriptions is None else {"initialSubscriptions": subscriptions}
                reply = await client.initialize(**wanted)
                assert [s["resource"] for s in reply["snapshots"]] in ([], subscriptions)
                assert reply["defaultDirectory"].startswith("file:///")
                assert (await client.request("listSessions")) == {"items": []}


async def test_the_host_stamps_the_origin_from_the_connection(state_dir: Path) -> None:
    with trio.fail_after(30):
        async with live_host(state_dir, PLAY) as live:
            one, two = await live.client("one"), await live.client("two")
            _session, chat = await live.session(one, "play")
            await two.subscribe(chat)
            await two.dispatch(chat, {**turn_started("t1", "x"), "clientId": "one"})
            await one.until(lambda: one.actions(chat))
            origins = [e["origin"] for e in one.envelopes if "origin" in e]
            assert origins == [{"clientId": "two", "clientSeq": 1}]


async def test_a_cancel_of_another_turn_or_half_an_action_bricks_nothing(state_dir: Path) -> None:
    with trio.fail_after(30):
        async with live_host(state_dir, PLAY) as live:
            client = await live.client()
            _session, chat = await live.session(client, "play")
            await client.say(chat, "t0", "before")
            await client.start_turn(chat, "t1", script(["hang"]))
            for action in (
                cancelled("t0"),
                cancelled(""),
                {"type": "chat/turnCancelled", "duration": 1},
                {"type": "chat/turnCancelled", "turnId": "t1"},
                {"type": "chat/turnCancelled", "turnId": "t1", "duration": None},
                {"type": "chat/turnStarted", "turnId": "t2"},
            ):
                assert "rejectionReason" in await client.act(chat, action), action
            assert "rejectionReason" not in await client.act(chat, cancelled("t1"))
            turn = await client.say(chat, "t2", "not bricked")
            assert turn["state"] == "complete"


async def test_one_chats_cancel_or_answer_never_touches_a_sibling(state_dir: Path) -> None:
    # The same ids in both: what tells them apart is the channel alone.
    ask = script(
        ["tool", "c1", {}, {}], ["ask", {"id": "r1", "message": "?"}], ["wait", "c1"], ["hang"]
    )
    with trio.fail_after(30):
        async with live_host(state_dir, PLAY) as live:
            client = await live.client()
            session, chat = await live.session(client, "play")
            await client.request("createChat", channel=session, chat=SECOND)
            await client.subscribe(SECOND)
            for where in (chat, SECOND):
                await client.start_turn(where, "t1", ask)
            await client.until(lambda: len(client.states[session].get("inputNeeded", [])) == 4)
            await client.act(SECOND, confirmed("c1"))
            await client.until(lambda: len(client.states[session]["inputNeeded"]) == 3)
            before = client.states[chat]
            await client.act(SECOND, cancelled("t1"))
            await client.until(lambda: len(client.states[session]["inputNeeded"]) == 2)
            assert {entry["chat"] for entry in client.states[session]["inputNeeded"]} == {chat}
            assert client.states[chat] == before == await client.snapshot(chat)


async def test_a_rejected_action_reaches_its_sender_alone(state_dir: Path) -> None:
    with trio.fail_after(30):
        async with live_host(state_dir, PLAY) as live:
            one, two = await live.client("one"), await live.client("two")
            session, chat = await live.session(one, "play")
            for uri in (session, chat):
                await two.subscribe(uri)
            await one.start_turn(chat, "t1", script(["hang"]))
            for action in (turn_started("t2", "x"), cancelled("t9"), confirmed("c9")):
                assert "rejectionReason" in await one.act(chat, action)
            await two.request("ping")
            assert all("rejectionReason" not in envelope for envelope in two.envelopes)
            assert two.states[chat] == one.states[chat]


async def test_a_repeated_uri_replays_once_and_a_missing_one_is_not_subscribed(
    state_dir: Path,
) -> None:
    later = "ahp-session:/later"
    with trio.fail_after(30):
        async with live_host(state_dir, PLAY) as live:
            one = await live.client("one")
            session, chat = await live.session(one, "play")
            seq = one.last_seq
            await one.say(chat, "t1", "hello")
            back = await live.client("one", initialize=False)
            uris = [chat, chat, later, session, chat, default_chat_uri(later), later]
            told = await back.request(
                "reconnect", clientId="one", lastSeenServerSeq=seq, subscriptions=uris
            )
            seqs = [envelope["serverSeq"] for envelope in told["actions"]]
            assert len(seqs) == len(set(seqs))
            assert told["missing"] == [later, default_chat_uri(later)]
            await back.request("createSession", channel=later, provider="play")
            await back.start_turn(default_chat_uri(later), "t1", "who hears this?")
            await back.request("ping")
            # The echo of its own action is all it hears of a channel that it does not follow.
            heard = [e for e in back.envelopes if e["channel"] in uris[2:] and "origin" not in e]
            assert [e for e in heard if e["channel"] not in (session, chat)] == []


async def test_a_summarys_field_can_be_cleared_and_its_status_goes_back(state_dir: Path) -> None:
    said = script(
        ["emit", "chat", {"type": "chat/activityChanged", "activity": "working"}],
        ["ask", {"id": "r1", "message": "?"}],
        ["wait", "r1"],
        ["emit", "chat", {"type": "chat/activityChanged", "activity": None}],
    )
    with trio.fail_after(30):
        async with live_host(state_dir, PLAY) as live:
            client = await live.client()
            session, chat = await live.session(client, "play")
            await client.start_turn(chat, "t1", said)
            await client.until(lambda: client.states[session].get("inputNeeded"))

            async def row() -> Json:
                (item,) = (await client.request("listSessions"))["items"]
                return dict(item)

            waiting = await row()
            assert waiting["activity"] == "working" and waiting["status"] & 31 == 24
            answer = {"type": "chat/inputCompleted", "requestId": "r1", "response": "decline"}
            await client.act(chat, answer)
            await client.ended(chat, "t1")
            after = await row()
            assert "activity" not in after and after["status"] & 31 == 1
            assert "inputNeeded" not in await client.snapshot(session)


async def test_a_catalogue_entry_a_summary_and_the_channels_own_state_agree(
    state_dir: Path,
) -> None:
    said = script(
        ["emit", "chat", {"type": "chat/activityChanged", "activity": "working"}],
        ["tool", "c1", {}, {}],
        ["wait", "c1"],
    )
    with trio.fail_after(30):
        async with live_host(state_dir, PLAY) as live:
            client, late = await live.client(), await live.client("late")
            session, chat = await live.session(client, "play")

            async def agree() -> None:
                await client.request("ping")
                fresh = await late.subscribe(session)
                own = await late.subscribe(chat)
                (row,) = [row for row in fresh["chats"] if row["resource"] == chat]
                for name in ("title", "status", "activity", "modifiedAt", "resource"):
                    assert row.get(name) == own.get(name), name
                assert masked(fresh) == masked(client.states[session])
                assert own == client.states[chat]
                (item,) = (await late.request("listSessions"))["items"]
                for name in ("title", "status", "activity", "provider"):
                    assert item.get(name) == fresh.get(name), name

            await agree()
            await client.start_turn(chat, "t1", said)
            await client.until(lambda: client.states[session].get("inputNeeded"))
            await agree()
            await client.act(session, {"type": "session/titleChanged", "title": "Named"})
            await agree()
            await client.act(chat, confirmed("c1"))
            await client.ended(chat, "t1")
            await agree()
            await client.say(chat, "t2", script(["raise", "no more"]))
            await agree()


async def test_create_chat_with_an_initial_message_starts_that_turn(state_dir: Path) -> None:
    with trio.fail_after(30):
        async with live_host(state_dir, PLAY) as live:
            client = await live.client()
            session, _chat = await live.session(client, "play")
            first = {"text": "begin with this", "origin": USER}
            await client.request("createChat", channel=session, chat=SECOND, initialMessage=first)
            await client.subscribe(SECOND)
            await client.until(lambda: client.states[SECOND]["turns"])
            (turn,) = client.states[SECOND]["turns"]
            assert turn["message"] == first and text_of(turn) == "begin with this"
            for wrong in ({**first, "origin": {"kind": "agent"}}, {"text": "x"}):
                with pytest.raises(Refused) as refused:
                    await client.request(
                        "createChat", channel=session, chat="ahp-chat:/3", initialMessage=wrong
                    )
                assert refused.value.code == -32602


@pytest.mark.parametrize("method", ["disposeChat", "disposeSession"])
async def test_disposing_in_mid_turn_ends_the_turn_first_on_its_channel(
    state_dir: Path, method: str
) -> None:
    with trio.fail_after(30):
        async with live_host(state_dir, PLAY) as live:
            one, two = await live.client("one"), await live.client("two")
            session, _chat = await live.session(one, "play")
            await one.request("createChat", channel=session, chat=SECOND)
            await two.subscribe(session)
            await two.subscribe(SECOND)
            await one.start_turn(SECOND, "t1", script(["tool", "c1", {}, {}], ["hang"]))
            await two.until(lambda: two.states[session].get("inputNeeded"))
            where = SECOND if method == "disposeChat" else session
            await one.request(method, channel=where)
            await two.request("ping")
            kinds = [a["type"] for a in two.actions()]
            order = ["chat/toolCallConfirmed", "chat/turnCancelled", "session/chatRemoved"]
            assert [kinds.index(kind) for kind in order] == sorted(map(kinds.index, order))
            assert two.states[SECOND]["turns"][0]["state"] == "cancelled"
            assert "activeTurn" not in two.states[SECOND]


async def test_a_clients_tool_call_fails_when_it_leaves_and_only_it_may_complete_it(
    state_dir: Path,
) -> None:
    of_one = {"contributor": {"kind": "client", "clientId": "one"}}
    said = script(["tool", "c1", of_one, {"confirmed": "not-needed"}], ["hang"])
    done = {
        "type": "chat/toolCallComplete",
        "turnId": "t1",
        "toolCallId": "c1",
        "result": {"success": True, "pastTenseMessage": "Done"},
    }

    def status(client: AhpClient, chat: str) -> Any:
        parts = client.states[chat].get("activeTurn", {}).get("responseParts", [])
        return parts[0]["toolCall"]["status"] if parts else None

    with trio.fail_after(30):
        async with live_host(state_dir, PLAY) as live:
            one, two = await live.client("one"), await live.client("two")
            session, chat = await live.session(two, "play")
            offered = {"clientId": "one", "tools": [{"name": "work"}]}
            await one.act(session, {"type": "session/activeClientSet", "activeClient": offered})
            await two.start_turn(chat, "t1", said)
            await two.until(lambda: status(two, chat) == "running")
            assert "rejectionReason" in await two.act(chat, done)
            assert status(two, chat) == "running"
            await one.socket.aclose()
            await two.until(lambda: status(two, chat) == "completed")
            call = two.states[chat]["activeTurn"]["responseParts"][0]["toolCall"]
            assert call["success"] is False


async def test_a_parked_request_is_resolved_by_an_accepted_action_only(state_dir: Path) -> None:
    with trio.fail_after(30):
        async with live_host(state_dir, PLAY) as live:
            client = await live.client()
            session, chat = await live.session(client, "play")
            await client.start_turn(chat, "t1", script(["tool", "c1", {}, {}], ["wait", "c1"]))
            await client.until(lambda: client.states[session].get("inputNeeded"))
            for wrong in (
                confirmed("c1", selectedOptionId="none"),
                confirmed("c1", editedToolInput="not editable"),
                {**confirmed("c1"), "turnId": "t0"},
                confirmed("c1", approved="yes"),
            ):
                assert "rejectionReason" in await client.act(chat, wrong)
            await client.act(chat, confirmed("c1"))
            await client.ended(chat, "t1")
            told = [
                a["_meta"]["calls"]
                for a in client.actions(session)
                if a["type"] == "session/metaChanged"
            ]
            # The agent heard of the one that was accepted, once.
            assert [call for call in told[-1] if call[0] == "confirm"] == [
                ["confirm", "c1", True, None, None]
            ]


async def test_server_seq_never_goes_back_over_two_lives(state_dir: Path) -> None:
    with trio.fail_after(30):
        async with live_host(state_dir, PLAY) as live:
            client = await live.client()
            _session, chat = await live.session(client, "play")
            await client.say(chat, "t1", "hello")
            await client.request("ping")
            last = client.last_seq
            for message in (cancelled("t9"), {"type": "chat/draftChanged"}):
                assert (await client.act(chat, message))["serverSeq"] == last
        async with live_host(state_dir, PLAY) as live:
            client = await live.client()
            assert client.last_seq > last


async def test_echoes_of_a_channel_do_not_overtake_each_other(state_dir: Path) -> None:
    with trio.fail_after(30):
        async with live_host(state_dir, PLAY) as live:
            client = await live.client()
            session, _chat = await live.session(client, "play")
            kinds = [
                {"type": "session/configChanged", "config": {"level": 2}},  # asked of the agent
                {"type": "session/titleChanged", "title": "At once"},
                {"type": "session/configChanged", "config": {"level": "no"}},  # refused at once
                {"type": "session/ready"},  # not a client's to say
                {"type": "session/isReadChanged", "isRead": False},  # changes nothing
                {"type": "session/configChanged", "config": {"mode": "why"}},  # refused in time
                {"type": "session/isArchivedChanged", "isArchived": True},
            ]
            sent = [await client.dispatch(session, action) for action in kinds]
            for seq in sent:
                await client.echo(seq)
            own = [e["origin"]["clientSeq"] for e in client.envelopes if "origin" in e]
            assert own == sent


async def test_root_configuration_that_nobody_declared_is_refused_and_life_goes_on(
    state_dir: Path,
) -> None:
    with trio.fail_after(30):
        async with live_host(state_dir, PLAY) as live:
            client = await live.client()
            for number in range(10):
                action = {"type": "root/configChanged", "config": {f"vscode.{number}": {"a": 1}}}
                assert "rejectionReason" in await client.act("ahp-root://", action)
                assert await client.request("ping") == {}
            assert "config" not in await client.snapshot("ahp-root://")


async def test_a_json_value_is_taken_as_json_means_it(state_dir: Path) -> None:
    with trio.fail_after(30):
        async with live_host(state_dir, PLAY) as live:
            client = await live.client()
            _session, chat = await live.session(client, "play")

            async def sent(text: str, seq: int) -> Json:
                params = f'{{"channel":{json.dumps(chat)},"clientSeq":{seq},"action":{text}}}'
                call = '{"jsonrpc":"2.0","method":"dispatchAction","params":'
                await client.send(f"{call}{params}}}")
                return await client.echo(int(seq))

            start = '"type":"chat/turnStarted","startedAt":"2026-10-01T00:00:00Z"'
            user = '"origin":{"kind":"user"}'
            # Half a surrogate pair is a character that nobody has; a whole one is one.
            one = f'{{{start},"turnId":"t1","message":{{"text":"\\ud83d half","x":1.0,{user}}}}}'
            assert "rejectionReason" not in await sent(one, 101)
            turn = await client.ended(chat, "t1")
            assert turn["message"]["text"] == "\ufffd half"
            two = f'{{{start},"turnId":"t2","message":{{"text":"\\ud83d\\ude00",{user}}}}}'
            await sent(two, 102)
            assert text_of(await client.ended(chat, "t2")) == "\U0001f600"
            # 1.0 is a whole number, and a boolean is none.
            draft = '{"type":"chat/draftChanged","draft":{"text":"d","origin":{"kind":"user"}}}'
            params = f'{{"channel":{json.dumps(chat)},"clientSeq":103.0,"action":{draft}}}'
            call = '{"jsonrpc":"2.0","method":"dispatchAction","params":'
            await client.send(f"{call}{params}}}")
            assert (await client.echo(103))["origin"]["clientSeq"] == 103
            await client.send(f"{call}{params.replace('103.0', 'true')}}}")
            await client.request("ping")
            assert sum("origin" in e for e in client.envelopes) == 3


async def test_null_is_absent_and_is_never_said_on(state_dir: Path) -> None:
    said = script(
        [
            "tool",
            "c1",
            {"intention": None, "contributor": None},
            {
                "confirmed": None,
                "options": [{"id": "o", "label": "O", "kind": "approve", "group": None}],
            },
        ],
        ["wait", "c1"],
        ["emit", "chat", {"type": "chat/usage", "usage": {"inputTokens": 1, "model": None}}],
        ["emit", "chat", {"type": "chat/activityChanged", "activity": None}],
    )
    with trio.fail_after(30):
        async with live_host(state_dir, PLAY) as live:
            client = await live.client()
            session, chat = await live.session(
                client,
                "play",
                activeClient={"clientId": "tester", "displayName": None, "tools": []},
                config=None,
            )
            begun = {**turn_started("t1", said), "queuedMessageId": None}
            begun["message"] = {**begun["message"], "model": None, "attachments": None}
            await client.act(chat, begun)
            await client.until(lambda: client.states[session].get("inputNeeded"))
            await client.act(chat, confirmed("c1", selectedOptionId=None, editedToolInput=None))
            await client.ended(chat, "t1")
            await client.act(chat, {"type": "chat/truncated", "turnId": None})
            assert client.states[chat]["turns"] == []
            texts = [
                json.dumps(without_text(envelope))
                for envelope in client.envelopes
                if envelope["channel"] in (session, chat)
            ]
            assert all("null" not in text for text in texts if "metaChanged" not in text)
            for uri in (session, chat):
                state = await client.snapshot(uri)
                assert "null" not in json.dumps({**state, "_meta": 0, "title": ""})


def without_text(envelope: Json) -> Json:
    """An envelope without the words of a message or title, which may say anything."""
    action = envelope["action"]
    message = action.get("message")
    shown = {**action, "message": {**message, "text": ""}} if message else action
    return {**envelope, "action": {**shown, "title": ""}}
