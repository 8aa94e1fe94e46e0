"""A session's life over AHP: created or not, listed, summed up, configured, and disposed of."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
import trio

from ahp_client import AhpClient, Refused, turn_started
from ahpd.contracts.ahp.uris import MAX_ID_CHARS, default_chat_uri, file_uri
from live_host import LiveHost, live_host

Json = dict[str, Any]

PLAY = {"play": "fixture_ahp:play"}
USER = {"kind": "user"}


def script(*steps: Any) -> str:
    return json.dumps(steps)


async def code_of(client: AhpClient, method: str, **params: Any) -> int:
    with pytest.raises(Refused) as refused:
        await client.request(method, **params)
    return int(refused.value.code)


def told(client: AhpClient, method: str, session: str | None = None) -> list[Json]:
    """The notifications of that name, about one session or all."""
    return [
        message["params"]
        for message in client.notifications
        if message["method"] == method and session in (None, message["params"].get("session"))
    ]


async def all_gone(pids: list[int]) -> None:
    """Waits until none of these processes is there."""
    for _ in range(500):
        left = [pid for pid in pids if os.path.exists(f"/proc/{pid}")]  # noqa: ASYNC240  # no disk
        if not left:
            return
        await trio.sleep(0.02)
    raise AssertionError(f"still running: {left}")


def changes(client: AhpClient, session: str) -> list[Json]:
    """What the list was told of a session's row, in order."""
    return [params["changes"] for params in told(client, "root/sessionSummaryChanged", session)]


async def failure(live: LiveHost, client: AhpClient, agent: str, **params: Any) -> str:
    """Creates a session that cannot be, and answers the reason that a person is told."""
    uri, chat = await live.session(client, agent, ready=False, **params)
    await client.until(lambda: client.states[uri]["lifecycle"] != "creating", what="an end")
    state = client.states[uri]
    assert state["lifecycle"] == "failed", state
    assert state == await client.snapshot(uri)
    for message in (
        turn_started("t1", "anybody?"),
        {
            "type": "chat/pendingMessageSet",
            "kind": "queued",
            "id": "q1",
            "message": {"text": "later", "origin": USER},
        },
    ):
        assert "rejectionReason" in await client.act(chat, message)
    error = state["creationError"]
    assert error["errorType"] == "creationFailed"
    assert "Traceback" not in error["message"]
    return str(error["message"])


# -- created, or not -------------------------------------------------------------------


async def test_a_session_is_created_announced_and_ready(state_dir: Path) -> None:
    with trio.fail_after(30):
        async with live_host(state_dir) as live:
            client, other = await live.client(), await live.client("other")
            uri = "ahp-session:/made"
            made = await client.request(
                "createSession", channel=uri, provider="echo", progressToken="p1"
            )
            assert made is None
            state = await client.subscribe(uri)
            assert state["provider"] == "echo"
            assert state["lifecycle"] in ("creating", "ready")
            assert state["defaultChat"] == default_chat_uri(uri)
            assert state["config"]["values"] == {"voice": "plain"}
            await client.until(lambda: client.states[uri]["lifecycle"] == "ready")
            await client.until(lambda: told(client, "root/progress"), what="progress")
            progress = told(client, "root/progress")[-1]
            assert progress["progressToken"] == "p1"
            assert progress["progress"] == progress["total"]
            await other.until(lambda: told(other, "root/sessionAdded"))
            (added,) = told(other, "root/sessionAdded")
            assert added["channel"] == "ahp-root://"
            assert added["summary"]["resource"] == uri
            assert {"provider", "title", "status", "createdAt", "modifiedAt"} <= set(
                added["summary"]
            )
            await other.until(lambda: other.states["ahp-root://"]["activeSessions"] == 1)


async def test_what_cannot_be_created_is_refused_by_its_code(state_dir: Path) -> None:
    with trio.fail_after(30):
        async with live_host(state_dir, {**PLAY, "bare": "fixture_ahp:bare"}) as live:
            client = await live.client()
            session, _chat = await live.session(client, "play")
            create = {"channel": "ahp-session:/new", "provider": "play"}
            for code, params in (
                (-32003, {**create, "channel": session}),
                (-32003, {**create, "channel": session.replace("ahp-session", "play")}),
                (-32002, {**create, "provider": "nobody"}),
                (-32602, {**create, "channel": "ahp-chat:/new"}),
                (-32602, {**create, "channel": "ahp-root://"}),
                (-32602, {**create, "channel": "ahp-session:/"}),
                (-32602, {**create, "channel": "ahp-session:/" + "x" * (MAX_ID_CHARS + 1)}),
                (-32602, {**create, "config": {"level": "high"}}),
                (-32602, {**create, "config": {"level": True}}),
                (-32602, {**create, "config": {"colour": "green"}}),
                (
                    -32602,
                    {**create, "activeClient": {"clientId": "somebody else", "tools": []}},
                ),
            ):
                assert await code_of(client, "createSession", **params) == code, params
            assert len((await client.request("listSessions"))["items"]) == 1
            for method, params, code in (
                ("disposeSession", {"channel": "ahp-session:/none"}, -32001),
                ("createChat", {"channel": "ahp-session:/none", "chat": "ahp-chat:/c"}, -32001),
                ("createChat", {"channel": session, "chat": "ahp-session:/c"}, -32602),
                ("createChat", {"channel": session, "chat": _chat}, -32010),
                ("disposeChat", {"channel": "ahp-chat:/none"}, -32008),
                ("completions", {"channel": "ahp-session:/none", **TYPED}, -32001),
                ("resolveSessionConfig", {"provider": "nobody"}, -32002),
                ("sessionConfigCompletions", {"provider": "nobody", "property": "x"}, -32002),
            ):
                assert await code_of(client, method, **params) == code, (method, params)
            bare, _ = await live.session(client, "bare")
            assert await code_of(client, "createChat", channel=bare, chat="ahp-chat:/c") == -32602


TYPED = {"kind": "userMessage", "text": "look", "offset": 4}


async def test_without_a_provider_the_first_agent_is_taken(state_dir: Path) -> None:
    with trio.fail_after(30):
        async with live_host(state_dir) as live:
            client = await live.client()
            await client.request("createSession", channel="ahp-session:/any")
            assert (await client.subscribe("ahp-session:/any"))["provider"] == "echo"


async def test_a_failed_creation_says_what_a_person_can_do_about_it(
    state_dir: Path, tmp_path: Path
) -> None:
    agents = {
        "absent": "no_such_module:create",
        "misnamed": "fixture_loading:creat",
        "options": "fixture_loading:takes_colour",
        "keyless": "fixture_loading:raises",
        "licence": "fixture_loading:raises_in_create",
        "leaves": "fixture_loading:exits_in_create",
        "hangs": "fixture_ahp:hangs_in_create",
        "bare": "fixture_ahp:bare",
    }
    options = {"options": {"color": "red"}}
    with trio.fail_after(40):
        async with live_host(state_dir, agents, options=options, create_timeout_s=1.5) as live:
            client = await live.client()
            for agent, words in (
                ("absent", ["no_such_module"]),
                ("misnamed", ["creat"]),
                ("options", ["color"]),
                ("keyless", ["no key in the environment"]),
                ("licence", ["the licence has run out"]),
                ("leaves", ["3"]),
                ("hangs", ["1.5 s"]),
            ):
                reason = await failure(live, client, agent, progressToken=agent)
                for word in words:
                    assert word in reason, (agent, reason)
                await client.until(
                    lambda name=agent: any(
                        p["progressToken"] == name and p["progress"] == p["total"]
                        for p in told(client, "root/progress")
                    ),
                    what="the end of its progress",
                )
            gone = file_uri(str(tmp_path / "gone"))
            reason = await failure(live, client, "bare", workingDirectories=[gone])
            assert str(tmp_path / "gone") in reason
            # A failed session can be looked at and disposed of like any other.
            for item in (await client.request("listSessions"))["items"]:
                await client.request("disposeSession", channel=item["resource"])
            assert (await client.request("listSessions"))["items"] == []


async def test_an_agent_that_cannot_be_imported_is_listed_without_models_and_with_the_reason(
    state_dir: Path,
) -> None:
    agents = {"absent": "no_such_module:create", **PLAY}
    with trio.fail_after(30):
        async with live_host(state_dir, agents) as live:
            client = await live.client()
            rows = {}

            def described() -> bool:
                rows.update((a["provider"], a) for a in client.states["ahp-root://"]["agents"])
                return bool(rows["play"]["models"]) and bool(rows["absent"]["description"])

            assert len(client.states["ahp-root://"]["agents"]) == 2
            await client.until(described, what="both agents described")
            assert rows["absent"]["models"] == []
            assert "no_such_module" in rows["absent"]["description"]
            assert rows["play"]["displayName"] == "Scripted"
            # By its configured name whatever it calls itself, and without what nobody could read.
            assert rows["play"]["models"] == [{"provider": "play", "id": "m", "name": "M"}]
            assert "customizations" not in rows["play"]
            assert rows["play"]["capabilities"] == {"multipleChats": {}}
            assert client.states["ahp-root://"] == await client.snapshot("ahp-root://")


async def test_create_subscribe_and_speak_in_one_breath(state_dir: Path) -> None:
    """Again and again: what is said of a session that is being made keeps its order."""
    with trio.fail_after(50):
        async with live_host(state_dir, {"echo": "ahpd.agents.echo:create"}) as live:
            client = await live.client()
            for number in range(12):
                uri = f"ahp-session:/breath{number}"
                chat = default_chat_uri(uri)
                message = turn_started("t1", "out of breath")
                cancel = {"type": "chat/turnCancelled", "turnId": "t1", "duration": 0}
                seqs = []
                for ident, method, params in (
                    ("made", "createSession", {"channel": uri, "provider": "echo"}),
                    ("session", "subscribe", {"channel": uri}),
                    ("chat", "subscribe", {"channel": chat}),
                    ("listed", "completions", {"channel": uri, **TYPED}),
                ):
                    call = {"jsonrpc": "2.0", "id": f"{ident}{number}", "method": method}
                    await client.send({**call, "params": params})
                for action in (message, cancel, turn_started("t2", "again")):
                    seqs.append(await client.dispatch(chat, action))
                for ident in ("made", "session", "chat", "listed"):
                    await client.until(lambda i=f"{ident}{number}": i in client._answers)
                    assert "result" in client._answers[f"{ident}{number}"], ident
                snapshot = client._answers[f"chat{number}"]["result"]["snapshot"]
                assert snapshot["state"]["turns"] == []
                assert "activeTurn" not in snapshot["state"]
                echoes = [await client.echo(seq) for seq in seqs]
                assert all("rejectionReason" not in echo for echo in echoes), echoes
                order = [echo["serverSeq"] for echo in echoes]
                assert order == sorted(set(order))
                await client.request("disposeSession", channel=uri)


async def test_two_sessions_of_one_id_in_one_breath_are_one(state_dir: Path) -> None:
    with trio.fail_after(30):
        async with live_host(state_dir, PLAY) as live:
            client, other = await live.client(), await live.client("other")
            made = {"jsonrpc": "2.0", "method": "createSession"}
            params = {"channel": "ahp-session:/twin", "provider": "play"}
            await client.send({**made, "id": "a", "params": params})
            await client.send({**made, "id": "b", "params": params})
            await other.send({**made, "id": "c", "params": {**params, "channel": "x:/twin"}})
            await client.until(lambda: {"a", "b"} <= set(client._answers))
            await other.until(lambda: "c" in other._answers)
            answers = [client._answers["a"], client._answers["b"], other._answers["c"]]
            codes = [a["error"]["code"] for a in answers if "error" in a]
            assert codes == [-32003, -32003]


# -- the list --------------------------------------------------------------------------


async def test_sessions_are_listed_newest_change_first_and_in_pages(state_dir: Path) -> None:
    with trio.fail_after(40):
        async with live_host(state_dir) as live:
            client = await live.client()
            made = [await live.session(client, "echo") for _ in range(5)]

            async def listed(**params: Any) -> tuple[list[str], str | None]:
                result = await client.request("listSessions", **params)
                assert set(result) <= {"items", "nextCursor"}
                return [item["resource"] for item in result["items"]], result.get("nextCursor")

            order = [uri for uri, _ in reversed(made)]
            assert (await listed())[1] is None
            # What changed last comes first, by the host's clock and not the client's.
            await client.say(made[1][1], "t1", "up with me")
            await client.act(made[3][0], {"type": "session/titleChanged", "title": "and me"})
            moved = [made[3][0], made[1][0]]
            order = [*moved, *(uri for uri in order if uri not in moved)]
            assert (await listed())[0] == order
            first, cursor = await listed(limit=2)
            second, more = await listed(limit=2, cursor=cursor)
            third, end = await listed(limit=2, cursor=more)
            assert [*first, *second, *third] == order
            assert end is None
            assert (await listed(cursor=cursor))[0] == order[2:]
            for wrong in ("", "x", "W10=", "WzEsMl0=", "é", cursor[:-4], cursor + "===="):
                assert await code_of(client, "listSessions", cursor=wrong) == -32602, wrong


async def test_a_row_of_the_list_is_what_its_changes_add_up_to(state_dir: Path) -> None:
    with trio.fail_after(30):
        async with live_host(state_dir, PLAY) as live:
            client = await live.client()
            session, chat = await live.session(client, "play")
            (added,) = told(client, "root/sessionAdded")
            row = dict(added["summary"])
            said = script(
                ["emit", "chat", {"type": "chat/activityChanged", "activity": "reading"}],
                ["tool", "c1", {}, {}],
                ["wait", "c1"],
                ["emit", "chat", {"type": "chat/activityChanged"}],
            )
            await client.act(session, {"type": "session/isReadChanged", "isRead": True})
            await client.start_turn(chat, "t1", said)
            await client.until(lambda: client.states[session].get("inputNeeded"))
            await client.act(session, {"type": "session/isReadChanged", "isRead": True})
            await client.act(
                chat,
                {
                    "type": "chat/toolCallConfirmed",
                    "turnId": "t1",
                    "toolCallId": "c1",
                    "approved": True,
                    "confirmed": "user-action",
                },
            )
            await client.ended(chat, "t1")
            await client.act(session, {"type": "session/isArchivedChanged", "isArchived": True})
            listed = (await client.request("listSessions"))["items"][0]
            for change in changes(client, session):
                assert change and not {"resource", "provider", "createdAt"} & set(change)
                assert change != {key: row.get(key) for key in change}
                row |= change
            # A field that was there can go: the change says so.
            assert {c["activity"] for c in changes(client, session) if "activity" in c} == {
                "reading",
                "",
            }
            assert {key: value for key, value in row.items() if value != ""} == listed
            statuses = [c["status"] for c in changes(client, session) if "status" in c]
            assert 24 in [status & 31 for status in statuses]
            assert listed["status"] & 31 == 1
            assert listed["status"] & 32 and listed["status"] & 64
            assert "activity" not in client.states[session]


async def test_the_read_flag_goes_when_a_turn_starts_and_when_somebody_is_asked(
    state_dir: Path,
) -> None:
    with trio.fail_after(30):
        async with live_host(state_dir, PLAY) as live:
            client = await live.client()
            session, chat = await live.session(client, "play")
            read = {"type": "session/isReadChanged", "isRead": True}

            def is_read() -> bool:
                return bool(client.states[session]["status"] & 32)

            await client.act(session, read)
            assert is_read()
            first = ["ask", {"id": "r1", "message": "Well?"}]
            said = script(
                ["say", "p", "so"], first, ["wait", "r1"], ["tool", "c1", {}, {}], ["hang"]
            )
            await client.start_turn(chat, "t1", said)
            await client.until(lambda: not is_read(), what="unread by a turn")
            await client.until(lambda: client.states[session].get("inputNeeded"))
            await client.act(session, read)
            assert is_read()
            answer = {"type": "chat/inputCompleted", "requestId": "r1", "response": "accept"}
            await client.act(chat, answer)
            await client.until(lambda: not is_read(), what="unread by a request")
            await client.act(session, read)
            await client.act(chat, {"type": "chat/turnCancelled", "turnId": "t1", "duration": 0})
            await client.until(lambda: "inputNeeded" not in client.states[session])
            # Read stays when something ends: it is what is new that nobody read.
            assert is_read()
            archived = {"type": "session/isArchivedChanged", "isArchived": True}
            await client.act(session, archived)
            # No action carries what a session is doing; read and archived are the person's.
            snapshot = await client.snapshot(session)
            assert client.states[session]["status"] & ~31 == snapshot["status"] & ~31 == 32 | 64
            assert snapshot["status"] & 31 == 1
            assert {**client.states[session], "status": 0} == {**snapshot, "status": 0}


async def test_a_sessions_status_follows_from_all_its_chats(state_dir: Path) -> None:
    with trio.fail_after(30):
        async with live_host(state_dir, PLAY) as live:
            client = await live.client()
            session, chat = await live.session(client, "play")
            await client.request("createChat", channel=session, chat="ahp-chat:/second")
            await client.subscribe("ahp-chat:/second")

            async def status() -> int:
                item = (await client.request("listSessions"))["items"][0]
                snapshot = await client.snapshot(session)
                assert snapshot["status"] == item["status"]
                return int(item["status"]) & 31

            ask = script(["ask", {"id": "r1", "message": "Well?"}], ["hang"])
            await client.start_turn(chat, "a1", script(["hang"]))
            assert await status() == 8
            await client.start_turn("ahp-chat:/second", "b1", ask)
            await client.until(lambda: client.states[session].get("inputNeeded"))
            assert await status() == 24
            await client.act(chat, {"type": "chat/turnCancelled", "turnId": "a1", "duration": 0})
            assert await status() == 24
            answer = {"type": "chat/inputCompleted", "requestId": "r1", "response": "decline"}
            await client.act("ahp-chat:/second", answer)
            await client.until(lambda: "inputNeeded" not in client.states[session])
            assert await status() == 8
            cancel = {"type": "chat/turnCancelled", "turnId": "b1", "duration": 0}
            await client.act("ahp-chat:/second", cancel)
            assert await status() == 1
            await client.say(chat, "a2", script(["raise", "out of paper"]))
            assert await status() == 2
            await client.say(chat, "a3", "better")
            assert await status() == 1


async def test_a_persons_title_wins_over_the_agents(state_dir: Path) -> None:
    named = script(["emit", "session", {"type": "session/titleChanged", "title": "By the agent"}])
    with trio.fail_after(30):
        async with live_host(state_dir, PLAY) as live:
            client = await live.client()
            session, chat = await live.session(client, "play")
            await client.say(chat, "t1", named)
            assert client.states[session]["title"] == "By the agent"
            await client.act(session, {"type": "session/titleChanged", "title": "By a person"})
            await client.say(chat, "t2", named)
            assert client.states[session]["title"] == "By a person"
            assert (await client.request("listSessions"))["items"][0]["title"] == "By a person"
            titles = [c["title"] for c in changes(client, session) if "title" in c]
            assert titles[-2:] == ["By the agent", "By a person"]


# -- the end ---------------------------------------------------------------------------


async def test_disposing_in_mid_turn_settles_and_ends_the_turn_first(state_dir: Path) -> None:
    said = script(
        ["tool", "c1", {}, {}], ["ask", {"id": "r1", "message": "Well?"}], ["wait", "never"]
    )
    with trio.fail_after(30):
        async with live_host(state_dir, PLAY) as live:
            client, watcher = await live.client(), await live.client("watcher")
            session, chat = await live.session(client, "play")
            await watcher.subscribe(session)
            await watcher.subscribe(chat)
            await client.start_turn(chat, "t1", said)
            await watcher.until(lambda: len(watcher.states[session].get("inputNeeded", [])) == 2)
            pids = live.pids(session)
            assert pids
            assert await client.request("disposeSession", channel=session) is None
            await watcher.until(lambda: told(watcher, "root/sessionRemoved"))
            assert told(watcher, "root/sessionRemoved") == [
                {"channel": "ahp-root://", "session": session}
            ]
            kinds = [a["type"] for a in watcher.actions(chat)]
            ending = kinds.index("chat/turnCancelled")
            assert {kinds.index("chat/toolCallConfirmed"), kinds.index("chat/inputCompleted")} == {
                ending - 2,
                ending - 1,
            }
            (turn,) = watcher.states[chat]["turns"]
            assert turn["state"] == "cancelled"
            assert "inputNeeded" not in watcher.states[session]
            await watcher.until(lambda: watcher.states["ahp-root://"]["activeSessions"] == 0)
            assert await code_of(client, "subscribe", channel=session) == -32001
            assert await code_of(client, "subscribe", channel=chat) == -32008
            # Nothing of it is said to anybody any more, and its name is free.
            seen = len(watcher.envelopes)
            await client.dispatch(chat, turn_started("t2", "anybody?"))
            await client.request("createSession", channel=session, provider="play")
            await watcher.request("ping")
            later = {e["channel"] for e in watcher.envelopes[seen:]}
            assert later <= {"ahp-root://"}
            await all_gone(pids)


async def test_a_session_is_disposed_of_while_it_is_still_being_created(state_dir: Path) -> None:
    with trio.fail_after(30):
        async with live_host(state_dir, {"hangs": "fixture_ahp:hangs_in_create"}) as live:
            client = await live.client()
            session, _chat = await live.session(client, "hangs", ready=False)
            pids = live.pids(session)
            await client.request("disposeSession", channel=session)
            assert (await client.request("listSessions"))["items"] == []
            await all_gone(pids)


# -- configuration and completions -----------------------------------------------------


async def test_settings_start_from_the_schema_the_defaults_and_the_wishes(state_dir: Path) -> None:
    with trio.fail_after(30):
        async with live_host(state_dir, PLAY) as live:
            client = await live.client()
            resolved = await client.request("resolveSessionConfig", provider="play")
            assert resolved["values"] == {"mode": "plain", "level": 1}
            assert set(resolved["schema"]["properties"]) == {"mode", "level", "colour", "fixed"}
            assert resolved["schema"]["type"] == "object"
            wished = {"mode": "fancy", "fixed": "so", "vscode.unknown": {"a": 1}}
            again = await client.request("resolveSessionConfig", provider="play", config=wished)
            assert again["values"] == {"mode": "fancy", "level": 1, "fixed": "so"}
            session, chat = await live.session(client, "play", config=wished)
            assert client.states[session]["config"] == again
            turn = await client.say(chat, "t1", script(["seed"]))
            told_agent = json.loads(turn["responseParts"][0]["content"])
            assert told_agent["settings"] == again["values"]
            bad = {"provider": "play", "config": {"level": "high"}}
            assert await code_of(client, "resolveSessionConfig", **bad) == -32602


async def test_completions_are_the_agents_and_faulty_ones_are_left_out(
    state_dir: Path, tmp_path: Path
) -> None:
    with trio.fail_after(30):
        async with live_host(state_dir, {**PLAY, "bare": "fixture_ahp:bare"}) as live:
            client = await live.client()
            session, chat = await live.session(client, "play")
            for channel in (session, chat):
                result = await client.request("completions", channel=channel, **TYPED)
                assert [item["insertText"] for item in result["items"]] == ["userMessage look 4"]
            bare, _ = await live.session(client, "bare")
            assert await client.request("completions", channel=bare, **TYPED) == {"items": []}
            asked = {
                "property": "colour",
                "query": "r",
                "workingDirectory": file_uri(str(tmp_path)),
            }
            result = await client.request("sessionConfigCompletions", provider="play", **asked)
            assert result == {"items": [{"value": "colour:r", "label": str(tmp_path)}]}
            none = await client.request("sessionConfigCompletions", provider="bare", **asked)
            assert none == {"items": []}
