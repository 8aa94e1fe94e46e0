"""The two tables: every request with its payload and result, every event with its payload.

They are open: a program puts its own beside these and changes none of ours, so a
client written against ours keeps working:

    REQUESTS = AGENT_REQUESTS | {"document.read": RequestShape(payload=…, result=…)}
    EVENTS = AGENT_EVENTS | {"document.changed": DocumentChanged}

A name in a table is a shape and no promise: a host that lacks a thing answers
`chat-unsupported`.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from attrs import frozen

from ..shapes import structure, unstructure
from . import accounts, events, infos, models, requests, usage
from .requests import ChatTarget, Empty
from .shape import Shape


@frozen
class RequestShape:
    """What a request takes and answers."""

    payload: type[Shape]
    result: type[Shape]


AGENT_REQUESTS: Final[MappingProxyType[str, RequestShape]] = MappingProxyType(
    {
        "chat.create": RequestShape(requests.ChatCreate, infos.ChatInfo),
        "chat.list": RequestShape(Empty, requests.ChatListResult),
        "chat.attach": RequestShape(requests.ChatAttach, requests.ChatAttachResult),
        "chat.detach": RequestShape(ChatTarget, Empty),
        "chat.history": RequestShape(requests.ChatHistory, requests.ChatHistoryResult),
        "chat.send": RequestShape(requests.ChatSend, requests.ChatSendResult),
        "chat.unqueue": RequestShape(requests.ChatQueue, requests.ChatUnqueueResult),
        "chat.sendNow": RequestShape(requests.ChatQueue, Empty),
        "chat.cancel": RequestShape(requests.ChatCancel, Empty),
        "chat.compact": RequestShape(ChatTarget, Empty),
        "chat.clear": RequestShape(requests.ChatClear, Empty),
        "chat.kill": RequestShape(ChatTarget, Empty),
        "chat.approve": RequestShape(requests.ChatApprove, Empty),
        "chat.answer": RequestShape(requests.ChatAnswer, Empty),
        "chat.dismiss": RequestShape(requests.ChatDismiss, Empty),
        "chat.configure": RequestShape(requests.ChatConfigure, infos.ChatInfo),
        "chat.setPreferences": RequestShape(requests.ChatPreferences, Empty),
        "skills.list": RequestShape(ChatTarget, requests.SkillsListResult),
        "provider.list": RequestShape(Empty, models.ProviderListResult),
        "chat.turnDiff": RequestShape(requests.ChatTurn, requests.ChatTurnDiffResult),
        "chat.fork": RequestShape(requests.ChatFork, requests.ChatForkResult),
        "chat.forkInfo": RequestShape(requests.ChatTurn, requests.ChatForkInfoResult),
        "chat.summarize": RequestShape(ChatTarget, requests.ChatSummarizeResult),
        "chat.continueOn": RequestShape(requests.ChatContinueOn, requests.ChatContinueOnResult),
        "chat.subagent": RequestShape(requests.ChatSubagent, requests.ChatSubagentResult),
        "chat.stopSubagent": RequestShape(requests.ChatStopSubagent, Empty),
        "chat.stopTask": RequestShape(requests.ChatStopTask, Empty),
        "chat.addBookmark": RequestShape(requests.ChatAddBookmark, requests.ChatBookmarksResult),
        "chat.renameBookmark": RequestShape(
            requests.ChatRenameBookmark, requests.ChatBookmarksResult
        ),
        "chat.removeBookmark": RequestShape(
            requests.ChatRemoveBookmark, requests.ChatBookmarksResult
        ),
        "chat.removeVisual": RequestShape(requests.ChatRemoveVisual, requests.ChatVisualsResult),
        "accounts.list": RequestShape(Empty, accounts.Accounts),
        "accounts.save": RequestShape(accounts.AccountsSave, accounts.Accounts),
        "accounts.refresh": RequestShape(Empty, accounts.Accounts),
        "accounts.create": RequestShape(accounts.AccountCreate, accounts.AccountCreateResult),
        "accounts.watchLogin": RequestShape(accounts.AccountWatchLogin, Empty),
        "usage.summary": RequestShape(usage.UsageSummary, usage.UsageSummaryResult),
        "usage.subscribe": RequestShape(Empty, Empty),
        "usage.unsubscribe": RequestShape(Empty, Empty),
        "usage.limits": RequestShape(Empty, usage.UsageLimits),
        "usage.refreshLimits": RequestShape(Empty, usage.UsageLimits),
    }
)

AGENT_EVENTS: Final[MappingProxyType[str, type[Shape]]] = MappingProxyType(
    {
        "chat.event": events.ChatEventEnvelope,
        "chat.status": events.ChatStatusEvent,
        "chat.subagentChanged": events.ChatSubagentChangedEvent,
        "chat.bookmarks": events.ChatBookmarksEvent,
        "chat.visuals": events.ChatVisualsEvent,
        "accounts.changed": accounts.Accounts,
        "usage.changed": usage.UsageChanged,
        "usage.limitsChanged": usage.UsageLimits,
    }
)


def read_payload(
    name: str, payload: Any, table: Mapping[str, RequestShape] = AGENT_REQUESTS
) -> Shape:
    """A request's payload as its class.

    Raises:
        KeyError: the table has no request of that name (`unknown-request`).
        ShapeError: it does not fit; the message names the member: `payload.text: …`
            (`bad-request`).
    """
    return structure(payload, table[name].payload, "payload")


def read_result(name: str, result: Any, table: Mapping[str, RequestShape] = AGENT_REQUESTS) -> Any:
    """A reply's result as its class; raises as `read_payload` does."""
    return structure(result, table[name].result, "result")


def read_event(name: str, payload: Any, table: Mapping[str, type[Shape]] = AGENT_EVENTS) -> Any:
    """An event's payload as its class; raises as `read_payload` does."""
    return structure(payload, table[name], "payload")


def write(shape: Shape) -> dict[str, Any]:
    """The JSON of a payload, a result or an item."""
    written: dict[str, Any] = unstructure(shape)
    return written
