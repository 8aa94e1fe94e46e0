"""Connecting over AHP: versions, reconnecting, what is served before, and faulty messages."""

from pathlib import Path
from typing import Any

import pytest
import trio
from trio_websocket import ConnectionClosed

from ahp_client import AhpClient, Refused, turn_started
from ahpd.contracts.ahp.uris import file_uri
from live_host import live_host

Json = dict[str, Any]


async def answer(client: AhpClient, message: Any) -> Json:
    """Sends a message as it is and waits for the one that answers with that id, or with none."""
    ident = message.get("id") if isinstance(message, dict) else None
    await client.send(message)
    await client.until(lambda: ident in client._answers, what=f"an answer to {message}")
    return client._answers.pop(ident)


def call(method: str, ident: Any = 7, **params: Any) -> Json:
    return {"jsonrpc": "2.0", "id": ident, "method": method, "params": params}


async def refusal(client: AhpClient, method: str, **params: Any) -> Json:
    """The error that a request is answered with."""
    reply = await answer(client, call(method, **params))
    error: Json = reply["error"]
    assert isinstance(error["message"], str) and "Traceback" not in error["message"]
    return error


async def closed(client: AhpClient) -> tuple[int, str]:
    with trio.fail_after(10):
        while client.closed is None:
            await client._changed.wait()
    return client.closed


async def test_initialize_answers_all_that_clients_read(state_dir: Path) -> None:
    with trio.fail_after(30):
        async with live_host(state_dir) as live:
            client = await live.client(initialize=False)
            reply = await client.request(
                "initialize", protocolVersions=["0.9.0", "1.0.0"], clientId="tester"
            )
            assert reply["protocolVersion"] == "1.0.0"
            assert reply["snapshots"] == []
            assert reply["defaultDirectory"] == file_uri(str(Path.home()))
            assert reply["serverInfo"]["name"] == "ahpd-supervisor"
            assert reply["serverInfo"]["version"]
            assert isinstance(reply["serverSeq"], int)


async def test_initial_subscriptions_come_as_snapshots_and_unknown_ones_are_left_out(
    state_dir: Path,
) -> None:
    with trio.fail_after(30):
        async with live_host(state_dir) as live:
            one = await live.client("one")
            session, chat = await live.session(one, "echo")
            two = await live.client("two", initialize=False)
            reply = await two.initialize(
                initialSubscriptions=["ahp-root://", session, "ahp-session:/gone", chat, session]
            )
            assert [s["resource"] for s in reply["snapshots"]] == ["ahp-root://", session, chat]
            assert {s["fromSeq"] for s in reply["snapshots"]} == {reply["serverSeq"]}
            await one.say(chat, "t1", "hello")
            await two.ended(chat, "t1")
            assert two.states[chat] == one.states[chat]


@pytest.mark.parametrize(
    ("offered", "chosen"),
    [
        (["1.0.0"], "1.0.0"),
        (["1.7.3", "1.0.0"], "1.7.3"),
        (["0.9.0", "0.8.0"], "0.9.0"),
        (["0.9.4", "0.10.0"], "0.10.0"),
        (["2.0.0", "0.9.1", "0.3.0"], "0.9.1"),
    ],
)
async def test_the_newest_version_that_both_speak_is_chosen(
    state_dir: Path, offered: list[str], chosen: str
) -> None:
    with trio.fail_after(30):
        async with live_host(state_dir) as live:
            client = await live.client(initialize=False)
            assert (await client.initialize(tuple(offered)))["protocolVersion"] == chosen


async def test_no_common_version_is_named_with_ours_and_then_closed(state_dir: Path) -> None:
    with trio.fail_after(30):
        async with live_host(state_dir) as live:
            for offered in ([], ["2.0.0", "0.3.0"]):
                client = await live.client(initialize=False)
                with pytest.raises(Refused) as refused:
                    await client.initialize(tuple(offered))
                assert refused.value.code == -32005
                assert set(refused.value.data) == {"supportedVersions"}
                assert "1.0.0" in refused.value.data["supportedVersions"]
                await closed(client)


async def test_what_is_no_version_or_no_client_id_is_bad_params_and_can_be_mended(
    state_dir: Path,
) -> None:
    with trio.fail_after(30):
        async with live_host(state_dir) as live:
            client = await live.client(initialize=False)
            for versions in ([1], ["new"], [None], [True], ["1.0"]):
                error = await refusal(client, "initialize", protocolVersions=versions, clientId="x")
                assert error["code"] == -32602
                assert "protocolVersions" in error["message"]
            for params, where in (
                ({"clientId": "x"}, "params.protocolVersions: is missing"),
                ({"protocolVersions": "1.0.0", "clientId": "x"}, "params.protocolVersions"),
                ({"protocolVersions": ["1.0.0"]}, "params.clientId: is missing"),
                ({"protocolVersions": ["1.0.0"], "clientId": 5}, "params.clientId"),
                ({"protocolVersions": ["1.0.0"], "clientId": ""}, "params.clientId"),
                ({"protocolVersions": ["1.0.0"], "clientId": "c" * 513}, "params.clientId"),
            ):
                error = await refusal(client, "initialize", **params)
                assert error["code"] == -32602
                assert error["message"].startswith(where)
            await client.initialize()
            with pytest.raises(Refused) as refused:
                await client.initialize()
            assert refused.value.code == -32600


async def test_before_initialize_only_ping_is_served_and_every_refusal_says_so(
    state_dir: Path,
) -> None:
    with trio.fail_after(30):
        async with live_host(state_dir) as live:
            inside = await live.client("inside")
            session, chat = await live.session(inside, "echo")
            client = await live.client("outside", initialize=False)
            assert (await answer(client, call("ping")))["result"] == {}
            for method, params in (
                ("subscribe", {"channel": session}),
                ("listSessions", {}),
                ("createSession", {"channel": "ahp-session:/early"}),
                ("fetchTurns", {"channel": chat}),
                ("listSessions", {"limit": "bad"}),
            ):
                error = await refusal(client, method, **params)
                assert error["code"] == -32600
                assert "initialize" in error["message"]
            # A notification is never answered, and changes nothing from out there.
            action = {"channel": chat, "clientSeq": 1, "action": turn_started("t1", "hi")}
            await client.send({"jsonrpc": "2.0", "method": "dispatchAction", "params": action})
            assert (await answer(client, call("ping", "after")))["result"] == {}
            assert "activeTurn" not in await inside.snapshot(chat)
            assert client.envelopes == []


async def test_reconnect_of_a_client_nobody_admitted_is_resource_not_found(
    state_dir: Path,
) -> None:
    with trio.fail_after(30):
        async with live_host(state_dir) as live:
            client = await live.client("stranger", initialize=False)
            # VS Code opens with it, without a channel, and initializes on this code alone.
            error = await refusal(
                client, "reconnect", clientId="stranger", lastSeenServerSeq=0, subscriptions=[]
            )
            assert error["code"] == -32008
            assert (await client.initialize())["snapshots"] == []


async def test_ids_come_back_as_they_came(state_dir: Path) -> None:
    with trio.fail_after(30):
        async with live_host(state_dir) as live:
            client = await live.client()
            for ident in (0, -3, "seven", "", 2**53, 1.5, "7"):
                reply = await answer(client, call("ping", ident))
                assert reply == {"jsonrpc": "2.0", "id": ident, "result": {}}
                assert type(reply["id"]) is type(ident)


async def test_faulty_messages_have_their_codes_and_the_connection_lives_on(
    state_dir: Path,
) -> None:
    with trio.fail_after(30):
        async with live_host(state_dir) as live:
            client = await live.client()
            for text, code in (
                ("{", -32700),
                ("", -32700),
                ('{"jsonrpc":"2.0","id":1,"method":"ping"} trailing', -32700),
                ("[" * 200 + "]" * 200, -32700),
                ('{"jsonrpc":"2.0","id":NaN,"method":"ping"}', -32700),
                ("[]", -32600),
                ('[{"jsonrpc":"2.0","id":1,"method":"ping","params":{}}]', -32600),
                ("5", -32600),
                ('"ping"', -32600),
                ("null", -32600),
                ('{"jsonrpc":"2.0"}', -32600),
                ('{"jsonrpc":"2.0","id":true,"method":"ping"}', -32600),
                ('{"jsonrpc":"2.0","id":null,"method":"ping"}', -32600),
                ('{"jsonrpc":"2.0","id":{},"method":"ping"}', -32600),
            ):
                reply = await answer(client, text)
                assert reply["id"] is None, text
                assert reply["error"]["code"] == code, text
            for message, code in (
                ({"jsonrpc": "1.0", "id": 4, "method": "ping"}, -32600),
                ({"id": 4, "method": "ping"}, -32600),
                ({"jsonrpc": "2.0", "id": 4, "method": 5}, -32600),
                ({"jsonrpc": "2.0", "id": 4, "method": "ping", "params": [1]}, -32602),
                ({"jsonrpc": "2.0", "id": 4, "method": "no/such"}, -32601),
                ({"jsonrpc": "2.0", "id": 4, "method": "resourceRead", "params": {}}, -32601),
                ({"jsonrpc": "2.0", "id": 4, "method": "__init__", "params": {}}, -32601),
            ):
                assert (await answer(client, message))["error"]["code"] == code, message
            for silent in (
                {"jsonrpc": "2.0", "method": "no/such", "params": {}},
                {"jsonrpc": "2.0", "method": "listSessions"},
                {"jsonrpc": "2.0", "method": "dispatchAction", "params": {"channel": 5}},
                {"jsonrpc": "2.0", "method": "dispatchAction", "params": [1]},
                {"jsonrpc": "2.0", "id": 99, "result": {}},
                {"jsonrpc": "2.0", "id": None, "error": {"code": 1, "message": "no"}},
            ):
                await client.send(silent)
            assert (await answer(client, call("ping", "end")))["result"] == {}
            assert client._answers == {}


async def test_bad_params_say_where(state_dir: Path) -> None:
    with trio.fail_after(30):
        async with live_host(state_dir) as live:
            client = await live.client()
            for method, params, where in (
                ("subscribe", {}, "params.channel: is missing"),
                ("subscribe", {"channel": 1}, "params.channel: expected a string"),
                (
                    "subscribe",
                    {"channel": "ahp-root://", "view": {"turns": -1}},
                    "params.view.turns",
                ),
                (
                    "subscribe",
                    {"channel": "ahp-root://", "view": {"turns": True}},
                    "params.view.turns",
                ),
                (
                    "subscribe",
                    {"channel": "ahp-root://", "delivery": {"maxLatencyMs": "0"}},
                    "params.delivery.maxLatencyMs",
                ),
                ("listSessions", {"limit": 0}, "params.limit"),
                ("listSessions", {"limit": 1.5}, "params.limit"),
                ("listSessions", {"cursor": "bm8="}, "params.cursor"),
                (
                    "createSession",
                    {"channel": "ahp-session:/a", "workingDirectories": ["/tmp"]},
                    "params.workingDirectories[0]",
                ),
                (
                    "createSession",
                    {"channel": "ahp-session:/a", "workingDirectories": ["file:///tmp", 5]},
                    "params.workingDirectories[1]",
                ),
                (
                    "createSession",
                    {"channel": "ahp-session:/a", "activeClient": {"clientId": "tester"}},
                    "params.activeClient.tools",
                ),
                (
                    "completions",
                    {"channel": "ahp-root://", "kind": "userMessage", "text": "", "offset": -1},
                    "params.offset",
                ),
                (
                    "createChat",
                    {"channel": "ahp-session:/a", "chat": "ahp-chat:/b", "initialMessage": {}},
                    "params.initialMessage.text",
                ),
            ):
                error = await refusal(client, method, **params)
                assert error["code"] == -32602, (method, params, error)
                assert error["message"].startswith(where), (where, error)


async def test_numbers_are_checked_as_json_means_them(state_dir: Path) -> None:
    with trio.fail_after(30):
        async with live_host(state_dir) as live:
            client = await live.client()
            _session, chat = await live.session(client, "echo")
            # 1.0 is a whole number, as JSON has it; null stands for absent where a member may be.
            await client.request("listSessions", limit=1.0, cursor=None)
            await client.request("subscribe", channel=chat, view={"turns": 2.0}, delivery=None)
            error = await refusal(client, "listSessions", limit=True)
            assert error["code"] == -32602


async def test_ping_is_answered_at_once_whatever_else_goes_on(state_dir: Path) -> None:
    agents = {"hung": "fixture_ahp:hangs_when_imported", "stuck": "fixture_ahp:hangs_in_create"}
    with trio.fail_after(30):
        async with live_host(state_dir, agents, catalogue_timeout_s=3, create_timeout_s=3) as live:
            client = await live.client()
            for number, agent in enumerate(("hung", "stuck", "hung")):
                made = call("createSession", f"made{number}", channel=f"ahp-session:/{number}")
                made["params"]["provider"] = agent
                await client.send(made)
            await client.send(call("resolveSessionConfig", "config", provider="hung"))
            for number in range(20):
                started_s = trio.current_time()
                assert (await answer(client, call("ping", number)))["result"] == {}
                assert trio.current_time() - started_s < 0.5
            assert "made0" not in client._answers


async def test_a_second_connection_of_a_client_takes_the_place_of_the_first(
    state_dir: Path,
) -> None:
    with trio.fail_after(30):
        async with live_host(state_dir) as live:
            first = await live.client("same")
            session, chat = await live.session(first, "echo", activeClient=_client("same"))
            second = await live.client("same", initialize=False)
            await second.initialize(initialSubscriptions=[session, chat])
            assert (await closed(first))[0] == 4001
            # Its part in the session goes on: nobody left.
            assert [c["clientId"] for c in second.states[session]["activeClients"]] == ["same"]
            turn = await second.say(chat, "t1", "still here")
            assert turn["state"] == "complete"
            channel = live.host.resolve(chat)
            assert channel is not None
            held = [s for s in channel.subscriptions.values() if s.seat.client_id == "same"]
            assert len(held) == 1


async def test_what_a_replaced_connection_still_says_is_not_heard(state_dir: Path) -> None:
    with trio.fail_after(30):
        async with live_host(state_dir) as live:
            watcher = await live.client("watcher")
            _session, chat = await live.session(watcher, "echo")
            first = await live.client("same")
            # Both messages are read in one go: the newer connection is there in between.
            channel = live.host.resolve(chat)
            assert channel is not None
            second = await live.client("same", initialize=False)
            await second.initialize()
            with trio.move_on_after(1):
                await _talk(first, chat)
            await closed(first)
            await second.request("ping")
            assert [s.seat.client_id for s in channel.subscriptions.values()].count("watcher") == 1
            assert all(s.seat.client_id != "same" for s in channel.subscriptions.values())
            assert "activeTurn" not in watcher.states[chat]


async def _talk(client: AhpClient, chat: str) -> None:
    try:
        await client.send(call("subscribe", channel=chat))
        await client.dispatch(chat, turn_started("t1", "ghost"))
    except ConnectionClosed:
        return


def _client(client_id: str) -> Json:
    return {"clientId": client_id, "tools": []}


async def test_the_negotiated_version_of_a_reconnected_client_is_the_newest_connections(
    state_dir: Path,
) -> None:
    with trio.fail_after(30):
        async with live_host(state_dir) as live:
            first = await live.client("same", initialize=False)
            await first.initialize(("0.9.0",))
            second = await live.client("same", initialize=False)
            await second.initialize(("1.0.0",))
            await closed(first)
            known = live.host.admitted("same")
            assert known is not None and known.version == "1.0.0"


async def test_too_many_initial_subscriptions_leave_the_connection_to_try_again(
    state_dir: Path,
) -> None:
    with trio.fail_after(30):
        async with live_host(state_dir, max_subscriptions_per_connection=2) as live:
            one = await live.client("one", initialize=False)
            await one.initialize()
            session, chat = await live.session(one, "echo")
            two = await live.client("two", initialize=False)
            wanted = ["ahp-root://", session, chat]
            with pytest.raises(Refused) as refused:
                await two.initialize(initialSubscriptions=wanted)
            assert refused.value.code == -32602
            await two.initialize(initialSubscriptions=wanted[1:])
            assert set(two.states) == set(wanted[1:])
