"""The agent that is measured: it does nothing of its own, as fast as it is told to.

A message is `say`, one delta at once; `stream COUNT`, so many deltas, one after the
other; or `wait`, a turn that runs until it is ended.
"""

from typing import Any

import trio

#: What one delta says: a word or two, as a model's.
WORDS = "some words "


class Session:
    """A session of the bare contract."""

    def __init__(self, start: Any) -> None:
        self._emit = start.emit

    async def begin(self, turn_id: str, text: str) -> None:
        part = {"kind": "markdown", "id": f"{turn_id}-said", "content": ""}
        self._emit("chat", {"type": "chat/responsePart", "turnId": turn_id, "part": part})
        delta = {"type": "chat/delta", "turnId": turn_id, "partId": part["id"], "content": WORDS}
        what, _, count = text.partition(" ")
        for _ in range(int(count or 1)):
            self._emit("chat", delta)
        if what == "wait":
            await trio.sleep_forever()

    def close(self, removing: bool = False) -> None:
        """Nothing is held."""


class Agent:
    """The agent: what it is, and how a session is started."""

    provider = "bench"
    display_name = "Bench"

    def schema(self) -> dict[str, Any]:
        return {"type": "object", "properties": {}}

    def defaults(self) -> dict[str, Any]:
        return {}

    def create(self, start: Any) -> Session:
        return Session(start)


def create() -> Agent:
    """The factory."""
    return Agent()
