"""Delegated work: a subagent's conversation by pages, and stopping what runs beside the turn.

A subagent's chat is a chat of the host, by an id that follows from its parent's and
the tool call's; `context.chatId` names it, so that what it asks can be answered.
"""

from typing import TYPE_CHECKING

from ....contracts.ahp.uris import subagent_chat_id
from ....contracts.chats import (
    ChatError,
    ChatStopSubagent,
    ChatStopTask,
    ChatSubagent,
    ChatSubagentResult,
    Empty,
    Shape,
    SubagentContext,
)
from ...sessions.chat import Chat
from .answers import Answer, Later, Told

if TYPE_CHECKING:
    from .connection import ChatsConnection


def subagent(connection: "ChatsConnection", payload: ChatSubagent) -> Answer:
    chat = connection.threads.chat(payload.chat_id)
    opened = _subagent_of(chat, payload.tool_use_id)
    live = connection.threads.live(opened)
    if payload.watch is False:
        live.watchers.pop(id(connection), None)
    opened.flush()

    def told() -> Shape:
        items, history = live.subagent_page(payload.cursor, payload.limit)
        if payload.watch:
            live.watchers[id(connection)] = connection
        info = live.look().info
        return ChatSubagentResult(
            items=items,
            history=history,
            source="claude-transcript",
            live=opened.turn_id is not None,
            context=SubagentContext(provider=info.provider, cwd=info.cwd, chat_id=opened.id),
        )

    return Told(told, reads=True)


def _subagent_of(chat: Chat, tool_use_id: str) -> Chat:
    opened = chat.session.chats.get(subagent_chat_id(chat.id, tool_use_id))
    if opened is None or opened.parent is not chat:
        raise ChatError(
            "subagent-not-found", f"No subagent was opened by the call {tool_use_id!r}."
        )
    return opened


def stop_subagent(connection: "ChatsConnection", payload: ChatStopSubagent) -> Answer:
    chat = connection.threads.chat(payload.chat_id)
    opened = _subagent_of(chat, payload.tool_use_id)
    if chat.turn_id is not None:
        raise ChatError("chat-busy", "A turn is running: stopping it stops its subagents.")
    opened.flush()
    if opened.turn_id is None:
        return Told(Empty)
    cancelled = {"type": "chat/turnCancelled", "turnId": opened.turn_id}
    acting = connection.dispatch(opened, {**cancelled, "duration": opened.memory.elapsed_ms})

    async def wait() -> Shape | Told:
        reason = await acting.refusal()
        if reason is not None and opened.turn_id is not None:
            raise ChatError("chat-unsupported", reason)
        return Empty()

    return Later(wait)


def stop_task(connection: "ChatsConnection", payload: ChatStopTask) -> Answer:
    chat = connection.threads.chat(payload.chat_id)
    if all(work["id"] != payload.task_id for work in chat.state.get("backgroundWork", [])):
        raise ChatError("task-not-found", f"No task {payload.task_id!r} runs in the background.")
    raise ChatError("chat-unsupported", "An agent cannot be asked to stop a single task yet.")
