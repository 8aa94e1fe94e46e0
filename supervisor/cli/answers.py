"""What a person is asked in a terminal, and what a typed line says to it. No I/O.

An `Asking` is one parked request: it says what to show, takes lines, and in the
end is the action that answers. Source: AHP's tool call confirmations and chat
input requests.
"""

from abc import ABC, abstractmethod
from typing import Any

from .output import on_one_line, printable

Json = dict[str, Any]

YES = frozenset({"y", "yes"})
NO = frozenset({"n", "no"})

#: What answers a whole request with "I will not".
DECLINE = "/decline"

#: How much of a tool's input is shown, in characters.
MAX_INPUT_CHARS = 2000


class NotAnAnswer(Exception):
    """The line does not answer what was asked; the message says what would."""


class Asking(ABC):
    """One request that waits on a person.

    Attributes:
        id: the tool call's or the request's.
    """

    id: str

    @property
    @abstractmethod
    def text(self) -> str:
        """What is shown once, before the first prompt; lines without a last newline."""

    @property
    @abstractmethod
    def prompt(self) -> str:
        """What stands before the cursor."""

    @abstractmethod
    def take(self, line: str) -> Json | None:
        """The action that answers, or None when there is more to ask.

        Raises:
            NotAnAnswer: the line says nothing to this.
        """


class Approval(Asking):
    """A tool call that waits to be allowed, or whose result waits to be used."""

    def __init__(self, turn_id: str, call: Json) -> None:
        self.id = call["toolCallId"]
        self._turn_id = turn_id
        self._call = call
        self._options: list[Json] = call.get("options") or []

    @property
    def is_result(self) -> bool:
        """Whether it is the result that waits."""
        return bool(self._call["status"] == "pending-result-confirmation")

    @property
    def text(self) -> str:
        call = self._call
        asked = plain(call.get("confirmationTitle")) or plain(call.get("invocationMessage"))
        if self.is_result:
            asked = plain(call.get("pastTenseMessage")) or asked
        lines = [f"[{on_one_line(call['displayName'])}] {printable(asked)}"]
        given = call.get("toolInput")
        if isinstance(given, str) and given and not self.is_result:
            lines += ["  " + line for line in _cut(given).split("\n")]
        lines += [
            f"  {number}) {on_one_line(option['label'])}"
            for number, option in enumerate(self._options, 1)
        ]
        return "\n".join(lines)

    @property
    def prompt(self) -> str:
        asked = "use its result?" if self.is_result else "allow it?"
        numbers = f", or 1 to {len(self._options)}" if self._options else ""
        return f"{asked} (y/n{numbers}) "

    def take(self, line: str) -> Json | None:
        word = line.strip().casefold()
        if word.isdecimal() and 1 <= int(word) <= len(self._options):
            option = self._options[int(word) - 1]
            return self._answer(option.get("kind") == "approve", option["id"])
        if word in YES | NO:
            return self._answer(word in YES, None)
        raise NotAnAnswer("Please answer y or n" + (", or a number." if self._options else "."))

    def _answer(self, approved: bool, option_id: str | None) -> Json:
        action: Json = {"turnId": self._turn_id, "toolCallId": self.id, "approved": approved}
        if self.is_result:
            return {"type": "chat/toolCallResultConfirmed", **action}
        if option_id is not None:
            action["selectedOptionId"] = option_id
        said = {"confirmed": "user-action"} if approved else {"reason": "denied"}
        return {"type": "chat/toolCallConfirmed", **action, **said}


class Questions(Asking):
    """An input request: its questions one after the other, or a yes or no where it has none."""

    def __init__(self, request: Json) -> None:
        self.id = request["id"]
        self._request = request
        self._questions: list[Json] = request.get("questions") or []
        self._answers: Json = {}
        self._next = 0

    @property
    def text(self) -> str:
        request = self._request
        lines = [printable(request["message"])] if request.get("message") else []
        if request.get("url"):
            lines.append(f"  {on_one_line(request['url'])}")
        return "\n".join(lines)

    @property
    def prompt(self) -> str:
        if not self._questions:
            return "go on? (y/n) "
        question = self._questions[self._next]
        lines = []
        options = question.get("options") or []
        for number, option in enumerate(options, 1):
            more = f": {on_one_line(option['description'])}" if option.get("description") else ""
            lines.append(f"  {number}) {on_one_line(option['label'])}{more}")
        asked = on_one_line(question.get("message") or question.get("title") or "Your answer")
        return "\n".join([*lines, f"{asked} ({_hint(question)}) "])

    def take(self, line: str) -> Json | None:
        word = line.strip()
        if word.casefold() == DECLINE:
            return self._completed("decline")
        if not self._questions:
            if word.casefold() not in YES | NO:
                raise NotAnAnswer("Please answer y or n.")
            return self._completed("accept" if word.casefold() in YES else "decline")
        question = self._questions[self._next]
        self._answers[question["id"]] = _answer(question, word)
        self._next += 1
        return self._completed("accept") if self._next == len(self._questions) else None

    def _completed(self, response: str) -> Json:
        action: Json = {
            "type": "chat/inputCompleted",
            "requestId": self.id,
            "response": response,
        }
        return {**action, "answers": self._answers} if response == "accept" else action


def plain(text: Any) -> str:
    """AHP's `StringOrMarkdown` as a string; empty for anything else."""
    if isinstance(text, dict):
        text = text.get("markdown")
    return text if isinstance(text, str) else ""


def _cut(text: str) -> str:
    return printable(text if len(text) <= MAX_INPUT_CHARS else text[:MAX_INPUT_CHARS] + " …")


def _hint(question: Json) -> str:
    kind = question["kind"]
    said = {
        "boolean": "y/n",
        "number": "a number",
        "integer": "a whole number",
        "single-select": "its number",
        "multi-select": "their numbers, with commas between",
    }.get(kind, "text")
    if question.get("allowFreeformInput") and kind in ("single-select", "multi-select"):
        said += ", or your own words"
    if "defaultValue" in question:
        return f"{said}; nothing for {on_one_line(str(question['defaultValue']), 40)}"
    return said if question.get("required") else f"{said}; nothing to skip it"


def _answer(question: Json, word: str) -> Json:
    """AHP's answer to one question, from a typed line."""
    kind = question["kind"]
    if not word:
        if "defaultValue" in question:
            return _submitted(_default_kind(kind), question["defaultValue"])
        if question.get("required"):
            raise NotAnAnswer(f"This needs an answer; {DECLINE} refuses it as a whole.")
        return {"state": "skipped"}
    match kind:
        case "boolean":
            if word.casefold() not in YES | NO:
                raise NotAnAnswer("Please answer y or n.")
            return _submitted("boolean", word.casefold() in YES)
        case "number" | "integer":
            return _submitted("number", _number(question, word))
        case "single-select":
            return _selected(question, word)
        case "multi-select":
            return _selected_many(question, word)
        case _:
            _check_range(question, len(word), "characters")
            return _submitted("text", word)


def _submitted(kind: str, value: Any, **more: Any) -> Json:
    return {"state": "submitted", "value": {"kind": kind, "value": value, **more}}


def _default_kind(kind: str) -> str:
    return {"integer": "number"}.get(kind, kind)


def _number(question: Json, word: str) -> int | float:
    try:
        value = int(word) if question["kind"] == "integer" else float(word)
    except ValueError:
        raise NotAnAnswer("Please answer with a number.") from None
    if value != value or value in (float("inf"), float("-inf")):
        raise NotAnAnswer("Please answer with a number.")
    _check_range(question, value, "")
    return value


def _check_range(question: Json, value: float, unit: str) -> None:
    least, most = question.get("min"), question.get("max")
    if least is not None and value < least:
        raise NotAnAnswer(f"At least {least:g} {unit}".rstrip() + ", please.")
    if most is not None and value > most:
        raise NotAnAnswer(f"At most {most:g} {unit}".rstrip() + ", please.")


def _option(question: Json, word: str) -> str | None:
    """The id of the option that a number, an id or a label names."""
    options = question.get("options") or []
    for option in options:
        if word in (option["id"], option["label"]):
            return str(option["id"])
    if word.isdecimal() and 1 <= int(word) <= len(options):
        return str(options[int(word) - 1]["id"])
    return None


def _selected(question: Json, word: str) -> Json:
    chosen = _option(question, word)
    if chosen is not None:
        return _submitted("selected", chosen)
    if question.get("allowFreeformInput"):
        return _submitted("selected", "", freeformValues=[word])
    raise NotAnAnswer(f"Please choose 1 to {len(question.get('options') or [])}.")


def _selected_many(question: Json, word: str) -> Json:
    words = [one.strip() for one in word.split(",") if one.strip()]
    found = [(one, _option(question, one)) for one in words]
    chosen = list(dict.fromkeys(id for _, id in found if id is not None))
    own = [one for one, id in found if id is None]
    if own and not question.get("allowFreeformInput"):
        raise NotAnAnswer(f"There is no {own[0]!r} to choose.")
    _check_range(question, len(chosen) + len(own), "choices")
    return _submitted("selected-many", chosen, **({"freeformValues": own} if own else {}))
