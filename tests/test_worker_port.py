"""Frames to and from a worker, and its log: bounded, hostile input held off, deaths heard out."""

import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from ahpd.contracts.frames import BadFrame, Event, Frame, FrameTooLong, Request, Success
from ahpd.contracts.json import JsonError
from ahpd.supervisor.processes.keeper_launcher import open_keeper
from ahpd.supervisor.processes.launcher import LaunchSpec, WorkerProcess
from ahpd.supervisor.processes.output_log import OutputLog, log_name
from ahpd.supervisor.processes.worker_port import OutboxFull, WorkerPort
from keeper_probes import alive, new_mark, python, shell, until

EVENT = '{"type":"event","event":"%s","payload":null}'


@asynccontextmanager
async def running(
    spec: LaunchSpec, **bounds: Any
) -> AsyncIterator[tuple[WorkerProcess, WorkerPort]]:
    """A worker with a port that runs, all ended on leaving."""
    async with open_keeper() as launcher, trio.open_nursery() as nursery:
        process = await launcher.start(spec)
        port = WorkerPort(process, **bounds)
        nursery.start_soon(port.run)
        yield process, port
        await process.aclose()
        await port.aclose()
        nursery.cancel_scope.cancel()


async def collect(port: WorkerPort) -> list[Frame | BadFrame]:
    return [frame async for frame in port]


async def test_frames_pass_both_ways_in_order() -> None:
    code = """
        import json, os
        for line in os.fdopen(3):
            said = json.loads(line)
            os.write(4, json.dumps({'id': said['id'], 'ok': True, 'result': said['payload']})
                     .encode() + b'\\n')
            if said['type'] == 'last':
                break
    """
    with trio.fail_after(20):
        async with running(python(code)) as (_, port):
            payloads = [{"text": "é" * 100_000}, *range(98), "\ud800"]
            for number, payload in enumerate(payloads):
                kind = "last" if number == 99 else "more"
                port.send_nowait(Request(id=str(number), type=kind, payload=payload))
            assert await collect(port) == [
                Success(id=str(number), result="\ufffd" if number == 99 else payload)
                for number, payload in enumerate(payloads)
            ]


async def test_what_is_no_frame_is_told_and_what_follows_still_comes() -> None:
    code = f"""
        import os
        os.write(4, b'garbage\\n\\xff\\xfe\\n[]\\n{EVENT % "good"}\\nhalf a fra')
    """
    with trio.fail_after(10):
        async with running(python(code)) as (_, port):
            *bad, good = await collect(port)
    assert [type(frame) for frame in bad] == [BadFrame, BadFrame, BadFrame]
    assert good == Event(event="good", payload=None)


async def test_an_outbox_that_nobody_reads_is_full_at_its_bounds_and_never_blocks() -> None:
    request = Request(id="1", type="x", payload="x" * 1000)
    with trio.fail_after(10):
        async with running(shell("sleep 100"), max_outbox_frames=100) as (_, port):
            with pytest.raises(OutboxFull, match="does not read: 100 frames"):
                for _ in range(1000):
                    port.send_nowait(request)
                    await trio.lowlevel.checkpoint()
        async with running(shell("sleep 100"), max_outbox_bytes=50_000) as (_, port):
            with pytest.raises(OutboxFull, match="bytes wait for it"):
                for _ in range(1000):
                    port.send_nowait(request)
                    await trio.lowlevel.checkpoint()
            # `send` waits instead.
            with trio.move_on_after(0.05) as waited:
                await port.send(request)
            assert waited.cancelled_caught


async def test_a_frame_that_cannot_be_sent_is_refused_to_its_sender() -> None:
    with trio.fail_after(10):
        async with running(shell("cat <&3 >/dev/null"), max_frame_bytes=1000) as (_, port):
            with pytest.raises(FrameTooLong):
                port.send_nowait(Event(event="x", payload="x" * 1000))
            with pytest.raises(JsonError):
                port.send_nowait(Event(event="x", payload=float("inf")))
            await port.aclose()
            with pytest.raises(trio.ClosedResourceError):
                port.send_nowait(Event(event="x", payload=None))


async def test_sending_to_a_dead_worker_harms_nobody() -> None:
    with trio.fail_after(10):
        async with running(shell("exit 0")) as (process, port):
            await process.gone()
            assert await collect(port) == []
            await trio.testing.wait_all_tasks_blocked()
            for _ in range(20_000):
                port.send_nowait(Event(event="x", payload="x" * 1000))
            with pytest.raises(trio.BrokenResourceError):
                await port.send(Event(event="x", payload=None))


async def test_a_frame_over_the_limit_ends_the_iteration_and_does_not_grow_us() -> None:
    code = """
        import os
        while True:
            os.write(4, b'x' * 65536)
    """
    with trio.fail_after(10):
        async with running(python(code), max_frame_bytes=1_000_000) as (_, port):
            assert await collect(port) == [BadFrame("a frame is larger than 1000000 bytes")]


async def test_a_frame_of_more_values_than_may_be_is_told_and_never_made() -> None:
    code = """
        import os
        frame = b'{"type":"event","event":"%s","payload":[' + b'[],' * 400 + b'"[,[,[,"]}\\n'
        os.write(4, frame % b'within' + frame.replace(b'[],', b'[],[],[],') % b'beyond')
    """
    with trio.fail_after(10):
        async with running(python(code), max_frame_values=1000) as (_, port):
            within, beyond = await collect(port)
    assert isinstance(within, Event) and within.event == "within"
    assert beyond == BadFrame("a frame holds more than 1000 values")


@pytest.mark.parametrize("dribbles", [False, True])
async def test_a_frame_that_is_never_finished_ends_the_iteration(dribbles: bool) -> None:
    code = f"""
        import os, time
        os.write(4, b'{EVENT % "whole"}\\n{{"half')
        while True:
            time.sleep(0.1)
            if {dribbles}:
                os.write(4, b'x')
    """
    with trio.fail_after(10):
        async with running(python(code), max_partial_s=0.7) as (_, port):
            began = trio.current_time()
            whole, bad = await collect(port)
            assert 0.6 < trio.current_time() - began < 3
    assert whole == Event(event="whole", payload=None)
    assert isinstance(bad, BadFrame)
    assert bad.message.endswith("was not finished within 0.7 s")


async def test_a_frame_does_not_age_while_we_do_not_read() -> None:
    code = f"""
        import os
        first, rest = b'{EVENT % "one"}\\n{{"type":"ev', b'ent","event":"two","payload":null}}\\n'
        os.write(4, first)
        os.read(3, 1)
        os.write(4, rest)
    """
    with trio.fail_after(10):
        async with running(python(code), max_partial_s=0.3) as (_, port):
            names = []
            async for frame in port:
                assert isinstance(frame, Event)
                names.append(frame.event)
                if len(names) == 1:
                    await trio.sleep(0.6)  # longer than a frame may be partial
                    port.send_nowait(Event(event="go on", payload=None))
    assert names == ["one", "two"]


async def test_a_worker_that_writes_without_end_blocks_in_its_pipe() -> None:
    mark = new_mark()
    code = f"""
        import os
        count = 0
        while True:
            os.write(4, b'{EVENT % "flood"}\\n')
            count += 1
            os.write(1, b'%d\\n' % count)
    """
    with trio.fail_after(20):
        async with running(python(code, mark)) as (process, port):
            frames = aiter(port)
            assert await anext(frames) == Event(event="flood", payload=None)
            written = 0
            with trio.move_on_after(0.5):
                while True:
                    lines = await process.stdout.receive_some(65536)
                    written = int(lines.split()[-1])
            # What fits in the pipe and in one chunk of ours, and no more.
            assert written * len(EVENT % "flood" + "\n") < 300_000
            # While it is read and discarded it can hear, and be closed.
            async with trio.open_nursery() as nursery:
                nursery.start_soon(port.discard)
                for _ in range(20):
                    lines = await process.stdout.receive_some(65536)
                assert int(lines.split()[-1]) > written
                process.end(0)
                await process.gone()


async def test_a_dead_worker_is_read_to_its_last_word_though_its_pipes_stay_open(
    tmp_path: Path,
) -> None:
    # The grandchild holds every pipe, and lives on for the grace that it shares.
    code = f"""
        trap '' TERM
        sleep 100 &
        echo '{EVENT % "up"}' >&4
        read line <&3
        echo '{EVENT % "last word"}' >&4
        echo 'the reason' >&2
        exit 1
    """
    mark = new_mark()
    with trio.fail_after(10):
        async with running(shell(code, mark)) as (process, port):
            log = OutputLog(tmp_path, "chat")
            frames = aiter(port)
            assert await anext(frames) == Event(event="up", payload=None)
            process.end(60)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(log.run, process)
                port.send_nowait(Event(event="go on", payload=None))
                rest = [frame async for frame in frames]
            assert rest == [Event(event="last word", payload=None)]
            assert log.last_stderr_line == "the reason"
            assert len(alive(mark)) == 1
            log.close()


async def test_the_last_frames_and_the_last_line_of_a_worker_are_heard(tmp_path: Path) -> None:
    code = f"""
        for i in 1 2 3; do echo '{EVENT % "last words"}' >&4; done
        echo 'Traceback' >&2
        printf '  ValueError: \\033[31mno\\033[0m such model' >&2
        exit 1
    """
    with trio.fail_after(10):
        async with running(shell(code)) as (process, port):
            log = OutputLog(tmp_path, "chat")
            async with trio.open_nursery() as nursery:
                nursery.start_soon(log.run, process)
                await process.gone()
                assert await collect(port) == 3 * [Event(event="last words", payload=None)]
            assert log.last_stderr_line == "ValueError: \\x1b[31mno\\x1b[0m such model"
            log.close()


async def test_a_log_is_named_by_a_digest_and_readable_by_us_alone(tmp_path: Path) -> None:
    log = OutputLog(tmp_path / "logs", "../../etc/passwd\ud800")
    log.write_host_line("the agent broke duration-required\nand more")
    log.close()
    assert log.path.parent == tmp_path / "logs"
    assert len(log.path.name) == 36
    assert (log.path.stat().st_mode & 0o777, log.path.parent.stat().st_mode & 0o777) == (
        0o600,
        0o700,
    )
    lines = log.path.read_text().splitlines()
    assert [line[25:] for line in lines] == [
        "host the agent broke duration-required",
        "host and more",
    ]
    assert log_name("a") != log_name("b")


async def test_a_log_says_which_stream_a_line_came_from(tmp_path: Path) -> None:
    with trio.fail_after(10):
        async with running(shell("echo out; echo err >&2; head -c 20000 /dev/zero")) as (
            process,
            _,
        ):
            log = OutputLog(tmp_path, "chat")
            await log.run(process)
            text = log.tail(1_000_000).decode()
            log.close()
    lines = sorted(line[25:] for line in text.splitlines())
    assert lines[0] == "err  err"
    assert lines[-1] == "out  out"
    # A line without an end is cut, and nothing unprintable reaches a terminal.
    assert "".join(line[5:] for line in lines[1:-1]) == 20_000 * "\\x00"
    assert len(lines) == 5


async def test_a_flood_is_capped_on_disk_and_does_not_starve_others(tmp_path: Path) -> None:
    mark = new_mark()
    with trio.fail_after(20):
        async with running(shell("yes flood & yes flood >&2", mark)) as (process, _):
            log = OutputLog(tmp_path, "chat", max_bytes=100_000)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(log.run, process)
                worst_s = 0.0
                for _ in range(50):
                    began = trio.current_time()
                    await trio.sleep(0.01)
                    worst_s = max(worst_s, trio.current_time() - began)
                process.end(0)
            assert worst_s < 0.5
            assert sorted(os.listdir(tmp_path)) == [log.path.name, log.path.name + ".1"]
            sizes = [os.path.getsize(tmp_path / name) for name in os.listdir(tmp_path)]  # noqa: ASYNC240 - a test
            assert max(sizes) <= 100_000
            assert log.last_stderr_line == "flood"
            log.close()
    assert alive(mark) == []


async def test_a_follower_sees_the_tail_then_what_comes_and_is_told_what_it_missed(
    tmp_path: Path,
) -> None:
    log = OutputLog(tmp_path, "chat", max_bytes=10_000)
    for number in range(10):
        log.write_host_line(f"line {number}")
    seen = b""

    async def follow() -> None:
        nonlocal seen
        async for piece in log.follow(tail_bytes=100):
            seen += piece

    def saw(number: int) -> bool:
        return f"line {number}\n".encode() in seen

    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(follow)
            await until(partial(saw, 9))
            assert seen.count(b"\n") == 2
            # Across a rotation nothing is missed by one who keeps up.
            for number in range(10, 500):
                log.write_host_line(f"line {number}")
                if number % 50 == 0:
                    await until(partial(saw, number))
            await until(partial(saw, 499))
            assert [line.rpartition(b" ")[2] for line in seen.splitlines()] == [
                b"%d" % number for number in range(8, 500)
            ]
            # And one who does not is told.
            for number in range(500, 2000):
                log.write_host_line(f"line {number}")
            await until(partial(saw, 1999))
            nursery.cancel_scope.cancel()
    assert b"bytes of the log were overwritten unseen)\n" in seen
    log.close()


async def test_a_log_goes_on_where_an_earlier_host_left_it(tmp_path: Path) -> None:
    for life in range(3):
        log = OutputLog(tmp_path, "chat", max_bytes=200)
        log.write_host_line(f"life {life} " + 100 * "x")
        log.close()
    log = OutputLog(tmp_path, "chat", max_bytes=200)
    assert [line[30:36] for line in log.tail().decode().splitlines()] == ["life 1", "life 2"]
    log.close()


async def test_a_log_that_somebody_removed_begins_anew(tmp_path: Path) -> None:
    log = OutputLog(tmp_path / "logs", "chat", max_bytes=1000)
    log.write_host_line("before")
    shutil.rmtree(tmp_path / "logs")
    for number in range(100):
        log.write_host_line(f"line {number}")
    assert log.tail().splitlines()[-1].endswith(b"line 99")
    assert log.path.stat().st_size <= 1000
    log.close()


async def test_a_disk_that_refuses_loses_the_log_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "logs").write_text("in the way")
    with trio.fail_after(10):
        async with running(shell("echo out; echo err >&2; exit 2")) as (process, _):
            log = OutputLog(tmp_path / "logs", "chat")
            log.write_host_line("lost")
            await log.run(process)
            assert log.last_stderr_line == "err"
            assert log.tail() == b""
            log.close()
