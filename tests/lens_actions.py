"""Further actions for the lens's laws: those in which versions differ, oftener than by chance."""

from typing import Any

from hypothesis import strategies as st

from ahp_actions import (
    CALL_IDS,
    CHATS,
    CONTRIBUTOR,
    CUSTOMIZATION,
    ERROR,
    FOLDERS,
    INITIAL,
    PROSE,
    REQUEST_IDS,
    TEXT,
    TIMES,
    TURN_IDS,
    WELL_FORMED,
    Action,
    action,
    shape,
)
from ahpd.contracts.ahp.reducers import REDUCERS

_TURN = {"turnId": TURN_IDS}
_OF_CALL = {"turnId": st.just("t1"), "toolCallId": CALL_IDS}
_REFERENCE = shape({"uri": FOLDERS}, {"sizeHint": st.integers(0, 9)})
_BLOCK = shape({"type": st.just("text"), "text": TEXT}) | shape(
    {"type": st.just("terminal"), "resource": FOLDERS, "title": TEXT},
    {"result": shape({}, {"exitCode": st.integers(0, 2), "preview": TEXT}), "isPty": st.just(True)},
)
_DECISIONS = st.lists(
    shape({"kind": st.sampled_from(["session", "workspace", "global"]), "enabled": st.booleans()}),
    max_size=2,
)
_DIRECTORY = shape(
    {
        "type": st.just("directory"),
        "id": st.just("folder"),
        "uri": FOLDERS,
        "name": TEXT,
        "enabled": st.booleans(),
        "contents": st.just("skill"),
        "writable": st.just(False),
    }
)
_DECIDED: Any = st.builds(
    lambda entry, decisions: {**entry, **({"enablement": decisions} if decisions else {})},
    CUSTOMIZATION,
    _DECISIONS,
)
_ENTRIES = st.sampled_from(["plugin", "skill", "server", "inner", "folder"])
_ROW = {
    "workingDirectories": st.lists(FOLDERS, unique=True, max_size=2),
    "origin": st.just({"kind": "sideChat", "chat": "ahp-chat:/1", "turnId": "t1"}),
}
_SUMMARY = {"title": TEXT, "status": st.sampled_from([1, 8, 33, 65]), "modifiedAt": TIMES}

_LIFE = st.one_of(
    action(
        "chat/turnStarted",
        {
            **_TURN,
            "startedAt": TIMES,
            "message": shape({"text": TEXT, "origin": st.just({"kind": "user"})}),
        },
    ),
    action(
        "chat/error",
        {
            **_TURN,
            "duration": st.integers(0, 9),
            "part": shape({"kind": st.just("error"), "error": ERROR, "resumable": st.just(True)}),
        },
    ),
    action("chat/turnResume", _TURN),
    action("chat/inputRequested", {"request": shape({"id": REQUEST_IDS})}),
    action("chat/turnComplete", {"turnId": TURN_IDS, "duration": st.integers(0, 9)}),
)

_TOOLS = st.one_of(
    action(
        "chat/toolCallStart",
        {**_OF_CALL, "toolName": TEXT, "displayName": TEXT},
        {"intention": TEXT, "contributor": CONTRIBUTOR},
    ),
    action("chat/toolCallDelta", _OF_CALL, {"invocationMessage": PROSE}),
    action(
        "chat/toolCallReady",
        {**_OF_CALL, "invocationMessage": PROSE},
        {
            "toolInput": TEXT | _REFERENCE,
            "confirmed": st.just("not-needed"),
            "contributor": CONTRIBUTOR,
            "intention": TEXT,
        },
    ),
    action(
        "chat/toolCallConfirmed",
        {**_OF_CALL, "approved": st.just(True), "confirmed": st.just("user-action")},
        {"editedToolInput": TEXT},
    ),
    action(
        "chat/toolCallComplete",
        {
            **_OF_CALL,
            "result": shape(
                {"success": st.booleans(), "pastTenseMessage": PROSE},
                {"content": st.lists(_BLOCK, max_size=2)},
            ),
        },
        {"requiresResultConfirmation": st.booleans()},
    ),
    action("chat/toolCallContentChanged", {**_OF_CALL, "content": st.lists(_BLOCK, max_size=2)}),
)

_SESSION = st.one_of(
    action("session/chatAdded", {"summary": shape({"resource": CHATS, **_SUMMARY}, _ROW)}),
    action("session/chatUpdated", {"chat": CHATS, "changes": shape({}, {**_SUMMARY, **_ROW})}),
    action("session/defaultChatChanged", {"defaultChat": CHATS}),
    action(
        "session/chatsReordered",
        {"chats": st.permutations(["ahp-chat:/1", "ahp-chat:/2", "ahp-chat:/3"])},
    ),
    action("session/workingDirectorySet", {"directory": FOLDERS}),
    action("session/workingDirectoryReplaced", {"directory": FOLDERS, "replacement": FOLDERS}),
    action(
        "session/customizationsChanged",
        {"customizations": st.lists(_DECIDED | _DIRECTORY, unique_by=lambda e: e["id"])},
    ),
    action("session/customizationUpdated", {"customization": _DECIDED | _DIRECTORY}),
    action("session/customizationToggled", {"id": _ENTRIES, "enablement": _DECISIONS}),
    action("session/mcpServerBackgroundRequested", {"id": _ENTRIES}),
    action(
        "session/activeClientSet",
        {
            "activeClient": shape(
                {
                    "clientId": st.sampled_from(["one", "two"]),
                    "tools": st.just([]),
                    "customizations": st.lists(_DECIDED, max_size=1),
                }
            )
        },
    ),
    action(
        "session/inputNeededSet",
        {
            "request": shape(
                {
                    "id": REQUEST_IDS,
                    "chat": CHATS,
                    "kind": st.sampled_from(["toolClientExecution", "toolConfirmation"]),
                    "turnId": st.just("t1"),
                    "toolCall": shape(
                        {
                            "toolCallId": CALL_IDS,
                            "status": st.just("running"),
                            "toolInput": TEXT | _REFERENCE,
                            "content": st.lists(_BLOCK, max_size=1),
                        }
                    ),
                }
            )
        },
    ),
)

_ROOT = action(
    "root/terminalsChanged",
    {
        "terminals": st.lists(
            shape(
                {
                    "resource": TEXT,
                    "title": TEXT,
                    "claim": st.just({"kind": "client", "clientId": "one"}),
                    "lifecycle": st.sampled_from(
                        [{"status": "running"}, {"status": "exited", "exitCode": 3}]
                    ),
                }
            ),
            max_size=2,
        )
    },
) | action(
    "root/agentsChanged",
    {
        "agents": st.lists(
            shape(
                {
                    "provider": TEXT,
                    "displayName": TEXT,
                    "description": TEXT,
                    "models": st.just([]),
                    "customizations": st.lists(_DECIDED, max_size=2),
                }
            ),
            max_size=2,
        )
    },
)


def _one_of_groups(*groups: Any) -> Any:
    """Each group as often as the others, however many actions it has."""
    return st.sampled_from(range(len(groups))).flatmap(lambda index: groups[index])


#: By family: mostly actions in which versions differ, and any well-formed one.
ACTIONS_BY_FAMILY = {
    "root": _one_of_groups(WELL_FORMED["root"], _ROOT),
    "session": _one_of_groups(WELL_FORMED["session"], _SESSION, _SESSION),
    "chat": _one_of_groups(WELL_FORMED["chat"], _LIFE, _TOOLS, _TOOLS),
}


def runs(family: str) -> Any:
    """Actions one after the other; many of them change nothing where they come."""
    return st.lists(ACTIONS_BY_FAMILY[family], min_size=15, max_size=40)


# -- states that a random run would seldom come to -----------------------------------------


def _after(state: Action, *actions: Action) -> Action:
    for one in actions:
        state = REDUCERS["chat"](state, {"turnId": "t1", **one})
    return state


def _call(kind: str, call: str, **members: Any) -> Action:
    return {"type": f"chat/toolCall{kind}", "toolCallId": call, **members}


def _failed(message: str) -> Action:
    error = {"errorType": "model", "message": message}
    part = {"kind": "error", "error": error, "resumable": True}
    return {"type": "chat/error", "duration": 4, "part": part}


_MESSAGE = {"text": "Go", "origin": {"kind": "user"}}
_STARTED = {
    "type": "chat/turnStarted",
    "startedAt": "2026-10-01T00:00:00.000Z",
    "message": _MESSAGE,
}
_EARLIER = _after(
    INITIAL["chat"],
    {**_STARTED, "turnId": "t0"},
    {"type": "chat/turnComplete", "turnId": "t0", "duration": 3},
)
_RUNNING = _after(
    _EARLIER,
    _STARTED,
    {"type": "chat/responsePart", "part": {"kind": "markdown", "id": "p1", "content": "So"}},
    _call("Start", "c1", toolName="run", displayName="Run", intention="maybe"),
    {"type": "chat/usage", "usage": {"inputTokens": 3}},
)
_ASKING = _after(
    _RUNNING,
    {"type": "chat/inputRequested", "request": {"id": "r1"}},
    _call("Start", "c2", toolName="run", displayName="Run"),
    _call("Ready", "c2", invocationMessage="Run", toolInput={"uri": "file:///input"}),
)
_WORKING = _after(
    _RUNNING,
    _call("Ready", "c1", invocationMessage="Run", toolInput="ls", confirmed="not-needed"),
    _call("Start", "c2", toolName="run", displayName="Run"),
    _call("Ready", "c2", invocationMessage="Run", toolInput="rm", options=[{"id": "o1"}]),
)
_FAILED = _after(_RUNNING, _failed("once"))
_FAILED_AGAIN = _after(_FAILED, {"type": "chat/turnResume"}, _failed("twice"))
_FIRST_FAILED = _after(INITIAL["chat"], _STARTED, _failed("at once"))
_LEFT_OPEN = _after(_ASKING, _failed("with an open question"))

_PLUGIN = {
    "type": "plugin",
    "id": "plugin",
    "uri": "file:///p",
    "name": "P",
    "enablement": [{"kind": "session", "enabled": False}, {"kind": "global", "enabled": True}],
    "children": [
        {"type": "skill", "id": "skill", "uri": "file:///s", "name": "S"},
        {
            "type": "mcpServer",
            "id": "inner",
            "uri": "file:///m",
            "name": "M",
            "state": {"kind": "starting", "blocking": True},
            "channel": "mcp://m",
        },
    ],
}
_FULL_SESSION = {
    **INITIAL["session"],
    "chats": [
        {
            "resource": f"ahp-chat:/{n}",
            "title": n,
            "status": 1,
            "modifiedAt": "2026-10-01T00:00:00Z",
        }
        for n in "123"
    ],
    "defaultChat": "ahp-chat:/2",
    "workingDirectories": ["file:///a", "file:///b", "file:///c"],
    "customizations": [_PLUGIN],
}

#: Where a run begins.
BEGINNINGS = {
    "root": [INITIAL["root"]],
    "session": [INITIAL["session"], _FULL_SESSION],
    "chat": [
        INITIAL["chat"],
        _RUNNING,
        _ASKING,
        _WORKING,
        _FAILED,
        _FAILED_AGAIN,
        _FIRST_FAILED,
        _LEFT_OPEN,
    ],
}
