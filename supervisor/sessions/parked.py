"""Parked requests: the approvals and questions of a chat that wait on a person.

They are read out of the chat's state, never kept beside it: the reducer's view
is what every client sees, so what is parked here and what a client shows as
open can never disagree. The worker holds the waiting code; this is the record,
and it can be settled at any moment without asking the worker.
"""

from collections.abc import Iterator
from typing import Any

from attrs import frozen

Json = dict[str, Any]

#: What a tool call waits in: for leave to run, or for leave to use its result.
CONFIRMATION_STATUSES = ("pending-confirmation", "pending-result-confirmation")


@frozen(kw_only=True)
class Parked:
    """One request that waits on a person."""

    kind: str
    """`toolConfirmation` or `chatInput`, as `SessionState.inputNeeded` names them."""
    id: str
    """The tool call's id or the request's id: unique in its chat."""
    turn_id: str
    body: Json
    """The tool call's state, or the input request."""

    @property
    def waits_on(self) -> str:
        """For a person reading a list: what is asked, in a few words."""
        if self.kind == "chatInput":
            return _plain(self.body.get("message")) or "a question"
        named = _plain(self.body.get("confirmationTitle")) or _plain(
            self.body.get("invocationMessage")
        )
        return named or f"approval of {self.body.get('displayName', 'a tool call')}"


def parked_in(chat_state: Json) -> list[Parked]:
    """Everything that waits on a person in this chat, oldest first."""
    turn = chat_state.get("activeTurn")
    return list(_parked_parts(turn)) if isinstance(turn, dict) else []


def _parked_parts(turn: Json) -> Iterator[Parked]:
    turn_id = str(turn["id"])
    for part in turn["responseParts"]:
        if part.get("kind") == "toolCall":
            call = part["toolCall"]
            if call.get("status") in CONFIRMATION_STATUSES:
                yield Parked(
                    kind="toolConfirmation", id=call["toolCallId"], turn_id=turn_id, body=call
                )
        elif part.get("kind") == "inputRequest" and "response" not in part:
            request = part["request"]
            yield Parked(kind="chatInput", id=request["id"], turn_id=turn_id, body=request)


def settling(parked: Parked) -> Json:
    """The action that answers a parked request as cancelled, the same words everywhere."""
    if parked.kind == "chatInput":
        return {"type": "chat/inputCompleted", "requestId": parked.id, "response": "cancel"}
    action: Json = {"turnId": parked.turn_id, "toolCallId": parked.id, "approved": False}
    if parked.body["status"] == "pending-result-confirmation":
        return {"type": "chat/toolCallResultConfirmed", **action}
    return {"type": "chat/toolCallConfirmed", **action, "reason": "skipped"}


def input_needed(parked: Parked, chat_uri: str) -> Json:
    """The entry of `SessionState.inputNeeded` that mirrors a parked request."""
    entry: Json = {"id": f"{chat_uri}#{parked.id}", "chat": chat_uri, "kind": parked.kind}
    if parked.kind == "chatInput":
        return {**entry, "request": parked.body}
    return {**entry, "turnId": parked.turn_id, "toolCall": parked.body}


def _plain(text: Any) -> str:
    if isinstance(text, dict):
        text = text.get("markdown")
    return text if isinstance(text, str) else ""
