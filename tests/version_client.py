"""A client of one version of the protocol: it reduces as that version does, and finds fault.

Everything that it is sent is looked at as it comes: against the version's
vocabulary, and against its schema where the data is at hand.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import trio
from trio_websocket import WebSocketConnection, open_websocket_url

from ahp_client import AhpClient
from ahpd.contracts.ahp.uris import parse_channel
from old_reducers import lens_version, reducer_of, release_of
from old_reducers.vocabulary import wrong_in_action, wrong_in_state
from version_schema import THERE, faults

Json = dict[str, Any]

_RESULTS = {
    "initialize": "InitializeResult",
    "subscribe": "SubscribeResult",
    "listSessions": "ListSessionsResult",
}
_NOTIFIED = {
    "root/sessionAdded": "SessionAddedParams",
    "root/sessionSummaryChanged": "SessionSummaryChangedParams",
}


class VersionClient(AhpClient):
    """`wrong` holds a sentence for everything that this version would call wrong."""

    def __init__(self, socket: WebSocketConnection, client_id: str, version: str) -> None:
        super().__init__(socket, client_id)
        self.version = version
        self.wrong: list[str] = []

    def apply(self, envelope: Json) -> None:
        """Reduces an envelope as this version does, unless it was refused."""
        self.envelopes.append(envelope)
        self.last_seq = max(self.last_seq, envelope["serverSeq"])
        if "rejectionReason" in envelope:
            # The client's own words, which may be what was wrong.
            return
        self._hold_against("ActionEnvelope", envelope)
        action, channel = envelope["action"], envelope["channel"]
        self.wrong += [
            f"{action['type']}: {what}" for what in wrong_in_action(self.version, action)
        ]
        if channel in self.states:
            reduce = reducer_of(self.version, _family(channel))
            self.states[channel] = reduce(self.states[channel], action)

    def hold(self, snapshot: Json) -> None:
        """Takes a snapshot as the state of its channel, if this version would."""
        super().hold(snapshot)
        family = _family(snapshot["resource"])
        self.wrong += wrong_in_state(self.version, family, snapshot["state"])
        self._hold_against("Snapshot", snapshot)

    def take(self, message: Json) -> None:
        """Takes one message of the host."""
        shape = _NOTIFIED.get(message.get("method", ""))
        if shape is not None:
            self._hold_against(shape, message["params"])
        super().take(message)

    async def request(self, method: str, **params: Any) -> Any:
        """Asks and waits for the result, which is held against the schema."""
        result = await super().request(method, **params)
        if method in _RESULTS:
            self._hold_against(_RESULTS[method], result)
        if method == "reconnect":
            replayed = result["type"] == "replay"
            shape = "ReconnectReplayResult" if replayed else "ReconnectSnapshotResult"
            self._hold_against(shape, result)
        return result

    async def open(self, **params: Any) -> Json:
        """Initializes with this version alone."""
        return await self.initialize((lens_version(self.version),), **params)

    async def reconnect(self, after_seq: int, states: dict[str, Json]) -> Json:
        """Comes back with the states that were held, and takes what was missed."""
        self.states = dict(states)

        def take_up(result: Json) -> None:
            for envelope in result.get("actions", ()):
                self.apply(envelope)
            for snapshot in result.get("snapshots", ()):
                self.hold(snapshot)

        result: Json = await self.request(
            "reconnect",
            then=take_up,
            clientId=self.client_id,
            lastSeenServerSeq=after_seq,
            subscriptions=list(states),
        )
        return result

    def _hold_against(self, shape: str, value: Any) -> None:
        if THERE:
            self.wrong += faults(self.version, shape, value)


def comparable(client: VersionClient, channel: str, state: Json) -> Json:
    """A state without what versions do not agree on by reducing: clocks and derived bits."""
    family = _family(channel)
    state = dict(state)
    if family == "session":
        state["status"] &= ~0b11111
    if family == "chat" and release_of(client.version) < (0, 10):
        del state["modifiedAt"]
    return state


def _family(channel: str) -> str:
    name = parse_channel(channel)
    assert name is not None, channel
    return name.family


@asynccontextmanager
async def version_client(
    url: str, version: str, client_id: str | None = None
) -> AsyncIterator[VersionClient]:
    """A connection of a client of that version, before `initialize`."""
    async with open_websocket_url(url, max_message_size=64 * 1024 * 1024) as socket:
        client = VersionClient(socket, client_id or f"client-{version}", version)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.read)
            yield client
            nursery.cancel_scope.cancel()
