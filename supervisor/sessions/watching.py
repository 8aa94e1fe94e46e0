"""Watching every chat: for a wire that shows chats in words of its own, whoever is subscribed.

A watcher subscribes to the channels for what actions say. Here it hears of chats
that come and go, and of what no action says: the members that are `Watched`.
"""

from typing import TYPE_CHECKING, Generic, Protocol, TypeVar, overload

if TYPE_CHECKING:
    from .chat import Chat

T = TypeVar("T")

_UNSET = object()


class Watcher(Protocol):
    """Who watches. Nothing here may wait or raise."""

    def agents_changed(self) -> None:
        """More is known of an agent, or less: not all of it stands in the root's state."""

    def chat_added(self, chat: "Chat", *, made: bool) -> None:
        """A chat is there: made, or brought back from what is kept. Nothing was published on its
        channel yet."""

    def chat_changed(self, chat: "Chat") -> None:
        """A `Watched` member of a chat is other now."""

    def chat_removed(self, chat: "Chat") -> None:
        """A chat is gone; the last action on its channel was published."""


class Watched(Generic[T]):
    """A member of a chat whose changes watchers hear of.

    Args:
        kept: it is written down with the chat.
    """

    def __init__(self, *, kept: bool = True) -> None:
        self._kept = kept

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = f"_watched_{name}"

    @overload
    def __get__(self, chat: None, owner: type) -> "Watched[T]": ...

    @overload
    def __get__(self, chat: "Chat", owner: type) -> T: ...

    def __get__(self, chat: "Chat | None", owner: type) -> "Watched[T] | T":
        if chat is None:
            return self
        value: T = getattr(chat, self._name)
        return value

    def __set__(self, chat: "Chat", value: T) -> None:
        before = getattr(chat, self._name, _UNSET)
        setattr(chat, self._name, value)
        if before is not _UNSET and before != value:
            if self._kept:
                chat.keep()
            for watcher in chat.session.host.watchers:
                watcher.chat_changed(chat)
