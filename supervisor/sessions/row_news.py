"""What of a session's row in the list is other now: told at once, and gathered when it is much.

A row is told to everybody who lists sessions, also to those who never looked at
this one. So an agent that changes its title without end must not reach them
with each change: after a few within a window only the newest state of the row
is told, at the window's end. The row's notifications carry no number, and
nothing is lost by leaving out what is no longer so.
"""

from collections.abc import Callable

import trio

WINDOW_S = 0.1

#: Told at once within one window; what a person does to a session is never more.
AT_ONCE = 20


class RowNews:
    """The news of one session's row.

    Args:
        nursery: where the window is waited for.
        tell: tells everybody what is other than what was told last; answers
            whether anything is.
    """

    def __init__(self, nursery: trio.Nursery, tell: Callable[[], bool]) -> None:
        self._nursery = nursery
        self._tell = tell
        self._told = 0
        self._waiting = False
        self._timing = False

    def changed(self) -> None:
        """Something may be other now."""
        if self._told >= AT_ONCE:
            self._waiting = True
        elif self._tell():
            self._told += 1
            if not self._timing:
                self._timing = True
                self._nursery.start_soon(self._end_of_window)

    def flush(self) -> None:
        """Tells what waits; called before anybody is shown the row."""
        if self._waiting:
            self._waiting = False
            self._tell()

    async def _end_of_window(self) -> None:
        await trio.sleep(WINDOW_S)
        self._timing = False
        self._told = 0
        if self._waiting:
            self._waiting = False
            self.changed()
