"""A turn of AHP's model as items of `/chats`: which there are, and their words.

Pure. Decisions, where the contracts leave them open:

- A message of a person is a `user` item. A turn that somebody else began has
  `origin: agent` and the message's first line as its label; in a chat that a tool
  opened, the message is shown as well, for it is what the subagent was asked.
- `decline` shows as `dismissed`, so that dismissing is declining.
- An error part is a note of level `error`; one of type `interrupted` makes the turn
  `aborted` and the note a warning that begins as the contracts say.
- What a turn cost is `_meta.costUsd` of its usage, what stopped it `_meta.limit` of its
  error part: AHP has no member for either.
- A reference to content elsewhere is a note with its URI; a part of a kind that nobody
  knows yet is no item.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, Literal

from ....contracts.chats import (
    AssistantItem,
    ChatItem,
    NoteItem,
    QuestionItem,
    ShapeError,
    ThinkingItem,
    TurnItem,
    TurnLimit,
    UserItem,
    clip_text,
    not_resumed_note,
)
from ....contracts.chats.text import first_line
from ....contracts.shapes import structure
from .calls import call_items
from .messages import extras_of
from .places import Place, Sight, amount_in
from .words import prose, questions_of, texts_of

Json = dict[str, Any]

#: Of the line that says what a turn of the agent's own is about, in UTF-16 units.
LABEL_UNITS: Final = 80


def head_items(sight: Sight) -> tuple[ChatItem, ...]:
    """The turn's own item, and its message where a person wrote one."""
    message = sight.turn.get("message")
    message = message if isinstance(message, dict) else {}
    text = prose(message.get("text"))
    origin = message.get("origin")
    by_person = not isinstance(origin, dict) or origin.get("kind", "user") == "user"
    label = clip_text(first_line(text), LABEL_UNITS)
    turn = TurnItem(
        id=sight.turn_item_id,
        created_at=sight.started_ms,
        turn_id=sight.turn_id,
        state=_turn_state(sight),
        ended_at=sight.ended_ms,
        cost_usd=cost_of(sight.turn),
        origin=None if by_person else "agent",
        label=None if by_person or not label else label,
        limit=limit_of(sight.turn),
        checkpoint=sight.extras.checkpoint,
        checkpoint_diff=sight.extras.checkpoint_diff,
        checkpoint_after=sight.extras.checkpoint_after,
        attempt=sight.extras.attempt,
    )
    if not (by_person or sight.opened_by_tool):
        return (turn,)
    extras = extras_of(message, sight.turn_id)
    said = UserItem(
        id=sight.item_id("user", 0),
        created_at=sight.started_ms,
        turn_id=sight.turn_id,
        text=text,
        mentions=extras.mentions,
        skills=extras.skills,
        chats=extras.chats,
        attachments=extras.attachments,
    )
    return (turn, said)


def _turn_state(sight: Sight) -> Literal["running", "done", "aborted", "error"]:
    if sight.running:
        return "running"
    match sight.turn.get("state"):
        case "cancelled":
            return "aborted"
        case "error":
            return "aborted" if _is_interrupted(last_error(sight.turn)) else "error"
        case _:
            return "done"


def last_error(turn: Mapping[str, Any]) -> Json | None:
    """The error part that ended a turn, or None."""
    parts = turn.get("responseParts")
    last = parts[-1] if isinstance(parts, list) and parts else None
    return last if isinstance(last, dict) and last.get("kind") == "error" else None


def usage_in(turn: Mapping[str, Any]) -> Mapping[str, Any]:
    """The usage an agent told of a turn; empty when it told none."""
    usage = turn.get("usage")
    return usage if isinstance(usage, dict) else {}


def cost_of(turn: Mapping[str, Any]) -> float:
    """What a turn cost in dollars, as the agent said; 0 where it did not."""
    meta = usage_in(turn).get("_meta")
    return (amount_in(meta.get("costUsd")) if isinstance(meta, dict) else None) or 0


def limit_of(turn: Mapping[str, Any]) -> TurnLimit | None:
    """The limit that a turn stopped on, or None."""
    error = last_error(turn)
    meta = None if error is None or turn.get("state") != "error" else error.get("_meta")
    try:
        return structure(meta["limit"], TurnLimit) if isinstance(meta, dict) else None
    except (KeyError, ShapeError):
        return None


# -- parts --------------------------------------------------------------------------


def part_items(part: Any, place: Place) -> tuple[ChatItem, ...]:
    """The items of one part; none for a kind this wire has no word for."""
    make = _BY_KIND.get(prose(part.get("kind"))) if isinstance(part, dict) else None
    return () if make is None else make(part, place)


def _assistant(part: Json, place: Place) -> tuple[ChatItem, ...]:
    ident = place.item_id("text")
    return (
        AssistantItem(
            id=ident,
            created_at=place.created_at(ident),
            turn_id=place.sight.turn_id,
            text=prose(part.get("content")),
            streaming=place.is_open,
        ),
    )


def _thinking(part: Json, place: Place) -> tuple[ChatItem, ...]:
    ident = place.item_id("thinking")
    held = place.held.get(ident)
    before = held.ended_at if isinstance(held, ThinkingItem) else None
    sight = place.sight
    if place.is_open:
        ended = None
    elif before is not None:
        ended = before
    else:
        ended = sight.now_ms if sight.at_ms is not None or sight.running else sight.ended_ms
    return (
        ThinkingItem(
            id=ident,
            created_at=place.created_at(ident),
            turn_id=sight.turn_id,
            text=prose(part.get("content")),
            streaming=place.is_open,
            ended_at=ended,
        ),
    )


def _note(part: Json, place: Place) -> tuple[ChatItem, ...]:
    return (_noted("info", prose(part.get("content")), place),)


def _reference(part: Json, place: Place) -> tuple[ChatItem, ...]:
    return (_noted("info", prose(part.get("uri")), place),)


def _error(part: Json, place: Place) -> tuple[ChatItem, ...]:
    error = part.get("error")
    said = prose(error.get("message")) if isinstance(error, dict) else ""
    if _is_interrupted(part):
        return (_noted("warning", not_resumed_note(said), place),)
    return (_noted("error", said, place),)


def _is_interrupted(part: Json | None) -> bool:
    error = None if part is None else part.get("error")
    return isinstance(error, dict) and error.get("errorType") == "interrupted"


def _noted(level: Literal["info", "warning", "error"], text: str, place: Place) -> NoteItem:
    ident = place.item_id("note")
    return NoteItem(
        id=ident,
        created_at=place.created_at(ident),
        turn_id=place.sight.turn_id,
        level=level,
        text=text,
    )


def _question(part: Json, place: Place) -> tuple[ChatItem, ...]:
    request = part.get("request")
    if not isinstance(request, dict):
        return ()
    ident = place.item_id("question")
    state: Literal["pending", "answered", "cancelled", "dismissed"]
    match part.get("response"):
        case "accept":
            state = "answered"
        case "decline":
            state = "dismissed"
        case None if place.sight.running:
            state = "pending"
        case _:
            state = "cancelled"
    meta = request.get("_meta")
    runs_on = isinstance(meta, dict) and meta.get("async") is True
    return (
        QuestionItem(
            id=ident,
            created_at=place.created_at(ident),
            turn_id=place.sight.turn_id,
            request_id=prose(request.get("id")),
            questions=questions_of(request),
            answers=texts_of(request) if state == "answered" else None,
            state=state,
            async_=True if runs_on else None,
        ),
    )


_BY_KIND: Final[Mapping[str, Callable[[Json, Place], tuple[ChatItem, ...]]]] = {
    "markdown": _assistant,
    "reasoning": _thinking,
    "toolCall": call_items,
    "inputRequest": _question,
    "systemNotification": _note,
    "contentRef": _reference,
    "error": _error,
}
