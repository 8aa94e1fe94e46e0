"""The table of actions: who may dispatch each, since when it exists, what it carries.

Read it beside the protocol's own list. Root, session and chat are checked
whole; the other families, which the host does not serve yet, by their type
alone. Unknown members survive, and an action nobody knows is well formed when
it has a type.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from attrs import field, frozen

from ..json import nests_deeper_than
from .action_shapes import (
    ACTIVE_CLIENT,
    AGENT_INFO,
    ANSWER,
    ASKING,
    AUTH,
    BACKGROUND_WORK,
    CANVAS,
    CHANGESET,
    CHAT_CHANGES,
    CHAT_SUMMARY,
    CONTRIBUTOR,
    CUSTOMIZATION,
    ENABLEMENT,
    ERROR_INFO,
    ERROR_PART,
    INPUT_REQUEST,
    INPUT_RESPONSE,
    MCP_STATE,
    MESSAGE,
    META,
    PROSE,
    RESPONSE_PART,
    SESSION_INPUT,
    TERMINAL_INFO,
    TEXTS,
    TOOL_CONTENT,
    TOOL_DEFINITION,
    TOOL_INPUT,
    TOOL_RESULT,
    TURN,
    USAGE,
)
from .checks import (
    Check,
    Member,
    Members,
    array,
    boolean,
    mapping,
    members_check,
    number,
    one_of,
    optional,
    record,
    shape,
    text,
)


@frozen(kw_only=True)
class ActionRule:
    """What the protocol says of one action."""

    type: str
    #: The channels it belongs to: the part of its type before the slash.
    family: str
    #: Whether a client may dispatch it; None: the protocol does not say for sure.
    client: bool | None
    #: The release that brought it.
    introduced_in: str
    #: Its members beside `type`, in the protocol's names.
    fields: Members
    #: What holds for the whole of it beside each member's own check.
    also: Check | None = None
    _check: Check = field(init=False, repr=False, eq=False)

    @_check.default
    def _of_fields(self) -> Check:
        return members_check(self.fields)

    def check(self, action: Any) -> str | None:
        """What is wrong with an action of this type, or None."""
        fault = self._check(action, "action")
        if fault is None and self.also is not None:
            fault = self.also(action, "action")
        return fault


#: How deep an action may nest. What it says stands deeper in a chat's state, and deeper still
#: in the frame by which the next worker is told of it, or in what is kept: none of these
#: may reach `json.MAX_NESTING`, or what was said could never be read again.
MAX_ACTION_NESTING: Final = 100


def check_action(action: Any) -> str | None:
    """None for a well-formed action, else a sentence that names the faulty member.

    Whether the action means anything in a state is not asked here; the reducers
    know. An unknown type passes, since the protocol grows.
    """
    if not isinstance(action, dict):
        return "action: expected an object"
    kind = action.get("type")
    if not isinstance(kind, str):
        return "action.type: is missing" if kind is None else "action.type: expected a string"
    if nests_deeper_than(action, MAX_ACTION_NESTING):
        return f"action: nested deeper than {MAX_ACTION_NESTING} levels"
    rule = ACTIONS.get(kind)
    return None if rule is None else rule.check(action)


def client_may_dispatch(kind: str) -> bool:
    """Whether an action of that type is a client's to dispatch; an unknown one never is."""
    rule = ACTIONS.get(kind)
    return rule is not None and rule.client is True


def _approval(action: Any, at: str, /) -> str | None:
    if action["approved"]:
        return _APPROVED(action, at)
    return _REFUSED(action, at)


_APPROVED: Final = shape(confirmed=text, editedToolInput=optional(text))
_REFUSED: Final = shape(
    reason=one_of("denied", "skipped"),
    reasonMessage=optional(PROSE),
    userSuggestion=optional(MESSAGE),
)

#: What every action about a running turn, and about a call in it, begins with.
_TURN: Final[Members] = {"turnId": text}
_CALL: Final[Members] = {"turnId": text, "toolCallId": text}
_PENDING: Final = one_of("steering", "queued")


def _row(
    kind: str,
    client: bool | None,
    since: str,
    /,
    *bases: Members,
    also: Check | None = None,
    **members: Member,
) -> ActionRule:
    fields: dict[str, Member] = {}
    for base in bases:
        fields |= base
    return ActionRule(
        type=kind,
        family=kind.partition("/")[0],
        client=client,
        introduced_in=since,
        fields=MappingProxyType({**fields, **members, **META}),
        also=also,
    )


_ROWS: Final = (
    # -- root
    _row("root/agentsChanged", False, "0.1.0", agents=array(AGENT_INFO)),
    _row("root/activeSessionsChanged", False, "0.1.0", activeSessions=number),
    _row("root/terminalsChanged", False, "0.1.0", terminals=array(TERMINAL_INFO)),
    _row("root/configChanged", True, "0.1.0", config=record, replace=optional(boolean)),
    # -- session
    _row("session/ready", False, "0.1.0"),
    _row("session/creationFailed", False, "0.1.0", error=ERROR_INFO),
    _row("session/chatAdded", False, "0.4.0", summary=CHAT_SUMMARY),
    _row("session/chatRemoved", False, "0.4.0", chat=text),
    _row("session/chatUpdated", False, "0.4.0", chat=text, changes=CHAT_CHANGES),
    _row("session/chatsReordered", None, "0.9.0", chats=TEXTS),
    _row("session/defaultChatChanged", False, "0.4.0", defaultChat=optional(text)),
    _row("session/titleChanged", True, "0.1.0", title=text),
    _row("session/serverToolsChanged", False, "0.1.0", tools=array(TOOL_DEFINITION)),
    _row("session/activeClientSet", True, "0.5.0", activeClient=ACTIVE_CLIENT),
    _row("session/activeClientRemoved", True, "0.5.0", clientId=text),
    _row("session/workingDirectorySet", True, "0.7.0", directory=text),
    _row("session/workingDirectoryRemoved", True, "0.7.0", directory=text),
    _row("session/workingDirectoryReplaced", True, "0.8.0", directory=text, replacement=text),
    _row("session/inputNeededSet", False, "0.5.1", request=SESSION_INPUT),
    _row("session/inputNeededRemoved", False, "0.5.1", id=text),
    _row("session/customizationsChanged", False, "0.1.0", customizations=array(CUSTOMIZATION)),
    _row("session/customizationToggled", True, "0.1.0", id=text, enablement=ENABLEMENT),
    _row("session/customizationUpdated", False, "0.1.0", customization=CUSTOMIZATION),
    _row("session/customizationRemoved", False, "0.2.0", id=text),
    _row(
        "session/mcpServerStateChanged",
        False,
        "0.3.0",
        id=text,
        state=MCP_STATE,
        channel=optional(text),
    ),
    _row("session/mcpServerStartRequested", True, "0.5.2", id=text),
    _row("session/mcpServerStopRequested", True, "0.5.2", id=text),
    _row("session/mcpServerBackgroundRequested", True, "1.0.0", id=text),
    _row("session/isReadChanged", True, "0.1.0", isRead=boolean),
    _row("session/isArchivedChanged", True, "0.1.0", isArchived=boolean),
    _row("session/activityChanged", False, "0.1.0", activity=optional(text)),
    _row("session/changesetsChanged", False, "0.2.0", changesets=optional(array(CHANGESET))),
    _row("session/configChanged", True, "0.1.0", config=record, replace=optional(boolean)),
    _row("session/metaChanged", False, "0.1.0"),
    # -- chat: a turn
    _row(
        "chat/turnStarted",
        True,
        "0.4.0",
        _TURN,
        startedAt=text,
        message=MESSAGE,
        queuedMessageId=optional(text),
    ),
    _row("chat/turnResume", True, "0.9.0", _TURN),
    _row("chat/delta", False, "0.4.0", _TURN, partId=text, content=text),
    _row("chat/reasoning", False, "0.4.0", _TURN, partId=text, content=text),
    _row("chat/responsePart", False, "0.4.0", _TURN, part=RESPONSE_PART),
    _row("chat/usage", False, "0.4.0", _TURN, usage=USAGE),
    _row("chat/turnComplete", False, "0.4.0", _TURN, duration=number),
    _row("chat/turnCancelled", True, "0.4.0", _TURN, duration=number),
    _row("chat/error", False, "0.4.0", _TURN, duration=number, part=ERROR_PART),
    # -- chat: a tool call
    _row(
        "chat/toolCallStart",
        False,
        "0.4.0",
        _CALL,
        toolName=text,
        displayName=text,
        intention=optional(text),
        contributor=optional(CONTRIBUTOR),
    ),
    _row(
        "chat/toolCallDelta",
        False,
        "0.4.0",
        _CALL,
        content=optional(text),
        invocationMessage=optional(PROSE),
    ),
    _row(
        "chat/toolCallReady",
        False,
        "0.4.0",
        _CALL,
        ASKING,
        contributor=optional(CONTRIBUTOR),
        intention=optional(text),
        invocationMessage=PROSE,
        toolInput=optional(TOOL_INPUT),
        confirmed=optional(text),
    ),
    _row(
        "chat/toolCallConfirmed",
        True,
        "0.4.0",
        _CALL,
        approved=boolean,
        selectedOptionId=optional(text),
        also=_approval,
    ),
    _row(
        "chat/toolCallComplete",
        True,
        "0.4.0",
        _CALL,
        result=TOOL_RESULT,
        requiresResultConfirmation=optional(boolean),
    ),
    _row("chat/toolCallResultConfirmed", True, "0.4.0", _CALL, approved=boolean),
    _row("chat/toolCallContentChanged", True, "0.4.0", _CALL, content=TOOL_CONTENT),
    _row("chat/toolCallAuthRequired", False, "0.6.0", _CALL, auth=shape(AUTH)),
    _row("chat/toolCallAuthResolved", False, "0.6.0", _CALL),
    # -- chat: a question
    _row("chat/inputRequested", False, "0.4.0", request=INPUT_REQUEST),
    _row(
        "chat/inputAnswerChanged",
        True,
        "0.4.0",
        requestId=text,
        questionId=text,
        answer=optional(ANSWER),
    ),
    _row(
        "chat/inputCompleted",
        True,
        "0.4.0",
        requestId=text,
        response=INPUT_RESPONSE,
        answers=optional(mapping(ANSWER)),
    ),
    # -- chat: what waits, and the rest
    _row("chat/pendingMessageSet", True, "0.4.0", kind=_PENDING, id=text, message=MESSAGE),
    _row("chat/pendingMessageRemoved", True, "0.4.0", kind=_PENDING, id=text),
    _row("chat/queuedMessagesReordered", True, "0.4.0", order=TEXTS),
    _row("chat/draftChanged", True, "0.5.0", draft=optional(MESSAGE)),
    _row("chat/truncated", True, "0.4.0", turnId=optional(text)),
    _row(
        "chat/turnsLoaded",
        False,
        "0.5.1",
        turns=array(TURN),
        turnsNextCursor=optional(text),
    ),
    _row("chat/activityChanged", False, "0.5.0", activity=optional(text)),
    _row("chat/workingDirectorySet", True, "0.7.0", directory=text),
    _row("chat/workingDirectoryRemoved", True, "0.7.0", directory=text),
    _row("chat/isReadChanged", True, "1.0.0", isRead=boolean),
    _row("chat/isArchivedChanged", True, "1.0.0", isArchived=boolean),
    _row("chat/movableChanged", False, "1.0.0", movable=boolean),
    _row("chat/changesetsChanged", False, "1.0.0", changesets=optional(array(CHANGESET))),
    _row("chat/canvasesChanged", False, "1.0.0", canvases=optional(array(CANVAS))),
    _row("chat/backgroundWorkSet", False, "1.0.0", work=BACKGROUND_WORK),
    _row("chat/backgroundWorkRemoved", False, "1.0.0", id=text),
    # -- families that are not served yet
    _row("changeset/statusChanged", False, "0.2.0"),
    _row("changeset/fileSet", False, "0.2.0"),
    _row("changeset/fileRemoved", False, "0.2.0"),
    _row("changeset/filesReviewChanged", True, "0.6.0"),
    _row("changeset/contentChanged", False, "0.4.0"),
    _row("changeset/operationsChanged", False, "0.2.0"),
    _row("changeset/operationStatusChanged", False, "0.3.0"),
    _row("changeset/cleared", False, "0.2.0"),
    _row("annotations/set", True, "0.4.0"),
    _row("annotations/updated", True, "0.4.0"),
    _row("annotations/removed", True, "0.4.0"),
    _row("annotations/entrySet", True, "0.4.0"),
    _row("annotations/entryRemoved", True, "0.4.0"),
    _row("terminal/data", False, "0.1.0"),
    _row("terminal/input", True, "0.1.0"),
    _row("terminal/resized", True, "0.1.0"),
    _row("terminal/claimed", True, "0.1.0"),
    _row("terminal/titleChanged", True, "0.1.0"),
    _row("terminal/cwdChanged", False, "0.1.0"),
    _row("terminal/exited", False, "0.1.0"),
    _row("terminal/cleared", True, "0.1.0"),
    _row("terminal/commandDetectionAvailable", False, "0.1.0"),
    _row("terminal/commandExecuted", False, "0.1.0"),
    _row("terminal/commandFinished", False, "0.1.0"),
    _row("resourceWatch/changed", False, "0.2.0"),
    _row("canvas/stateChanged", False, "1.0.0"),
    _row("automation/createRequested", True, "0.9.0"),
    _row("automation/updateRequested", True, "0.9.0"),
    _row("automation/set", False, "0.9.0"),
    _row("automation/removed", True, "0.9.0"),
    _row("automationRun/lifecycleChanged", False, "0.9.0"),
    _row("automationRun/sessionSet", False, "0.9.0"),
    _row("automationRun/sessionRemoved", False, "0.9.0"),
    _row("automationRun/primarySessionChanged", False, "0.9.0"),
    _row("automationRun/cancelRequested", True, "0.9.0"),
)

#: By type.
ACTIONS: Final[Mapping[str, ActionRule]] = MappingProxyType({row.type: row for row in _ROWS})
