"""Reading on `/chats`: pages, cursors, `since`, subagents, bookmarks, settings, a restart."""

from pathlib import Path
from typing import Any

import trio

from agent_contracts import needs_schema
from ahpd.contracts.ahp.uris import session_uri
from ahpd.contracts.chats import REQUEST_LIMITS, read_result, utf16_length
from ahpd.supervisor.store.sqlite import SqliteStore
from live_host import live_host

pytestmark = needs_schema

SHOWN = {"shown": "fixture_chats:shown"}
FAMILY = "👨‍👩‍👧"


async def test_pages_go_back_to_the_start_and_survive_what_comes(state_dir: Path) -> None:
    with trio.fail_after(60):
        async with live_host(state_dir, SHOWN) as live:
            client, paging = await live.chats(), await live.chats()
            await client.create("c")
            for _ in range(5):
                await client.talk("c", "think a; stream 1")
            newest = await paging.ask("chat.attach", chatId="c", historyLimit=3)
            assert len(newest["items"]) == 3
            total = len(client.items("c"))
            assert newest["history"]["start"] == total - 3
            assert newest["pending"] == []
            await client.talk("c", "think more")
            items, cursor = newest["items"], newest["history"]["cursor"]
            while cursor is not None:
                page = await paging.ask("chat.history", chatId="c", cursor=cursor, limit=4)
                items = [*page["items"], *items]
                assert page["history"]["start"] == total - len(items)
                cursor = page["history"]["cursor"]
            fresh = await client.ask("chat.attach", chatId="c")
            assert items == fresh["items"][:total]
            await client.create("other")
            for bad in ("nonsense", newest["history"]["cursor"] + "9" * 20):
                assert await paging.refused("chat.history", chatId="c", cursor=bad) == (
                    "history-expired"
                )
            code = await paging.refused(
                "chat.history", chatId="other", cursor=newest["history"]["cursor"]
            )
            assert code == "history-expired"
            await client.ask("chat.clear", chatId="c")
            code = await paging.refused(
                "chat.history", chatId="c", cursor=newest["history"]["cursor"]
            )
            assert code == "history-expired"


async def test_since_answers_what_was_missed_or_the_whole_thread(state_dir: Path) -> None:
    with trio.fail_after(60):
        async with live_host(state_dir, SHOWN, chat_events=40) as live:
            client, other = await live.chats(), await live.chats()
            await client.create("c")
            await client.talk("c", "think a")
            await client.ask("chat.detach", chatId="c")
            seq = client.seqs["c"]
            await other.attach("c")
            await other.talk("c", "stream 5; think b")
            held = client.threads["c"]
            result = await client.attach("c", since=seq)
            assert result["events"] and result["items"] == []
            assert "history" not in result and "pending" not in result
            assert client.threads["c"] != held
            await client.is_like_a_fresh_attach_of(other, "c")
            # The future, another life, and what is held no longer are answered with the thread.
            for wrong in (0, result["seq"] + 1000, seq - 1000):
                assert "events" not in await client.attach("c", since=wrong)
            for _ in range(8):
                await other.talk("c", "think c")
            assert "events" not in await client.attach("c", since=seq)
            await client.ask("chat.clear", chatId="c")
            reset = (await client.ask("chat.attach", chatId="c"))["seq"]
            assert "events" not in await client.attach("c", since=reset - 1)
            assert (await client.attach("c", since=reset))["events"] == []


async def test_a_detached_client_hears_no_more_and_the_chat_goes_on(state_dir: Path) -> None:
    with trio.fail_after(60):
        async with live_host(state_dir, SHOWN) as live:
            client, other = await live.chats(), await live.chats()
            await client.create("c")
            await other.attach("c")
            await client.ask("chat.detach", chatId="c")
            heard = len(client.heard("chat.event"))
            await other.talk("c", "think a")
            await client.ask("chat.list")
            assert len(client.heard("chat.event")) == heard


async def test_a_subagent_is_paged_watched_answered_and_stopped(state_dir: Path) -> None:
    with trio.fail_after(60):
        async with live_host(state_dir, SHOWN) as live:
            client, watching = await live.chats(), await live.chats()
            await client.create("c")
            turn = (await client.say("c", "delegate ask"))["turnId"]
            await client.until(lambda: client.items("c", "subagent"))
            row = client.items("c", "subagent")[0]
            named = {"chatId": "c", "toolUseId": row.tool_use_id}
            page = await watching.ask("chat.subagent", **named, watch=True)
            helper = page["context"]["chatId"]
            assert page["live"] is True
            assert page["source"] == "claude-transcript"
            # It waits on a person, who answers it in its own chat.
            await watching.attach(helper)
            asked = await watching.pending(helper)
            assert watching.threads[helper].info.hidden is True
            assert await client.refused("chat.send", chatId=helper, text="x") == "chat-unsupported"
            assert await client.refused("chat.stopSubagent", **named) == "chat-busy"
            await watching.ask(
                "chat.answer",
                chatId=helper,
                requestId=asked.request_id,
                answers={asked.questions[0].id: "yes"},
            )
            await client.turn_over("c", turn)
            await watching.until(lambda: watching.heard("chat.subagentChanged"))
            assert watching.heard("chat.subagentChanged")[0] == named
            await client.until(lambda: client.items("c", "subagent")[0].status == "done")
            page = await watching.ask("chat.subagent", **named, limit=1)
            assert page["live"] is False and len(page["items"]) == 1
            older = await watching.ask(
                "chat.subagent", **named, cursor=page["history"]["cursor"], watch=False
            )
            assert older["items"][0]["kind"] == "turn"
            code = await client.refused("chat.subagent", chatId="c", toolUseId="nobody")
            assert code == "subagent-not-found"
            # One that was left at work is stopped by itself.
            await client.talk("c", "delegate")
            row = client.items("c", "subagent")[-1]
            named = {"chatId": "c", "toolUseId": row.tool_use_id}
            await client.until(lambda: client.threads["c"].info.delegating is True)
            await client.ask("chat.stopSubagent", **named)
            assert (await client.ask("chat.subagent", **named))["live"] is False
            code = await client.refused("chat.stopSubagent", chatId="c", toolUseId="nobody")
            assert code == "subagent-not-found"


async def test_background_tasks_are_named_when_they_cannot_be_stopped(state_dir: Path) -> None:
    with trio.fail_after(60):
        async with live_host(state_dir, SHOWN) as live:
            client = await live.chats()
            await client.create("c")
            await client.talk("c", "work w1")
            await client.until(lambda: client.threads["c"].info.background)
            code = await client.refused("chat.stopTask", chatId="c", taskId="nothing")
            assert code == "task-not-found"
            code = await client.refused("chat.stopTask", chatId="c", taskId="w1")
            assert code == "chat-unsupported"


async def test_bookmarks_are_told_whole(state_dir: Path) -> None:
    with trio.fail_after(60):
        async with live_host(state_dir, SHOWN) as live:
            client, other = await live.chats(), await live.chats()
            await client.create("c")
            await other.attach("c")
            await client.talk("c", "stream 2")
            user, reply = client.items("c", "user")[0], client.items("c", "assistant")[0]
            thinking = client.items("c", "turn")[0]
            await client.ask("chat.addBookmark", chatId="c", itemId=user.id, name="mine")
            both = await client.ask("chat.addBookmark", chatId="c", itemId=reply.id)
            assert [(one["itemId"], one.get("name")) for one in both["bookmarks"]] == [
                (user.id, "mine"),
                (reply.id, None),
            ]
            assert both["bookmarks"][0]["excerpt"] == "stream 2"
            again = await client.ask("chat.addBookmark", chatId="c", itemId=user.id)
            assert again == both
            for item in (thinking.id, "nothing"):
                code = await client.refused("chat.addBookmark", chatId="c", itemId=item)
                assert code == "item-not-found"
            renamed = await client.ask("chat.renameBookmark", chatId="c", itemId=user.id, name=" ")
            assert "name" not in renamed["bookmarks"][0]
            code = await client.refused("chat.renameBookmark", chatId="c", itemId="x", name="n")
            assert code == "bookmark-not-found"
            left = await client.ask("chat.removeBookmark", chatId="c", itemId=user.id)
            assert [one["itemId"] for one in left["bookmarks"]] == [reply.id]
            assert await client.ask("chat.removeBookmark", chatId="c", itemId=user.id) == left
            await other.until(
                lambda: (
                    other.heard("chat.bookmarks")
                    and other.heard("chat.bookmarks")[-1]["bookmarks"] == left["bookmarks"]
                )
            )
            attached = await other.ask("chat.attach", chatId="c")
            assert attached["bookmarks"] == left["bookmarks"]


async def test_modes_models_and_preferences_reach_the_agent(state_dir: Path) -> None:
    with trio.fail_after(60):
        async with live_host(state_dir, SHOWN) as live:
            client = await live.chats()
            picked = {"model": "small", "options": {"effort": "high"}}
            preferred = {"runtimeMode": "supervised", "selections": {"codex": picked}}
            await client.ask("chat.setPreferences", **preferred, changedAt=5)
            late = await live.chats()
            await late.ask("chat.setPreferences", runtimeMode="full-access", changedAt=4)
            info = await client.create("c", provider="codex")
            # What the agent told of itself may come after the chat.
            await client.until(lambda: client.threads["c"].info.slash_commands)
            info = (await client.ask("chat.attach", chatId="c"))["info"]
            assert (info["provider"], info["agent"]) == ("codex", "shown")
            assert (info["runtimeMode"], info["permissionMode"]) == ("supervised", "default")
            assert (info["selection"], info["model"]) == (picked, "small")
            assert info["slashCommands"] == ["compact", "review"]
            assert info["skills"] == ["sums"]
            changed = await client.ask("chat.configure", chatId="c", runtimeMode="full-access")
            assert changed["permissionMode"] == "bypassPermissions"
            code = await client.refused("chat.configure", chatId="c", runtimeMode="auto")
            assert code == "chat-unsupported"
            code = await client.refused("chat.configure", chatId="c", account="work")
            assert code == "account-unavailable"
            code = await client.refused("chat.configure", chatId="c", resumeAtReset=True)
            assert code == "chat-unsupported"
            await client.talk("c", "told; message")
            told, message = client.replies("c")
            assert told == "[('permissionMode', 'bypassPermissions')]"
            assert "'model': {'id': 'small', 'config': {'effort': 'high'}}" in message
            skills = (await client.ask("skills.list", chatId="c"))["skills"]
            assert skills == [{"name": "sums", "description": "Adds", "source": "plugin"}]
            (provider,) = (await client.ask("provider.list"))["providers"]
            assert (provider["kind"], provider["agent"]) == ("codex", "shown")
            assert provider["defaultModel"] == "big"
            assert provider["capabilities"]["compaction"] == "prompt"
            code = await client.refused("chat.create", chatId="d", provider="gemini")
            assert code == "chat-unsupported"


async def test_a_rule_is_granted_as_the_agent_proposed_it(state_dir: Path) -> None:
    with trio.fail_after(60):
        async with live_host(state_dir, SHOWN) as live:
            client = await live.chats()
            await client.create("c")
            await client.say("c", "rule; tool; told")
            asked = await client.pending("c")
            assert asked.can_allow_always and asked.allow_always.label == "Always allow ls"
            named: dict[str, Any] = {"chatId": "c", "requestId": asked.request_id}
            await client.ask("chat.approve", **named, decision="allow-always")
            plain = await client.pending("c")
            named["requestId"] = plain.request_id
            code = await client.refused("chat.approve", **named, decision="allow-always")
            assert code == "bad-request"
            await client.ask("chat.approve", **named, decision="deny", message="not that")
            await client.until(lambda: client.threads["c"].info.status == "idle")
            assert client.replies("c")[-1] == "['always', None]"
            assert [one.decision for one in client.items("c", "approval")] == [
                *("allow-always", "deny")
            ]


async def test_only_a_question_that_nobody_waits_for_is_dismissed(state_dir: Path) -> None:
    with trio.fail_after(60):
        async with live_host(state_dir, SHOWN) as live:
            client = await live.chats()
            await client.create("c")
            await client.say("c", "async")
            question = await client.pending("c")
            named = {"chatId": "c", "itemId": question.id}
            await client.ask("chat.dismiss", **named)
            await client.until(lambda: client.items("c", "question")[0].state == "dismissed")
            assert await client.refused("chat.dismiss", **named) == "request-not-found"
            await client.ask("chat.cancel", chatId="c")
            await client.say("c", "ask")
            question = await client.pending("c")
            code = await client.refused("chat.dismiss", chatId="c", itemId=question.id)
            assert code == "request-not-found"


async def test_what_a_chat_waits_on_is_cut_between_characters_for_everybody(
    state_dir: Path,
) -> None:
    with trio.fail_after(60):
        async with live_host(state_dir, SHOWN) as live:
            client, other = await live.chats(), await live.chats()
            await client.create("c")
            await client.say("c", "family")
            await other.until(
                lambda: (
                    other.statuses("c") and len(other.statuses("c")[-1].get("requests", ())) == 2
                )
            )
            info = read_result("chat.create", other.statuses("c")[-1])
            approval, question = (one.approval or one.question for one in info.requests)
            limits = REQUEST_LIMITS
            assert utf16_length(approval.subject) <= limits.subject
            assert utf16_length(approval.description) <= limits.description
            assert utf16_length(approval.command) <= limits.command
            assert len(approval.command.split("\n")) <= limits.command_lines
            assert approval.truncated is True
            (asked,) = question.questions
            assert utf16_length(asked.question) <= limits.question
            assert utf16_length(asked.header) <= limits.header
            for cut in (approval.description, asked.question, asked.header):
                body = cut.removesuffix("…").removeprefix("a\ufffd")
                assert cut.endswith("…")
                assert body.replace("e\u0301", "").replace(FAMILY, "") == ""


async def test_a_stored_chat_comes_back_with_all_that_is_known_of_it(state_dir: Path) -> None:
    with trio.fail_after(90):
        async with live_host(state_dir, SHOWN, store=SqliteStore(state_dir / "state.db")) as live:
            client = await live.chats()
            await client.create("c", runtimeMode="supervised")
            await client.talk("c", "think a; cost 0.5")
            user = client.items("c", "user")[0]
            await client.ask("chat.addBookmark", chatId="c", itemId=user.id, name="here")
            await client.ask("chat.clear", chatId="c")
            await client.talk("c", "think b")
            user = client.items("c", "user")[0]
            await client.ask("chat.addBookmark", chatId="c", itemId=user.id, name="here")
            old_seq = client.seqs["c"]
            before = await client.ask("chat.attach", chatId="c")
        async with live_host(state_dir, SHOWN, store=SqliteStore(state_dir / "state.db")) as live:
            client, other = await live.chats(), await live.chats()
            (listed,) = (await other.ask("chat.list"))["chats"]
            assert listed["chatId"] == "c"
            after = await client.attach("c", since=old_seq)
            assert "events" not in after
            assert [one["id"] for one in after["items"]] == [one["id"] for one in before["items"]]
            assert after["bookmarks"] == before["bookmarks"]
            assert after["info"]["usage"]["costUsd"] == 0.5
            assert after["info"]["usage"]["turns"] == 2
            assert after["info"]["runtimeMode"] == "supervised"
            assert after["info"]["running"] is False
            # Brought back is not made.
            assert client.statuses("c") == []
            await client.talk("c", "think c")


async def test_the_hosts_own_requests_are_offered_beside_the_table(state_dir: Path) -> None:
    with trio.fail_after(60):
        async with live_host(state_dir, SHOWN) as live:
            client = await live.chats()
            await client.create("c")
            await client.talk("c", "print to the log")
            assert (await client.ask("host.status"))["chats"] == 1
            (row,) = (await client.ask("host.processes"))["workers"][:1]
            assert row["chat"] == "c"
            tail = await client.ask("host.logs", id="c")
            assert "to the log" in tail["text"]
            following = await client.send("host.logs", {"id": "c", "follow": True})
            await client.answer(following)
            await client.until(lambda: client.heard("host.log"))
            assert "to the log" in client.heard("host.log")[0]["text"]
            await client.ask("host.logs.stop", request=following)
            await client.until(lambda: client.heard("host.logEnded"))
            assert (await client.ask("host.restart", id="c"))["chat"] == "c"
            await client.talk("c", "think")
            assert await client.refused("host.kill", id="nobody") == "not-found"
            assert (await client.ask("host.kill", id="c"))["session"] == "c"
            assert await client.refused("chat.attach", chatId="c") == "chat-not-found"
            assert session_uri("c") not in [one.spelling for one in live.host.sessions.values()]
