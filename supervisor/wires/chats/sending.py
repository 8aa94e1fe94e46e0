"""Messages on their way in: send, steer, unqueue, send now, cancel, compact, clear, kill.

Decisions, where the contracts leave them open:

- A chat that cannot take a message (its session failed, its queue is full, the host
  stops) answers `chat-busy` with the reason, or `chat-unsupported` where it never will.
- `chat.cancel` without a turn answers that it is so.
- What was steered and not taken waits before the queue; while it waits, what is steered
  next is queued, since AHP has one place for it.
- An agent offers compaction as a command `compact`: then the request is its message.
"""

from typing import TYPE_CHECKING, Any
from uuid import uuid4

import trio
from attrs import evolve

from ....contracts.chats import (
    ChatCancel,
    ChatClear,
    ChatError,
    ChatQueue,
    ChatSend,
    ChatSendResult,
    ChatTarget,
    ChatUnqueueResult,
    Empty,
)
from ...sessions.chat import Chat
from ...sessions.clock import now, unix_ms
from ...sessions.turns import Happening
from .answers import Answer, Later, Told
from .attaching import drop_uploads, keep_uploads
from .facts import BOOKMARKS, SPENT_USD, TURNS_BEFORE, commands_of, own_of, selection_of
from .items import cost_of
from .memory import waiting_in
from .messages import Extras, message_of

if TYPE_CHECKING:
    from .connection import ChatsConnection

Json = dict[str, Any]

#: The command by which an agent folds its context.
COMPACT = "compact"


def send(connection: "ChatsConnection", payload: ChatSend) -> Answer:
    chat = _writable(connection, payload.chat_id)
    extras = Extras(
        created_at=unix_ms(),
        turn_id=str(uuid4()),
        mentions=payload.mentions or None,
        skills=payload.skills or None,
        chats=payload.chats or None,
    )
    if not payload.attachments:
        return _send(connection, chat, payload, extras)
    uploads = payload.attachments

    async def wait() -> Any:
        kept = await keep_uploads(connection.host.state_dir, chat.id, uploads)
        if connection.host.chats.get(chat.id) is not chat:
            raise ChatError("chat-not-found", f"There is no chat {chat.id[:200]!r}.")
        return await _send(connection, chat, payload, evolve(extras, attachments=kept)).wait()

    return Later(wait, holds=True)


def _writable(connection: "ChatsConnection", chat_id: str) -> Chat:
    chat = connection.threads.chat(chat_id)
    if chat.parent is not None:
        raise ChatError("chat-unsupported", "This chat is a subagent's: it is read-only.")
    if chat.session.failed:
        error = chat.session.channel.state.get("creationError") or {}
        reason = error.get("message") or "the session could not be created"
        raise ChatError("chat-unsupported", f"This chat could not be started: {reason}")
    return chat


def _send(connection: "ChatsConnection", chat: Chat, payload: ChatSend, extras: Extras) -> Later:
    chat.flush()
    message = _message(chat, payload.text, extras)
    if chat.turn_id is None and not waiting_in(chat.state):
        return _begin(connection, chat, message, str(extras.turn_id))
    steers = payload.delivery == "steer" and not payload.text.startswith("/")
    if steers and chat.turn_id is not None and _can_steer(chat):
        return _steer(connection, chat, message, extras)
    return _enqueue(connection, chat, message, extras)


def _message(chat: Chat, text: str, extras: Extras) -> Json:
    message = message_of(text, extras)
    selection = selection_of(chat.beside)
    if selection is None:
        return message
    model: Json = {"id": selection.model}
    if selection.options:
        model["config"] = dict(selection.options)
    return {**message, "model": model}


def _begin(connection: "ChatsConnection", chat: Chat, message: Json, turn_id: str) -> Later:
    started = {"type": "chat/turnStarted", "turnId": turn_id, "startedAt": now()}
    acting = connection.dispatch(chat, {**started, "message": message})

    async def wait() -> Any:
        reason = await acting.refusal()
        if reason is not None:
            raise ChatError("chat-busy", reason)
        return ChatSendResult(queued=False, turn_id=turn_id)

    return Later(wait)


def _enqueue(connection: "ChatsConnection", chat: Chat, message: Json, extras: Extras) -> Later:
    queued = {"type": "chat/pendingMessageSet", "kind": "queued", "id": str(uuid4())}
    acting = connection.dispatch(chat, {**queued, "message": message})

    async def wait() -> Any:
        reason = await acting.refusal()
        if reason is not None:
            raise ChatError("chat-busy", reason)
        return ChatSendResult(queued=True, turn_id=extras.turn_id)

    return Later(wait)


def _can_steer(chat: Chat) -> bool:
    worker = chat.worker
    takes = worker is not None and "steer" in worker.members
    return takes and "steeringMessage" not in chat.state


def _steer(connection: "ChatsConnection", chat: Chat, message: Json, extras: Extras) -> Later:
    """Offers the message to the running turn; the agent's word decides what is answered."""
    ident, turn_id, heard = str(uuid4()), chat.turn_id, trio.Event()
    taken: list[bool] = []

    def then(accepted: bool) -> None:
        taken.append(accepted)
        heard.set()

    forget = chat.when_steered(ident, then)
    steering = {"type": "chat/pendingMessageSet", "kind": "steering", "id": ident}
    acting = connection.dispatch(chat, {**steering, "message": message})

    async def wait() -> Any:
        try:
            if await acting.refusal() is not None:
                # The turn ended meanwhile, or the agent's process did.
                return await _send_queued(connection, chat, message, extras)
            await heard.wait()
        finally:
            forget()
        if taken[0]:
            return ChatSendResult(queued=False, turn_id=turn_id)
        return ChatSendResult(queued=True, turn_id=extras.turn_id)

    return Later(wait)


async def _send_queued(
    connection: "ChatsConnection", chat: Chat, message: Json, extras: Extras
) -> Any:
    if chat.turn_id is None and not waiting_in(chat.state):
        return await _begin(connection, chat, message, str(extras.turn_id)).wait()
    return await _enqueue(connection, chat, message, extras).wait()


def unqueue(connection: "ChatsConnection", payload: ChatQueue) -> Answer:
    chat = connection.threads.chat(payload.chat_id)
    kind = _kind_of_waiting(chat, payload.message_id)
    live = connection.threads.live(chat)
    queue = live.look().info.queue or ()
    message = next((one for one in queue if one.id == payload.message_id), None)
    removed = {"type": "chat/pendingMessageRemoved", "kind": kind, "id": payload.message_id}
    acting = connection.dispatch(chat, removed)

    async def wait() -> Any:
        if await acting.refusal() is not None:
            raise _not_waiting(payload.message_id)
        return ChatUnqueueResult(message=message)

    return Later(wait)


def send_now(connection: "ChatsConnection", payload: ChatQueue) -> Answer:
    """Moves a message to the front, stops the running turn, and lifts the queue's pause."""
    chat = connection.threads.chat(payload.chat_id)
    kind = _kind_of_waiting(chat, payload.message_id)
    if kind == "queued":
        _put_steering_behind(chat)
        order = [one["id"] for one in chat.state.get("queuedMessages", [])]
        order.remove(payload.message_id)
        order.insert(0, payload.message_id)
        chat.say({"type": "chat/queuedMessagesReordered", "order": order})
    acting = _cancel(connection, chat)
    if acting is None:
        chat.happens(Happening.MESSAGE_QUEUED)
        return Told(Empty)

    async def wait() -> Any:
        # Refused, the turn had ended by itself, and whatever ended it moved or paused the queue.
        await acting.refusal()
        if connection.host.chats.get(chat.id) is chat:
            chat.happens(Happening.MESSAGE_QUEUED)
        return Empty()

    return Later(wait)


def _put_steering_behind(chat: Chat) -> None:
    """What was steered and not taken goes before the queue: here it is to go behind its first."""
    steering = chat.state.get("steeringMessage")
    if steering is None:
        return
    chat.say({"type": "chat/pendingMessageRemoved", "kind": "steering", "id": steering["id"]})
    chat.say({"type": "chat/pendingMessageSet", "kind": "queued", **steering})
    order = [one["id"] for one in chat.state.get("queuedMessages", [])]
    order.remove(steering["id"])
    chat.say({"type": "chat/queuedMessagesReordered", "order": [steering["id"], *order]})


def _kind_of_waiting(chat: Chat, message_id: str) -> str:
    """Whether a waiting message is queued or was steered.

    Raises:
        ChatError: `request-not-found`, it does not wait.
    """
    chat.flush()
    steering = chat.state.get("steeringMessage")
    if steering is not None and steering["id"] == message_id:
        return "steering"
    if any(one["id"] == message_id for one in chat.state.get("queuedMessages", [])):
        return "queued"
    raise _not_waiting(message_id)


def _not_waiting(message_id: str) -> ChatError:
    return ChatError("request-not-found", f"No message {message_id[:200]!r} is waiting any more.")


# -- ending -------------------------------------------------------------------------------


def _cancel(connection: "ChatsConnection", chat: Chat) -> Any:
    """Cancels the running turn; None when none runs."""
    chat.flush()
    if chat.turn_id is None:
        return None
    cancelled: Json = {"type": "chat/turnCancelled", "turnId": chat.turn_id}
    return connection.dispatch(chat, {**cancelled, "duration": chat.memory.elapsed_ms})


def cancel(connection: "ChatsConnection", payload: ChatCancel) -> Answer:
    chat = connection.threads.chat(payload.chat_id)
    ends = [_cancel(connection, chat)]
    if payload.subagents:
        # Those of the running turn ended with it; what runs on in the background is meant.
        subagents = chat.session.subagents_of(chat)
        ends += [_cancel(connection, subagent) for subagent in subagents]

    async def wait() -> Any:
        for acting in ends:
            if acting is not None:
                # Refused, it had ended by itself: it is over all the same.
                await acting.refusal()
        return Empty()

    return Later(wait)


def compact(connection: "ChatsConnection", payload: ChatTarget) -> Answer:
    chat = _writable(connection, payload.chat_id)
    if COMPACT not in commands_of(connection.threads.agent_of(chat)):
        raise ChatError("chat-unsupported", "The agent of this chat offers no compaction.")
    chat.flush()
    if chat.turn_id is not None:
        raise ChatError("chat-busy", "A turn is running: compact the context when it has ended.")
    extras = Extras(created_at=unix_ms(), turn_id=str(uuid4()))
    begun = _begin(connection, chat, _message(chat, f"/{COMPACT}", extras), str(extras.turn_id))

    async def wait() -> Any:
        await begun.wait()
        return Empty()

    return Later(wait)


def clear(connection: "ChatsConnection", payload: ChatClear) -> Answer:
    chat = connection.threads.chat(payload.chat_id)
    if chat.parent is not None:
        raise ChatError("chat-unsupported", "This chat is a subagent's: it is read-only.")
    chat.flush()
    if chat.turn_id is not None:
        if not payload.force:
            raise ChatError("chat-busy", "A turn is running: stop it first, or clear by force.")
        chat.happens(Happening.CANCEL)
    live, tell = connection.threads.live(chat), connection.host.ledger.tell
    tell(live.hold)
    turns = chat.state["turns"]
    beside = {key: value for key, value in chat.beside.items() if key != BOOKMARKS}
    beside[SPENT_USD] = (chat.beside.get(SPENT_USD) or 0) + sum(map(cost_of, turns))
    beside[TURNS_BEFORE] = (chat.beside.get(TURNS_BEFORE) or 0) + len(turns)
    chat.clear()
    chat.beside = beside
    own, state = own_of(chat), chat.state
    tell(lambda: live.reset(own, state))
    connection.host.nursery.start_soon(drop_uploads, connection.host.state_dir, chat.id)
    return Told(Empty)


def kill(connection: "ChatsConnection", payload: ChatTarget) -> Answer:
    chat = connection.threads.chat(payload.chat_id)
    # What was said to it is settled and told; its processes are buried beside.
    connection.host.remove_chat(chat)
    return Told(Empty)
