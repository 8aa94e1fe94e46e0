"""Echo and notes, each in a real worker, seen as a client sees them: through the chat's reducer."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from ahpd.contracts.ahp.reducers import reduce_chat
from ahpd.contracts.frames import Event
from worker_driver import CHAT_URI, Driver, worker


class Client:
    """A client's view of the chat: the host's own actions and the agent's, reduced in order."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self.state: Any = {
            "resource": CHAT_URI,
            "title": "",
            "status": 1,
            "modifiedAt": "2026-01-01T00:00:00.000Z",
            "turns": [],
        }
        self._read = 0

    def dispatch(self, action: dict[str, Any]) -> None:
        """An action that the host takes: it must change something."""
        after = reduce_chat(self.state, action)
        assert after is not self.state, action
        self.state = after

    def catch_up(self) -> None:
        """Reduces what the agent said since; each of its actions must change something."""
        frames, self._read = self.driver.frames[self._read :], len(self.driver.frames)
        for frame in frames:
            if not isinstance(frame, Event) or frame.event != "agent.emit":
                continue
            if frame.payload["channel"] == "chat":
                self.dispatch(frame.payload["action"])

    async def begin(self, turn_id: str, text: str) -> None:
        message = {"text": text, "origin": {"kind": "user"}}
        started = "2026-01-01T00:00:00.000Z"
        self.catch_up()
        self.dispatch(
            {
                "type": "chat/turnStarted",
                "turnId": turn_id,
                "startedAt": started,
                "message": message,
            }
        )
        assert (await self.driver.begin(turn_id, text, message=message))["accepted"] is True

    async def turn(self, turn_id: str, text: str) -> list[Any]:
        """A turn that asks nothing: its response parts once it is over."""
        await self.begin(turn_id, text)
        return await self.finish(turn_id)

    async def finish(self, turn_id: str) -> list[Any]:
        await self.driver.over(turn_id)
        self.catch_up()
        assert "activeTurn" not in self.state
        turn = self.state["turns"][-1]
        assert turn["id"] == turn_id
        assert turn["state"] == "complete"
        parts: list[Any] = turn["responseParts"]
        return parts

    async def waiting_call(self, start: int = 0, **fields: Any) -> str:
        """The id of the next tool call that waits to be allowed."""
        ready = await self.driver.action("chat/toolCallReady", start, **fields)
        self.catch_up()
        assert "confirmed" not in ready
        return str(ready["toolCallId"])

    async def confirm(self, turn_id: str, call_id: str, approved: bool) -> None:
        action = {"type": "chat/toolCallConfirmed", "turnId": turn_id, "toolCallId": call_id}
        said = (
            {"approved": True, "confirmed": "user-action"}
            if approved
            else {"approved": False, "reason": "denied"}
        )
        self.catch_up()
        self.dispatch({**action, **said})
        taken = await self.driver.ask("request.confirm", toolCallId=call_id, approved=approved)
        assert taken == {"accepted": True}

    async def answer(self, request_id: str, response: str, answers: dict[str, Any]) -> Any:
        action = {"type": "chat/inputCompleted", "requestId": request_id, "response": response}
        self.catch_up()
        self.dispatch({**action, **({"answers": answers} if answers else {})})
        return await self.driver.ask(
            "request.answer", requestId=request_id, accepted=response == "accept",
            response=response, answers=answers,
        )  # fmt: skip


async def echoing(driver: Driver, delay_ms: float = 0, **create: Any) -> Client:
    await driver.load("ahpd.agents.echo:create", delay_ms=delay_ms)
    await driver.create(**create)
    return Client(driver)


async def noting(driver: Driver, folder: Path | None, **create: Any) -> Client:
    await driver.load("ahpd.agents.notes:create")
    extra = {} if folder is None else {"workingDirectory": str(folder)}
    await driver.create(**extra, **create)
    return Client(driver)


def text_of(parts: list[Any]) -> str:
    return "\n".join(part["content"] for part in parts if part["kind"] == "markdown")


def calls_of(parts: list[Any]) -> list[Any]:
    return [part["toolCall"] for part in parts if part["kind"] == "toolCall"]


def files_in(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))


def selected(value: str, *free: str) -> dict[str, Any]:
    chosen: dict[str, Any] = {"kind": "selected", "value": value}
    if free:
        chosen["freeformValues"] = list(free)
    return {"state": "submitted", "value": chosen}


def typed(value: str) -> dict[str, Any]:
    return {"state": "submitted", "value": {"kind": "text", "value": value}}


# -- echo -------------------------------------------------------------------------------


async def test_echo_streams_its_message_back_word_by_word() -> None:
    async with worker() as driver:
        client = await echoing(driver)
        message = "  one two\n\n three \U0001f600  "
        parts = await client.turn("t1", message)
        assert parts == [{"kind": "markdown", "id": "t1-said", "content": message}]
        deltas = [a for a in driver.actions("chat") if a["type"] == "chat/delta"]
        assert len(deltas) == 4


@pytest.mark.parametrize(
    ("voice", "said"), [("plain", "Hi you"), ("shouty", "HI YOU"), ("backwards", "uoy iH")]
)
async def test_echo_has_three_voices(voice: str, said: str) -> None:
    async with worker() as driver:
        client = await echoing(driver, settings={"voice": voice})
        assert text_of(await client.turn("t1", "Hi you")) == said


async def test_echos_voice_can_change_and_what_is_no_voice_is_refused() -> None:
    async with worker() as driver:
        client = await echoing(driver)
        assert await driver.ask("session.setConfig", key="voice", value="shouty") == {
            "accepted": True
        }
        for key, value in (("voice", "loud"), ("voice", 5), ("voice", ["plain"]), ("pitch", 1)):
            refusal = await driver.ask("session.setConfig", key=key, value=value)
            assert refusal["accepted"] is False
            assert refusal["reason"]
        assert text_of(await client.turn("t1", "hi")) == "HI"


async def test_echo_knows_the_turns_before_in_a_new_process() -> None:
    before = [
        {"id": "a", "message": {"text": "the first"}, "responseParts": []},
        {"id": "b", "message": {"text": "the second"}, "responseParts": []},
        {"id": "c", "message": {"text": "Again "}, "responseParts": []},
    ]
    async with worker() as driver:
        await driver.load("ahpd.agents.echo:create", delay_ms=0)
        await driver.ask("session.seed", turns=before)
        created = await driver.create(resume="echo:earlier")
        assert created["agentId"] == "echo:earlier"
        client = Client(driver)
        assert text_of(await client.turn("t1", "again")) == "the second"
        await client.turn("t2", "a third")
        assert text_of(await client.turn("t3", "AGAIN")) == "a third"
        assert driver.actions("session") == []


async def test_echo_answers_even_where_there_is_nothing_to_say() -> None:
    async with worker() as driver:
        client = await echoing(driver)
        assert text_of(await client.turn("t1", "again")) == "Nothing was said before."
        assert text_of(await client.turn("t2", "  \n")) == "You said nothing."


async def test_echo_gives_its_conversation_a_title_once() -> None:
    async with worker() as driver:
        client = await echoing(driver)
        await client.turn("t1", "What  a\nday " + "x" * 100)
        await client.turn("t2", "other")
        (titled,) = driver.actions("session")
        assert titled["title"].startswith("What a day xxx")
        assert len(titled["title"]) == 60


async def test_echo_is_cancelled_between_two_words() -> None:
    async with worker() as driver:
        client = await echoing(driver, delay_ms=10_000)
        await client.begin("t1", "one two")
        await driver.action("chat/delta")
        await driver.ask("turn.cancel", turnId="t1")
        await driver.over("t1")
        client.catch_up()
        assert client.state["activeTurn"]["responseParts"][0]["content"] == "one "


# -- notes ------------------------------------------------------------------------------


async def test_writing_a_note_waits_to_be_allowed_and_reading_does_not(tmp_path: Path) -> None:
    async with worker() as driver:
        client = await noting(driver, tmp_path)
        await client.begin("t1", "write todo buy  milk")
        call_id = await client.waiting_call()
        assert not (tmp_path / "todo").exists()
        waiting = client.state["activeTurn"]["responseParts"][0]["toolCall"]
        assert waiting["status"] == "pending-confirmation"
        assert waiting["toolName"] == "write_note"
        assert waiting["confirmationTitle"] == "Write the note todo?"
        assert json.loads(waiting["toolInput"]) == {"name": "todo", "text": "buy  milk"}
        await client.confirm("t1", call_id, approved=True)
        parts = await client.finish("t1")
        (call,) = calls_of(parts)
        assert (call["status"], call["success"]) == ("completed", True)
        assert call["pastTenseMessage"] == "Wrote todo"
        assert (tmp_path / "todo").read_text() == "buy  milk\n"

        parts = await client.turn("t2", "read todo")
        assert text_of(parts) == "buy  milk"
        (call,) = calls_of(parts)
        assert call["content"] == [{"type": "text", "text": "buy  milk"}]
        assert call["confirmed"] == "not-needed"


async def test_a_note_that_is_not_allowed_is_not_written(tmp_path: Path) -> None:
    async with worker() as driver:
        client = await noting(driver, tmp_path)
        await client.begin("t1", "write todo x")
        await client.confirm("t1", await client.waiting_call(), approved=False)
        parts = await client.finish("t1")
        assert calls_of(parts)[0]["status"] == "cancelled"
        assert "Not allowed" in text_of(parts)
        assert files_in(tmp_path) == []


async def test_asking_can_be_always_or_never(tmp_path: Path) -> None:
    async with worker() as driver:
        client = await noting(driver, tmp_path, settings={"ask": "never"})
        parts = await client.turn("t1", "write todo x")
        assert calls_of(parts)[0]["status"] == "completed"
        assert (tmp_path / "todo").read_text() == "x\n"
        assert (await driver.ask("session.setConfig", key="ask", value="always"))["accepted"]
        start = len(driver.frames)
        await client.begin("t2", "read todo")
        await client.confirm("t2", await client.waiting_call(start), approved=True)
        assert text_of(await client.finish("t2")) == "x"
        for key, value in (("ask", "sometimes"), ("ask", None), ("other", "never")):
            refusal = await driver.ask("session.setConfig", key=key, value=value)
            assert refusal["accepted"] is False
            assert refusal["reason"]


async def test_two_calls_that_wait_at_once_are_answered_each_by_its_id(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("first\n")
    (tmp_path / "b").write_text("second\n")
    async with worker() as driver:
        client = await noting(driver, tmp_path, settings={"ask": "always"})
        await client.begin("t1", "read a b")
        first = await client.waiting_call(invocationMessage="Read the note a")
        second = await client.waiting_call(invocationMessage="Read the note b")
        assert first != second
        await client.confirm("t1", second, approved=True)
        await driver.action("chat/toolCallComplete", toolCallId=second)
        await client.confirm("t1", first, approved=False)
        parts = await client.finish("t1")
        assert [call["status"] for call in calls_of(parts)] == ["cancelled", "completed"]
        assert "second" in text_of(parts)
        assert "first" not in text_of(parts)


async def test_a_missing_name_is_asked_for_with_the_notes_that_are_there(tmp_path: Path) -> None:
    for name in ("b", "a", ".hidden", "no name"):
        (tmp_path / name).write_text(f"note {name}\n")
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("a")
    async with worker() as driver:
        client = await noting(driver, tmp_path)
        for turn_id, answers, said in (
            ("t1", {"name": selected("b")}, "note b"),
            ("t2", {"name": selected("", "a")}, "note a"),
            ("t3", {"name": typed("a")}, "note a"),
        ):
            start = len(driver.frames)
            await client.begin(turn_id, "read")
            request = (await driver.action("chat/inputRequested", start))["request"]
            (question,) = request["questions"]
            assert question["kind"] == "single-select"
            assert question["allowFreeformInput"] is True
            assert [option["id"] for option in question["options"]] == ["a", "b"]
            assert await client.answer(request["id"], "accept", answers) == {"accepted": True}
            assert text_of(await client.finish(turn_id)) == said
            late = await driver.ask(
                "request.answer", requestId=request["id"], accepted=True, response="accept"
            )
            assert late["accepted"] is False


async def test_write_alone_asks_for_the_name_and_the_text(tmp_path: Path) -> None:
    async with worker() as driver:
        client = await noting(driver, tmp_path)
        await client.begin("t1", "write")
        request = (await driver.action("chat/inputRequested"))["request"]
        assert [question["id"] for question in request["questions"]] == ["name", "text"]
        await client.answer(
            request["id"], "accept", {"name": selected("", "todo"), "text": typed("buy milk")}
        )
        await client.confirm("t1", await client.waiting_call(), approved=True)
        await client.finish("t1")
        assert (tmp_path / "todo").read_text() == "buy milk\n"


@pytest.mark.parametrize("response", ["decline", "cancel"])
async def test_a_question_that_is_not_answered_does_nothing(tmp_path: Path, response: str) -> None:
    async with worker() as driver:
        client = await noting(driver, tmp_path)
        await client.begin("t1", "read")
        request = (await driver.action("chat/inputRequested"))["request"]
        await client.answer(request["id"], response, {})
        parts = await client.finish("t1")
        assert text_of(parts) == "Then I read nothing."
        assert calls_of(parts) == []


@pytest.mark.parametrize("name", ["..", ".", "../x", "/etc/passwd", "a/b", "a\\b", "ü", "a\x00b"])
async def test_a_name_is_never_a_path(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "notes"
    folder.mkdir()
    (tmp_path / "x").write_text("outside")
    async with worker() as driver:
        client = await noting(driver, folder, settings={"ask": "never"})
        for turn_id, text in (("t1", f"read {name}"), ("t2", f"write {name} text")):
            parts = await client.turn(turn_id, text)
            assert calls_of(parts) == []
            assert "That is no name for a note" in text_of(parts)
        await client.begin("t3", "read")
        request = (await driver.action("chat/inputRequested"))["request"]
        await client.answer(request["id"], "accept", {"name": selected("", name)})
        assert "That is no name for a note" in text_of(await client.finish("t3"))
    assert (tmp_path / "x").read_text() == "outside"
    assert files_in(folder) == []


async def test_nothing_but_a_plain_file_is_a_note(tmp_path: Path) -> None:
    folder = tmp_path / "notes"
    folder.mkdir()
    (tmp_path / "secret").write_text("outside")
    (folder / "link").symlink_to(tmp_path / "secret")
    (folder / "folder").mkdir()
    os.mkfifo(folder / "pipe")
    async with worker() as driver:
        client = await noting(driver, folder, settings={"ask": "never"})
        for number, name in enumerate(("link", "folder", "pipe", "missing")):
            parts = await client.turn(f"r{number}", f"read {name}")
            (call,) = calls_of(parts)
            assert call["success"] is False
            assert call["error"]["message"]
            assert "outside" not in json.dumps(parts)
            if name == "missing":
                assert text_of(parts) == "There is no note missing."
            else:
                (call,) = calls_of(await client.turn(f"w{number}", f"write {name} x"))
                assert call["success"] is False
    assert (tmp_path / "secret").read_text() == "outside"


async def test_other_words_get_help_and_a_missing_folder_is_said() -> None:
    async with worker() as driver:
        await driver.load("ahpd.agents.notes:create")
        await driver.create()
        client = Client(driver)
        assert "no folder" in text_of(await client.turn("t1", "read todo"))


async def test_other_words_get_a_line_of_help(tmp_path: Path) -> None:
    async with worker() as driver:
        client = await noting(driver, tmp_path)
        for turn_id, text in (("t1", "hello"), ("t2", ""), ("t3", "readtodo")):
            said = text_of(await client.turn(turn_id, text))
            assert "`write <name> <text>`" in said
            assert "\n" not in said


async def test_the_option_folder_goes_before_the_sessions_and_is_made_when_missing(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "kept" / "here"
    session = tmp_path / "session"
    session.mkdir()
    async with worker() as driver:
        await driver.load("ahpd.agents.notes:create", folder=str(folder))
        await driver.create(workingDirectory=str(session), settings={"ask": "never"})
        client = Client(driver)
        await client.turn("t1", "write todo x")
        assert (folder / "todo").read_text() == "x\n"
        assert files_in(session) == []


@pytest.mark.parametrize("text", ["write todo x", "read"])
async def test_cancel_and_close_settle_what_waits(tmp_path: Path, text: str) -> None:
    async with worker() as driver:
        client = await noting(driver, tmp_path)
        opened = "chat/inputRequested" if text == "read" else "chat/toolCallReady"
        await client.begin("t1", text)
        await driver.action(opened)
        await driver.ask("turn.cancel", turnId="t1")
        await driver.over("t1")
        start = len(driver.frames)
        client.catch_up()
        client.dispatch({"type": "chat/turnCancelled", "turnId": "t1", "duration": 1})
        await client.begin("t2", text)
        await driver.action(opened, start)
        await driver.ask("session.close")
        assert await driver.ended() == 0
        assert driver.events("worker.ruleBroken") == []
        kinds = [action["type"] for action in driver.actions("chat")]
        assert "chat/turnComplete" not in kinds
    assert files_in(tmp_path) == []
