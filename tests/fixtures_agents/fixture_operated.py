"""An agent whose messages say what it does: for those who steer a host from outside."""

import json
import os
import socket
import subprocess
import sys
from typing import Any, ClassVar

import trio
from fixture_base import Agent, Session

#: What a terminal must never get: a title, a colour, a bell, a C1 control, an override.
ESCAPES = "\x1b]0;owned\x07\x1b[31mred\x1b[0m\x9b5A\u202eback\r\n"

_HELLO = """
import json, socket, sys
path, token = sys.argv[1:]
sock = socket.socket(socket.AF_UNIX)
sock.connect(path)
hello = {"id": "1", "type": "host.hello", "payload": {"token": token}}
try:
    sock.sendall(json.dumps(hello).encode() + b"\\n")
except BrokenPipeError:
    pass
print(sock.makefile().readline())
"""


def create(state_dir: str = "") -> Agent:
    """The factory.

    Args:
        state_dir: of the host on whose door `knock` knocks.
    """

    class Operated(Session):
        async def begin(self, turn_id: str, text: str) -> None:
            word, _, rest = text.partition(" ")
            match word:
                case "spin":
                    self.say(turn_id, "spinning")
                    while True:
                        pass
                case "sleep":
                    self.say(turn_id, "sleeping")
                    await trio.sleep_forever()
                case "pid":
                    self.say(turn_id, f"pid {os.getpid()} after {len(self.start.seed or [])} turns")
                case "print":
                    print(rest, file=sys.stderr, flush=True)
                    self.say(turn_id, "printed")
                case "children":
                    start_children(int(rest))
                    self.say(turn_id, "started")
                case "knock":
                    self.say(turn_id, await self.knock(detached=rest == "detached"))
                case "escape":
                    self.say(turn_id, f"before {ESCAPES}after")
                case "wait":
                    self.park(turn_id, f"{turn_id}-call")
                    await trio.sleep_forever()
                case "ask":
                    self.ask(turn_id)
                    await trio.sleep_forever()
                case "shout":
                    title = {"type": "session/titleChanged", "title": "loud " * 500_000}
                    self.emit("session", title)
                    self.park(turn_id, f"{turn_id}-call", "loud " * 500_000)
                    await trio.sleep_forever()
                case "subagent":
                    call = {"turnId": turn_id, "toolCallId": f"{turn_id}-sub"}
                    start = {"type": "chat/toolCallStart", "toolName": "t", "displayName": "T"}
                    self.emit("chat", {**start, **call})
                    ready = {"type": "chat/toolCallReady", "invocationMessage": "Sub"}
                    self.emit("chat", {**ready, **call, "confirmed": "not-needed"})
                    self.start.subagent(call["toolCallId"], {"title": "Sub", "text": "go"})
                    self.say(turn_id, "opened")
                    await trio.sleep_forever()
                case "fail":
                    raise LookupError("as it was told")
                case _:
                    self.say(turn_id, f"heard {text}")

        async def knock(self, *, detached: bool) -> str:
            with open(os.path.join(state_dir, "token")) as file:  # noqa: ASYNC230  # a moment
                token = file.read().strip()
            path = os.path.join(state_dir, "control.sock")
            command = [sys.executable, "-c", _HELLO, path, token]
            if not detached:
                return await trio.to_thread.run_sync(_hello, path, token)
            done = await trio.run_process(
                ["setsid", "--fork", "--wait", *command], capture_stdout=True
            )
            return done.stdout.decode()

        def ask(self, turn_id: str) -> None:
            questions = [
                {
                    "id": "colour",
                    "kind": "single-select",
                    "message": "Which colour?",
                    "options": [{"id": "r", "label": "Red"}, {"id": "g", "label": "Green"}],
                    "allowFreeformInput": True,
                    "required": True,
                },
                {"id": "sure", "kind": "boolean", "message": "Are you sure?", "required": True},
                {"id": "count", "kind": "integer", "message": "How many?", "min": 1, "max": 9},
            ]
            request = {"id": f"{turn_id}-q", "message": "Tell me more", "questions": questions}
            self.emit("chat", {"type": "chat/inputRequested", "request": request})
            self.asked = turn_id

        def stop_worker(self, tool_call_id: str) -> bool:
            print(f"stopped {tool_call_id}", file=sys.stderr, flush=True)
            return True

        def answer(self, request_id: str, accepted: bool, answers: Any) -> bool:
            said = {
                name: (
                    answer["value"].get("freeformValues") or answer["value"]["value"]
                    if answer["state"] == "submitted"
                    else answer["state"]
                )
                for name, answer in sorted(answers.items())
            }
            self.say(self.asked, f"accepted {accepted} with {said}")
            self.complete(self.asked)
            return True

    class OperatedAgent(Agent):
        provider = "operated"
        display_name = "Operated"
        capabilities: ClassVar[dict[str, Any]] = {"multipleChats": {}}

    return OperatedAgent(Operated)


def start_children(count: int) -> None:
    """Starts programs that leave the session and hold nothing of ours."""
    for _ in range(count):
        subprocess.Popen(
            ["sleep", "1000"],
            start_new_session=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )


def _hello(path: str, token: str) -> str:
    hello = {"id": "1", "type": "host.hello", "payload": {"token": token}}
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(path)
        try:
            sock.sendall(json.dumps(hello).encode() + b"\n")
        except BrokenPipeError:
            pass  # refused before the hello was read; what it said of that is still to be read
        return sock.makefile().readline()


def broken() -> Agent:
    """A factory that says what is missing."""
    raise LookupError("the key of the model is not set")
