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
    PROSE,
    REQUEST_IDS,
    TEXT,
    TIMES,
    TURN_IDS,
    WELL_FORMED,
    action,
    shape,
)

_TURN = {"turnId": st.just("t1")}
_CALL = {**_TURN, "toolCallId": CALL_IDS}
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

_CHAT = st.one_of(
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
    action(
        "chat/toolCallStart",
        {**_CALL, "toolName": TEXT, "displayName": TEXT},
        {"intention": TEXT, "contributor": CONTRIBUTOR},
    ),
    action("chat/toolCallDelta", _CALL, {"invocationMessage": PROSE}),
    action(
        "chat/toolCallReady",
        {**_CALL, "invocationMessage": PROSE},
        {
            "toolInput": TEXT | _REFERENCE,
            "confirmed": st.just("not-needed"),
            "contributor": CONTRIBUTOR,
            "intention": TEXT,
        },
    ),
    action(
        "chat/toolCallConfirmed",
        {**_CALL, "approved": st.just(True), "confirmed": st.just("user-action")},
        {"editedToolInput": TEXT},
    ),
    action(
        "chat/toolCallComplete",
        {
            **_CALL,
            "result": shape(
                {"success": st.booleans(), "pastTenseMessage": PROSE},
                {"content": st.lists(_BLOCK, max_size=2)},
            ),
        },
        {"requiresResultConfirmation": st.booleans()},
    ),
    action("chat/toolCallContentChanged", {**_CALL, "content": st.lists(_BLOCK, max_size=2)}),
    action("chat/inputRequested", {"request": shape({"id": REQUEST_IDS})}),
    action("chat/turnComplete", {"turnId": TURN_IDS, "duration": st.integers(0, 9)}),
)

_SESSION = st.one_of(
    action("session/chatAdded", {"summary": shape({"resource": CHATS, **_SUMMARY}, _ROW)}),
    action("session/chatUpdated", {"chat": CHATS, "changes": shape({}, {**_SUMMARY, **_ROW})}),
    action("session/defaultChatChanged", {"defaultChat": CHATS}),
    action("session/chatsReordered", {"chats": st.permutations(["ahp-chat:/1", "ahp-chat:/2"])}),
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

#: By family: any well-formed action, and half of the time one in which versions differ.
ACTIONS_BY_FAMILY = {
    "root": WELL_FORMED["root"] | _ROOT,
    "session": WELL_FORMED["session"] | _SESSION,
    "chat": WELL_FORMED["chat"] | _CHAT,
}
