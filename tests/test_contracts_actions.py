"""The table of actions: what is refused is named, what nobody knows passes."""

from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from ahp_actions import JSON, WELL_FORMED, nearly
from ahpd.contracts.ahp.actions import (
    ACTIONS,
    MAX_ACTION_NESTING,
    check_action,
    client_may_dispatch,
)
from ahpd.contracts.ahp.checks import Optional

ANY_ACTION = st.one_of(*WELL_FORMED.values())
MESSAGE = {"text": "hi", "origin": {"kind": "user"}}
TURN = {"turnId": "t"}
CALL = {"turnId": "t", "toolCallId": "c"}


@given(JSON | ANY_ACTION | nearly(ANY_ACTION))
def test_checking_never_raises_and_says_where(action: Any) -> None:
    fault = check_action(action)
    assert fault is None or fault.startswith("action")


@given(ANY_ACTION, st.dictionaries(st.text(min_size=12), JSON, max_size=2))
def test_members_nobody_knows_are_no_fault(action: Any, more: Any) -> None:
    assert check_action({**more, **action}) is None


def test_an_action_nests_only_so_deep_that_what_holds_it_can_still_be_read() -> None:
    action: Any = {"type": "chat/draftChanged"}
    within: Any = {}
    for _ in range(MAX_ACTION_NESTING - 2):
        within = {"deeper": within}
    assert check_action({**action, "_meta": within}) is None
    assert check_action({**action, "_meta": [within]}) == "action: nested deeper than 100 levels"


@given(ANY_ACTION, st.data())
def test_a_required_member_that_is_gone_or_null_is_named(action: Any, data: st.DataObject) -> None:
    fields = ACTIONS[action["type"]].fields
    required = [name for name, member in fields.items() if not isinstance(member, Optional)]
    if not required:
        return
    name = data.draw(st.sampled_from(required))
    without = {key: value for key, value in action.items() if key != name}
    assert check_action(without) == f"action.{name}: is missing"
    assert check_action({**action, name: None}) == f"action.{name}: is missing"


def test_every_action_of_the_served_families_is_exercised_here() -> None:
    served = {kind for kind, rule in ACTIONS.items() if rule.family in WELL_FORMED}
    seen: set[str] = set()

    @settings(max_examples=2_000, database=None, phases=[Phase.generate])
    @given(ANY_ACTION)
    def collect(action: Any) -> None:
        seen.add(action["type"])

    collect()
    assert seen == served


@pytest.mark.parametrize(
    ("action", "fault"),
    [
        (None, "action: expected an object"),
        ([], "action: expected an object"),
        ({}, "action.type: is missing"),
        ({"type": 5}, "action.type: expected a string"),
        (
            {"type": "chat/delta", **TURN, "partId": "p", "content": 5},
            "action.content: expected a string",
        ),
        ({"type": "chat/turnComplete", **TURN}, "action.duration: is missing"),
        (
            {"type": "chat/turnComplete", **TURN, "duration": True},
            "action.duration: expected a number",
        ),
        (
            {"type": "chat/turnComplete", **TURN, "duration": float("inf")},
            "action.duration: expected a finite number",
        ),
        (
            {"type": "chat/turnStarted", **TURN, "startedAt": "now", "message": {"text": "hi"}},
            "action.message.origin: is missing",
        ),
        (
            {"type": "chat/draftChanged", "draft": {**MESSAGE, "attachments": [{"label": "x"}]}},
            "action.draft.attachments[0].type: is missing",
        ),
        (
            {"type": "chat/responsePart", **TURN, "part": {"kind": "markdown", "id": "p"}},
            "action.part.content: is missing",
        ),
        (
            {"type": "chat/error", **TURN, "duration": 1, "part": {"kind": "markdown"}},
            "action.part.kind: expected one of 'error'",
        ),
        (
            {"type": "chat/toolCallConfirmed", **CALL, "approved": True},
            "action.confirmed: is missing",
        ),
        (
            {"type": "chat/toolCallConfirmed", **CALL, "approved": False, "reason": "because"},
            "action.reason: expected one of 'denied', 'skipped'",
        ),
        (
            {"type": "chat/toolCallConfirmed", **CALL, "approved": 1, "confirmed": "x"},
            "action.approved: expected true or false",
        ),
        (
            {"type": "chat/toolCallComplete", **CALL, "success": True, "pastTenseMessage": "did"},
            "action.result: is missing",
        ),
        (
            {
                "type": "chat/toolCallComplete",
                **CALL,
                "result": {"success": True, "pastTenseMessage": "did", "status": "running"},
            },
            "action.result.status: is the call's own and no part of its result",
        ),
        (
            {"type": "chat/inputCompleted", "requestId": "r", "response": "maybe"},
            "action.response: expected one of 'accept', 'decline', 'cancel'",
        ),
        (
            {"type": "chat/pendingMessageRemoved", "kind": "other", "id": "m"},
            "action.kind: expected one of 'steering', 'queued'",
        ),
        (
            {"type": "session/chatAdded", "summary": {"resource": "c", "title": "t"}},
            "action.summary.status: is missing",
        ),
        (
            {"type": "session/activeClientSet", "activeClient": {"clientId": "c"}},
            "action.activeClient.tools: is missing",
        ),
        (
            {"type": "root/configChanged", "config": [], "replace": True},
            "action.config: expected an object",
        ),
        ({"type": "session/ready", "_meta": 5}, "action._meta: expected an object"),
    ],
)
def test_a_fault_is_named_by_its_place(action: Any, fault: str) -> None:
    assert check_action(action) == fault


@pytest.mark.parametrize(
    "action",
    [
        {"type": "future/action", "anything": None},
        {"type": "terminal/data"},
        {"type": "session/ready", "future": {"x": [1]}},
        {"type": "chat/activityChanged", "activity": None},
        {"type": "chat/turnComplete", **TURN, "duration": 1.0},
        {"type": "chat/responsePart", **TURN, "part": {"kind": "future"}},
        {"type": "chat/toolCallReady", **CALL, "invocationMessage": "m", "confirmed": "future"},
        {"type": "chat/usage", **TURN, "usage": {"inputTokens": 1, "future": "x"}},
    ],
)
def test_what_the_protocol_leaves_open_passes(action: Any) -> None:
    assert check_action(action) is None


def test_a_client_dispatches_what_is_a_clients() -> None:
    assert client_may_dispatch("chat/turnStarted")
    assert not client_may_dispatch("chat/delta")
    assert not client_may_dispatch("session/chatsReordered")
    assert not client_may_dispatch("future/action")
