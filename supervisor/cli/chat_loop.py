"""The conversation in a terminal: typed lines go to the host, what comes is written at once.

On a terminal lines are read all the time: one typed while a turn runs is queued.
From a pipe a line is taken only when something is there to take it: the turn has
ended, or the agent asks. An input that is empty does not wait for a turn that others began.
"""

import os
import signal
import sys
import time
from typing import Any, TextIO
from uuid import uuid4

import trio
from attrs import frozen

from ...contracts.ahp.uris import id_in, parse_channel
from ..client import AhpClient, DispatchRefused, Envelope, Notification
from ..client_dial import ClientError
from ..sessions.clock import now
from ..sessions.parked import Parked, parked_in
from .answers import Approval, Asking, NotAnAnswer, Questions
from .lines import Lines
from .output import on_one_line
from .transcript import PROMPT, Transcript

Json = dict[str, Any]

INTERRUPTED = 130

#: Told when a pipe's line comes while a turn runs that this terminal did not start.
WAITS = "ahpd-supervisor chat: a turn is running; the input waits until it has ended."


@frozen
class _Line:
    text: str


class _End:
    """The input ended."""


class _Interrupt:
    """Ctrl-C."""


class _Changed:
    """Something came of the host, and is written already."""


_Event = _Line | _End | _Interrupt | _Changed


class ChatLoop:
    """One chat in one terminal. Made before the client, whose envelopes it is given.

    Args:
        descriptor: the input.
        output: where text goes.
    """

    def __init__(self, descriptor: int, output: TextIO) -> None:
        self._typing = os.isatty(descriptor)
        self._lines = Lines(descriptor)
        self._output = output
        self._transcript = Transcript(self._write, styled=output.isatty())
        self._client: AhpClient | None = None
        self._session_uri = ""
        self._chat_uri = ""
        self._asking: Asking | None = None
        # From a pipe: one line is let through at a time.
        self._may_read = trio.Event()
        self._line_is_due = False
        self._turn_started_s = time.monotonic()
        self._turn_seen: str | None = None
        self._waiting_for_host: trio.CancelScope | None = None
        self._gone = False
        # From a pipe: a line that came while a turn of others runs.
        self._held: str | None = None

    def on_envelope(self, envelope: Envelope) -> None:
        """An envelope came, and is in the client's mirrors: writes what it changed."""
        action = envelope.action
        if envelope.channel == self._chat_uri and envelope.rejection is None:
            self._show()
        elif (
            envelope.channel == self._session_uri
            and action["type"] == "session/chatRemoved"
            and action["chat"] == self._chat_uri
        ):
            self._gone = True

    def on_notification(self, notification: Notification) -> None:
        """A notification came: the session may be gone."""
        if notification.method == "root/sessionRemoved":
            removed = notification.params.get("session")
            if isinstance(removed, str) and self._session_uri:
                self._gone |= id_in(removed) == id_in(self._session_uri)

    async def run(self, client: AhpClient, session_uri: str, chat_uri: str) -> int:
        """Talks until the person leaves or the chat is over; answers the exit status.

        Args:
            session_uri, chat_uri: channels that the client is subscribed to.

        Raises:
            ClientError: the connection broke.
        """
        self._client, self._session_uri, self._chat_uri = client, session_uri, chat_uri
        self._welcome()
        self._show()
        # Whether anything comes at all is known before a turn of others has ended.
        self._let_line()
        send, receive = trio.open_memory_channel[_Event](0)
        with trio.open_signal_receiver(signal.SIGINT) as signals:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._read, send.clone())
                nursery.start_soon(self._watch, client, send.clone())
                nursery.start_soon(self._hear_interrupts, signals, send)
                status = await self._talk(client, receive)
                nursery.cancel_scope.cancel()
        return status

    # -- what can happen --------------------------------------------------------------

    async def _read(self, send: "trio.MemorySendChannel[_Event]") -> None:
        while True:
            if not self._typing:
                await self._may_read.wait()
                self._may_read = trio.Event()
            line = await self._lines.next()
            if line is None:
                await send.send(_End())
                return
            await send.send(_Line(line))

    async def _watch(self, client: AhpClient, send: "trio.MemorySendChannel[_Event]") -> None:
        seen = client.messages
        while not client.closed.is_set():
            seen = await client.changed_since(seen)
            await send.send(_Changed())
        await send.send(_Changed())

    async def _hear_interrupts(self, signals: Any, send: "trio.MemorySendChannel[_Event]") -> None:
        async for _ in signals:
            if self._waiting_for_host is not None:
                self._waiting_for_host.cancel()
            await send.send(_Interrupt())

    async def _talk(self, client: AhpClient, receive: "trio.MemoryReceiveChannel[_Event]") -> int:
        while True:
            if self._gone:
                self._transcript.line("(this chat was ended)")
                return 1
            if client.closed.is_set():
                raise ClientError(client.why_closed)
            self._prompt()
            if self._held is not None and self._takes_lines:
                held, self._held, self._line_is_due = self._held, None, False
                await self._typed(held)
                continue
            status: int | None = None
            match await receive.receive():
                case _Line(text) if not self._typing and not self._takes_lines:
                    self._held = text
                    print(WAITS, file=sys.stderr, flush=True)
                case _Line(text):
                    self._line_is_due = False
                    await self._typed(text)
                case _End():
                    status = self._leave()
                case _Interrupt():
                    status = await self._interrupt()
            if status is not None:
                return status

    # -- the person -------------------------------------------------------------------

    def _prompt(self) -> None:
        """Shows what is asked, or that a message is awaited; from a pipe, lets a line come."""
        asking = self._next_asking()
        if asking is not None:
            if asking is not self._asking:
                self._asking = asking
                self._transcript.asked_calls.add(asking.id)
                if asking.text:
                    self._transcript.line(asking.text)
            self._transcript.prompt(asking.prompt)
        elif not self._is_running:
            self._transcript.prompt(PROMPT)
        else:
            return
        self._let_line()

    def _let_line(self) -> None:
        if not self._line_is_due:
            self._line_is_due = True
            self._may_read.set()

    def _next_asking(self) -> Asking | None:
        """What the oldest parked request asks; the one that is being answered stays itself."""
        parked = parked_in(self._state)
        if not parked:
            self._asking = None
            return None
        if self._asking is not None and any(one.id == self._asking.id for one in parked):
            return self._asking
        return _asking_of(parked[0])

    async def _typed(self, text: str) -> None:
        self._transcript.typed(None if self._typing else text)
        if self._asking is not None and self._next_asking() is self._asking:
            await self._answer(self._asking, text)
        elif not text.strip():
            return
        elif self._is_running:
            message = {"kind": "queued", "id": str(uuid4()), "message": _message(text)}
            if await self._dispatch({"type": "chat/pendingMessageSet", **message}):
                self._transcript.line("(queued)")
        else:
            await self._begin(text)

    async def _begin(self, text: str) -> None:
        turn_id = str(uuid4())
        self._transcript.typed_turns.add(turn_id)
        started = {"turnId": turn_id, "startedAt": now(), "message": _message(text)}
        if not await self._dispatch({"type": "chat/turnStarted", **started}):
            self._transcript.typed_turns.discard(turn_id)

    async def _answer(self, asking: Asking, text: str) -> None:
        try:
            action = asking.take(text)
        except NotAnAnswer as wrong:
            self._transcript.line(str(wrong))
            return
        if action is not None:
            self._asking = None
            await self._dispatch(action)

    async def _interrupt(self) -> int | None:
        if self._is_running:
            elapsed = round((time.monotonic() - self._turn_started_s) * 1000)
            cancel = {"turnId": self._state["activeTurn"]["id"], "duration": max(0, elapsed)}
            self._transcript.interrupted()
            await self._dispatch({"type": "chat/turnCancelled", **cancel})
            return None
        if not self._typing:
            return INTERRUPTED
        self._transcript.interrupted()
        self._transcript.line("(Ctrl-D leaves)")
        return None

    def _leave(self) -> int:
        """The input ended: answers the exit status."""
        asking = self._next_asking()
        name = parse_channel(self._chat_uri)
        back = f"`ahpd-supervisor chat {on_one_line(name.id if name else self._chat_uri)}`"
        if self._typing:
            running = "The turn goes on; " if self._is_running else ""
            self._transcript.line(f"{running}{back} comes back to this chat.")
            return 0
        if asking is not None:
            self._transcript.line(f"The input ended before an answer; {back} asks again.")
            return 1
        if self._is_running:
            self._transcript.line(f"The turn goes on; {back} comes back to this chat.")
            return 0
        self._transcript.typed("")
        turns = self._state["turns"]
        return 1 if turns and turns[-1]["state"] == "error" else 0

    # -- the host ---------------------------------------------------------------------

    @property
    def _state(self) -> Json:
        assert self._client is not None
        return self._client.mirrors[self._chat_uri].state

    @property
    def _is_running(self) -> bool:
        return "activeTurn" in self._state

    @property
    def _takes_lines(self) -> bool:
        """Whether a line is a message or an answer now."""
        return not self._is_running or self._next_asking() is not None

    async def _dispatch(self, action: Json) -> bool:
        """Sends an action and waits for its echo; False, and a line that says why, if refused."""
        assert self._client is not None
        try:
            with trio.CancelScope() as self._waiting_for_host:
                await self._client.dispatched(self._chat_uri, action)
                return True
        except DispatchRefused as refused:
            self._transcript.line(f"(refused: {refused})")
        finally:
            self._waiting_for_host = None
        return False

    def _show(self) -> None:
        state = self._state
        turn = state.get("activeTurn")
        if turn is not None and turn["id"] != self._turn_seen:
            self._turn_seen, self._turn_started_s = turn["id"], time.monotonic()
        self._transcript.show(state)

    def _welcome(self) -> None:
        assert self._client is not None
        state = self._client.mirrors[self._session_uri].state
        ident = id_in(self._session_uri) or self._session_uri
        line = f"{state['provider']}, session {on_one_line(ident)}"
        if self._typing:
            line += ": Ctrl-C cancels a turn, Ctrl-D leaves"
        self._transcript.line(line)

    def _write(self, text: str) -> None:
        self._output.write(text)
        self._output.flush()


def _asking_of(parked: Parked) -> Asking:
    if parked.kind == "chatInput":
        return Questions(parked.body)
    return Approval(parked.turn_id, parked.body)


def _message(text: str) -> Json:
    return {"text": text, "origin": {"kind": "user"}}
