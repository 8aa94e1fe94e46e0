"""What `/chats` shows of AHP's model: the law of its events, and its words one by one."""

import json
from collections.abc import Iterator
from functools import reduce
from typing import Any

import attrs
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent_contracts import AHP_DATA, SCHEMA_FILE, faults, needs_schema
from ahp_actions import CALL_IDS, CHAT_ACTIONS, INITIAL, SESSION_ACTIONS, TURN_IDS, action, shape
from ahpd.contracts.ahp.reducers import reduce_chat, reduce_session
from ahpd.contracts.chats import (
    ApprovalItem,
    AssistantItem,
    ChatEvent,
    ChatEventEnvelope,
    ChatInfo,
    ChatItem,
    DeltaEvent,
    InfoEvent,
    ItemEvent,
    ModelSelection,
    NoteItem,
    QuestionItem,
    ResetEvent,
    SubagentItem,
    Thread,
    ToolItem,
    TurnItem,
    UserItem,
    aborted_by_machine,
    read_event,
    write,
)
from ahpd.supervisor.wires.chats.view import (
    Facts,
    Memory,
    TurnExtras,
    events_between,
    info_of,
    is_status_news,
    items_of,
    page_start,
    pending_of,
    remember,
    thread_of,
)

State = dict[str, Any]

FACTS = Facts(
    chat_id="c",
    provider="claude",
    agent="notes",
    cwd="/home/a",
    created_at=1_000,
    selection=ModelSelection(model="m", options={}),
    context_window=200_000,
)
T0_MS = 1_790_812_800_000  # 2026-10-01T00:00:00Z
AT_MS = T0_MS + 60_000
SUBAGENT = "ahp-chat:/sub"


class Watched:
    """A chat that a host reduces, and a client that only hears the events."""

    def __init__(self, chat: State | None = None, facts: Facts = FACTS) -> None:
        self.chat: State = chat or INITIAL["chat"]
        self.session: State = INITIAL["session"]
        self.facts = facts
        self.subagents: dict[str, State] = {}
        self.extras: dict[str, TurnExtras] = {}
        self.at_ms = AT_MS
        self.memory = remember(Memory(), self.chat, at_ms=self.at_ms)
        self.shown = thread_of(self.chat, self.session, self.facts, self.memory)
        self.client = self.shown

    def look(self) -> list[ChatEvent]:
        self.at_ms += 100
        self.memory = remember(
            self.memory,
            self.chat,
            at_ms=self.at_ms,
            subagents=self.subagents,
            extras=self.extras,
        )
        after = thread_of(self.chat, self.session, self.facts, self.memory)
        events = events_between(self.shown, after)
        for event in events:
            self.client = self.client.apply(event)
        self.shown = after
        return events

    def take(self, *actions: State) -> list[ChatEvent]:
        """The events of several actions that a client sees at once."""
        self.chat = reduce(reduce_chat, actions, self.chat)
        return self.look()

    def item(self, kind: type[Any]) -> Any:
        (found,) = [item for item in self.client.items if isinstance(item, kind)]
        return found


# -- the law ------------------------------------------------------------------------

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
CONTENTS = st.lists(
    shape({"type": st.just("text"), "text": TEXT})
    | st.sampled_from(
        [
            {"type": "subagent", "resource": SUBAGENT, "title": "Look around"},
            {"type": "fileEdit", "after": {"uri": "file:///a%20b", "content": {"uri": "x:"}}},
            {"type": "terminal", "resource": "t:", "title": "t", "result": {"preview": "out"}},
            {"type": "resource", "uri": "file:///r"},
        ]
    ),
    max_size=3,
)
_CALL = {"turnId": TURN_IDS, "toolCallId": CALL_IDS}
MORE_ACTIONS = st.one_of(
    action("chat/toolCallContentChanged", {**_CALL, "content": CONTENTS}),
    action(
        "chat/toolCallReady",
        {**_CALL, "invocationMessage": TEXT, "toolInput": st.sampled_from(['{"a": 1}', "{", "x"])},
        {
            "edits": st.just({"items": [{"after": {"uri": "file:///e", "content": {}}}]}),
            "options": st.just(
                [
                    {"id": "once", "label": "Allow", "kind": "approve"},
                    {"id": "o1", "label": "Always allow", "kind": "approve"},
                ]
            ),
        },
    ),
    action(
        "chat/error",
        {
            "turnId": TURN_IDS,
            "duration": st.just(5),
            "part": shape(
                {
                    "kind": st.just("error"),
                    "error": shape(
                        {"errorType": st.sampled_from(["interrupted", "x"]), "message": TEXT}
                    ),
                },
                {"_meta": st.just({"limit": {"kind": "usage", "resetsAt": 5}})},
            ),
        },
    ),
    action(
        "chat/responsePart",
        {
            "turnId": TURN_IDS,
            "part": st.sampled_from(
                [
                    {"kind": "systemNotification", "content": {"markdown": "n"}},
                    {"kind": "contentRef", "uri": "x:y"},
                    {"kind": "hologram", "id": "h"},
                ]
            ),
        },
    ),
    action(
        "chat/inputRequested",
        {
            "request": shape(
                {"id": st.sampled_from(["r1", "r2"])},
                {
                    "questions": st.just(
                        [
                            {
                                "id": "q1",
                                "kind": "single-select",
                                "message": "Which?",
                                "options": [{"id": "a", "label": "A"}],
                            }
                        ]
                    )
                },
            )
        },
    ),
)
#: An action of the chat, of its session, or something that no action tells.
ANY_STEP = st.one_of(
    CHAT_ACTIONS.map(lambda one: ("chat", one)),
    MORE_ACTIONS.map(lambda one: ("chat", one)),
    SESSION_ACTIONS.map(lambda one: ("session", one)),
    st.sampled_from(["running", "paused", "subagent", "checkpoint"]).map(lambda one: (one, None)),
)


@st.composite
def fitting(draw: st.DrawFn, chat: State) -> State:
    """An action that does something to this chat: for the running turn, a part that is there."""
    active = chat.get("activeTurn")
    if active is None:
        if chat["turns"] and draw(st.integers(0, 7)) == 0:
            kept = draw(st.sampled_from(chat["turns"]))["id"]
            return {"type": "chat/truncated", "turnId": kept}
        text = draw(TEXT)
        origin = draw(st.sampled_from(["user", "user", "agent"]))
        ident = f"t{len(chat['turns'])}"
        return started(ident, text, origin={"kind": origin})
    named = {"turnId": active["id"]}
    parts = active["responseParts"]
    calls = [one["toolCall"] for one in parts if one["kind"] == "toolCall"]
    texts = [one for one in parts if one["kind"] in ("markdown", "reasoning")]
    asked = [one["request"] for one in parts if one["kind"] == "inputRequest"]
    options: list[st.SearchStrategy[State]] = [
        shape(
            {
                "type": st.just("chat/responsePart"),
                "part": shape(
                    {
                        "kind": st.sampled_from(["markdown", "reasoning"]),
                        "id": st.just(f"p{len(parts)}"),
                        "content": TEXT,
                    }
                ),
            }
        ),
        shape(
            {
                "type": st.just("chat/toolCallStart"),
                "toolCallId": st.just(f"c{len(parts)}"),
                "toolName": st.sampled_from(["Bash", "Edit"]),
                "displayName": st.just("d"),
            }
        ),
        UNENDING,
    ]
    if texts:
        grows = draw(st.sampled_from(texts))
        kind = "chat/delta" if grows["kind"] == "markdown" else "chat/reasoning"
        said = TEXT.map(lambda text: text + ".")
        delta = {"type": st.just(kind), "partId": st.just(grows["id"]), "content": said}
        options += [shape(delta)] * 3
    if calls:
        # Those that can still move are moved more often than not.
        moving = [one for one in calls if one["status"] not in ("completed", "cancelled")]
        options += [_next_of(draw(st.sampled_from(moving or calls)))] * 4
    if asked:
        ident = draw(st.sampled_from(asked))["id"]
        response = st.sampled_from(["accept", "decline", "cancel"])
        completed = {"type": st.just("chat/inputCompleted"), "requestId": st.just(ident)}
        options.append(shape({**completed, "response": response}))
    ending = draw(st.integers(0, 11)) == 0
    if ending:
        options = [
            shape({"type": st.just("chat/turnComplete"), "duration": st.just(5)}),
            shape({"type": st.just("chat/turnCancelled"), "duration": st.just(6)}),
            MORE_ACTIONS.filter(lambda made: made["type"] == "chat/error"),
        ]
    made = draw(st.one_of(options))
    return {**made, **named} if "turnId" in made or made["type"] != "chat/inputRequested" else made


UNENDING = MORE_ACTIONS.filter(lambda made: made["type"] != "chat/error")
RULE = [
    {"id": "once", "label": "Allow", "kind": "approve"},
    {"id": "rule", "label": "Always", "kind": "approve"},
]


def _next_of(held: State) -> st.SearchStrategy[State]:
    """What can happen to a tool call in the status it has."""

    def happens(kind: str, optional: State | None = None, **required: Any) -> Any:
        fixed = {key: st.just(value) for key, value in required.items()}
        named = {"type": st.just(f"chat/toolCall{kind}"), "toolCallId": st.just(held["toolCallId"])}
        return shape({**named, **fixed}, optional)

    text = "".join(one.get("text", "") for one in held.get("content", ()))
    grown = [{"type": "text", "text": text + "more"}]
    ready = {"invocationMessage": "Runs it", "toolInput": '{"command": "ls"}'}
    result = {"success": True, "pastTenseMessage": "Ran it", "content": grown}
    complete = happens("Complete", {"requiresResultConfirmation": st.booleans()}, result=result)
    asks_again = happens("Ready", **ready, options=RULE)
    match held["status"]:
        case "streaming":
            return asks_again | happens("Ready", **ready, confirmed="not-needed")
        case "pending-confirmation":
            yes: State = {"approved": True, "confirmed": "user-action"}
            no: State = {"approved": False, "reason": "denied"}
            return st.one_of(
                happens("Confirmed", **yes, selectedOptionId="rule"),
                happens("Confirmed", **yes),
                happens("Confirmed", **no),
                happens("Confirmed", **{**no, "reason": "skipped"}),
                complete,
            )
        case "running":
            changed = happens("ContentChanged", {}, content=grown)
            other = CONTENTS.map(lambda content: {"content": content})
            moved = st.tuples(happens("ContentChanged"), other).map(
                lambda two: {**two[0], **two[1]}
            )
            return st.one_of(changed, moved, complete, asks_again)
        case _:
            return happens("ResultConfirmed", approved=True) | happens(
                "ResultConfirmed", approved=False
            )


SUBAGENT_STATES: list[State] = [
    {"turns": [], "activeTurn": {"id": "s", "responseParts": [], "message": {"text": "look"}}},
    {
        "turns": [
            {
                "id": "s",
                "state": "complete",
                "startedAt": "2026-10-01T00:00:01Z",
                "duration": 7,
                "message": {"text": "look", "origin": {"kind": "tool"}},
                "usage": {"inputTokens": 3, "outputTokens": 4},
                "responseParts": [{"kind": "markdown", "id": "p", "content": "seen"}],
            }
        ]
    },
]


def step(watched: Watched, kind: str, given: Any) -> list[ChatEvent]:
    match kind:
        case "chat":
            watched.chat = reduce_chat(watched.chat, given)
        case "session":
            watched.session = reduce_session(watched.session, given)
        case "running" | "paused":
            name = "running" if kind == "running" else "queue_paused"
            changed: dict[str, Any] = {name: not getattr(watched.facts, name)}
            watched.facts = attrs.evolve(watched.facts, **changed)
        case "subagent":
            held = watched.subagents.get(SUBAGENT)
            watched.subagents = {SUBAGENT: SUBAGENT_STATES[held is SUBAGENT_STATES[0]]}
        case "checkpoint":
            watched.extras = {"t1": TurnExtras(checkpoint="f00", attempt=1)}
    return watched.look()


def walk(data: st.DataObject, watched: Watched, most: int) -> Iterator[list[ChatEvent]]:
    """Steps that mostly fit the chat as it is, and what each told."""
    for _ in range(data.draw(st.integers(1, most))):
        if data.draw(st.integers(0, 4)):
            kind, given_action = "chat", data.draw(fitting(watched.chat))
        else:
            kind, given_action = data.draw(ANY_STEP)
        yield step(watched, kind, given_action)


RANDOM = settings(
    deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much]
)


@settings(RANDOM, max_examples=60)
@given(st.data())
def test_a_client_that_applies_the_events_holds_what_a_fresh_attach_answers(
    data: st.DataObject,
) -> None:
    watched = Watched()
    before = watched.shown
    for events in walk(data, watched, 40):
        assert watched.client == watched.shown
        assert watched.shown.items == items_of(watched.chat, watched.memory)
        assert watched.shown.info == info_of(
            watched.chat, watched.session, watched.facts, watched.memory
        )
        ids = [item.id for item in watched.shown.items]
        assert len(set(ids)) == len(ids)
        if any(isinstance(event, ResetEvent) for event in events):
            held = [item.id for item in before.items]
            assert ids[: len(held)] != held
        waiting = pending_of(watched.shown.items)
        told = watched.shown.info.requests or ()
        assert [one.item_id for one in told] == [item.id for item in waiting][:8]
        before = watched.shown


@needs_schema
@settings(RANDOM, max_examples=20)
@given(st.data())
def test_every_event_is_valid_by_the_schema_and_survives_the_wire(data: st.DataObject) -> None:
    watched = Watched()
    over_the_wire = watched.shown
    for events in walk(data, watched, 25):
        for event in events:
            sent = write(ChatEventEnvelope(chat_id="c", event=event, seq=1))
            assert faults("ChatEventEnvelope", sent) == []
            received = read_event("chat.event", json.loads(json.dumps(sent)))
            over_the_wire = over_the_wire.apply(received.event)
        assert over_the_wire == watched.shown


@settings(RANDOM, max_examples=30)
@given(st.data())
def test_a_memory_made_anew_shows_the_same_thread_but_for_what_only_it_saw(
    data: st.DataObject,
) -> None:
    watched = Watched()
    for _ in walk(data, watched, 30):
        pass
    again = remember(
        Memory(), watched.chat, at_ms=0, subagents=watched.subagents, extras=watched.extras
    )
    held = {item.id: item for item in watched.shown.items}
    for item in again.items:
        same = held.pop(item.id)
        assert type(same) is type(item)
        if isinstance(item, (AssistantItem, NoteItem, UserItem)):
            assert same.text == item.text  # type: ignore[union-attr]  # of that kind
    # Only what came of a request can have gone: a state does not say who was asked.
    assert all(isinstance(item, ApprovalItem) for item in held.values())


def test_what_did_not_change_is_not_made_again() -> None:
    watched = Watched()
    watched.take(
        started("t1"),
        part("markdown", "p1", "a"),
        {"type": "chat/turnComplete", "turnId": "t1", "duration": 5},
        started("t2"),
        part("markdown", "p1", "b"),
        part("reasoning", "p2", "c"),
    )
    before = watched.shown.items
    watched.take({"type": "chat/reasoning", "turnId": "t2", "partId": "p2", "content": "!"})
    after = watched.shown.items
    assert [old is new for old, new in zip(before, after, strict=True)] == [True] * 6 + [False]


# -- the reducers' own cases ----------------------------------------------------------


def cases() -> list[Any]:
    folder = AHP_DATA / "reducers"
    files = sorted(folder.glob("*.json")) if folder.is_dir() else []
    loaded = [(file.stem, json.loads(file.read_text())) for file in files]
    return [pytest.param(case, id=name) for name, case in loaded if case["reducer"] == "chat"]


@pytest.mark.skipif(not SCHEMA_FILE.is_file(), reason=f"there is no schema at {SCHEMA_FILE}")
@pytest.mark.parametrize("case", cases())
def test_the_reducers_cases_keep_the_law(case: State) -> None:
    watched = Watched(case["initial"])
    for one in case["actions"]:
        watched.take(one)
        assert watched.client == watched.shown
        for item in watched.shown.items:
            assert faults("ChatItem", write(item)) == []
        assert faults("ChatInfo", write(watched.shown.info)) == []


# -- one by one -----------------------------------------------------------------------


def started(turn: str, text: str = "hi", **message: Any) -> State:
    return {
        "type": "chat/turnStarted",
        "turnId": turn,
        "startedAt": "2026-10-01T00:00:00.000Z",
        "message": {"text": text, "origin": {"kind": "user"}, **message},
    }


def part(kind: str, ident: str, content: str, turn: str | None = None) -> State:
    turn = turn or ("t2" if kind == "reasoning" or content == "b" else "t1")
    said = {"kind": kind, "id": ident, "content": content}
    return {"type": "chat/responsePart", "turnId": turn, "part": said}


def call(kind: str, ident: str = "c1", **more: Any) -> State:
    return {"type": f"chat/toolCall{kind}", "turnId": "t1", "toolCallId": ident, **more}


def opened(ident: str = "c1", name: str = "Bash") -> State:
    return call("Start", ident, toolName=name, displayName=name)


def asks(ident: str = "c1", **more: Any) -> State:
    return call("Ready", ident, invocationMessage="Runs it", **more)


def kinds(watched: Watched) -> list[str]:
    return [item.kind for item in watched.client.items]


def test_a_turn_shows_as_its_item_and_its_message_and_streams_by_deltas() -> None:
    watched = Watched()
    events = watched.take(started("t1"))
    assert [type(event) for event in events] == [ItemEvent, ItemEvent, InfoEvent]
    turn, said = watched.client.items
    assert isinstance(turn, TurnItem)
    assert (turn.id, turn.turn_id, turn.state, turn.ended_at) == ("t1", "t1", "running", None)
    assert (said.id, said.turn_id, said.created_at) == ("user:0:t1", "t1", T0_MS)
    assert watched.client.info.active_turn_id == "t1"
    assert watched.client.info.status == "running"

    watched.take(part("markdown", "p1", "He"))
    (delta,) = watched.take(
        {"type": "chat/delta", "turnId": "t1", "partId": "p1", "content": "llo"}
    )
    assert delta == DeltaEvent(item_id="text:0:t1", text="llo")
    reply = watched.item(AssistantItem)
    assert (reply.text, reply.streaming, reply.created_at) == ("Hello", True, AT_MS + 200)

    watched.take({"type": "chat/turnComplete", "turnId": "t1", "duration": 1500})
    assert watched.item(AssistantItem).streaming is False
    turn = watched.item(TurnItem)
    assert (turn.state, turn.ended_at) == ("done", T0_MS + 1500)
    assert watched.client.info.usage.turns == 1
    assert watched.client.info.active_turn_id is None


def test_thinking_ends_when_something_follows_it() -> None:
    watched = Watched()
    watched.take(started("t1"), part("reasoning", "p1", "hm", "t1"))
    watched.take(part("markdown", "p2", "so"))
    thought = watched.client.items[2]
    assert thought.kind == "thinking"
    assert (thought.streaming, thought.ended_at) == (False, AT_MS + 200)
    watched.take({"type": "chat/turnCancelled", "turnId": "t1", "duration": 9})
    assert watched.client.items[2] == thought
    assert watched.item(TurnItem).state == "aborted"


def test_an_approval_stands_where_it_was_asked_and_keeps_its_decision() -> None:
    options = [
        {"id": "once", "label": "Allow", "kind": "approve"},
        {"id": "rule", "label": "Allow in this session", "kind": "approve"},
        {"id": "no", "label": "Deny", "kind": "deny"},
    ]
    watched = Watched()
    watched.take(started("t1"), opened())
    watched.take(part("markdown", "p1", "meanwhile"))
    events = watched.take(asks(toolInput='{"command": "ls"}', options=options))
    assert kinds(watched) == ["turn", "user", "tool", "assistant", "approval"]
    assert not any(isinstance(event, ResetEvent) for event in events)
    asked = watched.item(ApprovalItem)
    assert (asked.request_id, asked.tool_use_id, asked.decision) == ("c1", "c1", "pending")
    assert asked.input == {"command": "ls"}
    assert asked.can_allow_always
    assert asked.allow_always.label == "Allow in this session"
    assert watched.client.info.status == "needs-you"
    (request,) = watched.client.info.requests or ()
    assert request.approval is not None
    assert (request.item_id, request.approval.command) == (asked.id, "ls")

    watched.take(call("Confirmed", approved=True, confirmed="user-action", selectedOptionId="rule"))
    decided = watched.item(ApprovalItem)
    assert decided.decision == "allow-always"
    assert decided.allow_always == asked.allow_always
    assert watched.client.info.requests is None
    watched.take(call("Complete", result={"success": True, "pastTenseMessage": "Ran it"}))
    tool = watched.item(ToolItem)
    assert (tool.state, tool.output, tool.progress) == ("done", "Ran it", None)


@pytest.mark.parametrize(
    ("settled", "decision"),
    [
        (call("Confirmed", approved=True, confirmed="user-action"), "allow"),
        (call("Confirmed", approved=False, reason="denied"), "deny"),
        (call("Confirmed", approved=False, reason="skipped"), "cancelled"),
        ({"type": "chat/turnCancelled", "turnId": "t1", "duration": 1}, "cancelled"),
        (call("Complete", result={"success": True, "pastTenseMessage": ""}), "cancelled"),
    ],
)
def test_what_came_of_an_approval(settled: State, decision: str) -> None:
    watched = Watched()
    watched.take(started("t1"), opened(), asks())
    watched.take(settled)
    assert watched.item(ApprovalItem).decision == decision
    assert pending_of(watched.client.items) == ()


def test_a_result_is_asked_for_apart_from_the_call() -> None:
    watched = Watched()
    watched.take(started("t1"), opened(), asks())
    watched.take(call("Confirmed", approved=True, confirmed="user-action"))
    result = {"success": True, "pastTenseMessage": "Read a secret"}
    watched.take(call("Complete", result=result, requiresResultConfirmation=True))
    first, second = [item for item in watched.client.items if isinstance(item, ApprovalItem)]
    assert (first.decision, second.decision) == ("allow", "pending")
    assert second.description == "Read a secret"
    watched.take(call("ResultConfirmed", approved=False))
    first, second = [item for item in watched.client.items if isinstance(item, ApprovalItem)]
    assert (first.decision, second.decision) == ("allow", "deny")


def test_a_running_tools_output_grows_by_deltas_and_is_whole_at_the_end() -> None:
    watched = Watched()
    watched.take(started("t1"), opened(), asks(confirmed="not-needed", toolInput="ls"))
    tool = watched.item(ToolItem)
    assert tool.input == "ls"
    assert tool.progress is not None
    assert (tool.progress.description, tool.progress.output) == ("Runs it", None)
    for so_far, added in (("a", "a"), ("ab\nc", "b\nc")):
        content = [{"type": "text", "text": so_far}]
        (event,) = watched.take(call("ContentChanged", content=content))
        assert event == DeltaEvent(item_id="tool:0:t1", text=added)
    (event,) = watched.take(call("ContentChanged", content=[{"type": "text", "text": "x"}]))
    assert isinstance(event, ItemEvent)
    failed = {
        "success": False,
        "pastTenseMessage": "",
        "content": [{"type": "text", "text": "x"}],
        "error": {"message": "no such file"},
    }
    watched.take(call("Complete", result=failed))
    tool = watched.item(ToolItem)
    assert (tool.state, tool.output) == ("error", "x\nno such file")


def test_file_edits_are_changes_by_what_was_there_before_and_after() -> None:
    side = {"uri": "file:///a%20b/c", "content": {"uri": "x:"}}
    content = [
        {"type": "fileEdit", "after": side},
        {"type": "fileEdit", "before": side},
        {"type": "fileEdit", "before": side, "after": side},
    ]
    watched = Watched()
    watched.take(started("t1"), opened(), asks(confirmed="not-needed"))
    watched.take(call("ContentChanged", content=content))
    changes = watched.item(ToolItem).changes
    assert [(one.path, one.kind) for one in changes] == [
        ("/a b/c", "add"),
        ("/a b/c", "delete"),
        ("/a b/c", "update"),
    ]


def test_a_subagent_is_a_row_that_follows_its_own_chat() -> None:
    watched = Watched()
    watched.take(started("t1"), opened(name="Task"), asks(confirmed="not-needed"))
    content = [{"type": "subagent", "resource": SUBAGENT, "title": "Look", "agentName": "scout"}]
    watched.take(call("ContentChanged", content=content))
    row = watched.item(SubagentItem)
    assert (row.description, row.subagent_type, row.status) == ("Look", "scout", "running")
    watched.subagents = {SUBAGENT: SUBAGENT_STATES[0]}
    watched.look()
    assert watched.item(SubagentItem).prompt == "look"
    assert watched.client.info.delegating is None
    watched.subagents = {SUBAGENT: SUBAGENT_STATES[1]}
    result = {"success": True, "pastTenseMessage": "", "content": content}
    watched.take(call("Complete", result=result))
    row = watched.item(SubagentItem)
    assert (row.status, row.finished_at) == ("done", T0_MS + 1007)
    assert row.usage is not None
    assert (row.usage.total_tokens, row.items_truncated) == (7, True)


def test_a_question_is_answered_dismissed_or_cancelled() -> None:
    asked = {
        "id": "r1",
        "questions": [
            {
                "id": "q",
                "kind": "multi-select",
                "title": "Pick",
                "message": "Which?",
                "options": [{"id": "a", "label": "A"}, {"id": "b", "label": "B"}],
            }
        ],
    }
    given_answers = {
        "q": {
            "state": "submitted",
            "value": {"kind": "selected-many", "value": ["b", "a"], "freeformValues": ["mine"]},
        }
    }
    for response, state, answers in (
        ("accept", "answered", {"q": "B, A, mine"}),
        ("decline", "dismissed", None),
        ("cancel", "cancelled", None),
    ):
        watched = Watched()
        watched.take(started("t1"), {"type": "chat/inputRequested", "request": asked})
        question = watched.item(QuestionItem)
        assert (question.state, question.request_id) == ("pending", "r1")
        assert question.questions[0].multi_select
        completed = {"type": "chat/inputCompleted", "requestId": "r1", "response": response}
        watched.take({**completed, "answers": given_answers})
        question = watched.item(QuestionItem)
        assert (question.state, question.answers) == (state, answers)


def test_a_question_left_open_by_an_ended_turn_is_cancelled() -> None:
    watched = Watched()
    request = {"type": "chat/inputRequested", "request": {"id": "r1", "message": "Sure?"}}
    watched.take(started("t1"), request)
    assert watched.item(QuestionItem).questions[0].question == "Sure?"
    watched.take({"type": "chat/turnComplete", "turnId": "t1", "duration": 1})
    assert watched.item(QuestionItem).state == "cancelled"


def failure(error_type: str, message: str, **more: Any) -> State:
    error = {"errorType": error_type, "message": message}
    said = {"kind": "error", "error": error, **more}
    return {"type": "chat/error", "turnId": "t1", "duration": 3, "part": said}


def test_a_turn_that_a_restart_cut_off_is_aborted_by_the_machine() -> None:
    watched = Watched()
    watched.take(started("t1"))
    watched.take(failure("interrupted", "The host was stopped."))
    turn, note = watched.item(TurnItem), watched.item(NoteItem)
    assert (turn.state, note.level) == ("aborted", "warning")
    assert aborted_by_machine(turn, watched.client.items)
    assert note.text.endswith("restarted: The host was stopped.")


def test_a_dead_worker_and_a_limit_are_errors_and_the_limit_stays_in_the_info() -> None:
    watched = Watched()
    watched.take(started("t1"))
    limit = {"kind": "usage", "resetsAt": 99}
    before = watched.client.info
    watched.take(failure("workerDied", "It died", _meta={"limit": limit}))
    turn, note = watched.item(TurnItem), watched.item(NoteItem)
    assert (turn.state, note.level, note.text) == ("error", "error", "It died")
    assert watched.client.info.status == "error"
    assert watched.client.info.limit is not None
    assert watched.client.info.limit.resets_at == 99
    assert is_status_news(before, watched.client.info)
    watched.take(started("t2"))
    assert watched.client.info.limit is None


def test_a_turn_that_nobody_asked_for_says_what_it_is_about() -> None:
    watched = Watched()
    watched.take(started("t1", "Tests finished\nall green", origin={"kind": "agent"}))
    assert kinds(watched) == ["turn"]
    turn = watched.item(TurnItem)
    assert (turn.origin, turn.label) == ("agent", "Tests finished")

    opened_by_tool = {**INITIAL["chat"], "origin": {"kind": "tool", "chat": "x", "toolCallId": "c"}}
    watched = Watched(opened_by_tool)
    watched.take(started("t1", "Look around", origin={"kind": "tool"}))
    assert watched.item(UserItem).text == "Look around"


def test_what_waits_is_the_queue_and_what_is_steered_leads_it() -> None:
    watched = Watched()
    message = {"text": "later", "origin": {"kind": "user"}}
    carried = {"createdAt": 7, "turnId": "t9", "skills": ["s"]}
    queued = {"type": "chat/pendingMessageSet", "kind": "queued", "id": "m1"}
    steered = {"type": "chat/pendingMessageSet", "kind": "steering", "id": "m2"}
    watched.take(started("t1"))
    watched.take(
        {**queued, "message": {**message, "_meta": {"agent-contracts": carried}}},
        {**steered, "message": message},
    )
    first, second = watched.client.info.queue or ()
    assert (first.id, first.created_at, first.turn_id) == ("m2", AT_MS + 200, None)
    assert (second.created_at, second.turn_id, second.skills) == (7, "t9", ("s",))
    watched.take({"type": "chat/queuedMessagesReordered", "order": ["m1"]})
    assert (watched.client.info.queue or ())[0] == first


def test_a_cleared_thread_is_one_reset() -> None:
    watched = Watched()
    watched.take(started("t1"), part("markdown", "p1", "a"))
    watched.take({"type": "chat/turnComplete", "turnId": "t1", "duration": 5})
    (event,) = watched.take({"type": "chat/truncated"})
    assert isinstance(event, ResetEvent)
    assert event.items == watched.client.items == ()


def test_ids_never_meet_whatever_a_client_calls_its_turns() -> None:
    watched = Watched()
    for ident in ("t1", "user:0:t1", "turn:0:t1", "t1", "", "user:0.1:t1", "text:0:t1\n"):
        watched.take(started(ident))
        watched.take({"type": "chat/turnComplete", "turnId": ident, "duration": 1})
    ids = [item.id for item in watched.client.items]
    assert len(set(ids)) == len(ids) == 14
    assert all(ids)
    assert ids[:2] == ["t1", "user:0:t1"]


def test_usage_is_the_last_requests_context_and_the_whole_chats_cost() -> None:
    watched = Watched(facts=attrs.evolve(FACTS, spent_before_usd=1.5, turns_before=2))
    usage = {"inputTokens": 10, "cacheReadTokens": 90, "model": "m-5", "_meta": {"costUsd": 0.5}}
    watched.take(started("t1"), {"type": "chat/usage", "turnId": "t1", "usage": usage})
    info = watched.client.info
    assert (info.usage.context_tokens, info.usage.cost_usd, info.usage.turns) == (100, 2.0, 2)
    assert (info.usage.context_window, info.model) == (200_000, "m-5")
    assert watched.item(TurnItem).cost_usd == 0.5
    usage = {"inputTokens": 100, "cacheReadTokens": 90, "_meta": {"contextTokens": 80}}
    watched.take({"type": "chat/usage", "turnId": "t1", "usage": usage})
    assert watched.client.info.usage.context_tokens == 80


@pytest.mark.parametrize(
    ("status", "exited", "shown"),
    [
        (1, False, "idle"),
        (2, False, "error"),
        (8, False, "running"),
        (24, False, "needs-you"),
        (33, False, "idle"),
        (24, True, "exited"),
        (0, False, "idle"),
    ],
)
def test_the_bitset_says_the_status(status: int, exited: bool, shown: str) -> None:
    facts = attrs.evolve(FACTS, exited=exited)
    chat = {**INITIAL["chat"], "status": status}
    info: ChatInfo = info_of(chat, INITIAL["session"], facts, Memory())
    assert info.status == shown


def test_the_rest_of_the_info() -> None:
    chat = {
        **INITIAL["chat"],
        "title": " A long title " + "x" * 100,
        "interactivity": "hidden",
        "origin": {"kind": "fork", "chat": "ahp-chat:/other", "turnId": "t0"},
        "backgroundWork": [
            {"type": "shell", "id": "s1", "label": "make", "startedAt": "2026-10-01T00:00:00Z"},
            {"type": "agent", "id": "s2", "label": "a", "startedAt": "2026-10-01T00:00:00Z"},
        ],
    }
    session = {**INITIAL["session"], "config": {"values": {"permissionMode": "plan"}}}
    info = info_of(chat, session, FACTS, Memory())
    assert info.suggested_title is not None
    assert len(info.suggested_title) == 80
    assert info.permission_mode == "plan"
    assert info.hidden is True
    assert info.fork_of is not None
    assert (info.fork_of.chat_id, info.fork_of.turn_id) == ("other", "t0")
    (task,) = info.background or ()
    assert (task.id, task.kind, task.started_at) == ("s1", "shell", T0_MS)
    assert info.delegating is True
    assert not is_status_news(info, info)


def test_a_page_ends_at_its_limits_but_never_empty() -> None:
    notes = [
        NoteItem(id=str(n), created_at=0, turn_id=None, level="info", text="x" * 1000)
        for n in range(10)
    ]
    assert page_start(notes, 10, limit=4) == 6
    assert page_start(notes, 3, limit=4) == 0
    assert page_start(notes, 10, max_bytes=3500) == 7
    assert page_start(notes, 10, max_bytes=1) == 9
    assert page_start(notes, 0) == page_start([], 0) == 0


def test_no_event_says_nothing() -> None:
    info = info_of(INITIAL["chat"], INITIAL["session"], FACTS, Memory())
    items: tuple[ChatItem, ...] = ()
    assert events_between(Thread(info=info, items=items), Thread(info=info, items=items)) == []
