"""Agents that run their turns in their own ways: threads, plain calls, subagents, recordings."""

import json
import os
import sys
import threading
import time
from typing import Any

import trio
from fixture_base import Agent, Session


class InThreads(Session):
    """A plain `begin` that answers at once; a thread says the turn, and waits to be allowed."""

    def __init__(self, start: Any) -> None:
        super().__init__(start)
        self.parked: dict[str, Any] = {}

    def agent_id(self) -> str:
        return "threads-1"

    def begin(self, turn_id: str, text: str, model: str | None = None) -> bool:
        if text == "now":
            self.say(turn_id, "at once")
            self.complete(turn_id)
        elif text == "raise":
            raise LookupError("nothing to begin with")
        elif text != "refuse":
            threading.Thread(target=self.run, args=(turn_id,), daemon=True).start()
        return text != "refuse"

    def run(self, turn_id: str) -> None:
        event = threading.Event()
        self.parked["c1"] = [turn_id, event, None]
        self.park(turn_id, "c1")
        event.wait()
        answer = self.parked.pop("c1")[2]
        if answer is None:
            cancelled = {"type": "chat/turnCancelled", "turnId": turn_id, "duration": 1}
            self.emit("chat", cancelled)
        else:
            self.say(turn_id, "allowed" if answer else "denied")
            self.complete(turn_id)

    def confirm(self, tool_call_id: str, approved: bool) -> bool:
        return self.settle(tool_call_id, approved)

    def cancel(self, turn_id: str) -> bool:
        for call_id in list(self.parked):
            self.settle(call_id, None)
        return True

    def settle(self, call_id: str, answer: Any) -> bool:
        if call_id not in self.parked:
            return False
        self.parked[call_id][2] = answer
        self.parked[call_id][1].set()
        return True


class Manners(Session):
    """Does what its message says: the odd things an agent does without meaning harm."""

    async def begin(
        self, turn_id: str, text: str, model: str | None = None, message: Any = None
    ) -> None:
        await getattr(self, text)(turn_id, model, message)

    async def told(self, turn_id: str, model: Any, message: Any) -> None:
        self.say(turn_id, json.dumps({"model": model, "message": message}))

    async def ends_itself(self, turn_id: str, *_: Any) -> None:
        self.complete(turn_id)

    async def raises(self, turn_id: str, *_: Any) -> None:
        raise ValueError("the model is out")

    async def raises_a_group(self, turn_id: str, *_: Any) -> None:
        async def fail(error: Exception) -> None:
            raise error

        async with trio.open_nursery() as nursery:
            nursery.start_soon(fail, KeyError("first"))
            nursery.start_soon(fail, OSError("second"))

    async def waits(self, turn_id: str, *_: Any) -> None:
        self.say(turn_id, "waiting")
        await trio.sleep_forever()

    async def raises_when_cancelled(self, turn_id: str, *_: Any) -> None:
        self.say(turn_id, "waiting")
        try:
            await trio.sleep_forever()
        finally:
            raise RuntimeError("could not tidy up")

    async def tidies_up(self, turn_id: str, *_: Any) -> None:
        self.say(turn_id, "waiting")
        try:
            await trio.sleep_forever()
        finally:
            self.say(turn_id, "tidying up", "last")
            with open("tidied", "x"):  # noqa: ASYNC230  # an agent's cleanup may block a moment
                pass

    async def waits_in_vain(self, turn_id: str, *_: Any) -> None:
        """Breaks `parked-settles`: what it waits on is out of reach of a cancel."""
        self.park(turn_id, "stuck")
        with trio.CancelScope(shield=True):
            await trio.sleep_forever()

    async def exits(self, turn_id: str, *_: Any) -> None:
        self.say(turn_id, "leaving")
        sys.exit(3)

    async def prints(self, turn_id: str, *_: Any) -> None:
        print('{"type":"event","event":"turn.over","payload":{"turnId":"x"}}')
        print("no line's end and half a \ud83d", end="")
        os.write(1, b"\xff\xfe raw\n")
        self.say(turn_id, "printed")

    async def in_a_thread(self, turn_id: str, *_: Any) -> None:
        def work() -> None:
            self.say(turn_id, "", "thread")
            for number in range(50):
                self.delta(turn_id, f"{number} ", "thread")

        async with trio.open_nursery() as nursery:
            for _ in range(2):
                nursery.start_soon(trio.to_thread.run_sync, work)

    async def loud(self, turn_id: str, *_: Any) -> None:
        def work() -> None:
            for _ in range(200):
                self.delta(turn_id, "x" * 50_000, "thread")

        self.say(turn_id, "", "thread")
        await trio.to_thread.run_sync(work)

    async def halves(self, turn_id: str, *_: Any) -> None:
        self.say(turn_id, "")
        for piece in ("a\ud83d", "\ude00b", "\ud83d", "\ude01", "x\ud83d"):
            self.delta(turn_id, piece)

    async def half_and_waits(self, turn_id: str, *_: Any) -> None:
        self.say(turn_id, "")
        self.delta(turn_id, "y\ud83d")
        await trio.sleep_forever()

    async def unsayable(self, turn_id: str, *_: Any) -> None:
        deep: Any = "bottom"
        for _ in range(200):
            deep = [deep]
        said = []
        for action in (
            {"type": "chat/delta", "content": float("nan")},
            {"type": "chat/delta", "content": object()},
            {"type": "chat/delta", "content": deep},
            {"type": "chat/delta", "content": "x" * (17 * 1024 * 1024)},
            {"no": "type"},
            "chat/delta",
        ):
            try:
                self.emit("chat", action)
            except (ValueError, TypeError) as error:
                said.append(f"{type(error).__name__}: {error}")
        self.say(turn_id, "\n".join(said))

    async def where(self, turn_id: str, *_: Any) -> None:
        told = {"cwd": os.getcwd(), "trio": trio.__file__, "path": sys.path}
        try:
            import only_in_the_session_folder  # noqa: F401  # whether it can be found is the test

            told["found"] = True
        except ImportError:
            told["found"] = False
        self.say(turn_id, json.dumps(told))

    async def starts_a_subagent(self, turn_id: str, *_: Any) -> None:
        first = self.start.subagent("c1", {"title": "Search", "text": "look"})
        again = self.start.subagent("c1", {"title": "Other"})
        first.emit({"type": "chat/activityChanged", "activity": "looking"})
        self.say(turn_id, json.dumps({"uri": first.chat_uri, "same": again is first}))

    async def tells(self, turn_id: str, *_: Any) -> None:
        self.start.on_file_edit(turn_id, "notes/a.txt", "before")
        self.start.on_account({"label": "someone"})
        self.emit(self.start.uri, {"type": "session/titleChanged", "title": "By URI"})

    async def seed(self, turn_id: str, *_: Any) -> None:
        turns = self.start.seed
        self.say(turn_id, json.dumps([len(turns), turns[0]["id"], turns[-1]["id"]]))

    async def trust(self, turn_id: str, *_: Any) -> None:
        folder = os.getcwd()
        asked = [folder, folder + "/.", os.path.dirname(folder), folder + "/inner"]
        self.say(turn_id, json.dumps([self.start.trusted(one) for one in asked]))

    def delta(self, turn_id: str, content: str, ident: str = "said") -> None:
        part_id = f"{turn_id}-{ident}"
        delta = {"type": "chat/delta", "turnId": turn_id, "partId": part_id, "content": content}
        self.emit("chat", delta)


class Flood(Session):
    """Says `count` actions of `size` bytes without a pause."""

    async def begin(self, turn_id: str, text: str) -> None:
        count, size = map(int, text.split())
        self.say(turn_id, "")
        delta = {"type": "chat/delta", "turnId": turn_id, "partId": f"{turn_id}-said"}
        for number in range(count):
            self.emit("chat", {**delta, "content": f"{number} ".ljust(size, ".")})


class Recorded(Session):
    """Every member says how it was called, and takes or refuses as it is told."""

    def __init__(self, start: Any) -> None:
        super().__init__(start)
        self.order: list[str] = []

    def _said(self, name: str, *given: Any) -> None:
        self.emit("session", {"type": "fixture/called", "name": name, "given": list(given)})

    async def slow(self) -> None:
        await trio.sleep(0.05)

    def title(self) -> str:
        return "Recorded"

    async def models(self) -> list[Any]:
        await self.slow()
        return [{"id": "m", "provider": "fixture", "name": "M"}]

    def activity(self) -> str:
        raise RuntimeError("no activity today")

    def working_directories(self) -> Any:
        return 5

    def all_turns(self) -> list[Any]:
        return [{"id": f"old{n}", "text": "x" * 300_000} for n in range(8)]

    async def set_config(self, key: str, value: Any) -> Any:
        self._said("set_config.starts", key)
        await trio.sleep(0.2 if key == "slow" else 0)
        self._said("set_config", key, value)
        return {"no": False, "why": "not today", "odd": 5, "zero": 0}.get(value)

    def set_working_directories(self, folders: list[str]) -> bool:
        self._said("set_working_directories", folders)
        return True

    def set_customization_enabled(self, ident: str, enabled: bool) -> bool:
        self._said("set_customization_enabled", ident, enabled)
        return True

    async def start_mcp_server(self, ident: str) -> bool:
        self._said("start_mcp_server", ident)
        return True

    def set_tools(self, tools: list[Any]) -> None:
        self._said("set_tools", tools)

    def client_gone(self, client_id: str) -> None:
        self._said("client_gone", client_id)

    def steer(self, ident: str, text: str) -> bool:
        self._said("steer", ident, text)
        return False

    def stop_worker(self, tool_call_id: str) -> None:
        self._said("stop_worker", tool_call_id)

    def confirm(
        self, tool_call_id: str, approved: bool, option_id: Any = None, **more: Any
    ) -> bool:
        self._said("confirm", tool_call_id, approved, option_id, more)
        return True

    def answer(self, request_id: str, accepted: bool, answers: Any, response: str = "") -> bool:
        self._said("answer", request_id, accepted, answers, response)
        return True

    def set_answer(self, request_id: str, question_id: str, answer: Any) -> None:
        self._said("set_answer", request_id, question_id, answer)

    def complete_tool_call(self, tool_call_id: str, client_id: str, result: Any) -> None:
        self._said("complete_tool_call", tool_call_id, client_id, result)

    def completions(self, kind: str, text: str, offset: int) -> list[Any]:
        return [{"insertText": f"{kind}:{text}:{offset}"}]

    def resume(self, turn_id: str) -> bool:
        self.complete(turn_id)
        return True

    def close(self, removing: bool = False) -> None:
        self._said("close", removing)


class Stays(Session):
    """Leaves a thread behind that never ends."""

    async def begin(self, turn_id: str, text: str) -> None:
        threading.Thread(target=time.sleep, args=(3600,)).start()


def threads() -> Agent:
    return Agent(InThreads)


def manners() -> Agent:
    return Agent(Manners)


def flood() -> Agent:
    return Agent(Flood)


def recorded() -> Agent:
    return Agent(Recorded)


def stays() -> Agent:
    return Agent(Stays)
