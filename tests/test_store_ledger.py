"""Told means kept: what is told, when, and in which order, with a store that takes its time."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import trio
import trio.testing

from ahpd.supervisor.store.ledger import Ledger
from ahpd.supervisor.store.memory import MemoryStore
from ahpd.supervisor.store.sqlite import SqliteStore
from test_store import action, chat, read, session
from test_store_sqlite import full_disk


@asynccontextmanager
async def kept_in(
    path: Path, *, flush_window_s: float = 0.1
) -> AsyncIterator[tuple[Ledger, SqliteStore]]:
    store = SqliteStore(path / "state.db")
    await store.open()
    ledger = Ledger(store, flush_window_s=flush_window_s)
    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ledger.run)
            store.put_session(session())
            store.put_chat(chat())
            await ledger.settle()
            yield ledger, store
            nursery.cancel_scope.cancel()
    await store.close()


async def until(condition: Callable[[], bool]) -> None:
    with trio.fail_after(20):
        while not condition():  # noqa: ASYNC110  # what a thread writes sets no event
            await trio.sleep(0.002)


def test_a_store_that_keeps_at_once_tells_at_once() -> None:
    told: list[str] = []
    store = MemoryStore()
    ledger = Ledger(store)
    store.put_seq(5)
    ledger.tell(lambda: told.append("now"))
    assert told == ["now"]


async def test_what_is_told_is_on_disk_before(state_dir: Path) -> None:
    async with kept_in(state_dir) as (ledger, store):
        told: list[object] = []
        for number in range(20):
            store.put_session(session(state={"number": number}))
            ledger.tell(lambda number=number: told.append(number))
            assert number not in told
            await until(lambda number=number: number in told)
            assert (await read(store)).record.state == {"number": number}
        assert told == list(range(20))


async def test_one_commit_serves_all_that_waits(state_dir: Path) -> None:
    async with kept_in(state_dir) as (ledger, store):
        before = store.commits
        told: list[int] = []
        for number in range(500):
            store.put_session(session(f"n{number}"))
            ledger.tell(lambda number=number: told.append(number))
        await until(lambda: len(told) == 500)
        assert told == list(range(500))
        assert store.commits - before <= 3


async def test_streamed_text_is_told_at_once_and_kept_within_the_window(state_dir: Path) -> None:
    async with kept_in(state_dir, flush_window_s=0.05) as (ledger, store):
        told: list[str] = []
        store.add_action("s", action("text"), may_lag=True)
        ledger.tell(lambda: told.append("text"))
        assert told == ["text"]
        assert store.behind
        await until(lambda: not store.behind)
        (one,) = (await read(store)).chats
        assert [said["content"] for said in one.actions] == ["text"]


async def test_streamed_text_does_not_overtake_what_waits(state_dir: Path) -> None:
    async with kept_in(state_dir, flush_window_s=30) as (ledger, store):
        told: list[str] = []
        for number in range(5):
            store.add_action("s", action(f"text {number}"), may_lag=True)
            ledger.tell(lambda number=number: told.append(f"text {number}"))
            if number == 2:
                store.add_action("s", action("an ending"), may_lag=False)
                ledger.tell(lambda: told.append("an ending"))
        assert told == ["text 0", "text 1", "text 2"]
        await until(lambda: len(told) == 6)
        assert told[3:] == ["an ending", "text 3", "text 4"]
        # The ending took along what was written before it, and in order.
        (one,) = (await read(store)).chats
        said = [one["content"] for one in one.actions]
        assert said == ["text 0", "text 1", "text 2", "an ending", "text 3", "text 4"]


async def test_a_fault_in_one_telling_is_that_tellings_alone(state_dir: Path) -> None:
    async with kept_in(state_dir) as (ledger, store):
        told: list[str] = []

        def fail() -> None:
            raise RuntimeError("a fault of ours")

        store.put_session(session())
        ledger.tell(fail)
        ledger.tell(lambda: told.append("after it"))
        await until(lambda: told == ["after it"])


async def test_while_the_disk_is_full_reading_is_answered_and_the_rest_waits(
    state_dir: Path,
) -> None:
    async with kept_in(state_dir) as (ledger, store):
        told: list[str] = []
        with full_disk(beyond_bytes=64 * 1024):
            store.put_session(session(state={"text": "x" * 300_000}))
            ledger.tell(lambda: told.append("what is not kept"))
            await until(lambda: ledger.refusing is not None)
            assert "cannot be written" in (ledger.refusing or "")
            ledger.answer(lambda: told.append("a reading"))
            ledger.tell(lambda: told.append("later"))
            assert told == ["a reading"]
            waited: list[str] = []
            async with trio.open_nursery() as nursery:

                async def wait() -> None:
                    await ledger.until_keeping()
                    waited.append("a worker is read again")

                nursery.start_soon(wait)
                await trio.testing.wait_all_tasks_blocked(0.05)
                assert waited == []
                resumed = told.copy()
                assert resumed == ["a reading"]
                nursery.cancel_scope.cancel()
        await until(lambda: ledger.refusing is None)
        assert told == ["a reading", "what is not kept", "later"]
        await ledger.until_keeping()
