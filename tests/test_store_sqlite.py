"""The database: what it refuses, what a fault in it costs, and what a full disk does."""

import resource
import sqlite3
import stat
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
import trio

from ahpd.supervisor.store.interface import StoreError, Unreadable
from ahpd.supervisor.store.schema import SCHEMA_VERSION
from ahpd.supervisor.store.sqlite import SqliteStore
from test_store import action, chat, names, put_turns, read, session


@pytest.fixture
def path(state_dir: Path) -> Path:
    return state_dir / "state.db"


async def filled(path: Path, sessions: int = 1) -> None:
    """A database with sessions `s0`, `s1`, …, each with a second chat, of two turns each."""
    store = SqliteStore(path)
    await store.open()
    for number in range(sessions):
        store.put_session(session(f"s{number}"))
        for id in (f"s{number}", f"s{number}-more"):
            put_turns(store, id, "t1", "t2")
            store.put_chat(chat(id, f"s{number}", turn_count=2))
    await store.close()


def change(path: Path, statement: str, *values: object) -> None:
    """Does to a database what a fault of a disk might."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(statement, values)


@contextmanager
def full_disk(beyond_bytes: int) -> Iterator[None]:
    """No file of this process grows beyond so many bytes, as on a disk that is full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (beyond_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def refusal(path: Path) -> str:
    """Why the database cannot be opened; it must be left as it is."""
    before = path.read_bytes()
    with pytest.raises(StoreError) as error:
        trio.run(SqliteStore(path).open)
    assert path.read_bytes() == before, "what cannot be read is not written over"
    assert "\n" not in str(error.value)
    return str(error.value)


async def test_it_is_its_owners_alone_and_one_file_when_it_is_closed(path: Path) -> None:
    store = SqliteStore(path)
    await store.open()
    store.put_session(session())
    await store.commit()
    assert {stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()} == {0o600}
    await store.close()
    assert [file.name for file in path.parent.iterdir()] == ["state.db"]


@pytest.mark.parametrize(("durability", "level"), [("process", 1), ("power", 2)])
async def test_durability_is_how_a_commit_is_synchronized(
    path: Path, durability: str, level: int
) -> None:
    store = SqliteStore(path, durability="power" if durability == "power" else "process")
    await store.open()
    assert store._write_connection is not None
    assert store._write_connection.execute("PRAGMA synchronous").fetchone() == (level,)
    assert store._write_connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    await store.close()


def test_a_database_of_a_later_version_is_refused_and_left_as_it_is(path: Path) -> None:
    trio.run(filled, path)
    change(path, f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    said = refusal(path)
    assert said == (
        f"{path} was written by a later version of this program (its schema is "
        f"{SCHEMA_VERSION + 1}, this one knows {SCHEMA_VERSION}); it was left as it is"
    )


def test_another_programs_database_is_refused_and_left_as_it_is(path: Path) -> None:
    change(path, "CREATE TABLE theirs (x)")
    assert refusal(path) == f"{path} is no database of this program; it was left as it is"


def test_a_file_that_is_no_database_is_refused_and_left_as_it_is(path: Path) -> None:
    path.write_bytes(b"what somebody wrote here\n" * 100)
    assert "file is not a database" in refusal(path)


def test_a_truncated_database_is_refused_and_left_as_it_is(path: Path) -> None:
    trio.run(filled, path, 20)
    with open(path, "r+b") as file:
        file.truncate(path.stat().st_size // 2)
    assert "malformed" in refusal(path)


async def test_a_folder_that_cannot_be_used_is_named(state_dir: Path) -> None:
    with pytest.raises(StoreError, match="No such file or directory"):
        await SqliteStore(state_dir / "missing" / "state.db").open()
    with pytest.raises(StoreError, match="Is a directory"):
        await SqliteStore(state_dir).open()


@pytest.mark.parametrize("body", [b"{", b"[]", b'{"id":"t', "text", 5])
async def test_a_row_that_cannot_be_read_costs_its_chat_and_nothing_else(
    path: Path, body: object
) -> None:
    await filled(path, sessions=2)
    change(path, "UPDATE turns SET body = ? WHERE chat = 's0-more' AND number = 1", body)
    store = SqliteStore(path)
    assert len((await store.open()).sessions) == 2
    kept = await read(store, "s0")
    assert names(kept) == ["t1", "t2"]
    assert [one.record.id for one in kept.chats] == ["s0"]
    assert list(kept.unreadable) == ["s0-more"]
    assert kept.unreadable["s0-more"].startswith("The chat s0-more cannot be read from disk: ")
    assert len((await read(store, "s1")).chats) == 2
    assert await store.check() == list(kept.unreadable.values())
    with pytest.raises(Unreadable, match="The chat s0-more cannot be read"):
        await store.turns("s0-more", 0, 9)
    await store.close()


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("UPDATE sessions SET state = x'7b' WHERE id = 's0'", "The session s0 cannot be read"),
        ("UPDATE chats SET head = x'7b' WHERE id = 's0'", "The chat s0 cannot be read"),
        ("DELETE FROM turns WHERE chat = 's0'", "2 of its 2 turns are missing"),
        ("DELETE FROM chats WHERE id = 's0'", "its default chat is missing"),
    ],
)
async def test_a_session_without_its_own_row_or_default_chat_cannot_be_read(
    path: Path, fault: str, said: str
) -> None:
    await filled(path, sessions=2)
    change(path, fault)
    store = SqliteStore(path)
    await store.open()
    with pytest.raises(Unreadable, match=said):
        await store.session("s0")
    assert any(said in line for line in await store.check())
    assert len((await read(store, "s1")).chats) == 2
    # It can be removed all the same.
    store.remove_session("s0")
    await store.commit()
    assert await store.session("s0") is None
    assert await store.check() == []
    await store.close()


async def test_when_the_disk_is_full_nothing_is_lost_and_reading_goes_on(path: Path) -> None:
    await filled(path)
    store = SqliteStore(path)
    await store.open()
    with full_disk(beyond_bytes=64 * 1024):
        store.put_session(session("large", state={"text": "x" * 200_000}))
        store.put_chat(chat("large", "large"))
        with pytest.raises(StoreError) as error:
            await store.commit()
        assert str(error.value).startswith(f"the database {path} cannot be written: ")
        assert store.must_commit
        assert names(await read(store, "s0")) == ["t1", "t2"]
        # What comes later is kept after it.
        store.add_action("large", action("later"), may_lag=False)
        with pytest.raises(StoreError):
            await store.commit()
        assert await store.session("large") is None
    await store.commit()
    assert not store.must_commit
    kept = await read(store, "large")
    assert kept.record.state == {"text": "x" * 200_000}
    assert [told["content"] for told in kept.chats[0].actions] == ["later"]
    assert await store.check() == []
    await store.close()


async def test_what_was_never_kept_is_said_when_it_is_closed(path: Path) -> None:
    store = SqliteStore(path)
    await store.open()
    store.put_session(session("large", state={"text": "x" * 400_000}))
    with full_disk(beyond_bytes=64 * 1024), pytest.raises(StoreError, match="cannot be written"):
        await store.close()


async def test_a_backup_is_whole_while_the_store_is_written(path: Path, state_dir: Path) -> None:
    await filled(path, sessions=3)
    store = SqliteStore(path)
    await store.open()
    store.put_session(session("late"))
    store.put_chat(chat("late", "late"))
    await store.commit()
    copy = state_dir / "copy.db"
    await store.backup(copy)
    with pytest.raises(StoreError, match="File exists"):
        await store.backup(copy)
    store.remove_session("s0")
    await store.close()
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    from_copy = SqliteStore(copy)
    opened = await from_copy.open()
    assert sorted(row.id for row in opened.sessions) == ["late", "s0", "s1", "s2"]
    assert await from_copy.check() == []
    await from_copy.close()


WRITER = """
import os, sys, trio
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from ahpd.supervisor.store.sqlite import SqliteStore
from test_store import chat, session

async def write():
    store = SqliteStore(Path(sys.argv[1]))
    await store.open()
    store.put_session(session("told"))
    store.put_chat(chat("told", "told"))
    await store.commit()
    store.put_session(session("untold"))
    os._exit(0)

trio.run(write)
"""


async def test_only_what_is_committed_survives_the_end_of_the_program(path: Path) -> None:
    tests = str(Path(__file__).parent)
    await trio.run_process([sys.executable, "-c", WRITER, str(path), tests])
    store = SqliteStore(path)
    assert [row.id for row in (await store.open()).sessions] == ["told"]
    await store.close()
