"""The main road: connect, create, talk to two agents, approve, and see it all as state."""

from pathlib import Path

import trio

from ahp_client import text_of
from ahpd.contracts.ahp.uris import file_uri
from live_host import live_host


async def test_echo_answers_word_by_word_and_a_second_client_sees_the_same(state_dir: Path) -> None:
    with trio.fail_after(60):
        async with live_host(state_dir) as live:
            one = await live.client("one")
            _session, chat = await live.session(one, "echo")
            two = await live.client("two")
            await two.subscribe(chat)
            turn = await one.say(chat, "t1", "hello there, host")
            assert text_of(turn) == "hello there, host"
            assert turn["state"] == "complete"
            await two.ended(chat, "t1")
            assert two.states[chat] == one.states[chat] == await one.snapshot(chat)


async def test_notes_asks_before_it_writes_and_remembers(state_dir: Path, tmp_path: Path) -> None:
    with trio.fail_after(60):
        async with live_host(state_dir) as live:
            client = await live.client()
            session, chat = await live.session(
                client, "notes", workingDirectories=[file_uri(str(tmp_path))]
            )
            await client.start_turn(chat, "t1", "write todo buy milk")
            await client.until(
                lambda: client.states[session].get("inputNeeded"), what="the approval"
            )
            needed = client.states[session]["inputNeeded"][0]
            assert needed["kind"] == "toolConfirmation"
            assert client.states[chat]["status"] & 31 == 24
            answer = {
                "type": "chat/toolCallConfirmed",
                "turnId": "t1",
                "toolCallId": needed["toolCall"]["toolCallId"],
                "approved": True,
                "confirmed": "user-action",
            }
            await client.act(chat, answer)
            await client.ended(chat, "t1")
            assert "inputNeeded" not in client.states[session]
            turn = await client.say(chat, "t2", "read todo")
            assert "buy milk" in str(turn["responseParts"])
