"""What is asked of an agent before or without a conversation."""

from collections.abc import Callable
from typing import Any

from ..contracts.worker_wire import (
    At,
    ConfigCompletions,
    Delete,
    Found,
    Items,
    Nothing,
    Probe,
    Subagents,
    Taken,
)
from .answers import Handlers, no_member
from .members import fields_of, items_of, member, paths_of, settled, verdict


class Catalogue:
    """Answers the `agent.*` requests from the agent's optional members."""

    def __init__(self, agent: Any) -> None:
        self._agent = agent

    def handlers(self) -> Handlers:
        return {
            "agent.probe": self._probe,
            "agent.directories": self._directories,
            "agent.configCompletions": self._config_completions,
            "agent.list": self._list,
            "agent.find": self._find,
            "agent.transcript": self._transcript,
            "agent.subagents": self._subagents,
            "agent.delete": self._delete,
        }

    def _member(self, name: str) -> Callable[..., Any]:
        function = member(self._agent, name)
        if function is None:
            raise no_member("agent", name)
        return function

    async def _items(self, name: str, *given: Any) -> Items:
        answer = await settled(self._member(name)(*given))
        return Items(items=items_of(answer, f"`{name}`"))

    async def _probe(self, request: Nothing) -> Probe:
        answer = fields_of(await settled(self._member("probe")()) or {}, "`probe`")
        customizations = answer.get("customizations")
        return Probe(
            models=items_of(answer.get("models"), "the `models` of `probe`"),
            commands=items_of(answer.get("commands"), "the `commands` of `probe`"),
            customizations=(
                None
                if customizations is None
                else items_of(customizations, "the `customizations` of `probe`")
            ),
            account=answer.get("account"),
        )

    async def _directories(self, request: Nothing) -> Items:
        answer = await settled(self._member("directories")())
        return Items(items=paths_of(answer, "`directories`"))

    async def _config_completions(self, request: ConfigCompletions) -> Items:
        return await self._items(
            "config_completions", request.key, request.query, request.config, request.directory
        )

    async def _list(self, request: Nothing) -> Items:
        return await self._items("list")

    async def _find(self, request: At) -> Found:
        row = await settled(self._member("find")(request.id, request.at))
        return Found(row=None if row is None else dict(fields_of(row, "`find`")))

    async def _transcript(self, request: At) -> Items:
        return await self._items("transcript", request.id, request.at)

    async def _subagents(self, request: Subagents) -> Items:
        return await self._items("subagents", request.id, request.turns, request.at)

    async def _delete(self, request: Delete) -> Taken:
        return verdict(await settled(self._member("delete")(request.id, request.directory)))
