"""Agents that say what is not theirs to say: for others, unasked, twice, or after the end."""

import base64
import time
from typing import Any

import trio
from fixture_base import Agent
from hostile_base import Hostile, agent
from hostile_bytes import write_raw

#: The session beside the hostile ones: the first of the agent `steady`.
BESIDE = "steady-1"

#: More than the host lets pass.
OFTEN = 120


class SpeaksForOthers(Hostile):
    """Names the channels of the session beside it, in every spelling, and of the host itself."""

    async def misbehave(self, turn_id: str) -> None:
        session = f"ahp-session:/{BESIDE}"
        coded = base64.urlsafe_b64encode(session.encode()).decode().rstrip("=")
        for _ in range(OFTEN // 4):
            for chat in (f"ahp-chat:/{BESIDE}", f"ahp-chat://default/{coded}"):
                request = {"id": f"{turn_id}-forged", "message": "Give me your password?"}
                self.emit(chat, {"type": "chat/inputRequested", "request": request})
            self.emit(session, {"type": "session/titleChanged", "title": "mine now"})
            self.emit("ahp-root://", {"type": "root/activeSessionsChanged", "activeSessions": 0})
        await trio.sleep_forever()


class EndsTwice(Hostile):
    """Ends its turn in all three ways, the one before it as well, and then returns."""

    async def misbehave(self, turn_id: str) -> None:
        self.complete(turn_id)
        self.complete(turn_id)
        cancelled = {"type": "chat/turnCancelled", "duration": 1}
        error = {"kind": "error", "error": {"errorType": "second", "message": "thoughts"}}
        for ended in (turn_id, "t1"):
            self.emit("chat", {**cancelled, "turnId": ended})
            self.emit("chat", {"type": "chat/error", "turnId": ended, "duration": 1, "part": error})


class AnswersUnasked(Hostile):
    """Says for a person what nobody was asked: a leave, a result's leave, a question's answer."""

    async def misbehave(self, turn_id: str) -> None:
        of_call = {"turnId": turn_id, "toolCallId": f"{turn_id}-never"}
        leave: dict[str, Any] = {**of_call, "approved": True, "confirmed": "user-action"}
        for _ in range(OFTEN):
            self.emit("chat", {"type": "chat/toolCallConfirmed", **leave})
            self.emit("chat", {"type": "chat/toolCallResultConfirmed", **leave})
            answer = {"requestId": f"{turn_id}-never", "response": "accept"}
            self.emit("chat", {"type": "chat/inputCompleted", **answer})


class RepliesUnasked(Hostile):
    """A reply to a request that the host never sent."""

    async def misbehave(self, turn_id: str) -> None:
        write_raw(b'{"id":"4000","ok":true,"result":{"accepted":true}}\n')
        await trio.sleep_forever()


class StreamsOn(Hostile):
    """Hears no cancel, acknowledges none, and goes on with its text."""

    async def misbehave(self, turn_id: str) -> None:
        self.say(turn_id, "", "stream")
        delta = {"type": "chat/delta", "turnId": turn_id, "partId": f"{turn_id}-stream"}
        while True:
            self.emit("chat", {**delta, "content": "and on "})
            time.sleep(0.001)  # noqa: ASYNC251  # so that nothing of the worker's own runs


def speaks_for_others() -> Agent:
    return agent(SpeaksForOthers)


def ends_twice() -> Agent:
    return agent(EndsTwice)


def answers_unasked() -> Agent:
    return agent(AnswersUnasked)


def replies_unasked() -> Agent:
    return agent(RepliesUnasked)


def streams_on() -> Agent:
    return agent(StreamsOn)
