"""The ledger: told means kept. What goes out to clients waits until what it says is committed."""

from collections import deque
from collections.abc import Callable

import trio

from .interface import Store


class Ledger:
    """Holds back what is to be told until everything written before it is committed.

    Tellings keep their order. With a store that commits at once they run at
    once, inside the call.
    """

    def __init__(self, store: Store) -> None:
        self.store = store
        self._waiting: deque[Callable[[], None]] = deque()
        self._written = trio.Event()

    def tell(self, telling: Callable[[], None]) -> None:
        """Runs `telling` when everything written so far is kept. It must not wait nor raise."""
        if not self._waiting and not self.store.dirty:
            telling()
            return
        self._waiting.append(telling)
        self._written.set()

    async def run(self) -> None:
        """Commits and tells, until cancelled. One commit serves all that waits for it."""
        while True:
            await self._written.wait()
            self._written = trio.Event()
            waiting = len(self._waiting)
            await self.store.commit()
            for _ in range(waiting):
                self._waiting.popleft()()
