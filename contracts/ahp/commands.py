"""Parameters of the methods a client calls, as attrs classes for `contracts.shapes.structure`.

Nested shapes that become part of a state (a message, an active client, where a
chat comes from) stay plain JSON, so that members nobody knows survive; they are
checked as the actions that carry them are.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from attrs import field, frozen

from ..shapes import MemberError
from .action_shapes import ACTIVE_CLIENT, CHAT_SOURCE, MESSAGE
from .checks import Check
from .uris import ROOT_URI

Json: TypeAlias = dict[str, Any]
_Validator: TypeAlias = Callable[[Any, Any, Any], None]


def _checked(check: Check, member: str) -> _Validator:
    def validator(_instance: Any, _attribute: Any, value: Any) -> None:
        fault = None if value is None else check(value, member)
        if fault is not None:
            where, _, what = fault.partition(": ")
            raise MemberError(where, what)

    return validator


def _at_least(least: int, member: str) -> _Validator:
    def validator(_instance: Any, _attribute: Any, value: Any) -> None:
        if value is not None and value < least:
            raise MemberError(member, f"expected at least {least}")

    return validator


@frozen(kw_only=True)
class Implementation:
    """Who a client is, for logs and for people."""

    name: str
    version: str | None = None
    title: str | None = None


@frozen(kw_only=True)
class Initialize:
    """Opens a connection: which versions, who, and what to subscribe to at once."""

    protocol_versions: tuple[Any, ...]
    client_id: str
    channel: str = ROOT_URI
    client_info: Implementation | None = None
    initial_subscriptions: tuple[str, ...] = ()
    locale: str | None = None
    capabilities: Json | None = None
    meta: Json | None = None


@frozen(kw_only=True)
class Ping:
    """Asks whether anybody is there."""

    channel: str = ROOT_URI
    meta: Json | None = None


@frozen(kw_only=True)
class Reconnect:
    """Resumes a connection. VS Code opens with it, without a `channel`."""

    client_id: str
    last_seen_server_seq: int
    subscriptions: tuple[str, ...]
    channel: str = ROOT_URI
    meta: Json | None = None


@frozen(kw_only=True)
class Delivery:
    """How a subscriber wants to be sent things; `max_latency_ms` bounds gathering."""

    max_latency_ms: float | None = field(default=None, validator=_at_least(0, "maxLatencyMs"))


@frozen(kw_only=True)
class View:
    """What of a chat a subscriber wants to hold: about so many of its newest turns."""

    turns: int | None = field(default=None, validator=_at_least(0, "turns"))


@frozen(kw_only=True)
class Subscribe:
    """Asks for a channel's snapshot and everything after it."""

    channel: str
    delivery: Delivery | None = None
    view: View | None = None
    meta: Json | None = None


@frozen(kw_only=True)
class Unsubscribe:
    """Ends a subscription. A notification."""

    channel: str
    meta: Json | None = None


@frozen(kw_only=True)
class DispatchAction:
    """Asks for an action to be applied; `check_action` looks at the action. A notification."""

    channel: str
    client_seq: int
    action: Json
    meta: Json | None = None


@frozen(kw_only=True)
class CreateSession:
    """Starts a session under the URI its client chose."""

    channel: str
    provider: str | None = None
    working_directories: tuple[str, ...] | None = None
    config: Json | None = None
    active_client: Json | None = field(
        default=None, validator=_checked(ACTIVE_CLIENT, "activeClient")
    )
    progress_token: str | None = None
    meta: Json | None = None


@frozen(kw_only=True)
class DisposeSession:
    """Ends a session and everything it runs."""

    channel: str
    meta: Json | None = None


@frozen(kw_only=True)
class ListSessions:
    """Asks for a page of the sessions, newest change first."""

    channel: str = ROOT_URI
    limit: int | None = field(default=None, validator=_at_least(1, "limit"))
    cursor: str | None = None
    meta: Json | None = None


@frozen(kw_only=True)
class ResolveSessionConfig:
    """Asks what a session can be told, given what was chosen so far."""

    channel: str = ROOT_URI
    provider: str | None = None
    working_directory: str | None = None
    config: Json | None = None
    meta: Json | None = None


@frozen(kw_only=True)
class SessionConfigCompletions:
    """Asks for values of one property of a session's configuration."""

    property: str
    channel: str = ROOT_URI
    provider: str | None = None
    working_directory: str | None = None
    config: Json | None = None
    query: str | None = None
    meta: Json | None = None


@frozen(kw_only=True)
class Completions:
    """Asks how a text a person is typing could go on; `offset` counts UTF-16 units."""

    channel: str
    kind: str
    text: str
    offset: int = field(validator=_at_least(0, "offset"))
    meta: Json | None = None


@frozen(kw_only=True)
class FetchTurns:
    """Asks for older turns of a chat; they come as `chat/turnsLoaded`."""

    channel: str
    cursor: str | None = None
    meta: Json | None = None


@frozen(kw_only=True)
class CreateChat:
    """Starts another chat in a session (`channel`) under the URI its client chose (`chat`)."""

    channel: str
    chat: str
    initial_message: Json | None = field(
        default=None, validator=_checked(MESSAGE, "initialMessage")
    )
    source: Json | None = field(default=None, validator=_checked(CHAT_SOURCE, "source"))
    working_directories: tuple[str, ...] | None = None
    meta: Json | None = None


@frozen(kw_only=True)
class DisposeChat:
    """Ends a chat (`channel`)."""

    channel: str
    meta: Json | None = None


#: The parameters' class of every method that is served.
COMMANDS: Final[Mapping[str, type[Any]]] = MappingProxyType(
    {
        "initialize": Initialize,
        "ping": Ping,
        "reconnect": Reconnect,
        "subscribe": Subscribe,
        "unsubscribe": Unsubscribe,
        "dispatchAction": DispatchAction,
        "createSession": CreateSession,
        "disposeSession": DisposeSession,
        "listSessions": ListSessions,
        "resolveSessionConfig": ResolveSessionConfig,
        "sessionConfigCompletions": SessionConfigCompletions,
        "completions": Completions,
        "fetchTurns": FetchTurns,
        "createChat": CreateChat,
        "disposeChat": DisposeChat,
    }
)

#: Those of them that are notifications: sent without an id and never answered.
NOTIFICATIONS: Final = frozenset({"unsubscribe", "dispatchAction"})

#: What is served before `initialize` or an admitted `reconnect`.
BEFORE_INITIALIZE: Final = frozenset({"initialize", "ping", "reconnect"})
