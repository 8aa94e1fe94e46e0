"""The ledger: told means kept. What goes out to clients waits until what it says is committed."""

from collections import deque
from collections.abc import Callable

import structlog
import trio

from .interface import Store, StoreError

log = structlog.get_logger()

#: Between two tries to keep what could not be kept.
RETRY_S = 1.0


class Ledger:
    """Holds back what is to be told until everything written before it is committed.

    Tellings keep their order. With a store that commits at once they run at
    once, inside the call. Streamed text is told before it is kept, unless
    something stands before it that is not, and is kept within the flush window.

    When the disk refuses, what was to be told of it is held back until it does
    not, nothing more is taken (`refusing` says why), and reading goes on.

    Args:
        flush_window_s: how long streamed text may wait for its commit.
    """

    def __init__(self, store: Store, *, flush_window_s: float = 0.1) -> None:
        self.store = store
        self.refusing: str | None = None
        """Why nothing can be kept at the moment; None while all is well."""
        self._flush_window_s = flush_window_s
        self._waiting: deque[Callable[[], None]] = deque()
        self._written = trio.Event()
        self._hurried = trio.Event()
        self._keeping = trio.Event()
        self._keeping.set()
        self._committing = trio.Lock()
        store.on_write = self._on_write

    def tell(self, telling: Callable[[], None]) -> None:
        """Runs `telling` when everything written so far is kept. It must not wait nor raise."""
        if not self._waiting and not self.store.must_commit:
            telling()
            return
        self._waiting.append(telling)
        self._hurry()

    def answer(self, telling: Callable[[], None]) -> None:
        """As `tell`, but for what says nothing new, a reading or a refusal: while the disk
        refuses, it is told all the same."""
        if self.refusing is not None:
            telling()
        else:
            self.tell(telling)

    async def settle(self) -> None:
        """Keeps and tells everything that was written before, unless it cannot be kept."""
        while self._waiting or self.store.behind:
            if not await self._commit():
                return

    async def until_keeping(self) -> None:
        """Waits while nothing can be kept."""
        await self._keeping.wait()

    def _on_write(self) -> None:
        self._written.set()
        if self.store.must_commit:
            self._hurried.set()

    def _hurry(self) -> None:
        self._written.set()
        self._hurried.set()

    async def run(self) -> None:
        """Commits and tells, until cancelled. One commit serves all that waits for it."""
        while True:
            await self._written.wait()
            if not self._hurried.is_set():
                with trio.move_on_after(self._flush_window_s):
                    await self._hurried.wait()
            self._written = trio.Event()
            self._hurried = trio.Event()
            if not await self._commit():
                await trio.sleep(RETRY_S)
                self._hurry()

    async def _commit(self) -> bool:
        """Commits what was written, and tells what waited for it; False when it is refused."""
        async with self._committing:
            waiting = len(self._waiting)
            try:
                await self.store.commit()
            except StoreError as error:
                if self.refusing is None:
                    log.error("nothing can be kept; what is new is refused", why=str(error))
                    self._keeping = trio.Event()
                self.refusing = str(error)
                return False
            if self.refusing is not None:
                log.warning("what could not be kept is kept now; work goes on")
                self.refusing = None
                self._keeping.set()
            for _ in range(waiting):
                self._tell_next()
            return True

    def _tell_next(self) -> None:
        telling = self._waiting.popleft()
        try:
            telling()
        except Exception:
            # A fault of ours in one telling must not end the telling of everything else.
            log.exception("telling a client failed")
