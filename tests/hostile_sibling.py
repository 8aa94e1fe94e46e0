"""The session beside the hostile ones: it streams all the while, and must lose nothing by them.

Its agent is `hostile/steady.py`, whose words say when they were said. A client that
holds its chat measures two things as they arrive: the longest pause, which is the
time between two arrivals less the agent's own pace, and the longest way, which is the
time from a word's being said to its arrival. A pause that is no way is the machine's.
"""

import re
import time
from pathlib import Path
from typing import Any

from ahp_client import AhpClient

Json = dict[str, Any]

#: The agent's own pace: what it waits between two words (`hostile/steady.py`).
PACE_S = 0.01

#: How its client subscribes to the chat: each word is an action, told as it comes.
UNGATHERED = {"maxLatencyMs": 0}

#: What the agent says of how many words it said, with its last.
_COUNT = re.compile(r"= (\d+)$")


class Sibling:
    """A session of the agent `steady` and what its client heard of it.

    Args:
        client: subscribed to the session and to its chat, and to nothing else.
        until: the path that the agent was given: it ends its turn when a file is there.

    Attributes:
        longest_pause_s, longest_way_s: of the words of the last turn; while `watch` runs.
    """

    def __init__(self, client: AhpClient, session: str, chat: str, until: Path) -> None:
        self.client = client
        self.session = session
        self.chat = chat
        self.longest_pause_s = 0.0
        self.longest_way_s = 0.0
        self._until = until
        self._turn_id = ""
        self._title: Any = None
        self._heard = 0
        self._last_s: float | None = None

    async def speak(self, turn_id: str) -> None:
        """Begins a turn, which goes on until `end`; returns when its first word is there."""
        self._until.unlink(missing_ok=True)
        self._turn_id = turn_id
        self.client.envelopes.clear()
        self._heard, self._last_s = 0, None
        await self.client.start_turn(self.chat, turn_id, "stream")
        await self.client.until(lambda: len(self.client.envelopes) > 2, what="its first word")
        # A session's first message gives it its title; what follows it is nobody's to give.
        await self.client.until(
            lambda: self.client.states[self.session].get("title"), what="its title"
        )
        self._title = self.client.states[self.session]["title"]
        self.longest_pause_s = self.longest_way_s = 0.0

    async def watch(self) -> None:
        """Measures what arrives, until it is cancelled."""
        while True:
            await self.client.until(
                lambda: len(self.client.envelopes) > self._heard, within_s=float("inf")
            )
            at_s = time.monotonic()
            arrived, self._heard = (
                self.client.envelopes[self._heard :],
                len(self.client.envelopes),
            )
            for envelope in arrived:
                action = envelope["action"]
                if envelope["channel"] == self.chat and action["type"] == "chat/delta":
                    self._measure(at_s, action["content"])

    def _measure(self, at_s: float, text: str) -> None:
        if self._last_s is not None:
            self.longest_pause_s = max(self.longest_pause_s, at_s - self._last_s - PACE_S)
        self._last_s = at_s
        for word in text.split():
            number, _, said_ns = word.partition(":")
            if number.isdecimal() and said_ns.isdecimal():
                self.longest_way_s = max(self.longest_way_s, at_s - int(said_ns) / 1e9)

    async def end(self) -> str | None:
        """Ends the turn and holds what came of it against what was said; answers what is lost."""
        running = self.client.states[self.chat].get("activeTurn")
        if running is None or running["id"] != self._turn_id:
            return "its turn ended before it was told to"
        self._until.touch()
        turn = await self.client.ended(self.chat, self._turn_id)
        if turn["state"] != "complete":
            return f"its turn ended as {turn['state']}: {turn['responseParts'][-1:]}"
        if [part["kind"] for part in turn["responseParts"]] != ["markdown"]:
            return "its turn holds what it did not say"
        text = turn["responseParts"][0]["content"]
        count = _COUNT.search(text)
        numbers = re.findall(r"(\d+):\d+ ", text)
        if count is None or count[1] == "0" or numbers != list(map(str, range(int(count[1])))):
            return f"of {count and count[1]} words {len(numbers)} arrived, or out of order"
        fresh = await self.client.snapshot(self.chat, delivery=UNGATHERED)
        if self.client.states[self.chat] != fresh:
            return "its client's state is not what a fresh snapshot shows"
        if self.client.states[self.session].get("title") != self._title:
            return "somebody else gave it a title"
        seqs = [envelope["serverSeq"] for envelope in self.client.envelopes]
        if seqs != sorted(set(seqs)):
            return "its envelopes came twice or out of order"
        return None
