"""Every action of a client is answered by exactly one envelope, in the order it was sent."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from ahp_client import AhpClient, turn_started
from ahpd.contracts.ahp.reducers import reduce_chat
from ahpd.supervisor.sessions.channel import Channel, Subscription
from ahpd.supervisor.sessions.dispatch import MAX_WAITING_ACTIONS, Dispatched, DispatchLine
from ahpd.supervisor.sessions.stream import Envelope, Stream
from ahpd.supervisor.store.ledger import Ledger
from ahpd.supervisor.store.memory import MemoryStore
from live_host import live_host

Json = dict[str, Any]
SCRIPTED = {"scripted": "fixture_scripted:scripted"}
SLOW = "file:///tmp/slow"

CHAT: Json = {
    "resource": "ahp-chat:/1",
    "title": "C",
    "status": 1,
    "modifiedAt": "2026-10-01T00:00:00.000Z",
    "turns": [],
}


class Listening:
    """A seat that keeps what it is sent."""

    def __init__(self, client_id: str) -> None:
        self.client_id = client_id
        self.got: list[tuple[Envelope, str]] = []

    def send_envelope(self, envelope: Envelope, subscription: Subscription) -> None:
        self.got.append((envelope, subscription.spelling))

    def send_answer(self, envelope: Envelope, spelling: str) -> None:
        self.got.append((envelope, spelling))

    def send_notification(self, method: str, params: Json) -> None:
        raise AssertionError(f"nobody notifies here: {method}")

    def seqs(self) -> list[int]:
        return [envelope.origin.client_seq for envelope, _ in self.got if envelope.origin]


def channel() -> Channel:
    return Channel(
        uri="ahp-chat:/1",
        family="chat",
        owner_id="1",
        state=CHAT,
        reduce=reduce_chat,
        stream=Stream(first_seq=100, max_events=1000, max_bytes=1 << 20),
        ledger=Ledger(MemoryStore()),
    )


def dispatched(on: Channel, seat: Listening, seq: int, action: Json, **more: Any) -> Dispatched:
    spelling = f"{seat.client_id}'s spelling"
    return Dispatched(
        seat=seat, channel=on, spelling=spelling, client_seq=seq, action=action, **more
    )


DRAFT = {"type": "chat/draftChanged", "draft": {"text": "d", "origin": {"kind": "user"}}}


# -- one action -----------------------------------------------------------------------


def test_what_is_accepted_goes_to_every_subscriber_with_its_origin_and_a_number() -> None:
    on, one, two = channel(), Listening("one"), Listening("two")
    on.subscribe(one, "mine")
    on.subscribe(two, "theirs")
    assert dispatched(on, one, 7, DRAFT).accept()
    (echo, spelling), (told, other) = one.got[0], two.got[0]
    assert (spelling, other) == ("mine", "theirs")
    assert echo is told and echo.server_seq == 101 == on.stream.seq
    assert echo.params("x")["origin"] == {"clientId": "one", "clientSeq": 7}
    assert len(one.got) == len(two.got) == 1


def test_what_changes_nothing_goes_to_its_sender_alone_and_spends_no_number() -> None:
    on, one, two = channel(), Listening("one"), Listening("two")
    on.subscribe(one, "mine")
    on.subscribe(two, "theirs")
    assert not dispatched(on, one, 1, {"type": "chat/isReadChanged", "isRead": False}).accept()
    assert [envelope.server_seq for envelope, _ in one.got] == [100] and not two.got
    assert on.stream.seq == 100 and on.stream.since(100) == []
    assert "rejectionReason" not in one.got[0][0].params("x")


def test_what_is_refused_goes_to_its_sender_alone_with_the_reason() -> None:
    on, one, two = channel(), Listening("one"), Listening("two")
    on.subscribe(two, "theirs")
    dispatched(on, one, 1, DRAFT).refuse("no")
    (answer, spelling) = one.got[0]
    assert answer.params(spelling)["rejectionReason"] == "no"
    assert spelling == "one's spelling", "who is not subscribed hears it as it called the channel"
    assert not two.got and on.stream.seq == 100 and on.state is CHAT


def test_a_sender_that_is_not_subscribed_gets_its_echo_once() -> None:
    on, one = channel(), Listening("one")
    assert dispatched(on, one, 1, DRAFT).accept()
    assert [(envelope.server_seq, spelling) for envelope, spelling in one.got] == [
        (101, "one's spelling")
    ]


def test_an_action_cannot_be_answered_twice() -> None:
    on, one = channel(), Listening("one")
    action = dispatched(on, one, 1, DRAFT)
    action.refuse("no")
    with pytest.raises(RuntimeError):
        action.accept()
    assert on.state is CHAT


# -- the line -------------------------------------------------------------------------


class Line:
    """A line on which an action named `ask…` waits until it is told to go on."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self.channel = channel()
        self.seat = Listening("one")
        self.line = DispatchLine(nursery, self.take)
        self.asked: list[int] = []
        self.go_on: dict[int, trio.Event] = {}

    def add(self, seq: int, kind: str, **more: Any) -> Dispatched:
        action = dispatched(self.channel, self.seat, seq, {"type": kind}, **more)
        self.line.add(action)
        return action

    def take(self, action: Dispatched) -> Callable[[], Awaitable[None]] | None:
        if action.action["type"] != "ask":
            action.refuse("taken")
            return None
        event = self.go_on[action.client_seq] = trio.Event()

        async def ask() -> None:
            self.asked.append(action.client_seq)
            await event.wait()
            if not action.answered:
                action.refuse("asked")

        return ask


async def test_what_comes_after_a_question_waits_for_its_answer() -> None:
    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            held = Line(nursery)
            held.add(1, "go")
            held.add(2, "ask")
            held.add(3, "go")
            held.add(4, "ask")
            held.add(5, "go")
            assert held.seat.seqs() == [1]
            await trio.testing.wait_all_tasks_blocked()
            held.go_on[2].set()
            await trio.testing.wait_all_tasks_blocked()
            assert held.seat.seqs() == [1, 2, 3]
            held.go_on[4].set()
            await trio.testing.wait_all_tasks_blocked()
            assert held.seat.seqs() == [1, 2, 3, 4, 5]


async def test_what_nobody_may_look_at_is_refused_in_its_place_too() -> None:
    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            held = Line(nursery)
            held.add(1, "ask")
            held.add(2, "nonsense", unfit="there is no such action")
            assert held.seat.seqs() == []
            await trio.testing.wait_all_tasks_blocked()
            held.go_on[1].set()
            await trio.testing.wait_all_tasks_blocked()
            assert held.seat.seqs() == [1, 2]
            assert held.seat.got[1][0].rejection_reason == "there is no such action"


async def test_overtaking_refuses_what_asks_and_takes_the_rest_first() -> None:
    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            held = Line(nursery)
            held.add(1, "ask")
            held.add(2, "go")
            held.add(3, "ask")
            await trio.testing.wait_all_tasks_blocked()
            cancel = dispatched(held.channel, held.seat, 4, {"type": "go"})
            held.line.overtake(cancel, "cancelled")
            reasons = [envelope.rejection_reason for envelope, _ in held.seat.got]
            assert held.seat.seqs() == [1, 2, 3, 4]
            assert reasons == ["cancelled", "taken", "cancelled", "taken"]
            await trio.testing.wait_all_tasks_blocked()
            assert held.asked == [1], "what was refused before it was asked is not asked"
            held.go_on[1].set()
            held.add(5, "go")
            await trio.testing.wait_all_tasks_blocked()
            assert held.seat.seqs() == [1, 2, 3, 4, 5], "the late answer counts for nothing"


async def test_a_channel_that_goes_away_refuses_what_still_waits() -> None:
    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            held = Line(nursery)
            for seq, kind in enumerate(("ask", "go", "ask"), 1):
                held.add(seq, kind)
            held.line.refuse_all("gone")
            assert held.seat.seqs() == [1, 2, 3]
            assert {envelope.rejection_reason for envelope, _ in held.seat.got} == {"gone"}


async def test_a_line_is_bounded() -> None:
    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            held = Line(nursery)
            for seq in range(MAX_WAITING_ACTIONS + 1):
                held.add(seq, "ask" if seq == 0 else "go")
            assert held.seat.seqs() == []
            held.add(-1, "go")
            assert held.seat.seqs() == [-1]
            held.line.refuse_all("over")
            assert len(held.seat.seqs()) == MAX_WAITING_ACTIONS + 2


@given(st.lists(st.sampled_from(["go", "ask", "unfit", "overtake", "answer"]), max_size=30))
def test_law_each_is_answered_once_and_in_order(moves: list[str]) -> None:
    async def run() -> None:
        async with trio.open_nursery() as nursery:
            held = Line(nursery)
            sent = []
            for seq, move in enumerate(moves):
                if move == "answer":
                    for event in list(held.go_on.values()):
                        event.set()
                    await trio.testing.wait_all_tasks_blocked()
                elif move == "overtake":
                    sent.append(seq)
                    cancel = dispatched(held.channel, held.seat, seq, {"type": "go"})
                    held.line.overtake(cancel, "cancelled")
                else:
                    sent.append(seq)
                    held.add(seq, move, unfit="unfit" if move == "unfit" else None)
            while held.seat.seqs() != sent:
                assert held.seat.seqs() == sent[: len(held.seat.seqs())]
                before = len(held.seat.got)
                for event in list(held.go_on.values()):
                    event.set()
                await trio.testing.wait_all_tasks_blocked()
                assert len(held.seat.got) > before, "an action that nobody answers"
            # What was overtaken while it asked may ask for ever: nobody waits for its word.
            nursery.cancel_scope.cancel()

    trio.run(run)


# -- in a host ------------------------------------------------------------------------


def answers(client: AhpClient) -> list[int]:
    """The numbers of this client's actions, in the order in which they were answered."""
    return [
        envelope["origin"]["clientSeq"]
        for envelope in client.envelopes
        if envelope.get("origin", {}).get("clientId") == client.client_id
    ]


async def test_echoes_keep_their_order_behind_a_question(state_dir: Path) -> None:
    with trio.fail_after(30):
        async with live_host(state_dir, SCRIPTED) as live:
            client = await live.client()
            _, chat = await live.session(client, "scripted")
            actions: list[Json] = [
                {"type": "chat/workingDirectorySet", "directory": SLOW},
                DRAFT,
                {"type": "chat/unheardOf"},
                {"type": "session/titleChanged", "title": "x"},
                {"type": "chat/isReadChanged", "isRead": True},
                {"type": "chat/isReadChanged"},
            ]
            sent = [await client.dispatch(chat, action) for action in actions]
            await client.echo(sent[-1])
            await client.until(lambda: len(answers(client)) == len(sent), what="the answers")
            assert answers(client) == sent
            refused = [seq for seq in sent if "rejectionReason" in await client.echo(seq)]
            assert refused == [sent[2], sent[3], sent[5]]


async def test_a_waiting_question_never_delays_a_cancel(state_dir: Path) -> None:
    with trio.fail_after(30):
        async with live_host(state_dir, SCRIPTED) as live:
            client = await live.client()
            _, chat = await live.session(client, "scripted")
            await client.start_turn(chat, "t1", "hang 2")
            folder = {"type": "chat/workingDirectorySet", "directory": "file:///tmp/a"}
            asking = await client.dispatch(chat, folder)
            behind = await client.dispatch(chat, DRAFT)
            began = trio.current_time()
            cancel = {"type": "chat/turnCancelled", "turnId": "t1", "duration": 1}
            cancelled = await client.dispatch(chat, cancel)
            await client.ended(chat, "t1")
            assert trio.current_time() - began < 1.5, "the cancel waited for the agent"
            assert answers(client)[-3:] == [asking, behind, cancelled]
            assert "cancelled" in (await client.echo(asking))["rejectionReason"]
            assert "rejectionReason" not in await client.echo(behind)
            assert "workingDirectories" not in client.states[chat]


async def test_a_refused_action_reaches_its_sender_alone(state_dir: Path) -> None:
    with trio.fail_after(30):
        async with live_host(state_dir, SCRIPTED) as live:
            one, two = await live.client("one"), await live.client("two")
            session, chat = await live.session(one, "scripted")
            await two.subscribe(session)
            await two.subscribe(chat)
            for channel, action in (
                (chat, {"type": "chat/turnCancelled", "turnId": "never", "duration": 1}),
                (session, {"type": "session/configChanged", "config": {"mood": "no"}}),
                (session, {"type": "session/configChanged", "config": {"nobody": 1}}),
                ("ahp-root://", {"type": "root/configChanged", "config": {"theme": "dark"}}),
            ):
                answer = await one.act(channel, action)
                assert answer["rejectionReason"], action
            await one.act(session, {"type": "session/titleChanged", "title": "after"})
            await two.until(lambda: two.states[session]["title"] == "after")
            assert all("rejectionReason" not in envelope for envelope in two.envelopes)
            assert one.states[session] == two.states[session]


async def test_an_unknown_channel_is_met_with_silence(state_dir: Path) -> None:
    with trio.fail_after(30):
        async with live_host(state_dir, SCRIPTED) as live:
            client = await live.client()
            _, chat = await live.session(client, "scripted")
            unheard = await client.dispatch("ahp-chat:/nowhere", DRAFT)
            await client.act(chat, DRAFT)
            assert unheard not in answers(client)


async def test_what_an_overtaken_question_changed_is_set_back(state_dir: Path) -> None:
    with trio.fail_after(30):
        async with live_host(state_dir, SCRIPTED) as live:
            client = await live.client()
            session, chat = await live.session(client, "scripted")
            await client.start_turn(chat, "t1", "wait")
            folder = {"type": "chat/workingDirectorySet", "directory": SLOW}
            asking = await client.dispatch(chat, folder)
            await client.until(
                lambda: told_folders(client, session) == ["/tmp/slow"], what="the question"
            )
            await client.act(chat, {"type": "chat/turnCancelled", "turnId": "t1", "duration": 1})
            assert "rejectionReason" in await client.echo(asking)
            await client.until(lambda: told_folders(client, session) == [], what="the way back")


def told_folders(client: AhpClient, session: str) -> Any:
    """The folders that the agent was told last, as it says itself."""
    return client.states[session].get("_meta", {}).get("folders")


async def test_a_thousand_actions_in_one_breath_are_all_answered(state_dir: Path) -> None:
    with trio.fail_after(60):
        async with live_host(state_dir, SCRIPTED) as live:
            client = await live.client()
            _, chat = await live.session(client, "scripted")
            sent = []
            for number in range(1000):
                draft = {"text": f"{number}", "origin": {"kind": "user"}}
                action: Json = {"type": "chat/draftChanged", "draft": draft}
                if number % 3 == 0:
                    action = turn_started("t", "x") | {"message": {"text": "no origin"}}
                sent.append(await client.dispatch(chat, action))
            await client.echo(sent[-1])
            assert answers(client) == sent
            assert client.states[chat]["draft"]["text"] == "998"
