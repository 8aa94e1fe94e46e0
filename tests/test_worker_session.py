"""A worker runs one session: its turns, what is asked of it, what it says, and its end."""

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
import trio

from ahpd.contracts.ahp.uris import chat_uri, subagent_chat_id
from ahpd.contracts.frames import BadFrame, Event, Success
from ahpd.contracts.worker_wire import FAILURE_NO_MEMBER, FAILURE_RAISED
from worker_driver import CHAT_URI, Driver, worker


def said(actions: list[dict[str, Any]]) -> str:
    """The text of the turn's first markdown part, with what its deltas added."""
    parts = [a["part"] for a in actions if a["type"] == "chat/responsePart"]
    added = [
        a["content"] for a in actions if a["type"] == "chat/delta" and a["partId"] == parts[0]["id"]
    ]
    return str(parts[0]["content"]) + "".join(added)


def endings(actions: list[dict[str, Any]]) -> list[str]:
    kinds = ("chat/turnComplete", "chat/error", "chat/turnCancelled")
    return [a["type"] for a in actions if a["type"] in kinds]


async def started(driver: Driver, factory: str, **create: Any) -> Any:
    await driver.load(f"fixture_turns:{factory}")
    return await driver.create(**create)


# -- turns ------------------------------------------------------------------------------


async def test_the_return_of_an_async_begin_completes_the_turn() -> None:
    async with worker() as driver:
        await started(driver, "manners")
        ident = await driver.send(
            "turn.begin",
            {"turnId": "t1", "text": "told", "model": "m1", "message": {"text": "told", "x": 1}},
        )
        await driver.over("t1")
        actions = driver.actions("chat")
        assert json.loads(said(actions)) == {"model": "m1", "message": {"text": "told", "x": 1}}
        assert endings(actions) == ["chat/turnComplete"]
        assert actions[-1]["turnId"] == "t1"
        assert isinstance(actions[-1]["duration"], int)
        # The answer comes before the first thing the turn says.
        answered = driver.index(lambda f: isinstance(f, Success) and f.id == ident)
        assert answered < driver.index(lambda f: isinstance(f, Event) and f.event == "agent.emit")


async def test_an_ending_of_the_agents_own_is_the_only_one() -> None:
    async with worker() as driver:
        await started(driver, "manners")
        assert endings(await driver.turn("t1", "ends_itself")) == ["chat/turnComplete"]


async def test_an_exception_ends_the_turn_with_an_error_and_a_traceback_in_the_log() -> None:
    async with worker() as driver:
        await started(driver, "manners")
        actions = await driver.turn("t1", "raises")
        assert actions == [
            {
                "type": "chat/error",
                "turnId": "t1",
                "duration": actions[0]["duration"],
                "part": {
                    "kind": "error",
                    "error": {"errorType": "ValueError", "message": "the model is out"},
                },
            }
        ]
        # And the next turn is served.
        assert endings(await driver.turn("t2", "told")) == ["chat/turnComplete"]
        await driver.ask("session.close")
        await driver.ended()
        assert b"Traceback" in driver.stderr
        assert b"ValueError: the model is out" in driver.stderr


async def test_a_group_of_exceptions_is_told_in_words() -> None:
    async with worker() as driver:
        await started(driver, "manners")
        (ending,) = await driver.turn("t1", "raises_a_group")
        error = ending["part"]["error"]
        assert error["errorType"] in ("KeyError", "OSError")
        assert "KeyError: 'first'" in error["message"]
        assert "OSError: second" in error["message"]


async def test_cancelling_an_async_turn_cancels_its_task_and_ends_nothing() -> None:
    async with worker() as driver:
        await started(driver, "manners")
        for turn_id, text in (("t1", "waits"), ("t2", "raises_when_cancelled")):
            await driver.begin(turn_id, text)
            await driver.action("chat/responsePart", turnId=turn_id)
            assert (await driver.ask("turn.cancel", turnId=turn_id))["accepted"] is True
            await driver.over(turn_id)
        assert endings(driver.actions("chat")) == []
        assert driver.events("worker.ruleBroken") == []
        again = await driver.ask("turn.cancel", turnId="t2")
        assert again["accepted"] is False


async def test_a_turn_that_waits_after_a_cancel_breaks_a_rule_by_name() -> None:
    async with worker() as driver:
        await started(driver, "manners")
        await driver.begin("t1", "waits_in_vain")
        await driver.action("chat/toolCallReady")
        await driver.ask("turn.cancel", turnId="t1")
        broken = await driver.event("worker.ruleBroken")
        assert broken["rule"] == "parked-settles"
        assert "t1" in broken["detail"]
        assert "stuck" in broken["detail"]
        assert driver.events("turn.over") == []
        # Closing it breaks the rule again, and the worker leaves all the same.
        await driver.ask("session.close")
        assert await driver.ended() == 0


async def test_a_plain_begin_runs_in_its_own_ways() -> None:
    async with worker() as driver:
        created = await started(driver, "threads")
        assert created["agentId"] == "threads-1"
        actions = await driver.turn("t1", "now")
        assert said(actions) == "at once"
        assert endings(actions) == ["chat/turnComplete"]
        for turn_id, approved, outcome in (("t2", True, "allowed"), ("t3", False, "denied")):
            start = len(driver.frames)
            await driver.begin(turn_id, "wait")
            await driver.action("chat/toolCallReady", turnId=turn_id)
            taken = await driver.ask("request.confirm", toolCallId="c1", approved=approved)
            assert taken["accepted"] is True
            await driver.over(turn_id)
            assert said(driver.actions("chat", start)) == outcome
        late = await driver.ask("request.confirm", toolCallId="c1", approved=True)
        assert late["accepted"] is False


async def test_a_plain_begin_that_refuses_or_raises() -> None:
    async with worker() as driver:
        await started(driver, "threads")
        assert (await driver.begin("t1", "refuse"))["accepted"] is False
        actions = await driver.turn("t2", "raise")
        assert endings(actions) == ["chat/error"]
        assert actions[0]["part"]["error"]["errorType"] == "LookupError"
        assert endings(await driver.turn("t3", "now")) == ["chat/turnComplete"]


async def test_cancelling_a_plain_turn_is_over_when_the_agent_took_it() -> None:
    async with worker() as driver:
        await started(driver, "threads")
        await driver.begin("t1", "wait")
        await driver.action("chat/toolCallReady")
        assert (await driver.ask("turn.cancel", turnId="t1"))["accepted"] is True
        await driver.over("t1")
        await driver.action("chat/turnCancelled", turnId="t1")
        assert len(driver.events("turn.over")) == 1


async def test_the_agents_id_is_told_after_create_and_before_each_turn_is_over() -> None:
    async with worker() as driver:
        await started(driver, "threads")
        await driver.event("agent.id", agentId="threads-1")
        await driver.turn("t1", "now")
        names = [f.event for f in driver.frames if isinstance(f, Event)]
        assert names.count("agent.id") == 2
        assert names[-2:] == ["agent.id", "turn.over"]


async def test_an_agent_that_exits_takes_its_worker_with_it() -> None:
    async with worker() as driver:
        await started(driver, "manners")
        await driver.begin("t1", "exits")
        assert await driver.ended() == 3
        assert said(driver.actions("chat")) == "leaving"
        assert endings(driver.actions("chat")) == []


async def test_sigterm_ends_a_worker_even_in_mid_turn() -> None:
    async with worker() as driver:
        await started(driver, "manners")
        await driver.begin("t1", "waits")
        os.kill(driver.process.pid, signal.SIGTERM)
        assert await driver.ended() == -signal.SIGTERM


# -- the start --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("factory", "words"),
    [
        ("raises_in_create", "PermissionError: the licence has run out"),
        ("answers_no_session", "answered a NoneType, which has no `begin`"),
    ],
)
async def test_a_session_that_cannot_be_created_is_a_sentence(factory: str, words: str) -> None:
    async with worker() as driver:
        await driver.load(f"fixture_loading:{factory}")
        failure = await driver.refused(
            "session.create", uri="ahp-session:/s", chatUri=CHAT_URI, chatId="s"
        )
        assert failure.code == FAILURE_RAISED
        assert words in failure.message


async def test_exiting_in_create_is_the_workers_exit() -> None:
    async with worker() as driver:
        await driver.load("fixture_loading:exits_in_create")
        await driver.send(
            "session.create", {"uri": "ahp-session:/s", "chatUri": CHAT_URI, "chatId": "s"}
        )
        assert await driver.ended() == 3


async def test_a_working_folder_that_is_not_there_is_a_sentence(tmp_path: Path) -> None:
    async with worker() as driver:
        await driver.load("fixture_turns:manners")
        missing = str(tmp_path / "gone")
        failure = await driver.refused(
            "session.create", uri="u:/s", chatUri=CHAT_URI, chatId="s", workingDirectory=missing
        )
        assert missing in failure.message
        assert "No such file or directory" in failure.message


async def test_seeds_add_up_in_their_order() -> None:
    async with worker() as driver:
        await driver.load("fixture_turns:manners")
        for part in range(3):
            turns = [{"id": f"{part}-{n}", "pad": "x" * 200_000} for n in range(4)]
            await driver.ask("session.seed", turns=turns)
        await driver.create()
        assert json.loads(said(await driver.turn("t1", "seed"))) == [12, "0-0", "2-3"]
        assert (await driver.refused("session.seed", turns=[])).code == "bad-request"


async def test_what_the_session_says_of_itself_is_read_once_and_its_turns_travel_in_parts() -> None:
    async with worker() as driver:
        await driver.load("fixture_turns:recorded")
        base = {"uri": "ahp-session:/s1", "chatUri": CHAT_URI, "chatId": "s1"}
        ident = await driver.send("session.create", base)
        answer = await driver.reply(ident)
        assert isinstance(answer, Success)
        created = answer.result
        assert created["title"] == "Recorded"
        assert created["models"] == [{"id": "m", "provider": "fixture", "name": "M"}]
        assert "steer" in created["members"]
        assert "cancel" not in created["members"]
        parts = [part["items"] for part in driver.events("worker.part") if part["id"] == ident]
        assert [turn["id"] for part in parts for turn in part] == [f"old{n}" for n in range(8)]
        assert len(parts) == 3
        # What went wrong is left out, and the log says why.
        assert "activity" not in created
        assert "workingDirectories" not in created
        await driver.ask("session.close")
        await driver.ended()
        assert b"no activity today" in driver.stderr
        assert b"`working_directories` answered a int, not a list" in driver.stderr


async def test_only_folders_that_somebody_named_are_trusted(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    async with worker() as driver:
        await driver.load("fixture_turns:manners")
        await driver.create(workingDirectory=str(tmp_path), trusted=[str(tmp_path)])
        assert json.loads(said(await driver.turn("t1", "trust"))) == [True, True, False, False]


# -- what is asked ----------------------------------------------------------------------


async def test_every_request_is_one_call_of_its_member() -> None:
    async with worker() as driver:
        await started(driver, "recorded")
        asked: list[tuple[str, dict[str, Any], list[Any]]] = [
            ("session.setConfig", {"key": "k", "value": 1}, ["set_config", "k", 1]),
            (
                "session.setWorkingDirectories",
                {"directories": ["/a"]},
                ["set_working_directories", ["/a"]],
            ),
            (
                "session.setCustomizationEnabled",
                {"id": "c", "enabled": False},
                ["set_customization_enabled", "c", False],
            ),
            ("session.startMcpServer", {"id": "m"}, ["start_mcp_server", "m"]),
            ("session.setTools", {"tools": [{"name": "t"}]}, ["set_tools", [{"name": "t"}]]),
            ("session.clientGone", {"clientId": "x"}, ["client_gone", "x"]),
            ("subagent.stop", {"toolCallId": "c"}, ["stop_worker", "c"]),
            (
                "request.confirm",
                {"toolCallId": "c", "approved": True, "optionId": "o", "editedInput": "e"},
                ["confirm", "c", True, "o", {"edited_input": "e", "result": False}],
            ),
            (
                "request.answer",
                {"requestId": "q", "accepted": True, "response": "accept", "answers": {"a": 1}},
                ["answer", "q", True, {"a": 1}, "accept"],
            ),
            (
                "request.setAnswer",
                {"requestId": "q", "questionId": "a", "answer": {"state": "draft"}},
                ["set_answer", "q", "a", {"state": "draft"}],
            ),
            (
                "tool.complete",
                {"toolCallId": "c", "clientId": "x", "result": {"success": True}},
                ["complete_tool_call", "c", "x", {"success": True}],
            ),
        ]
        for request, payload, called in asked:
            start = len(driver.frames)
            assert (await driver.ask(request, **payload)) == {"accepted": True}
            action = await driver.action("fixture/called", start, name=called[0])
            assert [action["name"], *action["given"]] == called
        steered = await driver.ask("turn.steer", id="s", text="left", message={})
        assert steered == {"accepted": False}
        items = await driver.ask("session.completions", kind="userMessage", text="a@", offset=2)
        assert items["items"] == [{"insertText": "userMessage:a@:2"}]


async def test_a_setter_refuses_with_false_or_a_sentence_and_with_nothing_else() -> None:
    async with worker() as driver:
        await started(driver, "recorded")
        for value, verdict in (
            ("no", {"accepted": False}),
            ("why", {"accepted": False, "reason": "not today"}),
            ("odd", {"accepted": True}),
            ("zero", {"accepted": True}),
            ("none", {"accepted": True}),
        ):
            assert await driver.ask("session.setConfig", key="k", value=value) == verdict


async def test_a_member_that_is_not_there_is_an_answer() -> None:
    async with worker() as driver:
        await started(driver, "manners")
        for request, payload in (
            ("session.setConfig", {"key": "k", "value": 1}),
            ("turn.steer", {"id": "s", "text": "x"}),
            ("turn.resume", {"turnId": "t"}),
            ("request.confirm", {"toolCallId": "c", "approved": True}),
            ("session.completions", {"kind": "userMessage", "text": "", "offset": 0}),
        ):
            assert (await driver.refused(request, **payload)).code == FAILURE_NO_MEMBER


async def test_members_start_in_the_order_they_were_asked_and_overtake_each_other() -> None:
    async with worker() as driver:
        await started(driver, "recorded")
        slow = await driver.send("session.setConfig", {"key": "slow", "value": 1})
        quick = [
            await driver.send("session.setConfig", {"key": f"k{n}", "value": n}) for n in range(5)
        ]
        for ident in (slow, *quick):
            await driver.reply(ident)
        starts = [
            action["given"][0]
            for action in driver.actions("session")
            if action["name"] == "set_config.starts"
        ]
        assert starts == ["slow", "k0", "k1", "k2", "k3", "k4"]
        replies = [f.id for f in driver.frames if isinstance(f, Success)]
        assert replies[-1] == slow


async def test_a_resumed_turn_is_over_when_it_ends() -> None:
    async with worker() as driver:
        await started(driver, "recorded")
        assert (await driver.ask("turn.resume", turnId="t1"))["accepted"] is True
        await driver.over("t1")


# -- what it says -----------------------------------------------------------------------


async def test_a_full_pipe_holds_the_agent_back_and_nothing_is_lost() -> None:
    count, size = 4000, 4096
    async with worker() as driver:
        await started(driver, "flood")
        driver.reading = False
        await driver.send("turn.begin", {"turnId": "t1", "text": f"{count} {size}"})
        held = await driver.full_pipe()
        before = resident_bytes(driver.process.pid)
        # A million bytes and more would pass in this time, were they not held back.
        await trio.sleep(0.3)
        assert driver.unread_bytes() == held
        assert resident_bytes(driver.process.pid) - before < 1024 * 1024
        driver.resume_reading()
        await driver.over("t1")
        deltas = [a["content"] for a in driver.actions("chat") if a["type"] == "chat/delta"]
        assert [int(text.split()[0]) for text in deltas] == list(range(count))
        assert not any(isinstance(frame, BadFrame) for frame in driver.frames)


def resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def test_threads_may_speak_and_no_line_is_torn() -> None:
    async with worker() as driver:
        await started(driver, "manners")
        actions = await driver.turn("t1", "in_a_thread")
        deltas = [a for a in actions if a["type"] == "chat/delta"]
        assert len(deltas) == 100
        assert endings(actions) == ["chat/turnComplete"]
        assert not any(isinstance(frame, BadFrame) for frame in driver.frames)


async def test_answers_do_not_tear_what_a_thread_is_saying() -> None:
    async with worker() as driver:
        await started(driver, "manners")
        await driver.begin("t1", "loud")
        asked = 0
        while not driver.events("turn.over"):
            await driver.refused("worker.dance")
            asked += 1
        assert asked > 1
        assert not any(isinstance(frame, BadFrame) for frame in driver.frames)
        deltas = [a for a in driver.actions("chat") if a["type"] == "chat/delta"]
        assert len(deltas) == 200


async def test_half_a_character_waits_for_its_other_half() -> None:
    async with worker() as driver:
        await started(driver, "manners")
        actions = await driver.turn("t1", "halves")
        deltas = [a["content"] for a in actions if a["type"] == "chat/delta"]
        # What never got its other half is replaced, and said before the turn ends.
        assert deltas == ["a", "\U0001f600b", "\U0001f601", "x", "\ufffd"]
        assert actions[-1]["type"] == "chat/turnComplete"


async def test_half_a_character_of_a_cancelled_turn_is_not_said_in_the_next() -> None:
    async with worker() as driver:
        await started(driver, "manners")
        await driver.begin("t1", "half_and_waits")
        await driver.action("chat/delta", content="y")
        await driver.ask("turn.cancel", turnId="t1")
        await driver.over("t1")
        actions = await driver.turn("t2", "told")
        assert {action["turnId"] for action in actions} == {"t2"}


async def test_what_cannot_be_said_raises_where_it_is_said() -> None:
    async with worker() as driver:
        await started(driver, "manners")
        actions = await driver.turn("t1", "unsayable")
        number, thing, deep, large, untyped, text = said(actions).splitlines()
        assert "the action chat/delta" in number
        assert "NaN" in number
        assert "object" in thing
        assert "nested deeper than 128" in deep
        assert "more than a frame holds" in large
        assert untyped.startswith("TypeError")
        assert text.startswith("TypeError")
        assert endings(actions) == ["chat/turnComplete"]
        assert not any(isinstance(frame, BadFrame) for frame in driver.frames)


async def test_what_an_agent_prints_stays_out_of_the_frames() -> None:
    async with worker() as driver:
        await started(driver, "manners")
        assert said(await driver.turn("t1", "prints")) == "printed"
        assert not any(isinstance(frame, BadFrame) for frame in driver.frames)
        assert [over["turnId"] for over in driver.events("turn.over")] == ["t1"]
        await driver.ask("session.close")
        await driver.ended()
        assert b'"event":"turn.over"' in driver.stdout
        assert b"\xff\xfe raw" in driver.stdout
        assert b"half a \\ud83d" in driver.stdout


async def test_a_subagent_chat_is_opened_once_for_a_tool_call() -> None:
    async with worker() as driver:
        await started(driver, "manners")
        actions = await driver.turn("t1", "starts_a_subagent")
        uri = chat_uri(subagent_chat_id("s1", "c1"))
        assert json.loads(said(actions)) == {"uri": uri, "same": True}
        assert driver.events("subagent.opened") == [
            {"toolCallId": "c1", "request": {"title": "Search", "text": "look"}}
        ]
        assert driver.actions(uri) == [{"type": "chat/activityChanged", "activity": "looking"}]


async def test_an_agent_tells_of_files_and_accounts_and_may_use_its_uris(tmp_path: Path) -> None:
    async with worker() as driver:
        await started(driver, "manners", workingDirectory=str(tmp_path))
        await driver.turn("t1", "tells")
        (edit,) = driver.events("agent.fileEdit")
        assert edit == {
            "turnId": "t1",
            "path": str(tmp_path / "notes/a.txt"),
            "phase": "before",
        }
        assert driver.events("agent.account") == [{"account": {"label": "someone"}}]
        assert driver.actions("session") == [{"type": "session/titleChanged", "title": "By URI"}]


# -- the end ----------------------------------------------------------------------------


async def test_close_tells_the_session_answers_and_leaves() -> None:
    async with worker() as driver:
        await started(driver, "recorded")
        assert await driver.ask("session.close", removing=True) == {}
        assert await driver.ended() == 0
        last = driver.actions("session")[-1]
        assert (last["name"], last["given"]) == ("close", [True])


async def test_close_cancels_a_running_turn_without_ending_it() -> None:
    async with worker() as driver:
        await started(driver, "manners")
        await driver.begin("t1", "waits")
        await driver.action("chat/responsePart")
        await driver.ask("session.close")
        assert await driver.ended() == 0
        assert endings(driver.actions("chat")) == []


async def test_a_worker_leaves_although_its_agent_left_a_thread() -> None:
    async with worker() as driver:
        await started(driver, "stays")
        await driver.turn("t1", "stay")
        await driver.ask("session.close")
        assert await driver.ended() == 0


async def test_a_worker_whose_host_is_gone_leaves_quietly() -> None:
    async with worker() as driver:
        await started(driver, "manners")
        await driver.begin("t1", "waits")
        await driver.hang_up()
        assert await driver.ended() == 0
        assert driver.stderr == b""


async def test_an_agent_whose_host_is_gone_can_still_tidy_up(tmp_path: Path) -> None:
    async with worker() as driver:
        await started(driver, "manners", workingDirectory=str(tmp_path))
        await driver.begin("t1", "tidies_up")
        await driver.action("chat/responsePart")
        await driver.stop_listening()
        await driver.hang_up()
        assert await driver.ended() == 0
        assert driver.stderr == b""
    assert (tmp_path / "tidied").exists()


async def test_a_worker_without_an_agent_can_be_closed() -> None:
    async with worker() as driver:
        await driver.ask("session.close")
        assert await driver.ended() == 0


async def test_a_worker_that_nobody_reads_any_more_leaves_quietly() -> None:
    async with worker() as driver:
        await started(driver, "flood")
        await driver.stop_listening()
        await driver.send("turn.begin", {"turnId": "t1", "text": "1000 1000"})
        assert await driver.ended() == 0
        assert driver.stderr == b""
