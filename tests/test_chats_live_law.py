"""The law of `/chats` in a real host: whoever reduces what it hears holds what an attach answers.

Random runs of a scripted agent, with messages from both wires, answers, stops and
clears; one client loses its connection at random points and comes back by `since`.
"""

import random
import tempfile
from pathlib import Path

import pytest
import trio

from agent_contracts import needs_schema
from ahp_client import AhpClient, turn_started
from ahpd.contracts.ahp.uris import session_uri
from chats_client import ChatsClient, ChatsRefused, connect_chats
from live_host import LiveHost, live_host

pytestmark = needs_schema

SHOWN = {"shown": "fixture_chats:shown"}

MESSAGES = [
    *("stream 6", "think a; stream 3", "tool; stream 2", "free; review", "ask; stream 2"),
    *("delegate; stream 2", "rule; tools", "fail oops", "title A name; work w; unwork w"),
    *("park; pause 0.05", "wait", "activity busy; stream 4; activity", "cost 0.5; stream 2"),
    *("subagent ask; stream 2", "end error", "exit 3", "own; stream 1", "end cancelled"),
]


class Walk:
    """One random run on one chat."""

    def __init__(self, live: LiveHost, seed: int, ahp: AhpClient, steady: ChatsClient) -> None:
        self.live = live
        self.random = random.Random(seed)
        self.ahp = ahp
        self.steady = steady
        self.chat_id = f"law-{seed}"
        self.turns = 0

    async def step(self) -> None:
        """Something that a person or the agent does, and a while in which it goes on."""
        try:
            await self.act()
        except ChatsRefused as refusal:
            # Somebody was first, or it was none.
            assert refusal.code in ("request-not-found", "chat-busy", "bad-request")
        if self.random.random() < 0.7:
            await self.rest()

    async def act(self) -> None:
        draw, steady, named = self.random.random(), self.steady, {"chatId": self.chat_id}
        info = steady.threads[self.chat_id].info
        if info.requests and draw < 0.6:
            await self.answer()
        elif info.active_turn_id and draw < 0.3:
            await steady.ask("chat.cancel", **named, subagents=draw < 0.1)
        elif info.queue and draw < 0.5:
            name = self.random.choice(["chat.sendNow", "chat.unqueue"])
            await steady.ask(name, **named, messageId=self.random.choice(info.queue).id)
        elif draw < 0.65:
            await self.type_on_ahp()
        elif draw < 0.97:
            delivery = self.random.choice([{}, {"delivery": "steer"}, {"delivery": "queue"}])
            await steady.say(self.chat_id, self.random.choice(MESSAGES), **delivery)
        else:
            await steady.ask("chat.clear", **named, force=True)

    async def rest(self) -> None:
        """Until nothing goes on without a person, or for a short while."""
        info = lambda: self.steady.threads[self.chat_id].info  # noqa: E731
        with trio.move_on_after(0.3):
            await self.steady.until(lambda: info().status not in ("running",))

    async def type_on_ahp(self) -> None:
        self.turns += 1
        chat = self.live.host.chats[self.chat_id].channel.uri
        text = self.random.choice(MESSAGES)
        await self.ahp.act(chat, turn_started(f"typed-{self.turns}", text))

    async def answer(self) -> None:
        waiting = self.steady.threads[self.chat_id].info.requests or ()
        if not waiting:
            return
        one = self.random.choice(waiting)
        named = {"chatId": self.chat_id, "requestId": one.request_id}
        if one.approval is not None:
            decision = self.random.choice(["allow", "deny", "allow-always"])
            await self.steady.ask("chat.approve", **named, decision=decision)
        elif one.question is not None:
            answers = {asked.id: "Yes" for asked in one.question.questions}
            await self.steady.ask("chat.answer", **named, answers=answers)


async def run(live: LiveHost, seed: int, rounds: int) -> None:
    steady, ahp, fresh = await live.chats(), await live.client(), await live.chats()
    walk = Walk(live, seed, ahp, steady)
    chat_id = walk.chat_id
    await steady.create(chat_id)
    await ahp.subscribe(session_uri(chat_id))
    threads, seqs, missed, reset = dict(steady.threads), dict(steady.seqs), 0, 0
    for _ in range(rounds):
        for _ in range(walk.random.randint(0, 3)):
            await walk.step()
        async with connect_chats(live.chats_url) as coming:
            # What it held when its connection broke off, and nothing that came since.
            coming.threads, coming.seqs = dict(threads), dict(seqs)
            result = await coming.attach(chat_id, since=seqs[chat_id])
            missed += len(result.get("events", ()))
            reset += "events" not in result
            await coming.is_like_a_fresh_attach_of(fresh, chat_id)
            for _ in range(walk.random.randint(0, 4)):
                await walk.step()
                if walk.random.random() < 0.4:
                    await coming.is_like_a_fresh_attach_of(fresh, chat_id)
            threads, seqs = dict(coming.threads), dict(coming.seqs)
    await steady.is_like_a_fresh_attach_of(fresh, chat_id)
    # It came back to what it had missed, and hardly ever to the whole thread.
    assert missed > 3 * rounds
    assert reset < rounds / 2
    await steady.ask("chat.kill", chatId=chat_id)


@pytest.mark.parametrize("seed", range(4))
async def test_whoever_reduces_holds_what_a_fresh_attach_answers(seed: int) -> None:
    with tempfile.TemporaryDirectory(prefix="ahpd-", dir="/tmp") as folder:
        with trio.fail_after(120):
            async with live_host(Path(folder), SHOWN) as live:
                await run(live, seed, rounds=12)
