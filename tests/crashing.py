"""Crashing: a host is killed at any moment, again and again, and everything it told is there after.

A writer drives several sessions and holds what it was told, as the reducers make
it. The supervisor is killed with SIGKILL, now and then told to stop, and started
again on the same state directory; `broken_promises` compares what was told with
what is there. After a stop it is exactly that. As a
program (`crashing.py --times N --seed N`) it is the long form: scripts/crash.
"""

import argparse
import os
import random
import re
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import trio
from attrs import define, field
from trio_websocket import ConnectionClosed, WebSocketConnection, open_websocket_url

from ahp_client import AhpClient, Refused, connect
from ahpd.contracts.ahp.reducers import reduce_chat
from ahpd.supervisor.store.upkeep import check_database
from cli_host import FIXTURE_AGENTS, CliHost

Json = dict[str, Any]

SCRIPTED = "scripted=fixture_scripted:scripted"
SESSIONS = 3

#: Streamed text that was told so long before the kill has to be there: the flush window,
#: and what a loaded machine takes for a commit beside it.
LAG_S = 1.0

SCRIPTS = (
    "stream 40",
    "think; stream 8; free",
    "stream 4; tool; stream 4",
    "tools",
    "ask",
    "review; stream 3",
    "subagent",
    "subagent ask",
    "title Another name; stream 2",
    "fail",
    "stream 400; tool; stream 400",
)


@define(eq=False)
class Told:
    """What a client was told of one chat: its state, and the state that it held a while ago."""

    session: str
    chat: str
    state: Json
    past: Json
    recent: list[tuple[float, Json]] = field(factory=list)

    def hear(self, action: Json, at_s: float) -> None:
        self.state = reduce_chat(self.state, action)
        self.recent.append((at_s, action))
        self.forget(at_s)

    def forget(self, now_s: float) -> None:
        """Actions that were told longer ago than `LAG_S` become the past."""
        while self.recent and self.recent[0][0] < now_s - LAG_S:
            self.past = reduce_chat(self.past, self.recent.pop(0)[1])


class Writer(AhpClient):
    """A client that notes what it is told, and does what people do."""

    def __init__(self, socket: WebSocketConnection, client_id: str, rng: random.Random) -> None:
        super().__init__(socket, client_id)
        self.rng = rng
        self.told: dict[str, Told] = {}
        self.titles: dict[str, str] = {}
        self.disposed: list[str] = []
        self.count = 0

    def apply(self, envelope: Json) -> None:
        super().apply(envelope)
        if "rejectionReason" in envelope:
            return
        told = self.told.get(envelope["channel"])
        if told is not None:
            told.hear(envelope["action"], trio.current_time())
        action = envelope["action"]
        if action["type"] == "session/titleChanged":
            self.titles[envelope["channel"]] = action["title"]

    def name(self, what: str) -> str:
        self.count += 1
        return f"{what}-{self.client_id}-{self.count}"

    async def open(self, session: str) -> Told:
        """Subscribes to a session and its default chat."""
        state = await self.subscribe(session)
        chat: str = state["defaultChat"]
        snapshot = await self.subscribe(chat)
        # What came between the snapshot and now was told too.
        self.told[chat] = Told(session, chat, self.states[chat], snapshot)
        return self.told[chat]

    async def work(self, told: Told) -> None:
        """One person at one chat, until the connection breaks."""
        await self.do_turn(told)
        while True:
            await getattr(self, f"do_{self.rng.choice(DOINGS)}")(told)
            await self.answer(told)
            await trio.sleep(self.rng.random() * 0.05)

    async def do_turn(self, told: Told) -> None:
        if "activeTurn" not in told.state:
            await self.start_turn(told.chat, self.name("turn"), self.rng.choice(SCRIPTS))

    async def do_queue(self, told: Told) -> None:
        message = {"text": self.rng.choice(SCRIPTS), "origin": {"kind": "user"}}
        if len(told.state.get("queuedMessages", [])) < 4:
            queued = {"kind": "queued", "id": self.name("queued"), "message": message}
            await self.act(told.chat, {"type": "chat/pendingMessageSet", **queued})

    async def do_draft(self, told: Told) -> None:
        draft = {"text": self.name("draft"), "origin": {"kind": "user"}}
        await self.act(told.chat, {"type": "chat/draftChanged", "draft": draft})

    async def do_title(self, told: Told) -> None:
        title = {"type": "session/titleChanged", "title": self.name("title")}
        await self.act(told.session, title)

    async def do_cancel(self, told: Told) -> None:
        if "activeTurn" in told.state and self.rng.random() < 0.3:
            named = {"turnId": told.state["activeTurn"]["id"], "duration": 1}
            await self.act(told.chat, {"type": "chat/turnCancelled", **named})

    async def do_short(self, told: Told) -> None:
        """A session that comes and goes."""
        uri = f"ahp-session:/{self.name('short')}"
        await self.request("createSession", channel=uri, provider="scripted")
        if self.rng.random() < 0.7:
            await self.request("disposeSession", channel=uri)
            self.disposed.append(uri)
        else:
            self.titles.setdefault(uri, "")

    async def answer(self, told: Told) -> None:
        """Answers some of what waits on a person."""
        turn = told.state.get("activeTurn")
        for part in turn["responseParts"] if turn is not None else []:
            if self.rng.random() < 0.4:
                continue
            call = part.get("toolCall", {})
            named = {"turnId": turn["id"], "toolCallId": call.get("toolCallId")}
            if call.get("status") == "pending-confirmation":
                said = {"approved": True, "confirmed": "user-action"}
                await self.act(told.chat, {"type": "chat/toolCallConfirmed", **named, **said})
            elif call.get("status") == "pending-result-confirmation":
                said = {"type": "chat/toolCallResultConfirmed", "approved": True}
                await self.act(told.chat, {**said, **named})
            elif part["kind"] == "inputRequest" and "response" not in part:
                answers = {"must": {"state": "submitted", "value": {"kind": "text", "value": "me"}}}
                done = {"type": "chat/inputCompleted", "requestId": part["request"]["id"]}
                await self.act(told.chat, {**done, "response": "accept", "answers": answers})


DOINGS = ("turn",) * 6 + ("queue",) * 3 + ("draft", "title", "cancel", "short")


class Crashing:
    """A host that is killed again and again, and what was told before."""

    def __init__(self, state_dir: Path, seed: int) -> None:
        self.state_dir = state_dir
        self.rng = random.Random(seed)
        self.lives = 0
        self.seen_seq = 0
        self.told: dict[str, Told] = {}
        self.titles: dict[str, str] = {}
        self.disposed: list[str] = []
        self.stopped = False
        """Whether the last life was told to stop, and took its time to."""
        self.heard = 0
        self.cut_off = 0

    def host(self) -> CliHost:
        return CliHost(self.state_dir, "--agent-path", FIXTURE_AGENTS, "--agent", SCRIPTED)

    async def one_life(self) -> list[str]:
        """Starts, looks whether everything is there, works, is killed. Answers what is broken."""
        self.lives += 1
        with self.host() as host:
            async with connect(host.ahp, f"reader-{self.lives}") as reader:
                broken = [text async for text in self.broken_promises(reader)]
            if not broken:
                await self.until_killed(host)
        return [*broken, *(f"database: {fault}" for fault in check_database(self.database))]

    @property
    def database(self) -> Path:
        return self.state_dir / "state.db"

    async def until_killed(self, host: CliHost) -> None:
        async with writing(host.ahp, f"writer.{self.lives}", self.rng) as writer:
            await writer.initialize(initialSubscriptions=["ahp-root://"])
            names = [told.session for told in self.told.values()] or [
                f"ahp-session:/crash-{number}" for number in range(SESSIONS)
            ]
            for uri in names:
                if not self.told:
                    await writer.request("createSession", channel=uri, provider="scripted")
                await writer.open(uri)
                if self.lives == 1:
                    # From here on it is worth being killed.
                    await writer.until(lambda uri=uri: writer.states[uri]["lifecycle"] == "ready")
            writer.titles |= self.titles
            after_s = self.rng.choice((0.3, 2, 4)) * self.rng.random()
            with trio.move_on_after(30):
                async with trio.open_nursery() as nursery:
                    for told in list(writer.told.values()):
                        nursery.start_soon(until_broken, writer, told)
                    await trio.sleep(after_s)
                    self.stopped = self.rng.random() < 0.2
                    os.kill(host.pid, signal.SIGTERM if self.stopped else signal.SIGKILL)
                    killed_s = trio.current_time()
                    while writer.closed is None:  # noqa: ASYNC110  # the socket's end
                        await trio.sleep(0.005)
                    nursery.cancel_scope.cancel()
            for told in writer.told.values():
                told.forget(killed_s)
                self.cut_off += "activeTurn" in told.state
            self.heard += len(writer.envelopes)
            self.seen_seq = writer.last_seq
            self.told, self.titles = writer.told, writer.titles
            self.disposed += writer.disposed

    # -- what was promised ------------------------------------------------------------

    async def broken_promises(self, client: AhpClient) -> Any:
        """What is not as it was told, a sentence each."""
        result = await client.initialize(initialSubscriptions=["ahp-root://"])
        if result["serverSeq"] <= self.seen_seq:
            yield f"serverSeq went from {self.seen_seq} to {result['serverSeq']}"
        listed = await client.request("listSessions")
        rows = {row["resource"]: row for row in listed["items"]}
        for uri in self.disposed:
            if uri in rows:
                yield f"{uri} was disposed of and is listed"
        for uri in self.titles:
            if uri not in rows and uri not in self.disposed:
                yield f"{uri} was created and is not listed"
        for told in self.told.values():
            session = await client.subscribe(told.session)
            state = await client.subscribe(told.chat)
            if self.stopped and state != told.state:
                yield f"{told.chat} was {told.state} when it was stopped, and is {state}"
            if session.get("inputNeeded"):
                yield f"{told.chat}: something is parked: {session['inputNeeded']}"
            if session["status"] & 31 not in (1, 2):
                yield f"{told.session} has the status {session['status']}"
            title = self.titles.get(told.session, "")
            if rank(session["title"]) < rank(title):
                yield f"{told.session}: the title {title} became {session['title']}"
            for text in lost_of_chat(told, state):
                yield f"{told.chat}: {text}"


async def until_broken(writer: Writer, told: Told) -> None:
    try:
        await writer.work(told)
    except ConnectionClosed:
        return
    except Refused as error:
        if "The host is stopping" not in str(error):
            raise
    except AssertionError:
        if writer.closed is None:
            raise


@asynccontextmanager
async def writing(url: str, client_id: str, rng: random.Random) -> AsyncIterator[Writer]:
    async with open_websocket_url(url, max_message_size=64 * 1024 * 1024) as socket:
        writer = Writer(socket, client_id, rng)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(writer.read)
            yield writer
            nursery.cancel_scope.cancel()


def rank(text: str) -> tuple[int, int]:
    """Where a writer's name stands in the order of its names, over all lives."""
    found = re.fullmatch(r"\w+-writer\.(\d+)-(\d+)", text)
    return (int(found[1]), int(found[2])) if found is not None else (0, 0)


def lost_of_chat(told: Told, kept: Json) -> Iterator[str]:
    """What a client was told of a chat and is not there after the host was killed."""
    if "activeTurn" in kept:
        yield f"the turn {kept['activeTurn']['id']} still runs"
    turns = {turn["id"]: turn for turn in kept["turns"]}
    if len(turns) != len(kept["turns"]):
        yield "a turn is there twice"
    ids = [turn["id"] for turn in told.state["turns"]]
    if [turn["id"] for turn in kept["turns"]][: len(ids)] != ids:
        yield f"the turns {ids} are {[turn['id'] for turn in kept['turns']]}"
    for turn in told.state["turns"]:
        if turns.get(turn["id"]) != turn:
            yield f"the ended turn is another: {turn} became {turns.get(turn['id'])}"
    running = told.state.get("activeTurn")
    if running is not None:
        ended = turns.get(running["id"])
        past = told.past.get("activeTurn")
        if ended is None:
            yield f"the turn {running['id']} was running and is not there"
        else:
            same = past is not None and past["id"] == ended["id"]
            yield from lost_of_turn(running, past if same else None, ended)
    queued = [one["id"] for one in told.state.get("queuedMessages", [])]
    there = [one["id"] for one in kept.get("queuedMessages", [])]
    # A message may have begun a turn, or another have come, that nobody was told of any more.
    begun = len(kept["turns"]) - len(ids) - (running is not None)
    if [one for one in queued[max(0, begun) :] if one not in there]:
        yield f"the queue {queued} became {there}, and {begun} turns more began"
    draft, now = (state.get("draft", {}).get("text", "") for state in (told.state, kept))
    if rank(now) < rank(draft):
        yield f"the draft {draft} became {now}"


def lost_of_turn(running: Json, past: Json | None, ended: Json) -> Iterator[str]:
    """What was told of a turn that ran, and is not in the turn that ended."""
    if ended["message"] != running["message"]:
        yield f"the message {running['message']} became {ended['message']}"
    parts = ended["responseParts"]
    for number, part in enumerate(running["responseParts"]):
        held = past["responseParts"] if past is not None else []
        old = held[number] if number < len(held) else None
        if number >= len(parts):
            if old is not None:
                yield f"the part {old} is gone"
            continue
        there = parts[number]
        if part["kind"] in ("markdown", "reasoning"):
            if part["kind"] == there["kind"] and part["id"] == there["id"]:
                shorter, longer = sorted((part["content"], there["content"]), key=len)
                if not longer.startswith(shorter):
                    yield f"the text {part['content']!r} became {there['content']!r}"
            if old is not None and not there.get("content", "").startswith(old["content"]):
                yield f"the text {old['content']!r} became {there.get('content')!r}"
        elif part["kind"] == "toolCall":
            call, now = part["toolCall"], there.get("toolCall", {})
            if call["toolCallId"] != now.get("toolCallId"):
                yield f"the call {call} became {there}"
            elif call["status"] in ("completed", "cancelled") and now["status"] != call["status"]:
                yield f"the call {call['toolCallId']} was {call['status']}, is {now['status']}"
            elif now["status"] not in ("completed", "cancelled"):
                yield f"the call {call['toolCallId']} is left {now['status']}"
        elif part["kind"] == "inputRequest":
            if part["request"]["id"] != there.get("request", {}).get("id"):
                yield f"the question {part} became {there}"
            elif "response" in part and part["response"] != there.get("response"):
                yield f"the answered question {part} became {there}"
            elif "response" not in there:
                yield f"the question {there['request']['id']} is open"


async def crash(state_dir: Path, times: int, seed: int) -> Crashing:
    """Raises AssertionError with the first life in which something told is not there."""
    crashing = Crashing(state_dir, seed)
    for _ in range(times + 1):
        broken = await crashing.one_life()
        assert not broken, f"seed {seed}, life {crashing.lives}: " + "; ".join(broken)[:4000]
    return crashing


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/crash", description=__doc__)
    parser.add_argument("--times", type=int, default=200, help="how often it is killed")
    parser.add_argument("--seed", type=int, default=None, help="of the run that is repeated")
    given = parser.parse_args()
    seed = given.seed if given.seed is not None else random.SystemRandom().randrange(10**6)
    print(f"seed {seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="ahpd-", dir="/tmp") as folder:
        try:
            done = trio.run(crash, Path(folder), given.times, seed)
        except AssertionError as error:
            print(f"broken: {error}")
            return 1
    said = f"{done.heard} envelopes were told, {done.cut_off} turns cut off"
    print(f"killed {given.times} times, {said}: everything that was told was there")
    return 0


if __name__ == "__main__":
    sys.exit(main())
