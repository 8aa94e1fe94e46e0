"""What an agent may say: swallowed by identity, allowed, well formed, and the rules by name."""

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ahp_actions import CHAT_ACTIONS, JSON, SESSION_ACTIONS, nearly
from ahpd.contracts.ahp.actions import ACTIONS, check_action
from ahpd.contracts.ahp.reducers import reduce_chat
from ahpd.contracts.json import same_json
from ahpd.supervisor.sessions.agent_rules import (
    ENDINGS,
    Accept,
    Drop,
    Memory,
    Swallow,
    Verdict,
    judge_chat_action,
    judge_session_action,
)

Json = dict[str, Any]
NOON = "2026-10-01T12:00:00.000Z"
MESSAGE = {"text": "hello", "origin": {"kind": "user"}}
RESULT = {"success": True, "pastTenseMessage": "Did it"}

IDLE: Json = {
    "resource": "ahp-chat:/1",
    "title": "C",
    "status": 1,
    "modifiedAt": NOON,
    "turns": [],
}


def chat(kind: str, /, **members: Any) -> Json:
    return {"type": f"chat/{kind}", **members}


def part(ident: str, kind: str = "markdown") -> Json:
    return chat("responsePart", turnId="t", part={"kind": kind, "id": ident, "content": ""})


def call(kind: str, /, **members: Any) -> Json:
    return chat(f"toolCall{kind}", turnId="t", toolCallId="c", **members)


START = call("Start", toolName="x", displayName="X")
ASKS = call("Ready", invocationMessage="Do it")
RUNS = call("Ready", invocationMessage="Do it", confirmed="not-needed")
QUESTION = chat("inputRequested", request={"id": "q", "message": "Who?"})


def running(*actions: Json) -> Json:
    """A chat whose turn `t` runs and has said these."""
    state = dict(IDLE)
    for action in (chat("turnStarted", turnId="t", startedAt=NOON, message=MESSAGE), *actions):
        after = reduce_chat(state, action)
        assert after is not state, action
        state = after
    return state


def memory(**members: Any) -> Memory:
    given = {"elapsed_ms": 1234, "known_turns": {"t"}, **members}
    return Memory(**given)


def judged(action: Json, state: Json, **members: Any) -> Verdict:
    before = copy.deepcopy((action, state))
    verdict = judge_chat_action(action, state, memory(**members))
    assert before == (action, state), "judging changed what it was given"
    return verdict


def rule(verdict: Verdict) -> str:
    assert isinstance(verdict, Drop), verdict
    assert verdict.detail
    return verdict.rule


# -- in the order of the design -------------------------------------------------------


def test_what_is_for_a_cancelled_turn_is_swallowed_before_anything_else() -> None:
    idle = {"unacknowledged": {"t"}, "known_turns": {"t", "t2"}}
    for action in (
        chat("delta", turnId="t", partId="never", content=5),
        chat("turnComplete", turnId="t"),
        chat("error", turnId="t", duration="long"),
        chat("turnStarted", turnId="t"),
        START,
        QUESTION,
    ):
        assert judged(action, dict(IDLE), **idle) == Swallow(), action
    # Also while the next turn runs, which the agent has not been told of yet.
    assert judged(QUESTION, running(), unacknowledged={"old"}) == Swallow()


def test_a_turn_said_back_is_swallowed_whatever_it_carries() -> None:
    for state in (running(part("p")), dict(IDLE)):
        assert judged(chat("turnStarted", turnId="t"), state) == Swallow()
        said = chat("turnStarted", turnId="t", startedAt=NOON, message=MESSAGE)
        assert judged(said, state) == Swallow()


@pytest.mark.parametrize(
    "action",
    [
        chat("draftChanged", draft=MESSAGE),
        chat("pendingMessageSet", kind="queued", id="m", message=MESSAGE),
        chat("pendingMessageRemoved", kind="steering", id="m"),
        chat("queuedMessagesReordered", order=["m"]),
        chat("inputAnswerChanged", requestId="q", questionId="x"),
        chat("turnResume", turnId="t"),
        chat("isReadChanged", isRead=True),
    ],
    ids=lambda action: action["type"],
)
def test_what_is_a_clients_or_ours_is_swallowed(action: Json) -> None:
    assert judged(action, running()) == Swallow()


def test_an_answer_said_back_is_swallowed_once_settled_and_its_own_before() -> None:
    confirmed = call("Confirmed", approved=True, confirmed="setting")
    answered = chat("inputCompleted", requestId="q", response="decline")
    reviewed = call("ResultConfirmed", approved=True)
    state = running(START, ASKS, QUESTION)
    assert judged(confirmed, state) == Accept(confirmed)
    assert judged(answered, state) == Accept(answered)
    settled = reduce_chat(reduce_chat(state, confirmed), answered)
    assert judged(confirmed, settled) == judged(answered, settled) == Swallow()
    assert judged(reviewed, settled) == Swallow()


@pytest.mark.parametrize("kind", ["truncated", "turnsLoaded"])
def test_history_is_not_an_agents_to_rewrite(kind: str) -> None:
    assert rule(judged(chat(kind, turns=[]), running())) == "own-channel"


def test_an_agent_speaks_on_its_own_channels_in_their_own_words() -> None:
    session = {"type": "session/titleChanged", "title": "x"}
    assert rule(judged(session, running())) == "own-channel"
    assert rule(judge_session_action(chat("delta"), memory())) == "own-channel"
    root = {"type": "root/activeSessionsChanged", "activeSessions": 9}
    assert rule(judged(root, running())) == "own-channel"
    assert rule(judge_session_action(root, memory())) == "own-channel"


@pytest.mark.parametrize("kind", ["changesetsChanged", "canvasesChanged", "movableChanged"])
def test_what_the_host_does_not_serve_yet_is_dropped_and_not_counted(kind: str) -> None:
    verdict = judged(chat(kind), running())
    assert rule(verdict) == "not-served" and isinstance(verdict, Drop) and not verdict.counted


@pytest.mark.parametrize(
    "action",
    [
        {},
        {"type": 5},
        {"type": "chat/unheardOf"},
        chat("activityChanged", activity=5),
        chat("usage", turnId="t", usage={"inputTokens": True}),
        chat("responsePart", turnId="t"),
        chat("responsePart", turnId="t", part={"kind": "markdown", "content": "x"}),
        call("Start", toolName="x"),
        chat("inputRequested", request={"message": "without an id"}),
    ],
    ids=str,
)
def test_what_is_not_well_formed_is_dropped_by_that_name(action: Json) -> None:
    assert rule(judged(action, running())) == "well-formed"


# -- the rules of "Writing an agent", by name -----------------------------------------


def test_part_before_delta() -> None:
    for kind in ("delta", "reasoning"):
        said = chat(kind, turnId="t", partId="never", content="x")
        assert rule(judged(said, running())) == "part-before-delta"
    assert rule(judged(RUNS, running())) == "part-before-delta"
    assert rule(judged(call("Complete", result=RESULT), running())) == "part-before-delta"


def test_append_follows_part() -> None:
    state = running(part("m"), part("r", "reasoning"))
    assert isinstance(judged(chat("delta", turnId="t", partId="m", content="x"), state), Accept)
    said = chat("reasoning", turnId="t", partId="r", content="x")
    assert isinstance(judged(said, state), Accept)
    wrong = chat("delta", turnId="t", partId="r", content="x")
    assert rule(judged(wrong, state)) == "append-follows-part"
    wrong = chat("reasoning", turnId="t", partId="m", content="x")
    assert rule(judged(wrong, state)) == "append-follows-part"


@pytest.mark.parametrize("kind", ["turnComplete", "turnCancelled", "error"])
def test_one_ending(kind: str) -> None:
    ending = chat(kind, turnId="t", duration=5, part=error_part())
    ended = reduce_chat(running(), chat("turnComplete", turnId="t", duration=5))
    assert isinstance(judged(ending, running()), Accept)
    assert rule(judged(ending, ended)) == "one-ending"
    assert rule(judged({**ending, "turnId": "other"}, running())) == "turn-id-matches"
    known = {"t", "other"}
    assert rule(judged({**ending, "turnId": "other"}, running(), known_turns=known)) == "one-ending"


def error_part() -> Json:
    return {"kind": "error", "error": {"errorType": "x", "message": "y"}}


@pytest.mark.parametrize("kind", ["turnComplete", "turnCancelled", "error"])
@pytest.mark.parametrize("duration", [None, "7", True, -1, float("nan"), float("inf"), [], ...])
def test_duration_required_is_mended_and_never_dropped(kind: str, duration: Any) -> None:
    ending = chat(kind, turnId="t", part=error_part())
    if duration is not ...:
        ending["duration"] = duration
    verdict = judged_loosely(ending)
    assert isinstance(verdict, Accept) and verdict.mended == "duration-required"
    assert verdict.action["duration"] == 1234
    assert check_action(verdict.action) is None
    assert reduce_chat(running(), verdict.action)["turns"][0]["duration"] == 1234


def judged_loosely(action: Json) -> Verdict:
    # NaN is not itself: what was given cannot be compared afterwards.
    return judge_chat_action(action, running(), memory())


@pytest.mark.parametrize(
    "ending",
    [
        chat("error", turnId="t", duration=1),
        chat("error", turnId="t", duration=1, part={"kind": "error"}),
        chat("error", turnId="t", duration=1, part={"kind": "markdown", "content": "x"}),
        chat("error", turnId="t", duration=1, error={"errorType": "e", "message": "as of 0.8"}),
        chat("error", turnId="t", duration=1, part={"error": {"message": 5}}, _meta=5),
        chat("turnComplete", turnId="t", duration=1, _meta="no object"),
    ],
    ids=str,
)
def test_a_faulty_ending_ends_the_turn_all_the_same(ending: Json) -> None:
    verdict = judged(ending, running(START, ASKS))
    assert isinstance(verdict, Accept) and verdict.mended == "well-formed"
    assert check_action(verdict.action) is None
    after = reduce_chat(running(START, ASKS), verdict.action)
    assert "activeTurn" not in after and len(after["turns"]) == 1
    if "error" in ending:
        assert after["turns"][0]["responseParts"][-1]["error"]["message"] == "as of 0.8"


def test_tool_start_is_the_part() -> None:
    for kind in ("toolCall", "inputRequest"):
        body = {"kind": kind, "toolCall": {}, "request": {"id": "q"}}
        verdict = judged(chat("responsePart", turnId="t", part=body), running())
        assert isinstance(verdict, Drop)
        assert verdict.rule in ("tool-start-is-the-part", "well-formed")
    whole = {"kind": "inputRequest", "request": {"id": "q"}}
    verdict = judged(chat("responsePart", turnId="t", part=whole), running())
    assert rule(verdict) == "tool-start-is-the-part"


def test_ready_says_confirmed() -> None:
    complete = call("Complete", result=RESULT)
    assert rule(judged(complete, running(START, ASKS))) == "ready-says-confirmed"
    assert isinstance(judged(complete, running(START, RUNS)), Accept)


def test_result_is_one_object() -> None:
    state = running(START, RUNS)
    assert rule(judged(call("Complete", **RESULT), state)) == "result-is-one-object"
    beside = call("Complete", result=RESULT, success=False, content=[])
    verdict = judged(beside, state)
    assert isinstance(verdict, Accept) and verdict.mended == "result-is-one-object"
    assert verdict.action == call("Complete", result=RESULT)


def test_failed_is_completed() -> None:
    result = {"success": False, "pastTenseMessage": "Could not", "error": {"message": "x"}}
    assert isinstance(judged(call("Complete", result=result), running(START, RUNS)), Accept)
    verdict = judged(call("Complete", result={**result, "status": "failed"}), running(START, RUNS))
    assert verdict == Accept(call("Complete", result=result), "failed-is-completed")


def test_turn_id_matches() -> None:
    for action in (part("p"), START, chat("usage", turnId="t", usage={})):
        other = {**action, "turnId": "other"}
        assert rule(judged(other, running())) == "turn-id-matches"
        assert rule(judged(action, dict(IDLE))) == "turn-id-matches"
    assert rule(judged(QUESTION, dict(IDLE))) == "turn-id-matches"
    new = chat("turnStarted", turnId="new", startedAt=NOON, message=MESSAGE)
    assert rule(judged(new, running())) == "turn-id-matches"


def test_a_turn_that_the_agent_starts_is_of_origin_agent() -> None:
    new = chat("turnStarted", turnId="new", startedAt=NOON, message=MESSAGE)
    verdict = judged(new, dict(IDLE))
    assert isinstance(verdict, Accept)
    assert verdict.action["message"] == {"text": "hello", "origin": {"kind": "agent"}}
    assert rule(judged({**new, "message": "hello"}, dict(IDLE))) == "well-formed"


def test_an_id_names_one_thing_in_its_chat() -> None:
    known = {"known_requests": {"c", "q"}}
    assert rule(judged(START, running(), **known)) == "id-is-unique"
    assert rule(judged(QUESTION, running(), **known)) == "id-is-unique"
    assert rule(judged(part("p"), running(part("p")))) == "id-is-unique"
    assert rule(judged(part("p", "reasoning"), running(part("p")))) == "id-is-unique"


def test_what_a_settled_call_still_says_is_swallowed() -> None:
    refused = call("Confirmed", approved=False, reason="denied")
    state = running(START, ASKS, refused)
    content = [{"type": "text", "text": "x"}]
    assert judged(call("Complete", result=RESULT), state) == Swallow()
    assert judged(call("ContentChanged", content=content), state) == Swallow()
    assert judged(ASKS, state) == Swallow()


def test_a_call_goes_through_its_states_in_order() -> None:
    content = [{"type": "text", "text": "x"}]
    assert rule(judged(call("ContentChanged", content=content), running(START))) == (
        "tool-call-order"
    )
    assert rule(judged(call("Delta", content="x"), running(START, RUNS))) == "tool-call-order"
    assert isinstance(judged(call("Delta", content="x"), running(START)), Accept)
    assert isinstance(judged(ASKS, running(START, RUNS)), Accept), "it may ask again"


# -- the session ----------------------------------------------------------------------


def test_a_persons_title_wins_from_then_on() -> None:
    title = {"type": "session/titleChanged", "title": "By the agent"}
    assert judge_session_action(title, memory()) == Accept(title)
    assert judge_session_action(title, memory(titled_by_person=True)) == Swallow()


@pytest.mark.parametrize(
    "kind",
    [
        "ready",
        "creationFailed",
        "chatAdded",
        "chatRemoved",
        "chatUpdated",
        "defaultChatChanged",
        "inputNeededSet",
        "inputNeededRemoved",
        "activityChanged",
        "isReadChanged",
        "isArchivedChanged",
        "activeClientSet",
        "activeClientRemoved",
    ],
)
def test_what_the_supervisor_projects_is_swallowed_from_an_agent(kind: str) -> None:
    assert judge_session_action({"type": f"session/{kind}"}, memory()) == Swallow()


def test_changes_of_a_sessions_state_pass_when_they_are_well_formed() -> None:
    for action in (
        {"type": "session/configChanged", "config": {"mode": "plan"}},
        {"type": "session/metaChanged", "_meta": {"a": 1}},
        {"type": "session/customizationsChanged", "customizations": []},
        {"type": "session/serverToolsChanged", "tools": [{"name": "x"}]},
    ):
        assert judge_session_action(action, memory()) == Accept(action)
    wrong = {"type": "session/titleChanged", "title": 5}
    assert rule(judge_session_action(wrong, memory())) == "well-formed"


# -- laws -----------------------------------------------------------------------------

STATES = st.sampled_from(
    [
        IDLE,
        running(),
        running(part("p1"), part("p2", "reasoning")),
        running(START, ASKS, QUESTION),
        running(START, RUNS),
        reduce_chat(running(START), chat("turnComplete", turnId="t", duration=1)),
    ]
)


def renamed(value: Any) -> Any:
    """The strategies' ids as this module's."""
    names = {"t1": "t", "c1": "c", "r1": "q"}
    if isinstance(value, dict):
        return {key: renamed(item) for key, item in value.items()}
    if isinstance(value, list):
        return [renamed(item) for item in value]
    return names.get(value, value) if isinstance(value, str) else value


ANYTHING = st.one_of(CHAT_ACTIONS, nearly(CHAT_ACTIONS), nearly(SESSION_ACTIONS), JSON).map(renamed)
MEMORIES = st.builds(
    Memory,
    elapsed_ms=st.integers(0, 5000),
    known_turns=st.just({"t"}),
    known_requests=st.sets(st.sampled_from(["c", "q"])),
    unacknowledged=st.sampled_from([set(), set(), {"t2"}]),
)


@given(action=ANYTHING, state=STATES, held=MEMORIES)
def test_law_judging_never_raises_and_what_it_accepts_is_well_formed(
    action: Any, state: Json, held: Memory
) -> None:
    if not isinstance(action, dict):
        return  # The worker's wire lets only objects through.
    for verdict in (judge_chat_action(action, state, held), judge_session_action(action, held)):
        if isinstance(verdict, Accept):
            assert check_action(verdict.action) is None
            assert verdict.action["type"] == action["type"]
            assert ACTIONS[verdict.action["type"]].client is not True or (
                verdict.action["type"] not in ("chat/truncated", "chat/draftChanged")
            )
        elif isinstance(verdict, Drop):
            assert verdict.rule and verdict.detail


@given(action=ANYTHING, state=STATES, held=MEMORIES)
def test_law_what_is_accepted_keeps_the_chat_whole(action: Any, state: Json, held: Memory) -> None:
    if not isinstance(action, dict):
        return
    verdict = judge_chat_action(action, state, held)
    if not isinstance(verdict, Accept):
        return
    after = reduce_chat(state, verdict.action)
    kind = verdict.action["type"]
    assert after["turns"][: len(state["turns"])] == state["turns"], "history is rewritten"
    if "activeTurn" in state and kind not in ENDINGS:
        assert after["activeTurn"]["id"] == state["activeTurn"]["id"]
        before_parts = state["activeTurn"]["responseParts"]
        assert len(after["activeTurn"]["responseParts"]) >= len(before_parts)
    if kind in ENDINGS:
        assert "activeTurn" not in after and len(after["turns"]) == len(state["turns"]) + 1
    for key in ("queuedMessages", "steeringMessage", "draft"):
        assert same_json(after.get(key), state.get(key)), f"{key} is not an agent's"
