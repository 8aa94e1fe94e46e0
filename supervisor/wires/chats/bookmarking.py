"""Bookmarks on messages; each answer and each `chat.bookmarks` is the whole list."""

from typing import TYPE_CHECKING, cast

from attrs import evolve

from ....contracts.chats import (
    BOOKMARK_LIMITS,
    AssistantItem,
    Bookmark,
    ChatAddBookmark,
    ChatBookmarksResult,
    ChatError,
    ChatRemoveBookmark,
    ChatRenameBookmark,
    UserItem,
    excerpt_of,
    is_bookmarkable,
    trimmed,
)
from ...sessions.chat import Chat
from ...sessions.clock import unix_ms
from .answers import Answer, Told
from .facts import bookmarks_of, with_bookmarks

if TYPE_CHECKING:
    from .connection import ChatsConnection


def add(connection: "ChatsConnection", payload: ChatAddBookmark) -> Answer:
    chat = connection.threads.chat(payload.chat_id)
    chat.flush()
    item = connection.threads.live(chat).item(payload.item_id)
    if item is None or not is_bookmarkable(item):
        raise ChatError("item-not-found", f"There is no message {payload.item_id[:200]!r}.")
    marks = bookmarks_of(chat.beside)
    name = trimmed(payload.name) if payload.name is not None else None
    if any(mark.item_id == item.id for mark in marks):
        return _keep(chat, marks if name is None else _named(marks, item.id, name))
    if len(marks) >= BOOKMARK_LIMITS.per_chat:
        raise ChatError(
            "too-many-bookmarks", f"This chat has {BOOKMARK_LIMITS.per_chat} bookmarks already."
        )
    mark = Bookmark(
        item_id=item.id,
        excerpt=excerpt_of(cast(UserItem | AssistantItem, item)),
        created_at=unix_ms(),
        name=name or None,
    )
    return _keep(chat, (*marks, mark))


def rename(connection: "ChatsConnection", payload: ChatRenameBookmark) -> Answer:
    chat = connection.threads.chat(payload.chat_id)
    marks = bookmarks_of(chat.beside)
    if all(mark.item_id != payload.item_id for mark in marks):
        raise ChatError(
            "bookmark-not-found", f"The message {payload.item_id[:200]!r} has no bookmark."
        )
    return _keep(chat, _named(marks, payload.item_id, trimmed(payload.name)))


def remove(connection: "ChatsConnection", payload: ChatRemoveBookmark) -> Answer:
    chat = connection.threads.chat(payload.chat_id)
    marks = bookmarks_of(chat.beside)
    return _keep(chat, tuple(mark for mark in marks if mark.item_id != payload.item_id))


def _named(marks: tuple[Bookmark, ...], item_id: str, name: str) -> tuple[Bookmark, ...]:
    """An empty name takes the name away."""
    return tuple(
        evolve(mark, name=name or None) if mark.item_id == item_id else mark for mark in marks
    )


def _keep(chat: Chat, marks: tuple[Bookmark, ...]) -> Answer:
    chat.beside = with_bookmarks(chat.beside, marks)
    return Told(lambda: ChatBookmarksResult(bookmarks=marks))
