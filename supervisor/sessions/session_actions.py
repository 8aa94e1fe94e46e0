"""What each action of a client does to a session: one handler an action.

Whatever changes how the agent works is asked of every chat's worker first; all
say True, or the change is refused and the others are set back.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from ...contracts.ahp.absence import without_nulls
from ...contracts.ahp.actions import check_action
from ...contracts.json import same_json
from ...contracts.worker_wire import (
    Named,
    SetConfig,
    SetCustomizationEnabled,
    SetTools,
    SetWorkingDirectories,
)
from .chat_actions import asked, paths_of
from .settings import setting_fault

if TYPE_CHECKING:
    from .chat import Chat
    from .dispatch import Dispatched
    from .session import Session

Json = dict[str, Any]
Question = Callable[[], Awaitable[None]]
Handler = Callable[["Session", "Dispatched"], Question | None]


def take(session: "Session", dispatched: "Dispatched") -> Question | None:
    """Answers the action, or answers what has to be waited for before it is answered."""
    handler = HANDLERS.get(dispatched.action["type"])
    if handler is None:
        dispatched.refuse(f"this host does not serve {dispatched.action['type']}")
        return None
    if session.removed:
        dispatched.refuse("the session has ended")
        return None
    return handler(session, dispatched)


def say_if_well_formed(session: "Session", action: Json) -> None:
    """Publishes what an agent said of itself, when it has the shape that clients expect."""
    said = without_nulls(action)
    if check_action(said) is None and session.may_become(said):
        session.say(said)


def _apply(session: "Session", dispatched: "Dispatched") -> None:
    session.accept(dispatched)


def _title_changed(session: "Session", dispatched: "Dispatched") -> None:
    session.titled_by_person = True
    session.accept(dispatched)


def _active_client_set(session: "Session", dispatched: "Dispatched") -> None:
    client = dispatched.action["activeClient"]
    if client["clientId"] != dispatched.seat.client_id:
        dispatched.refuse("a client may only speak for itself")
        return
    if session.accept(dispatched):
        for chat in session.chats.values():
            tell_tools(session, chat)


def _active_client_removed(session: "Session", dispatched: "Dispatched") -> None:
    client_id = dispatched.action["clientId"]
    if client_id != dispatched.seat.client_id:
        dispatched.refuse("a client may only speak for itself")
        return
    if session.accept(dispatched):
        for chat in list(session.chats.values()):
            chat.client_left(client_id, was_active=True)
            tell_tools(session, chat)


def tell_tools(session: "Session", chat: "Chat") -> None:
    """Tells a chat's worker which tools clients offer, unless it was told just these last."""
    conversation, tools = chat.conversation, tools_of(session)
    if conversation is None or not conversation.ready or same_json(conversation.tools, tools):
        return
    if "set_tools" in conversation.members:
        conversation.tools = tools
        conversation.tell("session.setTools", SetTools(tools=tools))


def tools_of(session: "Session") -> list[Any]:
    """The tools that the session's clients offer now, each with the client that runs it."""
    return [
        {**tool, "clientId": client["clientId"]}
        for client in session.channel.state["activeClients"]
        for tool in client["tools"]
    ]


def _config_changed(session: "Session", dispatched: "Dispatched") -> Question | None:
    config = session.channel.state.get("config")
    if config is None:
        dispatched.refuse("the session has no settings yet")
        return None
    before: Json = config["values"]
    wished: Json = dispatched.action["config"]
    for key, value in wished.items():
        wrong = setting_fault(config["schema"], key, value, running=True)
        if wrong is not None:
            dispatched.refuse(wrong)
            return None
    if dispatched.action.get("replace") and before.keys() - wished.keys():
        missing = ", ".join(sorted(before.keys() - wished.keys()))
        dispatched.refuse(f"replacing the settings leaves out {missing}")
        return None
    wanted = {
        key: value
        for key, value in wished.items()
        if not (key in before and same_json(before[key], value))
    }

    async def ask() -> None:
        await _all_or_none(
            session,
            dispatched,
            [("session.setConfig", SetConfig(key=k, value=v)) for k, v in wanted.items()],
            [("session.setConfig", SetConfig(key=k, value=before.get(k))) for k in wanted],
        )

    return ask


def _working_directories(session: "Session", dispatched: "Dispatched") -> Question | None:
    state = session.channel.state
    changed = session.channel.reduce(state, dispatched.action)
    directories = paths_of(changed.get("workingDirectories", []))
    before = paths_of(state.get("workingDirectories", []))
    if directories is None or before is None:
        dispatched.refuse("a working directory is a file:// URI")
        return None

    async def ask() -> None:
        kind = "session.setWorkingDirectories"
        await _all_or_none(
            session,
            dispatched,
            [(kind, SetWorkingDirectories(directories=directories))],
            [(kind, SetWorkingDirectories(directories=before))],
        )

    return ask


def _customization_toggled(session: "Session", dispatched: "Dispatched") -> Question:
    action = dispatched.action
    enablement = action.get("enablement")
    enabled = (
        bool(action.get("enabled"))
        if enablement is None
        else all(entry.get("enabled") is not False for entry in enablement)
    )
    kind = "session.setCustomizationEnabled"

    async def ask() -> None:
        await _all_or_none(
            session,
            dispatched,
            [(kind, SetCustomizationEnabled(id=action["id"], enabled=enabled))],
            [(kind, SetCustomizationEnabled(id=action["id"], enabled=not enabled))],
        )

    return ask


def _mcp_server(kind: str, back: str) -> Handler:
    def handle(session: "Session", dispatched: "Dispatched") -> Question:
        named = Named(id=dispatched.action["id"])

        async def ask() -> None:
            await _all_or_none(session, dispatched, [(kind, named)], [(back, named)])

        return ask

    return handle


async def _all_or_none(
    session: "Session",
    dispatched: "Dispatched",
    asking: list[tuple[str, Any]],
    setting_back: list[tuple[str, Any]],
) -> None:
    """Asks every chat's worker for each change; applies when all say True, else sets back.

    A chat without a worker has nobody to ask: the schema was held against the
    change, and its next worker gets it with its settings.
    """
    done: list[tuple[Chat, int]] = []
    reason: str | None = None
    for chat in [chat for chat in session.chats.values() if chat.conversation is not None]:
        for index, (kind, payload) in enumerate(asking):
            reason = await asked(chat, kind, payload)
            if reason is not None:
                break
            done.append((chat, index))
        if reason is not None:
            break
    if reason is None and not dispatched.answered:
        session.accept(dispatched)
        return
    for chat, index in reversed(done):
        kind, payload = setting_back[index]
        if chat.conversation is not None:
            chat.conversation.tell(kind, payload)
    if not dispatched.answered:
        dispatched.refuse(reason or "the change was overtaken")


HANDLERS: Mapping[str, Handler] = {
    "session/titleChanged": _title_changed,
    "session/isReadChanged": _apply,
    "session/isArchivedChanged": _apply,
    "session/activeClientSet": _active_client_set,
    "session/activeClientRemoved": _active_client_removed,
    "session/configChanged": _config_changed,
    "session/workingDirectorySet": _working_directories,
    "session/workingDirectoryRemoved": _working_directories,
    "session/workingDirectoryReplaced": _working_directories,
    "session/customizationToggled": _customization_toggled,
    "session/mcpServerStartRequested": _mcp_server(
        "session.startMcpServer", "session.stopMcpServer"
    ),
    "session/mcpServerStopRequested": _mcp_server(
        "session.stopMcpServer", "session.startMcpServer"
    ),
}
