"""Echo: says back what it is told, a word at a time. On the bare contract, without tools."""

import re
from collections.abc import Mapping
from typing import Any

import trio

from ..contracts.authoring import Agent, Session, Start

VOICES = {
    "plain": "As it was said",
    "shouty": "In capitals",
    "backwards": "From the last letter to the first",
}

#: Of a title made from the first message, in characters.
MAX_TITLE = 60


def create(delay_ms: float = 30) -> Agent:
    """The factory.

    Args:
        delay_ms: the pause between two words, in milliseconds.
    """
    return Echo(delay_s=delay_ms / 1000)


class Echo:
    """The agent: what it is, and how a session is started."""

    provider = "echo"
    display_name = "Echo"
    description = "Says back what it is told; `again` says the message before once more."

    def __init__(self, delay_s: float) -> None:
        self._delay_s = delay_s

    def schema(self) -> dict[str, Any]:
        return {
            "type": "object",
            "properties": {
                "voice": {
                    "type": "string",
                    "title": "Voice",
                    "description": "How the words come back",
                    "enum": list(VOICES),
                    "enumLabels": [name.capitalize() for name in VOICES],
                    "enumDescriptions": list(VOICES.values()),
                    "default": "plain",
                    "sessionMutable": True,
                }
            },
        }

    def defaults(self) -> dict[str, Any]:
        return {"voice": "plain"}

    def create(self, start: Start) -> Session:
        return EchoSession(start, self._delay_s)


class EchoSession:
    """One chat. Its `begin` is the turn, so cancelling and ending are the worker's."""

    def __init__(self, start: Start, delay_s: float) -> None:
        self._emit = start.emit
        self._delay_s = delay_s
        self._agent_id = start.resume or f"echo:{start.chat_id}"
        self._voice = "plain"
        if self._refusal(start.settings.get("voice", "plain")) is None:
            self._voice = start.settings.get("voice", "plain")
        self._previous = _last_message(start.seed or [])
        self._titled = start.resume is not None or bool(start.seed)

    def agent_id(self) -> str:
        return self._agent_id

    def settings(self) -> dict[str, Any]:
        return {"voice": self._voice}

    def set_config(self, key: str, value: Any) -> str | None:
        if key != "voice":
            return f"echo has no setting {key!r}"
        refusal = self._refusal(value)
        if refusal is None:
            self._voice = value
        return refusal

    async def begin(self, turn_id: str, text: str, model: str | None = None) -> None:
        if not self._titled and text.strip():
            self._titled = True
            title = " ".join(text.split())[:MAX_TITLE]
            self._emit("session", {"type": "session/titleChanged", "title": title})
        said = self._answer(text)
        part = {"kind": "markdown", "id": f"{turn_id}-said", "content": ""}
        self._emit("chat", {"type": "chat/responsePart", "turnId": turn_id, "part": part})
        of_part = {"type": "chat/delta", "turnId": turn_id, "partId": part["id"]}
        for number, word in enumerate(re.findall(r"\s*\S+\s*", said)):
            if number:
                await trio.sleep(self._delay_s)
            self._emit("chat", {**of_part, "content": word})

    def close(self, removing: bool = False) -> None:
        """Nothing is held and nothing waits."""

    def _answer(self, text: str) -> str:
        if _asks_again(text):
            if self._previous is None:
                return "Nothing was said before."
            text = self._previous
        elif text.strip():
            self._previous = text
        else:
            return "You said nothing."
        match self._voice:
            case "shouty":
                return text.upper()
            case "backwards":
                return text[::-1]
            case _:
                return text

    def _refusal(self, voice: Any) -> str | None:
        if isinstance(voice, str) and voice in VOICES:
            return None
        return f"a voice is one of {', '.join(VOICES)}, not {voice!r}"


def _asks_again(text: str) -> bool:
    return text.strip().casefold() == "again"


def _last_message(turns: Any) -> str | None:
    """The newest message of the turns so far that is an `again` of no other."""
    for turn in reversed(list(turns)):
        message = turn.get("message") if isinstance(turn, Mapping) else None
        text = message.get("text") if isinstance(message, Mapping) else None
        if isinstance(text, str) and text.strip() and not _asks_again(text):
            return text
    return None
