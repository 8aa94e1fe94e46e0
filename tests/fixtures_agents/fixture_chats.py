"""The scripted agent with what `/chats` shows beyond AHP: modes, commands, models, skills, rules.

rule; async; family; delegate
"""

from typing import Any

import trio
from fixture_scripted import Scripted, ScriptedAgent

FAMILY = "👨‍👩‍👧"
MODES = ["default", "acceptEdits", "bypassPermissions"]

SKILL = {"type": "skill", "id": "s1", "uri": "file:///p/s1", "name": "sums", "description": "Adds"}
PLUGIN = {
    "type": "plugin",
    "id": "p",
    "uri": "file:///p",
    "name": "Plugin",
    "enabled": True,
    "children": [SKILL, {**SKILL, "id": "s2", "name": "off", "enabled": False}],
}


class Shown(Scripted):
    def set_config(self, key: str, value: Any) -> Any:
        self.told.append((key, value))
        return None

    async def do_message(self, turn_id: str, rest: str) -> None:
        self.part(turn_id, str(self.message))

    async def begin(self, turn_id: str, text: str, model: Any = None, message: Any = None) -> None:
        self.message = message
        if text.startswith("/"):
            self.part(turn_id, f"command {text}")
            return
        await super().begin(turn_id, text)

    async def do_rule(self, turn_id: str, rest: str) -> None:
        """A call that proposes a rule."""
        call_id = self.new_id(turn_id)
        named = {"turnId": turn_id, "toolCallId": call_id}
        self.say_chat("toolCallStart", **named, toolName="Bash", displayName="Bash")
        options = [
            {"id": "once", "label": "Allow once", "kind": "approve"},
            {"id": "always", "label": "Always allow ls", "kind": "approve"},
            {"id": "no", "label": "No", "kind": "deny"},
        ]
        self.waiting[call_id] = trio.Event()
        ready = {"invocationMessage": "Run ls", "toolInput": '{"command": "ls"}'}
        self.say_chat("toolCallReady", **named, **ready, options=options)
        if await self.wait_for(call_id):
            self.finish_call(turn_id, call_id)

    def confirm(self, tool_call_id: str, approved: bool, option_id: str | None = None) -> bool:
        self.told.append(option_id)
        return super().confirm(tool_call_id, approved)

    async def do_async(self, turn_id: str, rest: str) -> None:
        """A question that the agent does not wait for."""
        ident = self.new_id(turn_id)
        request = {"id": ident, "message": "Any time", "_meta": {"async": True}}
        self.say_chat("inputRequested", request=request)
        await trio.sleep_forever()

    async def do_family(self, turn_id: str, rest: str) -> None:
        """A call whose every text is long, and made of what must not be cut apart."""
        call_id = self.new_id(turn_id)
        named = {"turnId": turn_id, "toolCallId": call_id}
        self.say_chat("toolCallStart", **named, toolName="Bash", displayName="Bash")
        command = "\\n".join(["echo " + FAMILY * 40] * 30)
        self.waiting[call_id] = trio.Event()
        self.say_chat(
            "toolCallReady",
            **named,
            invocationMessage=("e\u0301" + FAMILY) * 200,
            toolInput=f'{{"command": "{command}"}}',
        )
        questions = [
            {"id": "q", "kind": "text", "title": FAMILY * 60, "message": "a\ud83d" + FAMILY * 200}
        ]
        request = {"id": self.new_id(turn_id), "message": "m", "questions": questions}
        self.say_chat("inputRequested", request=request)
        await self.wait_for(call_id)

    async def do_delegate(self, turn_id: str, rest: str) -> None:
        """A subagent that is left at work when the turn is over."""
        call_id = self.open_call(turn_id, confirmed="not-needed")
        handle = self.start.subagent(call_id, {"title": "Helper", "text": "help"})
        content = [{"type": "subagent", "resource": handle.chat_uri, "title": "Helper"}]
        named = {"turnId": turn_id, "toolCallId": call_id}
        self.say_chat("toolCallContentChanged", **named, content=content)
        part = {"kind": "markdown", "id": f"{call_id}.p", "content": "at work"}
        handle.emit({"type": "chat/responsePart", "turnId": handle.turn_id, "part": part})
        if rest == "ask":
            request = {"id": f"{call_id}.q", "message": "May the helper?"}
            self.waiting[f"{call_id}.q"] = trio.Event()
            handle.emit({"type": "chat/inputRequested", "request": request})
            await self.wait_for(f"{call_id}.q")
            handle.emit({"type": "chat/turnComplete", "turnId": handle.turn_id, "duration": 5})
        result = {"success": True, "pastTenseMessage": "Delegated", "content": content}
        self.say_chat("toolCallComplete", **named, result=result)

    async def do_cost(self, turn_id: str, rest: str) -> None:
        usage = {"inputTokens": 10, "outputTokens": 5, "_meta": {"costUsd": float(rest)}}
        self.say_chat("usage", turnId=turn_id, usage=usage)


class ShownAgent(ScriptedAgent):
    display_name = "Shown"
    kind = "codex"

    def schema(self) -> Any:
        mode = {"type": "string", "title": "Mode", "enum": MODES, "default": "default"}
        return {"type": "object", "properties": {"permissionMode": mode}}

    def defaults(self) -> Any:
        return {"permissionMode": "default"}

    def probe(self) -> Any:
        return {
            "models": [
                {"id": "big", "provider": "x", "name": "Big", "maxContextWindow": 200000},
                {"id": "small", "provider": "x", "name": "Small"},
            ],
            "commands": [{"name": "compact"}, {"name": "review"}],
            "customizations": [PLUGIN],
        }


def shown() -> Any:
    return ShownAgent(Shown)
