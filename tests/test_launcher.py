"""Starting workers through the keeper: what they get, what is told of them, what fails in words."""

import os
import signal
import sys
from pathlib import Path

import attrs
import pytest
import trio
import trio.testing

from ahpd.supervisor.processes.keeper_launcher import open_keeper
from ahpd.supervisor.processes.launcher import Exit, LaunchError
from keeper_probes import alive, new_mark, python, read_until, runs, shell, spec, until


async def test_a_worker_gets_its_descriptors_and_no_others() -> None:
    code = """
        import os
        for fd in sorted(map(int, os.listdir('/proc/self/fd'))):
            try:
                print(fd, os.readlink(f'/proc/self/fd/{fd}').partition(':')[0])
            except OSError:
                pass  # the listing's own
        os.write(4, b'frame\\n')
        os.write(2, os.read(3, 100))
    """
    with trio.fail_after(10):
        async with open_keeper() as launcher:
            worker = await launcher.start(python(code))
            await worker.frames_in.send_all(b"to the worker\n")
            assert await read_until(worker.frames_out, b"\n") == b"frame\n"
            assert await read_until(worker.stderr, b"\n") == b"to the worker\n"
            expected = b"0 /dev/null\n1 pipe\n2 pipe\n3 pipe\n4 pipe\n"
            assert await read_until(worker.stdout, b"4 pipe\n") == expected
            assert await worker.wait() == Exit(code=0)
            assert await worker.stdout.receive_some(100) == b""


async def test_a_worker_gets_exactly_the_environment_and_folder_named(tmp_path: Path) -> None:
    with trio.fail_after(10):
        async with open_keeper() as launcher:
            one = spec("/usr/bin/env", cwd=str(tmp_path))
            one = attrs.evolve(
                one, env={"A": "b=c", "NAME": "Zoë", "RAW": os.fsdecode(b"\xff\xe9")}
            )
            worker = await launcher.start(one)
            await worker.wait()
            lines = (await worker.stdout.receive_some(4096)).splitlines()
            assert sorted(lines) == [b"A=b=c", "NAME=Zoë".encode(), b"RAW=\xff\xe9"]
            worker = await launcher.start(attrs.evolve(one, argv=("/bin/pwd",)))
            assert await read_until(worker.stdout, b"\n") == os.fsencode(tmp_path) + b"\n"


async def test_a_worker_leads_its_own_session_and_is_the_reaper_of_its_orphans() -> None:
    code = """
        import ctypes, os, resource
        reaper = ctypes.c_int()
        ctypes.CDLL(None).prctl(37, ctypes.byref(reaper), 0, 0, 0)
        print(os.getsid(0) == os.getpid() == os.getpgid(0), reaper.value,
              resource.getrlimit(resource.RLIMIT_CORE))
    """
    with trio.fail_after(10):
        async with open_keeper() as launcher:
            worker = await launcher.start(python(code))
            assert await read_until(worker.stdout, b"\n") == b"True 1 (0, 0)\n"


async def test_no_signal_is_blocked_or_ignored_in_a_worker() -> None:
    with trio.fail_after(10):
        async with open_keeper() as launcher:
            # cat and not Python, which ignores SIGPIPE by itself.
            worker = await launcher.start(spec("/bin/cat", "/proc/self/status"))
            await worker.wait()
            status = (await worker.stdout.receive_some(65536)).decode()
    lines = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    assert {lines[name].strip("0") for name in ("SigBlk", "SigIgn", "SigPnd")} == {""}


async def test_arguments_and_environment_of_100_kib_arrive_whole() -> None:
    with trio.fail_after(10):
        async with open_keeper() as launcher:
            large = "é" * (50 * 1024)
            code = "import os, sys; print(len(sys.argv[1]), len(os.environ['LARGE']))"
            one = python(code, "none", large)
            worker = await launcher.start(attrs.evolve(one, env={**one.env, "LARGE": large}))
            assert await read_until(worker.stdout, b"\n") == b"51200 51200\n"


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            {"argv": ("/no/such/program",)},
            "/no/such/program could not be started: No such file or directory",
        ),
        (
            {"argv": ("no-such-program",)},
            "no-such-program could not be started: No such file or directory",
        ),
        ({"argv": ("/etc/passwd",)}, "/etc/passwd could not be started: Permission denied"),
        (
            {"cwd": "/no/such/folder"},
            "/bin/true could not be started: its working folder cannot be entered: "
            "No such file or directory",
        ),
        (
            {"argv": ("/bin/true", "x" * 200_000)},
            "/bin/true could not be started: Argument list too long",
        ),
        ({"argv": ()}, "the worker could not be started: no program is named"),
        (
            {"argv": ("/bin/true", "a\0b")},
            "the worker could not be started: a NUL in its arguments or environment, "
            "or a variable without a proper name",
        ),
    ],
)
async def test_what_cannot_be_started_fails_with_a_sentence(
    changes: dict[str, object], sentence: str
) -> None:
    with trio.fail_after(10):
        async with open_keeper() as launcher:
            descriptors = len(os.listdir("/proc/self/fd"))
            with pytest.raises(LaunchError) as caught:
                await launcher.start(attrs.evolve(spec("/bin/true"), **changes))
            assert str(caught.value) == sentence
            assert len(os.listdir("/proc/self/fd")) == descriptors
            # And the next one starts.
            worker = await launcher.start(spec("/bin/true"))
            assert await worker.wait() == Exit(code=0)
            await worker.aclose()


async def test_the_status_of_each_of_50_quick_workers_is_exact() -> None:
    told: dict[int, Exit] = {}

    async def one(code: int) -> None:
        worker = await launcher.start(shell(f"exit {code}"))
        told[code] = await worker.wait()
        assert await worker.gone() == 1
        await worker.aclose()

    with trio.fail_after(30):
        async with open_keeper() as launcher, trio.open_nursery() as nursery:
            for code in range(50):
                nursery.start_soon(one, code)
    assert told == {code: Exit(code=code) for code in range(50)}


async def test_a_death_by_signal_is_told_by_its_name() -> None:
    with trio.fail_after(10):
        async with open_keeper() as launcher:
            for number in (signal.SIGSEGV, signal.SIGKILL, signal.SIGTERM):
                worker = await launcher.start(shell(f"kill -{int(number)} $$; sleep 10"))
                told = await worker.wait()
                assert told == Exit(signal=number)
                assert told.sentence() == f"was killed by {number.name}"
    assert Exit(code=3).sentence() == "exited with status 3"
    assert Exit(signal=99).sentence() == "was killed by signal 99"
    assert Exit().sentence() == "ended in a way that is not known"


async def test_20_workers_start_at_once_and_all_end_with_the_launcher() -> None:
    mark = new_mark()

    async def one() -> None:
        worker = await launcher.start(shell("sleep 100 & echo up; wait", mark))
        assert await read_until(worker.stdout, b"\n") == b"up\n"

    with trio.fail_after(30):
        async with open_keeper() as launcher:
            async with trio.open_nursery() as nursery:
                for _ in range(20):
                    nursery.start_soon(one)
            assert len(alive(mark)) == 40
            keeper = launcher.pid
            assert keeper is not None
        assert alive(mark) == []
        assert not runs(keeper)


async def test_a_worker_and_its_tree_can_be_looked_at() -> None:
    with trio.fail_after(10):
        async with open_keeper() as launcher:
            code = """
                import subprocess
                child = subprocess.Popen(['sleep', '100'])
                kept = bytearray(30_000_000)
                total = sum(range(3_000_000))
                print(child.pid, flush=True)
                child.wait()
            """
            worker = await launcher.start(python(code))
            child = int(await read_until(worker.stdout, b"\n"))
            first, second = worker.processes()
            assert (first.pid, first.ppid) == (worker.pid, launcher.pid)
            assert first.memory_bytes > 30_000_000
            assert 0 < first.cpu_s < 10
            assert (second.pid, second.ppid) == (child, worker.pid)
            worker.end(0)
            await worker.gone()
            assert worker.processes() == []


async def test_a_flood_on_stdout_that_nobody_reads_blocks_nothing() -> None:
    with trio.fail_after(20):
        async with open_keeper() as launcher:
            flooding = await launcher.start(shell("yes flood"))
            assert await flooding.stdout.receive_some(6) == b"flood\n"
            for code in range(5):
                worker = await launcher.start(shell(f"exit {code}"))
                assert await worker.wait() == Exit(code=code)
            flooding.end(0)
            assert await flooding.gone() == 2


async def test_a_cancelled_start_leaves_nothing() -> None:
    mark = new_mark()
    with trio.fail_after(20):
        async with open_keeper() as launcher:
            descriptors = len(os.listdir("/proc/self/fd"))
            async with trio.open_nursery() as nursery:
                nursery.start_soon(launcher.start, shell("sleep 100", mark))
                await trio.testing.wait_all_tasks_blocked(0)
                nursery.cancel_scope.cancel()
            await until(lambda: len(os.listdir("/proc/self/fd")) == descriptors)
            # What is asked for later is heard later: so the first has been ended by now.
            worker = await launcher.start(shell("exit 0", mark))
            await worker.gone()
            await worker.aclose()
            await until(lambda: alive(mark) == [])


async def test_closing_a_worker_ends_it_and_gives_back_every_descriptor() -> None:
    mark = new_mark()
    with trio.fail_after(10):
        async with open_keeper() as launcher:
            descriptors = len(os.listdir("/proc/self/fd"))
            worker = await launcher.start(shell("trap '' TERM; sleep 100", mark))
            assert len(os.listdir("/proc/self/fd")) == descriptors + 4
            await worker.aclose()
            await worker.aclose()
            assert alive(mark) == []
            assert len(os.listdir("/proc/self/fd")) == descriptors
            assert await worker.wait() == Exit(signal=signal.SIGKILL)


async def test_a_cancelled_host_still_ends_its_workers() -> None:
    mark = new_mark()
    with trio.fail_after(10):
        with trio.CancelScope() as scope:
            async with open_keeper() as launcher:
                worker = await launcher.start(shell("sleep 100 & echo up; wait", mark))
                await read_until(worker.stdout, b"\n")
                assert len(alive(mark)) == 2
                scope.cancel()
                await trio.sleep_forever()
        assert alive(mark) == []


async def test_whoever_descends_from_the_keeper_is_known_as_such() -> None:
    with trio.fail_after(10):
        async with open_keeper() as launcher:
            worker = await launcher.start(shell("setsid sleep 100 & echo $!; wait"))
            child = int(await read_until(worker.stdout, b"\n"))
            assert launcher.is_descendant(worker.pid)
            assert launcher.is_descendant(child)
            assert not launcher.is_descendant(os.getpid())
            assert not launcher.is_descendant(os.getppid())
            await worker.aclose()
            # What cannot be looked at any more is not trusted.
            assert launcher.is_descendant(child)


async def test_another_platform_is_told_in_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(LaunchError, match=r"^workers can be started on Linux only, for now$"):
        async with open_keeper():
            pass
