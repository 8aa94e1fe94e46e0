"""A session as a file: JSON lines, one object a line, written by `export` and read by `import`.

The first line is the session, `{"kind": "session", "format": 1, …}`. Then come its
chats in the order in which they were made, each as a `chat` line followed by one
`turn` line for each of its ended turns, oldest first. The last line is
`{"kind": "end", "lines": N}` with the number of all lines: a file that was cut short
has none. Members are those of the records in `interface`, in camelCase; `state`,
`head` and `turn` are AHP's shapes of version 1.0.

A file that comes in is not trusted: it is read whole, each line is held against
what a host keeps, and it is refused whole with the line that is wrong.
"""

import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from attrs import field, frozen

from ...contracts.ahp.absence import without_nulls
from ...contracts.ahp.actions import check_action
from ...contracts.ahp.reducers import reduce_chat
from ...contracts.ahp.uris import is_valid_id, parse_channel, path_of_file_uri
from ...contracts.json import JsonError, decode_json, encode_json
from ...contracts.shapes import ShapeError, structure, unstructure
from .interface import ChatRecord, KeptChat, KeptSession, SessionRecord, Store

Json = dict[str, Any]

#: What is written, and the greatest that is read.
FORMAT = 1

#: One line of a file: a turn, which came in frames of 16 MiB.
MAX_LINE_BYTES = 256 * 1024 * 1024
#: The whole of it.
MAX_FILE_BYTES = 2 * 1024 * 1024 * 1024

LIFECYCLES = ("creating", "ready", "failed")


class ImportRefused(Exception):
    """The file cannot be taken in; the message is one sentence with the number of the line."""


@frozen(kw_only=True)
class _SessionLine:
    kind: str
    format: int
    id: str
    spelling: str
    agent: str
    created_at: str
    modified_at: str
    titled_by_person: bool
    default_chat: str
    state: Json
    summary: Json


@frozen(kw_only=True)
class _ChatLine:
    kind: str
    id: str
    uri: str
    parent: str | None = None
    tool_call_id: str | None = None
    agent_id: str | None = None
    rewind_at: str | None = None
    queue_paused: bool
    beside: Json = field(factory=dict)
    turn_count: int
    head: Json


@frozen(kw_only=True)
class _TurnLine:
    kind: str
    turn: Json


@frozen(kw_only=True)
class _EndLine:
    kind: str
    lines: int


_SHAPES: dict[str, type] = {
    "session": _SessionLine,
    "chat": _ChatLine,
    "turn": _TurnLine,
    "end": _EndLine,
}


# -- out ------------------------------------------------------------------------------


def export_lines(kept: KeptSession) -> Iterator[bytes]:
    """The lines of a session's file, each with its end."""
    count = 0
    for line in _lines(kept):
        count += 1
        yield encode_json(line) + b"\n"
    yield encode_json({"kind": "end", "lines": count + 1}) + b"\n"


def _lines(kept: KeptSession) -> Iterator[Json]:
    record = kept.record
    yield unstructure(
        _SessionLine(
            kind="session",
            format=FORMAT,
            id=record.id,
            spelling=record.spelling,
            agent=record.agent,
            created_at=record.created_at,
            modified_at=record.modified_at,
            titled_by_person=record.titled_by_person,
            default_chat=record.default_chat,
            state=record.state,
            summary=record.summary,
        )
    )
    for chat in kept.chats:
        state: Json = {**chat.record.head, "turns": list(chat.turns)}
        for action in chat.actions:
            state = reduce_chat(state, action)
        yield unstructure(
            _ChatLine(
                kind="chat",
                id=chat.record.id,
                uri=chat.record.uri,
                parent=chat.record.parent,
                tool_call_id=chat.record.tool_call_id,
                agent_id=chat.record.agent_id,
                rewind_at=chat.record.rewind_at,
                queue_paused=chat.record.queue_paused,
                beside=chat.record.beside,
                turn_count=len(state["turns"]),
                head={key: value for key, value in state.items() if key != "turns"},
            )
        )
        for turn in state["turns"]:
            yield {"kind": "turn", "turn": turn}


# -- in -------------------------------------------------------------------------------


def read_export(lines: Iterable[bytes]) -> KeptSession:
    """The session of a file.

    Args:
        lines: of the file, with or without their ends; none is longer than
            `MAX_LINE_BYTES`, or it is refused.

    Raises:
        ImportRefused: it is none of ours, is cut short, is of a later version, or
            holds what no host keeps.
    """
    reader = _Reader()
    number = 0
    for number, line in enumerate(lines, 1):
        wrong = reader.take(number, line)
        if wrong is not None:
            raise ImportRefused(f"line {number}: {wrong}")
    if not reader.ended:
        raise ImportRefused(f"it ends after line {number}, before its own end: it was cut short")
    return KeptSession(record=reader.record, chats=reader.chats)


def read_export_file(path: Path) -> KeptSession:
    """The session of a file.

    Raises:
        ImportRefused: as `read_export`, or the file cannot be read.
    """
    try:
        with open(path, "rb") as file:
            # A pipe has no end, and a device may have none.
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise ImportRefused(f"{path} is no file")
            if os.fstat(file.fileno()).st_size > MAX_FILE_BYTES:
                raise ImportRefused(f"{path} is larger than {MAX_FILE_BYTES} bytes")
            return read_export(iter(lambda: file.readline(MAX_LINE_BYTES + 1), b""))
    except OSError as error:
        raise ImportRefused(f"cannot read {path}: {error.strerror or error}") from None
    except ImportRefused as error:
        said = str(error)
        raise ImportRefused(said if said.startswith(str(path)) else f"{path}, {said}") from None


def put_session(store: Store, kept: KeptSession) -> None:
    """Writes all of a session that is not in the store yet."""
    store.put_session(kept.record)
    for chat in kept.chats:
        for number, turn in enumerate(chat.turns):
            store.put_turn(chat.record.id, number, turn)
        store.put_chat(chat.record)


class _Reader:
    """Takes the lines one by one; `take` answers what is wrong with one."""

    def __init__(self) -> None:
        self.record: SessionRecord
        self.chats: list[KeptChat] = []
        self.ended = False
        self._turns: list[Json] = []
        self._missing = 0

    def take(self, number: int, line: bytes) -> str | None:
        if self.ended:
            return "something follows the end"
        if len(line) > MAX_LINE_BYTES:
            return f"it is longer than {MAX_LINE_BYTES} bytes"
        try:
            value = decode_json(line)
        except JsonError as error:
            return str(error)
        kind = value.get("kind") if isinstance(value, dict) else None
        shape = _SHAPES.get(kind) if isinstance(kind, str) else None
        if shape is None or (number == 1) != (shape is _SessionLine):
            return "a file of `export` has something else here"
        if number == 1 and isinstance(value.get("format"), int) and value["format"] > FORMAT:
            return f"it is of the format {value['format']}, and this program knows {FORMAT}"
        try:
            read: Any = structure(value, shape, at="it")
        except ShapeError as error:
            return str(error)
        match read:
            case _SessionLine():
                return self._session(read)
            case _ChatLine():
                return self._chat(read)
            case _TurnLine():
                return self._turn(read.turn)
        return self._end(number, read)

    def _session(self, line: _SessionLine) -> str | None:
        name = parse_channel(line.spelling)
        if (
            not is_valid_id(line.id)
            or name is None
            or (name.family, name.id)
            != (
                "session",
                line.id,
            )
        ):
            return f"{line.spelling[:200]} is no URI of the session {line.id[:200]}"
        wrong = _wrong_session(line.state)
        if wrong is not None:
            return wrong
        self.record = SessionRecord(
            id=line.id,
            spelling=line.spelling,
            agent=line.agent,
            created_at=line.created_at,
            modified_at=line.modified_at,
            titled_by_person=line.titled_by_person,
            default_chat=line.default_chat,
            state=line.state,
            summary={**line.summary, "resource": line.spelling},
        )
        return None

    def _chat(self, line: _ChatLine) -> str | None:
        if self._missing:
            return f"{self._missing} turns of the chat before are missing"
        known = {chat.record.id for chat in self.chats}
        if not is_valid_id(line.id) or line.id in known:
            return f"{line.id[:200]!r} is no new chat's id"
        if line.parent is not None and line.parent not in known:
            return f"its parent {line.parent[:200]!r} does not stand before it"
        name = parse_channel(line.uri)
        if name is None or name.family != "chat" or line.head.get("resource") != line.uri:
            return f"{line.uri[:200]} is no URI of a chat, or not the one in its head"
        wrong = _wrong_head(line.head)
        if wrong is not None:
            return wrong
        self._turns, self._missing = [], line.turn_count
        record = ChatRecord(
            id=line.id,
            session=self.record.id,
            uri=line.uri,
            parent=line.parent,
            tool_call_id=line.tool_call_id,
            agent_id=line.agent_id,
            rewind_at=line.rewind_at,
            queue_paused=line.queue_paused,
            beside=line.beside,
            turn_count=line.turn_count,
            head=line.head,
        )
        self.chats.append(KeptChat(record=record, turns=self._turns, actions=()))
        return None

    def _turn(self, turn: Json) -> str | None:
        if not self._missing:
            return "the chat has no more turns"
        wrong = _wrong_turn(turn)
        if wrong is None and any(held["id"] == turn["id"] for held in self._turns):
            wrong = f"the turn {turn['id'][:200]} was there before"
        self._turns.append(turn)
        self._missing -= 1
        return wrong

    def _end(self, number: int, line: _EndLine) -> str | None:
        if line.lines != number or self._missing:
            return f"lines are missing: it says that it is line {line.lines}"
        if all(chat.record.id != self.record.default_chat for chat in self.chats):
            return "the session's default chat is missing"
        self.ended = True
        return None


def _wrong_session(state: Json) -> str | None:
    plain = {"provider": str, "title": str, "status": int, "activeClients": list, "chats": list}
    for key, kind in plain.items():
        if not isinstance(state.get(key), kind) or isinstance(state[key], bool):
            return f"it.state.{key}: expected {kind.__name__}"
    if state.get("lifecycle") not in LIFECYCLES:
        return f"it.state.lifecycle: expected one of {', '.join(LIFECYCLES)}"
    actions: list[Json] = [
        {"type": "session/chatAdded", "summary": summary} for summary in state["chats"]
    ]
    if "customizations" in state:
        told = {"customizations": state["customizations"]}
        actions.append({"type": "session/customizationsChanged", **told})
    if "config" in state:
        config = state["config"]
        if not isinstance(config, dict) or not all(
            isinstance(config.get(key), dict) for key in ("schema", "values")
        ):
            return "it.state.config: expected a schema and values"
    return _first_wrong(actions) or _wrong_directories(state)


def _wrong_head(head: Json) -> str | None:
    for key, kind in {"title": str, "status": int, "modifiedAt": str, "origin": dict}.items():
        if not isinstance(head.get(key), kind) or isinstance(head[key], bool):
            return f"it.head.{key}: expected {kind.__name__}"
    actions: list[Json] = []
    queued = head.get("queuedMessages", [])
    for kind_of, held in (("queued", queued), ("steering", [head.get("steeringMessage")])):
        if not isinstance(held, list):
            return "it.head.queuedMessages: expected list"
        for message in held:
            if message is not None:
                one = message if isinstance(message, dict) else {}
                actions.append({"type": "chat/pendingMessageSet", "kind": kind_of, **one})
    if "draft" in head:
        actions.append({"type": "chat/draftChanged", "draft": head["draft"]})
    running = head.get("activeTurn")
    if running is not None:
        if not isinstance(running, dict) or not isinstance(running.get("startedAt"), str):
            return "it.head.activeTurn: expected a turn"
        ended = {"state": "complete", "duration": 0}
        actions.append({"type": "chat/turnsLoaded", "turns": [{**running, **ended}]})
    return _first_wrong(actions) or _wrong_directories(head)


def _wrong_turn(turn: Json) -> str | None:
    return _first_wrong([{"type": "chat/turnsLoaded", "turns": [turn]}])


def _wrong_directories(state: Json) -> str | None:
    directories = state.get("workingDirectories", [])
    if not isinstance(directories, list) or any(
        not isinstance(uri, str) or path_of_file_uri(uri) is None for uri in directories
    ):
        return "workingDirectories: expected file:// URIs"
    return None


def _first_wrong(actions: Iterable[Json]) -> str | None:
    for action in actions:
        wrong = check_action(without_nulls(action))
        if wrong is not None:
            return f"{action['type'].partition('/')[2]} does not fit: {wrong}"
    return None
