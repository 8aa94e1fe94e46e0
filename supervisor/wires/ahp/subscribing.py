"""Subscriptions of one connection: snapshots that fit a frame, windows of turns, their pages."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ....contracts.ahp.commands import FetchTurns, Subscribe
from ....contracts.ahp.errors import AhpError, ErrorCode
from ....contracts.ahp.uris import parse_channel
from ....contracts.json import json_size
from ...sessions.channel import Channel
from . import windows

if TYPE_CHECKING:
    from .connection import AhpConnection

Json = dict[str, Any]

#: What an answer may weigh beside its snapshots.
ENVELOPE_BYTES = 64 * 1024


def room_bytes(connection: "AhpConnection") -> int:
    """What snapshots may come to in one answer."""
    return connection.host.bounds.max_frame_bytes - ENVELOPE_BYTES


def subscribe(connection: "AhpConnection", params: Subscribe) -> Json:
    """Subscribes to one channel and answers its snapshot. Raises `AhpError`."""
    channel = connection.host.resolve(params.channel)
    if channel is None:
        unreadable = connection.host.unreadable(params.channel)
        if unreadable is not None:
            raise AhpError(ErrorCode.INTERNAL_ERROR, unreadable)
        name = parse_channel(params.channel)
        code = (
            ErrorCode.SESSION_NOT_FOUND
            if name is not None and name.family == "session"
            else ErrorCode.RESOURCE_NOT_FOUND
        )
        raise AhpError(code, f"There is no channel {params.channel[:200]}.")
    refuse_too_many(connection, [channel])
    latency_ms = params.delivery.max_latency_ms if params.delivery else None
    turns = params.view.turns if params.view else None
    snapshot = hold(connection, channel, params.channel, latency_ms=latency_ms, turns=turns)
    return {"snapshot": _fitted(connection, snapshot, channel, room_bytes(connection))}


def subscribe_all(connection: "AhpConnection", named: Mapping[str, Channel]) -> list[Json]:
    """Snapshots of all of them, together within one frame."""
    snapshots = [hold(connection, channel, uri) for uri, channel in named.items()]
    sizes = [json_size(snapshot) for snapshot in snapshots]
    if sum(sizes) <= room_bytes(connection):
        return snapshots
    share = room_bytes(connection) // len(snapshots)
    return [
        _fitted(connection, snapshot, channel, share)
        for snapshot, channel in zip(snapshots, named.values(), strict=True)
    ]


def hold(
    connection: "AhpConnection",
    channel: Channel,
    spelling: str,
    *,
    latency_ms: float | None = None,
    turns: int | None = None,
) -> Json:
    """Subscribes this connection to a channel and answers the snapshot it starts from."""
    state = channel.snapshot()
    held: set[str] | None = None
    if channel.family == "chat":
        state, held = windows.windowed(state, turns)
    channel.subscribe(connection, spelling, max_latency_ms=latency_ms, held_turns=held)
    connection.channels[id(channel)] = channel
    shown = connection.lens.snapshot(channel.family, state)
    return {"resource": spelling, "state": shown, "fromSeq": channel.stream.seq}


def _fitted(connection: "AhpConnection", snapshot: Json, channel: Channel, room_bytes: int) -> Json:
    """The snapshot with so few turns that it fits; its window is narrowed with it."""
    subscription = channel.subscription_of(connection)
    while channel.family == "chat" and json_size(snapshot) > room_bytes:
        turns = len(snapshot["state"]["turns"])
        if turns == 0 or subscription is None:
            break
        state, held = windows.windowed(channel.state, turns // 2)
        subscription.held_turns = held
        snapshot = {**snapshot, "state": connection.lens.snapshot(channel.family, state)}
    return snapshot


def refuse_too_many(connection: "AhpConnection", wanted: Iterable[Channel]) -> None:
    """Refuses more channels than one connection may be subscribed to."""
    # A channel that is gone took its subscriptions along.
    connection.channels = {
        key: channel
        for key, channel in connection.channels.items()
        if channel.subscription_of(connection) is not None
    }
    limit = connection.host.bounds.max_subscriptions_per_connection
    if len({*connection.channels, *map(id, wanted)}) > limit:
        raise AhpError(ErrorCode.INVALID_PARAMS, f"A connection may subscribe to {limit} channels.")


def unsubscribe(connection: "AhpConnection", uri: str) -> None:
    """Ends this connection's subscription to a channel, if it has one."""
    channel = connection.host.resolve(uri)
    if channel is not None:
        channel.unsubscribe(connection)
        connection.channels.pop(id(channel), None)


def fetch_turns(connection: "AhpConnection", params: FetchTurns) -> Json:
    """Sends a page of older turns as `chat/turnsLoaded`. Raises `AhpError`."""
    chat = connection.host.chat_at(params.channel)
    subscription = chat.channel.subscription_of(connection)
    if subscription is None:
        raise AhpError(
            ErrorCode.INVALID_PARAMS, "params.channel: subscribe to the chat before its turns"
        )
    state, held = chat.channel.snapshot(), subscription.held_turns
    if params.cursor is None:
        page = None if held is None else windows.next_page(state, held)
    else:
        turn_id = windows.turn_of(params.cursor)
        page = windows.page_before(state, turn_id) if turn_id is not None else None
        if page is None:
            raise AhpError(
                ErrorCode.INVALID_PARAMS, "params.cursor: expected a cursor of this chat"
            )
    # Who holds these turns is not sent them: their cursor would lead backwards.
    if page is not None and held is not None:
        lacks = any(turn["id"] not in held for turn in page["turns"])
        if lacks:
            seq = chat.channel.stream.seq
            connection.host.ledger.answer(lambda: connection.load_turns(subscription, page, seq))
    return {}
