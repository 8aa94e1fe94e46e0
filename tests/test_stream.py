"""Numbers: spent once, never back, and what is held of them for whoever was cut off."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ahpd.supervisor.sessions.stream import Envelope, Origin, Stream

Json = dict[str, Any]


def stream(first_seq: int = 1000, max_events: int = 100, max_bytes: int = 1 << 20) -> Stream:
    return Stream(first_seq=first_seq, max_events=max_events, max_bytes=max_bytes)


def action(text: str = "x") -> Json:
    return {"type": "chat/activityChanged", "activity": text}


def numbers(envelopes: list[Envelope] | None) -> list[int] | None:
    return None if envelopes is None else [one.server_seq for one in envelopes]


def test_each_action_gets_the_next_number() -> None:
    held = stream()
    assert [held.number("c", action(), None).server_seq for _ in range(3)] == [1001, 1002, 1003]
    assert held.seq == 1003


@pytest.mark.parametrize(
    ("seen", "missed"),
    [
        (1000, [1001, 1002, 1003]),
        (1002, [1003]),
        (1003, []),
        (1004, None),
        (999, None),
        (-1, None),
    ],
)
def test_what_came_after_a_number_is_replayed_or_cannot_be_told(
    seen: int, missed: list[int] | None
) -> None:
    held = stream()
    for _ in range(3):
        held.number("c", action(), None)
    assert numbers(held.since(seen)) == missed


def test_the_oldest_make_room_by_number_and_by_size() -> None:
    few = stream(max_events=2)
    for _ in range(5):
        few.number("c", action(), None)
    assert numbers(few.since(1003)) == [1004, 1005]
    assert few.since(1002) is None
    small = stream(max_bytes=2000)
    for _ in range(5):
        small.number("c", action("y" * 500), None)
    assert numbers(small.since(1003)) == [1004, 1005]
    assert small.since(1001) is None


def test_one_that_is_larger_than_all_that_may_be_held_is_numbered_and_not_held() -> None:
    held = stream(max_bytes=300)
    assert held.number("c", action("y" * 1000), None).server_seq == 1001
    assert held.since(1000) is None and held.since(1001) == []
    held.number("c", action(), None)
    assert numbers(held.since(1001)) == [1002]


def test_what_is_held_once_it_was_delivered_is_its_json_alone() -> None:
    said = action("ü")
    envelope = stream().number("ahp-chat:/1", said, None)
    assert envelope.action is said
    envelope.delivered()
    assert envelope.action == said and envelope.action is not said
    assert envelope.params("ahp-chat:/1")["action"] == said


def test_an_envelope_is_said_under_each_spelling_with_its_action_alone_shared() -> None:
    envelope = stream().number("ahp-chat:/1", action("ü"), Origin(client_id="one", client_seq=7))
    for spelling in ("ahp-chat:/1", "ahp-chat://default/x"):
        assert json.loads(envelope.text(spelling)) == {
            "jsonrpc": "2.0",
            "method": "action",
            "params": {
                "channel": spelling,
                "serverSeq": 1001,
                "origin": {"clientId": "one", "clientSeq": 7},
                "action": action("ü"),
            },
        }
        assert envelope.text(spelling) is envelope.text(spelling), "encoded once"
        assert envelope.params(spelling) == json.loads(envelope.text(spelling))["params"]


def test_what_nobody_refused_says_no_reason_and_what_nobody_sent_no_origin() -> None:
    bare = stream().number("c", action(), None).params("c")
    assert bare == {"channel": "c", "serverSeq": 1001, "action": action()}
    refused = Envelope(channel="c", action=action(), server_seq=5, rejection_reason="no")
    assert refused.params("c")["rejectionReason"] == "no"


@given(
    sizes=st.lists(st.integers(0, 400), max_size=40),
    max_events=st.integers(1, 10),
    max_bytes=st.integers(1, 3000),
    seen=st.integers(990, 1045),
)
def test_law_a_replay_is_whole_and_in_order_or_it_is_none(
    sizes: list[int], max_events: int, max_bytes: int, seen: int
) -> None:
    held = stream(max_events=max_events, max_bytes=max_bytes)
    sent = [held.number("c", action("y" * size), None) for size in sizes]
    assert numbers(sent) == list(range(1001, 1001 + len(sizes)))
    replay = held.since(seen)
    if replay is None:
        return
    assert replay == [one for one in sent if one.server_seq > seen]
    assert len(replay) <= max_events
    assert sum(one.held_bytes for one in replay) <= max_bytes
