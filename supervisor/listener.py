"""The listener: from a bound port to a text line in the hands of a wire, each connection apart.

trio-websocket's own server is not used: bytes beyond ASCII in a header, or an
oversized message followed by a ping, end the whole of it. Here each connection
has its own nursery, and whatever goes wrong in it is logged and ends it alone.
"""

import errno
import ssl
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias
from urllib.parse import quote

import structlog
import trio
from attrs import frozen
from trio_websocket import WebSocketConnection, WebSocketRequest, wrap_server_stream

from .admission import Admission, Refusal
from .bounds import Bounds
from .wires.text_line import TextLine
from .wires.websocket import WebSocketLine
from .wires.websocket_frames import INTERNAL_ERROR, FrameMeter
from .wires.websocket_stream import (
    READ_BYTES,
    HeadTooLong,
    Transport,
    WebSocketStream,
    give_up_on_silence,
)

log = structlog.get_logger()

#: Serves one connection of a wire: iterates the line, sends to it, and returns
#: when it ends. See `TextLine`.
Route: TypeAlias = Callable[[TextLine], Awaitable[None]]

#: Connections past `max_connections` that are still told so; what comes on top of
#: these is closed without a word, so that refusing costs no more than serving.
_MAX_CROWD = 64

_GOING_AWAY = 1001
_STATUS_WORDS = {400: "Bad Request", 431: "Request Header Fields Too Large"}


class ListenError(Exception):
    """The host cannot listen as it was told; the message is one sentence for a person."""


@frozen(kw_only=True)
class Address:
    """Where the host listens, for people and clients."""

    host: str
    port: int
    tls: bool

    def url(self, path: str = "/", *, token: str | None = None) -> str:
        """The WebSocket address of a path, with the token when one is given."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        query = "" if token is None else f"?token={quote(token, safe='')}"
        return f"{'wss' if self.tls else 'ws'}://{host}:{self.port}{path}{query}"


def tls_context(cert: Path, key: Path) -> ssl.SSLContext:
    """A server's TLS context (1.2 and newer) from a certificate chain and its key, both PEM.

    Raises:
        ListenError: a file cannot be read, is no PEM, needs a password, or the two differ.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        # Without the password function OpenSSL would ask on the terminal.
        context.load_cert_chain(cert, key, password=lambda: "")
    except ssl.SSLError as error:
        raise ListenError(
            f"{cert} and {key} are no certificate and its key in PEM without a password: "
            f"{error.reason or error}"
        ) from None
    except OSError as error:
        raise ListenError(f"cannot read {cert} or {key}: {error.strerror or error}") from None
    return context


async def bind(host: str, port: int, *, tls: ssl.SSLContext | None = None) -> "Binding":
    """Binds and listens. Nobody is served until `serve`; who connects before that waits.

    Args:
        host: an address, or a name of this machine.
        port: 0 lets the system pick a free one.

    Raises:
        ListenError: the port is in use, or the address cannot be bound.
    """
    if not 0 <= port <= 65535:
        # The resolver would take it modulo 65536, and the host listen somewhere else.
        raise ListenError(f"{port} is no port: 0 to 65535")
    try:
        listeners = await trio.open_tcp_listeners(port, host=host)
    except (OSError, UnicodeError) as error:
        raise ListenError(_bind_sentence(host, port, error)) from None
    if port == 0:
        # A name with several addresses got several free ports. One address is told.
        for extra in listeners[1:]:
            await extra.aclose()
        del listeners[1:]
    bound = listeners[0].socket.getsockname()
    address = Address(host=bound[0], port=bound[1], tls=tls is not None)
    return Binding(address=address, listeners=tuple(listeners), tls=tls)


@frozen(kw_only=True)
class Binding:
    """Sockets that listen. Whoever has it closes it, or gives it to a `Listener`, which does."""

    address: Address
    listeners: Sequence[trio.SocketListener]
    tls: ssl.SSLContext | None

    async def aclose(self) -> None:
        """Stops listening."""
        for listener in self.listeners:
            await listener.aclose()


class Listener:
    """Lets connections in and gives each to the route of its path. Do not subclass.

    Args:
        binding: where; it is closed when serving ends.
        admission: the rule each handshake is held against.
        routes: by path (`/` is AHP). Read anew at each handshake.
        bounds: of connections and frames.
    """

    def __init__(
        self,
        binding: Binding,
        *,
        admission: Admission,
        routes: Mapping[str, Route],
        bounds: Bounds,
    ) -> None:
        self._binding = binding
        self._admission = admission
        self._routes = routes
        self._bounds = bounds
        self._connections = 0
        self._lines: set[WebSocketLine] = set()
        self._accepting = trio.CancelScope()
        self._handshakes: set[trio.CancelScope] = set()
        self._stopping = False

    @property
    def address(self) -> Address:
        """Where it listens."""
        return self._binding.address

    @property
    def connections(self) -> int:
        """Connections at this moment, those in their handshake included."""
        return self._connections

    async def serve(
        self, *, task_status: trio.TaskStatus[Address] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Serves until `stop` or cancelled; then every connection's tasks have ended.

        No client ends it, whatever it sends. Only one call at a time.
        """
        try:
            async with trio.open_nursery() as connections:
                with self._accepting:
                    task_status.started(self.address)
                    await trio.serve_listeners(
                        self._connection, list(self._binding.listeners), handler_nursery=connections
                    )
        finally:
            with trio.CancelScope(shield=True):
                await self._binding.aclose()

    def stop_accepting(self) -> None:
        """Lets nobody in any more. The lines that are open stay so until `stop`."""
        self._stopping = True
        self._accepting.cancel()
        for handshake in self._handshakes:
            handshake.cancel()

    async def stop(self, code: int = _GOING_AWAY, reason: str = "the host stops") -> None:
        """Lets nobody in any more and closes every line; takes at most `close_timeout_s`.

        `serve` returns once the routes have returned.
        """
        self.stop_accepting()
        async with trio.open_nursery() as nursery:
            for line in tuple(self._lines):
                nursery.start_soon(line.close, code, reason)

    async def _connection(self, stream: trio.SocketStream) -> None:
        """One client, from its first byte to the closed socket. Never raises an Exception."""
        peer = _peer_of(stream)
        self._connections += 1
        try:
            if self._connections > self._bounds.max_connections + _MAX_CROWD:
                log.warning("connection dropped: far too many", peer=peer)
                return
            give_up_on_silence(
                stream.socket,
                idle_s=self._bounds.keepalive_idle_s,
                interval_s=self._bounds.keepalive_interval_s,
                probes=self._bounds.keepalive_probes,
                unacked_s=self._bounds.send_stall_s,
            )
            await _Connection(self, stream, peer).run()
        except* Exception:
            # Whatever a client can provoke ends its own connection and nothing else.
            log.exception("connection failed", peer=peer)
        finally:
            self._connections -= 1
            await trio.aclose_forcefully(stream)

    # What `_Connection` asks of its listener

    @contextmanager
    def handshake(self, deadline: float) -> Iterator[trio.CancelScope]:
        """A scope for steps of a handshake, which `stop` cancels too."""
        with trio.CancelScope(deadline=deadline) as scope:
            self._handshakes.add(scope)
            try:
                yield scope
            finally:
                self._handshakes.discard(scope)

    def refusal(self, request: WebSocketRequest) -> Refusal | None:
        """Why this handshake is refused; None lets it in."""
        limit = self._bounds.max_connections
        if self._connections > limit:
            return Refusal(
                status=503,
                sentence="This host has too many connections; try again later.",
                hint=f"more than {limit} connections (bounds.max_connections)",
            )
        refused = self._admission.refusal(request.path, request.headers)
        if refused is None and _path_of(request) not in self._routes:
            return Refusal(
                status=404,
                sentence=f"Nothing is served here. Served are: {' '.join(self._routes)}",
                hint="nothing is served at this path",
            )
        return refused

    def route(self, request: WebSocketRequest) -> Route:
        """The route of a request that was not refused."""
        return self._routes[_path_of(request)]

    def opened(self, line: WebSocketLine) -> None:
        """A line is open, and `stop` must close it."""
        self._lines.add(line)

    def ended(self, line: WebSocketLine) -> None:
        """The line's route has returned."""
        self._lines.discard(line)

    @property
    def bounds(self) -> Bounds:
        """Of connections and frames."""
        return self._bounds

    @property
    def tls(self) -> ssl.SSLContext | None:
        """With what connections are wrapped."""
        return self._binding.tls

    @property
    def stopping(self) -> bool:
        """`stop` was called: what opens only now is closed at once."""
        return self._stopping


class _Connection:
    """The steps of one connection: TLS, head, handshake, route, end."""

    def __init__(self, listener: Listener, stream: trio.SocketStream, peer: str) -> None:
        self._listener = listener
        self._bounds = listener.bounds
        self._peer = peer
        self._transport: Transport = stream
        if listener.tls is not None:
            # With `https_compatible` closing does not wait for the client's consent.
            self._transport = trio.SSLStream(
                stream, listener.tls, server_side=True, https_compatible=True
            )
        meter = FrameMeter(
            max_message_bytes=self._bounds.max_frame_bytes,
            max_pieces=self._bounds.max_message_pieces,
        )
        self._stream = WebSocketStream(
            self._transport, meter, send_stall_s=self._bounds.send_stall_s
        )
        self._line: WebSocketLine | None = None

    async def run(self) -> None:
        """Returns when the connection is over. The caller closes the socket."""
        deadline = trio.current_time() + self._bounds.handshake_timeout_s
        with self._listener.handshake(deadline) as handshake:
            if not await self._read_head():
                return
        if handshake.cancelled_caught:
            if not self._listener.stopping:
                log.info("handshake took too long", peer=self._peer)
            return
        try:
            await self._websocket(deadline)
        except* Exception as failures:
            if self._line is None:
                # The library ends a handshake that it cannot decode in an exception.
                log.info("handshake refused", peer=self._peer, why=_first(failures))
                await self._answer_plainly(400)
            elif self._line.closed.is_set() or self._line.is_closing:
                # It also fails when a ping meets our close frame.
                why = _first(failures)
                log.debug("connection failed while it was closed", peer=self._peer, why=why)
            else:
                raise

    async def _read_head(self) -> bool:
        try:
            if isinstance(self._transport, trio.SSLStream):
                await self._transport.do_handshake()
            return await self._stream.read_head(self._bounds.max_head_bytes)
        except HeadTooLong:
            log.info("handshake refused", peer=self._peer, why="its head is too long")
            await self._answer_plainly(431)
        except trio.BrokenResourceError as error:
            why = error.__cause__ or error
            log.info("handshake broke off", peer=self._peer, why=str(why))
        return False

    async def _websocket(self, deadline: float) -> None:
        async with trio.open_nursery() as nursery:
            with self._listener.handshake(deadline) as handshake:
                # The library says nothing when it gives up on a request.
                self._stream.on_finished = handshake.cancel
                request = await wrap_server_stream(
                    nursery,
                    self._stream,
                    # Never reached: characters are no more than the bytes that the meter counts.
                    max_message_size=self._bounds.max_frame_bytes,
                    receive_buffer_size=READ_BYTES,
                )
                refused = self._listener.refusal(request)
                if refused is None:
                    # Extensions are never accepted, so nothing is compressed: a small
                    # frame cannot unfold into a large message.
                    self._stream.on_finished = lambda: None
                    connection = await request.accept()
                else:
                    await self._refuse(request, refused)
            if handshake.cancelled_caught:
                refused_by_library = self._stream.bytes_sent > 0
                why = "it is none of WebSocket's" if refused_by_library else "the client left"
                log.info("handshake refused", peer=self._peer, why=why)
                await self._linger()
            elif refused is None:
                await self._serve(nursery, connection, self._listener.route(request))
            # Ends the library's reader.
            nursery.cancel_scope.cancel()

    async def _refuse(self, request: WebSocketRequest, refused: Refusal) -> None:
        # The path without its query: the token does not belong into a log.
        log.warning(
            "connection refused",
            peer=self._peer,
            path=_path_of(request),
            status=refused.status,
            why=refused.hint,
        )
        headers = [
            (b"Content-Type", b"text/plain; charset=utf-8"),
            (b"Connection", b"close"),
        ]
        if refused.status == 401:
            headers.append((b"WWW-Authenticate", b"Bearer"))
        body = refused.sentence.encode() + b"\n"
        await request.reject(refused.status, extra_headers=headers, body=body)
        await self._linger()

    async def _serve(
        self, nursery: trio.Nursery, connection: WebSocketConnection, route: Route
    ) -> None:
        line = WebSocketLine(connection, self._stream, peer=self._peer, bounds=self._bounds)
        self._line = line
        self._listener.opened(line)
        nursery.start_soon(line.write_out)
        try:
            if self._listener.stopping:
                await line.close(_GOING_AWAY, "the host stops")
            else:
                await route(line)
                await line.close()
        except Exception:
            # A fault of ours; the client learns that there was one, and no more.
            log.exception("a connection's route failed", peer=self._peer)
            await line.close(INTERNAL_ERROR, "internal error")
        finally:
            self._listener.ended(line)

    async def _answer_plainly(self, status: int) -> None:
        """An HTTP answer without the library, if nothing was answered yet."""
        if self._stream.bytes_sent:
            return
        head = f"HTTP/1.1 {status} {_STATUS_WORDS[status]}\r\nConnection: close\r\n"
        with trio.move_on_after(self._bounds.close_timeout_s):
            try:
                await self._transport.send_all(f"{head}Content-Length: 0\r\n\r\n".encode())
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                return
            await self._stream.linger()

    async def _linger(self) -> None:
        with trio.move_on_after(self._bounds.close_timeout_s):
            await self._stream.linger()


def _first(failure: BaseException) -> str:
    while isinstance(failure, BaseExceptionGroup):
        failure = failure.exceptions[0]
    return f"{type(failure).__name__}: {failure}"


def _path_of(request: WebSocketRequest) -> str:
    return request.path.partition("?")[0].partition("#")[0]


def _peer_of(stream: trio.SocketStream) -> str:
    try:
        host, port = stream.socket.getpeername()[:2]
    except OSError:
        # It is gone already.
        return "unknown"
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _bind_sentence(host: str, port: int, error: Exception) -> str:
    if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
        return f"port {port} on {host} is in use by another program"
    if isinstance(error, OSError) and error.errno == errno.EACCES:
        return f"port {port} needs privileges that this user does not have"
    reason = getattr(error, "strerror", None) or str(error)
    return f"cannot listen on {host}, port {port}: {reason}"
