"""The agent of the fuzzing: writes what it is told to on its frames, parks, or just talks.

A message is `say TEXT`, `park` (two approvals and a question, open until they
are settled), or `write JSON`, a list of steps: `{"frame": …}` is written as one
JSON line, `{"bytes": BASE64}` as it is; `{"then": "return" | "sleep" | "exit"}`
says how the turn goes on after them.
"""

import base64
import json
import os
from typing import Any

import trio
from fixture_base import Agent, Session

#: The worker's own number for the pipe that the host reads.
FRAMES_FD = 4


class Fuzzed(Session):
    """A session with every member that the host may call; each says yes."""

    def agent_id(self) -> str:
        return self.start.resume or "fuzzed"

    async def begin(self, turn_id: str, text: str) -> None:
        what, _, rest = text.partition(" ")
        match what:
            case "write":
                await self._write(json.loads(rest))
            case "park":
                await self._park(turn_id)
            case _:
                self.say(turn_id, rest)

    async def _write(self, steps: list[dict[str, Any]]) -> None:
        for step in steps:
            if "frame" in step:
                _write_whole(json.dumps(step["frame"]).encode() + b"\n")
            elif "bytes" in step:
                _write_whole(base64.b64decode(step["bytes"]))
            elif step["then"] == "exit":
                os._exit(0)
            elif step["then"] == "sleep":
                await trio.sleep_forever()

    async def _park(self, turn_id: str) -> None:
        number = turn_id.partition("-")[2]
        self.say(turn_id, "parked", "p1")
        for call in ("c1", "c2"):
            self.park(turn_id, f"{call}-{number}")
        request = {"id": f"r1-{number}", "message": "Well?"}
        self.emit("chat", {"type": "chat/inputRequested", "request": request})
        await trio.sleep_forever()

    def steer(self, id: str, text: str) -> bool:
        return False

    def confirm(self, tool_call_id: str, approved: bool, option_id: str | None = None) -> bool:
        return True

    def answer(self, request_id: str, accepted: bool, answers: dict[str, Any]) -> bool:
        return True

    def set_answer(self, request_id: str, question_id: str, answer: Any) -> bool:
        return True

    def set_config(self, key: str, value: Any) -> bool:
        return True

    def set_working_directories(self, directories: list[str]) -> bool:
        return True

    def set_customization_enabled(self, id: str, enabled: bool) -> bool:
        return True

    def start_mcp_server(self, id: str) -> bool:
        return True

    def stop_mcp_server(self, id: str) -> bool:
        return True

    def set_tools(self, tools: list[Any]) -> bool:
        return True

    def client_gone(self, client_id: str) -> bool:
        return True

    def resume(self, turn_id: str) -> bool:
        return True

    def stop_worker(self, tool_call_id: str) -> bool:
        return True

    def completions(self, kind: str, text: str, offset: int) -> list[Any]:
        return [{"insertText": text, "attachment": {"type": "simple", "label": kind}}]


class FuzzedAgent(Agent):
    """An agent that has several chats a session, and a setting of each kind."""

    capabilities = {"multipleChats": {}}  # noqa: RUF012  # read once, never changed

    def schema(self) -> dict[str, Any]:
        kinds = {"text": "string", "count": "integer", "flag": "boolean"}
        properties = {name: {"type": kind, "title": name} for name, kind in kinds.items()}
        return {"type": "object", "properties": properties}

    def defaults(self) -> dict[str, Any]:
        return {"text": "", "count": 0, "flag": False}


def _write_whole(data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(FRAMES_FD, view) :]


def create() -> Agent:
    return FuzzedAgent(Fuzzed)
