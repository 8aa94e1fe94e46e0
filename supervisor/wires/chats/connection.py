"""One client of this wire: its frames in and out, and its requests in their order.

Nothing a client sends ends the connection: what is no frame, no request of ours or no
payload of it is answered. Reading never waits; what takes time runs beside.
"""

import itertools
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import uuid4

import structlog
import trio

from ....contracts.ahp.uris import chat_uri, is_valid_id, session_uri
from ....contracts.chats import ChatError, ShapeError
from ....contracts.frames import BadFrame, Failure, Request, Success, encode_frame, parse_request
from ....contracts.shapes import unstructure
from ...host import Host
from ...operations import OperationRefused, Operations
from ...sessions.channel import Subscription
from ...sessions.chat import Chat
from ...sessions.stream import Envelope
from ..text_line import TextLine
from . import operating
from .answers import Acting, Answer, Later, Told
from .requests import HANDLERS, UNSERVED, read
from .threads import Threads

Json = dict[str, Any]

_log = structlog.get_logger(__name__)


def chats_route(
    host: Host, operations: Operations | None = None
) -> Callable[[TextLine], Awaitable[None]]:
    """What serves one connection of this wire, for the listener's table of routes.

    Args:
        host: whose chats they are; the wire watches them from now on.
        operations: what `host.*` requests are answered with; without it there are none.
    """
    threads = Threads(host)

    async def route(line: TextLine) -> None:
        await ChatsConnection(threads, operations, line).serve()

    return route


class ChatsConnection:
    """One connection. What it was attached to and what it preferred ends with it.

    Attributes:
        client_id: as whom its actions are dispatched; made anew for each connection.
    """

    def __init__(self, threads: Threads, operations: Operations | None, line: TextLine) -> None:
        self.client_id = f"chats:{uuid4()}"
        self.threads = threads
        self.host = threads.host
        self.operations = operations
        self.following: dict[str, operating.Following] = {}
        self._line = line
        self._nursery: trio.Nursery | None = None
        self._acting: dict[int, Acting] = {}
        self._client_seqs = itertools.count(1)
        self._behind: dict[str, deque[Callable[[], None]]] = {}
        self._waiting = 0

    async def serve(self) -> None:
        """Serves until the connection is over."""
        self.threads.connect(self)
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                async for text in self._line:
                    self._receive(text)
                nursery.cancel_scope.cancel()
        finally:
            self.threads.disconnect(self)

    def start(self, task: Callable[..., Awaitable[object]], *args: Any) -> None:
        """Runs a task that ends with the connection at the latest."""
        if self._nursery is not None:
            self._nursery.start_soon(task, *args)

    # -- what the host sends ----------------------------------------------------------

    def send_text(self, text: str) -> None:
        """Sends an encoded frame (live.Listener)."""
        self._line.send(text)

    def send_envelope(self, envelope: Envelope, subscription: Subscription) -> None:
        """This seat subscribes to nothing: `Threads` does, for all of them."""

    def send_answer(self, envelope: Envelope, spelling: str) -> None:
        """What became of an action of ours (sessions.channel.Seat)."""
        origin = envelope.origin
        acting = self._acting.pop(origin.client_seq, None) if origin is not None else None
        if acting is not None:
            acting.settle(envelope.rejection_reason)

    def send_notification(self, method: str, params: Json) -> None:
        """Rows of the session list are AHP's own."""

    def dispatch(self, chat: Chat, action: Json) -> Acting:
        """Sends an action as this client's; it stands in the chat's line with everybody's."""
        acting, seq = Acting(), next(self._client_seqs)
        self._acting[seq] = acting
        self.host.dispatch(self, chat.channel.uri, seq, action)
        return acting

    def dispatch_to_session(self, chat: Chat, action: Json) -> Acting:
        """Sends an action on the chat's session as this client's."""
        acting, seq = Acting(), next(self._client_seqs)
        self._acting[seq] = acting
        self.host.dispatch(self, chat.session.channel.uri, seq, action)
        return acting

    # -- what the client sends --------------------------------------------------------

    def _receive(self, text: str) -> None:
        request = parse_request(text)
        if isinstance(request, BadFrame):
            self.fail(request.id, "bad-request", request.message)
            return
        try:
            payload = read(request.type, request.payload)
        except KeyError:
            self.fail(request.id, "unknown-request", f"There is no request {request.type[:200]!r}.")
        except ShapeError as error:
            self.fail(request.id, "bad-request", str(error))
        else:
            if self._waiting >= self.host.bounds.max_waiting_per_connection:
                many = f"{self._waiting} requests of this connection are waiting already."
                self.fail(request.id, "chat-busy", many)
            else:
                self._queue(request, payload)

    def _queue(self, request: Request, payload: Any) -> None:
        """Takes the request now, or behind those of its chat that hold it up."""
        chat_id = getattr(payload, "chat_id", None)
        line = self._behind.get(chat_id) if chat_id is not None else None
        if line is not None:
            self._waiting += 1
            line.append(lambda: self._queue(request, payload))
            return
        there = chat_id is None or chat_id in self.host.chats or not is_valid_id(chat_id)
        if there or chat_id is None or not self._comes(request, chat_id):
            self._take(request, payload)
        elif self._nursery is not None:
            self._waiting += 1
            self._behind[chat_id] = deque([lambda: self._take(request, payload)])
            self._nursery.start_soon(self._follow, chat_id)

    def _comes(self, request: Request, chat_id: str) -> bool:
        """Whether a chat that is not there is kept, or is just being made by another client."""
        if self.host.asleep(chat_uri(chat_id)):
            return True
        making = self.host.being_created(session_uri(chat_id))
        return making is not None and request.type != "chat.create"

    async def _follow(self, chat_id: str) -> None:
        await self.host.wake(chat_uri(chat_id))
        made = self.host.being_created(session_uri(chat_id))
        if made is not None:
            await made.wait()
        self._release(chat_id)

    def _release(self, chat_id: str) -> None:
        """What waited behind this chat is taken, in its order; one of it may hold up the rest."""
        for act in self._behind.pop(chat_id, ()):
            self._waiting -= 1
            act()

    def _take(self, request: Request, payload: Any) -> None:
        try:
            answer = self._answer_to(request, payload)
        except (ChatError, OperationRefused) as error:
            self.fail(request.id, error.code, error.message)
        except Exception:
            self._failed(request)
        else:
            if not isinstance(answer, Later):
                self._succeed(request, answer)
            elif self._nursery is not None:
                chat_id = getattr(payload, "chat_id", None) if answer.holds else None
                if chat_id is not None:
                    self._behind[chat_id] = deque()
                self._waiting += 1
                self._nursery.start_soon(self._wait, request, answer, chat_id)

    def _answer_to(self, request: Request, payload: Any) -> Answer:
        if request.type in operating.OPERATING:
            return operating.answer(self, request, payload)
        unserved = UNSERVED.get(request.type)
        if unserved is not None:
            chat_id = getattr(payload, "chat_id", None)
            if chat_id is not None:
                self.threads.chat(chat_id)
            raise ChatError("chat-unsupported", unserved)
        return HANDLERS[request.type](self, payload)

    async def _wait(self, request: Request, answer: Later, chat_id: str | None) -> None:
        try:
            result = await answer.wait()
        except (ChatError, OperationRefused) as error:
            self.fail(request.id, error.code, error.message)
        except Exception:
            self._failed(request)
        else:
            self._succeed(request, result)
        finally:
            self._waiting -= 1
            if chat_id is not None:
                self._release(chat_id)

    # -- answering --------------------------------------------------------------------

    def _succeed(self, request: Request, answer: Any) -> None:
        def telling() -> None:
            try:
                text = self._success(request, answer)
            except ChatError as error:
                self._line.send(_failure(request.id, error.code, error.message))
            except Exception:
                _log.exception("request failed", request=request.type[:200])
                self._line.send(_failure(request.id, "internal", _INTERNAL))
            else:
                self._line.send(text)

        ledger = self.host.ledger
        reads = isinstance(answer, Told) and answer.reads
        (ledger.answer if reads else ledger.tell)(telling)

    def _success(self, request: Request, answer: Any) -> str:
        told = answer if isinstance(answer, Told) else Told(lambda: answer)
        data = encode_frame(Success(id=request.id, result=unstructure(told.make())))
        if told.smaller is not None and len(data) > self.host.bounds.max_frame_bytes:
            data = encode_frame(Success(id=request.id, result=unstructure(told.smaller())))
        return data.decode()

    def fail(self, ident: str | None, code: str, message: str) -> None:
        """Refuses a request; `ident` is None where the frame had no usable one."""
        text = _failure(ident, code, message)
        self.host.ledger.answer(lambda: self._line.send(text))

    def _failed(self, request: Request) -> None:
        # Whatever fails in here is ours: logged whole, and told in one sentence.
        _log.exception("request failed", request=request.type[:200])
        self.fail(request.id, "internal", _INTERNAL)


_INTERNAL = "The host failed to do this; its log says more."


def _failure(ident: str | None, code: str, message: str) -> str:
    return encode_frame(Failure(id=ident, code=code, message=message)).decode()
