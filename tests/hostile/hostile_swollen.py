"""Agents that say too much of what everybody is sent: of themselves, their session, their turn."""

from typing import Any

from fixture_base import Agent
from hostile_base import Hostile

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


def describes() -> Agent:
    return Swollen(Hostile)


def has_a_schema() -> Agent:
    return SwollenSchema(Hostile)


def refuses() -> Agent:
    return Refuses(Hostile)
