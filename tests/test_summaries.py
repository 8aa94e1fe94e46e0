"""Rows and roll-ups: a catalogue entry, a summary and a channel's own state never disagree."""

from pathlib import Path
from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from ahp_client import AhpClient
from ahpd.contracts.json import same_json
from ahpd.supervisor.sessions.summaries import (
    IDENTITY_FIELDS,
    changed_fields,
    chat_summary,
    derived_activity,
    session_summary,
    shown_activity,
)
from live_host import live_host

Json = dict[str, Any]
NOON = "2026-10-01T12:00:00.000Z"

IDLE, ERROR, RUNNING, WAITING, READ, ARCHIVED = 1, 2, 8, 24, 32, 64


def chat(status: int = IDLE, **members: Any) -> Json:
    return {"resource": "ahp-chat:/1", "status": status, **members}


@pytest.mark.parametrize(
    ("statuses", "shown"),
    [
        ([], IDLE),
        ([IDLE, IDLE], IDLE),
        ([IDLE, ERROR], ERROR),
        ([ERROR, RUNNING], RUNNING),
        ([RUNNING, WAITING, ERROR], WAITING),
        ([IDLE | READ | ARCHIVED], IDLE),
        ([RUNNING | READ], RUNNING),
        ([WAITING | ARCHIVED, IDLE], WAITING),
    ],
    ids=str,
)
def test_a_sessions_status_is_its_neediest_chats(statuses: list[int], shown: int) -> None:
    assert derived_activity([chat(status) for status in statuses]) == shown


def test_a_session_does_what_its_default_chat_does_else_another() -> None:
    quiet, busy = chat(resource="a"), chat(resource="b", activity="reading")
    default = chat(resource="c", activity="writing")
    assert shown_activity([quiet, busy, default], "c") == "writing"
    assert shown_activity([quiet, busy], "a") == "reading"
    assert shown_activity([quiet], "a") is None
    assert shown_activity([chat(resource="a", activity="")], "a") is None


def test_a_row_has_what_a_row_has_and_no_more() -> None:
    state = chat(title="C", modifiedAt=NOON, turns=[], draft={}, activity="x")
    assert chat_summary(state) == chat(title="C", modifiedAt=NOON, activity="x")
    session = {"provider": "p", "title": "S", "status": 1, "chats": [], "config": {}, "_meta": {}}
    row = session_summary(session, resource="s", created_at=NOON, modified_at=NOON)
    assert row == {
        "provider": "p",
        "title": "S",
        "status": 1,
        "_meta": {},
        "resource": "s",
        "createdAt": NOON,
        "modifiedAt": NOON,
    }


def test_a_change_names_what_is_other_and_says_what_is_gone_as_empty() -> None:
    old = {"resource": "s", "title": "a", "activity": "x", "workingDirectories": ["f"], "_meta": {}}
    new = {"resource": "other", "title": "b", "workingDirectories": ["f"]}
    assert changed_fields(old, new) == {"title": "b", "activity": "", "_meta": {}}
    assert changed_fields(new, new) == {}
    assert changed_fields({}, {"_meta": None}) == {"_meta": None}


def test_true_is_another_value_than_one() -> None:
    assert changed_fields({"_meta": {"a": 1}}, {"_meta": {"a": True}}) == {"_meta": {"a": True}}
    assert changed_fields({"_meta": {"a": 1}}, {"_meta": {"a": 1.0}}) == {}


VALUES = st.sampled_from(["a", "b", 1, True, 0, False, ["f"], {"x": 1}, {"x": True}])
ROWS = st.dictionaries(
    st.sampled_from(["title", "status", "activity", "_meta", "resource", "provider"]), VALUES
)


@given(old=ROWS, new=ROWS)
def test_law_an_old_row_with_its_changes_is_the_new_row(old: Json, new: Json) -> None:
    changes = changed_fields(old, new)
    assert not changes.keys() & IDENTITY_FIELDS
    after = {**old, **changes}
    for key in (old.keys() | new.keys()) - IDENTITY_FIELDS:
        if key in new:
            assert same_json(after[key], new[key])
        else:
            assert not after[key], "gone is said as empty"


# -- in a host ------------------------------------------------------------------------


async def listed(client: AhpClient, session: str) -> Json:
    """The session's row in a fresh list."""
    items = (await client.request("listSessions"))["items"]
    return next(dict(row) for row in items if row["resource"] == session)


def changes_of(client: AhpClient, session: str) -> list[Json]:
    """What was told of the session's row, change by change."""
    return [
        note["params"]["changes"]
        for note in client.notifications
        if note["method"] == "root/sessionSummaryChanged" and note["params"]["session"] == session
    ]


async def test_row_catalogue_and_state_follow_a_turn_together(state_dir: Path) -> None:
    with trio.fail_after(30):
        async with live_host(state_dir, {"scripted": "fixture_scripted:scripted"}) as live:
            client = await live.client()
            session, chat_uri = await live.session(client, "scripted")

            async def agree(low_bits: int, activity: str | None) -> None:
                state = await client.snapshot(session)
                row, entry = await listed(client, session), state["chats"][0]
                own = await client.snapshot(chat_uri)
                for seen in (state, row, entry, own):
                    assert seen["status"] & 31 == low_bits, seen
                    assert (seen.get("activity") or None) == activity, seen

            await client.start_turn(chat_uri, "t1", "activity reading; park; wait")
            await client.until(
                lambda: len(client.states[session].get("inputNeeded", [])) == 2, what="both"
            )
            await agree(WAITING, "reading")
            cancel = {"type": "chat/turnCancelled", "turnId": "t1", "duration": 1}
            await client.act(chat_uri, cancel)
            await client.say(chat_uri, "t2", "activity; fail")
            await agree(ERROR, None)
            await client.say(chat_uri, "t3", "stream 1")
            await agree(IDLE, None)
            told = changes_of(client, session)
            assert [one["activity"] for one in told if "activity" in one] == ["reading", ""]
            assert all(told) and all(not one.keys() & IDENTITY_FIELDS for one in told)


async def test_read_is_cleared_by_a_turn_and_by_a_request(state_dir: Path) -> None:
    with trio.fail_after(30):
        async with live_host(state_dir, {"scripted": "fixture_scripted:scripted"}) as live:
            client = await live.client()
            session, chat_uri = await live.session(client, "scripted")

            async def read() -> None:
                await client.act(session, {"type": "session/isReadChanged", "isRead": True})
                assert client.states[session]["status"] & READ

            async def unread() -> None:
                await client.until(lambda: not client.states[session]["status"] & READ)
                assert not (await listed(client, session))["status"] & READ

            await read()
            await client.start_turn(chat_uri, "t1", "stream 1; pause 0.3; tool")
            await unread()
            await read()
            await client.until(lambda: client.states[session].get("inputNeeded"), what="a request")
            await unread()


async def test_who_only_lists_sees_every_change_of_a_row(state_dir: Path) -> None:
    with trio.fail_after(30):
        async with live_host(state_dir, {"scripted": "fixture_scripted:scripted"}) as live:
            lister, client = await live.client("lister"), await live.client("talker")
            session, chat_uri = await live.session(client, "scripted")
            await lister.until(lambda: any("summary" in n["params"] for n in lister.notifications))
            row = dict(lister.notifications[0]["params"]["summary"])
            await client.say(chat_uri, "t1", "title From the agent; meta a; fail")
            await client.act(session, {"type": "session/titleChanged", "title": "From a person"})
            await client.act(session, {"type": "session/isArchivedChanged", "isArchived": True})
            fresh = await listed(lister, session)
            for changes in changes_of(lister, session):
                row |= changes
            assert row == fresh
            assert row["title"] == "From a person" and row["status"] & ARCHIVED
