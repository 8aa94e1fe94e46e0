"""A chat as lines of a terminal: what is new in its state is written, once, as it comes.

Text of agents is written without anything that a terminal would obey.
"""

from collections.abc import Callable
from typing import Any

from attrs import define, field

from .answers import plain
from .output import on_one_line, printable

Json = dict[str, Any]

PROMPT = "> "

_DIM, _PLAIN = "\x1b[2m", "\x1b[0m"


@define
class _Shown:
    """How far one turn is written."""

    turn_id: str
    texts: dict[int, int] = field(factory=dict)
    """Of each text part, by its place: how many characters."""
    said: dict[int, str] = field(factory=dict)
    """Of each other part, by its place: what of it was written last."""


class Transcript:
    """Writes one chat. Not for subclassing.

    Args:
        write: takes text for the terminal.
        styled: whether reasoning is dimmed; else it is marked.
    """

    def __init__(self, write: Callable[[str], None], *, styled: bool) -> None:
        self._write = write
        self._styled = styled
        self._line_start = True
        self._prompted: str | None = None
        self._streaming: tuple[str, int] | None = None
        self._shown: _Shown | None = None
        self._done: set[str] = set()
        #: Turns whose message stands on the terminal already: it was typed there.
        self.typed_turns: set[str] = set()
        #: Tool calls that stand there already, since a person was asked about them.
        self.asked_calls: set[str] = set()

    # -- lines of our own -------------------------------------------------------------

    def line(self, text: str) -> None:
        """Writes lines, starting on a line of their own."""
        self._break()
        self._out(printable(text) + "\n")

    def prompt(self, text: str) -> None:
        """Writes a prompt, unless it is what stands at the cursor already."""
        if self._prompted == text:
            return
        self._break()
        self._out(printable(text))
        self._prompted = text

    def typed(self, echo: str | None) -> None:
        """A line was taken from the input; `echo` is it where no terminal has shown it."""
        if echo is not None:
            self._out(printable(echo) + "\n")
        self._prompted = None
        self._line_start = True

    def interrupted(self) -> None:
        """Ctrl-C was typed: the terminal shows `^C` at the cursor, wherever that was."""
        self._out("\n")
        self._streaming = None

    # -- the chat ---------------------------------------------------------------------

    def show(self, state: Json) -> None:
        """Writes what of the chat's state was not written yet."""
        fresh = []
        for turn in reversed(state["turns"]):
            if turn["id"] in self._done:
                break
            fresh.append(turn)
        for turn in reversed(fresh):
            self._turn(turn)
            self._end(turn)
        if "activeTurn" in state:
            self._turn(state["activeTurn"])

    def _turn(self, turn: Json) -> None:
        if self._shown is None or self._shown.turn_id != turn["id"]:
            self._shown = _Shown(turn_id=turn["id"])
            if turn["id"] not in self.typed_turns:
                self.line(PROMPT + turn["message"]["text"])
        for place, part in enumerate(turn["responseParts"]):
            self._part(self._shown, place, part)

    def _end(self, turn: Json) -> None:
        self._break()
        if turn["state"] == "cancelled":
            self.line("(cancelled)")
        self._done.add(turn["id"])
        self.typed_turns.discard(turn["id"])
        self._shown = None

    def _part(self, shown: _Shown, place: int, part: Json) -> None:
        match part["kind"]:
            case "markdown" | "reasoning":
                self._stream(shown, place, part)
            case "toolCall":
                self._tool_call(shown, place, part["toolCall"])
            case "error":
                self._once(shown, place, f"error: {plain(part['error'].get('message'))}")
            case "systemNotification":
                self._once(shown, place, f"({plain(part.get('content'))})")
            case "contentRef":
                self._once(shown, place, f"[content] {part.get('uri')}")
            case "inputRequest" if "response" in part and part["response"] != "accept":
                self._once(shown, place, f"  -> {part['response']}")

    def _stream(self, shown: _Shown, place: int, part: Json) -> None:
        written = shown.texts.get(place, 0)
        text = part["content"][written:]
        if not text:
            return
        shown.texts[place] = len(part["content"])
        if self._streaming != (shown.turn_id, place):
            self._break()
            self._streaming = (shown.turn_id, place)
            if part["kind"] == "reasoning" and not self._styled:
                self._out("(thinking) ")
        text = printable(text)
        if part["kind"] == "reasoning" and self._styled:
            text = f"{_DIM}{text}{_PLAIN}"
            self._out(text, ends_line=text.endswith("\n" + _PLAIN))
        else:
            self._out(text)
        # The rest of the part goes on here, if nothing else is written in between.
        self._streaming = (shown.turn_id, place)

    def _tool_call(self, shown: _Shown, place: int, call: Json) -> None:
        status = call["status"]
        before = shown.said.get(place)
        if status in ("streaming", before) or status.startswith("pending-"):
            return
        shown.said[place] = status
        if before is None and call["toolCallId"] not in self.asked_calls:
            name = on_one_line(call["displayName"])
            self.line(f"[{name}] {on_one_line(plain(call.get('invocationMessage')))}")
        if status == "running":
            return
        if status == "completed":
            self.line(f"  -> {on_one_line(plain(call.get('pastTenseMessage')))}")
        elif status == "cancelled":
            self.line(f"  -> not run ({call.get('reason', 'cancelled')})")
        else:
            self.line(f"  -> {status}")

    def _once(self, shown: _Shown, place: int, text: str) -> None:
        if place not in shown.said:
            shown.said[place] = text
            self.line(text)

    # -- the cursor -------------------------------------------------------------------

    def _break(self) -> None:
        """Moves to the beginning of a line."""
        if not self._line_start:
            self._out("\n")
        self._streaming = None

    def _out(self, text: str, *, ends_line: bool | None = None) -> None:
        if text:
            self._write(text)
            self._prompted = None
            self._line_start = text.endswith("\n") if ends_line is None else ends_line
