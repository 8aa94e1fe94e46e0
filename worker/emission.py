"""What the agent says: actions on their way out, in the order and from the thread they are said.

The host checks every action; here is only what would be lost or garbled on the
way: half a character at the end of a delta, and what JSON cannot say.
"""

import os
import threading
from collections.abc import Callable, Mapping
from typing import Any, Literal

from ..contracts.ahp.uris import chat_uri, subagent_chat_id, subagent_turn_id
from ..contracts.frames import Event
from ..contracts.json import JsonError
from ..contracts.worker_wire import Account, Create, FileEdit, SubagentOpened
from .port import WorkerPort, encoded
from .turns import ENDINGS

#: Actions whose `content` continues what was said before, and the field that says of what.
_STREAMED: Mapping[str, str] = {
    "chat/delta": "partId",
    "chat/reasoning": "partId",
    "chat/toolCallDelta": "toolCallId",
}

#: How many parts can have half a character held back at a time.
MAX_HELD = 256

#: `heard(channel, action)`: called with each action before it is written.
Heard = Callable[[str, Mapping[str, Any]], None]


class Outlet:
    """The functions of one session's `Start`. Every method may be called from any thread."""

    def __init__(self, port: WorkerPort, create: Create, heard: Heard) -> None:
        self._port = port
        self._create = create
        self._heard = heard
        self._own_channels = {create.uri: "session", create.chat_uri: "chat"}
        self._saying = threading.RLock()
        self._held: dict[tuple[str, str], dict[str, Any]] = {}
        self._subagents: dict[str, _Subagent] = {}

    def emit(self, channel: str, action: Mapping[str, Any]) -> None:
        """`Start.emit`: one action, written before this returns."""
        if not isinstance(channel, str):
            raise TypeError(f"a channel is a string, not a {type(channel).__name__}")
        if not isinstance(action, Mapping) or not isinstance(action.get("type"), str):
            raise TypeError("an action is a dict whose `type` is a string")
        channel = self._own_channels.get(channel, channel)
        with self._saying:
            whole = self._whole_characters(channel, action)
            if whole is None:
                return
            data = _encoded(channel, whole)
            if action["type"] in ENDINGS:
                self._let_go(channel, action.get("turnId"))
            self._heard(channel, whole)
            self._port.write(data)

    def subagent(self, tool_call_id: str, request: Mapping[str, Any]) -> "_Subagent":
        """`Start.subagent`: opens the chat, once for each tool call."""
        if not isinstance(tool_call_id, str) or not tool_call_id:
            raise TypeError("a tool call's id is a nonempty string")
        with self._saying:
            known = self._subagents.get(tool_call_id)
            if known is not None:
                return known
            self._port.tell(
                "subagent.opened",
                SubagentOpened(tool_call_id=tool_call_id, request=dict(request or {})),
            )
            chat_id = subagent_chat_id(self._create.chat_id, tool_call_id)
            self._subagents[tool_call_id] = _Subagent(chat_id, self)
            return self._subagents[tool_call_id]

    def on_file_edit(self, turn_id: str, path: str, phase: Literal["before", "after"]) -> None:
        """`Start.on_file_edit`; a relative path is one in the working folder."""
        if phase not in ("before", "after"):
            raise ValueError(f"a phase is 'before' or 'after', not {phase!r}")
        absolute = os.path.abspath(os.fspath(path))
        self._port.tell("agent.fileEdit", FileEdit(turn_id=turn_id, path=absolute, phase=phase))

    def on_account(self, account: Any) -> None:
        """`Start.on_account`."""
        self._port.tell("agent.account", Account(account=account))

    def trusted(self, folder: str) -> bool:
        """`Start.trusted`: exactly the folders that somebody named, however they are spelled."""
        real = os.path.realpath(folder)
        return any(os.path.realpath(one) == real for one in self._create.trusted)

    def _whole_characters(
        self, channel: str, action: Mapping[str, Any]
    ) -> Mapping[str, Any] | None:
        """The action with what was held back before it, and without the half that ends it.

        A character beyond the basic plane is two UTF-16 units, and a model's
        text is often cut between them. None: nothing is left to say now.
        """
        field = _STREAMED.get(action["type"])
        content = action.get("content")
        if field is None or not isinstance(content, str):
            return action
        key = (channel, str(action.get(field)))
        earlier = self._held.pop(key, None)
        if earlier is not None:
            content = _joined(earlier["content"] + content)
        elif not content or not "\ud800" <= content[-1] <= "\udbff":
            return action
        if content and "\ud800" <= content[-1] <= "\udbff":
            if len(self._held) >= MAX_HELD:
                self._say_held(next(iter(self._held)))
            self._held[key] = {**action, "content": content[-1]}
            content = content[:-1]
            if not content:
                return None
        return {**action, "content": content}

    def _let_go(self, channel: str, turn_id: Any) -> None:
        """Halves whose other half never came are said as they are, before their turn ends.

        Those of a turn that ended otherwise, and of a tool call's input, which has
        long been read by then, come to nothing.
        """
        for key in [key for key in self._held if key[0] == channel]:
            half = self._held[key]
            if half.get("turnId") == turn_id and half["type"] != "chat/toolCallDelta":
                self._say_held(key)
            else:
                del self._held[key]

    def _say_held(self, key: tuple[str, str]) -> None:
        self._port.write(_encoded(key[0], self._held.pop(key)))


class _Subagent:
    """A `SubagentHandle`."""

    def __init__(self, chat_id: str, outlet: Outlet) -> None:
        self._chat_id = chat_id
        self._uri = chat_uri(chat_id)
        self._outlet = outlet

    @property
    def chat_uri(self) -> str:
        return self._uri

    @property
    def turn_id(self) -> str:
        return subagent_turn_id(self._chat_id)

    def emit(self, action: Mapping[str, Any]) -> None:
        self._outlet.emit(self._uri, action)


def _encoded(channel: str, action: Mapping[str, Any]) -> bytes:
    kind = action["type"]
    payload = {"channel": channel, "action": dict(action)}
    try:
        return encoded(Event(event="agent.emit", payload=payload))
    except JsonError as error:
        raise JsonError(f"the action {kind} {error}") from None
    except ValueError as error:
        raise ValueError(f"the action {kind} {error}") from None


def _joined(text: str) -> str:
    """Two halves that meet become one character; any other half stays."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
