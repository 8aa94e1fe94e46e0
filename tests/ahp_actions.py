"""Strategies for AHP actions: well-formed ones over few ids, and ones that are nearly so."""

from typing import Any

from hypothesis import strategies as st

Action = dict[str, Any]

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
JSON: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
#: As JSON, without the nulls that stand for nothing.
META = st.dictionaries(TEXT, st.integers() | TEXT, max_size=2)

TURN_IDS = st.sampled_from(["t1", "t2"])
CALL_IDS = st.sampled_from(["c1", "c2"])
PART_IDS = st.sampled_from(["p1", "p2", "c1"])
REQUEST_IDS = st.sampled_from(["r1", "r2"])
PENDING_IDS = st.sampled_from(["m1", "m2", "m3"])
CHATS = st.sampled_from(["ahp-chat:/1", "ahp-chat:/2", "ahp-chat:/3"])
FOLDERS = st.sampled_from(["file:///a", "file:///b", "file:///c"])
ENTRIES = st.sampled_from(["plugin", "skill", "server", "inner"])
TIMES = st.sampled_from(["2026-10-01T00:00:00.000Z", "2026-10-01T00:00:01.500Z"])
PROSE = TEXT | st.fixed_dictionaries({"markdown": TEXT})
DURATIONS = st.integers(-5, 10_000) | st.floats(0, 1e6)


def shape(required: dict[str, Any], optional: dict[str, Any] | None = None) -> Any:
    return st.fixed_dictionaries(required, optional=optional or {})


def action(kind: str, required: dict[str, Any], optional: dict[str, Any] | None = None) -> Any:
    return shape({"type": st.just(kind), **required}, {"_meta": META, **(optional or {})})


MESSAGE = shape(
    {"text": TEXT, "origin": st.just({"kind": "user"})}, {"model": st.just({"id": "m"})}
)
ERROR = shape({"errorType": TEXT, "message": TEXT})
CONTENT = st.lists(shape({"type": st.just("text"), "text": TEXT}), max_size=2)
RESULT = shape(
    {"success": st.booleans(), "pastTenseMessage": PROSE},
    {"content": CONTENT, "error": shape({"message": TEXT})},
)
OPTION = shape({"id": st.sampled_from(["o1", "o2"]), "label": TEXT, "kind": st.just("approve")})
CONTRIBUTOR = st.sampled_from(
    [
        {"kind": "mcp", "customizationId": "server"},
        {"kind": "client", "clientId": "one"},
        {"kind": "client", "clientId": "two"},
    ]
)
ANSWER = st.just({"state": "skipped"}) | shape(
    {
        "state": st.sampled_from(["draft", "submitted"]),
        "value": st.just({"kind": "text", "value": "a"}),
    }
)
ANSWERS = st.dictionaries(st.sampled_from(["q1", "q2"]), ANSWER, max_size=2)
PART = shape({"kind": st.sampled_from(["markdown", "reasoning"]), "id": PART_IDS, "content": TEXT})
ENDED_TURN = shape(
    {
        "id": st.sampled_from(["t1", "t2", "old"]),
        "message": MESSAGE,
        "responseParts": st.lists(PART, max_size=1),
        "state": st.just("complete"),
    }
)
_TURN = {"turnId": TURN_IDS}
_CALL = {"turnId": TURN_IDS, "toolCallId": CALL_IDS}

CHAT_ACTIONS: st.SearchStrategy[Action] = st.one_of(
    action(
        "chat/turnStarted",
        {**_TURN, "startedAt": TIMES, "message": MESSAGE},
        {"queuedMessageId": PENDING_IDS},
    ),
    action("chat/turnComplete", {**_TURN, "duration": DURATIONS}),
    action("chat/turnCancelled", {**_TURN, "duration": DURATIONS}),
    action(
        "chat/error",
        {
            **_TURN,
            "duration": DURATIONS,
            "part": shape({"kind": st.just("error"), "error": ERROR}, {"resumable": st.booleans()}),
        },
    ),
    action("chat/turnResume", _TURN),
    action("chat/truncated", {}, {"turnId": TURN_IDS}),
    action(
        "chat/turnsLoaded", {"turns": st.lists(ENDED_TURN, max_size=2)}, {"turnsNextCursor": TEXT}
    ),
    action("chat/responsePart", {**_TURN, "part": PART}),
    action("chat/delta", {**_TURN, "partId": PART_IDS, "content": TEXT}),
    action("chat/reasoning", {**_TURN, "partId": PART_IDS, "content": TEXT}),
    action("chat/usage", {**_TURN, "usage": shape({}, {"inputTokens": st.integers(0, 9)})}),
    action(
        "chat/toolCallStart",
        {**_CALL, "toolName": TEXT, "displayName": TEXT},
        {"intention": TEXT, "contributor": CONTRIBUTOR},
    ),
    action("chat/toolCallDelta", _CALL, {"content": TEXT, "invocationMessage": PROSE}),
    action(
        "chat/toolCallReady",
        {**_CALL, "invocationMessage": PROSE},
        {
            "toolInput": TEXT,
            "confirmed": st.just("not-needed"),
            "contributor": CONTRIBUTOR,
            "confirmationTitle": PROSE,
            "editable": st.booleans(),
            "options": st.lists(OPTION, max_size=2),
        },
    ),
    action(
        "chat/toolCallConfirmed",
        {**_CALL, "approved": st.just(True), "confirmed": st.just("user-action")},
        {"editedToolInput": TEXT, "selectedOptionId": st.sampled_from(["o1", "o2", "none"])},
    ),
    action(
        "chat/toolCallConfirmed",
        {**_CALL, "approved": st.just(False), "reason": st.sampled_from(["denied", "skipped"])},
        {"reasonMessage": PROSE, "userSuggestion": MESSAGE},
    ),
    action(
        "chat/toolCallComplete",
        {**_CALL, "result": RESULT},
        {"requiresResultConfirmation": st.booleans()},
    ),
    action("chat/toolCallResultConfirmed", {**_CALL, "approved": st.booleans()}),
    action("chat/toolCallContentChanged", {**_CALL, "content": CONTENT}),
    action(
        "chat/toolCallAuthRequired",
        {**_CALL, "auth": st.just({"reason": "required", "resource": {"resource": "https://x"}})},
    ),
    action("chat/toolCallAuthResolved", _CALL),
    action(
        "chat/inputRequested",
        {"request": shape({"id": REQUEST_IDS}, {"message": TEXT, "answers": ANSWERS})},
    ),
    action(
        "chat/inputAnswerChanged",
        {"requestId": REQUEST_IDS, "questionId": st.sampled_from(["q1", "q2"])},
        {"answer": ANSWER},
    ),
    action(
        "chat/inputCompleted",
        {"requestId": REQUEST_IDS, "response": st.sampled_from(["accept", "decline", "cancel"])},
        {"answers": ANSWERS},
    ),
    action(
        "chat/pendingMessageSet",
        {"kind": st.sampled_from(["queued", "steering"]), "id": PENDING_IDS, "message": MESSAGE},
    ),
    action(
        "chat/pendingMessageRemoved",
        {"kind": st.sampled_from(["queued", "steering"]), "id": PENDING_IDS},
    ),
    action("chat/queuedMessagesReordered", {"order": st.lists(PENDING_IDS, max_size=4)}),
    action("chat/draftChanged", {}, {"draft": MESSAGE}),
    action("chat/activityChanged", {}, {"activity": TEXT}),
    action("chat/isReadChanged", {"isRead": st.booleans()}),
    action("chat/isArchivedChanged", {"isArchived": st.booleans()}),
    action("chat/movableChanged", {"movable": st.booleans()}),
    action("chat/changesetsChanged", {}, {"changesets": st.just([])}),
    action("chat/canvasesChanged", {}, {"canvases": st.just([{"resource": "ahp-canvas:/1"}])}),
    action("chat/workingDirectorySet", {"directory": FOLDERS}),
    action("chat/workingDirectoryRemoved", {"directory": FOLDERS}),
    action(
        "chat/backgroundWorkSet",
        {
            "work": shape(
                {"type": st.just("shell"), "id": PENDING_IDS, "label": TEXT, "startedAt": TIMES}
            )
        },
    ),
    action("chat/backgroundWorkRemoved", {"id": PENDING_IDS}),
)

_SUMMARY = {"title": TEXT, "status": st.sampled_from([1, 2, 8, 24, 33]), "modifiedAt": TIMES}
_SERVER_STATE = st.sampled_from(
    [{"kind": "starting", "blocking": True}, {"kind": "starting"}, {"kind": "ready"}]
)
_SERVER = shape(
    {
        "type": st.just("mcpServer"),
        "id": st.sampled_from(["server", "inner"]),
        "uri": FOLDERS,
        "name": TEXT,
        "state": _SERVER_STATE,
    }
)
_SKILL = shape({"type": st.just("skill"), "id": st.just("skill"), "uri": FOLDERS, "name": TEXT})
_PLUGIN = shape(
    {"type": st.just("plugin"), "id": st.just("plugin"), "uri": FOLDERS, "name": TEXT},
    {"children": st.lists(_SKILL | _SERVER, max_size=2)},
)
CUSTOMIZATION = _SERVER | _PLUGIN
CLIENT = shape(
    {"clientId": st.sampled_from(["one", "two"]), "tools": st.just([])}, {"displayName": TEXT}
)

SESSION_ACTIONS: st.SearchStrategy[Action] = st.one_of(
    action("session/ready", {}),
    action("session/creationFailed", {"error": ERROR}),
    action(
        "session/chatAdded", {"summary": shape({"resource": CHATS, **_SUMMARY}, {"activity": TEXT})}
    ),
    action("session/chatRemoved", {"chat": CHATS}),
    action(
        "session/chatUpdated", {"chat": CHATS, "changes": shape({}, {**_SUMMARY, "activity": TEXT})}
    ),
    action("session/chatsReordered", {"chats": st.lists(CHATS, max_size=3)}),
    action("session/defaultChatChanged", {}, {"defaultChat": CHATS}),
    action("session/titleChanged", {"title": TEXT}),
    action("session/isReadChanged", {"isRead": st.booleans()}),
    action("session/isArchivedChanged", {"isArchived": st.booleans()}),
    action("session/activityChanged", {}, {"activity": TEXT}),
    action("session/changesetsChanged", {}, {"changesets": st.just([])}),
    action("session/configChanged", {"config": META}, {"replace": st.booleans()}),
    action("session/metaChanged", {}),
    action("session/serverToolsChanged", {"tools": st.lists(shape({"name": TEXT}), max_size=2)}),
    action("session/activeClientSet", {"activeClient": CLIENT}),
    action("session/activeClientRemoved", {"clientId": st.sampled_from(["one", "two"])}),
    action("session/workingDirectorySet", {"directory": FOLDERS}),
    action("session/workingDirectoryRemoved", {"directory": FOLDERS}),
    action("session/workingDirectoryReplaced", {"directory": FOLDERS, "replacement": FOLDERS}),
    action(
        "session/inputNeededSet",
        {
            "request": shape(
                {
                    "id": REQUEST_IDS,
                    "chat": CHATS,
                    "kind": st.just("chatInput"),
                    "request": shape({"id": REQUEST_IDS}),
                }
            )
        },
    ),
    action("session/inputNeededRemoved", {"id": REQUEST_IDS}),
    action(
        "session/customizationsChanged", {"customizations": st.lists(CUSTOMIZATION, max_size=2)}
    ),
    action(
        "session/customizationToggled",
        {
            "id": ENTRIES,
            "enablement": st.lists(
                shape({"kind": st.just("session"), "enabled": st.booleans()}), max_size=2
            ),
        },
    ),
    action("session/customizationUpdated", {"customization": CUSTOMIZATION}),
    action("session/customizationRemoved", {"id": ENTRIES}),
    action(
        "session/mcpServerStateChanged", {"id": ENTRIES, "state": _SERVER_STATE}, {"channel": TEXT}
    ),
    action("session/mcpServerStartRequested", {"id": ENTRIES}),
    action("session/mcpServerStopRequested", {"id": ENTRIES}),
    action("session/mcpServerBackgroundRequested", {"id": ENTRIES}),
)

_AGENT = shape(
    {
        "provider": TEXT,
        "displayName": TEXT,
        "description": TEXT,
        "models": st.lists(shape({"id": TEXT, "provider": TEXT, "name": TEXT}), max_size=1),
    }
)
ROOT_ACTIONS: st.SearchStrategy[Action] = st.one_of(
    action("root/agentsChanged", {"agents": st.lists(_AGENT, max_size=2)}),
    action("root/activeSessionsChanged", {"activeSessions": st.integers(0, 9)}),
    action(
        "root/terminalsChanged",
        {
            "terminals": st.lists(
                shape(
                    {
                        "resource": TEXT,
                        "title": TEXT,
                        "claim": st.just({"kind": "client", "clientId": "one"}),
                    }
                ),
                max_size=1,
            )
        },
    ),
    action("root/configChanged", {"config": META}, {"replace": st.booleans()}),
)

WELL_FORMED = {"root": ROOT_ACTIONS, "session": SESSION_ACTIONS, "chat": CHAT_ACTIONS}


#: A state of each family to begin with.
INITIAL: dict[str, dict[str, Any]] = {
    "root": {
        "agents": [],
        "config": {"schema": {"type": "object", "properties": {}}, "values": {"a": 1}},
    },
    "session": {
        "provider": "echo",
        "title": "S",
        "status": 1,
        "lifecycle": "creating",
        "activeClients": [],
        "chats": [],
        "config": {"schema": {"type": "object", "properties": {}}, "values": {}},
    },
    "chat": {
        "resource": "ahp-chat:/1",
        "title": "C",
        "status": 1,
        "modifiedAt": "2026-10-01T00:00:00.000Z",
        "turns": [],
    },
}


@st.composite
def nearly(draw: st.DrawFn, actions: st.SearchStrategy[Action]) -> Any:
    """A well-formed action with something in it gone, or something else in its place."""
    spoilt: Any = draw(actions)
    for _ in range(draw(st.integers(1, 2))):
        spoilt = _spoil(draw, spoilt)
    return spoilt


def _spoil(draw: st.DrawFn, value: Any) -> Any:
    members: list[tuple[Any, Any]] = []
    if isinstance(value, dict):
        members = list(value.items())
    elif isinstance(value, list):
        members = list(enumerate(value))
    if not members or draw(st.integers(0, 3)) == 0:
        return draw(JSON)
    key, inner = draw(st.sampled_from(members))
    copied: Any = value.copy()
    if draw(st.booleans()):
        copied[key] = _spoil(draw, inner)
    else:
        del copied[key]
    return copied
