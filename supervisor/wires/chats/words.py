"""Single words between the two wires: answers, decisions, times and paths.

Pure, and both ways where a client says something: what `chat.send`, `chat.approve`
and `chat.answer` mean in AHP's model, and how AHP's model shows on `/chats`.

Decisions, where the contracts leave them open:

- A choice is answered by its label, several with `, ` between them, yes and no as
  `Yes` and `No`, a number as JSON writes it. Text that is no choice is free text where
  the question takes any, and a fault where it does not.
- The rule that `allow-always` grants is the approving option that says `always`, else
  the second approving option; `allow` takes the first other one.
"""

import re
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote, unquote, urlsplit

from ....contracts.chats import AllowAlways, Question, QuestionChoice, is_blank
from ....contracts.chats.models import instant_ms

Json = dict[str, Any]

YES: Final = "Yes"
NO: Final = "No"
#: Between the labels of several choices.
AND: Final = ", "

_ALWAYS: Final = re.compile(r"always", re.IGNORECASE)
_NUMBER: Final = re.compile(r"-?\d{1,300}(?:\.\d{1,300})?(?:[eE][+-]?\d{1,3})?")


def milliseconds(instant: Any) -> float | None:
    """AHP's instant in milliseconds since the epoch; None for what is none."""
    ms = instant_ms(instant) if isinstance(instant, str) else None
    return None if ms is None else round(ms)


def prose(text: Any) -> str:
    """AHP's plain or markdown text as a text; empty for what is neither."""
    if isinstance(text, dict):
        text = text.get("markdown")
    return text if isinstance(text, str) else ""


def path_of(uri: Any) -> str:
    """The path a `file:` URI names; any other URI as it is, and empty for no text."""
    if not isinstance(uri, str):
        return ""
    try:
        parts = urlsplit(uri)
    except ValueError:
        return uri
    return unquote(parts.path) if parts.scheme == "file" else uri


def file_uri(path: str) -> str:
    """The `file:` URI of an absolute path."""
    return "file://" + quote(path)


# -- approvals ----------------------------------------------------------------------


def lasting_option(options: Any) -> Json | None:
    """The option that grants a rule beside the call itself, or None."""
    approving = _options_of(options, "approve")
    lasting = [one for one in approving if says_always(one)] or approving[1:]
    return lasting[0] if lasting else None


def says_always(option: Any) -> bool:
    """Whether an option, by its id or its label, is one that lasts."""
    if not isinstance(option, dict):
        return False
    return bool(_ALWAYS.search(prose(option.get("id")) + " " + prose(option.get("label"))))


def allow_always_of(options: Any) -> AllowAlways | None:
    """The rule as a card shows it."""
    option = lasting_option(options)
    return None if option is None else AllowAlways(label=prose(option["label"]), description="")


def confirmation_of(
    turn_id: str, call: Mapping[str, Any], decision: str, message: str | None = None
) -> Json | None:
    """The AHP action by which `chat.approve` answers a call that waits.

    None when it does not wait any more, or has no rule that `allow-always` could
    grant (`request-not-found`, `bad-request`: the caller looks which).

    Args:
        call: the tool call's state.
        decision: `allow`, `allow-always` or `deny`.
        message: a person's reason for a denial.
    """
    named = {"turnId": turn_id, "toolCallId": call.get("toolCallId")}
    approved = decision != "deny"
    match call.get("status"):
        case "pending-result-confirmation":
            if decision == "allow-always":
                return None
            return {"type": "chat/toolCallResultConfirmed", **named, "approved": approved}
        case "pending-confirmation":
            pass
        case _:
            return None
    lasting = lasting_option(call.get("options"))
    if decision == "allow-always":
        option = lasting
        if option is None:
            return None
    else:
        kind = "approve" if approved else "deny"
        others = [one for one in _options_of(call.get("options"), kind) if one is not lasting]
        option = others[0] if others else None
    chosen = {} if option is None else {"selectedOptionId": option["id"]}
    action: Json = {"type": "chat/toolCallConfirmed", **named, "approved": approved, **chosen}
    if approved:
        return {**action, "confirmed": "user-action"}
    reason = {} if message is None or is_blank(message) else {"reasonMessage": message}
    return {**action, "reason": "denied", **reason}


def _options_of(options: Any, kind: str) -> list[Json]:
    return [
        one
        for one in (options if isinstance(options, list) else ())
        if isinstance(one, dict) and one.get("kind") == kind and isinstance(one.get("id"), str)
        if isinstance(one.get("label"), str)
    ]


# -- questions ----------------------------------------------------------------------


def questions_of(request: Mapping[str, Any]) -> tuple[Question, ...]:
    """The questions of an input request; one made of its message where it has none."""
    asked = [one for one in _list_in(request, "questions") if isinstance(one, dict)]
    if not asked:
        text = AND.join(filter(None, (prose(request.get("message")), prose(request.get("url")))))
        ident = prose(request.get("id"))
        return (Question(id=ident, header="", question=text, choices=(), multi_select=False),)
    return tuple(map(_question_of, asked))


def _question_of(asked: Json) -> Question:
    kind = asked.get("kind")
    if kind == "boolean":
        choices = tuple(QuestionChoice(label=label, description="") for label in (YES, NO))
    else:
        choices = tuple(
            QuestionChoice(
                label=prose(option.get("label")), description=prose(option.get("description"))
            )
            for option in _options_in(asked)
        )
    return Question(
        id=prose(asked.get("id")),
        header=prose(asked.get("title")),
        question=prose(asked.get("message")),
        choices=choices,
        multi_select=kind == "multi-select",
    )


def texts_of(request: Mapping[str, Any]) -> dict[str, str]:
    """The answers given to an input request, as text by question id."""
    given = request.get("answers")
    asked = {prose(one.get("id")): one for one in _list_in(request, "questions")}
    texts = {}
    for ident, answer in given.items() if isinstance(given, dict) else ():
        if isinstance(answer, dict) and answer.get("state") != "skipped":
            texts[ident] = _text_of(answer.get("value"), asked.get(ident, {}))
    return texts


def _text_of(value: Any, asked: Mapping[str, Any]) -> str:
    if not isinstance(value, dict):
        return ""
    said, free = value.get("value"), value.get("freeformValues")
    labels = {option.get("id"): prose(option.get("label")) for option in _options_in(asked)}
    own = [one for one in free if isinstance(one, str)] if isinstance(free, list) else []
    match said:
        case bool():
            return YES if said else NO
        case int() | float():
            return f"{said:g}" if isinstance(said, float) else str(said)
        case str():
            chosen = labels.get(said, said)
            return AND.join(filter(None, (chosen, *own)))
        case list():
            chosen_all = [labels.get(one, one) for one in said if isinstance(one, str)]
            return AND.join([*chosen_all, *own])
        case _:
            return AND.join(own)


class AnswerFault(ValueError):
    """An answer does not fit its question; the message names it by its path."""


def answers_of(request: Mapping[str, Any], texts: Mapping[str, str]) -> Json:
    """AHP's answers of `chat.answer`, by question id.

    Questions that nobody answered are left out.

    Raises:
        AnswerFault: a question that was not asked, a number that is none, text where
            only the choices count.
    """
    asked = {prose(one.get("id")): one for one in _list_in(request, "questions")}
    if not asked:
        # The one question that `questions_of` makes of the request itself.
        asked = {prose(request.get("id")): {"kind": "text"}}
    answers = {}
    for ident, text in texts.items():
        if ident not in asked:
            raise AnswerFault(f"payload.answers.{ident}: there is no such question")
        value = _value_of(asked[ident], text)
        if isinstance(value, str):
            raise AnswerFault(f"payload.answers.{ident}: {value}")
        answers[ident] = {"state": "submitted", "value": value}
    return answers


def _value_of(asked: Mapping[str, Any], text: str) -> Json | str:
    """AHP's value of an answer, or what was expected instead."""
    match asked.get("kind"):
        case "boolean":
            if text.casefold() not in (YES.casefold(), NO.casefold(), "true", "false"):
                return f"expected {YES} or {NO}"
            return {"kind": "boolean", "value": text.casefold() in (YES.casefold(), "true")}
        case "number" | "integer" as kind:
            return _number_value(kind, text)
        case "single-select":
            return _selected(asked, text)
        case "multi-select":
            return _selected_many(asked, text)
        case _:
            return {"kind": "text", "value": text}


def _number_value(kind: str, text: str) -> Json | str:
    wrong = "expected a whole number" if kind == "integer" else "expected a number"
    if _NUMBER.fullmatch(text.strip()) is None:
        return wrong
    number = float(text)
    if number in (float("inf"), float("-inf")):
        return wrong
    whole = number.is_integer() and abs(number) < 2**53
    if kind == "integer" and not whole:
        return wrong
    return {"kind": "number", "value": int(number) if whole else number}


def _selected(asked: Mapping[str, Any], text: str) -> Json | str:
    by_label = _ids_by_label(asked)
    if text in by_label:
        return {"kind": "selected", "value": by_label[text]}
    if asked.get("allowFreeformInput") is not True:
        return "expected one of the choices"
    return {"kind": "selected", "value": "", "freeformValues": [text]}


def _selected_many(asked: Mapping[str, Any], text: str) -> Json | str:
    by_label = _ids_by_label(asked)
    chosen: list[str] = []
    own: list[str] = []
    # A label may itself hold what stands between labels: the longest one counts.
    labels = sorted(by_label, key=len, reverse=True)
    rest = text
    while rest:
        label = next((one for one in labels if rest == one or rest.startswith(one + AND)), None)
        if label is None:
            piece, _, rest = rest.partition(AND)
            own.append(piece)
        else:
            chosen.append(by_label[label])
            rest = rest[len(label) :].removeprefix(AND)
    if own and asked.get("allowFreeformInput") is not True:
        return "expected choices, with a comma and a space between them"
    return {"kind": "selected-many", "value": chosen, **({"freeformValues": own} if own else {})}


def _ids_by_label(asked: Mapping[str, Any]) -> dict[str, str]:
    options = reversed(_options_in(asked))
    return {
        prose(one.get("label")): prose(one.get("id")) for one in options if prose(one.get("label"))
    }


def _options_in(asked: Mapping[str, Any]) -> list[Json]:
    return [one for one in _list_in(asked, "options") if isinstance(one, dict)]


def _list_in(of: Mapping[str, Any], key: str) -> list[Any]:
    value = of.get(key)
    return value if isinstance(value, list) else []
