"""The table of differences: what each line of versions spells otherwise than 1.0, and since when.

Every row drives the lens by its name: a line that is older than `since` is
spoken to as `older` says. `docs/versions.md` is this table, written out with a
version a column, to be read beside the protocol's own change log; `source` says
where there.

A row's `waits` are the actions that the older line has no words for although it
sees what they change: the channel's next snapshot carries it. Everything else is
said in the older line's own actions, or is nothing that the older line shows.
"""

from typing import Final

from attrs import frozen

Release = tuple[int, int]

#: The lines that the table has a column for, oldest first; 1.x is 1.0.
COLUMNS: Final[tuple[Release, ...]] = ((0, 6), (0, 7), (0, 8), (0, 9), (0, 10), (1, 0))


@frozen(kw_only=True)
class Difference:
    """One thing that older lines spell otherwise."""

    name: str
    #: The first line with 1.0's shape. 0.10, which was never released, is 1.0 in the making.
    since: Release
    what: str
    newer: str
    older: str
    #: Where the change log says so.
    source: str
    #: The first line that `older` speaks of; of those before it another row does.
    speaks_from: Release = (0, 0)
    #: Actions whose effect an older client sees only with the channel's next snapshot.
    waits: frozenset[str] = frozenset()
    #: Whether the lens has anything to do: the rest is here for the reader.
    told: bool = True


CHAT_FLAGS: Final = "chat-flags"
CHAT_EXTRAS: Final = "chat-extras"
CHAT_ORDER: Final = "chat-order"
MCP_BACKGROUND: Final = "mcp-background"
FAILED_LIFECYCLE: Final = "failed-lifecycle"
ERROR_PART: Final = "error-part"
TURN_RESUME: Final = "turn-resume"
TERMINAL_LIFECYCLE: Final = "terminal-lifecycle"
SESSION_FORK: Final = "session-fork"
ENABLED_BESIDE: Final = "enabled-beside-enablement"
ENABLEMENT: Final = "enablement"
CLIENT_EXECUTION: Final = "client-execution"
DIRECTORY_REPLACED: Final = "directory-replaced"
DIRECTORIES: Final = "directories"
TOOL_INPUT: Final = "tool-input"
TOOL_DELTA: Final = "tool-delta"
TOOL_READY: Final = "tool-ready"
TERMINAL_RESULT: Final = "terminal-result"
CHAT_SOURCE: Final = "chat-source"
SIDE_CHAT: Final = "side-chat"

#: Members of a chat's state that came with 1.0, and the actions that alone change them.
EXTRA_MEMBERS: Final = ("backgroundWork", "movable", "changesets", "canvases")
EXTRA_ACTIONS: Final = frozenset(
    {
        "chat/backgroundWorkSet",
        "chat/backgroundWorkRemoved",
        "chat/movableChanged",
        "chat/changesetsChanged",
        "chat/canvasesChanged",
    }
)
FLAG_ACTIONS: Final = frozenset({"chat/isReadChanged", "chat/isArchivedChanged"})
DIRECTORY_ACTIONS: Final = frozenset(
    {
        "session/workingDirectorySet",
        "session/workingDirectoryRemoved",
        "session/workingDirectoryReplaced",
        "chat/workingDirectorySet",
        "chat/workingDirectoryRemoved",
    }
)

DIFFERENCES: Final = (
    Difference(
        name="clocks",
        since=(0, 10),
        what="a chat's `modifiedAt`",
        newer="follows from the actions (`startedAt`, `duration`)",
        older="set by the client's clock as it reduces; snapshots carry ours",
        source="1.0: reducers read no clock",
        told=False,
    ),
    Difference(
        name=CHAT_FLAGS,
        since=(0, 10),
        what="read and archived chats",
        newer="`chat/isReadChanged`, `chat/isArchivedChanged`; flags of a chat's status",
        older="only sessions are read or archived: a chat's status is without the two flags, "
        "in its state and in the catalogue, and the two actions are not said",
        source="1.0, added: read state and archiving of chats",
    ),
    Difference(
        name=CHAT_EXTRAS,
        since=(0, 10),
        what="a chat's background work, changesets, canvases, whether it may move",
        newer="members of the chat's state with actions of their own",
        older="not there: members left out, actions not said",
        source="1.0, added: background work, chats' changesets, canvases, `moveChat`",
    ),
    Difference(
        name=CHAT_ORDER,
        since=(0, 10),
        what="`session/chatsReordered`",
        newer="the action",
        older="`session/chatRemoved` and `session/chatAdded` of every chat from the first that "
        "moved, then `session/defaultChatChanged` where the default was among them",
        source="1.0, added: order of chats (the registry dates it 0.9)",
    ),
    Difference(
        name=MCP_BACKGROUND,
        since=(0, 10),
        what="`session/mcpServerBackgroundRequested`",
        newer="the action",
        older="`session/mcpServerStateChanged` with the state that it leads to",
        source="1.0, added: `blocking` of a starting MCP server",
    ),
    Difference(
        name=FAILED_LIFECYCLE,
        since=(0, 9),
        what="lifecycle of a session that could not be created",
        newer="`failed`",
        older="`creationFailed`",
        source="0.9, changed",
    ),
    Difference(
        name=ERROR_PART,
        since=(0, 9),
        what="a failed turn",
        newer="keeps a response part of kind `error`; `chat/error` carries `part`",
        older="`Turn.error`, from its last error part; no error parts anywhere; "
        "`chat/error` carries `error`",
        source="0.9, added: turn errors are response parts",
    ),
    Difference(
        name=TURN_RESUME,
        since=(0, 9),
        what="`chat/turnResume`",
        newer="the action",
        older="`chat/truncated` to the turn before, `chat/turnStarted` of the same turn, its parts "
        "again by `chat/responsePart` (an open question by `chat/inputRequested`), `chat/usage`",
        source="0.9, added",
    ),
    Difference(
        name=TERMINAL_LIFECYCLE,
        since=(0, 9),
        what="a terminal's end",
        newer="`lifecycle` `{status, exitCode?}`",
        older="`exitCode?`",
        source="0.9, changed",
    ),
    Difference(
        name="annotation-origin",
        since=(0, 9),
        what="where an annotation belongs",
        newer="`origin {session, chat?, turnId?}`",
        older="`turnId` (annotations are not served yet)",
        source="0.9, changed",
        told=False,
    ),
    Difference(
        name=SESSION_FORK,
        since=(0, 9),
        what="`createSession.fork`",
        newer="gone: unknown, and passed over",
        older="refused with a sentence: this host forks no sessions",
        source="0.9, removed",
    ),
    Difference(
        name=ENABLED_BESIDE,
        since=(0, 9),
        what="a customization's `enabled` beside its `enablement`",
        newer="`enablement` alone",
        older="both, since builds of 0.8 before its release know only `enabled`; "
        "`session/customizationToggled` carries both too, and of a plugin or "
        "server is followed by `session/customizationUpdated` with the whole entry. Either is "
        "taken from a client",
        source="0.8, changed: scoped enablement",
        speaks_from=(0, 8),
    ),
    Difference(
        name=ENABLEMENT,
        since=(0, 8),
        what="whether a plugin or an MCP server is on",
        newer="`enablement`, the complete set of decisions; the first one counts",
        older="`enabled`; `session/customizationToggled` carries `enabled`. A client's word "
        "replaces the decision of kind `session`",
        source="0.8, changed: scoped enablement",
    ),
    Difference(
        name=CLIENT_EXECUTION,
        since=(0, 8),
        what="a session that waits for a client's tool (`toolClientExecution`)",
        newer="in progress",
        older="input needed, as anything in `inputNeeded`",
        source="0.8, changed",
    ),
    Difference(
        name=DIRECTORY_REPLACED,
        since=(0, 8),
        what="`session/workingDirectoryReplaced`",
        newer="the action",
        older="`session/workingDirectoryRemoved` and `session/workingDirectorySet`, from the "
        "first folder that is another one now",
        source="0.8, added",
    ),
    Difference(
        name=DIRECTORIES,
        since=(0, 7),
        what="folders of sessions, chats and their summaries",
        newer="`workingDirectories`, with actions to add and remove",
        older="`workingDirectory`, the first of them; no action changes it. `createSession` has "
        "one too",
        source="0.7, added: sessions with several roots",
        waits=DIRECTORY_ACTIONS,
    ),
    Difference(
        name=TOOL_INPUT,
        since=(0, 7),
        what="a tool call's input",
        newer="text or a `ContentRef`",
        older="text: a reference is said as its URI, and edited input does not replace it",
        source="0.7, changed",
    ),
    Difference(
        name=TOOL_DELTA,
        since=(0, 7),
        what="`chat/toolCallDelta.content`",
        newer="may be absent",
        older="always there, empty where it is absent (an empty `partialInput` is an absent one)",
        source="0.7, changed",
    ),
    Difference(
        name=TOOL_READY,
        since=(0, 7),
        what="`chat/toolCallReady`",
        newer="refines contributor and intention; input stays where none is given",
        older="carries the input that stays; where it refines, the running turn is said again "
        "before it, with the call refined (`chat/turnStarted`, `chat/responsePart`, `chat/usage`)",
        source="0.7, changed",
    ),
    Difference(
        name=TERMINAL_RESULT,
        since=(0, 7),
        what="a command's end in a tool's content",
        newer="`result` of the content of type `terminal`",
        older="content of type `terminalComplete` behind it",
        source="0.7, removed: `ToolResultTerminalCompleteContent`",
    ),
    Difference(
        name=CHAT_SOURCE,
        since=(0, 7),
        what="`createChat.source`",
        newer="has a `kind`",
        older="has none: it is `fork`",
        source="0.7, fixed",
    ),
    Difference(
        name=SIDE_CHAT,
        since=(0, 7),
        what="where a side chat comes from",
        newer="`origin` of kind `sideChat`",
        older="`origin` of kind `user`",
        source="0.7, added: side chats",
    ),
)


def older_than(release: Release) -> frozenset[str]:
    """The names of what that line spells the older way."""
    return frozenset(row.name for row in DIFFERENCES if release < row.since and row.told)


def waiting_for_snapshot(release: Release) -> frozenset[str]:
    """The actions that wait for the channel's next snapshot in that line."""
    rows = [row.waits for row in DIFFERENCES if release < row.since]
    return frozenset().union(*rows)


def as_markdown() -> str:
    """The table, a version a column, for `docs/versions.md`."""
    heads = ["what", *(_column(release) for release in COLUMNS), "change log"]
    lines = [_row(heads), _row(["---"] * len(heads))]
    for row in DIFFERENCES:
        waits = ", ".join(f"`{kind}`" for kind in sorted(row.waits))
        carried = f". Carried by the next snapshot: {waits}" if waits else ""
        cells = [_cell(row, release) for release in COLUMNS]
        lines.append(_row([row.what, *_once_each(cells), row.source + carried]))
    return "\n".join(lines) + "\n"


def _cell(row: Difference, release: Release) -> str:
    if release >= row.since:
        return row.newer
    return row.older if release >= row.speaks_from else "see the next row"


def _column(release: Release) -> str:
    return "1.x" if release == (1, 0) else f"{release[0]}.{release[1]}"


def _once_each(cells: list[str]) -> list[str]:
    """What the column before says already is said as an arrow."""
    return ["→" if index and cells[index - 1] == cell else cell for index, cell in enumerate(cells)]


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"
