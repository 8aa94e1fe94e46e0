"""Everything the host sends a client of 0.9 fits the protocol's schema: one rich conversation.

What the data itself says of its gaps is left out by name: customizations since
0.9 carry `enablement` where the schema asks for `enabled`, and what 0.9 added
(`chat/turnResume`) is not there yet.
"""

import json
import os
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import trio

from ahp_client import AhpClient, Refused, turn_started
from ahpd.contracts.ahp.uris import file_uri, parse_channel
from live_host import live_host

Json = dict[str, Any]

DATA = Path(os.environ.get("AHP_DATA") or Path(__file__).parents[1] / ".." / "shared" / "ahp")

if not (DATA / "schema").is_dir():
    pytest.skip(f"no AHP data at {DATA}: name its folder in AHP_DATA", allow_module_level=True)

STATES = {"root": "RootState", "session": "SessionState", "chat": "ChatState"}

RESULTS = {
    "initialize": "InitializeResult",
    "subscribe": "SubscribeResult",
    "listSessions": "ListSessionsResult",
    "resolveSessionConfig": "ResolveSessionConfigResult",
    "sessionConfigCompletions": "SessionConfigCompletionsResult",
    "completions": "CompletionsResult",
    "fetchTurns": "FetchTurnsResult",
}

NOTIFICATIONS = {
    "root/sessionAdded": "SessionAddedParams",
    "root/sessionRemoved": "SessionRemovedParams",
    "root/sessionSummaryChanged": "SessionSummaryChangedParams",
    "root/progress": "ProgressParams",
}

#: Actions that the schema does not know although 0.9 has them.
NOT_IN_THE_SCHEMA = {"chat/turnResume"}

#: Answered with null, as the protocol has it.
NULL_RESULTS = {"createSession", "disposeSession", "createChat", "disposeChat"}


@cache
def definitions(name: str) -> Json:
    loaded: Json = json.loads((DATA / "schema" / f"{name}.schema.json").read_text())
    return loaded


@cache
def validator(file: str, definition: str) -> jsonschema.Draft202012Validator:
    whole = definitions(file)
    assert definition in whole["$defs"], definition
    return jsonschema.Draft202012Validator(
        {"$ref": f"#/$defs/{definition}", "$defs": whole["$defs"]}
    )


@cache
def shapes_of(kind: str) -> tuple[str, ...]:
    """The definitions of an action: one, or one an outcome."""
    return tuple(
        name
        for name, shape in definitions("actions")["$defs"].items()
        if kind in _types(shape.get("properties", {}).get("type", {}))
    )


def _types(told: Json) -> list[Any]:
    return [told["const"]] if "const" in told else list(told.get("enum", []))


class Witness:
    """Holds each message that a client receives against the schema."""

    def __init__(self, client: AhpClient) -> None:
        self.methods: dict[Any, str] = {}
        self.seen: set[str] = set()
        self.faults: list[Any] = []
        self._send, self._take = client.send, client.take
        client.send, client.take = self.send, self.take  # type: ignore[method-assign]

    async def send(self, message: Any) -> None:
        if isinstance(message, dict) and "id" in message:
            self.methods[message["id"]] = message["method"]
        await self._send(message)

    def take(self, message: Json) -> None:
        try:
            self.look_at(message)
        except Exception as fault:
            # Raised here it would end the reading; the test raises it.
            self.faults.append(fault)
        self._take(message)

    def look_at(self, message: Json) -> None:
        assert message["jsonrpc"] == "2.0"
        whole = {key: value for key, value in message.items() if (key, value) != ("result", None)}
        assert "null" not in json.dumps(whole), message
        if "method" not in message:
            self.answer(self.methods[message["id"]], message)
        elif message["method"] == "action":
            self.envelope(message["params"])
        else:
            self.valid("notifications", NOTIFICATIONS[message["method"]], message["params"])

    def answer(self, method: str, message: Json) -> None:
        if "error" in message:
            error = message["error"]
            assert isinstance(error["code"], int) and isinstance(error["message"], str)
            return
        result = message["result"]
        if method in NULL_RESULTS:
            assert result is None
        elif method == "reconnect":
            kind = "Replay" if result["type"] == "replay" else "Snapshot"
            told = result.get("actions", [])
            known = [one for one in told if one["action"]["type"] not in NOT_IN_THE_SCHEMA]
            shown = {**result, "actions": known} if told else result
            self.valid("commands", f"Reconnect{kind}Result", shown)
            for envelope in told:
                self.envelope(envelope)
        elif method == "ping":
            assert result == {}
        else:
            self.valid("commands", RESULTS[method], result)
        one = [result["snapshot"]] if method == "subscribe" else []
        for snapshot in [*one, *((result or {}).get("snapshots", []))]:
            name = parse_channel(snapshot["resource"])
            assert name is not None
            self.valid("state", "Snapshot", snapshot)
            self.valid("state", STATES[name.family], snapshot["state"])

    def envelope(self, params: Json) -> None:
        action = params["action"]
        self.seen.add(action["type"])
        if action["type"] in NOT_IN_THE_SCHEMA:
            return
        shapes = shapes_of(action["type"])
        assert shapes, action
        self.valid("actions", "ActionEnvelope", params)
        faults = [list(validator("actions", name).iter_errors(action)) for name in shapes]
        assert [] in faults, (action, faults)

    def valid(self, file: str, definition: str, value: Any) -> None:
        self.seen.add(definition)
        faults = [error.message for error in validator(file, definition).iter_errors(value)]
        assert not faults, (definition, value, faults)


def script(*steps: Any) -> str:
    return json.dumps(steps)


OPTIONS = [{"id": "a", "label": "A"}, {"id": "b", "label": "B", "description": "or this"}]

QUESTIONS = [
    {"id": "text", "kind": "text", "message": "Text", "required": True, "format": "email"},
    {"id": "number", "kind": "number", "message": "Number", "min": 0, "max": 9},
    {"id": "boolean", "kind": "boolean", "message": "Yes?", "defaultValue": True},
    {"id": "one", "kind": "single-select", "message": "One", "options": OPTIONS},
    {"id": "many", "kind": "multi-select", "message": "Many", "options": OPTIONS, "min": 1},
]

ANSWERS = {
    "text": {"state": "submitted", "value": {"kind": "text", "value": "x"}},
    "number": {"state": "submitted", "value": {"kind": "number", "value": 5}},
    "boolean": {"state": "submitted", "value": {"kind": "boolean", "value": False}},
    "one": {"state": "submitted", "value": {"kind": "selected", "value": "a"}},
    "many": {"state": "skipped"},
}

EVERYTHING = script(
    ["emit", "chat", {"type": "chat/activityChanged", "activity": "thinking"}],
    [
        "emit",
        "chat",
        {
            "type": "chat/responsePart",
            "part": {"kind": "reasoning", "id": "r", "content": "hm"},
        },
    ],
    ["emit", "chat", {"type": "chat/reasoning", "partId": "r", "content": ", well"}],
    ["say", "p", "I will "],
    ["delta", "p", "look"],
    [
        "tool",
        "c1",
        {"intention": "to look"},
        {
            "toolInput": "ls",
            "confirmationTitle": {"markdown": "**Look?**"},
            "editable": True,
            "options": [{"id": "o1", "label": "Yes", "kind": "approve"}],
        },
    ],
    ["wait", "c1"],
    [
        "emit",
        "chat",
        {
            "type": "chat/toolCallContentChanged",
            "toolCallId": "c1",
            "content": [{"type": "text", "text": "a.txt"}],
        },
    ],
    ["result", "c1"],
    [
        "tool",
        "c2",
        {"contributor": {"kind": "client", "clientId": "nine"}},
        {"confirmed": "not-needed"},
    ],
    ["wait", "c2"],
    ["subagent", "c3", {"title": "Helper", "text": "help"}],
    ["ask", {"id": "q1", "message": "Some questions", "questions": QUESTIONS}],
    ["wait", "q1"],
    ["emit", "chat", {"type": "chat/usage", "usage": {"inputTokens": 5, "outputTokens": 7}}],
    [
        "emit",
        "chat",
        {"type": "chat/responsePart", "part": {"kind": "systemNotification", "content": "Done"}},
    ],
    ["emit", "chat", {"type": "chat/activityChanged"}],
)


async def test_a_rich_conversation_at_0_9_fits_the_schema(state_dir: Path, tmp_path: Path) -> None:
    session, second = "ahp-session:/rich", "ahp-chat:/second"
    with trio.fail_after(50):
        async with live_host(
            state_dir, {"play": "fixture_ahp:play", "keyless": "fixture_loading:raises_in_create"}
        ) as live:
            client = await live.client("nine", initialize=False)
            witness = Witness(client)
            opened = await client.initialize(("0.9.0",), initialSubscriptions=["ahp-root://"])
            assert opened["protocolVersion"] == "0.9.0"
            await client.request("resolveSessionConfig", provider="play", config={"mode": "x"})
            await client.request("sessionConfigCompletions", provider="play", property="mode")
            await client.request(
                "createSession",
                channel=session,
                provider="play",
                workingDirectories=[file_uri(str(tmp_path))],
                progressToken="p",
                activeClient={"clientId": "nine", "tools": [{"name": "look"}]},
            )
            chat = (await client.subscribe(session))["defaultChat"]
            await client.subscribe(chat)
            await client.until(lambda: client.states[session]["lifecycle"] == "ready")
            typed = {"kind": "userMessage", "text": "x", "offset": 1}
            await client.request("completions", channel=chat, **typed)

            await client.act(chat, turn_started("t1", EVERYTHING))
            await client.until(lambda: client.states[session].get("inputNeeded"))
            await client.snapshot(session)
            await client.snapshot(chat)
            approval = {
                "type": "chat/toolCallConfirmed",
                "turnId": "t1",
                "toolCallId": "c1",
                "approved": True,
                "confirmed": "user-action",
                "selectedOptionId": "o1",
                "editedToolInput": "ls -l",
            }
            await client.act(chat, approval)
            assert "rejectionReason" in await client.act(chat, approval)
            await client.until(
                lambda: any(
                    part["kind"] == "toolCall"
                    and part["toolCall"]["toolCallId"] == "c2"
                    and part["toolCall"]["status"] == "running"
                    for part in client.states[chat]["activeTurn"]["responseParts"]
                )
            )
            done = {"type": "chat/toolCallComplete", "turnId": "t1", "toolCallId": "c2"}
            result = {"success": True, "pastTenseMessage": "Looked"}
            await client.act(chat, {**done, "result": result})
            await client.until(lambda: client.states[session].get("inputNeeded"))
            subagent = client.states[session]["chats"][1]["resource"]
            await client.subscribe(subagent)
            drafted = {"type": "chat/inputAnswerChanged", "requestId": "q1", "questionId": "text"}
            await client.act(chat, {**drafted, "answer": {**ANSWERS["text"], "state": "draft"}})
            text = {"text": "and then", "origin": {"kind": "user"}}
            for kind, ident in (("queued", "m1"), ("queued", "m2"), ("steering", "m3")):
                pending = {"type": "chat/pendingMessageSet", "kind": kind, "id": ident}
                await client.act(chat, {**pending, "message": text})
            order = {"type": "chat/queuedMessagesReordered", "order": ["m2", "m1"]}
            await client.act(chat, order)
            await client.act(chat, {"type": "chat/draftChanged", "draft": text})
            await client.snapshot(chat)
            await client.act(
                chat,
                {
                    "type": "chat/inputCompleted",
                    "requestId": "q1",
                    "response": "accept",
                    "answers": ANSWERS,
                },
            )
            await client.until(lambda: len(client.states[chat]["turns"]) == 3)
            await client.act(session, {"type": "session/configChanged", "config": {"level": 2}})
            await client.act(session, {"type": "session/titleChanged", "title": "Rich"})
            for flag in ("isRead", "isArchived"):
                kind = f"session/{flag}Changed"
                await client.act(session, {"type": kind, flag: True})
            folder = {"type": "session/workingDirectorySet", "directory": file_uri("/")}
            await client.act(session, folder)
            seq = client.last_seq

            await client.say(chat, "t4", script(["say", "p", "x"], ["fail", True]))
            await client.act(chat, {"type": "chat/turnResume", "turnId": "t4"})
            await client.ended(chat, "t4")
            await client.start_turn(chat, "t5", script(["tool", "c5", {}, {}], ["hang"]))
            await client.until(lambda: client.states[session].get("inputNeeded"))
            await client.act(chat, {"type": "chat/turnCancelled", "turnId": "t5", "duration": 5})
            await client.say(chat, "t6", script(["raise", "out of words"]))
            await client.request("createChat", channel=session, chat=second, initialMessage=text)
            await client.subscribe(second)
            await client.until(lambda: client.states[second]["turns"])
            windowed = await client.subscribe(chat, view={"turns": 2})
            await client.request("fetchTurns", channel=chat, cursor=windowed["turnsNextCursor"])
            await client.act(chat, {"type": "chat/truncated", "turnId": "t1"})
            await client.request("listSessions", limit=1)
            await client.request("createSession", channel="ahp-session:/no", provider="keyless")
            await client.subscribe("ahp-session:/no")
            await client.until(lambda: client.states["ahp-session:/no"]["lifecycle"] == "failed")
            with pytest.raises(Refused):
                await client.subscribe("ahp-session:/none")

            again = await live.client("nine", initialize=False)
            witnessed = Witness(again)
            uris = ["ahp-root://", session, chat, "ahp-chat:/gone"]
            for number in (seq, 1):
                coming = {"clientId": "nine", "lastSeenServerSeq": number, "subscriptions": uris}
                back = await again.request("reconnect", **coming)
                assert back["type"] == ("replay" if number == seq else "snapshot")
                if number == seq:
                    for uri in uris[:-1]:
                        again.states[uri] = client.states[uri]
                    await again.request("disposeChat", channel=second)
                    again = await live.client("nine", initialize=False)
                    last = Witness(again)
            await again.request("disposeSession", channel=session)
            await again.request("ping")

            assert [*witness.faults, *witnessed.faults, *last.faults] == []
            seen = witness.seen | witnessed.seen | last.seen
            wanted = {
                *RESULTS.values(),
                *NOTIFICATIONS.values(),
                "ReconnectReplayResult",
                "ReconnectSnapshotResult",
                *("RootState", "SessionState", "ChatState"),
                *("root/agentsChanged", "root/activeSessionsChanged"),
                *("session/creationFailed", "session/chatAdded", "session/chatUpdated"),
                *("session/inputNeededSet", "session/inputNeededRemoved"),
                *("session/activityChanged", "session/titleChanged", "session/configChanged"),
                *("chat/turnStarted", "chat/turnComplete", "chat/turnCancelled", "chat/error"),
                *("chat/turnsLoaded", "chat/truncated", "chat/turnResume", "chat/delta"),
                *("chat/reasoning", "chat/usage", "chat/toolCallStart", "chat/toolCallReady"),
                *("chat/toolCallConfirmed", "chat/toolCallComplete", "chat/inputRequested"),
                *("chat/toolCallContentChanged", "chat/inputAnswerChanged"),
                *("chat/inputCompleted", "chat/pendingMessageSet", "chat/draftChanged"),
                *("chat/pendingMessageRemoved", "chat/queuedMessagesReordered"),
            }
            assert wanted <= seen, wanted - seen
