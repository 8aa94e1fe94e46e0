"""Answering what waits on a person: approve, answer, dismiss. The first answer wins.

A request that waits no more is `request-not-found`, whoever settled it; an answer that
does not fit a request which still waits is a `bad-request`, and it goes on waiting.
"""

from typing import TYPE_CHECKING, Any

from ....contracts.chats import (
    ChatAnswer,
    ChatApprove,
    ChatDismiss,
    ChatError,
    Empty,
    QuestionItem,
    Shape,
)
from ...sessions.chat import Chat
from ...sessions.parked import Parked, parked_in
from .answers import Answer, Later, Told
from .words import AnswerFault, answers_of, confirmation_of

if TYPE_CHECKING:
    from .connection import ChatsConnection

Json = dict[str, Any]


def approve(connection: "ChatsConnection", payload: ChatApprove) -> Answer:
    chat = connection.threads.chat(payload.chat_id)
    parked = _parked(chat, payload.request_id, "toolConfirmation")
    action = confirmation_of(parked.turn_id, parked.body, payload.decision, payload.message)
    if action is None:
        raise ChatError(
            "bad-request", "payload.decision: this request proposes no rule to allow always"
        )
    return _settle(connection, chat, parked, action)


def answer(connection: "ChatsConnection", payload: ChatAnswer) -> Answer:
    chat = connection.threads.chat(payload.chat_id)
    parked = _parked(chat, payload.request_id, "chatInput")
    try:
        answers = answers_of(parked.body, payload.answers)
    except AnswerFault as fault:
        raise ChatError("bad-request", str(fault)) from None
    completed: Json = {"type": "chat/inputCompleted", "requestId": parked.id}
    return _settle(
        connection, chat, parked, {**completed, "response": "accept", "answers": answers}
    )


def dismiss(connection: "ChatsConnection", payload: ChatDismiss) -> Answer:
    chat = connection.threads.chat(payload.chat_id)
    chat.flush()
    item = connection.threads.live(chat).item(payload.item_id)
    if not isinstance(item, QuestionItem) or item.async_ is not True:
        raise _gone(payload.item_id)
    parked = _parked(chat, item.request_id, "chatInput")
    completed: Json = {"type": "chat/inputCompleted", "requestId": parked.id}
    return _settle(connection, chat, parked, {**completed, "response": "decline"})


def _parked(chat: Chat, request_id: str, kind: str) -> Parked:
    """The request of that id that waits.

    Raises:
        ChatError: `request-not-found`.
    """
    for parked in parked_in(chat.state):
        if parked.id == request_id and parked.kind == kind:
            return parked
    raise _gone(request_id)


def _gone(ident: str) -> ChatError:
    return ChatError("request-not-found", f"Nothing waits under {ident[:200]!r} any more.")


def _settle(connection: "ChatsConnection", chat: Chat, parked: Parked, action: Json) -> Later:
    acting = connection.dispatch(chat, action)

    async def wait() -> Shape | Told:
        reason = await acting.refusal()
        if reason is None:
            return Empty()
        if any(one.id == parked.id for one in parked_in(chat.state)):
            raise ChatError("bad-request", f"payload: {reason}")
        raise _gone(parked.id)

    return Later(wait)
