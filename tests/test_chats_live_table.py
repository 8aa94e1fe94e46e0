"""Each request and each event of the contracts, by name: served, or refused as they say."""

from pathlib import Path
from typing import Any

import trio

from agent_contracts import needs_schema, schema
from ahpd.contracts.chats import AGENT_EVENTS, AGENT_REQUESTS
from ahpd.supervisor.wires.chats.requests import HANDLERS, UNSERVED
from chats_client import ChatsClient, ChatsRefused
from live_host import live_host

pytestmark = needs_schema

Json = dict[str, Any]

SHOWN = {"shown": "fixture_chats:shown"}

REQUESTS = 41
EVENTS = 8

#: Events of requests that this host refuses: nothing is ever told of them.
NEVER_TOLD = frozenset({"chat.visuals", "accounts.changed", "usage.changed", "usage.limitsChanged"})

TURN: Json = {"chatId": "c", "turnId": "t"}

#: What is refused, with a payload that fits: this host does not do it.
UNSUPPORTED: dict[str, Json] = {
    "chat.turnDiff": TURN,
    "chat.fork": TURN,
    "chat.forkInfo": TURN,
    "chat.summarize": {"chatId": "c"},
    "chat.continueOn": {"chatId": "c", "account": "work"},
    "chat.removeVisual": {"chatId": "c", "visualId": "v"},
    "accounts.list": {},
    "accounts.save": {"accounts": {}},
    "accounts.refresh": {},
    "accounts.create": {"kind": "claude", "label": "Work"},
    "accounts.watchLogin": {"id": "work"},
    "usage.summary": {
        "from": "2026-10-01",
        "to": "2026-10-02",
        "resolution": "day",
        "timeZone": "Europe/Berlin",
    },
    "usage.subscribe": {},
    "usage.unsubscribe": {},
    "usage.limits": {},
    "usage.refreshLimits": {},
}


class Noting:
    """A client whose requests are noted: what was asked, and what came of it."""

    def __init__(self, client: ChatsClient) -> None:
        self.client = client
        self.seen: dict[str, str] = {}

    async def ask(self, name: str, /, **payload: Any) -> Any:
        result = await self.client.ask(name, **payload)
        self.seen[name] = "served"
        return result

    async def refused(self, name: str, /, **payload: Any) -> None:
        try:
            result = await self.client.ask(name, **payload)
        except ChatsRefused as refusal:
            self.seen.setdefault(name, refusal.code)
            return
        raise AssertionError(f"{name} was answered {result}")


def test_the_tables_are_the_schemas() -> None:
    assert len(schema()["x-requests"]) == REQUESTS
    assert len(schema()["x-events"]) == EVENTS
    assert AGENT_REQUESTS.keys() == schema()["x-requests"].keys()
    assert AGENT_EVENTS.keys() == schema()["x-events"].keys()
    assert not HANDLERS.keys() & UNSERVED.keys()
    assert HANDLERS.keys() | UNSERVED.keys() == AGENT_REQUESTS.keys()
    assert UNSUPPORTED.keys() == UNSERVED.keys()


async def test_each_request_is_served_or_refused_and_each_event_told(state_dir: Path) -> None:
    with trio.fail_after(90):
        async with live_host(state_dir, SHOWN) as live:
            client, other = await live.chats(), await live.chats()
            noting = Noting(client)
            # Opening and reading.
            await noting.ask("chat.create", chatId="c")
            await noting.ask("chat.attach", chatId="c")
            client.threads["c"], client.seqs["c"] = await _held(client)
            await other.attach("c")
            for _ in range(3):
                await client.talk("c", "think a")
            assert [one["chatId"] for one in (await noting.ask("chat.list"))["chats"]] == ["c"]
            page = await other.ask("chat.attach", chatId="c", historyLimit=1)
            older = await noting.ask(
                "chat.history", chatId="c", cursor=page["history"]["cursor"], limit=2
            )
            assert len(older["items"]) == 2
            # Sending and stopping.
            sent = await noting.ask("chat.send", chatId="c", text="wait")
            for text in ("think b", "think c"):
                await client.say("c", text)
            await client.until(lambda: len(client.threads["c"].info.queue or ()) == 2)
            first, second = client.threads["c"].info.queue or ()
            await noting.ask("chat.unqueue", chatId="c", messageId=first.id)
            await noting.ask("chat.sendNow", chatId="c", messageId=second.id)
            assert (await client.turn_over("c", sent["turnId"])).state == "aborted"
            await client.turn_over("c", str(second.turn_id))
            await client.say("c", "wait")
            await noting.ask("chat.cancel", chatId="c", subagents=True)
            await noting.ask("chat.compact", chatId="c")
            await client.until(lambda: "command /compact" in client.replies("c"))
            await client.until(lambda: client.threads["c"].info.status == "idle")
            # Answering.
            await client.say("c", "rule; ask; async")
            asked = await client.pending("c")
            named = {"chatId": "c", "requestId": asked.request_id}
            await noting.ask("chat.approve", **named, decision="allow")
            asked = await client.pending("c")
            named = {"chatId": "c", "requestId": asked.request_id}
            await noting.ask("chat.answer", **named, answers={"must": "me"})
            await client.until(
                lambda: (
                    client.items("c", "question")[-1].async_
                    and client.items("c", "question")[-1].state == "pending"
                )
            )
            await noting.ask(
                "chat.dismiss", chatId="c", itemId=client.items("c", "question")[-1].id
            )
            await client.ask("chat.cancel", chatId="c")
            # Configuring.
            await noting.ask("chat.configure", chatId="c", runtimeMode="supervised")
            await noting.ask("chat.setPreferences", runtimeMode="supervised")
            await noting.ask("skills.list", chatId="c")
            await noting.ask("provider.list")
            # Delegated work.
            await client.talk("c", "delegate; work w")
            row = client.items("c", "subagent")[0]
            delegated = {"chatId": "c", "toolUseId": row.tool_use_id}
            await noting.ask("chat.subagent", **delegated, watch=True)
            await noting.ask("chat.stopSubagent", **delegated)
            await noting.refused("chat.stopTask", chatId="c", taskId="nothing")
            # Bookmarks.
            mark = {"chatId": "c", "itemId": client.items("c", "user")[0].id}
            await noting.ask("chat.addBookmark", **mark)
            await noting.ask("chat.renameBookmark", **mark, name="here")
            await noting.ask("chat.removeBookmark", **mark)
            # What this host does not do.
            for name, payload in UNSUPPORTED.items():
                await noting.refused(name, **payload)
                assert noting.seen[name] == "chat-unsupported"
            # The end.
            await noting.ask("chat.clear", chatId="c")
            await noting.ask("chat.detach", chatId="c")
            await noting.ask("chat.kill", chatId="c")
            await client.until(lambda: client.heard("chat.subagentChanged"))
            assert noting.seen.keys() == AGENT_REQUESTS.keys()
            served = {name for name, came in noting.seen.items() if came == "served"}
            assert served == HANDLERS.keys() - {"chat.stopTask"}
            assert noting.seen["chat.stopTask"] == "task-not-found"
            told = {name for name, _ in [*client.events, *other.events]}
            assert told == AGENT_EVENTS.keys() - NEVER_TOLD


async def _held(client: ChatsClient) -> tuple[Any, int]:
    await client.attach("c")
    return client.threads["c"], client.seqs["c"]


async def test_a_chat_that_is_not_there_is_said_after_what_does_not_fit(state_dir: Path) -> None:
    """Whatever names a chat: the payload comes first, then the chat, then what is asked of it."""
    with trio.fail_after(60):
        async with live_host(state_dir, SHOWN) as live:
            client = await live.chats()
            fitting: dict[str, Json] = {
                **UNSUPPORTED,
                "chat.attach": {},
                "chat.detach": {},
                "chat.history": {"cursor": "x"},
                "chat.send": {"text": "hi"},
                "chat.unqueue": {"messageId": "m"},
                "chat.sendNow": {"messageId": "m"},
                "chat.cancel": {},
                "chat.compact": {},
                "chat.clear": {},
                "chat.kill": {},
                "chat.approve": {"requestId": "r", "decision": "allow"},
                "chat.answer": {"requestId": "r", "answers": {}},
                "chat.dismiss": {"itemId": "i"},
                "chat.configure": {},
                "skills.list": {},
                "chat.subagent": {"toolUseId": "t"},
                "chat.stopSubagent": {"toolUseId": "t"},
                "chat.stopTask": {"taskId": "t"},
                "chat.addBookmark": {"itemId": "i"},
                "chat.renameBookmark": {"itemId": "i", "name": "n"},
                "chat.removeBookmark": {"itemId": "i"},
            }
            naming = {name for name in AGENT_REQUESTS if name.startswith(("chat.", "skills."))} - {
                "chat.create",
                "chat.list",
                "chat.setPreferences",
            }
            for name in sorted(naming):
                payload = {**fitting[name], "chatId": "nobody"}
                assert await client.refused(name, **payload) == "chat-not-found", name
                assert await client.refused(name, **{**payload, "chatId": 5}) == "bad-request"
                assert await client.refused(name, **{**payload, "chatId": ""}) == "bad-request"
