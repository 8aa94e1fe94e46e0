"""What every hostile agent is beside its misbehaviour: it reports what it was given.

The message `report` is answered honestly, so that a test sees which process
answers and what it was told of the turns before. Any other message is answered
by the misbehaviour, after the words `here it comes` (and what it has to tell:
a JSON object in a second part).
"""

import json
import os
from typing import Any

from fixture_base import Agent, Session

HERE_IT_COMES = "here it comes"


class Hostile(Session):
    """A session of the bare contract whose `begin` is the turn."""

    def agent_id(self) -> str:
        return self.start.resume or f"hostile-{os.getpid()}"

    async def begin(self, turn_id: str, text: str) -> None:
        if text == "report":
            self.report(turn_id)
        else:
            self.say(turn_id, HERE_IT_COMES)
            await self.misbehave(turn_id)

    async def misbehave(self, turn_id: str) -> None:
        raise NotImplementedError

    def report(self, turn_id: str) -> None:
        given = {
            "pid": os.getpid(),
            "resume": self.start.resume,
            "seed": [[turn["id"], turn["message"]["text"]] for turn in self.start.seed or []],
        }
        self.say(turn_id, json.dumps(given), "report")

    def tell(self, turn_id: str, told: dict[str, Any]) -> None:
        self.say(turn_id, json.dumps(told), "told")

    def park_two(self, turn_id: str) -> None:
        """Two tool calls ask for leave in parallel."""
        for name in ("one", "two"):
            self.park(turn_id, f"{turn_id}-{name}")

    def ask(self, turn_id: str) -> None:
        """A question waits, too."""
        request = {"id": f"{turn_id}-question", "message": "Well?"}
        self.emit("chat", {"type": "chat/inputRequested", "request": request})


class Plain(Hostile):
    """One whose `begin` is a plain function."""

    def begin(self, turn_id: str, text: str) -> None:  # type: ignore[override]  # the other form
        if text == "report":
            self.report(turn_id)
            self.complete(turn_id)
        else:
            self.say(turn_id, HERE_IT_COMES)
            self.misbehave_plainly(turn_id)

    def misbehave_plainly(self, turn_id: str) -> None:
        raise NotImplementedError


def agent(session: type[Session]) -> Agent:
    return Agent(session)
