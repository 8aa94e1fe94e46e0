"""The listener lets in who may come in, refuses the rest in the handshake, and outlives both."""

import random
import socket
import ssl
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from shutil import which
from typing import Any

import pytest
import trio
from trio_websocket import open_websocket_url

from ahpd.supervisor.admission import Admission
from ahpd.supervisor.bounds import Bounds
from ahpd.supervisor.listener import Address, Listener, ListenError, bind, tls_context
from ahpd.supervisor.wires.text_line import TextLine
from ws_raw import CLOSE, PING, Closed, RawClient, frame, frame_head, request, until

TOKEN = "let-me-in"
Route = Callable[[TextLine], Awaitable[None]]


async def echo(line: TextLine) -> None:
    async for message in line:
        line.send(message)


@asynccontextmanager
async def listening(
    route: Route = echo,
    *,
    token: str | None = TOKEN,
    tls: ssl.SSLContext | None = None,
    allow_origins: tuple[str, ...] = (),
    **bounds: Any,
) -> AsyncIterator[Listener]:
    """A listener on a free port; no task of it is left afterwards."""
    listener = Listener(
        await bind("127.0.0.1", 0, tls=tls),
        admission=Admission(token=token, allowed_origins=allow_origins),
        routes={"/": route},
        bounds=Bounds(**bounds),
    )
    async with trio.open_nursery() as nursery:
        await nursery.start(listener.serve)
        yield listener
        with trio.fail_after(5):
            await listener.stop()


async def open_client(listener: Listener, **options: Any) -> RawClient:
    return await RawClient.open(listener.address.port, f"/?token={TOKEN}", **options)


async def serves_still(listener: Listener) -> None:
    async with await open_client(listener) as client:
        await client.send_text("still there?")
        assert await client.receive_text() == "still there?"


async def test_a_message_comes_back_over_an_accepted_connection() -> None:
    with trio.fail_after(10):
        async with listening() as listener, await open_client(listener) as client:
            await client.send_text("grüße 🦀")
            assert await client.receive_text() == "grüße 🦀"


async def test_a_client_library_connects_pings_and_leaves_without_waiting() -> None:
    with trio.fail_after(10):
        async with listening() as listener:
            url = listener.address.url(token=TOKEN)
            start = trio.current_time()
            async with open_websocket_url(url) as client:
                await client.send_message("hello")
                assert await client.get_message() == "hello"
                await client.ping()
            assert trio.current_time() - start < 0.9
            await until(lambda: listener.connections == 0)


@pytest.mark.parametrize(
    ("target", "headers", "status"),
    [
        ("/", {}, 401),
        ("/?token=wrong", {}, 401),
        ("/?token=", {}, 401),
        (f"/?tkn={TOKEN}", {}, 101),
        (f"/?a=b&token={TOKEN}", {}, 101),
        ("/", {"Authorization": f"Bearer {TOKEN}"}, 101),
        ("/", {"Authorization": "Bearer wrong"}, 401),
        ("/nowhere", {}, 401),
        (f"/nowhere?token={TOKEN}", {}, 404),
        (f"//?token={TOKEN}", {}, 404),
        (f"/?token={TOKEN}", {"Origin": "https://example.com"}, 403),
        (f"/?token={TOKEN}", {"Origin": "null"}, 403),
        (f"/?token={TOKEN}", {"Origin": "vscode-file://vscode-app"}, 101),
        (f"/?token={TOKEN}", {"Origin": "http://localhost:3000"}, 101),
    ],
)
async def test_the_handshake_says_who_is_let_in(
    target: str, headers: dict[str, str | bytes], status: int
) -> None:
    with trio.fail_after(10):
        async with listening(allow_origins=("http://localhost:3000/",)) as listener:
            client = await RawClient.connect(listener.address.port)
            async with client:
                response = await client.handshake(target, headers=headers)
                assert response.status == status
                if status != 101:
                    assert await client.ended()
            await until(lambda: listener.connections == 0)


async def test_a_refusal_says_in_a_sentence_what_is_needed() -> None:
    with trio.fail_after(10):
        async with (
            listening() as listener,
            await RawClient.connect(listener.address.port) as client,
        ):
            response = await client.handshake("/")
            assert response.headers["connection"] == "close"
            assert response.headers["www-authenticate"] == "Bearer"
            assert b"token" in await client.rest()


async def test_a_refusal_is_logged_with_the_option_that_helps_and_never_with_the_token(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with trio.fail_after(10):
        async with listening() as listener:
            port = listener.address.port
            for target, headers in (
                (f"/?token={TOKEN}", {"Origin": "https://example.com"}),
                ("/?token=almost-right", {}),
                (f"/nowhere?token={TOKEN}", {}),
            ):
                async with await RawClient.connect(port) as client:
                    assert (await client.handshake(target, headers=headers)).status >= 400
            await until(lambda: listener.connections == 0)
    printed = capsys.readouterr()
    said = printed.out + printed.err
    assert "--allow-origin https://example.com" in said
    assert "/nowhere" in said
    assert TOKEN not in said
    assert "almost-right" not in said


async def test_one_connection_too_many_is_told_503_and_room_is_made_by_leaving() -> None:
    with trio.fail_after(10):
        async with listening(max_connections=2) as listener:
            async with (
                await open_client(listener),
                await open_client(listener),
                await RawClient.connect(listener.address.port) as third,
            ):
                response = await third.handshake(f"/?token={TOKEN}")
                assert response.status == 503
                assert await third.ended()
            await until(lambda: listener.connections == 0)
            await serves_still(listener)


async def test_a_crowd_beyond_that_is_closed_without_a_word() -> None:
    with trio.fail_after(10):
        async with listening(max_connections=1) as listener:
            crowd = [await RawClient.connect(listener.address.port) for _ in range(70)]
            # The last of them came when 65 were there already.
            assert await crowd[-1].rest() == b""
            for client in crowd:
                await trio.aclose_forcefully(client.stream)
            await until(lambda: listener.connections == 0)
            await serves_still(listener)


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": b"caf\xe9.example"},
        {"Host": b"\xff\xfe"},
        {"Host": "xn--" + "a" * 80},
        {"Sec-WebSocket-Protocol": b"caf\xe9"},
        {"Sec-WebSocket-Extensions": b"permessage-\xff"},
        {"Connection": b"Upgrad\xe9, Upgrade"},
        {"Sec-WebSocket-Key": b"\x80\x81"},
    ],
)
async def test_bytes_beyond_ascii_in_a_header_end_that_handshake_alone(
    headers: dict[str, str | bytes],
) -> None:
    with trio.fail_after(10):
        async with listening() as listener, await open_client(listener) as sibling:
            async with await RawClient.connect(listener.address.port) as client:
                await client.send(request("/", headers=headers))
                assert (await client.response()).status in (400, 401)
                assert await client.ended()
            await sibling.send_text("undisturbed")
            assert await sibling.receive_text() == "undisturbed"
            await serves_still(listener)


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc", 400),
        (b"\x00\x01\x02 garbage\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: x\r\nbroken header\r\n\r\n", 400),
        (b"GET /\xff HTTP/1.1\r\nHost: x\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nX: " + b"y" * 20_000, 431),
        (request("/", without=("Sec-WebSocket-Key",)), 400),
        (request("/", headers={"Sec-WebSocket-Version": "8"}), 426),
    ],
)
async def test_what_is_no_handshake_is_answered_and_closed_at_once(
    sent: bytes, status: int
) -> None:
    with trio.fail_after(5):
        async with (
            listening(close_timeout_s=0.1) as listener,
            await RawClient.connect(listener.address.port) as client,
        ):
            await client.send(sent)
            assert (await client.response()).status == status
            await client.ended()
            # Also if the client stays.
            await until(lambda: listener.connections == 0)
            await serves_still(listener)


async def test_clients_that_leave_before_or_in_mid_handshake_hold_nothing() -> None:
    with trio.fail_after(5):
        async with listening() as listener:
            for sent in (b"", b"GET / HT", b"\r\n"):
                async with await RawClient.connect(listener.address.port) as client:
                    await client.send(sent)
            await until(lambda: listener.connections == 0)


async def test_a_handshake_that_trickles_is_given_up() -> None:
    with trio.fail_after(10):
        async with (
            listening(handshake_timeout_s=0.3) as listener,
            await RawClient.connect(listener.address.port) as client,
        ):
            start = trio.current_time()
            with pytest.raises((trio.BrokenResourceError, StopIteration)):
                for byte in request("/", headers={"X": "y" * 10_000}):
                    await client.send(bytes([byte]))
                    await trio.sleep(0.01)
            assert trio.current_time() - start < 3
            await until(lambda: listener.connections == 0)
            await serves_still(listener)


async def test_what_a_hasty_client_sends_with_its_handshake_is_not_lost() -> None:
    with trio.fail_after(5):
        async with (
            listening() as listener,
            await RawClient.connect(listener.address.port) as client,
        ):
            await client.send(request(f"/?token={TOKEN}") + frame(1, b"hasty"))
            assert (await client.response()).status == 101
            assert await client.receive_text() == "hasty"


async def test_an_oversized_message_followed_by_a_ping_ends_its_connection_alone() -> None:
    with trio.fail_after(10):
        async with listening(max_frame_bytes=1000) as listener:
            async with await open_client(listener) as sibling, await open_client(listener) as bad:
                await bad.send(frame(1, b"x" * 2000) + frame(PING, b"hello") + frame(PING))
                assert (await bad.receive_close()).code == 1009
                await sibling.send_text("undisturbed")
                assert await sibling.receive_text() == "undisturbed"
            await serves_still(listener)


async def test_any_bytes_after_the_handshake_end_their_own_connection_at_most() -> None:
    chance = random.Random(20)
    with trio.fail_after(30):
        async with listening(max_frame_bytes=5000, close_timeout_s=0.1) as listener:
            async with await open_client(listener) as sibling:
                for _ in range(60):
                    async with await open_client(listener) as client:
                        pieces = [
                            chance.randbytes(chance.randrange(40)),
                            frame(chance.randrange(16), chance.randbytes(chance.randrange(300))),
                            frame(1, b"fine", fin=chance.random() < 0.5),
                        ]
                        chance.shuffle(pieces)
                        with suppress(trio.BrokenResourceError):
                            for piece in pieces:
                                await client.send(piece)
                    await sibling.send_text("undisturbed")
                    assert await sibling.receive_text() == "undisturbed"
            await until(lambda: listener.connections == 0)


async def test_no_compression_is_agreed_on() -> None:
    with trio.fail_after(5):
        async with listening() as listener:
            offer = {"Sec-WebSocket-Extensions": "permessage-deflate; client_max_window_bits"}
            async with await RawClient.connect(listener.address.port) as client:
                response = await client.handshake(f"/?token={TOKEN}", headers=offer)
                assert response.status == 101
                assert "sec-websocket-extensions" not in response.headers
                # And a frame that claims to be compressed breaks the protocol.
                await client.send(frame(1, b"x", rsv=4))
                assert (await client.receive_close()).code == 1002


async def test_a_route_that_raises_closes_its_connection_with_1011_and_no_detail() -> None:
    async def faulty(line: TextLine) -> None:
        async for _ in line:
            raise RuntimeError("a secret")

    with trio.fail_after(10):
        async with listening(faulty) as listener:
            for _ in range(2):
                async with await open_client(listener) as client:
                    await client.send_text("go")
                    closed = await client.receive_close()
                    assert closed.code == 1011
                    assert "secret" not in closed.reason


async def test_a_route_that_returns_closes_its_connection_in_order() -> None:
    async def once(line: TextLine) -> None:
        line.send("one word")

    with trio.fail_after(10):
        async with listening(once) as listener, await open_client(listener) as client:
            assert await client.receive_text() == "one word"
            with pytest.raises(Closed) as closed:
                await client.receive_text()
            assert closed.value.code == 1000


async def test_stopping_says_goodbye_to_every_client_and_lets_nobody_in() -> None:
    with trio.fail_after(10):
        async with listening() as listener:
            port = listener.address.port
            clients = [await open_client(listener) for _ in range(3)]
            # One that is in the middle of its handshake must not hold the stop up.
            trickling = await RawClient.connect(port)
            await trickling.send(b"GET / ")
            async with trio.open_nursery() as nursery:
                nursery.start_soon(listener.stop)
                for client in clients:
                    closed = await client.receive_close()
                    assert closed.code == 1001
                    await client.send(frame(CLOSE, b"\x03\xe9"))
                    assert await client.ended()
            await trickling.ended()
            await until(lambda: listener.connections == 0)
            with pytest.raises(OSError):
                await RawClient.connect(port)


async def test_a_port_in_use_is_one_sentence() -> None:
    with trio.fail_after(5), socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        with pytest.raises(ListenError) as error:
            await bind("127.0.0.1", port)
        assert str(error.value) == f"port {port} on 127.0.0.1 is in use by another program"


@pytest.mark.parametrize(
    ("host", "port"),
    [("127.0.0.1", 70_000), ("127.0.0.1", -1), ("192.0.2.1", 0), ("no.such.host.invalid", 0)],
)
async def test_an_address_that_cannot_be_bound_is_one_sentence(host: str, port: int) -> None:
    with trio.fail_after(10):
        with pytest.raises(ListenError) as error:
            await bind(host, port)
        assert "\n" not in str(error.value)


async def test_localhost_with_a_free_port_is_one_address() -> None:
    with trio.fail_after(5):
        binding = await bind("localhost", 0)
        assert binding.address.port > 0
        assert len(binding.listeners) == 1
        await binding.aclose()


def test_an_address_names_its_token_and_an_ipv6_host_in_brackets() -> None:
    address = Address(host="::1", port=9187, tls=True)
    assert address.url("/chats", token="a+b/c") == "wss://[::1]:9187/chats?token=a%2Bb%2Fc"
    assert Address(host="127.0.0.1", port=80, tls=False).url() == "ws://127.0.0.1:80/"


# TLS, with a certificate of its own


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    if which("openssl") is None:
        pytest.skip("no openssl to make a certificate with")
    folder = tmp_path_factory.mktemp("tls")
    cert, key = folder / "cert.pem", folder / "key.pem"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"),
            *("-nodes", "-days", "2", "-subj", "/CN=127.0.0.1"),
            *("-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", cert),
        ],
        check=True,
        capture_output=True,
    )
    return cert, key


async def test_over_tls_messages_pass_and_faults_are_told(certificate: tuple[Path, Path]) -> None:
    client_context = ssl.create_default_context(cafile=str(certificate[0]))
    with trio.fail_after(20):
        async with listening(tls=tls_context(*certificate), max_frame_bytes=100_000) as listener:
            assert listener.address.url().startswith("wss://")
            async with await open_client(listener, tls=client_context) as client:
                await client.send_text("x" * 90_000)
                assert await client.receive_text() == "x" * 90_000
                await client.send(frame(1, b"\xff"))
                assert (await client.receive_close()).code == 1007
            async with await open_client(listener, tls=client_context) as client:
                await client.send(frame_head(1, 200_000) + b"x" * 200_000)
                assert (await client.receive_close()).code == 1009
            async with await RawClient.connect(listener.address.port, tls=client_context) as client:
                assert (await client.handshake("/")).status == 401
            await until(lambda: listener.connections == 0)


async def test_garbage_in_place_of_a_tls_handshake_ends_that_connection_alone(
    certificate: tuple[Path, Path],
) -> None:
    client_context = ssl.create_default_context(cafile=str(certificate[0]))
    with trio.fail_after(20):
        async with listening(tls=tls_context(*certificate), handshake_timeout_s=1) as listener:
            for garbage in (
                b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
                b"\x16\x03\x01\xff\xff" * 50,
                b"",
            ):
                async with await RawClient.connect(listener.address.port) as client:
                    await client.send(garbage)
                    await client.ended()
            async with await open_client(listener, tls=client_context) as client:
                await client.send_text("after the garbage")
                assert await client.receive_text() == "after the garbage"


async def test_a_tls_client_on_a_plain_port_is_dropped() -> None:
    with trio.fail_after(10):
        async with listening(handshake_timeout_s=0.5) as listener:
            context = ssl.create_default_context()
            with pytest.raises(trio.BrokenResourceError):
                await RawClient.connect(listener.address.port, tls=context)
            await until(lambda: listener.connections == 0)


def test_a_certificate_that_cannot_be_used_is_one_sentence(
    certificate: tuple[Path, Path], tmp_path: Path
) -> None:
    cert, key = certificate
    (tmp_path / "junk").write_text("junk")
    locked = tmp_path / "locked.pem"
    subprocess.run(
        ["openssl", "ec", "-aes256", "-passout", "pass:x", "-in", key, "-out", locked],
        check=True,
        capture_output=True,
    )
    for pair in ((cert, tmp_path / "missing"), (tmp_path / "junk", key), (cert, locked)):
        with pytest.raises(ListenError) as error:
            tls_context(*pair)
        assert "\n" not in str(error.value)
