"""Clients of every version on one chat at the same time, each in its own version's words."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from ahp_client import Refused, text_of, turn_started
from ahpd.contracts.ahp.lens import lens_for
from ahpd.contracts.ahp.uris import file_uri
from live_host import LiveHost, live_host
from old_reducers import VERSIONS, lens_version, release_of
from version_client import VersionClient, comparable, version_client

Json = dict[str, Any]

PLAY = {"play": "fixture_ahp:play"}
BELOW_0_9 = [version for version in VERSIONS if release_of(version) < (0, 9)]


def script(*steps: list[Any]) -> str:
    return json.dumps(steps)


@asynccontextmanager
async def one_of_each(live: LiveHost) -> AsyncIterator[dict[str, VersionClient]]:
    """A client of every version, subscribed to the root."""
    async with AsyncExitStack() as stack:
        clients = {}
        for version in VERSIONS:
            client = await stack.enter_async_context(version_client(live.url, version))
            result = await client.open(initialSubscriptions=["ahp-root://"])
            assert result["protocolVersion"] == lens_version(version)
            clients[version] = client
        yield clients


async def all_have(
    clients: dict[str, VersionClient], holds: Callable[[VersionClient], Any], what: str
) -> None:
    for version, client in clients.items():
        await client.until(lambda c=client: holds(c), what=f"{what} at {version}")


async def agree(live: LiveHost, clients: dict[str, VersionClient], *channels: str) -> None:
    """Each holds what it would be sent now, and would call none of it wrong."""
    seq = live.host.stream.seq
    await all_have(clients, lambda client: True, "anything")
    for version, client in clients.items():
        for channel in channels:
            fresh = await client.snapshot(channel)
            held = client.states[channel]
            assert comparable(client, channel, held) == comparable(client, channel, fresh), version
        assert client.wrong == [], version
    assert live.host.stream.seq == seq, "the host went on while it was compared"


async def quiet(live: LiveHost, clients: dict[str, VersionClient]) -> None:
    """Until every client has what the host said so far: an answer comes after it."""
    while True:
        seq = live.host.stream.seq
        for client in clients.values():
            await client.request("ping")
        if live.host.stream.seq == seq:
            return


def confirm(turn_id: str, call: str) -> Json:
    return {
        "type": "chat/toolCallConfirmed",
        "turnId": turn_id,
        "toolCallId": call,
        "approved": True,
        "confirmed": "user-action",
    }


async def test_six_versions_follow_one_conversation_and_each_has_its_own_part_in_it(
    state_dir: Path, tmp_path: Path
) -> None:
    """Approvals, a question, a failed turn, its resumption, a cancel, a reconnect."""
    with trio.fail_after(150):
        async with live_host(state_dir, PLAY) as live, one_of_each(live) as clients:
            old, between, new = clients["0.6.0"], clients["0.8.0"], clients["1.0.0"]
            session = "ahp-session:/shared"
            await old.request(
                "createSession",
                channel=session,
                provider="play",
                workingDirectory=file_uri(str(tmp_path)),
            )
            for client in clients.values():
                state = await client.subscribe(session)
                await client.subscribe(state["defaultChat"])
            chat = str(old.states[session]["defaultChat"])
            await all_have(clients, lambda c: c.states[session]["lifecycle"] == "ready", "ready")
            assert old.states[session]["workingDirectory"] == file_uri(str(tmp_path))
            assert new.states[session]["workingDirectories"] == [file_uri(str(tmp_path))]

            # An approval whose call is refined as it becomes ready: started by the oldest
            # client, answered by the one in the middle.
            await old.start_turn(
                chat,
                "t1",
                script(
                    ["say", "before", "I will work. "],
                    ["tool", "c1", {"intention": "maybe"}, {"toolInput": "ls", "intention": "ls"}],
                    ["wait", "c1"],
                    ["result", "c1"],
                    ["say", "after", "Done."],
                ),
            )
            await all_have(clients, lambda c: c.states[session].get("inputNeeded"), "the approval")
            await agree(live, clients, session, chat)
            assert old.states[chat]["status"] & 31 == 24
            echo = await between.act(chat, confirm("t1", "c1"))
            assert "rejectionReason" not in echo
            await all_have(clients, lambda c: c.states[chat]["turns"], "the end of t1")
            for client in clients.values():
                assert text_of(client.states[chat]["turns"][0]) == "I will work. Done."

            # A question, answered by the oldest client.
            question = {"id": "q1", "message": "Which?"}
            await new.start_turn(chat, "t2", script(["ask", question], ["wait", "q1"]))
            await all_have(clients, lambda c: c.states[session].get("inputNeeded"), "the question")
            answer = {"type": "chat/inputCompleted", "requestId": "q1", "response": "accept"}
            await old.act(chat, answer)
            await all_have(clients, lambda c: len(c.states[chat]["turns"]) == 2, "the end of t2")

            # A turn that fails, and is resumed by a client that knows how.
            await between.start_turn(chat, "t3", script(["say", "p", "half"], ["fail", True]))
            await all_have(clients, lambda c: len(c.states[chat]["turns"]) == 3, "the end of t3")
            await agree(live, clients, session, chat)
            for version, client in clients.items():
                failed = client.states[chat]["turns"][-1]
                assert failed["state"] == "error"
                kinds = [part["kind"] for part in failed["responseParts"]]
                if release_of(version) < (0, 9):
                    assert kinds == ["markdown"]
                    assert failed["error"]["message"] == "it failed"
                else:
                    assert kinds == ["markdown", "error"]
                    assert "error" not in failed
            await clients["0.9.0"].act(chat, {"type": "chat/turnResume", "turnId": "t3"})
            await all_have(
                clients,
                lambda c: (
                    len(c.states[chat]["turns"]) == 3
                    and c.states[chat]["turns"][-1]["state"] == "complete"
                ),
                "the end of t3 again",
            )
            for client in clients.values():
                assert text_of(client.states[chat]["turns"][-1]) == "halfresumed"

            # A cancel while an approval is open, by the oldest client.
            await new.start_turn(chat, "t4", script(["tool", "c2", {}, {}], ["hang"]))
            await all_have(clients, lambda c: c.states[session].get("inputNeeded"), "c2")
            cancel = {"type": "chat/turnCancelled", "turnId": "t4", "duration": 1}
            await old.act(chat, cancel)
            await all_have(clients, lambda c: len(c.states[chat]["turns"]) == 4, "the cancel")
            await all_have(
                clients, lambda c: "inputNeeded" not in c.states[session], "nothing waits"
            )

            # Everybody goes away and comes back; meanwhile the conversation goes on.
            gone: dict[str, tuple[int, dict[str, Json]]] = {}
            await quiet(live, clients)
            for version, client in clients.items():
                if version != "1.0.0":
                    gone[version] = (client.last_seq, client.states)
                    await client.socket.aclose()
            await new.say(chat, "t5", "while you were out")
            async with AsyncExitStack() as stack:
                back = {"1.0.0": new}
                for version, (seq, states) in gone.items():
                    client = await stack.enter_async_context(version_client(live.url, version))
                    client.wrong += clients[version].wrong
                    result = await client.reconnect(seq, states)
                    assert result["type"] == "replay", version
                    back[version] = client
                await quiet(live, back)
                await agree(live, back, session, chat, "ahp-root://")
                for client in back.values():
                    turns = client.states[chat]["turns"]
                    assert [turn["id"] for turn in turns] == ["t1", "t2", "t3", "t4", "t5"]
                    assert text_of(turns[-1]) == "while you were out"
                    ended = [turn["state"] for turn in turns]
                    assert ended == ["complete"] * 3 + ["cancelled", "complete"]
                    assert client.states[chat]["status"] & 31 == 1
                listed = [await client.request("listSessions") for client in back.values()]
                assert {items["items"][0]["title"] for items in listed} == {
                    listed[0]["items"][0]["title"]
                }
                assert [client.wrong for client in back.values()] == [[]] * len(VERSIONS)


async def test_a_session_that_cannot_be_created_fails_in_each_versions_word(
    state_dir: Path,
) -> None:
    with trio.fail_after(90):
        agents = {"gone": "no_such_module:create"}
        async with live_host(state_dir, agents) as live, one_of_each(live) as clients:
            session = "ahp-session:/gone"
            await clients["0.7.0"].request("createSession", channel=session, provider="gone")
            for client in clients.values():
                await client.subscribe(session)
            await all_have(
                clients, lambda c: c.states[session]["lifecycle"] != "creating", "the failure"
            )
            for version, client in clients.items():
                word = "failed" if release_of(version) >= (0, 9) else "creationFailed"
                assert client.states[session]["lifecycle"] == word
                assert (await client.snapshot(session))["lifecycle"] == word
                assert client.wrong == []


async def test_a_toggle_reaches_every_version_and_its_sender_hears_its_own_action(
    state_dir: Path,
) -> None:
    with trio.fail_after(90):
        async with live_host(state_dir, PLAY) as live, one_of_each(live) as clients:
            session = "ahp-session:/toggled"
            await clients["1.0.0"].request("createSession", channel=session, provider="play")
            for client in clients.values():
                await client.subscribe(session)
            await all_have(
                clients, lambda c: c.states[session].get("customizations"), "the plugins"
            )
            toggled = {"type": "session/customizationToggled", "id": "willing"}
            session_off = {"enablement": [{"kind": "session", "enabled": False}]}
            for version, client in clients.items():
                older = release_of(version) < (0, 8) or version == "0.8.0-before"
                off = {"enabled": False} if older else session_off
                on = {"enabled": True} if older else {"enablement": []}
                echo = await client.act(session, {**toggled, **off})
                assert "rejectionReason" not in echo, (version, echo)
                assert echo["action"]["type"] == toggled["type"]
                assert {**echo["action"], **off} == echo["action"]
                await quiet(live, clients)
                await agree(live, clients, session)
                refused = await client.act(session, {**toggled, "id": "stubborn", **off})
                assert "rejectionReason" in refused
                assert {**refused["action"], **off} == refused["action"]
                await client.act(session, {**toggled, **on})
                await quiet(live, clients)
                await agree(live, clients, session)


@pytest.mark.parametrize("version", BELOW_0_9)
async def test_who_comes_back_to_a_resumed_turn_gets_snapshots(
    state_dir: Path, version: str
) -> None:
    """What is said in several actions cannot be replayed: half of it may have been heard."""
    with trio.fail_after(60):
        async with live_host(state_dir, PLAY) as live:
            new = await live.client("new")
            session, chat = await live.session(new, "play")
            await new.say(chat, "t1", script(["say", "p", "half"], ["fail", True]))
            async with version_client(live.url, version, "old") as client:
                await client.open()
                for channel in (session, chat):
                    await client.subscribe(channel)
                seen, states = client.last_seq, client.states
            await new.act(chat, {"type": "chat/turnResume", "turnId": "t1"})
            await new.ended(chat, "t1")
            async with version_client(live.url, version, "old") as client:
                result = await client.reconnect(seen, states)
                assert result["type"] == "snapshot"
                (turn,) = client.states[chat]["turns"]
                assert (turn["state"], text_of(turn)) == ("complete", "halfresumed")
                assert client.wrong == []
                seen, states = client.last_seq, client.states
            await new.say(chat, "t2", "and on")
            async with version_client(live.url, version, "old") as client:
                assert (await client.reconnect(seen, states))["type"] == "replay"
                assert text_of(client.states[chat]["turns"][-1]) == "and on"
                fresh = await client.snapshot(chat)
                held = client.states[chat]
                assert comparable(client, chat, held) == comparable(client, chat, fresh)


@pytest.mark.parametrize("version", BELOW_0_9)
async def test_a_window_that_lacks_the_turn_before_is_given_it_when_a_turn_is_resumed(
    state_dir: Path, version: str
) -> None:
    with trio.fail_after(60):
        async with live_host(state_dir, PLAY) as live:
            new = await live.client("new")
            _session, chat = await live.session(new, "play")
            for turn_id in ("t1", "t2"):
                await new.say(chat, turn_id, "words")
            await new.say(chat, "t3", script(["say", "p", "half"], ["fail", True]))
            async with version_client(live.url, version, "old") as client:
                await client.open()
                await client.subscribe(chat, view={"turns": 1})
                assert [turn["id"] for turn in client.states[chat]["turns"]] == ["t3"]
                await new.act(chat, {"type": "chat/turnResume", "turnId": "t3"})
                await new.ended(chat, "t3")
                await client.until(
                    lambda: (
                        client.states[chat]["turns"][-1]["id"] == "t3"
                        and "activeTurn" not in client.states[chat]
                        and client.states[chat]["turns"][-1]["state"] == "complete"
                    ),
                    what="the end of t3 again",
                )
                turns = client.states[chat]["turns"]
                assert [turn["id"] for turn in turns] == ["t2", "t3"]
                assert (
                    turns
                    == lens_for(lens_version(version)).snapshot("chat", new.states[chat])["turns"][
                        -2:
                    ]
                )
                assert client.wrong == []


@pytest.mark.parametrize("offered", [["0.4.0"], ["2.0.0"], ["2.0.0", "0.4.0"], ["0.5.2"]])
async def test_a_client_of_no_version_of_ours_is_told_which_there_are(
    state_dir: Path, offered: list[str]
) -> None:
    with trio.fail_after(30):
        async with live_host(state_dir, {"echo": "ahpd.agents.echo:create"}) as live:
            client = await live.client("stranger", initialize=False)
            with pytest.raises(Refused) as refused:
                await client.initialize(tuple(offered))
            assert refused.value.code == -32005
            supported = refused.value.data["supportedVersions"]
            assert supported == ["1.0.0", "0.10.0", "0.9.0", "0.8.0", "0.7.0", "0.6.0"]
            await client.until(lambda: True)


@pytest.mark.parametrize(
    ("offered", "taken"),
    [
        (["2.0.0", "0.8.0"], "0.8.0"),
        (["0.7.0"], "0.7.0"),
        (["0.6.0", "0.7.1", "0.5.0"], "0.7.1"),
        (["1.0.0", "0.9.0"], "1.0.0"),
    ],
)
async def test_of_what_is_offered_the_newest_of_ours_is_taken(
    state_dir: Path, offered: list[str], taken: str
) -> None:
    with trio.fail_after(30):
        async with live_host(state_dir, {"echo": "ahpd.agents.echo:create"}) as live:
            client = await live.client("chooser", initialize=False)
            result = await client.initialize(tuple(offered), initialSubscriptions=["ahp-root://"])
            assert result["protocolVersion"] == taken
            assert result["snapshots"][0]["resource"] == "ahp-root://"


async def test_an_older_client_that_wants_to_fork_a_session_is_told_that_we_do_not(
    state_dir: Path,
) -> None:
    with trio.fail_after(30):
        async with (
            live_host(state_dir, {"echo": "ahpd.agents.echo:create"}) as live,
            version_client(live.url, "0.8.0") as client,
        ):
            await client.open()
            fork = {"session": "ahp-session:/x", "turnId": "t"}
            with pytest.raises(Refused) as refused:
                await client.request("createSession", channel="ahp-session:/fork", fork=fork)
            assert refused.value.code == -32602


async def test_an_unchanging_action_is_answered_in_its_senders_words(state_dir: Path) -> None:
    with trio.fail_after(60):
        async with (
            live_host(state_dir, PLAY) as live,
            version_client(live.url, "0.6.0") as client,
        ):
            await client.open()
            session, chat = await live.session(client, "play")
            refused = await client.act(chat, turn_started("t1", "x") | {"startedAt": 5})
            assert "rejectionReason" in refused
            own = {"type": "session/activeClientSet", "activeClient": _published("client-0.6.0")}
            for _ in range(2):
                echo = await client.act(session, own)
                assert "rejectionReason" not in echo
                assert echo["action"] == own
            assert client.wrong == []


def _published(client_id: str) -> Json:
    plugin = {"type": "plugin", "id": "mine", "uri": "file:///m", "name": "M", "enabled": False}
    return {"clientId": client_id, "tools": [], "customizations": [plugin]}
