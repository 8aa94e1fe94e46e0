"""The least an agent is: what the fixtures beside this one add to."""

from typing import Any


class Session:
    def __init__(self, start: Any) -> None:
        self.start = start
        self.emit = start.emit

    def say(self, turn_id: str, text: str, ident: str = "said") -> None:
        part = {"kind": "markdown", "id": f"{turn_id}-{ident}", "content": text}
        self.emit("chat", {"type": "chat/responsePart", "turnId": turn_id, "part": part})

    def complete(self, turn_id: str) -> None:
        self.emit("chat", {"type": "chat/turnComplete", "turnId": turn_id, "duration": 1})

    def park(self, turn_id: str, call_id: str, asked: str = "Wait") -> None:
        of_call = {"turnId": turn_id, "toolCallId": call_id}
        start = {"type": "chat/toolCallStart", "toolName": "wait", "displayName": "Wait"}
        self.emit("chat", {**start, **of_call})
        ready = {"type": "chat/toolCallReady", "invocationMessage": asked}
        self.emit("chat", {**ready, **of_call})

    async def begin(self, turn_id: str, text: str) -> None:
        self.say(turn_id, text)

    def close(self, removing: bool = False) -> None:
        pass


class Agent:
    provider = "fixture"
    display_name = "Fixture"

    def __init__(self, session: Any = Session) -> None:
        self._session = session

    def schema(self) -> dict[str, Any]:
        return {}

    def defaults(self) -> dict[str, Any]:
        return {}

    def create(self, start: Any) -> Any:
        return self._session(start)
