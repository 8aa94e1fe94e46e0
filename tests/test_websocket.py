"""One client's WebSocket: messages, the faults it is closed for, and clients that do not read."""

import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from ahpd.supervisor.admission import Admission
from ahpd.supervisor.bounds import MIB, Bounds
from ahpd.supervisor.listener import Listener, bind
from ahpd.supervisor.wires.text_line import TEXT_OVERHEAD_BYTES, OutboundBuffer, TextLine
from ahpd.supervisor.wires.websocket import WebSocketLine
from ahpd.supervisor.wires.websocket_frames import FrameMeter, close_frame
from ahpd.supervisor.wires.websocket_stream import give_up_on_silence
from ws_raw import (
    BINARY,
    CLOSE,
    CONTINUATION,
    PING,
    PONG,
    TEXT,
    RawClient,
    frame,
    frame_head,
    request,
    until,
)

LIMIT = 1000
#: linux/tcp.h; the socket module does not name it.
_TCP_REPAIR = 19


class Host:
    """A listener whose lines the test holds in its hands; each echoes what comes in."""

    def __init__(self) -> None:
        self.listener: Listener
        self.lines: list[WebSocketLine] = []
        self.received: list[str] = []
        self.routes_ended = 0

    async def route(self, line: TextLine) -> None:
        assert isinstance(line, WebSocketLine)
        self.lines.append(line)
        async for message in line:
            self.received.append(message)
            line.send(message)
        self.routes_ended += 1

    async def connect(self, **options: Any) -> RawClient:
        count = len(self.lines)
        client = await RawClient.open(self.listener.address.port, **options)
        await until(lambda: len(self.lines) > count)
        return client


@asynccontextmanager
async def hosting(
    route: Callable[[TextLine], Awaitable[None]] | None = None, **bounds: Any
) -> AsyncIterator[Host]:
    host = Host()
    host.listener = Listener(
        await bind("127.0.0.1", 0),
        admission=Admission(token=None),
        routes={"/": route or host.route},
        bounds=Bounds(**bounds),
    )
    async with trio.open_nursery() as nursery:
        await nursery.start(host.listener.serve)
        yield host
        with trio.fail_after(5):
            await host.listener.stop()


# What a client sends


async def test_fragments_become_one_message_even_inside_a_character() -> None:
    text = "a🦀b"
    raw = text.encode()
    with trio.fail_after(5):
        async with hosting() as host, await host.connect() as client:
            for index, byte in enumerate(raw):
                opcode = CONTINUATION if index else TEXT
                await client.send(frame(opcode, bytes([byte]), fin=False))
                await client.send(frame(PING, b"between"))
            await client.send(frame(CONTINUATION))
            assert await client.receive_text() == text


async def test_a_ping_is_answered_with_its_payload() -> None:
    with trio.fail_after(5):
        async with hosting() as host, await host.connect() as client:
            await client.send(frame(PING, b"are you there"))
            assert await client.receive_frame() == (PONG, b"are you there", True)


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        pytest.param(frame(BINARY, b"{}"), 1003, id="binary"),
        pytest.param(
            frame(BINARY, b"{", fin=False) + frame(CONTINUATION, b"}"),
            1003,
            id="binary in fragments",
        ),
        pytest.param(frame_head(BINARY, 1 << 40), 1003, id="binary by its header"),
        pytest.param(frame(TEXT, b"\xff"), 1007, id="a byte that is no UTF-8"),
        pytest.param(frame(TEXT, b"\xed\xa0\x80"), 1007, id="a surrogate in UTF-8"),
        pytest.param(frame(TEXT, b"\xf0\x9f"), 1007, id="a cut character"),
        pytest.param(frame(TEXT, b"ab\xff", fin=False), 1007, id="bad UTF-8 in a fragment"),
        pytest.param(frame(TEXT, b"x" * (LIMIT + 1)), 1009, id="too large"),
        pytest.param(
            frame(TEXT, "🦀".encode() * (LIMIT // 4 + 1)),
            1009,
            id="too large in bytes, not in characters",
        ),
        pytest.param(frame_head(TEXT, 1 << 62), 1009, id="too large by its header"),
        pytest.param(
            frame(TEXT, b"x" * LIMIT, fin=False) + frame(CONTINUATION, b"x"),
            1009,
            id="too large by one fragment",
        ),
        pytest.param(
            frame(TEXT, b"x" * LIMIT, fin=False) + frame_head(CONTINUATION, 1 << 40),
            1009,
            id="too large by a fragment's header",
        ),
        pytest.param(
            frame(TEXT, b"", fin=False) + frame(CONTINUATION, fin=False) * 200,
            1009,
            id="too many fragments",
        ),
        pytest.param(frame(TEXT, b"x", mask=False), 1002, id="no mask"),
        pytest.param(frame(CONTINUATION, b"x"), 1002, id="a continuation of nothing"),
        pytest.param(
            frame(TEXT, b"x", fin=False) + frame(TEXT, b"y"), 1002, id="a message inside a message"
        ),
        pytest.param(frame(0x3, b"x"), 1002, id="reserved opcode 3"),
        pytest.param(frame(0xB, b"x"), 1002, id="reserved opcode 11"),
        pytest.param(frame(PING, b"x", fin=False), 1002, id="a ping in fragments"),
        pytest.param(frame(PING, b"x" * 126), 1002, id="a long ping"),
        pytest.param(frame(TEXT, b"x", rsv=2), 1002, id="a reserved bit"),
        pytest.param(frame(CLOSE, b"\x03"), 1002, id="a close of one byte"),
        pytest.param(frame(CLOSE, b"\x03\xed"), 1002, id="a close code that is never sent"),
        pytest.param(frame(CLOSE, b"\x03\xe8\xff"), 1007, id="a close reason that is no UTF-8"),
    ],
)
async def test_a_fault_is_told_in_the_close_frame_and_hurts_nobody_else(
    sent: bytes, code: int
) -> None:
    with trio.fail_after(10):
        async with (
            hosting(max_frame_bytes=LIMIT, max_message_pieces=100) as host,
            await host.connect() as sibling,
            await host.connect() as client,
        ):
            # What came before the fault still counts.
            await client.send(frame(TEXT, b"before") + sent)
            assert (await client.receive_close()).code == code
            assert "before" in host.received
            await client.send(frame(CLOSE))
            await host.lines[1].closed.wait()
            assert host.lines[1].close_code == code
            await sibling.send_text("undisturbed")
            assert await sibling.receive_text() == "undisturbed"
            await until(lambda: host.listener.connections == 1)


async def test_exactly_the_limit_is_a_message() -> None:
    with trio.fail_after(5):
        async with (
            hosting(max_frame_bytes=LIMIT) as host,
            await host.connect() as client,
        ):
            for text in ("x" * LIMIT, "🦀" * (LIMIT // 4)):
                await client.send_text(text)
                assert await client.receive_text() == text
            half = b"x" * (LIMIT // 2)
            await client.send(frame(TEXT, half, fin=False) + frame(CONTINUATION, half))
            assert await client.receive_text() == "x" * LIMIT


async def test_a_client_in_mid_write_of_too_large_a_message_reads_why_it_is_closed() -> None:
    with trio.fail_after(10):
        async with (
            hosting(max_frame_bytes=LIMIT) as host,
            await host.connect() as client,
        ):
            await client.send(frame_head(TEXT, 8 * MIB))
            with trio.move_on_after(5):
                for _ in range(8):
                    await client.send(b"x" * MIB)
            assert (await client.receive_close()).code == 1009
            assert host.received == []


async def test_sixteen_mebibytes_pass_both_ways_by_default() -> None:
    text = "x" * (16 * MIB)
    with trio.fail_after(30):
        async with (
            hosting() as host,
            await host.connect() as client,
            trio.open_nursery() as nursery,
        ):
            nursery.start_soon(client.send_text, text)
            assert await client.receive_text() == text


@given(
    sizes=st.lists(st.integers(0, 70_000), min_size=1, max_size=6),
    cuts=st.lists(st.integers(1, 5000), min_size=1, max_size=20),
)
def test_the_meter_passes_on_every_byte_that_keeps_the_rules(
    sizes: list[int], cuts: list[int]
) -> None:
    stream = b"".join(
        frame(CONTINUATION if index else TEXT, bytes(size), fin=index == len(sizes) - 1)
        + frame(PING, b"x")
        for index, size in enumerate(sizes)
    )
    meter = FrameMeter(max_message_bytes=sum(sizes), max_pieces=10**9)
    at = turn = 0
    while at < len(stream):
        piece = stream[at : at + cuts[turn % len(cuts)]]
        assert meter.feed(piece) == len(piece)
        at += len(piece)
        turn += 1
    assert meter.violation is None
    # One byte less, and it stops before the frame that would pass the limit.
    if sum(sizes):
        strict = FrameMeter(max_message_bytes=sum(sizes) - 1, max_pieces=10**9)
        passed = strict.feed(stream)
        assert strict.violation is not None
        assert strict.violation.code == 1009
        assert passed < len(stream)
        assert strict.feed(stream) == 0


@given(st.binary(max_size=200))
def test_the_meter_takes_any_bytes(data: bytes) -> None:
    meter = FrameMeter(max_message_bytes=50, max_pieces=5)
    assert 0 <= meter.feed(data) <= len(data)


@given(st.text(max_size=200))
def test_a_close_frame_is_never_longer_than_a_control_frame_may_be(reason: str) -> None:
    data = close_frame(1013, reason)
    assert len(data) == 2 + data[1] <= 127
    assert reason.encode("utf-8", "replace").decode().startswith(data[4:].decode())


# What is sent to a client


async def test_what_was_sent_before_closing_arrives_first_and_nothing_after() -> None:
    async def route(line: TextLine) -> None:
        for number in range(100):
            line.send(str(number))
        await line.close(4001, "enough " * 40)
        line.send("too late")

    with trio.fail_after(5):
        async with hosting(route) as host:
            client = await RawClient.open(host.listener.address.port)
            async with client:
                for number in range(100):
                    assert await client.receive_text() == str(number)
                closed = await client.receive_close()
                assert closed.code == 4001
                assert closed.reason.startswith("enough enough")


async def test_a_client_that_closes_gets_its_code_back_and_the_route_ends() -> None:
    with trio.fail_after(5):
        async with hosting() as host, await host.connect() as client:
            await client.send(frame(CLOSE, struct.pack("!H", 1000) + b"bye"))
            assert (await client.receive_close()).code == 1000
            assert await client.ended()
            await host.lines[0].closed.wait()
            assert (host.lines[0].close_code, host.lines[0].close_reason) == (1000, "bye")
            await until(lambda: host.routes_ended == 1 and host.listener.connections == 0)


@pytest.mark.parametrize("how", ["FIN", "reset", "half a frame"])
async def test_a_client_that_is_gone_without_a_word_holds_nothing(how: str) -> None:
    with trio.fail_after(5):
        async with hosting() as host:
            client = await host.connect()
            if how == "half a frame":
                await client.send(frame(TEXT, b"x" * 100)[:50])
            if how == "reset":
                linger = struct.pack("ii", 1, 0)
                client.stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            await trio.aclose_forcefully(client.stream)
            await host.lines[0].closed.wait()
            assert host.lines[0].close_code == 1006
            await until(lambda: host.routes_ended == 1 and host.listener.connections == 0)
            host.lines[0].send("into the void")
            assert host.lines[0].buffered_bytes == 0


async def test_sending_never_waits_and_a_client_that_does_not_read_is_cut_off_alone() -> None:
    message = "x" * MIB
    with trio.fail_after(20):
        async with (
            hosting(max_frame_bytes=MIB, max_outbound_bytes=8 * MIB, close_timeout_s=0.3) as host,
            await host.connect(receive_buffer_bytes=4096) as deaf,
            await host.connect() as sibling,
        ):
            line, other = host.lines
            sent = 0
            # The kernel takes a few of them; what it does not take is bounded by us.
            while not line.is_closing:
                line.send(message)
                sent += 1
                assert line.buffered_bytes <= 8 * MIB + TEXT_OVERHEAD_BYTES
                assert sent < 100
                await trio.lowlevel.checkpoint()
            assert line.buffered_bytes == 0
            start = trio.current_time()
            await line.closed.wait()
            assert trio.current_time() - start < 2
            assert line.close_code == 1013
            await until(lambda: host.routes_ended == 1 and host.listener.connections == 1)
            other.send("undisturbed")
            assert await sibling.receive_text() == "undisturbed"
            # It can tell that it was cut off.
            await deaf.ended()


async def test_a_slow_client_that_reads_in_time_is_told_1013() -> None:
    with trio.fail_after(20):
        async with (
            hosting(max_frame_bytes=MIB, max_outbound_bytes=2 * MIB, close_timeout_s=5) as host,
            await host.connect(receive_buffer_bytes=4096) as slow,
        ):
            line = host.lines[0]
            while not line.is_closing:
                line.send("x" * MIB)
                await trio.lowlevel.checkpoint()
            closed = await slow.receive_close()
            assert closed.code == 1013
            await slow.send(frame(CLOSE, struct.pack("!H", 1013)))
            assert await slow.ended()
            await until(lambda: host.listener.connections == 0)


async def test_a_client_that_takes_no_byte_is_given_up_even_if_little_waits() -> None:
    with trio.fail_after(20):
        async with (
            hosting(send_stall_s=0.3) as host,
            await host.connect(receive_buffer_bytes=4096) as deaf,
        ):
            host.lines[0].send("x" * (12 * MIB))
            await host.lines[0].closed.wait()
            await until(lambda: host.listener.connections == 0 and host.routes_ended == 1)
            await deaf.ended()


async def test_a_client_that_sends_but_never_reads_its_answers_is_cut_off() -> None:
    with trio.fail_after(20):
        async with (
            hosting(
                max_frame_bytes=MIB, max_outbound_bytes=2 * MIB, send_stall_s=1, close_timeout_s=0.3
            ) as host,
            await host.connect(receive_buffer_bytes=4096) as flood,
        ):
            with pytest.raises(trio.BrokenResourceError):
                while True:
                    await flood.send_text("x" * MIB)
            await until(lambda: host.listener.connections == 0)


async def test_the_kernel_watches_for_a_client_that_vanishes() -> None:
    with trio.fail_after(5):
        listener = await bind("127.0.0.1", 0)
        async with await RawClient.connect(listener.address.port) as client:
            sock = client.stream.socket
            give_up_on_silence(sock, idle_s=60, interval_s=15, probes=4, unacked_s=60)
            assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
            assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 60
            assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 60_000
            # A value that the kernel does not take is no reason to refuse a client.
            give_up_on_silence(sock, idle_s=60, interval_s=15, probes=4000, unacked_s=60)
        await listener.aclose()


async def test_a_client_that_vanishes_without_a_fin_is_found_out() -> None:
    with trio.fail_after(15):
        async with hosting(keepalive_idle_s=1, keepalive_interval_s=1, keepalive_probes=1) as host:
            client = await host.connect()
            try:
                # A socket that is closed in repair mode says nothing to its peer.
                client.stream.socket.setsockopt(socket.IPPROTO_TCP, _TCP_REPAIR, 1)
            except PermissionError:
                pytest.skip("vanishing without a FIN (TCP_REPAIR) needs CAP_NET_ADMIN")
            finally:
                await trio.aclose_forcefully(client.stream)
            assert not host.lines[0].closed.is_set()
            await host.lines[0].closed.wait()
            await until(lambda: host.routes_ended == 1 and host.listener.connections == 0)


async def test_a_ping_that_meets_our_close_frame_is_no_fault() -> None:
    with trio.fail_after(5):
        async with hosting() as host, await host.connect() as client:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(host.lines[0].close, 1001, "leaving")
                assert (await client.receive_close()).code == 1001
                await client.send(frame(PING, b"x") * 3 + frame(TEXT, b"ignored"))
                await client.send(frame(CLOSE, struct.pack("!H", 1001)))
                assert await client.ended()
            assert host.lines[0].close_code == 1001
            await until(lambda: host.routes_ended == 1)
            assert host.received == []


async def test_closing_twice_is_closing_once_and_no_answer_is_waited_for_long() -> None:
    with trio.fail_after(5):
        async with hosting(close_timeout_s=0.2) as host, await host.connect() as client:
            line = host.lines[0]
            async with trio.open_nursery() as nursery:
                nursery.start_soon(line.close, 4000, "first")
                await until(lambda: line.is_closing)
                await line.close(4001, "second")
            await line.close()
            assert line.close_code == 4000
            assert (await client.receive_close()).code == 4000


async def test_text_that_is_not_unicode_is_refused_to_its_sender() -> None:
    with trio.fail_after(5):
        async with hosting() as host, await host.connect() as client:
            with pytest.raises(UnicodeEncodeError):
                host.lines[0].send("\ud800")
            host.lines[0].send("fine")
            assert await client.receive_text() == "fine"


async def test_many_clients_share_one_text() -> None:
    with trio.fail_after(20):
        async with hosting() as host:
            clients = [await host.connect() for _ in range(20)]
            text = "é" * 100_000
            for line in host.lines:
                line.send(text)
            for client in clients:
                assert await client.receive_text() == text
                await trio.aclose_forcefully(client.stream)
            await until(lambda: host.listener.connections == 0)


@pytest.mark.parametrize("size", [0, 125, 126, 65_535, 65_536, 300_000])
async def test_messages_go_out_whole_and_in_order_while_pings_are_answered(size: int) -> None:
    texts = [f"{number} " + "é" * (size // 2) for number in range(40)]
    texts += ["x" * size, "y" * (size + 1)]
    with trio.fail_after(10):
        async with hosting() as host, await host.connect() as client:
            async with trio.open_nursery() as nursery:

                async def ping() -> None:
                    for number in range(40):
                        await client.send(frame(PING, b"%d" % number))

                nursery.start_soon(ping)
                for text in texts:
                    host.lines[0].send(text)
                read: list[str] = []
                pongs = 0
                while len(read) < len(texts) or pongs < 40:
                    opcode, payload, fin = await client.receive_frame()
                    assert fin
                    assert opcode in (TEXT, PONG)
                    if opcode == TEXT:
                        read.append(payload.decode())
                    else:
                        assert payload == b"%d" % pongs
                        pongs += 1
            assert read == texts


def test_the_buffer_counts_bytes_and_an_overhead_a_text() -> None:
    buffer = OutboundBuffer(max_bytes=1000)
    assert buffer.put("é" * 100)
    assert buffer.size_bytes == 200 + TEXT_OVERHEAD_BYTES
    assert buffer.oldest(1) == ["é" * 100]
    while buffer.put(""):
        assert buffer.size_bytes <= 1000 + TEXT_OVERHEAD_BYTES
    size = buffer.size_bytes
    assert not buffer.put("x" * 1000)
    assert buffer.size_bytes == size
    assert buffer.oldest(200 + 3 * TEXT_OVERHEAD_BYTES) == ["é" * 100, "", ""]
    buffer.drop(1)
    assert buffer.size_bytes == size - 200 - TEXT_OVERHEAD_BYTES
    buffer.clear()
    buffer.drop(1)
    assert (buffer.size_bytes, buffer.oldest(1000)) == (0, [])
    assert buffer.put("x" * 1000)


async def test_bytes_before_the_101_are_not_lost_nor_limited_less() -> None:
    with trio.fail_after(5):
        async with (
            hosting(max_frame_bytes=LIMIT) as host,
            await RawClient.connect(host.listener.address.port) as client,
        ):
            await client.send(request("/") + frame_head(TEXT, LIMIT + 1))
            assert (await client.response()).status == 101
            assert (await client.receive_close()).code == 1009
