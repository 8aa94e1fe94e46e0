"""Windows: which of a chat's turns a connection holds, and how it gets the others.

A subscriber that asked for n turns holds the newest ones; `turnsNextCursor`
leads to the older. What it is given later comes as `chat/turnsLoaded`, to this
connection alone, numbered like the last envelope and never replayed.

Pure: state in, actions out. A cursor is the first held turn's id, wrapped, so
that new turns do not move it and a turn that is gone expires it honestly.
"""

import base64
import binascii
from collections.abc import Mapping, Set
from typing import Any, TypeAlias

from ....contracts.json import json_size

Json = dict[str, Any]

#: The ids of the turns that a client holds of each chat of which it does not hold all.
Windows: TypeAlias = Mapping[str, Set[str]]

#: How many turns `fetchTurns` loads at once, and how many bytes of them; one always goes.
PAGE_TURNS = 60
PAGE_BYTES = 1024 * 1024

_MARK = b"before:"


def cursor_before(turn_id: str) -> str:
    """The cursor that leads to the turns before this one."""
    return base64.urlsafe_b64encode(_MARK + turn_id.encode()).decode()


def turn_of(cursor: str) -> str | None:
    """The turn that a cursor of ours leads to the front of; None for any other text."""
    try:
        data = base64.b64decode(cursor.encode(), altchars=b"-_", validate=True)
        return data.removeprefix(_MARK).decode() if data.startswith(_MARK) else None
    except (ValueError, binascii.Error):
        return None


def windowed(state: Json, turns: int | None) -> tuple[Json, set[str] | None]:
    """A chat's state with its newest `turns`, and the ids that it holds (None: all of them)."""
    held = state["turns"]
    if turns is None or turns >= len(held):
        return state, None
    first = len(held) - turns
    shown = held[first:]
    ids = {turn["id"] for turn in shown}
    running = state.get("activeTurn")
    if running is not None:
        ids.add(running["id"])
    oldest = shown[0]["id"] if shown else _END
    return {**state, "turns": shown, "turnsNextCursor": cursor_before(oldest)}, ids


#: Stands for "after the last turn", in the cursor of an empty window.
_END = ""


def page_before(state: Json, turn_id: str) -> Json | None:
    """The `chat/turnsLoaded` with a page of turns before that one; None when it is not there."""
    turns = state["turns"]
    if turn_id == _END:
        end = len(turns)
    else:
        found = next((i for i, turn in enumerate(turns) if turn["id"] == turn_id), None)
        if found is None:
            return None
        end = found
    return _page(turns, end)


def next_page(state: Json, held: Set[str]) -> Json | None:
    """The page before what a connection holds; None when nothing is older."""
    turns = state["turns"]
    end = len(turns)
    while end > 0 and turns[end - 1]["id"] in held:
        end -= 1
    return _page(turns, end) if end > 0 else None


def _page(turns: list[Json], end: int) -> Json:
    start = end
    room = PAGE_BYTES
    while start > 0 and end - start < PAGE_TURNS:
        size = json_size(turns[start - 1])
        if size > room and start < end:
            break
        start -= 1
        room -= size
    return loaded(turns, start, end)


def missing_for(state: Json, held: set[str], action: Json) -> Json | None:
    """The `chat/turnsLoaded` that must precede an action naming a turn outside the window.

    Looks at the state after the action: a truncation keeps the turn it names.
    """
    turn_id = action.get("turnId")
    if not isinstance(turn_id, str) or turn_id in held:
        return None
    turns = state["turns"]
    start = next((i for i, turn in enumerate(turns) if turn["id"] == turn_id), None)
    if start is None:
        return None
    end = start
    while end < len(turns) and turns[end]["id"] not in held:
        end += 1
    return loaded(turns, start, end)


def loaded(turns: list[Json], start: int, end: int) -> Json:
    """The action that loads these turns, with the cursor to what is older."""
    action: Json = {"type": "chat/turnsLoaded", "turns": turns[start:end]}
    if start > 0:
        action["turnsNextCursor"] = cursor_before(turns[start]["id"])
    return action


def remember(held: set[str], action: Json) -> None:
    """Adds what an action makes a connection hold."""
    if action["type"] == "chat/turnsLoaded":
        held.update(turn["id"] for turn in action["turns"])
    elif action["type"] == "chat/turnStarted":
        held.add(action["turnId"])
