"""Gathering: consecutive deltas of one part within a window become one action.

A streaming agent writes many small deltas; a person reads text. What is
gathered is published before anything else on its channel is, and before anybody
looks at the state, so nothing can be seen out of order.
"""

from collections.abc import Callable
from typing import Any

import trio

Json = dict[str, Any]

#: A gathered delta is published early when it grows past this many characters.
MAX_GATHERED_CHARS = 64 * 1024

_GATHERED = ("chat/delta", "chat/reasoning")


class Gathering:
    """The deltas of one chat that wait for their window to pass.

    Args:
        nursery: where the window is waited for.
        publish: applies and sends an action.
        window_s: how long a delta may wait, asked at the first one; 0 is not at all.
    """

    def __init__(
        self,
        nursery: trio.Nursery,
        publish: Callable[[Json], object],
        window_s: Callable[[], float],
    ) -> None:
        self._nursery = nursery
        self._publish = publish
        self._window_s = window_s
        self._first: Json | None = None
        self._texts: list[str] = []
        self._chars = 0
        self._timing = False

    def add(self, action: Json) -> bool:
        """Takes a delta that may wait; answers False for an action that must go at once."""
        if action["type"] not in _GATHERED or "_meta" in action:
            return False
        first = self._first
        if first is not None and not _continues(first, action):
            self.flush()
            first = None
        if first is None:
            window_s = self._window_s()
            if window_s <= 0:
                return False
            self._first = action
            if not self._timing:
                self._timing = True
                self._nursery.start_soon(self._flush_after, window_s)
        self._texts.append(action["content"])
        self._chars += len(action["content"])
        if self._chars > MAX_GATHERED_CHARS:
            self.flush()
        return True

    def flush(self) -> None:
        """Publishes what is gathered."""
        first, self._first = self._first, None
        if first is None:
            return
        text = "".join(self._texts)
        self._texts.clear()
        self._chars = 0
        self._publish({**first, "content": text})

    async def _flush_after(self, window_s: float) -> None:
        await trio.sleep(window_s)
        self._timing = False
        self.flush()


def _continues(first: Json, action: Json) -> bool:
    return all(first[key] == action[key] for key in ("type", "turnId", "partId"))
