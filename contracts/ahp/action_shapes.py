"""What actions carry: messages, parts, tool calls, questions, summaries and customizations of 1.0.

Read beside the protocol's schema. Enumerations are open (any string passes)
unless what the host does hangs on the value. Nested JSON that the host only
passes on (`_meta`, schemas, edits) is looked at no deeper than its kind.
"""

from typing import Final

from .checks import (
    Check,
    Members,
    array,
    boolean,
    deferred,
    every,
    mapping,
    number,
    one_of,
    optional,
    record,
    shape,
    tagged,
    text,
    text_or,
    whole_number,
    without,
)

META: Final[Members] = {"_meta": optional(record)}
TEXTS: Final = array(text)

#: A plain string, or `{ markdown }`.
PROSE: Final = text_or(shape(markdown=text))

#: Content that is fetched by its URI.
CONTENT_REF: Final[Members] = {
    "uri": text,
    "sizeHint": optional(number),
    "contentType": optional(text),
    "nonce": optional(text),
}

ERROR_INFO: Final = shape(META, errorType=text, message=text, stack=optional(text))
_POSITION: Final = shape(line=number, character=number)
_RANGE: Final = shape(start=_POSITION, end=_POSITION)
_SELECTION: Final = shape(range=_RANGE)

# -- messages ------------------------------------------------------------------

_ATTACHMENT: Final = tagged(
    "type",
    {
        "simple": shape(modelRepresentation=optional(text)),
        "embeddedResource": shape(data=text, contentType=text, selection=optional(_SELECTION)),
        "resource": shape(CONTENT_REF, selection=optional(_SELECTION)),
        "annotations": shape(resource=text, annotationIds=optional(TEXTS)),
        "chat": shape(resource=text, endTurn=optional(text)),
    },
    shape(META, label=text, range=optional(_RANGE), displayKind=optional(text)),
)

MESSAGE: Final = shape(
    META,
    text=text,
    origin=shape(kind=text),
    attachments=optional(array(_ATTACHMENT)),
    model=optional(shape(id=text, config=optional(record))),
    agent=optional(shape(uri=text)),
)

# -- questions -----------------------------------------------------------------

_OPTION: Final = shape(
    id=text, label=text, description=optional(text), recommended=optional(boolean)
)
_CHOICE: Final[Members] = {
    "options": array(_OPTION),
    "allowFreeformInput": optional(boolean),
}
_BOUNDS: Final[Members] = {"min": optional(number), "max": optional(number)}

QUESTION: Final = tagged(
    "kind",
    {
        "text": shape(_BOUNDS, format=optional(text), defaultValue=optional(text)),
        "number": shape(_BOUNDS, defaultValue=optional(number)),
        "integer": shape(_BOUNDS, defaultValue=optional(number)),
        "boolean": shape(defaultValue=optional(boolean)),
        "single-select": shape(_CHOICE),
        "multi-select": shape(_CHOICE, _BOUNDS),
    },
    shape(id=text, message=text, title=optional(text), required=optional(boolean)),
)

_ANSWER_VALUE: Final = tagged(
    "kind",
    {
        "text": shape(value=text),
        "number": shape(value=number),
        "boolean": shape(value=boolean),
        "selected": shape(value=text, freeformValues=optional(TEXTS)),
        "selected-many": shape(value=TEXTS, freeformValues=optional(TEXTS)),
    },
)

ANSWER: Final = tagged(
    "state",
    {
        "draft": shape(value=_ANSWER_VALUE),
        "submitted": shape(value=_ANSWER_VALUE),
        "skipped": shape(freeformValues=optional(TEXTS)),
    },
)

#: How a question ends. Closed: an answer nobody understands must not settle one.
INPUT_RESPONSE: Final = one_of("accept", "decline", "cancel")

INPUT_REQUEST: Final = shape(
    id=text,
    message=optional(text),
    url=optional(text),
    questions=optional(array(QUESTION)),
    answers=optional(mapping(ANSWER)),
)

# -- tool calls ----------------------------------------------------------------

TOOL_INPUT: Final = text_or(shape(CONTENT_REF))

CONTRIBUTOR: Final = tagged(
    "kind", {"client": shape(clientId=text), "mcp": shape(customizationId=text)}
)

CONFIRMATION_OPTION: Final = shape(id=text, label=text, kind=text, group=optional(number))

RISK: Final = tagged(
    "status", {"loading": record, "complete": shape(reason=PROSE, safety=number)}, shape(kind=text)
)

EDITS: Final = shape(items=array(record))

#: RFC 9728 metadata of what a token is needed for.
PROTECTED_RESOURCE: Final = shape(
    resource=text, authorization_servers=optional(TEXTS), scopes_supported=optional(TEXTS)
)

AUTH: Final[Members] = {
    "reason": text,
    "resource": PROTECTED_RESOURCE,
    "requiredScopes": optional(TEXTS),
    "description": optional(text),
    "oauthClient": optional(shape(clientId=text, clientSecret=optional(text))),
}

_TERMINAL_RESULT: Final = shape(
    exitCode=optional(number), preview=optional(text), truncated=optional(boolean)
)

TOOL_CONTENT: Final = array(
    tagged(
        "type",
        {
            "text": shape(text=text),
            "embeddedResource": shape(data=text, contentType=text),
            "resource": shape(CONTENT_REF),
            "fileEdit": shape(
                before=optional(record), after=optional(record), diff=optional(record)
            ),
            "terminal": shape(
                resource=text,
                title=text,
                isPty=optional(boolean),
                result=optional(_TERMINAL_RESULT),
            ),
            "subagent": shape(
                resource=text, title=text, agentName=optional(text), description=optional(text)
            ),
        },
    )
)

_RESULT: Final[Members] = {
    "success": boolean,
    "pastTenseMessage": PROSE,
    "content": optional(TOOL_CONTENT),
    "structuredContent": optional(record),
    "error": optional(shape(message=text, code=optional(text))),
}

#: The result alone. A client lays it over the call, so it must not carry what the call is.
TOOL_RESULT: Final = every(
    shape(_RESULT),
    without(
        "status",
        "toolCallId",
        "toolName",
        "displayName",
        "intention",
        "contributor",
        "invocationMessage",
        "toolInput",
        "confirmed",
        "selectedOption",
        "_meta",
        because="is the call's own and no part of its result",
    ),
)

_TOOL_CALL: Final[Members] = {
    **META,
    "toolCallId": text,
    "toolName": text,
    "displayName": text,
    "intention": optional(text),
    "contributor": optional(CONTRIBUTOR),
}
_INVOKED: Final[Members] = {"invocationMessage": PROSE, "toolInput": optional(TOOL_INPUT)}
_APPROVED: Final[Members] = {
    "confirmed": text,
    "selectedOption": optional(CONFIRMATION_OPTION),
}

#: What an agent asks with: beside the invocation, on `chat/toolCallReady` and while it waits.
ASKING: Final[Members] = {
    "confirmationTitle": optional(PROSE),
    "riskAssessment": optional(RISK),
    "edits": optional(EDITS),
    "editable": optional(boolean),
    "options": optional(array(CONFIRMATION_OPTION)),
}

TOOL_CALL: Final = tagged(
    "status",
    {
        "streaming": shape(partialInput=optional(text), invocationMessage=optional(PROSE)),
        "pending-confirmation": shape(_INVOKED, ASKING),
        "running": shape(_INVOKED, _APPROVED, content=optional(TOOL_CONTENT)),
        "auth-required": shape(
            _INVOKED, _APPROVED, auth=shape(AUTH), content=optional(TOOL_CONTENT)
        ),
        "pending-result-confirmation": shape(_INVOKED, _APPROVED, _RESULT),
        "completed": shape(_INVOKED, _APPROVED, _RESULT),
        "cancelled": shape(
            _INVOKED,
            reason=text,
            reasonMessage=optional(PROSE),
            userSuggestion=optional(MESSAGE),
            selectedOption=optional(CONFIRMATION_OPTION),
        ),
    },
    shape(_TOOL_CALL),
)

# -- turns ---------------------------------------------------------------------

ERROR_PART: Final = shape(META, kind=one_of("error"), error=ERROR_INFO, resumable=optional(boolean))

RESPONSE_PART: Final = tagged(
    "kind",
    {
        "markdown": shape(id=text, content=text),
        "reasoning": shape(id=text, content=text),
        "toolCall": shape(toolCall=TOOL_CALL),
        "inputRequest": shape(request=INPUT_REQUEST, response=optional(INPUT_RESPONSE)),
        "systemNotification": shape(META, content=PROSE),
        "contentRef": shape(CONTENT_REF),
        "error": ERROR_PART,
    },
)

USAGE: Final = shape(
    META,
    inputTokens=optional(number),
    outputTokens=optional(number),
    cacheReadTokens=optional(number),
    model=optional(text),
)

TURN: Final = shape(
    id=text,
    startedAt=optional(text),
    duration=optional(number),
    message=MESSAGE,
    responseParts=array(RESPONSE_PART),
    usage=optional(USAGE),
    state=text,
)

# -- chats and sessions --------------------------------------------------------

_CHAT_SOURCES: Final = {
    "fork": shape(chat=text, turnId=text),
    "sideChat": shape(
        chat=text,
        turnId=text,
        selection=optional(shape(text=text, responsePartId=optional(text))),
    ),
}

_CHAT_ORIGIN: Final = tagged("kind", {**_CHAT_SOURCES, "tool": shape(chat=text, toolCallId=text)})

#: Where a new chat's first turns come from. Closed: an unknown source cannot be followed.
CHAT_SOURCE: Final = every(shape(kind=one_of("fork", "sideChat")), tagged("kind", _CHAT_SOURCES))

CHAT_SUMMARY_MEMBERS: Final[dict[str, Check]] = {
    "resource": text,
    "title": text,
    "status": whole_number,
    "modifiedAt": text,
    "activity": text,
    "origin": _CHAT_ORIGIN,
    "interactivity": text,
    "workingDirectories": TEXTS,
}

CHAT_SUMMARY: Final = shape(
    {
        name: check if name in ("resource", "title", "status", "modifiedAt") else optional(check)
        for name, check in CHAT_SUMMARY_MEMBERS.items()
    }
)

#: Some members of a summary, as they became; null clears one.
CHAT_CHANGES: Final = shape({name: optional(check) for name, check in CHAT_SUMMARY_MEMBERS.items()})

CHANGESET: Final = shape(
    label=text,
    uriTemplate=text,
    changeKind=text,
    description=optional(text),
    capabilities=optional(record),
)

BACKGROUND_WORK: Final = shape(type=text, id=text, label=text, startedAt=text)

CANVAS: Final = shape(resource=text)

TOOL_DEFINITION: Final = shape(
    META,
    name=text,
    title=optional(text),
    description=optional(text),
    inputSchema=optional(record),
    outputSchema=optional(record),
    annotations=optional(record),
)

MCP_STATE: Final = tagged(
    "kind",
    {
        "starting": shape(blocking=optional(boolean)),
        "authRequired": shape(AUTH),
        "error": shape(error=ERROR_INFO),
    },
)

ENABLEMENT: Final = array(shape(kind=text, enabled=boolean))

_CHILDREN: Final = array(deferred(lambda: CUSTOMIZATION))
_CONTAINER: Final[Members] = {
    "clientId": optional(text),
    "load": optional(shape(kind=text)),
    "children": optional(_CHILDREN),
}

#: A customization or the child of one, which differ in what may stand inside them.
CUSTOMIZATION: Final[Check] = tagged(
    "type",
    {
        "plugin": shape(_CONTAINER, version=optional(text), nonce=optional(text)),
        "directory": shape(_CONTAINER, contents=text, writable=boolean),
        "mcpServer": shape(state=MCP_STATE, channel=optional(text), mcpApp=optional(record)),
        **dict.fromkeys(("agent", "skill", "prompt", "rule", "hook"), record),
    },
    shape(
        META,
        id=text,
        uri=text,
        name=text,
        icons=optional(array(record)),
        range=optional(_RANGE),
        enabled=optional(boolean),
        enablement=optional(ENABLEMENT),
    ),
)

ACTIVE_CLIENT: Final = shape(
    clientId=text,
    displayName=optional(text),
    tools=array(TOOL_DEFINITION),
    customizations=optional(array(CUSTOMIZATION)),
)

_WAITING: Final[Members] = {"turnId": text, "toolCall": TOOL_CALL}

SESSION_INPUT: Final = tagged(
    "kind",
    {
        "chatInput": shape(request=INPUT_REQUEST),
        "toolConfirmation": shape(_WAITING),
        "toolClientExecution": shape(_WAITING, clientId=text),
        "toolAuthentication": shape(_WAITING),
    },
    shape(id=text, chat=text),
)

# -- the root ------------------------------------------------------------------

_MODEL: Final = shape(
    META,
    id=text,
    provider=text,
    name=text,
    maxContextWindow=optional(number),
    maxOutputTokens=optional(number),
    maxPromptTokens=optional(number),
    supportsVision=optional(boolean),
    policyState=optional(text),
    configSchema=optional(record),
)

AGENT_INFO: Final = shape(
    provider=text,
    displayName=text,
    description=text,
    models=array(_MODEL),
    protectedResources=optional(array(PROTECTED_RESOURCE)),
    customizations=optional(array(CUSTOMIZATION)),
    capabilities=optional(record),
)

_CLAIM: Final = tagged("kind", {"client": shape(clientId=text), "session": shape(session=text)})

TERMINAL_INFO: Final = shape(resource=text, title=text, claim=_CLAIM)
