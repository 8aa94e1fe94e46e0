"""The law: whoever reduces what it is sent holds, at every step, what a fresh snapshot says.

Random runs against a live host: real workers, real sockets, two clients. They
talk, queue, steer, cancel, answer, send what is wrong, set and forget; agents
stream, ask, fail, die and break rules; workers are killed and connections torn.
What is held at every step stands in `law_witness`.

AHPD_LAW_EXAMPLES sets how many runs there are, AHPD_LAW_SEED repeats a seed that
was printed, AHPD_LAW_SHRINK=1 looks for the smallest run that breaks a law. Many
runs take longer than pytest lets one test: add `-o faulthandler_timeout=0`.
"""

import json
import os
import random
import shutil
import signal
import tempfile
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import hypothesis
import pytest
import trio
from attrs import frozen
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from ahp_client import PATIENCE_S, Refused, turn_started
from ahpd.contracts.ahp.uris import chat_uri
from law_witness import FRESH, Book, Seat, Witness, open_in, waiting_in
from live_host import LiveHost, live_host

Json = dict[str, Any]

EXAMPLES = int(os.environ.get("AHPD_LAW_EXAMPLES", "30"))
SEED = int(os.environ.get("AHPD_LAW_SEED", random.randrange(2**32)))
PHASES = [Phase.explicit, Phase.generate]
if os.environ.get("AHPD_LAW_SHRINK"):
    PHASES.append(Phase.shrink)

#: What the fresh snapshots of all runs showed, and how gaps were filled.
SEEN: Counter[str] = Counter()

#: How long one run may take, from its first to its last step.
RUN_S = 120.0

COMMANDS = st.sampled_from(
    [
        *["stream 6", "stream 30", "think", "tool", "tool", "ask", "ask"] * 2,
        *["tools", "free", "review", "pause 0.1", "stream 2; wait", "title By the agent"],
        *["activity busy", "activity", "work", "unwork", "meta more", "own"],
        *["steering refuse", "steering take", "subagent", "subagent ask", "subagent wait"],
        *[
            "subagent leave",
            "park",
            "end",
            "end error",
            "end twice",
            "end timeless",
            "end cancelled",
        ],
        *["fail", "exit 3", "signal SIGKILL", "hang 0.2", "deaf"],
        *["break order", "break turn", "break said-back", "break shape", "break channel"],
        "break twice",
    ]
)
SCRIPTS = st.lists(COMMANDS, min_size=1, max_size=3).map("; ".join)

WRONG = [
    {"type": "chat/unheardOf"},
    {"type": "chat/delta", "turnId": "t", "partId": "p", "content": "not mine to say"},
    {"type": "chat/turnStarted", "turnId": "t"},
    {"type": "chat/turnCancelled", "turnId": "never", "duration": 1},
    {"type": "chat/turnCancelled", "turnId": "never", "duration": True},
    {"type": "chat/toolCallConfirmed", "turnId": "never", "toolCallId": "c", "approved": True},
    {"type": "chat/inputCompleted", "requestId": "never", "response": "accept"},
    {"type": "chat/pendingMessageRemoved", "kind": "queued", "id": "never"},
    {"type": "session/titleChanged", "title": "on a chat"},
    {"type": "session/chatRemoved", "chat": "ahp-chat:/x"},
    {"type": "root/configChanged", "config": {"a": 1}},
    {"type": "chat/truncated", "turnId": "never"},
    {"type": "chat/changesetsChanged", "changesets": []},
    {"no": "type"},
]


@frozen
class Op:
    """One step: what is done, by which client, on the how-manieth of what there is."""

    name: str
    who: int
    pick: int
    more: Any
    rest_s: float | None
    """How long everybody looks on before the laws are held; None: until something came of it."""


#: What may be done: how often beside the others, and what it needs to be told.
DOING: dict[str, tuple[int, st.SearchStrategy[Any]]] = {
    "say": (8, SCRIPTS),
    "answer": (5, st.sampled_from(["yes", "yes", "no", "edited", "unheard of"])),
    "cancel": (3, st.sampled_from([True, True, True, False])),
    "queue": (3, SCRIPTS),
    "crash": (2, st.none()),
    "tear": (2, st.sampled_from([0.0, 0.1])),
    "create_chat": (2, st.none() | SCRIPTS),
    "steer": (1, SCRIPTS),
    "unqueue": (1, st.none()),
    "reorder": (1, st.none()),
    "draft": (1, st.sampled_from(["a draft", None])),
    "draft_answer": (1, st.sampled_from(["Ada", None])),
    "config": (1, st.sampled_from(["glad", "no", "why", "slow", 5])),
    "title": (1, st.sampled_from(["By a person", "By another"])),
    "flag": (1, st.booleans()),
    "folder": (1, st.sampled_from(["/a", "/b", "/no", "/slow"])),
    "tools": (1, st.booleans()),
    "truncate": (1, st.booleans()),
    "resume": (1, st.none()),
    "wrong": (1, st.sampled_from(WRONG)),
    "dispose_chat": (1, st.none()),
    "new_session": (1, st.none()),
}
NAMES = [name for name, (times, _) in DOING.items() for _ in range(times)]


@st.composite
def op(draw: st.DrawFn) -> Op:
    """One step; `one_of` would not count how often a strategy stands in it."""
    name = draw(st.sampled_from(NAMES))
    return Op(
        name=name,
        who=draw(st.integers(0, 1)),
        pick=draw(st.integers(0, 7)),
        more=draw(DOING[name][1]),
        rest_s=draw(st.sampled_from([0.0, 0.02, None, None])),
    )


class Run:
    """One random run and the state it needs to choose from."""

    def __init__(self, live: LiveHost, seats: list[Seat], book: Book) -> None:
        self.live = live
        self.seats = seats
        self.book = book

    def witness(self, who: int) -> Witness:
        return self.seats[who].witness

    async def begin(self) -> None:
        for seat in self.seats:
            await seat.sit()
        await self.do_new_session(self.witness(0), Op("new_session", 0, 0, None, 0))
        for seat in self.seats:
            await seat.witness.look()
        uri, _ = self.session(self.witness(0), 0) or ("", {})
        await self.witness(0).until(
            lambda: self.witness(0).states[uri]["lifecycle"] == "ready", what="session/ready"
        )

    async def step(self, op: Op) -> None:
        doing: Callable[[Witness, Op], Awaitable[None]] = getattr(self, f"do_{op.name}")
        await doing(self.witness(op.who), op)
        if op.rest_s is None:
            await self.quiet()
        else:
            await trio.sleep(op.rest_s)
        for seat in self.seats:
            await seat.witness.look()

    async def quiet(self) -> None:
        """Until every running turn has said something and nothing new comes, for a while."""
        with trio.move_on_after(0.8):
            before = -1
            while True:
                states = [state for seat in self.seats for _, state in self.chats(seat.witness)]
                silent = any(
                    not state["activeTurn"]["responseParts"]
                    for state in states
                    if "activeTurn" in state
                )
                after = sum(len(seat.witness.envelopes) for seat in self.seats)
                if after == before and not silent:
                    return
                before = after
                await trio.sleep(0.03)

    async def end(self) -> None:
        """Everything that runs is cancelled; then all is answered, settled and ended."""
        one = self.witness(0)
        with trio.move_on_after(PATIENCE_S):
            while running := [
                (chat, state["activeTurn"]["id"])
                for chat, state in self.chats(one)
                if "activeTurn" in state
            ]:
                for chat, turn_id in running:
                    action = {"type": "chat/turnCancelled", "turnId": turn_id, "duration": 1}
                    await one.act(chat, action)
                await trio.sleep(0.02)
                await one.look()
        one.law(not running, f"turns that nothing ends: {running}")
        for seat in self.seats:
            witness = seat.witness
            await witness.until(lambda w=witness: not w.unanswered(), what="every answer")
            left = [(seq, witness.sent[seq]) for seq in witness.unanswered()]
            witness.law(not left, f"never answered: {left}")
            await witness.look()
            for chat, state in self.chats(witness):
                witness.law("activeTurn" not in state, f"{chat} runs")
                witness.law(state["status"] & 31 in (1, 2), f"{chat}: {state['status']}")
                ended = [part for turn in state["turns"] for part in open_in(turn)]
                witness.law(not ended, f"{chat}: open under an ended turn: {ended}")

    # -- choosing ---------------------------------------------------------------------

    def chats(self, witness: Witness) -> list[tuple[str, Json]]:
        return [(uri, held) for uri, held in witness.states.items() if "turns" in held]

    def chat(self, witness: Witness, pick: int) -> tuple[str, Json] | None:
        held = self.chats(witness)
        return held[pick % len(held)] if held else None

    def session(self, witness: Witness, pick: int) -> tuple[str, Json] | None:
        held = [(uri, state) for uri, state in witness.states.items() if "lifecycle" in state]
        return held[pick % len(held)] if held else None

    async def on_chat(self, witness: Witness, op: Op, action: Json) -> None:
        chosen = self.chat(witness, op.pick)
        if chosen is not None:
            await witness.dispatch(chosen[0], action)

    async def on_session(self, witness: Witness, op: Op, action: Json) -> None:
        chosen = self.session(witness, op.pick)
        if chosen is not None:
            await witness.dispatch(chosen[0], action)

    async def parked(self, witness: Witness, pick: int) -> tuple[str, Json, Any] | None:
        """Something that waits on a person; given a moment to appear."""
        with trio.move_on_after(0.5):
            while True:
                held = [
                    (chat, state, what)
                    for chat, state in self.chats(witness)
                    for what in waiting_in(state)
                ]
                if held:
                    return held[pick % len(held)]
                if not any("activeTurn" in state for _, state in self.chats(witness)):
                    return None
                await trio.sleep(0.02)
        return None

    # -- what is done -----------------------------------------------------------------

    async def do_say(self, witness: Witness, op: Op) -> None:
        chosen = self.chat(witness, op.pick)
        if chosen is not None:
            await witness.dispatch(chosen[0], turn_started(f"t{next(FRESH)}", op.more))

    async def do_queue(self, witness: Witness, op: Op) -> None:
        await self.pending(witness, op, "queued")

    async def do_steer(self, witness: Witness, op: Op) -> None:
        await self.pending(witness, op, "steering")

    async def pending(self, witness: Witness, op: Op, kind: str) -> None:
        message = {"text": op.more, "origin": {"kind": "user"}}
        named = {"kind": kind, "id": f"m{next(FRESH)}", "message": message}
        await self.on_chat(witness, op, {"type": "chat/pendingMessageSet", **named})

    async def do_unqueue(self, witness: Witness, op: Op) -> None:
        for chat, state in self.chats(witness):
            for queued in state.get("queuedMessages", ())[:1]:
                named = {"kind": "queued", "id": queued["id"]}
                await witness.dispatch(chat, {"type": "chat/pendingMessageRemoved", **named})

    async def do_reorder(self, witness: Witness, op: Op) -> None:
        for chat, state in self.chats(witness):
            order = [queued["id"] for queued in state.get("queuedMessages", ())]
            action = {"type": "chat/queuedMessagesReordered", "order": order[::-1]}
            await witness.dispatch(chat, action)

    async def do_cancel(self, witness: Witness, op: Op) -> None:
        for chat, state in self.chats(witness):
            turn = state.get("activeTurn")
            if turn is not None:
                turn_id = turn["id"] if op.more else "another"
                named = {"turnId": turn_id, "duration": op.pick}
                await witness.dispatch(chat, {"type": "chat/turnCancelled", **named})

    async def do_answer(self, witness: Witness, op: Op) -> None:
        found = await self.parked(witness, op.pick)
        if found is None:
            return
        chat, state, (kind, ident, what) = found
        if kind == "chatInput":
            answers = {
                "must": {"state": "submitted", "value": {"kind": "text", "value": "Ada"}},
            }
            action = {"type": "chat/inputCompleted", "requestId": ident}
            action |= {"response": "decline" if op.more == "no" else "accept"}
            action |= {"answers": answers} if op.more == "yes" else {}
        else:
            named = {"turnId": state["activeTurn"]["id"], "toolCallId": ident}
            if what["status"] == "pending-result-confirmation":
                approved = op.more != "no"
                action = {"type": "chat/toolCallResultConfirmed", **named, "approved": approved}
            elif op.more == "no":
                action = {"type": "chat/toolCallConfirmed", **named}
                action |= {"approved": False, "reason": "denied"}
            else:
                action = {"type": "chat/toolCallConfirmed", **named}
                action |= {"approved": True, "confirmed": "user-action"}
                action |= {"editedToolInput": '{"a":2}'} if op.more == "edited" else {}
                action |= {"selectedOptionId": "never"} if op.more == "unheard of" else {}
        await witness.dispatch(chat, action)

    async def do_draft_answer(self, witness: Witness, op: Op) -> None:
        found = await self.parked(witness, op.pick)
        if found is None or found[2][0] != "chatInput":
            return
        action = {"type": "chat/inputAnswerChanged", "requestId": found[2][1], "questionId": "must"}
        if op.more is not None:
            value = {"kind": "text", "value": op.more}
            action["answer"] = {"state": "draft", "value": value}
        await witness.dispatch(found[0], action)

    async def do_draft(self, witness: Witness, op: Op) -> None:
        draft = {"text": op.more, "origin": {"kind": "user"}}
        members = {"draft": draft} if op.more is not None else {}
        await self.on_chat(witness, op, {"type": "chat/draftChanged", **members})

    async def do_config(self, witness: Witness, op: Op) -> None:
        key = "level" if op.pick == 0 else "mood"
        action = {"type": "session/configChanged", "config": {key: op.more}}
        await self.on_session(witness, op, action)

    async def do_title(self, witness: Witness, op: Op) -> None:
        await self.on_session(witness, op, {"type": "session/titleChanged", "title": op.more})

    async def do_flag(self, witness: Witness, op: Op) -> None:
        flag = "isRead" if op.pick % 2 else "isArchived"
        on = self.on_session if op.pick < 4 else self.on_chat
        family = "session" if op.pick < 4 else "chat"
        await on(witness, op, {"type": f"{family}/{flag}Changed", flag: op.more})

    async def do_folder(self, witness: Witness, op: Op) -> None:
        on, family = (self.on_session, "session") if op.pick < 3 else (self.on_chat, "chat")
        change = "Removed" if op.pick in (0, 4) else "Set"
        action = {
            "type": f"{family}/workingDirectory{change}",
            "directory": f"file:///tmp{op.more}",
        }
        await on(witness, op, action)

    async def do_tools(self, witness: Witness, op: Op) -> None:
        if op.more:
            client = {"clientId": witness.client_id, "tools": [{"name": f"tool{op.pick}"}]}
            action: Json = {"type": "session/activeClientSet", "activeClient": client}
        else:
            owner = witness.client_id if op.pick else "somebody else"
            action = {"type": "session/activeClientRemoved", "clientId": owner}
        await self.on_session(witness, op, action)

    async def do_truncate(self, witness: Witness, op: Op) -> None:
        for chat, state in self.chats(witness):
            turns = state["turns"]
            named = {"turnId": turns[op.pick % len(turns)]["id"]} if op.more and turns else {}
            await witness.dispatch(chat, {"type": "chat/truncated", **named})

    async def do_resume(self, witness: Witness, op: Op) -> None:
        for chat, state in self.chats(witness):
            for turn in state["turns"][-1:]:
                await witness.dispatch(chat, {"type": "chat/turnResume", "turnId": turn["id"]})

    async def do_wrong(self, witness: Witness, op: Op) -> None:
        channels = list(witness.states)
        await witness.dispatch(channels[op.pick % len(channels)], op.more)

    async def do_create_chat(self, witness: Witness, op: Op) -> None:
        chosen = self.session(witness, op.pick)
        if chosen is None:
            return
        params: Json = {"chat": chat_uri(f"further-{next(FRESH)}")}
        if op.more is not None:
            params["initialMessage"] = {"text": op.more, "origin": {"kind": "user"}}
        try:
            await witness.request("createChat", channel=chosen[0], **params)
        except Refused as refused:
            witness.law(refused.code in (-32001, -32602), f"createChat: {refused}")

    async def do_dispose_chat(self, witness: Witness, op: Op) -> None:
        chosen = self.chat(witness, op.pick)
        if chosen is not None:
            await witness.request("disposeChat", channel=chosen[0])

    async def do_new_session(self, witness: Witness, op: Op) -> None:
        """A second session, or in the place of the one there is."""
        chosen = self.session(witness, 0)
        if op.pick > 4 and chosen is not None:
            await witness.request("disposeSession", channel=chosen[0])
        uri = f"ahp-session:/law-{next(FRESH)}"
        await witness.request("createSession", channel=uri, provider="scripted")

    async def do_crash(self, witness: Witness, op: Op) -> None:
        """SIGKILL to a worker: its turn ends by itself, or goes to the next worker."""
        lives = [
            (chat, chat.conversation)
            for chat in self.live.host.chats.values()
            if chat.conversation is not None and chat.conversation.process is not None
        ]
        if not lives:
            return
        chat, conversation = lives[op.pick % len(lives)]
        process, turn_id, uri = conversation.process, chat.turn_id, chat.channel.uri
        assert process is not None
        try:
            os.kill(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            return  # It had just ended by itself.

        def over() -> bool:
            shown = witness.states.get(uri, {}).get("activeTurn", {}).get("id")
            return shown != turn_id or chat.conversation not in (None, conversation)

        if turn_id is not None:
            await witness.until(over, what=f"the end of {turn_id}, whose worker was killed")

    async def do_tear(self, witness: Witness, op: Op) -> None:
        """Tears a client's connection; it comes back after a while with its last number."""
        seat, other = self.seats[op.who], self.witness(1 - op.who)
        await seat.cut()
        title = {"type": "session/titleChanged", "title": f"Title {next(FRESH)}"}
        await self.on_session(other, op, title)
        await self.do_say(other, Op("say", 0, op.pick, "stream 3; activity busy", None))
        await trio.sleep(op.more)
        self.book.seen[await seat.come_back()] += 1
        await seat.witness.request("listSessions", then=seat.witness._hold_list_against)


async def run(live: LiveHost, ops: list[Op]) -> Book:
    """One run from beginning to end; answers what was seen, and what broke."""
    book = Book()
    with trio.fail_after(RUN_S):
        async with trio.open_nursery() as nursery:
            names = [f"{name}-{next(FRESH)}" for name in ("one", "two")]
            seats = [Seat(nursery, live.url, name, book) for name in names]
            this = Run(live, seats, book)
            try:
                await this.begin()
                for op in ops:
                    await this.step(op)
                    if book.faults:
                        break
                else:
                    await this.end()
            finally:
                for session in list(live.host.sessions.values()):
                    live.host.dispose_session(session)
            nursery.cancel_scope.cancel()
    return book


LIMITS: Json = {"cancel_grace_s": 0.3, "kill_grace_s": 0.3, "sessions_per_minute": 10_000}
AGENTS = {"scripted": "fixture_scripted:scripted"}


class SharedHost:
    """A host in a thread of its own, for runs that come from where no trio runs."""

    def __init__(self) -> None:
        self._there = threading.Event()
        self._over: trio.Event | None = None
        self._live: LiveHost | None = None
        self._token: trio.lowlevel.TrioToken | None = None
        self._fault: BaseException | None = None
        self._thread = threading.Thread(target=self._main, name="shared host")

    def __enter__(self) -> "SharedHost":
        self._thread.start()
        self._there.wait()
        return self

    def __exit__(self, *raised: object) -> None:
        if self._token is not None and self._over is not None:
            self._token.run_sync_soon(self._over.set)
        self._thread.join()
        if self._fault is not None:
            raise self._fault

    def run(self, ops: list[Op]) -> Book:
        """One run on it."""
        if self._live is None or self._fault is not None:
            raise RuntimeError("the host is gone") from self._fault
        return trio.from_thread.run(run, self._live, ops, trio_token=self._token)

    def _main(self) -> None:
        try:
            trio.run(self._serve)
        except BaseException as fault:
            self._fault = fault
        finally:
            self._there.set()

    async def _serve(self) -> None:
        state_dir = Path(tempfile.mkdtemp(prefix="ahpd-", dir="/tmp"))
        try:
            async with live_host(state_dir, AGENTS, **LIMITS) as self._live:
                self._over = trio.Event()
                self._token = trio.lowlevel.current_trio_token()
                self._there.set()
                await self._over.wait()
        finally:
            shutil.rmtree(state_dir, ignore_errors=True)


@pytest.fixture(scope="module")
def shared_host() -> Iterator[SharedHost]:
    with SharedHost() as host:
        yield host


@hypothesis.seed(SEED)
@settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=False,
    database=None,
    phases=PHASES,
    suppress_health_check=list(HealthCheck),
)
@given(ops=st.lists(op(), min_size=8, max_size=12))
def test_the_old_snapshot_reduced_by_the_envelopes_is_the_fresh_one(
    shared_host: SharedHost, ops: list[Op]
) -> None:
    print(f"AHPD_LAW_SEED={SEED}")
    book = shared_host.run(ops)
    assert not book.faults, "\n".join(book.faults[:5])
    SEEN.update(book.seen)
    for family, state in book.snapshots:
        fits_schema(family, state)


def test_the_law_is_held_against_what_it_is_about(shared_host: SharedHost) -> None:
    """A law that nothing was held against proves nothing: each kind of thing, by script."""
    ops = [
        Op("say", 0, 0, "stream 2", None),
        Op("say", 0, 0, "tool", None),
        Op("answer", 1, 0, "yes", None),
        Op("say", 1, 0, "ask", None),
        Op("answer", 0, 0, "yes", None),
        Op("say", 0, 0, "stream 1; wait", None),
        Op("cancel", 0, 0, True, None),
        Op("say", 0, 0, "fail", None),
        Op("tear", 1, 0, 0.1, None),
    ]
    book = shared_host.run(ops)
    assert not book.faults, "\n".join(book.faults[:5])
    print(dict(book.seen), dict(SEEN))
    wanted = {"idle", "running", "error", "replay", "toolConfirmation", "chatInput"}
    assert wanted <= book.seen.keys() | SEEN.keys(), f"never seen: {wanted - book.seen.keys()}"


async def test_a_gap_that_is_held_no_longer_is_filled_with_snapshots(state_dir: Path) -> None:
    def tear(who: int) -> Op:
        return Op("tear", who, 0, 1.5, 0)

    ops = [
        # While nothing waits on a person the other one's turn goes on meanwhile: a wide gap.
        tear(0),
        Op("say", 0, 0, "stream 30; tool", None),
        tear(1),
        Op("answer", 0, 0, "yes", 0.1),
        Op("say", 0, 0, "stream 9; ask", 0),
        tear(1),
        Op("title", 1, 0, "By a person", 0),
        tear(0),
    ]
    async with live_host(state_dir, AGENTS, replay_events=1, **LIMITS) as live:
        book = await run(live, ops)
    assert not book.faults, "\n".join(book.faults[:5])
    assert book.seen["snapshot"], dict(book.seen)


# -- the protocol's own schema --------------------------------------------------------

SCHEMA = Path(os.environ.get("AHP_DATA") or Path(__file__).parents[1] / ".." / "shared" / "ahp")
SHAPES = {"root": "RootState", "session": "SessionState", "chat": "ChatState"}


@cache
def validator(family: str) -> Draft202012Validator | None:
    """What the protocol says of a snapshot; None where its data is not at hand."""
    path = SCHEMA / "schema" / "state.schema.json"
    if not path.is_file():
        return None
    definitions = json.loads(path.read_text())["$defs"]
    return Draft202012Validator(
        {"$defs": definitions, "$ref": f"#/$defs/{SHAPES[family]}"},
    )


def fits_schema(family: str, state: Json) -> None:
    """Fails on a snapshot that the protocol would call wrong."""
    held = validator(family)
    fault = None if held is None else next(held.iter_errors(state), None)
    assert fault is None, f"{family} at {list(fault.absolute_path)}: {fault.message[:500]}"
