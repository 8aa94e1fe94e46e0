"""The chat's turn machine: its table, and each cell of "A turn always ends" in a live host.

(What a host finds after it was itself killed is in `test_restart`.)
"""

import os
import signal
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from ahp_client import AhpClient, text_of, turn_started
from ahpd.supervisor.sessions.turns import TABLE, Happening, Phase, Step
from live_host import LiveHost, live_host

Json = dict[str, Any]
SCRIPTED = {"scripted": "fixture_scripted:scripted"}

ENDS = {Step.END_AS_CANCELLED, Step.END_AS_SAID, Step.END_AS_DIED, Step.END_AS_INTERRUPTED}
ENDING = {
    Happening.CANCEL,
    Happening.COMPLETED,
    Happening.FAILED,
    Happening.WORKER_DIED,
    Happening.KILLED,
    Happening.HOST_STOPS,
    Happening.RESTORED,
}
#: Where in its cell a step may stand: settle, end, the queue, the worker, the catalogue.
RANK: Mapping[Step, int] = {
    Step.SETTLE_PARKED: 0,
    **dict.fromkeys(ENDS, 1),
    Step.LIFT_PAUSE: 2,
    Step.PAUSE_QUEUE: 2,
    Step.DRAIN_QUEUE: 3,
    Step.BEGIN_TURN: 3,
    Step.TELL_CANCEL: 4,
    Step.FORGET_WORKER: 4,
    Step.END_WORKER: 4,
    Step.CLOSE_WORKER: 4,
    Step.REMOVE_CHAT: 5,
    Step.REFUSE: 0,
    Step.DROP: 0,
}
CELLS = [(happening, phase) for happening in Happening for phase in Phase]


def cell_id(value: Happening | Phase) -> str:
    return value.name.lower()


# -- the table ------------------------------------------------------------------------


def test_every_happening_has_an_answer_in_every_phase() -> None:
    assert TABLE.keys() == set(Happening)
    for happening in Happening:
        assert TABLE[happening].keys() == set(Phase), happening
        assert all(TABLE[happening].values()), f"{happening}: an empty answer"
    assert RANK.keys() == set(Step), "each step has its place in the order"


@pytest.mark.parametrize(("happening", "phase"), CELLS, ids=cell_id)
def test_what_is_parked_settles_then_the_turn_ends_then_the_queue_moves(
    happening: Happening, phase: Phase
) -> None:
    steps = TABLE[happening][phase]
    ranks = [RANK[step] for step in steps]
    assert ranks == sorted(ranks)
    assert len(steps) == len(set(steps)), "a step twice"
    ends = [step for step in steps if step in ENDS]
    if happening in ENDING and phase is not Phase.IDLE:
        assert len(ends) == 1, "a running turn ends, once"
    else:
        assert not ends, "nothing else ends a turn"
    assert (Step.SETTLE_PARKED in steps) == (happening in ENDING and phase is Phase.WAITING)
    if Step.REFUSE in steps or Step.DROP in steps:
        assert len(steps) == 1, "what is refused or dropped does nothing else"


@pytest.mark.parametrize("happening", Happening, ids=cell_id)
def test_waiting_on_a_person_differs_by_the_settling_alone(happening: Happening) -> None:
    running, waiting = TABLE[happening][Phase.RUNNING], TABLE[happening][Phase.WAITING]
    assert tuple(step for step in waiting if step is not Step.SETTLE_PARKED) == running


def test_only_a_completed_turn_drains_the_queue_and_every_other_ending_pauses_it() -> None:
    for happening in ENDING:
        for phase in (Phase.RUNNING, Phase.WAITING):
            steps = TABLE[happening][phase]
            assert (Step.DRAIN_QUEUE in steps) == (happening is Happening.COMPLETED)
            removed = Step.REMOVE_CHAT in steps
            paused = Step.PAUSE_QUEUE in steps
            assert paused == (happening is not Happening.COMPLETED and not removed), happening


# -- a live chat ----------------------------------------------------------------------


class Scene:
    """One chat of the scripted agent, and two clients that watch it."""

    def __init__(self, live: LiveHost, one: AhpClient, two: AhpClient, uris: tuple[str, str]):
        self.live, self.one, self.two = live, one, two
        self.session, self.chat = uris

    @property
    def state(self) -> Json:
        return self.one.states[self.chat]

    def said(self, client: AhpClient | None = None) -> list[str]:
        """What happened on the chat, as that client saw it, in short."""
        return [
            action["type"].removeprefix("chat/")
            for action in (client or self.one).actions(self.chat)
        ]

    async def parked(self, count: int = 1) -> None:
        await self.one.until(
            lambda: len(self.one.states[self.session].get("inputNeeded", [])) >= count,
            what="what waits on a person",
        )

    async def started(self) -> None:
        """The running turn is with the agent: it has said something."""
        await self.one.until(
            lambda: self.state.get("activeTurn", {}).get("responseParts"), what="a first part"
        )

    async def queue(self, ident: str, text: str) -> Json:
        message = {"text": text, "origin": {"kind": "user"}}
        named = {"kind": "queued", "id": ident, "message": message}
        return await self.one.act(self.chat, {"type": "chat/pendingMessageSet", **named})

    async def cancel(self, turn_id: str = "t1") -> Json:
        action = {"type": "chat/turnCancelled", "turnId": turn_id, "duration": 3}
        return await self.one.act(self.chat, action)

    def queued(self) -> list[str]:
        return [message["id"] for message in self.state.get("queuedMessages", [])]

    def worker(self) -> int:
        conversation = self.live.host.session_at(self.session).default_chat.conversation
        assert conversation is not None and conversation.process is not None
        return conversation.process.pid

    def log(self) -> str:
        return "\n".join(path.read_text() for path in self.live.host.state_dir.glob("logs/*.log"))

    async def gone(self, pid: int) -> None:
        with trio.fail_after(10):
            while os.path.exists(f"/proc/{pid}"):  # noqa: ASYNC110, ASYNC240  # no event tells it
                await trio.sleep(0.02)


@asynccontextmanager
async def scene(state_dir: Path, **bounds: Any) -> AsyncIterator[Scene]:
    """A host with a session of the scripted agent, and two clients that see it."""
    limits = {"cancel_grace_s": 0.4, "kill_grace_s": 0.4, **bounds}
    with trio.fail_after(60):
        async with live_host(state_dir, SCRIPTED, **limits) as live:
            one, two = await live.client("one"), await live.client("two")
            uris = await live.session(one, "scripted")
            await two.subscribe(uris[0])
            await two.subscribe(uris[1])
            yield Scene(live, one, two, uris)


def order(said: list[str], *wanted: str) -> None:
    """Those happened in that order, each once."""
    assert [kind for kind in said if kind in wanted] == list(wanted), said


# message


async def test_a_message_while_idle_begins_a_turn(state_dir: Path) -> None:
    async with scene(state_dir) as it:
        turn = await it.one.say(it.chat, "t1", "stream 3")
        assert (turn["state"], text_of(turn)) == ("complete", "w0 w1 w2 ")
        assert type(turn["duration"]) is int
        await it.queue("m1", "stream 1")
        await it.one.until(lambda: len(it.state["turns"]) == 2, what="the queued turn")
        assert it.queued() == []


async def test_a_message_while_running_is_queued_or_steers(state_dir: Path) -> None:
    async with scene(state_dir) as it:
        await it.one.start_turn(it.chat, "t1", "stream 1; until_steered")
        await it.started()
        refused = await it.one.act(it.chat, turn_started("t2", "stream 1"))
        assert refused["rejectionReason"] == "a turn is running"
        assert "rejectionReason" not in await it.queue("m1", "stream 2")
        assert it.queued() == ["m1"]
        message = {"text": "left", "origin": {"kind": "user"}}
        steering = {"kind": "steering", "id": "s1", "message": message}
        await it.one.act(it.chat, {"type": "chat/pendingMessageSet", **steering})
        ended = await it.one.ended(it.chat, "t1")
        assert "steered: left" in text_of(ended)
        await it.one.until(
            lambda: len(it.state["turns"]) == 2 and "activeTurn" not in it.state,
            what="the queued turn",
        )
        # The agent took the steering message and ended its turn in the same breath:
        # the message does not begin a turn as well.
        assert [turn["message"]["text"] for turn in it.state["turns"]][1:] == ["stream 2"]
        assert "steeringMessage" not in it.state and it.queued() == []


async def test_a_message_while_waiting_on_a_person_is_queued(state_dir: Path) -> None:
    async with scene(state_dir) as it:
        await it.one.start_turn(it.chat, "t1", "tool")
        await it.parked()
        assert "rejectionReason" in await it.one.act(it.chat, turn_started("t2", "x"))
        await it.queue("m1", "stream 1")
        assert it.queued() == ["m1"]
        assert len(it.one.states[it.session]["inputNeeded"]) == 1


async def test_what_the_agent_did_not_take_as_steering_begins_the_next_turn(
    state_dir: Path,
) -> None:
    async with scene(state_dir) as it:
        await it.one.start_turn(it.chat, "t1", "steering refuse; stream 1; pause 0.3")
        await it.started()
        message = {"text": "stream 4", "origin": {"kind": "user"}}
        steering = {"kind": "steering", "id": "s1", "message": message}
        await it.one.act(it.chat, {"type": "chat/pendingMessageSet", **steering})
        assert it.state["steeringMessage"]["id"] == "s1"
        await it.queue("m1", "stream 5")
        await it.one.until(lambda: len(it.state["turns"]) == 3, what="both")
        asked = [turn["message"]["text"] for turn in it.state["turns"]]
        assert asked[1:] == ["stream 4", "stream 5"]


# cancel


async def test_a_cancel_while_idle_is_refused(state_dir: Path) -> None:
    async with scene(state_dir) as it:
        assert (await it.cancel("never"))["rejectionReason"] == "no turn is running"


async def test_a_cancel_while_running_ends_the_turn_at_once_for_every_client(
    state_dir: Path,
) -> None:
    async with scene(state_dir, cancel_grace_s=30) as it:
        await it.one.start_turn(it.chat, "t1", "stream 1; hang 1")
        await it.started()
        began = trio.current_time()
        await it.cancel()
        for client in (it.one, it.two):
            assert (await client.ended(it.chat, "t1"))["state"] == "cancelled"
        assert trio.current_time() - began < 0.9, "it waited for the agent"
        # A new turn is accepted at once and goes to the worker once it heard of the cancel.
        worker = it.worker()
        turn = await it.one.say(it.chat, "t2", "stream 2")
        assert text_of(turn) == "w0 w1 " and it.worker() == worker


async def test_a_worker_that_does_not_hear_a_cancel_is_replaced_within_the_grace(
    state_dir: Path,
) -> None:
    async with scene(state_dir) as it:
        await it.one.say(it.chat, "t0", "stream 1")
        worker = it.worker()
        await it.one.start_turn(it.chat, "t1", "stream 1; hang")
        await it.started()
        await it.cancel()
        turn = await it.one.say(it.chat, "t2", "recall")
        assert text_of(turn).startswith("scripted:"), "what the agent called it: `resume`"
        assert "['t0', 't1'" in text_of(turn), "the turns so far: `seed`"
        await it.gone(worker)


async def test_late_words_for_a_cancelled_turn_are_nobodys(state_dir: Path) -> None:
    async with scene(state_dir, cancel_grace_s=0.6) as it:
        await it.one.start_turn(it.chat, "t1", "stream 1; deaf")
        await it.started()
        await it.cancel()
        await it.one.start_turn(it.chat, "t2", "stream 1")
        turn = await it.one.ended(it.chat, "t2")
        assert text_of(turn) == "w0 "
        cancelled = await it.one.ended(it.chat, "t1")
        assert cancelled["state"] == "cancelled"
        assert "turn-id-matches" not in it.log(), "what it goes on saying is not held against it"


async def test_a_cancel_while_waiting_settles_before_it_ends(state_dir: Path) -> None:
    async with scene(state_dir) as it:
        await it.one.start_turn(it.chat, "t1", "park; wait")
        await it.parked(2)
        await it.cancel()
        for client in (it.one, it.two):
            turn = await client.ended(it.chat, "t1")
            order(it.said(client), "toolCallConfirmed", "inputCompleted", "turnCancelled")
            call, question = turn["responseParts"]
            assert (call["toolCall"]["status"], call["toolCall"]["reason"]) == (
                "cancelled",
                "skipped",
            )
            assert question["response"] == "cancel"
        await it.two.until(lambda: "inputNeeded" not in it.two.states[it.session])


# the agent finishes


async def test_an_ending_while_idle_is_dropped_and_logged(state_dir: Path) -> None:
    async with scene(state_dir) as it:
        await it.one.say(it.chat, "t1", "end twice")
        await it.one.say(it.chat, "t2", "stream 1")
        assert it.said().count("turnComplete") == 2
        assert "one-ending" in it.log()


async def test_a_completed_turn_drains_the_queue_in_order(state_dir: Path) -> None:
    async with scene(state_dir) as it:
        await it.one.start_turn(it.chat, "t1", "stream 1; pause 0.3")
        for number in range(3):
            await it.queue(f"m{number}", f"stream {number + 1}")
        await it.one.until(lambda: len(it.state["turns"]) == 4, what="all of them")
        asked = [turn["message"]["text"] for turn in it.state["turns"]]
        assert asked[1:] == ["stream 1", "stream 2", "stream 3"]
        order(it.said()[-5:], "pendingMessageRemoved", "turnStarted", "turnComplete")
        starts = [a for a in it.one.actions(it.chat) if a["type"] == "chat/turnStarted"]
        assert [start.get("queuedMessageId") for start in starts] == [None, "m0", "m1", "m2"]


async def test_finishing_while_something_waits_settles_it_first(state_dir: Path) -> None:
    async with scene(state_dir) as it:
        turn = await it.one.say(it.chat, "t1", "park; end")
        assert turn["state"] == "complete"
        order(it.said(), "toolCallConfirmed", "inputCompleted", "turnComplete")
        await it.one.until(lambda: "inputNeeded" not in it.one.states[it.session])


async def test_an_ending_without_its_duration_is_mended_by_our_clock(state_dir: Path) -> None:
    async with scene(state_dir) as it:
        turn = await it.one.say(it.chat, "t1", "pause 0.2; end timeless")
        assert type(turn["duration"]) is int and turn["duration"] >= 190
        assert "duration-required" in it.log()


async def test_an_exception_ends_the_turn_with_what_it_said(state_dir: Path) -> None:
    async with scene(state_dir) as it:
        turn = await it.one.say(it.chat, "t1", "fail out of cheese")
        error = turn["responseParts"][-1]["error"]
        assert (turn["state"], error["message"]) == ("error", "out of cheese")
        assert it.state["status"] & 31 == 2


# the worker dies


async def test_a_worker_that_died_while_idle_is_no_news(state_dir: Path) -> None:
    async with scene(state_dir) as it:
        await it.one.say(it.chat, "t1", "stream 1")
        worker, before = it.worker(), it.said()
        kill(worker)
        await it.gone(worker)
        turn = await it.one.say(it.chat, "t2", "recall")
        assert "['t1']" in text_of(turn) and it.worker() != worker
        assert it.said()[len(before)] == "turnStarted"


async def test_a_worker_that_dies_ends_the_turn_and_says_how(state_dir: Path) -> None:
    async with scene(state_dir) as it:
        await it.one.start_turn(it.chat, "t1", "stream 1; print no more paper; pause 0.2; exit 7")
        await it.queue("m1", "stream 1")
        for client in (it.one, it.two):
            turn = await client.ended(it.chat, "t1")
            error = turn["responseParts"][-1]["error"]
            assert turn["state"] == "error" and error["errorType"] == "workerDied"
            assert "status 7" in error["message"] and "no more paper" in error["message"]
        assert it.queued() == ["m1"], "the queue is kept"
        assert "activeTurn" not in it.state, "and paused"


async def test_a_dead_worker_does_nothing_any_more(state_dir: Path) -> None:
    async with scene(state_dir) as it:
        turn = await it.one.say(it.chat, "t1", "activity Reading; exit 3")
        assert turn["state"] == "error"

        def is_over() -> bool:
            session = it.one.states[it.session]
            shown = [it.one.states[it.chat], session, *session["chats"]]
            return all("activity" not in state for state in shown)

        await it.one.until(is_over, what="the end of the activity, everywhere")


async def test_a_death_by_signal_is_named(state_dir: Path) -> None:
    async with scene(state_dir) as it:
        turn = await it.one.say(it.chat, "t1", "signal SIGSEGV")
        assert "SIGSEGV" in turn["responseParts"][-1]["error"]["message"]


async def test_a_death_while_waiting_settles_before_it_ends(state_dir: Path) -> None:
    async with scene(state_dir) as it:
        await it.one.start_turn(it.chat, "t1", "park; wait")
        await it.parked(2)
        kill(it.worker())
        turn = await it.two.ended(it.chat, "t1")
        order(it.said(it.two), "toolCallConfirmed", "inputCompleted", "error")
        assert "SIGKILL" in turn["responseParts"][-1]["error"]["message"]
        await it.two.until(lambda: "inputNeeded" not in it.two.states[it.session])


# kill


@pytest.mark.parametrize(
    ("script", "wanted"),
    [
        ("", ()),
        ("stream 1; wait", ("turnCancelled",)),
        ("park; wait", ("toolCallConfirmed", "inputCompleted", "turnCancelled")),
    ],
    ids=["idle", "running", "waiting"],
)
async def test_a_killed_chat_settles_ends_and_goes(
    state_dir: Path, script: str, wanted: tuple[str, ...]
) -> None:
    async with scene(state_dir) as it:
        if script:
            await it.one.start_turn(it.chat, "t1", script)
            await it.started()
            if "park" in script:
                await it.parked(2)
        worker = it.worker()
        await it.one.request("disposeChat", channel=it.chat)
        await it.two.until(
            lambda: any(note["method"] == "root/sessionRemoved" for note in it.two.notifications)
        )
        order(it.said(it.two), *(() if not script else ("turnStarted",)), *wanted)
        assert it.two.states[it.session]["chats"] == []
        await it.gone(worker)


# the host stops


@pytest.mark.parametrize(
    ("script", "wanted"),
    [
        ("stream 1; wait", ("error",)),
        ("park; wait", ("toolCallConfirmed", "inputCompleted", "error")),
    ],
    ids=["running", "waiting"],
)
async def test_a_host_that_stops_ends_turns_as_interrupted(
    state_dir: Path, script: str, wanted: tuple[str, ...]
) -> None:
    async with scene(state_dir) as it:
        await it.one.start_turn(it.chat, "t1", script)
        await it.queue("m1", "stream 1")
        await it.started()
        if "park" in script:
            await it.parked(2)
        worker = it.worker()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(it.live.host.stop)
            turn = await it.two.ended(it.chat, "t1")
        order(it.said(it.two), *wanted)
        assert turn["responseParts"][-1]["error"]["errorType"] == "interrupted"
        await it.gone(worker)


async def test_a_host_that_stops_closes_an_idle_worker(state_dir: Path) -> None:
    async with scene(state_dir) as it:
        await it.one.say(it.chat, "t1", "stream 1")
        worker, before = it.worker(), it.said()
        await it.live.host.stop()
        await it.gone(worker)
        assert it.said() == before


# the queue's one rule


@pytest.mark.parametrize("ending", ["cancel", "fail", "exit 3", "end cancelled", "end error"])
async def test_an_ending_that_is_no_completion_pauses_the_queue(
    state_dir: Path, ending: str
) -> None:
    async with scene(state_dir) as it:
        command = "wait" if ending == "cancel" else f"pause 0.2; {ending}"
        await it.one.start_turn(it.chat, "t1", f"stream 1; {command}")
        await it.queue("m1", "stream 1")
        await it.queue("m2", "stream 2")
        if ending == "cancel":
            await it.cancel()
        await it.one.ended(it.chat, "t1")
        assert it.queued() == ["m1", "m2"] and "activeTurn" not in it.state
        # A person's next message begins its turn, and the queue drains after it.
        await it.one.start_turn(it.chat, "t2", "stream 3")
        await it.one.until(lambda: len(it.state["turns"]) == 4, what="the whole queue")
        asked = [turn["message"]["text"] for turn in it.state["turns"]]
        assert asked[1:] == ["stream 3", "stream 1", "stream 2"]


async def test_queueing_lifts_the_pause_and_the_oldest_begins(state_dir: Path) -> None:
    async with scene(state_dir) as it:
        await it.one.start_turn(it.chat, "t1", "wait")
        await it.queue("m1", "stream 1")
        await it.cancel()
        await it.one.ended(it.chat, "t1")
        await it.queue("m2", "stream 2")
        await it.one.until(lambda: len(it.state["turns"]) == 3, what="both")
        asked = [turn["message"]["text"] for turn in it.state["turns"]]
        assert asked[1:] == ["stream 1", "stream 2"]


# what belongs to a turn


async def test_a_resumed_turn_loses_nothing_that_was_said_before_the_answer(
    state_dir: Path,
) -> None:
    async with scene(state_dir) as it:
        await it.one.say(it.chat, "t1", "stream 1; end error")
        await it.one.act(it.chat, {"type": "chat/turnResume", "turnId": "t1"})
        await it.one.until(lambda: it.said()[-1] == "turnComplete", what="the second ending")
        turn = it.state["turns"][-1]
        assert (turn["id"], turn["state"]) == ("t1", "complete")
        assert text_of(turn) == "w0 resumed"


async def test_a_subagents_turn_ends_with_its_parents(state_dir: Path) -> None:
    async with scene(state_dir) as it:
        await it.one.start_turn(it.chat, "t1", "subagent ask")
        await it.parked()
        helper = it.one.states[it.session]["inputNeeded"][0]["chat"]
        await it.two.subscribe(helper)
        assert it.two.states[helper]["interactivity"] == "read-only"
        refused = await it.two.act(helper, turn_started("mine", "stream 1"))
        assert "read-only" in refused["rejectionReason"]
        await it.cancel()
        await it.two.until(lambda: "activeTurn" not in it.two.states[helper])
        said = [action["type"].removeprefix("chat/") for action in it.two.actions(helper)]
        order(said, "inputCompleted", "turnCancelled")
        await it.one.until(lambda: it.one.states[it.session].get("inputNeeded") is None)
        assert (await it.one.snapshot(it.session))["status"] & 31 == 1


async def test_a_truncated_chat_goes_on_from_where_it_was_cut(state_dir: Path) -> None:
    async with scene(state_dir) as it:
        for number in (1, 2, 3):
            await it.one.say(it.chat, f"t{number}", "stream 1")
        await it.one.act(it.chat, {"type": "chat/truncated", "turnId": "t2"})
        turn = await it.one.say(it.chat, "t4", "recall")
        assert text_of(turn).endswith("['t1', 't2'] t2")
        refused = await it.one.act(it.chat, turn_started("t3", "stream 1"))
        assert "rejectionReason" in refused, "an id names one turn, also of what was cut"
        await it.one.act(it.chat, {"type": "chat/truncated"})
        assert it.state["turns"] == []
        turn = await it.one.say(it.chat, "t5", "recall")
        assert text_of(turn) == "None [] None", "nothing is left to go on from"


def kill(pid: int) -> None:
    """SIGKILL, as the kernel's memory killer would."""
    os.kill(pid, signal.SIGKILL)
