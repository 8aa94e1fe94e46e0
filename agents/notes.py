"""Notes: keeps notes in a folder, asks before it writes. On the bare contract, with tools.

    write todo buy milk     waits to be allowed
    read todo               is not asked for, nor is `read todo shopping`
    read                    asks which

What waits on a person is held in a map by id, since two calls can wait at once.
"""

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import trio

from ..contracts.authoring import Agent, Session, Start
from .notes_folder import NoteError, NotesFolder, is_name

ASK = {
    "writes": "Reading is free, writing waits to be allowed",
    "always": "Reading waits to be allowed as well",
    "never": "Nothing waits",
}

HELP = (
    "I keep notes: `write <name> <text>` writes one, `read <name>` reads one. "
    "A name is made of letters, digits, `.`, `_` and `-`."
)
NO_FOLDER = (
    "I have no folder to keep notes in: start me in one, or set the option `folder` of this agent."
)

#: How many notes one message reads at most, and how many a question offers.
MAX_READ = 20
MAX_OFFERED = 50

#: Of a title made from the first message, in characters.
MAX_TITLE = 60


def create(folder: str | None = None) -> Agent:
    """The factory.

    Args:
        folder: where the notes are; without it, the session's working folder.
    """
    # A relative folder is one beside where the host was started, not the session's.
    return Notes(None if folder is None else os.path.abspath(os.path.expanduser(folder)))


class Notes:
    """The agent: what it is, and how a session is started."""

    provider = "notes"
    display_name = "Notes"
    description = "Keeps notes in a folder: `write <name> <text>`, `read <name>`."

    def __init__(self, folder: str | None) -> None:
        self._folder = folder

    def schema(self) -> dict[str, Any]:
        return {
            "type": "object",
            "properties": {
                "ask": {
                    "type": "string",
                    "title": "Ask before",
                    "description": "What waits to be allowed",
                    "enum": list(ASK),
                    "enumLabels": [name.capitalize() for name in ASK],
                    "enumDescriptions": list(ASK.values()),
                    "default": "writes",
                    "sessionMutable": True,
                }
            },
        }

    def defaults(self) -> dict[str, Any]:
        return {"ask": "writes"}

    def create(self, start: Start) -> Session:
        return NotesSession(start, self._folder or start.working_directory)


@dataclass(eq=False)
class _Parked:
    """An approval or a question that waits on a person. `answer` None: settled without one."""

    turn_id: str
    answer: Any = None
    settled: trio.Event = field(default_factory=trio.Event)

    def settle(self, answer: Any = None) -> None:
        self.answer = answer
        self.settled.set()


@dataclass
class _Call:
    """A tool call on its way: what it does once allowed, and what it says of itself after."""

    id: str
    name: str
    run: Callable[[], str]
    done: str


class NotesSession:
    """One chat. Its `begin` is the turn, so ending it is the worker's."""

    def __init__(self, start: Start, folder: str | None) -> None:
        self._emit = start.emit
        self._agent_id = start.resume or f"notes:{start.chat_id}"
        self._folder = None if folder is None else NotesFolder(folder)
        asked = start.settings.get("ask", "writes")
        self._ask = asked if isinstance(asked, str) and asked in ASK else "writes"
        self._parked: dict[str, _Parked] = {}
        self._titled = start.resume is not None or bool(start.seed)
        self._ids = 0

    # -- what the host asks -----------------------------------------------------------

    def agent_id(self) -> str:
        return self._agent_id

    def settings(self) -> dict[str, Any]:
        return {"ask": self._ask}

    def set_config(self, key: str, value: Any) -> str | None:
        if key != "ask":
            return f"notes has no setting {key!r}"
        if not isinstance(value, str) or value not in ASK:
            return f"`ask` is one of {', '.join(ASK)}, not {value!r}"
        self._ask = value
        return None

    def confirm(self, tool_call_id: str, approved: bool, option_id: str | None = None) -> bool:
        return self._settle(tool_call_id, approved)

    def answer(self, request_id: str, accepted: bool, answers: Mapping[str, Any]) -> bool:
        return self._settle(request_id, answers if accepted else None)

    def cancel(self, turn_id: str) -> bool:
        self._settle_all(turn_id)
        return True

    def close(self, removing: bool = False) -> None:
        self._settle_all(None)

    # -- the turn ---------------------------------------------------------------------

    async def begin(self, turn_id: str, text: str, model: str | None = None) -> None:
        if not self._titled and text.strip():
            self._titled = True
            title = " ".join(text.split())[:MAX_TITLE]
            self._emit("session", {"type": "session/titleChanged", "title": title})
        if self._folder is None:
            self._say(turn_id, NO_FOLDER)
            return
        command, _, rest = text.strip().partition(" ")
        match command.casefold():
            case "read":
                await self._read(turn_id, self._folder, rest.split())
            case "write":
                name, _, note = rest.strip().partition(" ")
                await self._write(turn_id, self._folder, name, note.strip())
            case _:
                self._say(turn_id, HELP)

    async def _read(self, turn_id: str, folder: NotesFolder, names: list[str]) -> None:
        if not names:
            asked = await self._ask_for(
                turn_id, folder, "Which note shall I read?", with_text=False
            )
            if asked is None:
                self._say(turn_id, "Then I read nothing.")
                return
            names = [asked["name"]]
        if len(names) > MAX_READ:
            self._say(turn_id, f"I read at most {MAX_READ} notes at a time.")
            return
        if not self._are_names(turn_id, names):
            return
        # All of them ask before the first is answered.
        calls = [
            self._open(
                turn_id,
                tool="read_note",
                title="Read note",
                message=f"Read the note {name}",
                tool_input={"name": name},
                asks=self._ask == "always",
                call=_Call(self._new_id(turn_id), name, partial(folder.read, name), f"Read {name}"),
            )
            for name in names
        ]
        texts: dict[str, str | None] = {}

        async def run(call: _Call) -> None:
            texts[call.id] = await self._run(turn_id, call)

        async with trio.open_nursery() as nursery:
            for call in calls:
                nursery.start_soon(run, call)
        for call in calls:
            found = texts[call.id]
            if found is not None:
                self._say(turn_id, found if len(calls) == 1 else f"{call.name}:\n\n{found}")

    async def _write(self, turn_id: str, folder: NotesFolder, name: str, text: str) -> None:
        if not name or not text:
            what = "What shall I write, and where?" if not name else f"What shall {name} say?"
            if name and not self._are_names(turn_id, [name]):
                return
            asked = await self._ask_for(turn_id, folder, what, with_text=True, name=name)
            if asked is None:
                self._say(turn_id, "Then I write nothing.")
                return
            name, text = asked["name"], asked["text"]
        if not self._are_names(turn_id, [name]):
            return
        call = self._open(
            turn_id,
            tool="write_note",
            title="Write note",
            message=f"Write the note {name}",
            tool_input={"name": name, "text": text},
            asks=self._ask != "never",
            call=_Call(
                self._new_id(turn_id), name, partial(folder.write, name, text), f"Wrote {name}"
            ),
        )
        said = await self._run(turn_id, call)
        if said is not None:
            self._say(turn_id, said)

    def _are_names(self, turn_id: str, names: list[str]) -> bool:
        wrong = [name for name in names if not is_name(name)]
        if wrong:
            named = ", ".join(repr(name) for name in wrong)
            self._say(turn_id, f"That is no name for a note: {named}. {HELP}")
        return not wrong

    # -- a tool call ------------------------------------------------------------------

    def _open(
        self,
        turn_id: str,
        *,
        tool: str,
        title: str,
        message: str,
        tool_input: dict[str, str],
        asks: bool,
        call: _Call,
    ) -> _Call:
        """Announces the call; from then on it waits to be allowed, or runs."""
        of_call = {"turnId": turn_id, "toolCallId": call.id}
        start = {"type": "chat/toolCallStart", "toolName": tool, "displayName": title}
        self._emit("chat", {**start, **of_call})
        ready = {
            "type": "chat/toolCallReady",
            "invocationMessage": message,
            "toolInput": json.dumps(tool_input, ensure_ascii=False),
        }
        if asks:
            ready["confirmationTitle"] = f"{message}?"
            # Before it is said: the answer can come from then on.
            self._parked[call.id] = _Parked(turn_id)
        else:
            ready["confirmed"] = "not-needed"
        self._emit("chat", {**ready, **of_call})
        return call

    async def _run(self, turn_id: str, call: _Call) -> str | None:
        """What the call says once it ran; None when it was not allowed, or failed."""
        if call.id in self._parked and not await self._wait(call.id):
            self._say(turn_id, f"Not allowed: {call.name} is left as it is.")
            return None
        try:
            text = await trio.to_thread.run_sync(call.run)
        except NoteError as error:
            result = {
                "success": False,
                "pastTenseMessage": f"Could not: {error}",
                "error": {"message": str(error)},
            }
            self._complete(turn_id, call, result)
            self._say(turn_id, f"{error}.")
            return None
        content = [{"type": "text", "text": text}]
        self._complete(
            turn_id, call, {"success": True, "pastTenseMessage": call.done, "content": content}
        )
        return text

    def _complete(self, turn_id: str, call: _Call, result: dict[str, Any]) -> None:
        action = {"type": "chat/toolCallComplete", "turnId": turn_id, "toolCallId": call.id}
        self._emit("chat", {**action, "result": result})

    # -- a question -------------------------------------------------------------------

    async def _ask_for(
        self, turn_id: str, folder: NotesFolder, message: str, *, with_text: bool, name: str = ""
    ) -> dict[str, str] | None:
        """Asks for what a command lacks; None when the person declined, or left it empty."""
        ident = self._new_id(turn_id)
        questions: list[dict[str, Any]] = []
        if not name:
            names = await trio.to_thread.run_sync(folder.names)
            questions.append(
                {
                    "id": "name",
                    "kind": "single-select",
                    "title": "Note",
                    "message": "The note's name",
                    "required": True,
                    "options": [{"id": one, "label": one} for one in names[:MAX_OFFERED]],
                    "allowFreeformInput": True,
                }
            )
        if with_text:
            text = {"id": "text", "kind": "text", "title": "Text", "message": "What it says"}
            questions.append({**text, "required": True})
        self._parked[ident] = _Parked(turn_id)
        request = {"id": ident, "message": message, "questions": questions}
        self._emit("chat", {"type": "chat/inputRequested", "request": request})
        answers = await self._wait(ident)
        if not isinstance(answers, Mapping):
            return None
        given = {"name": name or _answered(answers.get("name"))}
        if with_text:
            given["text"] = _answered(answers.get("text"))
        return given if all(given.values()) else None

    # -- waiting on a person ----------------------------------------------------------

    async def _wait(self, ident: str) -> Any:
        parked = self._parked[ident]
        try:
            await parked.settled.wait()
        finally:
            self._parked.pop(ident, None)
        return parked.answer

    def _settle(self, ident: str, answer: Any) -> bool:
        parked = self._parked.get(ident)
        if parked is None or parked.settled.is_set():
            return False
        parked.settle(answer)
        return True

    def _settle_all(self, turn_id: str | None) -> None:
        for parked in list(self._parked.values()):
            if turn_id is None or parked.turn_id == turn_id:
                parked.settle()

    def _say(self, turn_id: str, text: str) -> None:
        part = {"kind": "markdown", "id": self._new_id(turn_id), "content": text}
        self._emit("chat", {"type": "chat/responsePart", "turnId": turn_id, "part": part})

    def _new_id(self, turn_id: str) -> str:
        """An id that is unique in the chat, since the turn's is."""
        self._ids += 1
        return f"{turn_id}-{self._ids}"


def _answered(answer: Any) -> str:
    """The text of one AHP `ChatInputAnswer`; empty when it has none."""
    if not isinstance(answer, Mapping) or answer.get("state") != "submitted":
        return ""
    value = answer.get("value")
    if not isinstance(value, Mapping):
        return ""
    free = value.get("freeformValues")
    if isinstance(free, list) and free and isinstance(free[0], str) and free[0].strip():
        return free[0].strip()
    chosen = value.get("value")
    return chosen.strip() if isinstance(chosen, str) else ""
