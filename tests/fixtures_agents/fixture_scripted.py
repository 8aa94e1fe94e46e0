"""An agent that does what its message says: commands between semicolons, one after the other.

    stream 3; tool; ask; title A new name; fail

The laws of the host are tested with it, so its repertoire is what agents do:
right, wrong, and at the worst moment.
"""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import trio
from fixture_base import Agent, Session

Action = dict[str, Any]

MESSAGE = {"text": "an agent's own turn", "origin": {"kind": "agent"}}
NOON = "2026-10-01T12:00:00.000Z"


class Scripted(Session):
    """One chat. What waits on a person is held in a map by id."""

    def __init__(self, start: Any) -> None:
        super().__init__(start)
        self.count = len(start.seed or ())
        self.answers: dict[str, Any] = {}
        self.waiting: dict[str, trio.Event] = {}
        self.takes_steering = True
        self.stubborn = False
        self.told: list[Any] = []
        self.steered = trio.Event()
        self.turn_id = ""

    def agent_id(self) -> str:
        return f"scripted:{self.start.chat_id}"

    # -- what the host asks -----------------------------------------------------------

    def set_config(self, key: str, value: Any) -> Any:
        self.told.append((key, value))
        return False if self.stubborn else _verdict(value)

    async def set_working_directories(self, folders: list[str]) -> Any:
        self.emit("session", {"type": "session/metaChanged", "_meta": {"folders": folders}})
        if any(folder.endswith("/slow") for folder in folders):
            await trio.sleep(0.4)
        return not any(folder.endswith("/no") for folder in folders)

    def steer(self, ident: str, text: str) -> bool:
        if self.takes_steering:
            self.part(self.turn_id, f"steered: {text}")
            self.steered.set()
        return self.takes_steering

    def confirm(self, tool_call_id: str, approved: bool, option_id: str | None = None) -> bool:
        return self.settle(tool_call_id, approved)

    def answer(self, request_id: str, accepted: bool, answers: Any) -> bool:
        return self.settle(request_id, answers if accepted else None)

    def cancel(self, turn_id: str) -> bool:
        return True

    def stop_worker(self, tool_call_id: str) -> bool:
        return True

    def resume(self, turn_id: str) -> bool:
        """Says the rest before it answers, as an agent may."""
        self.part(turn_id, "resumed")
        self.complete(turn_id)
        return True

    def settle(self, ident: str, answer: Any) -> bool:
        waiting = self.waiting.pop(ident, None)
        if waiting is None:
            return False
        self.answers[ident] = answer
        waiting.set()
        return True

    # -- the turn ---------------------------------------------------------------------

    async def begin(self, turn_id: str, text: str) -> None:
        self.turn_id = turn_id
        for command in text.split(";"):
            name, _, rest = command.strip().partition(" ")
            if name:
                await getattr(self, f"do_{name}")(turn_id, rest)

    def say_chat(self, kind: str, **members: Any) -> None:
        self.emit("chat", {"type": f"chat/{kind}", **members})

    def new_id(self, turn_id: str) -> str:
        self.count += 1
        return f"{turn_id}.{self.count}"

    def part(self, turn_id: str, content: str, kind: str = "markdown") -> str:
        ident = self.new_id(turn_id)
        part = {"kind": kind, "id": ident, "content": content}
        self.say_chat("responsePart", turnId=turn_id, part=part)
        return ident

    async def wait_for(self, ident: str) -> Any:
        waiting = self.waiting[ident]
        try:
            await waiting.wait()
        finally:
            self.waiting.pop(ident, None)
        return self.answers.pop(ident)

    async def do_stream(self, turn_id: str, rest: str) -> None:
        part_id = self.part(turn_id, "")
        for number in range(int(rest or 3)):
            self.say_chat("delta", turnId=turn_id, partId=part_id, content=f"w{number} ")
            if number % 4 == 3:
                await trio.sleep(0.01)

    async def do_think(self, turn_id: str, rest: str) -> None:
        part_id = self.part(turn_id, "", "reasoning")
        self.say_chat("reasoning", turnId=turn_id, partId=part_id, content="hm, ")
        self.say_chat("reasoning", turnId=turn_id, partId=part_id, content=rest or "well")
        self.say_chat("usage", turnId=turn_id, usage={"inputTokens": 3, "outputTokens": 4})

    async def do_tool(self, turn_id: str, rest: str) -> None:
        """One that asks."""
        await self.run_call(turn_id, self.open_call(turn_id))

    async def do_tools(self, turn_id: str, rest: str) -> None:
        """Two in parallel; both ask before either is answered."""
        calls = [self.open_call(turn_id), self.open_call(turn_id)]
        async with trio.open_nursery() as nursery:
            for call_id in calls:
                nursery.start_soon(self.run_call, turn_id, call_id)

    async def do_free(self, turn_id: str, rest: str) -> None:
        """One that is not asking."""
        call_id = self.open_call(turn_id, confirmed="not-needed")
        content = [{"type": "text", "text": "working"}]
        self.say_chat("toolCallContentChanged", turnId=turn_id, toolCallId=call_id, content=content)
        self.finish_call(turn_id, call_id)

    async def do_review(self, turn_id: str, rest: str) -> None:
        """One whose result waits to be allowed."""
        call_id = self.open_call(turn_id, confirmed="not-needed")
        self.waiting[call_id] = trio.Event()
        self.finish_call(turn_id, call_id, requiresResultConfirmation=True)
        approved = await self.wait_for(call_id)
        self.part(turn_id, f"reviewed: {approved}")

    async def do_ask(self, turn_id: str, rest: str) -> None:
        request_id = self.new_id(turn_id)
        questions = [
            {"id": "must", "kind": "text", "message": "Who?", "required": True},
            {"id": "may", "kind": "boolean", "message": "Now?"},
        ]
        self.waiting[request_id] = trio.Event()
        request = {"id": request_id, "message": "Tell me", "questions": questions}
        self.say_chat("inputRequested", request=request)
        answers = await self.wait_for(request_id)
        self.part(turn_id, f"answered: {answers}")

    async def do_park(self, turn_id: str, rest: str) -> None:
        """A call and a question that wait on a person, and nobody who waits for them."""
        self.open_call(turn_id)
        request = {"id": self.new_id(turn_id), "message": "Anyone?"}
        self.say_chat("inputRequested", request=request)

    async def do_recall(self, turn_id: str, rest: str) -> None:
        """Says what it knows of the conversation so far."""
        turns = [turn["id"] for turn in self.start.seed or ()]
        self.part(turn_id, f"{self.start.resume} {turns} {self.start.rewind_at}")

    async def do_settings(self, turn_id: str, rest: str) -> None:
        self.part(turn_id, str(dict(sorted(self.start.settings.items()))))

    async def do_told(self, turn_id: str, rest: str) -> None:
        self.part(turn_id, str(self.told))

    async def do_stubborn(self, turn_id: str, rest: str) -> None:
        self.stubborn = True

    async def do_print(self, turn_id: str, rest: str) -> None:
        print(rest, file=sys.stderr, flush=True)

    def open_call(self, turn_id: str, confirmed: str | None = None) -> str:
        call_id = self.new_id(turn_id)
        named = {"turnId": turn_id, "toolCallId": call_id}
        self.say_chat("toolCallStart", **named, toolName="scripted", displayName="Scripted")
        self.say_chat("toolCallDelta", **named, content='{"a":')
        options = [{"id": "once", "label": "Once", "kind": "approve"}]
        ready: Action = {"invocationMessage": {"markdown": "Do *it*"}, "toolInput": '{"a":1}'}
        if confirmed is None:
            self.waiting[call_id] = trio.Event()
            ready |= {"editable": True, "options": options}
        else:
            ready["confirmed"] = confirmed
        self.say_chat("toolCallReady", **named, **ready)
        return call_id

    async def run_call(self, turn_id: str, call_id: str) -> None:
        if await self.wait_for(call_id):
            self.finish_call(turn_id, call_id)
        else:
            self.part(turn_id, "not allowed")

    def finish_call(self, turn_id: str, call_id: str, **more: Any) -> None:
        result = {
            "success": True,
            "pastTenseMessage": "Did it",
            "content": [{"type": "text", "text": "done"}],
        }
        named = {"turnId": turn_id, "toolCallId": call_id}
        self.say_chat("toolCallComplete", **named, result=result, **more)

    async def do_title(self, turn_id: str, rest: str) -> None:
        self.emit("session", {"type": "session/titleChanged", "title": rest})

    async def do_activity(self, turn_id: str, rest: str) -> None:
        self.say_chat("activityChanged", **({"activity": rest} if rest else {}))

    async def do_work(self, turn_id: str, rest: str) -> None:
        work = {"type": "shell", "id": rest or "w", "label": "A server", "startedAt": NOON}
        self.say_chat("backgroundWorkSet", work=work)

    async def do_unwork(self, turn_id: str, rest: str) -> None:
        self.say_chat("backgroundWorkRemoved", id=rest or "w")

    async def do_meta(self, turn_id: str, rest: str) -> None:
        self.emit("session", {"type": "session/metaChanged", "_meta": {"note": rest}})

    async def do_steering(self, turn_id: str, rest: str) -> None:
        self.takes_steering = rest != "refuse"

    async def do_until_steered(self, turn_id: str, rest: str) -> None:
        self.steered = trio.Event()
        await self.steered.wait()

    async def do_pause(self, turn_id: str, rest: str) -> None:
        await trio.sleep(float(rest or 0.05))

    async def do_wait(self, turn_id: str, rest: str) -> None:
        await trio.sleep_forever()

    async def do_subagent(self, turn_id: str, rest: str) -> None:
        """Opens a subagent's chat that streams, and then asks, ends, or is left as it is."""
        call_id = self.open_call(turn_id, confirmed="not-needed")
        handle = self.start.subagent(call_id, {"title": "Helper", "text": "help"})
        inner = self.subagent_turn(call_id)
        part = {"kind": "markdown", "id": f"{call_id}.p", "content": ""}
        handle.emit({"type": "chat/responsePart", "turnId": inner, "part": part})
        for word in ("on ", "it"):
            delta = {"turnId": inner, "partId": f"{call_id}.p", "content": word}
            handle.emit({"type": "chat/delta", **delta})
        if rest == "ask":
            request = {"id": f"{call_id}.q", "message": "May the helper?"}
            self.waiting[f"{call_id}.q"] = trio.Event()
            handle.emit({"type": "chat/inputRequested", "request": request})
            await self.wait_for(f"{call_id}.q")
        elif rest == "wait":
            await trio.sleep_forever()
        if rest != "leave":
            handle.emit({"type": "chat/turnComplete", "turnId": inner, "duration": 5})
        self.finish_call(turn_id, call_id)

    def subagent_turn(self, call_id: str) -> str:
        from ahpd.contracts.ahp.uris import subagent_chat_id

        return f"{subagent_chat_id(self.start.chat_id, call_id)}-turn"

    # -- endings of every kind --------------------------------------------------------

    async def do_end(self, turn_id: str, rest: str) -> None:
        """Ends by its own word: completely, or in another way."""
        members = {"turnId": turn_id, "duration": 7}
        if rest == "error":
            error = {"errorType": "scripted", "message": "as told"}
            part = {"kind": "error", "error": error, "resumable": True}
            self.say_chat("error", **members, part=part)
        elif rest == "twice":
            self.complete(turn_id)
            self.complete(turn_id)
        elif rest == "timeless":
            self.say_chat("turnComplete", turnId=turn_id)
        elif rest == "cancelled":
            self.say_chat("turnCancelled", **members)
        else:
            self.complete(turn_id)

    async def do_fail(self, turn_id: str, rest: str) -> None:
        raise RuntimeError(rest or "as told")

    async def do_exit(self, turn_id: str, rest: str) -> None:
        os._exit(int(rest or 3))

    async def do_signal(self, turn_id: str, rest: str) -> None:
        os.kill(os.getpid(), signal.Signals[rest or "SIGKILL"])
        await trio.sleep_forever()

    async def do_hang(self, turn_id: str, rest: str) -> None:
        """Hears nothing for so many seconds."""
        time.sleep(float(rest or 3600))  # noqa: ASYNC251  # not hearing is what is asked for

    async def do_deaf(self, turn_id: str, rest: str) -> None:
        """Does not let itself be cancelled, and goes on talking."""
        with trio.CancelScope(shield=True):
            while True:
                self.part(turn_id, "still here")
                await trio.sleep(0.05)

    async def do_own(self, turn_id: str, rest: str) -> None:
        """After this turn, begins one by itself."""

        def speak() -> None:
            time.sleep(0.05)
            own = self.new_id("own")
            self.say_chat("turnStarted", turnId=own, startedAt=NOON, message=MESSAGE)
            self.part(own, "by myself")
            self.complete(own)

        threading.Thread(target=speak, daemon=True).start()

    # -- what breaks a rule, or says what is already so -------------------------------

    async def do_break(self, turn_id: str, rest: str) -> None:
        for channel, action in BREAKING[rest](turn_id):
            self.emit(channel, action)


def _verdict(value: Any) -> Any:
    if value == "slow":
        time.sleep(0.3)
    return {"no": False, "why": "not today"}.get(value) if isinstance(value, str) else None


def _chat(kind: str, **members: Any) -> tuple[str, Action]:
    return "chat", {"type": f"chat/{kind}", **members}


def _session(kind: str, **members: Any) -> tuple[str, Action]:
    return "session", {"type": f"session/{kind}", **members}


#: By what is wrong: the actions that are said, on their channels.
BREAKING: dict[str, Callable[[str], list[tuple[str, Action]]]] = {
    "order": lambda turn: [
        _chat("delta", turnId=turn, partId="never", content="x"),
        _chat("toolCallComplete", turnId=turn, toolCallId="never", result=RESULT),
        _chat("toolCallReady", turnId=turn, toolCallId="never", invocationMessage="x"),
    ],
    "turn": lambda turn: [
        _chat("delta", turnId="another", partId="never", content="x"),
        _chat("turnComplete", turnId="another", duration=1),
        _chat("turnStarted", turnId="another", startedAt=NOON, message=MESSAGE),
    ],
    "said-back": lambda turn: [
        _chat("turnStarted", turnId=turn, startedAt=NOON, message={"text": "", "origin": {}}),
        _chat("toolCallConfirmed", turnId=turn, toolCallId="never", approved=True),
        _chat("inputCompleted", requestId="never", response="accept"),
        _chat("pendingMessageSet", kind="queued", id="q", message=MESSAGE),
        _chat("draftChanged", draft=MESSAGE),
        _session("ready"),
        _session("inputNeededSet", request={"id": "x", "kind": "chatInput"}),
        _session("chatRemoved", chat="ahp-chat:/x"),
        _session("activityChanged", activity="x"),
    ],
    "shape": lambda turn: [
        _chat("delta", turnId=turn, partId=5, content="x"),
        _chat("responsePart", turnId=turn, part={"kind": "markdown", "content": "x"}),
        _chat("responsePart", turnId=turn, part=None),
        _chat("usage", turnId=turn, usage={"inputTokens": True}),
        _chat("activityChanged", activity=True),
        _session("titleChanged", title=5),
        _session("customizationsChanged", customizations=[{"id": 5}]),
        ("chat", {"type": "chat/unheardOf"}),
    ],
    "channel": lambda turn: [
        ("ahp-chat:/elsewhere", {"type": "chat/activityChanged", "activity": "x"}),
        ("ahp-root://", {"type": "root/activeSessionsChanged", "activeSessions": 99}),
        ("chat", {"type": "session/titleChanged", "title": "x"}),
        ("session", {"type": "chat/activityChanged", "activity": "x"}),
        ("terminal", {"type": "terminal/data", "data": "x"}),
        _chat("truncated"),
        _chat("turnsLoaded", turns=[]),
    ],
    "twice": lambda turn: [
        _chat("responsePart", turnId=turn, part=_part(turn)),
        _chat("responsePart", turnId=turn, part=_part(turn)),
        _chat("toolCallStart", turnId=turn, toolCallId=f"{turn}.c", toolName="t", displayName="T"),
        _chat("toolCallStart", turnId=turn, toolCallId=f"{turn}.c", toolName="t", displayName="T"),
        _chat("responsePart", turnId=turn, part={"kind": "toolCall", "toolCall": {}}),
    ],
}

RESULT = {"success": True, "pastTenseMessage": "Did it"}


def _part(turn: str) -> Action:
    return {"kind": "markdown", "id": f"{turn}.twice", "content": "once"}


class ScriptedAgent(Agent):
    display_name = "Scripted"
    capabilities = {"multipleChats": {}}  # noqa: RUF012  # an agent is as plain as this

    def schema(self) -> Any:
        properties = {
            "mood": {"type": "string", "title": "Mood", "default": "calm"},
            "level": {"type": "integer", "title": "Level", "default": 1},
            "fixed": {"type": "boolean", "title": "Fixed", "sessionMutable": False},
        }
        return {"type": "object", "properties": properties}

    def defaults(self) -> Any:
        return {"mood": "calm", "level": 1, "fixed": False}


def scripted() -> Agent:
    return ScriptedAgent(Scripted)
