"""What waits on a person: read out of the state, mirrored word for word, settled the same way."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from ahp_actions import CHAT_ACTIONS, INITIAL
from ahpd.contracts.ahp.actions import check_action
from ahpd.contracts.ahp.reducers import reduce_chat
from ahpd.supervisor.sessions.parked import input_needed, parked_in, settling

Json = dict[str, Any]
NOON = "2026-10-01T12:00:00.000Z"
URI = "ahp-chat:/1"


def chat(kind: str, /, **members: Any) -> Json:
    return {"type": f"chat/{kind}", **members}


def call(kind: str, ident: str, /, **members: Any) -> Json:
    return chat(f"toolCall{kind}", turnId="t", toolCallId=ident, **members)


def said(*actions: Json) -> Json:
    state = INITIAL["chat"]
    message = {"text": "x", "origin": {"kind": "user"}}
    for action in (chat("turnStarted", turnId="t", startedAt=NOON, message=message), *actions):
        state = reduce_chat(state, action)
    return state


RESULT = {"success": True, "pastTenseMessage": "Did"}
PROSE = {"markdown": "Do *it*"}
WAITING = said(
    call("Start", "asks", toolName="x", displayName="X"),
    call("Ready", "asks", invocationMessage=PROSE, confirmationTitle="Really?"),
    call("Start", "runs", toolName="x", displayName="X"),
    call("Ready", "runs", invocationMessage="Do it", confirmed="not-needed"),
    call("Start", "streams", toolName="x", displayName="X"),
    call("Start", "review", toolName="x", displayName="X"),
    call("Ready", "review", invocationMessage=PROSE, confirmed="not-needed"),
    call("Complete", "review", result=RESULT, requiresResultConfirmation=True),
    chat("inputRequested", request={"id": "q", "message": "Who?"}),
    chat("inputRequested", request={"id": "done", "message": "Why?"}),
    chat("inputCompleted", requestId="done", response="accept"),
)


def test_what_waits_is_read_from_the_running_turn_oldest_first() -> None:
    parked = parked_in(WAITING)
    assert [(one.kind, one.id) for one in parked] == [
        ("toolConfirmation", "asks"),
        ("toolConfirmation", "review"),
        ("chatInput", "q"),
    ]
    assert {one.turn_id for one in parked} == {"t"}
    assert [one.waits_on for one in parked] == ["Really?", "Do *it*", "Who?"]
    assert parked_in(INITIAL["chat"]) == []
    ended = reduce_chat(WAITING, chat("turnComplete", turnId="t", duration=1))
    assert parked_in(ended) == [], "nothing waits once the turn has ended"


def test_settling_says_the_same_everywhere() -> None:
    asks, review, question = map(settling, parked_in(WAITING))
    assert asks == call("Confirmed", "asks", approved=False, reason="skipped")
    assert review == call("ResultConfirmed", "review", approved=False)
    assert question == chat("inputCompleted", requestId="q", response="cancel")


def test_the_roll_up_names_the_chat_and_carries_the_request_itself() -> None:
    asks, _, question = (input_needed(one, URI) for one in parked_in(WAITING))
    assert asks["kind"] == "toolConfirmation" and asks["turnId"] == "t"
    assert asks["toolCall"] is WAITING["activeTurn"]["responseParts"][0]["toolCall"]
    assert question == {
        "id": "ahp-chat:/1#q",
        "chat": URI,
        "kind": "chatInput",
        "request": {"id": "q", "message": "Who?"},
    }
    for entry in (asks, question):
        assert check_action({"type": "session/inputNeededSet", "request": entry}) is None


def test_entries_of_two_chats_never_share_an_id() -> None:
    one = parked_in(WAITING)[0]
    assert input_needed(one, URI)["id"] != input_needed(one, "ahp-chat:/2")["id"]


@given(st.lists(CHAT_ACTIONS, max_size=25))
def test_law_what_is_settled_waits_no_longer_and_then_nothing_does(actions: list[Json]) -> None:
    state = INITIAL["chat"]
    for action in actions:
        state = reduce_chat(state, action)
    waits = parked_in(state)
    # Two calls of one id, which the rules keep apart, would settle together.
    if len({one.id for one in waits}) != len(waits):
        return
    for count, one in enumerate(waits, 1):
        action = settling(one)
        assert check_action(action) is None
        state = reduce_chat(state, action)
        assert len(parked_in(state)) == len(waits) - count
    if "activeTurn" in state:
        assert state["status"] & 24 == 8 or any(
            part["kind"] == "toolCall" and part["toolCall"]["status"] == "auth-required"
            for part in state["activeTurn"]["responseParts"]
        )
