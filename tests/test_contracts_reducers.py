"""Laws of the reducers: they never raise, never change what they are given, share what stays."""

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ahp_actions import CHAT_ACTIONS, INITIAL, JSON, SESSION_ACTIONS, WELL_FORMED, nearly
from ahpd.contracts.ahp.actions import check_action
from ahpd.contracts.ahp.reducers import REDUCERS, reduce_chat, reduce_session
from ahpd.contracts.ahp.status import (
    ACTIVITY_MASK,
    ARCHIVED,
    ERROR,
    IDLE,
    IN_PROGRESS,
    INPUT_NEEDED,
    READ,
    activity,
)
from ahpd.contracts.json import same_json

State = dict[str, Any]


def holds_null(value: Any) -> bool:
    if isinstance(value, dict):
        return any(holds_null(item) for item in value.values())
    if isinstance(value, list):
        return any(holds_null(item) for item in value)
    return value is None


def reduced(family: str, state: State, action: Any) -> State:
    """The next state, the laws that hold for every single step checked."""
    before, said = copy.deepcopy(state), copy.deepcopy(action)
    after = REDUCERS[family](state, action)
    assert same_json(state, before), "the reducer changed the state it was given"
    assert same_json(action, said), "the reducer changed the action it was given"
    assert (after is state) == same_json(after, before), "`is` must say whether anything changed"
    return after


@pytest.mark.parametrize("family", WELL_FORMED)
@settings(max_examples=60)
@given(data=st.data())
def test_well_formed_actions_leave_no_null_behind(family: str, data: st.DataObject) -> None:
    state = INITIAL[family]
    for action in data.draw(st.lists(WELL_FORMED[family], max_size=25)):
        assert check_action(action) is None
        state = reduced(family, state, action)
        assert not holds_null(state)


@pytest.mark.parametrize("family", WELL_FORMED)
@settings(max_examples=150)
@given(data=st.data())
def test_malformed_actions_never_raise(family: str, data: st.DataObject) -> None:
    state = INITIAL[family]
    actions = WELL_FORMED[family]
    for action in data.draw(st.lists(actions | nearly(actions) | JSON, max_size=20)):
        check_action(action)
        state = reduced(family, state, action)


@pytest.mark.parametrize("family", WELL_FORMED)
@settings(max_examples=150)
@given(data=st.data())
def test_a_state_from_somebody_else_is_no_reason_to_raise(family: str, data: st.DataObject) -> None:
    state: State = {}
    for action in data.draw(st.lists(WELL_FORMED[family], max_size=15)):
        state = reduced(family, state, action)
    spoilt = data.draw(nearly(st.just(state)))
    if isinstance(spoilt, dict):
        reduced(family, spoilt, data.draw(WELL_FORMED[family]))


@pytest.mark.parametrize("family", WELL_FORMED)
@given(data=st.data())
def test_another_familys_actions_change_nothing(family: str, data: st.DataObject) -> None:
    others = [actions for name, actions in WELL_FORMED.items() if name != family]
    state = INITIAL[family]
    assert REDUCERS[family](state, data.draw(st.one_of(others))) is state


@given(st.lists(CHAT_ACTIONS, max_size=30))
def test_a_chats_status_follows_from_its_running_turn(actions: list[Any]) -> None:
    state = INITIAL["chat"]
    for action in actions:
        state = reduce_chat(state, action)
        assert activity(state["status"]) in expected_activity(state)


def expected_activity(state: State) -> tuple[int, ...]:
    turn = state.get("activeTurn")
    if turn is None:
        # A failed turn shows until another one begins.
        return (IDLE, ERROR)
    waiting = ("pending-confirmation", "pending-result-confirmation", "auth-required")
    for part in turn["responseParts"]:
        if part["kind"] == "toolCall" and part["toolCall"]["status"] in waiting:
            return (INPUT_NEEDED,)
        if part["kind"] == "inputRequest" and "response" not in part:
            return (INPUT_NEEDED,)
    return (IN_PROGRESS,)


@given(st.lists(CHAT_ACTIONS, max_size=30))
def test_a_turn_ends_with_every_call_finished(actions: list[Any]) -> None:
    state = INITIAL["chat"]
    for action in actions:
        state = reduce_chat(state, action)
    turn = state.get("activeTurn")
    if turn is None:
        return
    ended = reduce_chat(state, {"type": "chat/turnCancelled", "turnId": turn["id"], "duration": 7})
    assert "activeTurn" not in ended
    last = ended["turns"][-1]
    assert (last["id"], last["state"], last["duration"]) == (turn["id"], "cancelled", 7)
    assert len(last["responseParts"]) == len(turn["responseParts"])
    for part in last["responseParts"]:
        if part["kind"] == "toolCall":
            assert part["toolCall"]["status"] in ("completed", "cancelled")


@given(st.lists(SESSION_ACTIONS, max_size=30))
def test_a_session_waits_on_a_person_exactly_while_a_request_is_listed(actions: list[Any]) -> None:
    state = INITIAL["session"]
    for action in actions:
        state = reduce_session(state, action)
        assert (activity(state["status"]) == INPUT_NEEDED) == ("inputNeeded" in state)
        assert state["status"] & ACTIVITY_MASK in (IDLE, IN_PROGRESS, INPUT_NEEDED)


def streaming(parts: int) -> State:
    turn = {
        "id": "t",
        "startedAt": "2026-10-01T00:00:00.000Z",
        "message": {"text": "hi", "origin": {"kind": "user"}},
        "responseParts": [
            {"kind": "markdown", "id": f"p{index}", "content": "x"} for index in range(parts)
        ],
    }
    return {**INITIAL["chat"], "turns": [{"id": "old"}], "activeTurn": turn, "status": IN_PROGRESS}


def test_a_delta_copies_the_path_to_its_part_and_nothing_else() -> None:
    before = streaming(50)
    said = {"type": "chat/delta", "turnId": "t", "partId": "p40", "content": "y"}
    after = reduce_chat(before, said)
    assert after["turns"] is before["turns"]
    assert after["activeTurn"]["message"] is before["activeTurn"]["message"]
    pairs = zip(
        before["activeTurn"]["responseParts"], after["activeTurn"]["responseParts"], strict=True
    )
    changed = [index for index, (old, new) in enumerate(pairs) if old is not new]
    assert changed == [40]
    assert after["activeTurn"]["responseParts"][40]["content"] == "xy"


def test_an_empty_delta_changes_nothing() -> None:
    state = streaming(1)
    said = {"type": "chat/delta", "turnId": "t", "partId": "p0", "content": ""}
    assert reduce_chat(state, said) is state


def test_setting_what_is_so_already_changes_nothing() -> None:
    state = {**INITIAL["session"], "title": "same"}
    assert reduce_session(state, {"type": "session/titleChanged", "title": "same"}) is state


def test_true_is_not_one() -> None:
    state = {**INITIAL["session"], "config": {"schema": {}, "values": {"a": 1}}}
    said = {"type": "session/configChanged", "config": {"a": True}}
    after = reduce_session(state, said)
    assert after is not state
    assert after["config"]["values"]["a"] is True
    assert same_json({"a": [1]}, {"a": [1.0]}) and not same_json({"a": [1]}, {"a": [True]})


def test_a_null_in_a_chats_changes_clears_the_member() -> None:
    summary = {"resource": "ahp-chat:/1", "title": "C", "activity": "thinking"}
    state = {**INITIAL["session"], "chats": [summary]}
    said = {
        "type": "session/chatUpdated",
        "chat": "ahp-chat:/1",
        "changes": {"activity": None, "resource": "ahp-chat:/other"},
    }
    assert reduce_session(state, said)["chats"] == [{"resource": "ahp-chat:/1", "title": "C"}]


def test_a_result_cannot_rename_or_move_its_call() -> None:
    state = streaming(0)
    for said in (
        {"type": "chat/toolCallStart", "toolName": "n", "displayName": "N"},
        {"type": "chat/toolCallReady", "invocationMessage": "m", "confirmed": "not-needed"},
        {
            "type": "chat/toolCallComplete",
            "result": {
                "success": True,
                "pastTenseMessage": "done",
                "status": "running",
                "toolCallId": "other",
                "future": 1,
            },
        },
    ):
        state = reduce_chat(state, {"turnId": "t", "toolCallId": "c", **said})
    call = state["activeTurn"]["responseParts"][0]["toolCall"]
    assert (call["status"], call["toolCallId"], call["future"]) == ("completed", "c", 1)


def test_an_error_part_comes_with_the_error_that_ends_the_turn_alone() -> None:
    state = streaming(0)
    part = {"kind": "error", "error": {"errorType": "x", "message": "m"}}
    assert reduce_chat(state, {"type": "chat/responsePart", "turnId": "t", "part": part}) is state


@pytest.mark.parametrize(
    ("started_at", "duration", "modified_at"),
    [
        ("2026-10-01T00:00:00.000Z", 1500, "2026-10-01T00:00:01.500Z"),
        ("2026-10-01T02:00:00+02:00", 1, "2026-10-01T00:00:00.001Z"),
        ("2026-10-01T00:00:00.0009Z", 0.9, "2026-10-01T00:00:00.000Z"),
        ("2026-10-01T00:00:00.000Z", -5, "2026-10-01T00:00:00.000Z"),
        ("1969-12-31T23:59:59.999Z", 2, "1970-01-01T00:00:00.001Z"),
        ("yesterday", 5, "2026-10-01T00:00:00.000Z"),
        ("2026-10-01T00:00:00.000Z", 10**400, "2026-10-01T00:00:00.000Z"),
        ("2026-10-01T00:00:00.000Z", 1e300, "2026-10-01T00:00:00.000Z"),
    ],
)
def test_a_turn_was_changed_when_it_ended_by_its_own_account(
    started_at: str, duration: float, modified_at: str
) -> None:
    state = streaming(0)
    state["activeTurn"]["startedAt"] = started_at
    said = {"type": "chat/turnComplete", "turnId": "t", "duration": duration}
    assert reduce_chat(state, said)["modifiedAt"] == modified_at


@pytest.mark.parametrize("blocking", [True, False, None])
def test_backgrounding_releases_a_server_that_is_blocking(blocking: bool | None) -> None:
    starting: State = {"kind": "starting"} | ({} if blocking is None else {"blocking": blocking})
    server = {"type": "mcpServer", "id": "s", "uri": "file:///s", "name": "S", "state": starting}
    plugin = {"type": "plugin", "id": "p", "uri": "file:///p", "name": "P", "children": [server]}
    state = {**INITIAL["session"], "customizations": [plugin]}
    after = reduce_session(state, {"type": "session/mcpServerBackgroundRequested", "id": "s"})
    if blocking:
        child = after["customizations"][0]["children"][0]
        assert child["state"] == {"kind": "starting", "blocking": False}
    else:
        assert after is state


def test_a_question_makes_the_chat_unread() -> None:
    state = {**streaming(0), "status": IN_PROGRESS | READ | ARCHIVED}
    after = reduce_chat(state, {"type": "chat/inputRequested", "request": {"id": "r"}})
    assert after["status"] == INPUT_NEEDED | ARCHIVED


def test_a_refused_result_keeps_the_option_that_was_chosen() -> None:
    call = {"toolCallId": "c", "toolName": "n", "displayName": "N", "invocationMessage": "m"}
    option = {"id": "o", "label": "O", "kind": "approve"}
    waiting = {**call, "status": "pending-result-confirmation", "confirmed": "user-action"}
    state = streaming(0)
    state["activeTurn"]["responseParts"] = [
        {"kind": "toolCall", "toolCall": {**waiting, "selectedOption": option, "success": True}}
    ]
    said = {"type": "chat/toolCallResultConfirmed", "turnId": "t", "toolCallId": "c"}
    after = reduce_chat(state, {**said, "approved": False})
    assert after["activeTurn"]["responseParts"][0]["toolCall"] == {
        **call,
        "selectedOption": option,
        "status": "cancelled",
        "reason": "result-denied",
    }


def test_a_call_cut_off_while_it_streams_shows_no_input() -> None:
    call = {"toolCallId": "c", "toolName": "n", "displayName": "N"}
    state = streaming(0)
    streamed = {**call, "status": "streaming", "partialInput": "{", "toolInput": "{"}
    state["activeTurn"]["responseParts"] = [{"kind": "toolCall", "toolCall": streamed}]
    said = {"type": "chat/turnCancelled", "turnId": "t", "duration": 1}
    assert reduce_chat(state, said)["turns"][-1]["responseParts"][0]["toolCall"] == {
        **call,
        "invocationMessage": "",
        "status": "cancelled",
        "reason": "skipped",
    }
