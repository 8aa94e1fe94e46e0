"""What a client of one wire says, in the other's words: messages, decisions, answers."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ahpd.contracts.ahp.actions import check_action
from ahpd.contracts.chats import Attachment
from ahpd.contracts.chats.names import MESSAGE_META_KEY as META_KEY
from ahpd.supervisor.wires.chats.messages import Extras, extras_of, message_of
from ahpd.supervisor.wires.chats.words import (
    AnswerFault,
    answers_of,
    confirmation_of,
    file_uri,
    milliseconds,
    path_of,
    questions_of,
    texts_of,
)

KEPT = Attachment(id="a1", name="b c.png", mime="image/png", size=3, path="/store/b c.png")
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)


def test_times_and_paths() -> None:
    assert milliseconds("2026-10-01T00:00:00.250Z") == 1_790_812_800_250
    assert [milliseconds(bad) for bad in ("", "2026", "2026-10-01T00:00:00", 5, None)] == [None] * 5
    assert path_of("file:///a%20b") == "/a b"
    assert path_of("https://x/y") == "https://x/y"
    assert path_of("http://[") == "http://["
    assert path_of(None) == ""


@given(st.text(st.characters(exclude_categories=["Cs"])).map(lambda text: "/" + text))
def test_a_path_survives_its_uri(path: str) -> None:
    assert path_of(file_uri(path)) == path


# -- messages -------------------------------------------------------------------------

EXTRAS = st.builds(
    Extras,
    created_at=st.none() | st.integers(0, 9),
    turn_id=st.none() | TEXTS.filter(bool),
    mentions=st.none() | st.lists(TEXTS, max_size=2).map(tuple),
    skills=st.none() | st.lists(TEXTS, max_size=2).map(tuple),
    chats=st.none() | st.lists(TEXTS, max_size=2).map(tuple),
    attachments=st.sampled_from([None, (KEPT,)]),
)


@given(TEXTS, EXTRAS)
def test_what_a_message_carries_is_read_back_and_is_a_message_of_ahp(
    text: str, extras: Extras
) -> None:
    message = message_of(text, extras)
    assert extras_of(message, "o") == extras
    started = {"type": "chat/turnStarted", "turnId": "t", "startedAt": "2026-10-01T00:00:00Z"}
    assert check_action({**started, "message": message}) is None


def test_other_clients_see_what_is_attached() -> None:
    extras = Extras(attachments=(KEPT,), mentions=("/a/b", "rel"), skills=("s",), chats=("c 1",))
    shown = message_of("hi", extras)["attachments"]
    assert [(one["type"], one["label"]) for one in shown] == [
        ("resource", "b c.png"),
        ("resource", "/a/b"),
        ("simple", "rel"),
        ("simple", "s"),
        ("chat", "c 1"),
    ]
    assert shown[0]["uri"] == "file:///store/b%20c.png"
    assert "attachments" not in message_of("hi", Extras())


def test_an_ahp_clients_attachments_are_read() -> None:
    given_attachments = [
        {"type": "resource", "label": "n", "uri": "file:///n%20m", "sizeHint": 7.0},
        {"type": "embeddedResource", "label": "", "data": "AAA=", "contentType": "x/y"},
        {"type": "chat", "label": "other", "resource": "ahp-chat:/other"},
        {"type": "simple", "label": "passed over"},
        {"type": "resource", "label": "n", "uri": "x:", "sizeHint": -1},
        "no attachment",
    ]
    extras = extras_of({"text": "", "attachments": given_attachments}, "t1")
    assert extras.chats == ("other",)
    first, second, third = extras.attachments or ()
    assert (first.id, first.path, first.size) == ("attachment:0:t1", "/n m", 7)
    assert (second.name, second.mime, second.size) == ("attachment", "x/y", 2)
    assert third.size == 0


@pytest.mark.parametrize("carried", [{"createdAt": "now"}, {"attachments": [{}]}, [], "x"])
def test_somebody_elses_entry_of_our_name_is_passed_over(carried: Any) -> None:
    assert extras_of({"text": "", "_meta": {META_KEY: carried}}, "t") == Extras()


# -- decisions ------------------------------------------------------------------------

ONCE = {"id": "once", "label": "Allow", "kind": "approve"}
SESSION = {"id": "session", "label": "In this session", "kind": "approve"}
ALWAYS = {"id": "p1", "label": "Always allow", "kind": "approve"}
NO = {"id": "no", "label": "Deny", "kind": "deny"}


@pytest.mark.parametrize(
    ("options", "decision", "chosen"),
    [
        (None, "allow", None),
        (None, "allow-always", "refused"),
        ([ONCE, NO], "allow", "once"),
        ([ONCE, NO], "allow-always", "refused"),
        ([ONCE, NO], "deny", "no"),
        ([ONCE, SESSION], "allow", "once"),
        ([ONCE, SESSION], "allow-always", "session"),
        ([ONCE, SESSION], "deny", None),
        ([ONCE, SESSION, ALWAYS], "allow-always", "p1"),
        ([ALWAYS, NO], "allow-always", "p1"),
        ([ALWAYS, NO], "allow", None),
    ],
)
def test_a_decision_picks_an_option_and_never_a_wider_one(
    options: Any, decision: str, chosen: str | None
) -> None:
    call = {"toolCallId": "c", "status": "pending-confirmation", "options": options}
    action = confirmation_of("t", call, decision, "because")
    if chosen == "refused":
        assert action is None
        return
    assert action is not None
    assert check_action(action) is None
    assert action.get("selectedOptionId") == chosen
    assert action["approved"] is (decision != "deny")
    assert action.get("reasonMessage") == ("because" if decision == "deny" else None)


def test_a_result_is_allowed_or_denied_and_what_does_not_wait_is_neither() -> None:
    waiting = {"toolCallId": "c", "status": "pending-result-confirmation"}
    allowed = confirmation_of("t", waiting, "allow")
    assert allowed is not None
    assert (allowed["type"], allowed["approved"]) == ("chat/toolCallResultConfirmed", True)
    assert confirmation_of("t", waiting, "allow-always") is None
    for status in ("streaming", "running", "completed", "cancelled"):
        assert confirmation_of("t", {**waiting, "status": status}, "deny") is None


# -- answers --------------------------------------------------------------------------


def request(kind: str, **more: Any) -> dict[str, Any]:
    options = [{"id": "a", "label": "A"}, {"id": "b", "label": "A, B"}, {"id": "c", "label": "C"}]
    asked = {"id": "q", "kind": kind, "message": "?", "options": options, **more}
    return {"id": "r", "questions": [asked]}


FREE = {"allowFreeformInput": True}


@pytest.mark.parametrize(
    ("asked", "text", "value"),
    [
        (request("text"), "any\nthing", {"kind": "text", "value": "any\nthing"}),
        (request("number"), " -1.5 ", {"kind": "number", "value": -1.5}),
        (request("number"), "2.0", {"kind": "number", "value": 2}),
        (request("integer"), "1e3", {"kind": "number", "value": 1000}),
        (request("boolean"), "Yes", {"kind": "boolean", "value": True}),
        (request("boolean"), "no", {"kind": "boolean", "value": False}),
        (request("single-select"), "A, B", {"kind": "selected", "value": "b"}),
        (
            request("single-select", **FREE),
            "mine",
            {"kind": "selected", "value": "", "freeformValues": ["mine"]},
        ),
        (
            request("multi-select"),
            "A, B, C, A",
            {"kind": "selected-many", "value": ["b", "c", "a"]},
        ),
        (request("multi-select"), "", {"kind": "selected-many", "value": []}),
        (
            request("multi-select", **FREE),
            "C, mine, A",
            {"kind": "selected-many", "value": ["c", "a"], "freeformValues": ["mine"]},
        ),
        ({"id": "q", "message": "?"}, "plain", {"kind": "text", "value": "plain"}),
    ],
)
def test_an_answers_text_means_a_value_of_ahp(asked: Any, text: str, value: Any) -> None:
    answers = answers_of(asked, {"q": text})
    assert answers == {"q": {"state": "submitted", "value": value}}
    completed = {"type": "chat/inputCompleted", "requestId": "r", "response": "accept"}
    assert check_action({**completed, "answers": answers}) is None


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("number", "many"),
        ("number", "NaN"),
        ("number", "9" * 400),
        ("number", "1e999"),
        ("integer", "1.5"),
        ("boolean", "maybe"),
        ("single-select", "mine"),
        ("multi-select", "A, mine"),
    ],
)
def test_an_answer_that_does_not_fit_is_named(kind: str, text: str) -> None:
    with pytest.raises(AnswerFault, match=r"payload\.answers\.q: expected"):
        answers_of(request(kind), {"q": text})


def test_a_question_nobody_asked_cannot_be_answered() -> None:
    with pytest.raises(AnswerFault, match=r"payload\.answers\.z: there is no such question"):
        answers_of(request("text"), {"z": "x"})


@pytest.mark.parametrize("text", ["A", "A, B", "C, A", "A, B, A, C"])
def test_what_was_chosen_reads_back_as_it_was_said(text: str) -> None:
    asked = request("multi-select")
    assert texts_of({**asked, "answers": answers_of(asked, {"q": text})}) == {"q": text}


def test_questions_and_answers_of_every_kind_are_shown() -> None:
    (question,) = questions_of(request("boolean", title="T"))
    assert (question.header, [one.label for one in question.choices]) == ("T", ["Yes", "No"])
    (plain,) = questions_of({"id": "r", "message": "Go to", "url": "https://x"})
    assert (plain.id, plain.question, plain.choices) == ("r", "Go to, https://x", ())
    shown = texts_of(
        {
            "answers": {
                "a": {"state": "submitted", "value": {"kind": "boolean", "value": True}},
                "b": {"state": "draft", "value": {"kind": "number", "value": 1.5}},
                "c": {"state": "skipped"},
                "d": {"state": "submitted", "value": {"kind": "selected", "value": "gone"}},
            }
        }
    )
    assert shown == {"a": "Yes", "b": "1.5", "d": "gone"}
