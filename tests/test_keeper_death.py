"""When the supervisor or the keeper dies: nothing of any worker is left, and the host goes on."""

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from ahpd.supervisor.processes import keeper as program
from ahpd.supervisor.processes.keeper_launcher import open_keeper
from ahpd.supervisor.processes.launcher import Exit
from keeper_probes import MARK, alive, new_mark, python, read_until, runs, shell, until

TREE = "setsid sleep 100 & nohup sleep 101 >/dev/null 2>&1 & (setsid sh -c 'sleep 102 &') ; "
STUBBORN = "trap '' TERM; " + TREE + "echo up; sleep 100; sleep 100"

SUPERVISOR = """
    import sys, trio
    from ahpd.supervisor.processes.keeper_launcher import open_keeper
    from ahpd.supervisor.processes.launcher import LaunchSpec

    async def main():
        async with open_keeper() as launcher:
            for _ in range(2):
                worker = await launcher.start(LaunchSpec(
                    argv=('/bin/sh', '-c', sys.argv[2]),
                    env={'PATH': '/usr/bin:/bin', sys.argv[1]: sys.argv[3]},
                    cwd='/', label='x'))
                await worker.stdout.receive_some(100)
            print(launcher.pid, flush=True)
            await trio.sleep_forever()

    trio.run(main)
"""


@pytest.fixture
def supervisor() -> Iterator[tuple["subprocess.Popen[bytes]", str]]:
    """A program that opened a keeper with two stubborn workers, and their mark."""
    mark = new_mark()
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(SUPERVISOR), MARK, STUBBORN, mark],
        stdout=subprocess.PIPE,
    )
    with process:
        yield process, mark
        process.kill()


async def test_when_the_supervisor_is_killed_nothing_is_left(
    supervisor: tuple["subprocess.Popen[bytes]", str],
) -> None:
    process, mark = supervisor
    assert process.stdout is not None
    with trio.fail_after(15):
        keeper = int(process.stdout.readline())
        await until(lambda: len(alive(mark)) == 10)
        process.kill()
        await until(lambda: alive(mark) == [])
        await until(lambda: not runs(keeper))


async def test_ctrl_c_at_the_terminal_ends_a_host_in_order(
    supervisor: tuple["subprocess.Popen[bytes]", str],
) -> None:
    process, mark = supervisor
    assert process.stdout is not None
    with trio.fail_after(15):
        keeper = int(process.stdout.readline())
        process.send_signal(signal.SIGINT)
        await until(lambda: process.poll() is not None)
        assert alive(mark) == []
        assert not runs(keeper)


async def test_when_the_keeper_is_killed_nothing_is_left_and_another_takes_over() -> None:
    mark = new_mark()
    deaths: list[int] = []
    with trio.fail_after(20):
        async with open_keeper(on_keeper_death=deaths.append) as launcher:
            workers = [await launcher.start(shell(STUBBORN, mark)) for _ in range(3)]
            for worker in workers:
                await read_until(worker.stdout, b"up\n")
            await until(lambda: len(alive(mark)) == 15)
            first = launcher.pid
            assert first is not None
            os.kill(first, signal.SIGKILL)
            for worker in workers:
                # The supervisor became their parent, so their end is known all the same.
                assert await worker.wait() == Exit(signal=signal.SIGKILL)
                assert await worker.gone() >= 1
            assert alive(mark) == []
            # A start in the meantime waits for the new one.
            worker = await launcher.start(shell("exit 4", mark))
            assert await worker.wait() == Exit(code=4)
            assert launcher.pid not in (None, first)
            assert deaths == [3]
            assert not runs(first)


async def test_a_start_that_the_keeper_took_along_is_made_again_by_the_next_one() -> None:
    # The keeper dies of the first start's program; the second try finds it done.
    with trio.fail_after(20):
        async with open_keeper() as launcher:
            first = launcher.pid
            assert first is not None
            os.kill(first, signal.SIGSTOP)
            async with trio.open_nursery() as nursery:
                told: list[Exit] = []

                async def start() -> None:
                    worker = await launcher.start(shell("exit 6"))
                    told.append(await worker.wait())

                nursery.start_soon(start)
                os.kill(first, signal.SIGKILL)
            assert told == [Exit(code=6)]


async def test_a_worker_that_refused_to_die_with_its_keeper_is_swept() -> None:
    # It takes its death signal back and blocks the rest.
    code = """
        import ctypes, os, signal, subprocess, time
        ctypes.CDLL(None).prctl(1, 0, 0, 0, 0)
        signal.pthread_sigmask(signal.SIG_SETMASK, signal.valid_signals())
        subprocess.Popen(['setsid', 'sleep', '100'])
        print('up', flush=True)
        time.sleep(100)
    """
    mark = new_mark()
    with trio.fail_after(20):
        async with open_keeper() as launcher:
            worker = await launcher.start(python(code, mark))
            await read_until(worker.stdout, b"up\n")
            assert launcher.pid is not None
            os.kill(launcher.pid, signal.SIGKILL)
            assert await worker.wait() == Exit(signal=signal.SIGKILL)
            await worker.gone()
            assert alive(mark) == []


async def test_what_the_host_started_itself_is_no_stray_of_a_dead_keeper() -> None:
    ours = await trio.lowlevel.open_process(["sleep", "100"])
    apart = await trio.lowlevel.open_process(["sleep", "100"], start_new_session=True)
    try:
        with trio.fail_after(20):
            # A second host in the same program is none of the first one's business.
            async with (
                open_keeper(known_children=lambda: {apart.pid}) as launcher,
                open_keeper(known_children=lambda: {apart.pid}) as other,
            ):
                kept = await other.start(shell("sleep 100"))
                lost = await launcher.start(shell("sleep 100"))
                assert launcher.pid is not None
                os.kill(launcher.pid, signal.SIGKILL)
                await lost.gone()
                assert ours.poll() is None
                assert apart.poll() is None
                assert kept.processes()[0].pid == kept.pid
    finally:
        for process in (ours, apart):
            process.kill()
            await process.wait()


async def test_a_worker_whose_keeper_was_gone_before_it_could_ask_never_runs(
    tmp_path: Path,
) -> None:
    # The death signal is set too late when the keeper is dead by then: only a look helps.
    code = f"""
        import os, sys
        sys.path.append({str(Path(program.__file__).parents[1])!r})
        from processes.forking import Program, WorkerEnds, become_worker
        r, w = os.pipe()
        not_the_parent = 1 if os.getppid() != 1 else 2
        become_worker(
            Program([b'/usr/bin/touch', {bytes(tmp_path / "ran")!r}], {{}}, b'/'),
            WorkerEnds(r, w, w, w), w, not_the_parent, (256, 256))
    """
    with trio.fail_after(10):
        done = await trio.run_process(
            [sys.executable, "-I", "-S", "-c", textwrap.dedent(code)],
            check=False,
            start_new_session=False,
            capture_stderr=True,
        )
    assert (done.returncode, done.stderr) == (127, b"")
    assert os.listdir(tmp_path) == []
