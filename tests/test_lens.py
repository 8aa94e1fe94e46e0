"""The lens by example: each row of its table, out and in, and the sentences for what it refuses."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ahp_actions import JSON, nearly
from ahpd.contracts.ahp.lens import CANONICAL, lens_for
from ahpd.contracts.ahp.lens.differences import DIFFERENCES, as_markdown
from ahpd.contracts.ahp.reducers import reduce_chat, reduce_session
from ahpd.contracts.ahp.versions import LINES, SUPPORTED_VERSIONS, negotiate
from lens_actions import ACTIONS_BY_FAMILY

Json = dict[str, Any]

MESSAGE = {"text": "Go", "origin": {"kind": "user"}}
ERROR = {"errorType": "model", "message": "overloaded"}
CHAT: Json = {
    "resource": "ahp-chat:/1",
    "title": "C",
    "status": 1,
    "modifiedAt": "2026-10-01T00:00:00.000Z",
    "turns": [],
}
SESSION: Json = {
    "provider": "echo",
    "title": "S",
    "status": 1,
    "lifecycle": "ready",
    "activeClients": [],
    "chats": [],
}
BELOW_0_9 = ("0.6.0", "0.7.0", "0.8.0")


def started(turn_id: str = "t1") -> Json:
    return {
        "type": "chat/turnStarted",
        "turnId": turn_id,
        "startedAt": "2026-10-01T00:00:00.000Z",
        "message": MESSAGE,
    }


def failed(turn_id: str = "t1", **part: Any) -> Json:
    return {
        "type": "chat/error",
        "turnId": turn_id,
        "duration": 5,
        "part": {"kind": "error", "error": ERROR, **part},
    }


def after(actions: list[Json], state: Json = CHAT) -> Json:
    for action in actions:
        state = (reduce_session if "lifecycle" in state else reduce_chat)(state, action)
    return state


def said(version: str, action: Json, state: Json) -> list[Json]:
    changed = after([action], state)
    assert changed is not state, "the action changes nothing"
    return lens_for(version).actions(action, state, changed)


# -- versions ---------------------------------------------------------------------------


def test_every_line_is_spoken_by_caret_and_named_to_who_offers_none() -> None:
    assert SUPPORTED_VERSIONS == ("1.0.0", "0.10.0", "0.9.0", "0.8.0", "0.7.0", "0.6.0")
    assert negotiate(["0.6.3"]) == "0.6.3"
    assert negotiate(["2.0.0", "0.8.0"]) == "0.8.0"
    assert negotiate(["0.7.0", "0.8.9", "0.5.2"]) == "0.8.9"
    assert negotiate(["0.4.0"]) is None
    assert negotiate(["2.0.0"]) is None


def test_a_line_has_one_lens_and_what_is_not_spoken_has_none() -> None:
    assert lens_for("0.8.0") is lens_for("0.8.7")
    assert lens_for("1.3.0") is CANONICAL
    assert [lens_for(line.supported).identity for line in LINES] == [True, True, *[False] * 4]
    for text in ("0.5.2", "2.0.0", "zero"):
        with pytest.raises(ValueError):
            lens_for(text)


def test_the_page_of_versions_is_the_table_that_drives_the_lens() -> None:
    page = (Path(__file__).parents[1] / "docs" / "versions.md").read_text()
    assert as_markdown() in page
    assert len({row.name for row in DIFFERENCES}) == len(DIFFERENCES)


# -- below 1.0 --------------------------------------------------------------------------


def test_what_chats_got_with_1_0_is_not_there_for_older_clients() -> None:
    work = {"type": "shell", "id": "w", "label": "make", "startedAt": "2026-10-01T00:00:00.000Z"}
    for action in (
        {"type": "chat/backgroundWorkSet", "work": work},
        {"type": "chat/movableChanged", "movable": True},
        {"type": "chat/isReadChanged", "isRead": True},
        {"type": "chat/isArchivedChanged", "isArchived": True},
    ):
        changed = after([action])
        for version in ("0.9.0", *BELOW_0_9):
            assert said(version, action, CHAT) == []
            assert lens_for(version).snapshot("chat", changed) == CHAT
        assert said("1.0.0", action, CHAT) == [action]


def test_an_order_of_chats_is_said_by_taking_out_and_putting_in() -> None:
    rows = [
        {"resource": f"ahp-chat:/{n}", "title": "C", "status": 1, "modifiedAt": "now"}
        for n in "123"
    ]
    state = {**SESSION, "chats": rows, "defaultChat": "ahp-chat:/3"}
    order = {
        "type": "session/chatsReordered",
        "chats": ["ahp-chat:/1", "ahp-chat:/3", "ahp-chat:/2"],
    }
    assert said("0.9.0", order, state) == [
        {"type": "session/chatRemoved", "chat": "ahp-chat:/2"},
        {"type": "session/chatRemoved", "chat": "ahp-chat:/3"},
        {"type": "session/chatAdded", "summary": rows[2]},
        {"type": "session/chatAdded", "summary": rows[1]},
        {"type": "session/defaultChatChanged", "defaultChat": "ahp-chat:/3"},
    ]


def test_a_server_sent_to_the_background_is_said_as_its_new_state() -> None:
    server = {
        "type": "mcpServer",
        "id": "s",
        "uri": "file:///s",
        "name": "S",
        "state": {"kind": "starting", "blocking": True},
        "channel": "mcp://s",
    }
    state = {**SESSION, "customizations": [server]}
    action = {"type": "session/mcpServerBackgroundRequested", "id": "s"}
    assert said("0.9.0", action, state) == [
        {
            "type": "session/mcpServerStateChanged",
            "id": "s",
            "state": {"kind": "starting", "blocking": False},
            "channel": "mcp://s",
        }
    ]


# -- below 0.9 --------------------------------------------------------------------------


@pytest.mark.parametrize("version", BELOW_0_9)
def test_a_failed_turn_has_its_error_beside_its_parts(version: str) -> None:
    running = after([started()])
    assert said(version, failed(), running) == [
        {"type": "chat/error", "turnId": "t1", "duration": 5, "error": ERROR}
    ]
    state = lens_for(version).snapshot("chat", after([started(), failed()]))
    assert state["turns"][0]["error"] == ERROR
    assert state["turns"][0]["state"] == "error"
    assert state["turns"][0]["responseParts"] == []


def test_a_0_9_client_is_given_a_failed_turn_as_it_is() -> None:
    ended = after([started(), failed()])
    assert lens_for("0.9.0").snapshot("chat", ended) is ended
    assert said("0.9.0", failed(), after([started()])) == [failed()]


@pytest.mark.parametrize("version", BELOW_0_9)
def test_a_resumed_turn_is_taken_back_and_started_again_with_what_it_said(version: str) -> None:
    part = {"kind": "markdown", "id": "p", "content": "half"}
    usage = {"inputTokens": 3}
    state = after(
        [
            started("t0"),
            {"type": "chat/turnComplete", "turnId": "t0", "duration": 1},
            started(),
            {"type": "chat/responsePart", "turnId": "t1", "part": part},
            {"type": "chat/usage", "turnId": "t1", "usage": usage},
            failed(resumable=True),
        ]
    )
    assert said(version, {"type": "chat/turnResume", "turnId": "t1"}, state) == [
        {"type": "chat/truncated", "turnId": "t0"},
        {**started(), "type": "chat/turnStarted"},
        {"type": "chat/responsePart", "turnId": "t1", "part": part},
        {"type": "chat/usage", "turnId": "t1", "usage": usage},
    ]


def test_an_error_that_was_overcome_is_not_the_error_of_its_turn() -> None:
    ended = after(
        [
            started(),
            failed(resumable=True),
            {"type": "chat/turnResume", "turnId": "t1"},
            {"type": "chat/turnComplete", "turnId": "t1", "duration": 9},
        ]
    )
    (turn,) = lens_for("0.8.0").snapshot("chat", ended)["turns"]
    assert turn["state"] == "complete"
    assert turn["responseParts"] == []
    assert "error" not in turn


@pytest.mark.parametrize("version", BELOW_0_9)
def test_a_session_that_could_not_be_created_says_so_in_the_older_word(version: str) -> None:
    action = {"type": "session/creationFailed", "error": ERROR}
    state = after([action], {**SESSION, "lifecycle": "creating"})
    assert state["lifecycle"] == "failed"
    assert lens_for(version).snapshot("session", state)["lifecycle"] == "creationFailed"
    assert lens_for("0.9.0").snapshot("session", state) is state


@pytest.mark.parametrize("version", BELOW_0_9)
def test_a_terminal_has_an_exit_code_in_place_of_a_lifecycle(version: str) -> None:
    row = {"resource": "agenthost-terminal:/1", "title": "sh", "claim": {"kind": "client"}}
    ended = {**row, "lifecycle": {"status": "exited", "exitCode": 2}}
    lens = lens_for(version)
    assert lens.snapshot("root", {"agents": [], "terminals": [ended]})["terminals"] == [
        {**row, "exitCode": 2}
    ]
    assert lens.snapshot("terminal", {**row, "lifecycle": {"status": "running"}}) == row


@pytest.mark.parametrize("version", BELOW_0_9)
def test_forking_a_session_is_refused_where_a_version_could_ask_for_it(version: str) -> None:
    params = {"channel": "ahp-session:/n", "fork": {"session": "ahp-session:/o", "turnId": "t"}}
    with pytest.raises(ValueError, match="does not fork sessions"):
        lens_for(version).params("createSession", params)
    assert lens_for("0.9.0").params("createSession", params) is params


# -- customizations ---------------------------------------------------------------------

PLUGIN: Json = {
    "type": "plugin",
    "id": "p",
    "uri": "file:///p",
    "name": "P",
    "enablement": [{"kind": "session", "enabled": False}, {"kind": "global", "enabled": True}],
}
WITH_PLUGIN = {**SESSION, "customizations": [PLUGIN]}


def test_a_plugin_is_on_or_off_below_0_8_and_both_ways_in_0_8() -> None:
    (old,) = lens_for("0.7.0").snapshot("session", WITH_PLUGIN)["customizations"]
    assert old["enabled"] is False
    assert "enablement" not in old
    (between,) = lens_for("0.8.0").snapshot("session", WITH_PLUGIN)["customizations"]
    assert between == {**PLUGIN, "enabled": False}
    assert lens_for("0.9.0").snapshot("session", WITH_PLUGIN) is WITH_PLUGIN


def test_a_toggle_is_said_in_each_versions_words() -> None:
    action = {
        "type": "session/customizationToggled",
        "id": "p",
        "enablement": [{"kind": "session", "enabled": True}],
    }
    assert said("0.7.0", action, WITH_PLUGIN) == [
        {"type": "session/customizationToggled", "id": "p", "enabled": True}
    ]
    toggled, whole = said("0.8.0", action, WITH_PLUGIN)
    assert toggled == {**action, "enabled": True}
    assert whole["customization"] == {
        **PLUGIN,
        "enablement": action["enablement"],
        "enabled": True,
    }
    assert said("0.9.0", action, WITH_PLUGIN) == [action]


@pytest.mark.parametrize("version", BELOW_0_9)
def test_a_toggle_of_an_older_client_decides_for_the_session_and_keeps_the_rest(
    version: str,
) -> None:
    own = {"type": "session/customizationToggled", "id": "p", "enabled": True}
    canonical = lens_for(version).client_action(own, WITH_PLUGIN)
    assert canonical == {
        "type": "session/customizationToggled",
        "id": "p",
        "enablement": [{"kind": "session", "enabled": True}, {"kind": "global", "enabled": True}],
    }
    back = lens_for(version).said_back(canonical)
    assert back["enabled"] is True


def test_what_a_client_publishes_comes_back_to_it_as_it_said_it() -> None:
    plugin = {"type": "plugin", "id": "q", "uri": "file:///q", "name": "Q", "enabled": False}
    client = {"clientId": "me", "tools": [], "customizations": [plugin]}
    own = {"type": "session/activeClientSet", "activeClient": client}
    lens = lens_for("0.7.0")
    canonical = lens.client_action(own, SESSION)
    assert "enabled" not in canonical["activeClient"]["customizations"][0]
    assert lens.actions(canonical, None, None) == [own]
    assert lens.said_back(canonical) == own
    params = lens.params("createSession", {"channel": "x:/1", "activeClient": client})
    assert params["activeClient"] == canonical["activeClient"]


# -- below 0.8 and 0.7 ------------------------------------------------------------------


def test_a_clients_tool_makes_a_session_wait_below_0_8() -> None:
    request = {"id": "r", "chat": "ahp-chat:/1", "kind": "toolClientExecution", "turnId": "t1"}
    state = {**SESSION, "status": 8 | 32, "inputNeeded": [request]}
    assert lens_for("0.7.0").snapshot("session", state)["status"] == 24 | 32
    assert lens_for("0.8.0").snapshot("session", state)["status"] == 8 | 32


def test_a_replaced_folder_is_removed_and_set_in_0_7() -> None:
    state = {**SESSION, "workingDirectories": ["file:///a", "file:///b", "file:///c"]}
    action = {
        "type": "session/workingDirectoryReplaced",
        "directory": "file:///b",
        "replacement": "file:///d",
    }
    assert said("0.7.0", action, state) == [
        {"type": "session/workingDirectoryRemoved", "directory": "file:///b"},
        {"type": "session/workingDirectoryRemoved", "directory": "file:///c"},
        {"type": "session/workingDirectorySet", "directory": "file:///d"},
        {"type": "session/workingDirectorySet", "directory": "file:///c"},
    ]
    assert said("0.8.0", action, state) == [action]


def test_there_is_one_folder_in_0_6() -> None:
    lens = lens_for("0.6.0")
    row = {"resource": "ahp-chat:/1", "title": "C", "status": 1, "modifiedAt": "now"}
    state = {
        **SESSION,
        "workingDirectories": ["file:///a", "file:///b"],
        "chats": [{**row, "workingDirectories": ["file:///b"]}],
    }
    shown = lens.snapshot("session", state)
    assert shown["workingDirectory"] == "file:///a"
    assert shown["chats"] == [{**row, "workingDirectory": "file:///b"}]
    assert "workingDirectories" not in shown
    assert said("0.6.0", {"type": "session/workingDirectorySet", "directory": "x:/"}, state) == []
    assert lens.summary({"workingDirectories": ["file:///a"]}) == {"workingDirectory": "file:///a"}
    created = lens.params(
        "createSession", {"channel": "x:/1", "workingDirectory": "file:///a", "provider": "echo"}
    )
    assert created == {
        "channel": "x:/1",
        "workingDirectories": ["file:///a"],
        "provider": "echo",
    }
    listed = lens.result("listSessions", {"items": [{"workingDirectories": ["file:///a"]}]})
    assert listed == {"items": [{"workingDirectory": "file:///a"}]}
    told = lens.notification(
        "root/sessionSummaryChanged",
        {"session": "x:/1", "changes": {"workingDirectories": ["file:///b"]}},
    )
    assert told["changes"] == {"workingDirectory": "file:///b"}


def call(kind: str, **members: Any) -> Json:
    return {"type": f"chat/toolCall{kind}", "turnId": "t1", "toolCallId": "c1", **members}


def test_tool_input_is_text_in_0_6() -> None:
    reference = {"uri": "ahp-content:/1", "sizeHint": 9}
    running = after([started(), call("Start", toolName="run", displayName="Run")])
    ready = call("Ready", invocationMessage="Run it", toolInput=reference)
    assert said("0.6.0", ready, running) == [{**ready, "toolInput": "ahp-content:/1"}]
    assert said("0.7.0", ready, running) == [ready]
    shown = lens_for("0.6.0").snapshot("chat", after([ready], running))
    assert shown["activeTurn"]["responseParts"][0]["toolCall"]["toolInput"] == "ahp-content:/1"
    answer = call("Confirmed", approved=True, confirmed="user-action", editedToolInput="{}")
    (told,) = said("0.6.0", answer, after([ready], running))
    assert "editedToolInput" not in told


def test_a_call_that_becomes_ready_under_another_intention_is_said_again_in_0_6() -> None:
    running = after(
        [started(), call("Start", toolName="run", displayName="Run", intention="maybe")]
    )
    ready = call("Ready", invocationMessage="Run it", toolInput="ls", intention="to list")
    *again, last = said("0.6.0", ready, running)
    assert [one["type"] for one in again] == ["chat/turnStarted", "chat/responsePart"]
    assert again[1]["part"]["toolCall"]["intention"] == "to list"
    assert last == call("Ready", invocationMessage="Run it", toolInput="ls")
    assert said("0.7.0", ready, running) == [ready]


def test_a_delta_without_content_has_empty_content_in_0_6() -> None:
    running = after([started(), call("Start", toolName="run", displayName="Run")])
    delta = call("Delta", invocationMessage="Thinking")
    assert said("0.6.0", delta, running) == [{**delta, "content": ""}]


def test_a_commands_end_stands_behind_its_terminal_in_0_6_and_comes_back_in() -> None:
    block = {"type": "terminal", "resource": "ahp-terminal:/1", "title": "sh"}
    ended = {**block, "result": {"exitCode": 0, "preview": "ok"}}
    old = [
        block,
        {"type": "terminalComplete", "resource": "ahp-terminal:/1", "exitCode": 0, "preview": "ok"},
    ]
    lens = lens_for("0.6.0")
    changed = call("ContentChanged", content=[ended])
    assert lens.actions(changed, None, None) == [{**changed, "content": old}]
    assert lens.client_action({**changed, "content": old}, CHAT) == changed


def test_a_side_chat_and_the_source_of_a_chat_in_0_6() -> None:
    lens = lens_for("0.6.0")
    state = {**CHAT, "origin": {"kind": "sideChat", "chat": "ahp-chat:/0", "turnId": "t"}}
    assert lens.snapshot("chat", state)["origin"] == {"kind": "user"}
    params = {"channel": "x:/1", "source": {"chat": "ahp-chat:/0", "turnId": "t"}}
    assert lens.params("createChat", params)["source"]["kind"] == "fork"
    assert lens_for("0.7.0").params("createChat", params) is params


# -- what a client may say at all ---------------------------------------------------------


@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(["session", "chat"]).flatmap(lambda f: nearly(ACTIONS_BY_FAMILY[f])))
def test_nothing_a_client_says_makes_a_lens_raise(spoilt: Any) -> None:
    action = spoilt if isinstance(spoilt, dict) else {"type": spoilt}
    for line in LINES:
        lens = lens_for(line.supported)
        canonical = lens.client_action(action, WITH_PLUGIN)
        lens.said_back(canonical)


@settings(max_examples=100, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.sampled_from(["createSession", "createChat"]),
    st.dictionaries(
        st.sampled_from(["workingDirectory", "activeClient", "source", "workingDirectories"]), JSON
    ),
)
def test_no_parameters_make_a_lens_raise(method: str, params: Json) -> None:
    for line in LINES:
        lens_for(line.supported).params(method, params)
