"""What a client may do now: each refusal by the state that asks for it, and the laws of all."""

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ahp_actions import CHAT_ACTIONS
from ahpd.contracts.ahp.actions import check_action, client_may_dispatch
from ahpd.contracts.ahp.reducers import reduce_chat
from ahpd.contracts.json import same_json
from ahpd.supervisor.sessions.chat_actions import HANDLERS, NOT_ON_SUBAGENTS
from ahpd.supervisor.sessions.client_rules import (
    CHECKS,
    open_request,
    owner_of,
    refusal,
    tool_call,
)
from ahpd.supervisor.sessions.session_actions import HANDLERS as SESSION_HANDLERS

Json = dict[str, Any]
NOON = "2026-10-01T12:00:00.000Z"
USER = {"text": "hello", "origin": {"kind": "user"}}
IDLE: Json = {
    "resource": "ahp-chat:/1",
    "title": "C",
    "status": 1,
    "modifiedAt": NOON,
    "turns": [],
}


def chat(kind: str, /, **members: Any) -> Json:
    return {"type": f"chat/{kind}", **members}


def call(kind: str, ident: str = "c", /, **members: Any) -> Json:
    return chat(f"toolCall{kind}", turnId="t", toolCallId=ident, **members)


def said(*actions: Json, state: Json = IDLE) -> Json:
    for action in actions:
        after = reduce_chat(state, action)
        assert after is not state, action
        state = after
    return state


def begun(turn_id: str = "t") -> Json:
    return chat("turnStarted", turnId=turn_id, startedAt=NOON, message=USER)


OPTIONS = [{"id": "once", "label": "Once", "kind": "approve"}]
QUESTIONS = [
    {"id": "must", "kind": "text", "message": "Who?", "required": True},
    {"id": "may", "kind": "text", "message": "Why?"},
]
WAITING = said(
    begun(),
    call("Start", toolName="x", displayName="X"),
    call("Ready", invocationMessage="Do it", options=OPTIONS, editable=True),
    call("Start", "plain", toolName="x", displayName="X"),
    call("Ready", "plain", invocationMessage="Do it"),
    call(
        "Start",
        "theirs",
        toolName="x",
        displayName="X",
        contributor={"kind": "client", "clientId": "two"},
    ),
    call("Ready", "theirs", invocationMessage="Do it", confirmed="not-needed"),
    call("Start", "review", toolName="x", displayName="X"),
    call("Ready", "review", invocationMessage="Do it", confirmed="not-needed"),
    call(
        "Complete",
        "review",
        result={"success": True, "pastTenseMessage": "Did"},
        requiresResultConfirmation=True,
    ),
    chat("inputRequested", request={"id": "q", "questions": QUESTIONS}),
    chat("pendingMessageSet", kind="queued", id="m", message=USER),
    chat("pendingMessageSet", kind="steering", id="s", message=USER),
)
ERROR = {"errorType": "x", "message": "y"}
ENDED = said(begun(), chat("turnComplete", turnId="t", duration=1))
FAILED = said(
    begun(),
    chat(
        "error", turnId="t", duration=1, part={"kind": "error", "error": ERROR, "resumable": True}
    ),
)


def reason(state: Json, action: Json, client_id: str = "one") -> str | None:
    assert check_action(action) is None, "only what is well formed comes this far"
    before = copy.deepcopy((state, action))
    answer = refusal(state, action, client_id)
    assert before == (state, action)
    return answer


APPROVED = {"approved": True, "confirmed": "user-action"}
ANSWERED = {"must": {"state": "submitted", "value": {"kind": "text", "value": "Ada"}}}
DRAFTED = {"must": {"state": "draft", "value": {"kind": "text", "value": "Ada"}}}

MAY: list[tuple[Json, Json]] = [
    (IDLE, begun()),
    (ENDED, begun("next")),
    (WAITING, chat("turnCancelled", turnId="t", duration=0)),
    (WAITING, call("Confirmed", **APPROVED)),
    (WAITING, call("Confirmed", **APPROVED, selectedOptionId="once", editedToolInput="{}")),
    (WAITING, call("Confirmed", approved=False, reason="denied")),
    (WAITING, call("ResultConfirmed", "review", approved=True)),
    (WAITING, chat("inputCompleted", requestId="q", response="accept", answers=ANSWERED)),
    (WAITING, chat("inputCompleted", requestId="q", response="cancel")),
    (WAITING, chat("inputAnswerChanged", requestId="q", questionId="may")),
    (IDLE, chat("pendingMessageSet", kind="queued", id="m2", message=USER)),
    (WAITING, chat("pendingMessageSet", kind="steering", id="s2", message=USER)),
    (WAITING, chat("pendingMessageRemoved", kind="queued", id="m")),
    (WAITING, chat("pendingMessageRemoved", kind="steering", id="s")),
    (IDLE, chat("draftChanged", draft=USER)),
    (IDLE, chat("draftChanged")),
    (ENDED, chat("truncated", turnId="t")),
    (ENDED, chat("truncated")),
    (FAILED, chat("turnResume", turnId="t")),
    (IDLE, chat("isReadChanged", isRead=True)),
    (IDLE, chat("queuedMessagesReordered", order=["never"])),
]

MAY_NOT: list[tuple[str, Json, Json]] = [
    ("there already", WAITING, begun("t")),
    ("there already", ENDED, begun("t")),
    ("no timestamp", IDLE, {**begun(), "startedAt": "yesterday"}),
    ("no timestamp", IDLE, {**begun(), "startedAt": "2026-10-01"}),
    ("no message never is waiting", IDLE, {**begun(), "queuedMessageId": "never"}),
    ("origin `user`", IDLE, {**begun(), "message": {"text": "x", "origin": {"kind": "agent"}}}),
    ("no turn is running", IDLE, chat("turnCancelled", turnId="t", duration=0)),
    ("is not other", WAITING, chat("turnCancelled", turnId="other", duration=0)),
    ("negative", WAITING, chat("turnCancelled", turnId="t", duration=-1)),
    ("not waiting", WAITING, call("Confirmed", "theirs", **APPROVED)),
    ("not waiting", WAITING, call("Confirmed", "never", **APPROVED)),
    ("not waiting", WAITING, call("Confirmed", "review", **APPROVED)),
    ("is not t", IDLE, call("Confirmed", **APPROVED)),
    ("no option", WAITING, call("Confirmed", **APPROVED, selectedOptionId="never")),
    ("cannot be edited", WAITING, call("Confirmed", "plain", **APPROVED, editedToolInput="{}")),
    ("not waiting", WAITING, call("ResultConfirmed", approved=True)),
    ("not open", WAITING, chat("inputCompleted", requestId="never", response="cancel")),
    ("not open", IDLE, chat("inputCompleted", requestId="q", response="cancel")),
    ("must needs", WAITING, chat("inputCompleted", requestId="q", response="accept")),
    (
        "must needs",
        WAITING,
        chat(
            "inputCompleted",
            requestId="q",
            response="accept",
            answers={"must": {"state": "skipped"}},
        ),
    ),
    ("not open", WAITING, chat("inputAnswerChanged", requestId="never", questionId="may")),
    ("no question", WAITING, chat("inputAnswerChanged", requestId="q", questionId="never")),
    (
        "could be steered",
        IDLE,
        chat("pendingMessageSet", kind="steering", id="s", message=USER),
    ),
    (
        "origin `user`",
        IDLE,
        chat(
            "pendingMessageSet",
            kind="queued",
            id="m",
            message={"text": "x", "origin": {"kind": "system"}},
        ),
    ),
    ("no message never", WAITING, chat("pendingMessageRemoved", kind="queued", id="never")),
    ("no message m", WAITING, chat("pendingMessageRemoved", kind="steering", id="m")),
    ("no message s", WAITING, chat("pendingMessageRemoved", kind="queued", id="s")),
    ("origin `user`", IDLE, chat("draftChanged", draft={"text": "", "origin": {"kind": "x"}})),
    ("a turn is running", WAITING, chat("truncated")),
    ("no turn never", ENDED, chat("truncated", turnId="never")),
    ("a turn is running", WAITING, chat("turnResume", turnId="t")),
    ("not the last", FAILED, chat("turnResume", turnId="never")),
    ("not the last", IDLE, chat("turnResume", turnId="t")),
    ("cannot be resumed", ENDED, chat("turnResume", turnId="t")),
]


@pytest.mark.parametrize(("state", "action"), MAY, ids=lambda given: given.get("type"))
def test_what_a_client_may_do(state: Json, action: Json) -> None:
    assert reason(state, action) is None


@pytest.mark.parametrize(
    ("words", "state", "action"),
    MAY_NOT,
    ids=[f"{action['type']}-{words}" for words, _, action in MAY_NOT],
)
def test_what_it_may_not_and_why(words: str, state: Json, action: Json) -> None:
    said = reason(state, action)
    assert said is not None and words in said, said


def test_drafted_answers_count_when_a_question_is_accepted() -> None:
    drafted = said(
        chat("inputAnswerChanged", requestId="q", questionId="must", answer=DRAFTED["must"]),
        state=WAITING,
    )
    accept = chat("inputCompleted", requestId="q", response="accept")
    assert reason(drafted, accept) is None
    assert "must needs" in str(reason(WAITING, accept))


@pytest.mark.parametrize("kind", ["Complete", "ContentChanged"])
def test_a_clients_tool_is_its_owners_alone(kind: str) -> None:
    what: Json = (
        {"result": {"success": True, "pastTenseMessage": "Did"}}
        if kind == "Complete"
        else {"content": []}
    )
    action = call(kind, "theirs", **what)
    assert reason(WAITING, action, "two") is None
    assert reason(WAITING, action, "one") == "this tool call is another client's"
    assert reason(WAITING, call(kind, "plain", **what), "two") == "this tool call is the agent's"
    assert "no tool call" in str(reason(WAITING, call(kind, "never", **what), "two"))
    done = said(
        call("Complete", "theirs", result={"success": True, "pastTenseMessage": "Did"}),
        state=WAITING,
    )
    assert "not running" in str(reason(done, action, "two"))


def test_what_is_looked_up_is_the_running_turns() -> None:
    assert tool_call(WAITING, "c") is not None and tool_call(WAITING, "never") is None
    assert open_request(WAITING, "q") is not None and open_request(IDLE, "q") is None
    answered = said(chat("inputCompleted", requestId="q", response="cancel"), state=WAITING)
    assert open_request(answered, "q") is None, "an answered one is not open"
    theirs = tool_call(WAITING, "theirs")
    assert theirs is not None and owner_of(theirs) == "two"
    assert owner_of({"contributor": {"kind": "mcp", "customizationId": "x"}}) is None


def test_every_action_that_is_checked_or_kept_from_subagents_is_a_clients_and_served() -> None:
    for kind in [*CHECKS, *NOT_ON_SUBAGENTS, *HANDLERS, *SESSION_HANDLERS]:
        assert client_may_dispatch(kind), kind
    assert CHECKS.keys() <= HANDLERS.keys()
    assert HANDLERS.keys() >= NOT_ON_SUBAGENTS


STATES = st.sampled_from([IDLE, WAITING, ENDED, FAILED])


def renamed(value: Any) -> Any:
    """The strategies' ids as this module's."""
    names = {"t1": "t", "c1": "c", "c2": "review", "r1": "q", "m1": "m", "m2": "s", "q1": "must"}
    if isinstance(value, dict):
        return {names.get(key, key): renamed(item) for key, item in value.items()}
    if isinstance(value, list):
        return [renamed(item) for item in value]
    return names.get(value, value) if isinstance(value, str) else value


@given(action=CHAT_ACTIONS.map(renamed), state=STATES, client=st.sampled_from(["one", "two"]))
def test_law_a_settling_or_an_ending_that_is_let_through_changes_the_chat(
    action: Json, state: Json, client: str
) -> None:
    """A request is settled, and a turn ended, by accepted actions that the reducer takes too."""
    if not client_may_dispatch(action["type"]) or check_action(action) is not None:
        return
    if refusal(state, action, client) is not None:
        return
    must_change = {
        "chat/turnStarted",
        "chat/turnCancelled",
        "chat/turnResume",
        "chat/toolCallConfirmed",
        "chat/toolCallResultConfirmed",
        "chat/inputCompleted",
        "chat/pendingMessageRemoved",
    }
    after = reduce_chat(state, action)
    if action["type"] in must_change and not (
        action["type"] == "chat/turnStarted" and "activeTurn" in state
    ):
        assert after is not state, "accepted, and nothing came of it"
    if action["type"] not in ("chat/truncated", "chat/turnResume"):
        assert same_json(after["turns"][: len(state["turns"])], state["turns"])
