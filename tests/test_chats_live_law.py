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
        """Something that a person or the agent does."""
        draw, steady = self.random.random(), self.steady
        try:
            if draw < 0.5:
                delivery = self.random.choice([{}, {"delivery": "steer"}, {"delivery": "queue"}])
                await steady.say(self.chat_id, self.random.choice(MESSAGES), **delivery)
            elif draw < 0.6:
                await self.type_on_ahp()
            elif draw < 0.8:
                await self.answer()
            elif draw < 0.87:
                await steady.ask("chat.cancel", chatId=self.chat_id, subagents=draw < 0.83)
            elif draw < 0.92:
                queue = steady.threads[self.chat_id].info.queue or ()
                if queue:
                    name = self.random.choice(["chat.sendNow", "chat.unqueue"])
                    ident = self.random.choice(queue).id
                    await steady.ask(name, chatId=self.chat_id, messageId=ident)
            elif draw < 0.95:
                await steady.ask("chat.clear", chatId=self.chat_id, force=True)
            else:
                await trio.sleep(0.05)
        except ChatsRefused as refusal:
            # Somebody was first, or it was none.
            assert refusal.code in ("request-not-found", "chat-busy", "bad-request")

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


async def run(live: LiveHost, seed: int, steps: int) -> None:
    steady, ahp, fresh = await live.chats(), await live.client(), await live.chats()
    walk = Walk(live, seed, ahp, steady)
    chat_id = walk.chat_id
    await steady.create(chat_id)
    await ahp.subscribe(session_uri(chat_id))
    threads, seqs, returns = dict(steady.threads), dict(steady.seqs), 0
    left = steps
    while left > 0:
        async with connect_chats(live.chats_url) as coming:
            # What it held when its connection broke off, and nothing that came since.
            coming.threads, coming.seqs = dict(threads), dict(seqs)
            result = await coming.attach(chat_id, since=seqs[chat_id])
            returns += "events" in result
            for _ in range(walk.random.randint(1, 5)):
                await walk.step()
                left -= 1
                if walk.random.random() < 0.4:
                    await coming.is_like_a_fresh_attach_of(fresh, chat_id)
            threads, seqs = dict(coming.threads), dict(coming.seqs)
        if walk.random.random() < 0.5:
            await walk.step()
    await steady.is_like_a_fresh_attach_of(fresh, chat_id)
    # Coming back by `since` was honoured, and not only ever answered with the whole thread.
    assert returns > 0
    await steady.ask("chat.kill", chatId=chat_id)


@pytest.mark.parametrize("seed", range(6))
async def test_whoever_reduces_holds_what_a_fresh_attach_answers(seed: int) -> None:
    with tempfile.TemporaryDirectory(prefix="ahpd-", dir="/tmp") as folder:
        with trio.fail_after(120):
            async with live_host(Path(folder), SHOWN) as live:
                await run(live, seed, steps=30)
