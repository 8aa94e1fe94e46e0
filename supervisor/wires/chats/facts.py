"""What a chat's info says that stands in no state: its kind, model, folder, modes and marks.

Decisions, where the contracts leave them open:

- An agent shows itself as its configuration says, else as it says itself, else as `claude`.
- A runtime mode is the value of the agent's `permissionMode` of the same name, else the one
  of `MODES_OF_AGENTS`; where the agent has neither, the mode is the person's word alone.
- What a person asked for is kept in `Chat.beside`, under the names of this module.
- A session that could not be created has `exited`: nothing restarts it.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, cast

from attrs import frozen

from ....contracts.ahp.uris import path_of_file_uri
from ....contracts.chats import (
    AGENT_KINDS,
    RUNTIME_MODES,
    AgentKind,
    Bookmark,
    ModelSelection,
    RuntimeMode,
    ShapeError,
    write,
)
from ....contracts.shapes import structure
from ...agents import Agent
from ...sessions.chat import Chat
from ...state_dir import home_folder
from .info import Facts
from .places import amount_in
from .words import milliseconds, prose

Json = dict[str, Any]

DEFAULT_KIND: Final[AgentKind] = "claude"
DEFAULT_MODE: Final[RuntimeMode] = "full-access"
DEFAULT_MODEL: Final = "default"

#: The setting of an agent that a runtime mode goes to.
PERMISSION_MODE: Final = "permissionMode"

#: What agents call a runtime mode that do not call it by its name here.
MODES_OF_AGENTS: Final[Mapping[RuntimeMode, str]] = {
    "supervised": "default",
    "auto-accept-edits": "acceptEdits",
    "auto": "auto",
    "full-access": "bypassPermissions",
}

# The names of what is kept beside a chat's state.
RUNTIME_MODE = "runtimeMode"
SELECTION = "selection"
SPENT_USD = "spentUsd"
TURNS_BEFORE = "turnsBefore"
BOOKMARKS = "bookmarks"


@frozen(kw_only=True)
class Own:
    """A chat's members that no action tells of, as they were at one moment."""

    queue_paused: bool
    running: bool
    agent_id: str | None
    beside: Json


def own_of(chat: Chat) -> Own:
    """The chat's members now."""
    return Own(
        queue_paused=chat.queue_paused,
        running=chat.conversation is not None,
        agent_id=chat.agent_id,
        beside=chat.beside,
    )


def facts_of(chat: Chat, own: Own, session_state: Json, agent: Agent | None) -> Facts:
    """The facts of a chat, with its session in that state."""
    settings = _settings_in(session_state)
    selection = selection_of(own.beside)
    model = prose(settings.get("model")) or (selection.model if selection is not None else "")
    offered = models_of(agent)
    model = model or (prose(offered[0].get("id")) if offered else "")
    mode = mode_of(own.beside)
    effective = mode_said_by(settings.get(PERMISSION_MODE))
    return Facts(
        chat_id=chat.id,
        provider=kind_of(agent),
        agent=chat.session.agent,
        cwd=_folder_of(chat, session_state),
        created_at=milliseconds(chat.session.created_at) or 0,
        selection=selection or ModelSelection(model=model or DEFAULT_MODEL, options={}),
        agent_session_id=own.agent_id,
        model=model or None,
        runtime_mode=mode,
        effective_runtime_mode=effective if effective != mode else None,
        running=own.running,
        exited=session_state.get("lifecycle") == "failed",
        slash_commands=commands_of(agent),
        skills=tuple(skill["name"] for skill in skills_in(session_state, agent)) or None,
        queue_paused=own.queue_paused,
        context_window=_window_of(offered, model),
        spent_before_usd=amount_in(own.beside.get(SPENT_USD)) or 0,
        turns_before=int(amount_in(own.beside.get(TURNS_BEFORE)) or 0),
    )


def _settings_in(session_state: Json) -> Json:
    config = session_state.get("config")
    values = config.get("values") if isinstance(config, dict) else None
    return values if isinstance(values, dict) else {}


def _folder_of(chat: Chat, session_state: Json) -> str:
    uris = chat.state.get("workingDirectories") or session_state.get("workingDirectories") or ()
    path = path_of_file_uri(uris[0]) if uris else None
    return home_folder() if path is None else path


# -- agents -------------------------------------------------------------------------------


def kind_of(agent: Agent | None) -> AgentKind:
    """What an agent shows itself as."""
    described = agent.description.kind if agent is not None and agent.description else None
    said = (agent.config.kind if agent is not None else None) or described
    return said if said in AGENT_KINDS else DEFAULT_KIND


def models_of(agent: Agent | None) -> list[Json]:
    """The models an agent told of, as AHP's `SessionModelInfo`; its default first."""
    models = agent.probe.models if agent is not None and agent.probe is not None else ()
    return [one for one in models if isinstance(one, dict) and prose(one.get("id"))]


def commands_of(agent: Agent | None) -> tuple[str, ...]:
    """The names of the commands that an agent told of, without their slash."""
    commands = agent.probe.commands if agent is not None and agent.probe is not None else ()
    named = (one.get("name") if isinstance(one, dict) else one for one in commands)
    return tuple(dict.fromkeys(filter(None, (prose(name).removeprefix("/") for name in named))))


def skills_in(session_state: Json, agent: Agent | None) -> list[dict[str, str]]:
    """The skills an agent told of: `{name, description, source}`, the first of each name."""
    told = session_state.get("customizations")
    if not isinstance(told, list):
        probe = agent.probe if agent is not None else None
        told = probe.customizations if probe is not None else None
    found: dict[str, dict[str, str]] = {}
    for container in told if isinstance(told, list) else ():
        if not isinstance(container, dict) or container.get("enabled") is False:
            continue
        plugin = container.get("type") == "plugin"
        for child in _children_of(container):
            name = prose(child.get("name"))
            if child.get("type") != "skill" or child.get("enabled") is False or not name:
                continue
            home = prose(child.get("uri")).startswith("file://" + home_folder() + "/.")
            source = "plugin" if plugin else "user" if home else "project"
            described = prose(child.get("description"))
            found.setdefault(name, {"name": name, "description": described, "source": source})
    return list(found.values())


def _children_of(container: Json) -> Iterable[Json]:
    children = container.get("children")
    return (one for one in children if isinstance(one, dict)) if isinstance(children, list) else ()


def _window_of(models: Sequence[Json], model: str) -> int | None:
    named = next((one for one in models if one.get("id") == model), {})
    window = amount_in(named.get("maxContextWindow"))
    return int(window) if window is not None and window >= 1 else None


# -- what a person asked for --------------------------------------------------------------


def mode_of(beside: Json) -> RuntimeMode:
    """The runtime mode a person asked for."""
    said = beside.get(RUNTIME_MODE)
    return cast(RuntimeMode, said) if said in RUNTIME_MODES else DEFAULT_MODE


def mode_said_by(permission: Any) -> RuntimeMode | None:
    """The runtime mode that a value of `permissionMode` means, where one does."""
    if permission in RUNTIME_MODES:
        return cast(RuntimeMode, permission)
    return next((mode for mode, word in MODES_OF_AGENTS.items() if word == permission), None)


def permission_for(mode: RuntimeMode, schema: Any) -> tuple[bool, str | None]:
    """Whether an agent has `permissionMode`, and its word for a runtime mode, if it has one."""
    properties = schema.get("properties") if isinstance(schema, dict) else None
    rule = properties.get(PERMISSION_MODE) if isinstance(properties, dict) else None
    if not isinstance(rule, dict):
        return False, None
    words = rule.get("enum")
    if not isinstance(words, list):
        return True, mode
    return True, next((one for one in (mode, MODES_OF_AGENTS[mode]) if one in words), None)


def selection_of(beside: Json) -> ModelSelection | None:
    """The model a person picked, if one did."""
    try:
        return structure(beside.get(SELECTION), ModelSelection)
    except ShapeError:
        return None


def bookmarks_of(beside: Json) -> tuple[Bookmark, ...]:
    """The bookmarks of a chat, in the order in which they were set."""
    try:
        return structure(beside.get(BOOKMARKS) or [], tuple[Bookmark, ...])
    except ShapeError:
        return ()


def with_bookmarks(beside: Json, bookmarks: Iterable[Bookmark]) -> Json:
    """What is beside a chat, with other bookmarks."""
    return {**beside, BOOKMARKS: [write(bookmark) for bookmark in bookmarks]}
