"""The table of this wire: each request of the contracts once, served or refused with why.

A name in the contracts is a shape and no promise. What this host does not do whole is
answered `chat-unsupported`, with a sentence; never a made-up success.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ....contracts.chats import AGENT_REQUESTS, read_payload
from . import (
    answering,
    bookmarking,
    configuring,
    delegating,
    opening,
    operating,
    sending,
)
from .answers import Answer

if TYPE_CHECKING:
    from .connection import ChatsConnection

Handler = Callable[["ChatsConnection", Any], Answer]

#: What serves each request.
HANDLERS: Mapping[str, Handler] = {
    "chat.create": opening.create,
    "chat.list": opening.list_chats,
    "chat.attach": opening.attach,
    "chat.detach": opening.detach,
    "chat.history": opening.history,
    "chat.send": sending.send,
    "chat.unqueue": sending.unqueue,
    "chat.sendNow": sending.send_now,
    "chat.cancel": sending.cancel,
    "chat.compact": sending.compact,
    "chat.clear": sending.clear,
    "chat.kill": sending.kill,
    "chat.approve": answering.approve,
    "chat.answer": answering.answer,
    "chat.dismiss": answering.dismiss,
    "chat.configure": configuring.configure,
    "chat.setPreferences": configuring.set_preferences,
    "skills.list": configuring.list_skills,
    "provider.list": configuring.list_providers,
    "chat.subagent": delegating.subagent,
    "chat.stopSubagent": delegating.stop_subagent,
    "chat.stopTask": delegating.stop_task,
    "chat.addBookmark": bookmarking.add,
    "chat.renameBookmark": bookmarking.rename,
    "chat.removeBookmark": bookmarking.remove,
}

_NO_FORKS = "This host does not fork chats."
_NO_ACCOUNTS = "This host keeps no accounts: agents run as its configuration says."
_NO_USAGE = "This host does not sum up usage."

#: Why each other request is not served.
UNSERVED: Mapping[str, str] = {
    "chat.turnDiff": "This host takes no checkpoints of working trees.",
    "chat.fork": _NO_FORKS,
    "chat.forkInfo": _NO_FORKS,
    "chat.summarize": "This host does not have chats summarized.",
    "chat.continueOn": _NO_ACCOUNTS,
    "chat.removeVisual": "Agents of this host publish no visuals.",
    "accounts.list": _NO_ACCOUNTS,
    "accounts.save": _NO_ACCOUNTS,
    "accounts.refresh": _NO_ACCOUNTS,
    "accounts.create": _NO_ACCOUNTS,
    "accounts.watchLogin": _NO_ACCOUNTS,
    "usage.summary": _NO_USAGE,
    "usage.subscribe": _NO_USAGE,
    "usage.unsubscribe": _NO_USAGE,
    "usage.limits": _NO_USAGE,
    "usage.refreshLimits": _NO_USAGE,
}


def read(name: str, payload: Any) -> Any:
    """A request's payload in its shape: of the contracts, or of our own `host.*` beside them.

    Raises:
        KeyError: no table knows the name.
        ShapeError: the payload does not fit; the message names the member.
    """
    if name in operating.OPERATING:
        return operating.read_payload(name, payload)
    return read_payload(name, payload, AGENT_REQUESTS)
