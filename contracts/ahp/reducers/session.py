"""Reduces a session's channel: metadata, catalogue of chats, clients, customizations, requests."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from ..status import (
    ARCHIVED,
    IN_PROGRESS,
    INPUT_NEEDED,
    READ,
    status_of,
    with_activity,
)
from .steps import (
    Action,
    Rule,
    State,
    add_working_directory,
    flag_from,
    index_of,
    list_in,
    merge_configuration,
    object_in,
    objects,
    reducer_of,
    remove_working_directory,
    removed,
    replaced,
    set_from,
    set_or_clear_from,
    text_in,
    upserted,
    with_member,
    without_member,
    without_nulls,
)

# -- lifecycle -----------------------------------------------------------------


def _ready(state: State, action: Action) -> State:
    return {**state, "lifecycle": "ready"}


def _creation_failed(state: State, action: Action) -> State:
    error = object_in(action, "error")
    if error is None:
        return state
    return {**state, "lifecycle": "failed", "creationError": error}


# -- the catalogue of chats ----------------------------------------------------


def _chat_added(state: State, action: Action) -> State:
    summary = object_in(action, "summary")
    if summary is None or text_in(summary, "resource") is None:
        return state
    return {**state, "chats": upserted(list_in(state, "chats") or [], "resource", summary)}


def _chat_removed(state: State, action: Action) -> State:
    found = _find_chat(state, action)
    if found is None:
        return state
    chats, index = found
    after = {**state, "chats": removed(chats, index)}
    return without_member(after, "defaultChat") if _is_default(state, action) else after


def _chat_updated(state: State, action: Action) -> State:
    found, changes = _find_chat(state, action), object_in(action, "changes")
    if found is None or changes is None:
        return state
    chats, index = found
    # The resource names the entry and is not one of its changes; a null clears.
    merged = without_nulls({**chats[index], **changes, "resource": chats[index]["resource"]})
    return {**state, "chats": replaced(chats, index, merged)}


def _chats_reordered(state: State, action: Action) -> State:
    order, chats = list_in(action, "chats"), list_in(state, "chats") or []
    if order is None or not all(isinstance(resource, str) for resource in order):
        return state
    by_resource = {
        chat.get("resource"): chat for chat in objects(chats) if text_in(chat, "resource")
    }
    # Only a permutation of the whole catalogue is an order of it.
    if not len(order) == len(chats) == len(by_resource) or set(order) != by_resource.keys():
        return state
    return {**state, "chats": [by_resource[resource] for resource in order]}


def _find_chat(state: State, action: Action) -> tuple[list[Any], int] | None:
    resource, chats = text_in(action, "chat"), list_in(state, "chats") or []
    index = -1 if resource is None else index_of(chats, "resource", resource)
    return None if index < 0 else (chats, index)


def _is_default(state: State, action: Action) -> bool:
    return state.get("defaultChat") == action.get("chat")


# -- clients, folders, what waits on a person ----------------------------------


def _active_client_set(state: State, action: Action) -> State:
    client = object_in(action, "activeClient")
    if client is None or text_in(client, "clientId") is None:
        return state
    clients = list_in(state, "activeClients") or []
    return {**state, "activeClients": upserted(clients, "clientId", client)}


def _active_client_removed(state: State, action: Action) -> State:
    client_id, clients = text_in(action, "clientId"), list_in(state, "activeClients") or []
    index = -1 if client_id is None else index_of(clients, "clientId", client_id)
    return state if index < 0 else {**state, "activeClients": removed(clients, index)}


def _server_tools_changed(state: State, action: Action) -> State:
    tools = list_in(action, "tools")
    return state if tools is None else {**state, "serverTools": tools}


def _working_directory_replaced(state: State, action: Action) -> State:
    directory, replacement = text_in(action, "directory"), text_in(action, "replacement")
    folders = list_in(state, "workingDirectories") or []
    if directory is None or replacement is None or directory not in folders:
        return state
    swapped = replaced(folders, folders.index(directory), replacement)
    # A set: where the replacement stood already, its first place is the one kept.
    first = swapped.index(replacement)
    kept = [item for index, item in enumerate(swapped) if item != replacement or index == first]
    return {**state, "workingDirectories": kept}


def _input_needed_set(state: State, action: Action) -> State:
    request = object_in(action, "request")
    if request is None or text_in(request, "id") is None:
        return state
    return _with_input_needed(state, upserted(list_in(state, "inputNeeded") or [], "id", request))


def _input_needed_removed(state: State, action: Action) -> State:
    ident, waiting = text_in(action, "id"), list_in(state, "inputNeeded") or []
    index = -1 if ident is None else index_of(waiting, "id", ident)
    return state if index < 0 else _with_input_needed(state, removed(waiting, index))


def _with_input_needed(state: State, waiting: list[Any]) -> State:
    status = status_of(state)
    # A call that a client is executing runs; only the other kinds wait on a person.
    if any(request.get("kind") != "toolClientExecution" for request in objects(waiting)):
        status = with_activity(status, INPUT_NEEDED)
    else:
        status &= ~(INPUT_NEEDED & ~IN_PROGRESS)
    return with_member({**state, "status": status}, "inputNeeded", waiting or None)


# -- customizations ------------------------------------------------------------


def _customization_toggled(state: State, action: Action) -> State:
    decisions = list_in(action, "enablement")
    if decisions is None:
        return state

    def toggled(entry: State) -> State:
        if entry.get("type") in ("plugin", "mcpServer"):
            return with_member(entry, "enablement", decisions or None)
        first = decisions[0].get("enabled") if objects(decisions[:1]) else None
        return {**entry, "enabled": first if isinstance(first, bool) else True}

    return _change_customization(state, action, toggled)


def _customization_updated(state: State, action: Action) -> State:
    entry = object_in(action, "customization")
    if entry is None or text_in(entry, "id") is None:
        return state
    return {
        **state,
        "customizations": upserted(list_in(state, "customizations") or [], "id", entry),
    }


def _customization_removed(state: State, action: Action) -> State:
    ident, entries = text_in(action, "id"), list_in(state, "customizations")
    if ident is None or entries is None:
        return state
    index = index_of(entries, "id", ident)
    if index >= 0:
        return {**state, "customizations": removed(entries, index)}
    return {**state, "customizations": [_without_child(entry, ident) for entry in entries]}


def _without_child(container: Any, ident: str) -> Any:
    children = _children(container)
    index = index_of(children, "id", ident)
    return container if index < 0 else {**container, "children": removed(children, index)}


def _mcp_server_state_changed(state: State, action: Action) -> State:
    to, channel = object_in(action, "state"), action.get("channel")
    if to is None or not (channel is None or isinstance(channel, str)):
        return state
    return _change_mcp_server(
        state, action, lambda entry: with_member({**entry, "state": to}, "channel", channel)
    )


def _mcp_server_start_requested(state: State, action: Action) -> State:
    return _change_mcp_server(state, action, lambda entry: _in_state(entry, {"kind": "starting"}))


def _mcp_server_stop_requested(state: State, action: Action) -> State:
    return _change_mcp_server(state, action, lambda entry: _in_state(entry, {"kind": "stopped"}))


def _mcp_server_background_requested(state: State, action: Action) -> State:
    def released(entry: State) -> State:
        now = object_in(entry, "state")
        if now is None or now.get("kind") != "starting" or now.get("blocking") is not True:
            return entry
        return {**entry, "state": {**now, "blocking": False}}

    return _change_mcp_server(state, action, released)


def _in_state(entry: State, to: dict[str, Any]) -> State:
    return without_member({**entry, "state": to}, "channel")


def _change_mcp_server(state: State, action: Action, change: Callable[[State], State]) -> State:
    return _change_customization(
        state, action, lambda entry: change(entry) if entry.get("type") == "mcpServer" else entry
    )


def _change_customization(state: State, action: Action, change: Callable[[State], State]) -> State:
    """Changes the entry the action names, on top or in a container; containers do not nest."""
    ident, entries = text_in(action, "id"), list_in(state, "customizations")
    if ident is None or entries is None:
        return state
    index = index_of(entries, "id", ident)
    if index >= 0:
        return {**state, "customizations": replaced(entries, index, change(entries[index]))}
    for at, container in enumerate(entries):
        children = _children(container)
        index = index_of(children, "id", ident)
        if index >= 0:
            inside = replaced(children, index, change(children[index]))
            changed = {**container, "children": inside}
            return {**state, "customizations": replaced(entries, at, changed)}
    return state


def _children(container: Any) -> list[Any]:
    if not isinstance(container, dict) or container.get("type") == "mcpServer":
        return []
    return list_in(container, "children") or []


_RULES: Final[Mapping[str, Rule]] = {
    "session/ready": _ready,
    "session/creationFailed": _creation_failed,
    "session/chatAdded": _chat_added,
    "session/chatRemoved": _chat_removed,
    "session/chatUpdated": _chat_updated,
    "session/chatsReordered": _chats_reordered,
    "session/defaultChatChanged": set_or_clear_from("defaultChat", str),
    "session/titleChanged": set_from("title", str),
    "session/isReadChanged": flag_from("isRead", READ),
    "session/isArchivedChanged": flag_from("isArchived", ARCHIVED),
    "session/activityChanged": set_or_clear_from("activity", str),
    "session/changesetsChanged": set_or_clear_from("changesets", list),
    "session/configChanged": merge_configuration,
    "session/metaChanged": set_or_clear_from("_meta", dict),
    "session/serverToolsChanged": _server_tools_changed,
    "session/activeClientSet": _active_client_set,
    "session/activeClientRemoved": _active_client_removed,
    "session/workingDirectorySet": add_working_directory,
    "session/workingDirectoryRemoved": remove_working_directory,
    "session/workingDirectoryReplaced": _working_directory_replaced,
    "session/inputNeededSet": _input_needed_set,
    "session/inputNeededRemoved": _input_needed_removed,
    "session/customizationsChanged": set_from("customizations", list),
    "session/customizationToggled": _customization_toggled,
    "session/customizationUpdated": _customization_updated,
    "session/customizationRemoved": _customization_removed,
    "session/mcpServerStateChanged": _mcp_server_state_changed,
    "session/mcpServerStartRequested": _mcp_server_start_requested,
    "session/mcpServerStopRequested": _mcp_server_stop_requested,
    "session/mcpServerBackgroundRequested": _mcp_server_background_requested,
}

reduce_session = reducer_of(_RULES)
