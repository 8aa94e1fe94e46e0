"""The store: what is written is read again, the same in memory and on disk."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from ahpd.contracts.json import encode_json
from ahpd.supervisor.store.interface import (
    ChatRecord,
    ClientRecord,
    KeptSession,
    SessionRecord,
    Store,
)
from ahpd.supervisor.store.memory import MemoryStore
from ahpd.supervisor.store.sqlite import SqliteStore

Json = dict[str, Any]
MakeStore = Callable[[], Store]


def session(id: str = "s", **members: Any) -> SessionRecord:
    made: Json = {
        "id": id,
        "spelling": f"echo:/{id}",
        "agent": "echo",
        "created_at": "2026-10-01T00:00:00.000Z",
        "modified_at": "2026-10-01T00:00:01.000Z",
        "titled_by_person": False,
        "default_chat": id,
        "state": {"title": "a title", "status": 1},
        "summary": {"resource": f"echo:/{id}", "title": "a title"},
    }
    return SessionRecord(**{**made, **members})


def chat(id: str = "s", session: str = "s", turn_count: int = 0, **members: Any) -> ChatRecord:
    made: Json = {
        "id": id,
        "session": session,
        "uri": f"ahp-chat:/{id}",
        "turn_count": turn_count,
        "head": {"resource": f"ahp-chat:/{id}", "status": 1},
    }
    return ChatRecord(**{**made, **members})


def turn(name: str) -> Json:
    return {"id": name, "responseParts": [{"kind": "markdown", "content": f"said in {name}"}]}


def action(name: str) -> bytes:
    return encode_json({"type": "chat/delta", "content": name})


def put_turns(store: Store, chat_id: str, *names: str, first: int = 0) -> None:
    for number, name in enumerate(names, first):
        store.put_turn(chat_id, number, turn(name))


@pytest.fixture(params=["memory", "sqlite"])
def reopened(request: pytest.FixtureRequest, state_dir: Path) -> MakeStore:
    """Makes the store, and again the one that finds what the last one kept."""
    if request.param == "sqlite":
        return lambda: SqliteStore(state_dir / "state.db")
    memory = MemoryStore()
    return lambda: memory


async def read(store: Store, id: str = "s") -> KeptSession:
    kept = await store.session(id)
    assert kept is not None
    return kept


def names(kept: KeptSession, place: int = 0) -> list[str]:
    return [held["id"] for held in kept.chats[place].turns]


async def test_nothing_is_kept_in_a_new_store(reopened: MakeStore) -> None:
    store = reopened()
    kept = await store.open()
    assert (kept.sessions, kept.chats, kept.clients, kept.cut_off) == ([], [], [], [])
    assert kept.next_seq > 1_700_000_000_000, "a life starts at the time in milliseconds"
    assert await store.session("s") is None
    assert await store.turns("s", 0, 10) == []
    await store.close()


async def test_what_was_written_is_there_when_it_is_opened_again(reopened: MakeStore) -> None:
    store = reopened()
    await store.open()
    store.put_session(session(titled_by_person=True))
    put_turns(store, "s", "t1", "t2")
    given = chat(
        turn_count=2,
        agent_id="agent's own",
        rewind_at="t2",
        queue_paused=True,
        beside={"bookmark": 3},
        head={"queuedMessages": [{"id": "q"}]},
    )
    store.put_chat(given)
    store.put_chat(chat("sub", parent="s", tool_call_id="call"))
    await store.close()

    again = reopened()
    kept = await again.open()
    assert [(row.id, row.modified_at, row.summary) for row in kept.sessions] == [
        ("s", session().modified_at, session().summary)
    ]
    assert [(row.id, row.session, row.uri) for row in kept.chats] == [
        ("s", "s", "ahp-chat:/s"),
        ("sub", "s", "ahp-chat:/sub"),
    ]
    assert kept.cut_off == []
    assert kept.committed_ms > 0
    whole = await read(again)
    assert whole.record == session(titled_by_person=True)
    assert [one.record for one in whole.chats] == [
        given,
        chat("sub", parent="s", tool_call_id="call"),
    ]
    assert names(whole) == ["t1", "t2"]
    assert await again.turns("s", 1, 5) == [turn("t2")]
    assert await again.check() == []
    await again.close()


async def test_the_newest_change_is_listed_first(reopened: MakeStore) -> None:
    store = reopened()
    await store.open()
    for id, second in (("a", 1), ("b", 3), ("c", 2)):
        store.put_session(session(id, modified_at=f"2026-10-01T00:00:0{second}.000Z"))
        store.put_chat(chat(id, id))
    store.put_session(session("a", modified_at="2026-10-01T00:00:09.000Z"))
    await store.close()
    again = reopened()
    assert [row.id for row in (await again.open()).sessions] == ["a", "b", "c"]
    await again.close()


async def test_a_journal_comes_after_the_head_and_goes_with_the_next_one(
    reopened: MakeStore,
) -> None:
    store = reopened()
    await store.open()
    store.put_session(session())
    store.put_chat(chat())
    store.add_action("s", action("one"), may_lag=False)
    await store.commit()
    store.add_action("s", action("two"), may_lag=True)
    await store.commit()
    assert [told["content"] for told in (await read(store)).chats[0].actions] == ["one", "two"]
    await store.close()
    again = reopened()
    assert (await again.open()).cut_off == ["s"], "a journal is a turn that was cut off"
    again.put_chat(chat())
    again.add_action("s", action("three"), may_lag=False)
    await again.commit()
    assert [told["content"] for told in (await read(again)).chats[0].actions] == ["three"]
    again.put_chat(chat())
    await again.close()
    last = reopened()
    assert (await last.open()).cut_off == []
    assert (await read(last)).chats[0].actions == []
    await last.close()


async def test_a_running_turn_in_the_head_was_cut_off(reopened: MakeStore) -> None:
    store = reopened()
    await store.open()
    for id, head in (("a", {"activeTurn": turn("t")}), ("b", {"activity": "Thinking"}), ("c", {})):
        store.put_session(session(id))
        store.put_chat(chat(id, id, head=head))
    await store.close()
    again = reopened()
    assert (await again.open()).cut_off == ["a", "b"]
    await again.close()


async def test_a_truncated_chat_forgets_its_later_turns(reopened: MakeStore) -> None:
    store = reopened()
    await store.open()
    store.put_session(session())
    put_turns(store, "s", "t1", "t2", "t3")
    store.put_chat(chat(turn_count=3))
    await store.commit()
    store.put_turn("s", 1, turn("other"))
    store.put_chat(chat(turn_count=2))
    await store.commit()
    assert names(await read(store)) == ["t1", "other"]
    store.put_chat(chat(turn_count=1))
    await store.commit()
    assert names(await read(store)) == ["t1"]
    # In one commit as in several.
    put_turns(store, "s", "u2", "u3", first=1)
    store.put_chat(chat(turn_count=3))
    store.put_chat(chat(turn_count=0))
    put_turns(store, "s", "v1")
    store.put_chat(chat(turn_count=1))
    await store.commit()
    assert names(await read(store)) == ["v1"]
    await store.close()


async def test_a_session_goes_with_everything_of_it_and_its_id_is_free_again(
    reopened: MakeStore,
) -> None:
    store = reopened()
    await store.open()
    for id in ("s", "other"):
        store.put_session(session(id))
        put_turns(store, id, "t1")
        store.put_chat(chat(id, id, turn_count=1))
        store.add_action(id, action("x"), may_lag=False)
    store.put_chat(chat("second", "s"))
    await store.commit()
    store.remove_session("s")
    # A new one of that id, before anything is committed.
    store.put_session(session(agent="notes", state={"title": "new"}))
    store.put_chat(chat(head={"status": 2}))
    await store.commit()
    kept = await read(store)
    assert (kept.record.agent, kept.record.state) == ("notes", {"title": "new"})
    assert [one.record.id for one in kept.chats] == ["s"]
    assert (kept.chats[0].turns, kept.chats[0].actions) == ([], [])
    assert names(await read(store, "other")) == ["t1"]
    store.remove_session("s")
    await store.close()
    again = reopened()
    opened = await again.open()
    assert [row.id for row in opened.sessions] == ["other"]
    assert [row.id for row in opened.chats] == ["other"]
    assert await again.turns("s", 0, 9) == []
    await again.close()


async def test_a_chat_goes_alone(reopened: MakeStore) -> None:
    store = reopened()
    await store.open()
    store.put_session(session())
    store.put_chat(chat())
    put_turns(store, "second", "t1")
    store.put_chat(chat("second", turn_count=1))
    await store.commit()
    store.remove_chat("second")
    await store.commit()
    assert [one.record.id for one in (await read(store)).chats] == ["s"]
    assert await store.turns("second", 0, 9) == []
    await store.close()


async def test_numbers_and_clients_are_remembered(reopened: MakeStore) -> None:
    store = reopened()
    first = (await store.open()).next_seq
    store.put_seq(first + 50_000_000)
    for id, second in (("late", 9), ("early", 1), ("gone", 5)):
        seen = f"2026-10-01T00:00:0{second}.000Z"
        store.put_client(ClientRecord(id=id, version="1.0.0", last_seen=seen))
    await store.commit()
    store.remove_client("gone")
    await store.close()
    again = reopened()
    kept = await again.open()
    assert kept.next_seq == first + 50_000_000
    assert [client.id for client in kept.clients] == ["early", "late"]
    await again.close()


# -- the same whatever it is -----------------------------------------------------------

IDS = st.sampled_from(["s", "t"])
CHATS = st.sampled_from(["s", "t", "u"])
OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("session"), IDS, st.integers(0, 9)),
        st.tuples(st.just("end"), CHATS, st.integers(0, 4)),
        st.tuples(st.just("truncate"), CHATS, st.integers(0, 4)),
        st.tuples(st.just("act"), CHATS, st.booleans()),
        st.tuples(st.just("drop"), CHATS, st.none()),
        st.tuples(st.just("dispose"), IDS, st.none()),
        st.tuples(st.just("commit"), st.none(), st.none()),
        st.tuples(st.just("reopen"), st.none(), st.none()),
    ),
    max_size=40,
)


class Writer:
    """Writes as a host does: a chat's head follows its turns, its actions follow its head."""

    def __init__(self) -> None:
        self.turns: dict[str, int] = {}
        self.count = 0

    def write(self, store: Store, kind: str, id: str, value: Any) -> None:
        self.count += 1
        if kind == "session":
            store.put_session(session(id, state={"title": f"{value}"}))
            if id not in self.turns:
                self.head(store, id, 0)
        elif kind == "end":
            count = self.turns.get(id, 0)
            put_turns(store, id, *(f"{self.count}.{n}" for n in range(value)), first=count)
            self.head(store, id, count + value)
        elif kind == "truncate":
            self.head(store, id, min(value, self.turns.get(id, 0)))
        elif kind == "act" and id in self.turns:
            store.add_action(id, action(str(self.count)), may_lag=value)
        elif kind == "drop":
            self.turns.pop(id, None)
            store.remove_chat(id)
        elif kind == "dispose":
            for chat_id in [one for one in self.turns if owner(one) == id]:
                del self.turns[chat_id]
            store.remove_session(id)

    def head(self, store: Store, id: str, turn_count: int) -> None:
        self.turns[id] = turn_count
        head = {"written": self.count}
        store.put_chat(chat(id, owner(id), turn_count, head=head))


def owner(chat_id: str) -> str:
    return {"u": "s"}.get(chat_id, chat_id)


async def seen(store: Store) -> str:
    """All that a store gives back, to be compared."""
    await store.commit()
    said: list[Any] = []
    for id in ("s", "t"):
        try:
            kept = await store.session(id)
        except Exception as error:
            said.append(f"{id}: {type(error).__name__}")
            continue
        if kept is None:
            continue
        said.append(kept.record.state)
        for one in sorted(kept.chats, key=lambda held: held.record.id):
            said.append([one.record.id, one.record.head, list(one.turns), list(one.actions)])
    for id in ("s", "t", "u"):
        said.append(await store.turns(id, 1, 3))
    return json.dumps(said)


@settings(max_examples=60)
@given(operations=OPERATIONS)
def test_memory_and_disk_give_the_same_reads(
    tmp_path_factory: pytest.TempPathFactory, operations: list[tuple[str, Any, Any]]
) -> None:
    path = tmp_path_factory.mktemp("store") / "state.db"

    async def run() -> None:
        memory: Store = MemoryStore()
        disk: Store = SqliteStore(path)
        writers = (Writer(), Writer())
        for store in (memory, disk):
            await store.open()
        # A session without its default chat is none: each begins with one.
        for kind, id, value in [("session", "s", 0), ("session", "t", 0), *operations]:
            if kind == "commit":
                await disk.commit()
            elif kind == "reopen":
                await disk.close()
                disk = SqliteStore(path)
                await disk.open()
            elif not (kind == "drop" and id in ("s", "t")):
                for writer, store in zip(writers, (memory, disk), strict=True):
                    writer.write(store, kind, id, value)
        assert await seen(memory) == await seen(disk)
        assert await disk.check() == []
        await disk.close()

    trio.run(run)
