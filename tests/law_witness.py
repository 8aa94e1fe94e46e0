"""A client that holds everything it is sent against the laws that the host promises.

What is checked needs no quiet: a snapshot's answer stands in the stream behind
every envelope that it contains, so what was reduced so far must equal it there
and then. Broken laws are written into the run's `Book`; nothing is raised, since
the connection's reader must read on.
"""

import itertools
import traceback
from collections import Counter
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import trio
from attrs import define, field
from trio_websocket import WebSocketConnection, wrap_client_stream

from ahp_client import AhpClient, Refused
from ahpd.contracts.ahp.actions import check_action
from ahpd.contracts.ahp.reducers import REDUCERS
from ahpd.contracts.ahp.uris import ROOT_URI, parse_channel
from ahpd.contracts.json import same_json

Json = dict[str, Any]

LOW_BITS = 31
ENDINGS = ("chat/turnComplete", "chat/turnCancelled", "chat/error")
WAITING = ("pending-confirmation", "pending-result-confirmation")
ROW = (
    "resource",
    "title",
    "status",
    "activity",
    "modifiedAt",
    "origin",
    "interactivity",
    "workingDirectories",
)
ENVELOPE = {"channel", "action", "serverSeq", "origin", "rejectionReason"}


@define
class Book:
    """What all witnesses of one run saw together."""

    faults: list[str] = field(factory=list)
    spent: dict[int, tuple[str, Json]] = field(factory=dict)
    """What each number was spent on."""
    snapshots: list[tuple[str, Json]] = field(factory=list)
    """Family and state of every snapshot, for whoever holds them against the schema."""
    seen: Counter[str] = field(factory=Counter)
    """What the snapshots showed that something was held against."""


def family_of(channel: str) -> str:
    """`root`, `session` or `chat`."""
    named = parse_channel(channel)
    assert named is not None, channel
    return named.family


def waiting_in(state: Json) -> Iterator[tuple[str, str, Json]]:
    """What waits on a person in a chat: its kind in `inputNeeded`, its id, itself."""
    for part in state.get("activeTurn", {}).get("responseParts", ()):
        if part["kind"] == "toolCall" and part["toolCall"]["status"] in WAITING:
            yield "toolConfirmation", part["toolCall"]["toolCallId"], part["toolCall"]
        elif part["kind"] == "inputRequest" and "response" not in part:
            yield "chatInput", part["request"]["id"], part["request"]


def open_in(turn: Json) -> list[Json]:
    """The parts of an ended turn that are not over."""
    return [
        part
        for part in turn["responseParts"]
        if (part["kind"] == "inputRequest" and "response" not in part)
        or (
            part["kind"] == "toolCall"
            and part["toolCall"]["status"] not in ("completed", "cancelled")
        )
    ]


def derived_status(chats: list[Json]) -> int:
    """The low bits of a session whose chats are these."""
    statuses = [chat["status"] & LOW_BITS for chat in chats]
    for status, shown in ((24, 24), (8, 8), (2, 2)):
        if any(held & status == status for held in statuses):
            return shown
    return 1


def difference(one: Any, other: Any, at: str = "") -> str:
    """Where two JSON values first differ, for a person."""
    if isinstance(one, dict) and isinstance(other, dict):
        for key in sorted(one.keys() | other.keys()):
            if key not in one or key not in other:
                return f"{at}.{key}: only {'here' if key in one else 'there'}"
            if not same_json(one[key], other[key]):
                return difference(one[key], other[key], f"{at}.{key}")
    if isinstance(one, list) and isinstance(other, list):
        if len(one) != len(other):
            return f"{at}: {len(one)} here, {len(other)} there"
        for index, (left, right) in enumerate(zip(one, other, strict=True)):
            if not same_json(left, right):
                return difference(left, right, f"{at}[{index}]")
    return f"{at}: {str(one)[:200]} here, {str(other)[:200]} there"


class Witness(AhpClient):
    """One connection. `again` makes the next one of the same client."""

    def __init__(self, socket: WebSocketConnection, client_id: str, book: Book) -> None:
        super().__init__(socket, client_id)
        self.book = book
        self.rows: dict[str, Json] | None = None
        """The list of sessions, kept by notifications; None before it was asked for."""
        self.sent: dict[int, str] = {}
        """The channel of every dispatch, by its number."""
        self.heard: Counter[int] = Counter()
        """How many envelopes answered each."""
        self.unsure: set[int] = set()
        """Dispatches whose answers may have been lost with an earlier connection."""
        self._last_answer: dict[str, int] = {}

    def law(self, holds: bool, broken: str) -> None:
        if not holds:
            self.book.faults.append(f"{self.client_id}: {broken}")

    # -- what is sent -----------------------------------------------------------------

    async def dispatch(self, channel: str, action: Json) -> int:
        seq = next(self._client_seqs)
        self.sent[seq] = channel
        params = {"channel": channel, "clientSeq": seq, "action": action}
        await self.send({"jsonrpc": "2.0", "method": "dispatchAction", "params": params})
        return seq

    def unanswered(self) -> list[int]:
        """The dispatches that must be answered and are not yet."""
        return [
            seq
            for seq, channel in self.sent.items()
            if channel in self.states and seq not in self.unsure and not self.heard[seq]
        ]

    # -- what is received -------------------------------------------------------------

    def take(self, message: Json) -> None:
        try:
            super().take(message)
            if message.get("method", "action") != "action":
                self._notified(message["method"], message["params"])
        except Exception:
            self.law(False, f"{str(message)[:300]}\n{traceback.format_exc()}")

    def apply(self, envelope: Json) -> None:
        self.envelopes.append(envelope)
        channel, action, seq = envelope["channel"], envelope["action"], envelope["serverSeq"]
        said = f"{action.get('type')} on {channel} at {seq}"
        origin = envelope.get("origin")
        mine = origin is not None and origin["clientId"] == self.client_id
        self.law(envelope.keys() <= ENVELOPE and type(seq) is int, f"{said}: {envelope.keys()}")
        self.law(seq >= self.last_seq, f"{said}: {self.last_seq} was there before")
        if mine:
            self._answers_one(origin["clientSeq"], said)
        if "rejectionReason" in envelope:
            self.law(mine, f"{said}: another client's refusal")
        else:
            wrong = check_action(action)
            self.law(wrong is None, f"{said} is not well formed: {wrong}")
            self._reduce(channel, action, seq, said, mine)
        self.last_seq = max(self.last_seq, seq)

    def _answers_one(self, client_seq: int, said: str) -> None:
        self.heard[client_seq] += 1
        channel = self.sent.get(client_seq)
        self.law(channel is not None, f"{said}: nobody sent action {client_seq}")
        self.law(self.heard[client_seq] == 1, f"{said}: action {client_seq} is answered twice")
        if channel is not None:
            before = self._last_answer.get(channel, 0)
            self.law(client_seq > before, f"{said}: {client_seq} is answered after {before}")
            self._last_answer[channel] = max(before, client_seq)

    def _reduce(self, channel: str, action: Json, seq: int, said: str, mine: bool) -> None:
        before = self.states.get(channel)
        if before is None:
            self.law(mine, f"{said}: nobody here is subscribed to it")
            return
        after = REDUCERS[family_of(channel)](before, action)
        if after is before:
            self.law(mine, f"{said} changes nothing and is not this client's own")
            return
        self.law(seq > self.last_seq, f"{said}: a number that was there before")
        known = self.book.spent.setdefault(seq, (channel, action))
        self.law(
            known[0] == channel and same_json(known[1], action),
            f"{said}: the number was spent on {known}",
        )
        if family_of(channel) == "chat":
            self._turn_laws(before, action, after, said)
        self.states[channel] = after
        if action["type"] == "session/chatRemoved":
            self.states.pop(action["chat"], None)

    def _turn_laws(self, before: Json, action: Json, after: Json, said: str) -> None:
        kind = action["type"]
        if kind in ("chat/turnStarted", "chat/turnResume", "chat/truncated"):
            self.law("activeTurn" not in before, f"{said}: while a turn runs")
        if kind in ENDINGS:
            running = before.get("activeTurn", {}).get("id")
            self.law(running == action["turnId"], f"{said}: {running} is running")
            still = list(waiting_in(before))
            self.law(not still, f"{said}: it ends while this waits on a person: {still}")
        ids = [turn["id"] for turn in after["turns"]]
        ids += [after["activeTurn"]["id"]] if "activeTurn" in after else []
        self.law(len(ids) == len(set(ids)), f"{said}: a turn twice in {ids}")
        for turn in after["turns"]:
            self.law(not open_in(turn), f"{said}: open under the ended {turn['id']}")

    def _notified(self, method: str, params: Json) -> None:
        if method == "root/sessionRemoved":
            self._forget_session(params["session"])
        if self.rows is None:
            return
        if method == "root/sessionAdded":
            self.rows[params["summary"]["resource"]] = params["summary"]
        elif method == "root/sessionRemoved":
            self.rows.pop(params["session"], None)
        elif method == "root/sessionSummaryChanged":
            changes = params["changes"]
            self.law(bool(changes), "a summary's change without changes")
            identity = {"resource", "provider", "createdAt"} & changes.keys()
            self.law(not identity, f"a summary's change names {identity}")
            row = self.rows.get(params["session"])
            self.law(row is not None, f"a change of {params['session']}, which is not listed")
            if row is not None:
                self.rows[params["session"]] = {**row, **changes}

    def _forget_session(self, uri: str) -> None:
        held = self.states.pop(uri, None)
        for row in held["chats"] if held is not None else ():
            self.states.pop(row["resource"], None)

    # -- looking ----------------------------------------------------------------------

    async def look(self) -> None:
        """Holds what there is to hold, and every fresh snapshot against what was reduced."""
        await self.request("listSessions", then=self._hold_list_against)
        for uri in list(self.rows or ()):
            if uri not in self.states:
                await self._ask(uri, self._hold_answer)
            for row in list(self.states.get(uri, {}).get("chats", ())):
                if row["resource"] not in self.states:
                    await self._ask(row["resource"], self._hold_answer)
        for channel in list(self.states):
            if channel in self.states:
                await self._ask(channel, self._hold_against)

    async def _ask(self, channel: str, then: Any) -> None:
        try:
            await self.request("subscribe", channel=channel, then=then)
        except Refused as refused:
            self.law(refused.code in (-32001, -32008), f"subscribing to {channel}: {refused}")
            self.law(channel not in self.states, f"{channel} is gone and nobody said so")

    def _hold_answer(self, result: Json) -> None:
        snapshot = result["snapshot"]
        self.hold(snapshot)
        self.book.snapshots.append((family_of(snapshot["resource"]), snapshot["state"]))

    def _hold_against(self, result: Json) -> None:
        snapshot = result["snapshot"]
        channel, fresh = snapshot["resource"], snapshot["state"]
        family, held = family_of(channel), self.states[channel]
        self.book.snapshots.append((family, fresh))
        if family == "session":
            self._session_laws(channel, fresh)
            held = {**held, "status": held["status"] & ~LOW_BITS}
            fresh = {**fresh, "status": fresh["status"] & ~LOW_BITS}
        self.law(
            same_json(held, fresh),
            f"reduced (here) and fresh (there) {channel}{difference(held, fresh)}",
        )
        if family == "chat":
            shown = {1: "idle", 2: "error", 8: "running", 24: "waiting"}
            self.book.seen[shown[fresh["status"] & LOW_BITS]] += 1
            self.book.seen.update(kind for kind, _, _ in waiting_in(fresh))
            for turn in fresh["turns"]:
                self.law(not open_in(turn), f"{channel}: open under the ended {turn['id']}")
        self.last_seq = max(self.last_seq, snapshot["fromSeq"])

    def _session_laws(self, channel: str, fresh: Json) -> None:
        chats = [self.states.get(row["resource"]) for row in fresh["chats"]]
        held = [chat for chat in chats if chat is not None]
        if len(held) < len(chats):
            return
        self.book.seen["further chat"] += len(held) > 1
        status = fresh["status"] & LOW_BITS
        self.law(status == derived_status(held), f"{channel} has status {status}")
        for row, chat in zip(fresh["chats"], held, strict=True):
            projected = {key: chat[key] for key in ROW if key in chat}
            self.law(same_json(row, projected), f"row{difference(row, projected)}")
        self.law(fresh.get("inputNeeded") != [], f"{channel}: inputNeeded is empty, not absent")
        asked = [
            (chat["resource"], kind, ident, what)
            for chat in held
            for kind, ident, what in waiting_in(chat)
        ]
        self._needed_laws(channel, fresh.get("inputNeeded", []), asked)
        shown = {chat["resource"]: chat["activity"] for chat in held if chat.get("activity")}
        activity = shown.get(fresh.get("defaultChat")) or next(iter(shown.values()), None)
        self.law(fresh.get("activity") == activity, f"{channel} says {fresh.get('activity')}")

    def _needed_laws(self, channel: str, needed: list[Json], asked: list[Any]) -> None:
        ids = [entry["id"] for entry in needed]
        self.law(len(ids) == len(set(ids)), f"{channel}: an id twice in {ids}")
        said = [
            (entry["chat"], entry["kind"], entry.get("toolCall") or entry["request"])
            for entry in needed
        ]
        for chat, kind, ident, what in asked:
            found = any(one[:2] == (chat, kind) and same_json(one[2], what) for one in said)
            self.law(found, f"{channel}: {kind} {ident} of {chat} is not in inputNeeded")
        self.law(len(said) == len(asked), f"{channel} needs {ids}, chats ask {len(asked)}")

    def _hold_list_against(self, result: Json) -> None:
        items = {row["resource"]: row for row in result["items"]}
        self.law(len(items) == len(result["items"]), "a session is listed twice")
        moments = [row["modifiedAt"] for row in result["items"]]
        self.law(moments == sorted(moments, reverse=True), f"not newest first: {moments}")
        if self.rows is not None:
            told, listed = _without_empty(self.rows), _without_empty(items)
            self.law(
                same_json(told, listed), f"told (here) and listed (there){difference(told, listed)}"
            )
        self.rows = items
        for uri, row in items.items():
            held = self.states.get(uri)
            if held is not None and all(one["resource"] in self.states for one in held["chats"]):
                chats = [self.states[one["resource"]] for one in held["chats"]]
                status = (held["status"] & ~LOW_BITS) | derived_status(chats)
                self.law(row["status"] == status, f"{uri} is listed with status {row['status']}")
                for key in ("title", "activity"):
                    same = (row.get(key) or "") == (held.get(key) or "")
                    self.law(same, f"{uri}: its {key} is listed as {row.get(key)}")

    # -- connections ------------------------------------------------------------------

    def take_up(self, result: Json) -> None:
        """What a `reconnect` answers, taken on top of what the earlier connection held."""
        if result["type"] == "replay":
            for uri in result["missing"]:
                if uri in self.states and family_of(uri) == "session":
                    self._forget_session(uri)
                self.states.pop(uri, None)
            numbers = [envelope["serverSeq"] for envelope in result["actions"]]
            self.law(numbers == sorted(set(numbers)), f"replayed out of order: {numbers}")
            for envelope in result["actions"]:
                self.apply(envelope)
        else:
            self.states = {one["resource"]: one["state"] for one in result["snapshots"]}
            self.last_seq = max([self.last_seq, *(one["fromSeq"] for one in result["snapshots"])])


def _without_empty(rows: dict[str, Json]) -> Json:
    """A summary's change has no word for absent: an empty value stands for it."""
    return {
        uri: {key: value for key, value in row.items() if value not in ("", [], {})}
        for uri, row in rows.items()
    }


class Seat:
    """One client of a run, over as many connections as it takes.

    Args:
        nursery: its connections live in it.
        url: the host's.
    """

    def __init__(self, nursery: trio.Nursery, url: str, client_id: str, book: Book) -> None:
        self._nursery = nursery
        self._url = url
        self._client_id = client_id
        self._book = book
        self._stream: trio.SocketStream | None = None
        self.witness: Witness = None  # type: ignore[assignment]  # there after `sit`

    async def sit(self) -> None:
        """The first connection."""
        await self._connect()
        await self.witness.initialize(initialSubscriptions=[ROOT_URI])

    async def cut(self) -> None:
        """Tears the connection: no closing handshake, no word."""
        assert self._stream is not None
        await trio.aclose_forcefully(self._stream)

    async def come_back(self) -> str:
        """Connects again with the last number seen; answers how the gap was filled."""
        before = self.witness
        await self._connect()
        after = self.witness
        after.states, after.last_seq = before.states, before.last_seq
        after.sent, after.heard = before.sent, before.heard
        after.unsure = before.unsure | {seq for seq in before.sent if not before.heard[seq]}
        after._last_answer, after._client_seqs = before._last_answer, before._client_seqs
        result: Json = await after.request(
            "reconnect",
            then=after.take_up,
            clientId=self._client_id,
            lastSeenServerSeq=before.last_seq,
            subscriptions=list(before.states),
        )
        return str(result["type"])

    async def _connect(self) -> None:
        url = urlsplit(self._url)
        assert url.hostname is not None and url.port is not None
        self._stream = await trio.open_tcp_stream(url.hostname, url.port)
        resource = f"{url.path}?{url.query}"
        socket = await wrap_client_stream(
            self._nursery, self._stream, url.hostname, resource, max_message_size=64 * 1024 * 1024
        )
        self.witness = Witness(socket, self._client_id, self._book)
        self._nursery.start_soon(self.witness.read)


#: Ids that no run uses twice.
FRESH = itertools.count(1)
