"""States, rows and parts in one line's shapes: canonical in, that line's out.

Nothing here changes what it was given, and what is alike in both is the very
same object: a line that differs in nothing copies nothing.
"""

from collections.abc import Callable
from typing import Any, Final

from ..reducers.steps import index_of, list_in, objects, replaced
from ..status import ARCHIVED, INPUT_NEEDED, READ, status_of, with_activity
from . import differences as rows

Json = dict[str, Any]

#: Kinds of customizations that carry decisions; the others carry `enabled` in every version.
_DECIDED: Final = ("plugin", "mcpServer")

_FLAGS: Final = READ | ARCHIVED

_PARTS: Final = frozenset({rows.ERROR_PART, rows.TOOL_INPUT, rows.TERMINAL_RESULT})


class Shapes:
    """How one line spells things.

    Args:
        older: the names of the rows in which this line is the older one.
    """

    def __init__(self, older: frozenset[str]) -> None:
        self._older = older
        self._parts_differ = bool(older & _PARTS)
        self._calls_differ = bool(older & {rows.TOOL_INPUT, rows.TERMINAL_RESULT})
        self._enabled_differs = bool(older & {rows.ENABLEMENT, rows.ENABLED_BESIDE})

    def has(self, name: str) -> bool:
        """Whether this line spells that row the older way."""
        return name in self._older

    # -- whole states -----------------------------------------------------------------

    def state(self, family: str, state: Json) -> Json:
        """A channel's state; a family without differences as it is."""
        match family:
            case "chat":
                return self.chat(state)
            case "session":
                return self.session(state)
            case "root":
                return with_each(with_each(state, "agents", self.agent), "terminals", self.terminal)
            case "terminal":
                return self.terminal(state)
            case _:
                return state

    def chat(self, state: Json) -> Json:
        """A chat's state."""
        if rows.CHAT_EXTRAS in self._older:
            state = without(state, rows.EXTRA_MEMBERS)
        state = self.chat_row(state)
        if not self._parts_differ:
            return state
        state = with_each(state, "turns", self.turn)
        active = state.get("activeTurn")
        if isinstance(active, dict):
            state = with_value(state, "activeTurn", self.turn(active))
        return state

    def session(self, state: Json) -> Json:
        """A session's state."""
        if rows.FAILED_LIFECYCLE in self._older and state.get("lifecycle") == "failed":
            state = {**state, "lifecycle": "creationFailed"}
        if rows.CLIENT_EXECUTION in self._older and state.get("inputNeeded"):
            state = with_value(state, "status", with_activity(status_of(state), INPUT_NEEDED))
        state = with_each(self.session_row(state), "chats", self.chat_row)
        state = with_each(state, "customizations", self.customization)
        state = with_each(state, "activeClients", self.client)
        return with_each(state, "inputNeeded", self.request)

    # -- rows -------------------------------------------------------------------------

    def chat_row(self, row: Json) -> Json:
        """A chat's summary, the changes of one, or the same members of its state."""
        status = row.get("status")
        if (
            rows.CHAT_FLAGS in self._older
            and isinstance(status, int)
            and status & (READ | ARCHIVED)
        ):
            row = {**row, "status": status & ~(READ | ARCHIVED)}
        origin = row.get("origin")
        if rows.SIDE_CHAT in self._older and isinstance(origin, dict):
            row = {**row, "origin": {"kind": "user"}} if origin.get("kind") == "sideChat" else row
        return self.session_row(row)

    def session_row(self, row: Json) -> Json:
        """A session's summary, the changes of one, or the same members of its state."""
        folders = row.get("workingDirectories")
        if rows.DIRECTORIES not in self._older or not isinstance(folders, list):
            return row
        # A summary says a list that became empty as `[]`; the text for that is `""`.
        return {
            **without(row, ("workingDirectories",)),
            "workingDirectory": folders[0] if folders else "",
        }

    def terminal(self, terminal: Json) -> Json:
        """A terminal's state or its row in the root's."""
        lifecycle = terminal.get("lifecycle")
        if rows.TERMINAL_LIFECYCLE not in self._older or not isinstance(lifecycle, dict):
            return terminal
        code = lifecycle.get("exitCode")
        after = without(terminal, ("lifecycle",))
        return after if code is None else {**after, "exitCode": code}

    def agent(self, agent: Json) -> Json:
        """An agent as the root lists it."""
        return with_each(agent, "customizations", self.customization)

    def client(self, client: Json) -> Json:
        """An active client of a session."""
        return with_each(client, "customizations", self.customization)

    def request(self, request: Json) -> Json:
        """What a session says it waits for."""
        call = request.get("toolCall")
        if not self._calls_differ or not isinstance(call, dict):
            return request
        return with_value(request, "toolCall", self.tool_call(call))

    # -- customizations ---------------------------------------------------------------

    def customization(self, entry: Json) -> Json:
        """A customization, whatever is inside it included."""
        if not self._enabled_differs:
            return entry
        entry = with_each(entry, "children", self.customization)
        if not is_decided(entry):
            return entry
        if rows.ENABLEMENT in self._older:
            return {**without(entry, ("enablement",)), "enabled": is_enabled(entry)}
        return {**entry, "enabled": is_enabled(entry)}

    # -- turns ------------------------------------------------------------------------

    def turn(self, turn: Json) -> Json:
        """A turn, running or ended."""
        parts = turn.get("responseParts")
        if not self._parts_differ or not isinstance(parts, list):
            return turn
        shown = self.parts(parts)
        if shown is parts:
            return turn
        turn = {**turn, "responseParts": shown}
        if rows.ERROR_PART in self._older and turn.get("state") == "error":
            failures = [part["error"] for part in objects(parts) if part.get("kind") == "error"]
            if failures:
                turn["error"] = failures[-1]
        return turn

    def parts(self, parts: list[Any]) -> list[Any]:
        """Response parts of a turn."""
        shown = parts
        if rows.ERROR_PART in self._older and index_of(parts, "kind", "error") >= 0:
            shown = [p for p in parts if not (isinstance(p, dict) and p.get("kind") == "error")]
        return each(shown, self.part) if self._calls_differ else shown

    def part(self, part: Any) -> Any:
        """One response part."""
        call = part.get("toolCall") if isinstance(part, dict) else None
        if not self._calls_differ or not isinstance(call, dict):
            return part
        return with_value(part, "toolCall", self.tool_call(call))

    def tool_call(self, call: Json) -> Json:
        """A tool call in any of its states."""
        return self.with_content(self.with_tool_input(call))

    def with_tool_input(self, said: Json) -> Json:
        """A call, or an action, whose tool input is text where this line has no references."""
        given = said.get("toolInput")
        if rows.TOOL_INPUT not in self._older or not isinstance(given, dict):
            return said
        return {**said, "toolInput": str(given.get("uri", ""))}

    def with_content(self, said: Json) -> Json:
        """A call, a result or an action, with its content."""
        content = said.get("content")
        if rows.TERMINAL_RESULT not in self._older or not isinstance(content, list):
            return said
        shown: list[Any] = []
        for block in content:
            ended = block.get("result") if isinstance(block, dict) else None
            if not isinstance(ended, dict) or block.get("type") != "terminal":
                shown.append(block)
                continue
            shown.append(without(block, ("result",)))
            where = {"resource": block["resource"]} if "resource" in block else {}
            shown.append({**ended, **where, "type": "terminalComplete"})
        return said if len(shown) == len(content) else {**said, "content": shown}


def is_decided(entry: Json) -> bool:
    """Whether a customization carries decisions, and not a word of its own in every version."""
    return entry.get("type") in _DECIDED


def is_enabled(entry: Json) -> bool:
    """Whether a customization is on: its first decision says so, else its own word, else yes."""
    decisions = objects(list_in(entry, "enablement"))
    said = decisions[0].get("enabled") if decisions else entry.get("enabled")
    return said if isinstance(said, bool) else True


# -- copies only where something differs ------------------------------------------------


def each(items: list[Any], change: Callable[[Any], Any]) -> list[Any]:
    """The list with every item changed; the very same when no item did."""
    after = items
    for index, item in enumerate(items):
        changed = change(item)
        if changed is not item:
            after = replaced(items, index, changed) if after is items else after
            after[index] = changed
    return after


def with_each(holder: Json, key: str, change: Callable[[Json], Json]) -> Json:
    """The object with every object in one of its lists changed; the same when none did."""
    items = holder.get(key)
    if not isinstance(items, list):
        return holder
    return with_value(
        holder, key, each(items, lambda item: change(item) if isinstance(item, dict) else item)
    )


def with_value(holder: Json, key: str, value: Any) -> Json:
    """The object with another value for a member; the same when it has that very value."""
    return holder if holder.get(key) is value else {**holder, key: value}


def without(holder: Json, keys: tuple[str, ...]) -> Json:
    """The object without those members; the same when it has none of them."""
    if not any(key in holder for key in keys):
        return holder
    return {key: value for key, value in holder.items() if key not in keys}
