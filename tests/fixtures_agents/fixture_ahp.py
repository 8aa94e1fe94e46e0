"""Agents for the AHP wire's tests: a turn is a script, and every member says how it was called.

A turn's text is a JSON list of steps, done in order (see `Play.begin`); any
other text is said back. What the host asks of a session is told on the
session's channel as `session/metaChanged`, so that a client can see it.
"""

import json
import time
from typing import Any

import trio
from fixture_base import Agent, Session


class Bare(Session):
    """Plays scripts, and has no optional member: whatever else is asked of it is refused."""

    def __init__(self, start: Any) -> None:
        super().__init__(start)
        self.answered: dict[str, trio.Event] = {}
        self.subagents: dict[str, Any] = {}

    async def begin(
        self, turn_id: str, text: str, model: str | None = None, message: Any = None
    ) -> None:
        steps = json.loads(text) if text.startswith("[") else [["say", "said", text]]
        for name, *given in steps:
            await getattr(self, "step_" + name)(turn_id, *given)

    async def step_say(self, turn_id: str, ident: str, text: str) -> None:
        self.say(turn_id, text, ident)

    async def step_delta(self, turn_id: str, ident: str, text: str) -> None:
        part = f"{turn_id}-{ident}"
        delta = {"type": "chat/delta", "turnId": turn_id, "partId": part, "content": text}
        self.emit("chat", delta)

    async def step_emit(self, turn_id: str, channel: str, action: Any) -> None:
        if channel == "chat" and action["type"] != "chat/inputRequested":
            action = {"turnId": turn_id, **action}
        self.emit(channel, action)

    async def step_tool(self, turn_id: str, call: str, start: Any, ready: Any) -> None:
        of_call = {"turnId": turn_id, "toolCallId": call}
        begun = {"type": "chat/toolCallStart", "toolName": "work", "displayName": "Work"}
        self.emit("chat", {**begun, **of_call, **start})
        asked = {"type": "chat/toolCallReady", "invocationMessage": "Work"}
        self.emit("chat", {**asked, **of_call, **ready})

    async def step_result(self, turn_id: str, call: str) -> None:
        result = {"success": True, "pastTenseMessage": "Worked"}
        done = {"type": "chat/toolCallComplete", "turnId": turn_id, "toolCallId": call}
        self.emit("chat", {**done, "result": result})

    async def step_ask(self, turn_id: str, request: Any) -> None:
        self.emit("chat", {"type": "chat/inputRequested", "request": request})

    async def step_wait(self, turn_id: str, ident: str) -> None:
        await self.answered.setdefault(ident, trio.Event()).wait()

    async def step_hang(self, turn_id: str) -> None:
        await trio.sleep_forever()

    async def step_block(self, turn_id: str, seconds: float) -> None:
        time.sleep(seconds)  # noqa: ASYNC251  # an agent that does not hear anything meanwhile

    async def step_raise(self, turn_id: str, message: str) -> None:
        raise ValueError(message)

    async def step_fail(self, turn_id: str, resumable: bool) -> None:
        error = {"errorType": "fixture", "message": "it failed"}
        part = {"kind": "error", "error": error, "resumable": resumable}
        self.emit("chat", {"type": "chat/error", "turnId": turn_id, "duration": 1, "part": part})

    async def step_subagent(self, turn_id: str, call: str, request: Any) -> None:
        self.subagents[call] = self.start.subagent(call, request)

    async def step_of_subagent(self, turn_id: str, call: str, action: Any) -> None:
        self.subagents[call].emit(action)

    async def step_tools(self, turn_id: str) -> None:
        self.say(turn_id, json.dumps(self.start.tools), "tools")

    async def step_seed(self, turn_id: str) -> None:
        told = {
            "seed": [turn["id"] for turn in self.start.seed or []],
            "rewind_at": self.start.rewind_at,
            "resume": self.start.resume,
            "settings": self.start.settings,
        }
        self.say(turn_id, json.dumps(told), "seed")


class Play(Bare):
    """Every optional member, each of which says how it was called."""

    def __init__(self, start: Any) -> None:
        super().__init__(start)
        self.calls: list[Any] = []

    def called(self, name: str, *given: Any) -> None:
        self.calls.append([name, *given])
        meta = {"chat": self.start.chat_uri, "calls": self.calls}
        self.emit("session", {"type": "session/metaChanged", "_meta": meta})

    def heard(self, ident: str) -> None:
        self.answered.setdefault(ident, trio.Event()).set()

    def agent_id(self) -> str:
        return f"play-{self.start.chat_id}"

    def confirm(
        self, tool_call_id: str, approved: bool, option_id: Any = None, edited_input: Any = None
    ) -> None:
        self.called("confirm", tool_call_id, approved, option_id, edited_input)
        self.heard(tool_call_id)

    def answer(self, request_id: str, accepted: bool, answers: Any) -> None:
        self.called("answer", request_id, accepted, answers)
        self.heard(request_id)

    def set_answer(self, request_id: str, question_id: str, answer: Any) -> None:
        self.called("set_answer", request_id, question_id, answer)

    async def steer(self, ident: str, text: str) -> bool:
        self.called("steer", ident, text)
        if text == "slow":
            await trio.sleep(0.5)
        return text != "leave"

    async def set_config(self, key: str, value: Any) -> Any:
        self.called("set_config", key, value)
        if value == "slow":
            await trio.sleep_forever()
        if value == "once" and not self.start.chat_uri.startswith("ahp-chat://default"):
            return "not in this chat"
        return {"no": False, "why": "not on a Monday"}.get(value)

    def set_working_directories(self, folders: list[str]) -> bool:
        self.called("set_working_directories", folders)
        return "/refused" not in folders

    def set_customization_enabled(self, ident: str, enabled: bool) -> bool:
        self.called("set_customization_enabled", ident, enabled)
        return ident != "stubborn"

    def customizations(self) -> list[Any]:
        return [
            {"type": "plugin", "id": one, "uri": f"file:///{one}", "name": one, "enabled": True}
            for one in ("willing", "stubborn")
        ]

    def set_tools(self, tools: list[Any]) -> None:
        self.called("set_tools", tools)

    def client_gone(self, client_id: str) -> None:
        self.called("client_gone", client_id)

    def complete_tool_call(self, tool_call_id: str, client_id: str, result: Any) -> None:
        self.called("complete_tool_call", tool_call_id, client_id, result)
        self.heard(tool_call_id)

    def stop_worker(self, tool_call_id: str) -> bool:
        self.called("stop_worker", tool_call_id)
        return tool_call_id != "unstoppable"

    def completions(self, kind: str, text: str, offset: int) -> list[Any]:
        item = {"insertText": f"{kind} {text} {offset}"}
        return [{**item, "attachment": {"type": "simple", "label": "it"}}, item, 5]

    async def resume(self, turn_id: str) -> bool:
        self.called("resume", turn_id)
        # Said before the answer: a client that resumes must not lose it.
        self.say(turn_id, "resumed", "again")
        self.emit("chat", {"type": "chat/turnComplete", "turnId": turn_id, "duration": 7})
        return True


class Scripted(Agent):
    """An agent whose sessions play scripts, with settings of every kind."""

    display_name = "Scripted"
    capabilities = {"multipleChats": {}}  # noqa: RUF012  # an agent is as plain as this

    def schema(self) -> Any:
        return {
            "type": "object",
            "properties": {
                "mode": {"type": "string", "title": "Mode", "default": "plain"},
                "level": {"type": "integer", "title": "Level"},
                "colour": {"type": "string", "title": "Colour", "enum": ["red", "blue"]},
                "fixed": {"type": "string", "title": "Fixed", "sessionMutable": False},
            },
        }

    def defaults(self) -> Any:
        return {"level": 1}

    def probe(self) -> Any:
        told = {"id": "m", "name": "M", "provider": "another", "maxContextWindow": None}
        faulty = [
            {"id": 5, "name": "M"},
            {"id": "n"},
            {"id": "n", "name": "N", "supportsVision": 1},
        ]
        return {"models": [told, *faulty, "none"], "customizations": [{"type": "plugin"}]}

    def config_completions(self, key: str, query: str, config: Any, directory: Any) -> Any:
        return [{"value": f"{key}:{query}", "label": str(directory)}, {"value": 5}, "no item"]


def play() -> Agent:
    return Scripted(Play)


def bare() -> Agent:
    return Agent(Bare)


def hangs_in_create() -> Agent:
    async def session(start: Any) -> Any:
        await trio.sleep_forever()

    return Agent(session)


def hangs_when_imported() -> Agent:
    time.sleep(3600)
    raise AssertionError
