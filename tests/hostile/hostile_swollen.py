"""Agents that say too much of what everybody is sent: of themselves, their session, their turn."""

import contextlib
from typing import Any

from fixture_base import Agent
from hostile_base import Hostile, agent

MUCH = 6 * 1024 * 1024


class Swollen(Agent):
    """Describes itself in as many words as frames can hold."""

    display_name = "n" * MUCH
    description = "d" * MUCH

    def probe(self) -> dict[str, Any]:
        models = [{"id": f"m{number}", "name": "Model", "provider": "x"} for number in range(5000)]
        models[0]["name"] = "M" * MUCH
        return {"models": models, "customizations": []}


class SwollenSchema(Agent):
    """Its settings alone would fill the snapshot of each of its sessions."""

    def schema(self) -> dict[str, Any]:
        return {"type": "object", "properties": {"key": {"type": "string", "title": "t" * MUCH}}}


class Refuses(Agent):
    """Says at length why not."""

    def create(self, start: Any) -> Any:
        raise ValueError("w" * MUCH)


class Swells(Hostile):
    """Makes its session and its chat as large as frames can, beside its turn."""

    async def misbehave(self, turn_id: str) -> None:
        much = "s" * MUCH
        self.emit("session", {"type": "session/titleChanged", "title": much})
        self.emit("session", {"type": "session/metaChanged", "_meta": {"much": much}})
        for number in range(3):
            plugin = {"type": "plugin", "id": f"p{number}", "name": much, "uri": "file:///p"}
            updated = {"type": "session/customizationUpdated", "customization": plugin}
            self.emit("session", updated)
            work = {"id": f"w{number}", "kind": "shell", "title": much}
            self.emit("chat", {"type": "chat/backgroundWorkSet", "work": work})
        self.emit("chat", {"type": "chat/activityChanged", "activity": much})
        for number in range(2):
            self.park(turn_id, f"{turn_id}-{number}", much)
        raise ValueError(much)


class StreamsWithoutEnd(Hostile):
    """One turn, a MiB at a time."""

    async def misbehave(self, turn_id: str) -> None:
        self.say(turn_id, "", "stream")
        delta = {"type": "chat/delta", "turnId": turn_id, "partId": f"{turn_id}-stream"}
        while True:
            self.emit("chat", {**delta, "content": "x" * 1024 * 1024})


class TakesTurnAfterTurn(Hostile):
    """Nobody asks it, and it goes on."""

    async def misbehave(self, turn_id: str) -> None:
        self.complete(turn_id)
        for number in range(100):
            own = f"{turn_id}-own-{number}"
            message = {"text": "and now", "origin": {"kind": "agent"}}
            at = {"startedAt": "2026-10-01T00:00:00.000Z", "message": message}
            self.emit("chat", {"type": "chat/turnStarted", "turnId": own, **at})
            self.say(own, "x" * 100_000)
            self.complete(own)


class NestsDeep(Hostile):
    """Parts of ever more levels: at some depth the host takes no more of them."""

    async def misbehave(self, turn_id: str) -> None:
        within: Any = {}
        for depth in range(125):
            within = {"deeper": within}
            if depth > 90:
                part = {
                    "kind": "markdown",
                    "id": f"{turn_id}-{depth}",
                    "content": "",
                    "_meta": within,
                }
                with contextlib.suppress(ValueError):
                    self.emit(
                        "chat", {"type": "chat/responsePart", "turnId": turn_id, "part": part}
                    )


def describes() -> Agent:
    return Swollen(Hostile)


def has_a_schema() -> Agent:
    return SwollenSchema(Hostile)


def refuses() -> Agent:
    return Refuses(Hostile)


def swells() -> Agent:
    return agent(Swells)


def streams_without_end() -> Agent:
    return agent(StreamsWithoutEnd)


def takes_turn_after_turn() -> Agent:
    return agent(TakesTurnAfterTurn)


def nests_deep() -> Agent:
    return agent(NestsDeep)
