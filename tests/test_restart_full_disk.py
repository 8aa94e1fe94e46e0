"""A disk that is full: the host refuses what it cannot keep, serves reading, and loses nothing."""

import os
import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
import trio

from ahp_client import Refused
from ahpd.supervisor.store.upkeep import check_database
from cli_host import CliHost
from test_restart_crash import opened, started, talking_to


@contextmanager
def full_disk(pid: int, beyond_bytes: int = 32 * 1024) -> Iterator[None]:
    """No file of that process grows beyond so many bytes."""
    limits = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (beyond_bytes, limits[1]))
    try:
        yield
    finally:
        with suppress(ProcessLookupError):
            resource.prlimit(pid, resource.RLIMIT_FSIZE, limits)


def large_draft(text: str) -> dict[str, object]:
    draft = {"text": text * 100_000, "origin": {"kind": "user"}}
    return {"type": "chat/draftChanged", "draft": draft}


async def noticed(host: CliHost) -> None:
    """Waits until the host has noticed."""
    with trio.fail_after(20):
        while "nothing can be kept" not in host.log():  # noqa: ASYNC110  # another program's log
            await trio.sleep(0.02)


async def test_what_cannot_be_kept_is_refused_and_nothing_told_is_lost(state_dir: Path) -> None:
    session, chat_of = "ahp-session:/s", ""
    with trio.fail_after(120):
        with started(state_dir) as host:
            async with talking_to(host, "one") as client:
                chat_of = chat = await opened(client, session, "scripted")
                await client.say(chat, "t1", "stream 3")
                with full_disk(host.pid):
                    waiting = await client.dispatch(chat, large_draft("x"))
                    await noticed(host)
                    said = await client.start_turn(chat, "t2", "stream 3")
                    assert said["rejectionReason"].startswith(
                        "The host cannot keep anything at the moment: the database "
                    )
                    for method, params in (
                        ("createSession", {"channel": "ahp-session:/n", "provider": "scripted"}),
                        ("createChat", {"channel": session, "chat": "ahp-chat:/n"}),
                        ("disposeSession", {"channel": session}),
                    ):
                        with pytest.raises(Refused, match="cannot keep anything"):
                            await client.request(method, **params)
                    # Reading is served, to those who come as well.
                    async with talking_to(host, "two") as reader:
                        listed = await reader.request("listSessions")
                        assert [row["resource"] for row in listed["items"]] == [session]
                        assert (await reader.subscribe(chat))["turns"][0]["id"] == "t1"
                    own = {"clientId": "one", "clientSeq": waiting}
                    assert all(one.get("origin") != own for one in client.envelopes), (
                        "what is not kept is not told"
                    )
                # There is room again: what waited is kept and told, and work goes on.
                assert "rejectionReason" not in await client.echo(waiting)
                await client.until(lambda: "kept is kept now" in host.log(), what="its word")
                await client.say(chat, "t2", "stream 3")
                os.kill(host.pid, signal.SIGKILL)
                await client.until(lambda: client.closed is not None)
        assert check_database(state_dir / "state.db") == []
        with started(state_dir) as host:
            async with talking_to(host, "three") as client:
                state = await client.subscribe(chat_of)
                assert [turn["id"] for turn in state["turns"]] == ["t1", "t2"]
                assert state["draft"]["text"] == "x" * 100_000


async def test_a_worker_that_streams_meanwhile_is_not_read_and_goes_on_later(
    state_dir: Path,
) -> None:
    with trio.fail_after(120), started(state_dir) as host:
        async with talking_to(host, "one") as client:
            chat = await opened(client, "ahp-session:/s", "scripted")
            other = await opened(client, "ahp-session:/other", "scripted")
            await client.start_turn(chat, "t1", "stream 2000")
            with full_disk(host.pid):
                await client.dispatch(other, large_draft("x"))
                await noticed(host)
                heard = len(client.envelopes)
                await trio.sleep(1)
                assert len(client.envelopes) - heard < 10, "it is not read"
                # An operator ends what has to end, all the same.
                done = await trio.to_thread.run_sync(host.run, "kill", "other")
                assert done.returncode == 0, done.stderr
            turn = await client.ended(chat, "t1")
            assert turn["state"] == "complete"
            assert len(turn["responseParts"][0]["content"].split()) == 2000


async def test_a_host_that_stops_on_a_full_disk_says_what_is_lost(state_dir: Path) -> None:
    with trio.fail_after(120), started(state_dir) as host:
        async with talking_to(host, "one") as client:
            chat = await opened(client, "ahp-session:/s", "scripted")
            with full_disk(host.pid):
                await client.dispatch(chat, large_draft("x"))
                await noticed(host)
                host.process.terminate()
                await trio.to_thread.run_sync(host.wait, 20)
        assert "not everything could be kept" in host.log()
        assert check_database(state_dir / "state.db") == []
