"""Ending processes: after a kill, a crash or a stop nothing of a worker's tree is left.

Each test starts real processes; a mark in their environment tells what is left.
"""

import os
import signal
from pathlib import Path

import pytest
import trio

from ahpd.supervisor.processes.keeper_launcher import open_keeper
from ahpd.supervisor.processes.launcher import Exit
from keeper_probes import (
    alive,
    new_mark,
    python,
    read_until,
    shell,
    status_field,
    until,
    zombies_of,
)

#: Three ways to leave one's parent, then "up".
ESCAPES = "setsid sleep 100 & nohup sleep 101 >/dev/null 2>&1 & (setsid sh -c 'sleep 102 &') ; "

IGNORES_TERM = "trap '' TERM; "


async def test_a_worker_that_obeys_sigterm_ends_at_once_and_in_its_own_way() -> None:
    with trio.fail_after(10):
        async with open_keeper() as launcher:
            worker = await launcher.start(shell("trap 'exit 7' TERM; echo up; while :; do :; done"))
            await read_until(worker.stdout, b"up\n")
            began = trio.current_time()
            worker.end(5)
            assert await worker.wait() == Exit(code=7)
            assert await worker.gone() == 1
            assert trio.current_time() - began < 2


async def test_what_ignores_sigterm_is_killed_after_the_grace_and_not_before() -> None:
    mark = new_mark()
    with trio.fail_after(10):
        async with open_keeper() as launcher:
            worker = await launcher.start(
                shell(IGNORES_TERM + "sleep 100 & echo up; wait; sleep 100", mark)
            )
            await read_until(worker.stdout, b"up\n")
            began = trio.current_time()
            worker.end(0.4)
            assert await worker.wait() == Exit(signal=signal.SIGKILL)
            assert await worker.gone() == 2
            assert 0.4 <= trio.current_time() - began < 2
            assert alive(mark) == []


async def test_a_shorter_grace_counts_and_a_longer_one_does_not() -> None:
    with trio.fail_after(10):
        async with open_keeper() as launcher:
            worker = await launcher.start(shell(IGNORES_TERM + "echo up; while :; do :; done"))
            await read_until(worker.stdout, b"up\n")
            worker.end(60)
            worker.end(0.1)
            worker.end(60)
            assert await worker.wait() == Exit(signal=signal.SIGKILL)


async def test_a_tree_shares_the_grace_when_its_worker_is_the_first_to_go(tmp_path: Path) -> None:
    done = tmp_path / "done"
    # The child needs half a second to put things in order; its parent dies at once.
    code = f"""
        (trap 'sleep 0.5; echo tidy > {done}; exit' TERM; echo up; while :; do sleep 0.05; done) &
        wait
    """
    with trio.fail_after(10):
        async with open_keeper() as launcher:
            worker = await launcher.start(shell(code))
            await read_until(worker.stdout, b"up\n")
            worker.end(5)
            assert await worker.wait() == Exit(signal=signal.SIGTERM)
            await worker.gone()
            assert await trio.Path(done).read_text() == "tidy\n"


async def test_a_stopped_worker_ends() -> None:
    mark = new_mark()
    with trio.fail_after(10):
        async with open_keeper() as launcher:
            worker = await launcher.start(shell("sleep 100 & echo up; kill -STOP 0", mark))
            await read_until(worker.stdout, b"up\n")
            await until(lambda: status_field(worker.pid, "State").startswith("T"))
            worker.end(0.1)
            await worker.gone()
            assert alive(mark) == []


async def test_a_worker_that_blocks_every_signal_ends() -> None:
    code = """
        import signal, time
        signal.pthread_sigmask(signal.SIG_SETMASK, signal.valid_signals())
        print('up', flush=True)
        time.sleep(100)
    """
    with trio.fail_after(10):
        async with open_keeper() as launcher:
            worker = await launcher.start(python(code))
            await read_until(worker.stdout, b"up\n")
            worker.end(0.1)
            assert await worker.wait() == Exit(signal=signal.SIGKILL)


@pytest.mark.parametrize("grace_s", [0, 0.2])
async def test_what_escaped_by_setsid_nohup_and_a_double_fork_ends_with_its_worker(
    grace_s: float,
) -> None:
    mark = new_mark()
    with trio.fail_after(10):
        async with open_keeper() as launcher:
            worker = await launcher.start(
                shell(IGNORES_TERM + ESCAPES + "echo up; sleep 100; sleep 100", mark)
            )
            await read_until(worker.stdout, b"up\n")
            await until(lambda: len(alive(mark)) == 5)
            worker.end(grace_s)
            assert await worker.gone() == 5
            assert alive(mark) == []
            assert launcher.pid is not None
            assert zombies_of(launcher.pid) == []


@pytest.mark.parametrize("dying", ["exit 3", "kill -SEGV $$"])
async def test_what_a_worker_leaves_behind_when_it_dies_by_itself_is_swept_at_once(
    dying: str,
) -> None:
    mark = new_mark()
    with trio.fail_after(10):
        async with open_keeper() as launcher:
            worker = await launcher.start(shell(IGNORES_TERM + ESCAPES + f"echo up; {dying}", mark))
            began = trio.current_time()
            told = await worker.wait()
            assert told in (Exit(code=3), Exit(signal=signal.SIGSEGV))
            await worker.gone()
            assert trio.current_time() - began < 1
            assert alive(mark) == []


async def test_death_is_told_although_a_grandchild_holds_every_pipe_open() -> None:
    # The grandchild is kept alive past its worker by the grace that it shares.
    code = IGNORES_TERM + "trap 'exit 5' USR1; (trap '' TERM; echo up; sleep 100) & wait; exit 5"
    with trio.fail_after(10):
        async with open_keeper() as launcher:
            worker = await launcher.start(shell(code))
            await read_until(worker.stdout, b"up\n")
            worker.end(60)
            os.kill(worker.pid, signal.SIGUSR1)
            assert await worker.wait() == Exit(code=5)
            with trio.move_on_after(0.1) as nothing_ends:
                await worker.stdout.receive_some(100)
            assert nothing_ends.cancelled_caught
            worker.end(0)
            await worker.gone()
            assert await worker.stdout.receive_some(100) == b""


async def test_an_orphan_of_a_living_worker_is_its_own_and_is_left_alone() -> None:
    mark = new_mark()
    with trio.fail_after(10):
        async with open_keeper() as launcher:
            worker = await launcher.start(
                shell("(setsid sleep 100 & echo $!) ; while :; do sleep 0.1; done", mark)
            )
            orphan = int(await read_until(worker.stdout, b"\n"))
            await until(lambda: status_field(orphan, "PPid") == str(worker.pid))
            await trio.sleep(1.2)  # longer than from one look for escapees to the next
            assert orphan in alive(mark)
            await worker.aclose()
            assert alive(mark) == []


async def test_ending_one_worker_leaves_the_others_with_their_trees() -> None:
    first, second = new_mark(), new_mark()
    with trio.fail_after(10):
        async with open_keeper() as launcher:
            code = ESCAPES + "echo up; sleep 100"
            ending = await launcher.start(shell(code, first))
            staying = await launcher.start(shell(code, second))
            await read_until(ending.stdout, b"up\n")
            await read_until(staying.stdout, b"up\n")
            await until(lambda: len(alive(second)) == 5)
            before = sorted(alive(second))
            await ending.aclose()
            assert alive(first) == []
            assert sorted(alive(second)) == before
            await staying.aclose()
            assert alive(second) == []


async def test_what_gets_past_its_worker_is_an_unknown_child_of_the_keeper_and_is_killed() -> None:
    # It is no subreaper any more, so its orphan falls to the keeper while it lives.
    code = """
        import ctypes, os, subprocess, time
        ctypes.CDLL(None).prctl(36, 0, 0, 0, 0)
        subprocess.run(['sh', '-c', 'sleep 0.1 & setsid sleep 100 & echo $!'])
        time.sleep(100)
    """
    mark = new_mark()
    with trio.fail_after(10):
        async with open_keeper() as launcher:
            worker = await launcher.start(python(code, mark))
            await read_until(worker.stdout, b"\n")
            # The orphan that died by itself was of the worker's group: that changes nothing.
            await until(lambda: alive(mark) == [worker.pid], limit_s=5)
            await trio.sleep(0.3)
            assert alive(mark) == [worker.pid]
            await worker.aclose()


async def test_a_tree_that_forks_while_it_is_killed_ends() -> None:
    # Every process makes another one whenever it can, up to a bound for this machine.
    code = """
        import os, resource, time
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
        os.write(1, b'up\\n')
        for _ in range(6):
            try:
                if os.fork() == 0:
                    os.setsid()
            except OSError:
                pass
        while True:
            time.sleep(0.02)
            pid = os.fork()
            if pid == 0:
                time.sleep(0.2)
                os._exit(0)
            try:
                os.waitpid(-1, os.WNOHANG)
            except OSError:
                pass
    """
    mark = new_mark()
    with trio.fail_after(30):
        async with open_keeper() as launcher:
            worker = await launcher.start(python(code, mark))
            await read_until(worker.stdout, b"up\n")
            await until(lambda: len(alive(mark)) > 64)
            worker.end(0)
            assert await worker.gone() > 64
            assert alive(mark) == []


@pytest.mark.parametrize("hop", ["pass", "os.setsid()"])
async def test_what_forks_and_leaves_its_parent_dead_again_and_again_is_caught(hop: str) -> None:
    code = f"""
        import os, time
        os.write(1, b'up\\n')
        if os.fork():
            time.sleep(100)
        while True:
            if os.fork():
                os._exit(0)
            {hop}
    """
    mark = new_mark()
    with trio.fail_after(20):
        async with open_keeper() as launcher:
            worker = await launcher.start(python(code, mark))
            await read_until(worker.stdout, b"up\n")
            await trio.sleep(0.1)
            worker.end(0)
            await worker.gone()
            await until(lambda: alive(mark) == [], limit_s=1)
            # It was caught, not only told so.
            await trio.sleep(0.2)
            assert alive(mark) == []
            assert launcher.pid is not None
            assert zombies_of(launcher.pid) == []


async def test_a_worker_cannot_silence_its_keeper_by_stopping_it() -> None:
    mark = new_mark()
    with trio.fail_after(10):
        async with open_keeper() as launcher:
            worker = await launcher.start(shell("kill -STOP $PPID; echo up; exit 3", mark))
            await read_until(worker.stdout, b"up\n")
            assert await worker.wait() == Exit(code=3)
            worker = await launcher.start(shell("kill -STOP $PPID; echo up; sleep 100", mark))
            await read_until(worker.stdout, b"up\n")
            await worker.aclose()
            assert alive(mark) == []


async def test_the_keeper_is_immune_to_a_terminal_and_to_a_polite_request() -> None:
    with trio.fail_after(10):
        async with open_keeper() as launcher:
            keeper = launcher.pid
            assert keeper is not None
            assert os.getsid(keeper) == keeper
            for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM, signal.SIGQUIT):
                os.kill(keeper, number)
            worker = await launcher.start(shell("exit 0"))
            assert await worker.wait() == Exit(code=0)
            assert launcher.pid == keeper
            assert status_field(keeper, "Name") == "ahpd-keeper"
            assert status_field(keeper, "Threads") == "1"
