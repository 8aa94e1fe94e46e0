"""A text line: one connection as the wires see it, whatever carries it."""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import AsyncIterator

import trio

#: What a waiting text costs beside its characters (its object, its place in the
#: queue). Without it a million empty messages would weigh nothing.
TEXT_OVERHEAD_BYTES = 64


class TextLine(AsyncIterator[str], ABC):
    """Passes whole text messages between a wire and one peer; knows nothing of what they mean.

    Iterating yields each message received, and ends when the connection is
    over, whoever ended it and however. Only one task may iterate.

    A wire's code for one connection is `async def route(line: TextLine) -> None`:
    it iterates, sends, and returns when the iteration ends (returning earlier
    closes the line with 1000). The line outlives no return of its route.

    Attributes:
        peer: Who is there, for log lines (`127.0.0.1:53122`). Not an identity.
        closed: Set once the connection is over and nothing more is written.
    """

    peer: str
    closed: trio.Event

    @abstractmethod
    def send(self, text: str) -> None:
        """Puts a message in the outbound buffer. Never blocks and never waits for the peer.

        The same `str` may be given to any number of lines: it is not copied
        until it is written. A line that is closing or closed drops it. When
        the buffer's bound (`max_outbound_bytes`) would be passed, the buffer is
        dropped and this line alone is closed with 1013.

        Raises:
            UnicodeEncodeError: the text holds a lone surrogate (`encode_json`
                never makes one); nothing was sent.
        """

    @abstractmethod
    async def close(self, code: int = 1000, reason: str = "") -> None:
        """Ends the connection and waits until it is over, at most `close_timeout_s`.

        What was sent before goes first, then the close code with its reason
        (at most 123 bytes of UTF-8; a longer one is cut). Idempotent: the first
        code counts. Cancelling the wait does not undo the closing.
        """

    @property
    @abstractmethod
    def buffered_bytes(self) -> int:
        """UTF-8 bytes that wait to be written, with an overhead a message."""

    def __aiter__(self) -> AsyncIterator[str]:
        return self

    @abstractmethod
    async def __anext__(self) -> str:
        """The next message received.

        Raises:
            StopAsyncIteration: the connection is over, or this end closes it.
        """


class OutboundBuffer:
    """Texts that wait for a peer, bounded in bytes. Not a channel: putting never waits."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._texts: deque[tuple[str, int]] = deque()
        self._bytes = 0

    @property
    def size_bytes(self) -> int:
        """What waits, `TEXT_OVERHEAD_BYTES` a text included."""
        return self._bytes

    def put(self, text: str) -> bool:
        """Appends `text`; False, leaving the buffer unchanged, if the bound would be passed.

        Raises:
            UnicodeEncodeError: the text holds a lone surrogate.
        """
        # `isascii` is a flag of the str; only other text is encoded to be counted.
        length = len(text) if text.isascii() else len(text.encode())
        size = length + TEXT_OVERHEAD_BYTES
        if self._bytes + size > self._max_bytes + TEXT_OVERHEAD_BYTES:
            return False
        self._texts.append((text, size))
        self._bytes += size
        return True

    def oldest(self, max_bytes: int) -> list[str]:
        """The oldest texts, one at least where any waits, together about so many bytes.

        They stay counted until `drop`: they are being written.
        """
        texts: list[str] = []
        for text, size in self._texts:
            max_bytes -= size
            if texts and max_bytes < 0:
                break
            texts.append(text)
        return texts

    def drop(self, count: int) -> None:
        """Forgets the oldest texts; nothing happens if `clear` was quicker."""
        for _ in range(min(count, len(self._texts))):
            _, size = self._texts.popleft()
            self._bytes -= size

    def clear(self) -> None:
        """Forgets everything."""
        self._texts.clear()
        self._bytes = 0
