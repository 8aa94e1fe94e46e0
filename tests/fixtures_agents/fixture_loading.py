"""Factories and agents that cannot be had, each for another reason; and one that knows sessions."""

import sys
from typing import Any

from fixture_base import Agent

NOT_CALLABLE = 5


def takes_colour(colour: str) -> Agent:
    agent = Agent()
    agent.display_name = f"Fixture in {colour}"
    return agent


def raises() -> Agent:
    raise RuntimeError("no key in the environment")


def raises_type_error() -> Agent:
    return len(5)


def answers_none() -> None:
    return None


class Nameless(Agent):
    display_name = ""


class Schemeless(Agent):
    def schema(self) -> Any:
        return ["voice"]


def raises_in_create() -> Agent:
    def session(start: Any) -> Any:
        raise PermissionError("the licence has run out")

    return Agent(session)


def exits_in_create() -> Agent:
    return Agent(lambda start: sys.exit(3))


def answers_no_session() -> Agent:
    return Agent(lambda start: None)


class Catalogue(Agent):
    description = "Knows sessions"
    kind = "fixture"
    capabilities = {"multipleChats": {"fork": True}}  # noqa: RUF012  # an agent is as plain as this
    protected_resources = [{"resource": "https://api.example"}]  # noqa: RUF012  # as above

    async def schema(self) -> Any:
        return {"type": "object", "properties": {"model": {"type": "string", "title": "Model"}}}

    def probe(self) -> Any:
        return {"models": [{"id": "m"}], "account": {"label": "someone"}}

    def directories(self) -> Any:
        return ("/srv/one", "/srv/two")

    async def config_completions(self, key: str, query: str, config: Any, directory: Any) -> Any:
        return [{"value": f"{key}-{query}", "label": str(directory)}]

    def list(self) -> Any:
        return ({"id": f"s{number}", "title": "t" * 1000} for number in range(3000))

    def find(self, ident: str, at: Any) -> Any:
        return {"id": ident, "at": at} if ident == "s1" else None

    def transcript(self, ident: str, at: Any) -> Any:
        return "a string is no list"

    def subagents(self, ident: str, turns: Any, at: Any) -> Any:
        raise OSError("the record is locked")

    def delete(self, ident: str, directory: Any) -> Any:
        return ident == "s1"
