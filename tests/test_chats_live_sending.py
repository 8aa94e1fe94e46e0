"""The queue, steering, stopping and clearing on `/chats`."""

import base64
import struct
from pathlib import Path

import trio

from agent_contracts import needs_schema
from live_host import live_host

pytestmark = needs_schema

SHOWN = {"shown": "fixture_chats:shown"}

PNG = base64.b64encode(
    b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sII", 13, b"IHDR", 3, 2) + b"\x08\x02\0\0\0" + b"\0" * 20
).decode()


async def test_a_queue_is_shown_taken_from_and_worked_off(state_dir: Path) -> None:
    with trio.fail_after(60):
        async with live_host(state_dir, SHOWN) as live:
            client, other = await live.chats(), await live.chats()
            await client.create("c")
            first = await client.say("c", "pause 0.3; stream 2")
            assert first["queued"] is False
            second = await client.say("c", "stream 1", mentions=["a.py"], skills=["sums"])
            third = await client.say("c", "stream 2")
            assert [second["queued"], third["queued"]] == [True, True]
            await client.until(lambda: len(client.threads["c"].info.queue or ()) == 2)
            waiting = client.threads["c"].info.queue
            assert waiting is not None
            assert [one.turn_id for one in waiting] == [second["turnId"], third["turnId"]]
            assert (waiting[0].mentions, waiting[0].skills) == (("a.py",), ("sums",))
            taken = await other.ask("chat.unqueue", chatId="c", messageId=waiting[0].id)
            assert taken["message"]["text"] == "stream 1"
            assert taken["message"]["mentions"] == ["a.py"]
            code = await client.refused("chat.unqueue", chatId="c", messageId=waiting[0].id)
            assert code == "request-not-found"
            await client.turn_over("c", third["turnId"])
            assert client.threads["c"].info.queue is None
            assert client.turn("c", second["turnId"]) is None
            await client.is_like_a_fresh_attach_of(other, "c")


async def test_send_now_goes_first_and_stops_what_runs(state_dir: Path) -> None:
    with trio.fail_after(60):
        async with live_host(state_dir, SHOWN) as live:
            client = await live.chats()
            await client.create("c")
            running = await client.say("c", "wait")
            queued = [await client.say("c", f"think {number}") for number in range(2)]
            await client.until(lambda: len(client.threads["c"].info.queue or ()) == 2)
            last = (client.threads["c"].info.queue or ())[1]
            await client.ask("chat.sendNow", chatId="c", messageId=last.id)
            stopped = await client.turn_over("c", running["turnId"])
            assert stopped.state == "aborted"
            for answer in reversed(queued):
                await client.turn_over("c", answer["turnId"])
            said = [item.text for item in client.items("c", "user")]
            assert said == ["wait", "think 1", "think 0"]
            assert client.threads["c"].info.queue_paused is None
            code = await client.refused("chat.sendNow", chatId="c", messageId=last.id)
            assert code == "request-not-found"


async def test_a_turn_that_did_not_complete_pauses_the_queue_until_the_next_message(
    state_dir: Path,
) -> None:
    with trio.fail_after(60):
        async with live_host(state_dir, SHOWN) as live:
            client = await live.chats()
            await client.create("c")
            running = await client.say("c", "wait")
            waiting = await client.say("c", "think a")
            await client.ask("chat.cancel", chatId="c")
            assert (await client.turn_over("c", running["turnId"])).state == "aborted"
            await client.until(lambda: client.threads["c"].info.queue_paused is True)
            assert len(client.threads["c"].info.queue or ()) == 1
            last = await client.say("c", "think b")
            assert last["queued"] is True
            await client.turn_over("c", waiting["turnId"])
            await client.turn_over("c", last["turnId"])
            assert [item.text for item in client.items("c", "user")] == [
                *("wait", "think a", "think b")
            ]
            await client.until(lambda: client.threads["c"].info.queue_paused is None)
            # With nothing to stop, it is stopped.
            assert await client.ask("chat.cancel", chatId="c") == {}


async def test_what_is_steered_goes_into_the_turn_or_waits(state_dir: Path) -> None:
    with trio.fail_after(60):
        async with live_host(state_dir, SHOWN) as live:
            client = await live.chats()
            await client.create("c")
            running = await client.say("c", "stream 1; until_steered; steering refuse; wait")
            await client.until(lambda: "w0 " in client.replies("c"))
            steered = await client.say("c", "this way", delivery="steer")
            assert steered == {"queued": False, "turnId": running["turnId"]}
            await client.until(lambda: "steered: this way" in client.replies("c"))
            command = await client.say("c", "/review", delivery="steer")
            assert command["queued"] is True
            refused = await client.say("c", "think that way", delivery="steer")
            assert refused["queued"] is True
            await client.until(lambda: len(client.threads["c"].info.queue or ()) == 2)
            await client.ask("chat.cancel", chatId="c")
            last = await client.say("c", "think last")
            for answer in (refused, command, last):
                await client.turn_over("c", answer["turnId"])
            said = [item.text for item in client.items("c", "user")]
            assert said[1:] == ["think that way", "/review", "think last"]


async def test_clearing_is_one_reset_and_keeps_what_was_spent(state_dir: Path) -> None:
    with trio.fail_after(60):
        async with live_host(state_dir, SHOWN) as live:
            client, other = await live.chats(), await live.chats()
            await client.create("c")
            turn = await client.talk("c", "title Kept; think; cost 0.25")
            user = client.items("c", "user")[0]
            await client.ask("chat.addBookmark", chatId="c", itemId=user.id)
            await client.say("c", "work; park; wait")
            await client.say("c", "think never")
            await client.until(lambda: len(client.threads["c"].info.requests or ()) == 2)
            assert await client.refused("chat.clear", chatId="c") == "chat-busy"
            heard = len(client.events)
            await client.ask("chat.clear", chatId="c", force=True)
            assert client.items("c") == []
            info = client.threads["c"].info
            assert (info.queue, info.queue_paused, info.background) == (None, None, None)
            assert (info.usage.turns, info.usage.cost_usd) == (2, 0.25)
            assert info.suggested_title == "Kept"
            assert info.agent_session_id is None
            told = [payload["event"] for payload in client.heard("chat.event")]
            resets = [event for event in told if event["type"] == "reset"]
            assert len(resets) == 1
            settled = [
                event["item"].get("decision") or event["item"].get("state")
                for name, payload in client.events[heard:]
                if name == "chat.event" and (event := payload["event"])["type"] == "item"
                if event["item"]["kind"] in ("approval", "question")
            ]
            assert settled == ["cancelled", "cancelled"]
            assert client.heard("chat.bookmarks")[-1]["bookmarks"] == []
            await client.is_like_a_fresh_attach_of(other, "c")
            await client.talk("c", "recall")
            # A conversation of its own: it goes on with nothing.
            assert client.replies("c") == ["None [] None"]
            await client.until(lambda: client.threads["c"].info.usage.turns == 3)
            assert client.turn("c", turn) is None


async def test_compaction_is_asked_for_where_the_agent_offers_it(state_dir: Path) -> None:
    agents = {**SHOWN, "echo": "ahpd.agents.echo:create"}
    with trio.fail_after(60):
        async with live_host(state_dir, agents) as live:
            client = await live.chats()
            await client.create("c", agent="shown")
            await client.create("e", agent="echo")
            assert await client.refused("chat.compact", chatId="e") == "chat-unsupported"
            await client.ask("chat.compact", chatId="c")
            await client.until(lambda: "command /compact" in client.replies("c"))
            await client.until(lambda: client.threads["c"].info.status == "idle")
            await client.say("c", "wait")
            assert await client.refused("chat.compact", chatId="c") == "chat-busy"


async def test_attachments_are_kept_under_ids_of_the_host_and_go_with_the_chat(
    state_dir: Path,
) -> None:
    folder = state_dir / "attachments"
    with trio.fail_after(60):
        async with live_host(state_dir, SHOWN) as live:
            client = await live.chats()
            await client.create("../c")
            named = {"name": "../../picture.png", "mime": "image/png", "data": PNG}
            text = {"name": "n", "mime": "text/plain", "data": "aGk="}
            answer = await client.say("../c", "message", attachments=[named, text])
            await client.turn_over("../c", answer["turnId"])
            picture, note = client.items("../c", "user")[0].attachments
            assert (picture.name, picture.width, picture.height) == ("../../picture.png", 3, 2)
            assert (note.mime, note.size, note.width) == ("text/plain", 2, None)
            for kept in (picture, note):
                assert Path(kept.path).parent.parent == folder
                assert Path(kept.path).name == kept.id
            assert await trio.Path(note.path).read_text() == "hi"
            # The agent is told where they are.
            assert note.path in client.replies("../c")[0]
            nine = [text] * 9
            code = await client.refused("chat.send", chatId="../c", text="x", attachments=nine)
            assert code == "bad-request"
            await client.ask("chat.kill", chatId="../c")
            while await trio.Path(picture.path).exists():  # noqa: ASYNC110  # nobody tells it
                await trio.sleep(0.01)


async def test_what_cannot_be_started_says_why_and_takes_nothing(state_dir: Path) -> None:
    agents = {"broken": "fixture_loading:nothing_of_that_name"}
    with trio.fail_after(60):
        async with live_host(state_dir, agents) as live:
            client = await live.chats()
            await client.create("c")
            await client.until(lambda: client.threads["c"].info.status == "exited")
            assert await client.refused("chat.send", chatId="c", text="hi") == "chat-unsupported"
