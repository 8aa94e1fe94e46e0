"""What a typed line says to what is asked, and how a chat is written to a terminal."""

import unicodedata
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ahpd.contracts.ahp.actions import check_action
from ahpd.contracts.ahp.reducers import reduce_chat
from ahpd.supervisor.cli.answers import Approval, Asking, NotAnAnswer, Questions
from ahpd.supervisor.cli.output import (
    age,
    cells,
    on_one_line,
    printable,
    shortened,
    size,
    table,
)
from ahpd.supervisor.cli.transcript import Transcript

Json = dict[str, Any]

CALL: Json = {
    "toolCallId": "c1",
    "toolName": "write",
    "displayName": "Write",
    "invocationMessage": {"markdown": "Write it"},
    "status": "pending-confirmation",
    "toolInput": "{}",
}
OPTIONS = [
    {"id": "once", "label": "Once", "kind": "approve"},
    {"id": "no", "label": "Never", "kind": "deny"},
]
SELECT: Json = {
    "id": "q",
    "kind": "single-select",
    "message": "Which?",
    "options": [{"id": "r", "label": "Red"}, {"id": "2", "label": "Two"}],
}


def answered(asking: Asking, *lines: str) -> Json:
    """The action after these lines, which the protocol's own check lets pass."""
    for line in lines[:-1]:
        assert asking.take(line) is None
    action = asking.take(lines[-1])
    assert action is not None
    assert check_action(action) is None
    return action


@pytest.mark.parametrize(
    ("line", "options", "says"),
    [
        ("y", [], {"approved": True, "confirmed": "user-action"}),
        (" YES ", [], {"approved": True, "confirmed": "user-action"}),
        ("n", [], {"approved": False, "reason": "denied"}),
        (
            "1",
            OPTIONS,
            {"approved": True, "confirmed": "user-action", "selectedOptionId": "once"},
        ),
        ("2", OPTIONS, {"approved": False, "reason": "denied", "selectedOptionId": "no"}),
        ("no", OPTIONS, {"approved": False, "reason": "denied"}),
    ],
)
def test_an_approval_is_a_word_or_a_number(line: str, options: list[Json], says: Json) -> None:
    action = answered(Approval("t1", {**CALL, "options": options}), line)
    assert action == {
        "type": "chat/toolCallConfirmed", "turnId": "t1", "toolCallId": "c1", **says
    }  # fmt: skip


@pytest.mark.parametrize("line", ["", "maybe", "0", "3", "yes please", "1.0"])
def test_what_is_neither_yes_nor_no_approves_nothing(line: str) -> None:
    with pytest.raises(NotAnAnswer):
        Approval("t1", {**CALL, "options": OPTIONS}).take(line)


def test_a_result_that_waits_is_answered_as_one() -> None:
    call = {**CALL, "status": "pending-result-confirmation", "pastTenseMessage": "Wrote it"}
    asking = Approval("t1", call)
    assert asking.text == "[Write] Wrote it"
    assert answered(asking, "y") == {
        "type": "chat/toolCallResultConfirmed",
        "turnId": "t1",
        "toolCallId": "c1",
        "approved": True,
    }


@pytest.mark.parametrize(
    ("question", "line", "answer"),
    [
        (SELECT, "1", {"kind": "selected", "value": "r"}),
        (SELECT, "Red", {"kind": "selected", "value": "r"}),
        # An id that looks like a number is meant before the number.
        (SELECT, "2", {"kind": "selected", "value": "2"}),
        (
            {**SELECT, "allowFreeformInput": True},
            "blue",
            {"kind": "selected", "value": "", "freeformValues": ["blue"]},
        ),
        (
            {**SELECT, "kind": "multi-select"},
            "2, 1,2",
            {"kind": "selected-many", "value": ["2", "r"]},
        ),
        (
            {**SELECT, "kind": "multi-select", "allowFreeformInput": True},
            "1, blue",
            {"kind": "selected-many", "value": ["r"], "freeformValues": ["blue"]},
        ),
        ({"id": "q", "kind": "boolean", "message": "?"}, "y", {"kind": "boolean", "value": True}),
        ({"id": "q", "kind": "integer", "message": "?"}, "7", {"kind": "number", "value": 7}),
        ({"id": "q", "kind": "number", "message": "?"}, "7.5", {"kind": "number", "value": 7.5}),
        ({"id": "q", "kind": "text", "message": "?"}, "words", {"kind": "text", "value": "words"}),
        (
            {"id": "q", "kind": "integer", "message": "?", "defaultValue": 3},
            "",
            {"kind": "number", "value": 3},
        ),
    ],
)
def test_a_question_takes_a_line(question: Json, line: str, answer: Json) -> None:
    action = answered(Questions({"id": "r1", "questions": [question]}), line)
    assert action["response"] == "accept"
    assert action["answers"] == {"q": {"state": "submitted", "value": answer}}


@pytest.mark.parametrize(
    ("question", "line"),
    [
        (SELECT, "3"),
        (SELECT, "blue"),
        ({**SELECT, "kind": "multi-select"}, "1, blue"),
        ({**SELECT, "kind": "multi-select", "max": 1}, "1,2"),
        ({"id": "q", "kind": "boolean", "message": "?"}, "perhaps"),
        ({"id": "q", "kind": "integer", "message": "?"}, "7.5"),
        ({"id": "q", "kind": "integer", "message": "?", "min": 1}, "0"),
        ({"id": "q", "kind": "number", "message": "?"}, "nan"),
        ({"id": "q", "kind": "text", "message": "?", "min": 3}, "ab"),
        ({"id": "q", "kind": "text", "message": "?", "required": True}, " "),
    ],
)
def test_a_line_that_does_not_fit_is_asked_again(question: Json, line: str) -> None:
    asking = Questions({"id": "r1", "questions": [question]})
    with pytest.raises(NotAnAnswer):
        asking.take(line)
    assert asking.take("/decline") == {
        "type": "chat/inputCompleted",
        "requestId": "r1",
        "response": "decline",
    }


def test_questions_come_one_after_the_other_and_an_optional_one_is_skipped() -> None:
    text = {"id": "a", "kind": "text", "message": "Why?"}
    asking = Questions({"id": "r1", "message": "Two things", "questions": [text, SELECT]})
    assert asking.text == "Two things"
    assert asking.prompt == "Why? (text; nothing to skip it) "
    assert asking.take("") is None
    assert asking.prompt.splitlines()[:2] == ["  1) Red", "  2) Two"]
    action = answered(asking, "1")
    assert action["answers"]["a"] == {"state": "skipped"}


def test_a_request_without_questions_is_a_yes_or_a_no() -> None:
    asking = Questions({"id": "r1", "message": "Log in", "url": "https://example.org/"})
    assert asking.text == "Log in\n  https://example.org/"
    with pytest.raises(NotAnAnswer):
        asking.take("perhaps")
    assert answered(asking, "n")["response"] == "decline"


# -- the transcript -----------------------------------------------------------------------


class Screen:
    """What a transcript wrote, and the chat it writes."""

    def __init__(self) -> None:
        self.text = ""
        self.transcript = Transcript(self._write, styled=False)
        self.state: Json = {"turns": [], "status": 1, "modifiedAt": ""}

    def _write(self, text: str) -> None:
        self.text += text

    def say(self, kind: str, **fields: Any) -> None:
        self.state = reduce_chat(self.state, {"type": kind, **fields})
        self.transcript.show(self.state)

    def start(self, turn_id: str = "t1", text: str = "hello") -> None:
        message = {"text": text, "origin": {"kind": "user"}}
        self.say(
            "chat/turnStarted", turnId=turn_id, startedAt="2026-10-01T00:00:00Z", message=message
        )

    def part(self, ident: str, content: str, kind: str = "markdown") -> None:
        part = {"kind": kind, "id": ident, "content": content}
        self.say("chat/responsePart", turnId="t1", part=part)

    def delta(self, ident: str, content: str) -> None:
        self.say("chat/delta", turnId="t1", partId=ident, content=content)


def test_streamed_text_is_written_once_as_it_comes() -> None:
    screen = Screen()
    screen.start()
    screen.part("p1", "one")
    screen.delta("p1", " two\nthree")
    screen.transcript.show(screen.state)
    screen.say("chat/turnComplete", turnId="t1", duration=1)
    screen.transcript.show(screen.state)
    assert screen.text == "> hello\none two\nthree\n"


def test_parts_do_not_run_into_each_other() -> None:
    screen = Screen()
    screen.start()
    screen.part("r", "hmm", kind="reasoning")
    screen.part("p1", "one")
    call = {"turnId": "t1", "toolCallId": "c1"}
    screen.say("chat/toolCallStart", **call, toolName="w", displayName="Write")
    screen.say("chat/toolCallReady", **call, invocationMessage="Write it", confirmed="not-needed")
    screen.delta("p1", " more")
    result = {"success": True, "pastTenseMessage": "Wrote it"}
    screen.say("chat/toolCallComplete", **call, result=result)
    screen.say("chat/turnCancelled", turnId="t1", duration=1)
    assert screen.text.splitlines() == [
        "> hello",
        "(thinking) hmm",
        "one",
        "[Write] Write it",
        " more",
        "  -> Wrote it",
        "(cancelled)",
    ]


def test_a_failed_turn_says_why_and_what_was_typed_is_not_said_again() -> None:
    screen = Screen()
    screen.transcript.typed_turns.add("t1")
    screen.start()
    part = {"kind": "error", "error": {"errorType": "e", "message": "the key is missing"}}
    screen.say("chat/error", turnId="t1", duration=1, part=part)
    screen.start("t2", "again")
    assert screen.text == "error: the key is missing\n> again\n"


def test_a_prompt_is_written_again_only_after_something_else() -> None:
    screen = Screen()
    screen.transcript.prompt("> ")
    screen.transcript.prompt("> ")
    screen.start()
    screen.transcript.prompt("> ")
    screen.transcript.typed("words")
    assert screen.text == "> \n> hello\n> words\n"


@given(st.text())
def test_no_text_of_an_agent_can_drive_the_terminal(text: str) -> None:
    screen = Screen()
    screen.start(text=text)
    screen.part("p1", text)
    screen.part("p2", text, kind="reasoning")
    part = {"kind": "error", "error": {"errorType": "e", "message": text}}
    screen.say("chat/error", turnId="t1", duration=1, part=part)
    controls = {char for char in screen.text if unicodedata.category(char) == "Cc"}
    assert controls <= {"\n", "\t"}
    assert not set(screen.text) & set("\u200f\u202e\u2028\u2066")


# -- output -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bytes_", "said"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (58_123_456, "58.1 MB"), (3e14, "300 TB")],
)
def test_sizes_are_readable(bytes_: int, said: str) -> None:
    assert size(int(bytes_)) == said


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (-1, "0 s"),
        (0.9, "0 s"),
        (59, "59 s"),
        (200, "3 m 20 s"),
        (7200, "2 h"),
        (7230, "2 h"),
        (187_200, "2 d 4 h"),
    ],
)
def test_ages_are_readable(seconds: float, said: str) -> None:
    assert age(seconds) == said


def test_columns_are_aligned_by_cells() -> None:
    said = table(("A", "B"), [("漢字", "1"), ("e\u0301", "22")], right=[1])
    assert said.split("\n") == ["A      B", "漢字   1", "e\u0301     22"]


def test_text_is_cut_to_its_cells() -> None:
    assert on_one_line("one\n two\tthree", 8) == "one two…"
    assert cells(on_one_line("漢字漢字", 5)) <= 5
    assert printable("a\x1b[31m\r\nb") == "a\ufffd[31m\nb"


@given(st.lists(st.text(alphabet="ab", min_size=1, max_size=40), max_size=8))
def test_a_shortened_id_names_one_of_those_shown(ids: list[str]) -> None:
    short = shortened(ids)
    for id in ids:
        meant = [other for other in set(ids) if other.startswith(short[id])]
        assert id.startswith(short[id])
        assert meant == [id] or short[id] == id
