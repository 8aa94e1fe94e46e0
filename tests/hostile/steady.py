"""The well-behaved agent beside the hostile ones: numbered words, steadily, until it is told.

A word is `number:nanoseconds`, the time on the machine's monotonic clock when it was
said: whoever hears it can tell how long it was on its way.
"""

import time
from pathlib import Path

import trio
from fixture_base import Agent, Session

#: Between two words.
PAUSE_S = 0.01

#: It ends by itself after this many, so that a forgotten one does not stream for ever.
MAX_WORDS = 12_000


def create(until: str = "") -> Agent:
    """The factory.

    Args:
        until: a path; when a file is there the agent says how many words it said, and ends.
    """

    class Steady(Session):
        async def begin(self, turn_id: str, text: str) -> None:
            self.say(turn_id, "")
            delta = {"type": "chat/delta", "turnId": turn_id, "partId": f"{turn_id}-said"}
            said = 0
            while said < MAX_WORDS and not Path(until).exists():  # noqa: ASYNC240  # a moment
                self.emit("chat", {**delta, "content": f"{said}:{time.monotonic_ns()} "})
                said += 1
                await trio.sleep(PAUSE_S)
            self.emit("chat", {**delta, "content": f"= {said}"})

    return Agent(Steady)
