"""Letting a client in: `initialize`, and `reconnect` with a replay or with snapshots."""

from collections.abc import Iterable, Mapping
from importlib.metadata import version as installed_version
from typing import TYPE_CHECKING, Any

from ....contracts.ahp.commands import Initialize, Ping, Reconnect
from ....contracts.ahp.errors import AhpError, ErrorCode
from ....contracts.ahp.uris import file_uri
from ....contracts.ahp.versions import SUPPORTED_VERSIONS, negotiate
from ....contracts.json import encode_json
from ...sessions.channel import Channel
from ...state_dir import home_folder
from . import windows
from .subscribing import hold, refuse_too_many, room_bytes, subscribe_all

if TYPE_CHECKING:
    from .connection import AhpConnection

Json = dict[str, Any]

#: A client's own id: longer ones are not remembered, so they are not let in.
MAX_CLIENT_ID_CHARS = 512


def initialize(connection: "AhpConnection", params: Initialize) -> Json:
    """Lets a client in, in the newest version that both speak. Raises `AhpError`."""
    if connection.client_id:
        raise AhpError(ErrorCode.INVALID_REQUEST, "This connection is initialized already.")
    if not 0 < len(params.client_id) <= MAX_CLIENT_ID_CHARS:
        raise AhpError(
            ErrorCode.INVALID_PARAMS,
            f"params.clientId: expected 1 to {MAX_CLIENT_ID_CHARS} characters",
        )
    try:
        version = negotiate(params.protocol_versions)
    except ValueError as error:
        raise AhpError(ErrorCode.INVALID_PARAMS, f"params.protocolVersions: {error}") from None
    if version is None:
        supported = list(SUPPORTED_VERSIONS)
        raise AhpError(
            ErrorCode.UNSUPPORTED_PROTOCOL_VERSION,
            f"This host speaks {', '.join(supported)}.",
            {"supportedVersions": supported},
        )
    wanted = _named(connection, params.initial_subscriptions)
    refuse_too_many(connection, wanted.values())
    connection.let_in(params.client_id, version)
    # Taking a snapshot publishes what is being gathered, so the number is read after it.
    snapshots = subscribe_all(connection, wanted)
    return {
        "protocolVersion": version,
        "serverSeq": connection.host.stream.seq,
        "serverInfo": {
            "name": "ahpd-supervisor",
            "version": installed_version("ahpd-supervisor"),
        },
        "snapshots": snapshots,
        "defaultDirectory": file_uri(home_folder()),
    }


def reconnect(connection: "AhpConnection", params: Reconnect) -> Json:
    """Lets a known client in again: what it missed, or snapshots. Raises `AhpError`."""
    if connection.client_id:
        raise AhpError(ErrorCode.INVALID_REQUEST, "This connection is initialized already.")
    known = connection.host.admitted(params.client_id)
    if known is None:
        raise AhpError(
            ErrorCode.RESOURCE_NOT_FOUND,
            f"This host does not know the client {params.client_id[:80]}; initialize instead.",
        )
    named = _named(connection, params.subscriptions)
    missing = [uri for uri in dict.fromkeys(params.subscriptions) if uri not in named]
    refuse_too_many(connection, named.values())
    held = connection.let_in(params.client_id, known.version)
    replayed = _replay(connection, named, params.last_seen_server_seq, held)
    if replayed is not None:
        replay: Json = {"type": "replay", "actions": replayed, "missing": missing}
        if len(encode_json(replay)) < room_bytes(connection):
            return replay
    return {"type": "snapshot", "snapshots": subscribe_all(connection, named)}


def _named(connection: "AhpConnection", uris: Iterable[str]) -> dict[str, Channel]:
    """The channels that are there, by the spellings they are asked for under."""
    return {uri: channel for uri in uris if (channel := connection.host.resolve(uri)) is not None}


def _replay(
    connection: "AhpConnection",
    named: Mapping[str, Channel],
    seen_seq: int,
    windows_held: windows.Windows | None,
) -> list[Json] | None:
    """Subscribes to the channels and answers what was missed of them since that number.

    None when that cannot be told as actions: some are held no longer, a channel
    is younger than what the client saw, or it lacks turns that they name.
    """
    for channel in named.values():
        channel.flush()
    envelopes = connection.host.stream.since(seen_seq)
    if envelopes is None or windows_held is None or _may_have_missed(connection, named, seen_seq):
        return None
    if any(channel.born_seq > seen_seq for channel in named.values()):
        return None
    held = {
        channel.uri: set(windows_held[channel.uri])
        for channel in named.values()
        if channel.uri in windows_held
    }
    spellings = {channel.uri: uri for uri, channel in named.items()}
    missed = [envelope for envelope in envelopes if envelope.channel in spellings]
    for envelope in missed:
        turns = held.get(envelope.channel)
        if turns is not None:
            turn_id = envelope.action.get("turnId")
            windows.remember(turns, envelope.action)
            if isinstance(turn_id, str) and turn_id not in turns:
                return None
    for uri, channel in named.items():
        hold(connection, channel, uri)
        subscription = channel.subscription_of(connection)
        if subscription is not None:
            subscription.held_turns = held.get(channel.uri)
    return [
        envelope.params(spellings[envelope.channel], action, first=index == 0)
        for envelope in missed
        for index, action in enumerate(connection.said(envelope))
    ]


def _may_have_missed(
    connection: "AhpConnection", named: Mapping[str, Channel], seen_seq: int
) -> bool:
    """Whether a replay could fall short for this client's version.

    What an older version is told in several actions for one number may have been
    cut off between them, and what is said from the states around an action
    cannot be said again: those are not kept. Snapshots answer instead.
    """
    if connection.lens.identity:
        return False
    envelopes = connection.host.stream.since(seen_seq - 1)
    uris = {channel.uri for channel in named.values()}
    return envelopes is None or any(
        envelope.channel in uris and connection.lens.needs_states(envelope.action)
        for envelope in envelopes
    )


def ping(connection: "AhpConnection", params: Ping) -> Json:
    """Somebody is there."""
    return {}
