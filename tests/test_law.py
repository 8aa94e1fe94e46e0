"""The law: whoever reduces what it is sent holds, at every step, what a fresh snapshot says.

Random runs against a live host: real workers, real sockets, two clients. They
talk, queue, steer, cancel, answer, send what is wrong, set and forget; agents
stream, ask, fail, die and break rules; workers are killed and connections torn.
What is held at every step stands in `law_witness`.

AHPD_LAW_EXAMPLES sets how many runs there are, AHPD_LAW_SEED repeats a seed that
was printed, AHPD_LAW_SHRINK=1 looks for the smallest run that breaks a law.
"""

import json
import os
import random
import shutil
import signal
import tempfile
from collections.abc import Awaitable, Callable
from functools import cache
from pathlib import Path
from typing import Any

import hypothesis
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

EXAMPLES = int(os.environ.get("AHPD_LAW_EXAMPLES", "25"))
SEED = int(os.environ.get("AHPD_LAW_SEED", random.randrange(2**32)))
PHASES = [Phase.explicit, Phase.generate]
if os.environ.get("AHPD_LAW_SHRINK"):
    PHASES.append(Phase.shrink)

#: How long one run may take, from its first to its last step.
RUN_S = 120.0

COMMANDS = st.sampled_from(
    [
        *["stream 6", "stream 30", "think", "tool", "ask"] * 2,
        *["tools", "free", "review", "pause 0.1", "wait", "title By the agent"],
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
    rest_s: float


def op(name: str, more: st.SearchStrategy[Any] | None = None) -> st.SearchStrategy[Op]:
    return st.builds(
        Op,
        name=st.just(name),
        who=st.integers(0, 1),
        pick=st.integers(0, 7),
        more=st.none() if more is None else more,
        rest_s=st.sampled_from([0.0, 0.0, 0.02, 0.1]),
    )


OPS = st.one_of(
    *[op("say", SCRIPTS)] * 5,
    *[op("answer", st.sampled_from(["yes", "yes", "no", "edited", "unheard of"]))] * 3,
    *[op("cancel", st.sampled_from([True, True, True, False]))] * 2,
    *[op("queue", SCRIPTS)] * 2,
    op("steer", SCRIPTS),
    op("unqueue"),
    op("reorder"),
    op("draft", st.sampled_from(["a draft", None])),
    op("draft_answer", st.sampled_from(["Ada", None])),
    op("config", st.sampled_from(["glad", "no", "why", "slow", 5])),
    op("title", st.sampled_from(["By a person", "By another"])),
    op("flag", st.booleans()),
    op("folder", st.sampled_from(["/a", "/b", "/no", "/slow"])),
    op("tools", st.booleans()),
    op("truncate", st.booleans()),
    op("resume"),
    op("wrong", st.sampled_from(WRONG)),
    op("create_chat", st.none() | SCRIPTS),
    op("dispose_chat"),
    op("new_session"),
    *[op("crash")] * 2,
    *[op("tear", st.sampled_from([0.0, 0.1]))] * 2,
)


class Run:
    """One random run and the state it needs to choose from."""

    def __init__(self, live: LiveHost, seats: list[Seat], book: Book) -> None:
        self.live = live
        self.seats = seats
        self.book = book
        self.ways: set[str] = set()

    def witness(self, who: int) -> Witness:
        return self.seats[who].witness

    async def begin(self) -> None:
        for seat in self.seats:
            await seat.sit()
        await self.do_new_session(self.witness(0), Op("new_session", 0, 0, None, 0))
        for seat in self.seats:
            await seat.witness.look()

    async def step(self, op: Op) -> None:
        doing: Callable[[Witness, Op], Awaitable[None]] = getattr(self, f"do_{op.name}")
        await doing(self.witness(op.who), op)
        await trio.sleep(op.rest_s)
        for seat in self.seats:
            await seat.witness.look()

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
        """SIGKILL to a worker."""
        workers = [
            chat.conversation.process.pid
            for chat in self.live.host.chats.values()
            if chat.conversation is not None and chat.conversation.process is not None
        ]
        if workers:
            try:
                os.kill(workers[op.pick % len(workers)], signal.SIGKILL)
            except ProcessLookupError:
                pass  # It had just ended by itself.

    async def do_tear(self, witness: Witness, op: Op) -> None:
        """Tears a client's connection; it comes back after a while with its last number."""
        seat = self.seats[op.who]
        await seat.cut()
        await trio.sleep(op.more)
        self.ways.add(await seat.come_back())
        await seat.witness.request("listSessions", then=seat.witness._hold_list_against)


async def run(ops: list[Op], **bounds: Any) -> Run:
    """One run from beginning to end; answers it, with what broke in its book."""
    state_dir = Path(tempfile.mkdtemp(prefix="ahpd-", dir="/tmp"))
    book = Book()
    limits = {"cancel_grace_s": 0.3, "kill_grace_s": 0.3, "sessions_per_minute": 1000, **bounds}
    try:
        with trio.fail_after(RUN_S):
            async with (
                live_host(state_dir, {"scripted": "fixture_scripted:scripted"}, **limits) as live,
                trio.open_nursery() as nursery,
            ):
                seats = [Seat(nursery, live.url, name, book) for name in ("one", "two")]
                this = Run(live, seats, book)
                await this.begin()
                for op in ops:
                    await this.step(op)
                    if book.faults:
                        break
                else:
                    await this.end()
                nursery.cancel_scope.cancel()
    finally:
        shutil.rmtree(state_dir, ignore_errors=True)
    return this


@hypothesis.seed(SEED)
@settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=False,
    database=None,
    phases=PHASES,
    suppress_health_check=list(HealthCheck),
)
@given(ops=st.lists(OPS, min_size=8, max_size=14))
def test_the_old_snapshot_reduced_by_the_envelopes_is_the_fresh_one(ops: list[Op]) -> None:
    print(f"AHPD_LAW_SEED={SEED}")
    done = trio.run(run, ops)
    assert not done.book.faults, "\n".join(done.book.faults[:5])
    for family, state in done.book.snapshots:
        fits_schema(family, state)


def test_a_gap_that_is_held_no_longer_is_filled_with_snapshots() -> None:
    def tear(who: int) -> Op:
        return Op("tear", who, 0, 0.3, 0)

    ops = [
        Op("say", 0, 0, "stream 30; tool", 0.1),
        tear(1),
        Op("answer", 0, 0, "yes", 0.1),
        Op("say", 0, 0, "stream 9; ask", 0),
        tear(1),
        Op("title", 1, 0, "By a person", 0),
        tear(0),
    ]
    done = trio.run(lambda: run(ops, replay_events=1))
    assert not done.book.faults, "\n".join(done.book.faults[:5])
    assert "snapshot" in done.ways


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
