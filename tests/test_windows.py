"""Windows of turns: what a connection holds, what it is given before it is named, and how it
comes by the rest."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from ahpd.contracts.ahp.actions import check_action
from ahpd.contracts.ahp.reducers import reduce_chat
from ahpd.contracts.json import same_json
from ahpd.supervisor.wires.ahp import windows

Json = dict[str, Any]
NOON = "2026-10-01T12:00:00.000Z"
USER = {"text": "x", "origin": {"kind": "user"}}


def turn(number: int) -> Json:
    return {
        "id": f"t{number}",
        "startedAt": NOON,
        "duration": 1,
        "message": USER,
        "responseParts": [],
        "state": "complete",
    }


def chat(turns: int) -> Json:
    return {
        "resource": "ahp-chat:/1",
        "title": "C",
        "status": 1,
        "modifiedAt": NOON,
        "turns": [turn(number) for number in range(turns)],
    }


def ids(state: Json) -> list[str]:
    return [one["id"] for one in state["turns"]]


def test_a_window_shows_the_newest_turns_and_a_cursor_to_the_others() -> None:
    state, held = windows.windowed(chat(5), 2)
    assert ids(state) == ["t3", "t4"] and held == {"t3", "t4"}
    assert windows.turn_of(state["turnsNextCursor"]) == "t3"


def test_a_window_that_holds_all_is_none() -> None:
    whole = chat(3)
    for turns in (None, 3, 9):
        assert windows.windowed(whole, turns) == (whole, None)
    assert "turnsNextCursor" not in whole


def test_an_empty_window_leads_to_the_newest() -> None:
    state, held = windows.windowed(chat(3), 0)
    assert state["turns"] == [] and held == set()
    page = windows.page_before(chat(3), windows.turn_of(state["turnsNextCursor"]) or "")
    assert page is not None and ids(page) == ["t0", "t1", "t2"]


def test_the_running_turn_is_always_held() -> None:
    running = {**chat(3), "activeTurn": {"id": "now", "startedAt": NOON, "responseParts": []}}
    _, held = windows.windowed(running, 1)
    assert held == {"t2", "now"}


def test_a_cursor_is_ours_or_none() -> None:
    cursor = windows.cursor_before("tü/1")
    assert windows.turn_of(cursor) == "tü/1"
    for other in ("", "x", "before:t1", cursor[:-3], "////", "ü", cursor + "A", "\x00"):
        assert windows.turn_of(other) != "tü/1"


def test_a_page_stops_at_its_bounds_and_at_the_beginning() -> None:
    many = chat(windows.PAGE_TURNS + 10)
    page = windows.page_before(many, f"t{windows.PAGE_TURNS + 5}")
    assert page is not None and len(page["turns"]) == windows.PAGE_TURNS
    assert windows.turn_of(page["turnsNextCursor"]) == "t5"
    last = windows.page_before(many, "t5")
    assert last is not None and ids(last) == ["t0", "t1", "t2", "t3", "t4"]
    assert "turnsNextCursor" not in last
    assert windows.page_before(many, "never") is None
    # A turn larger than a page goes alone.
    large = chat(3)
    large["turns"][1]["responseParts"] = [
        {"kind": "markdown", "id": "p", "content": "y" * (windows.PAGE_BYTES + 1)}
    ]
    one = windows.page_before(large, "t2")
    assert one is not None and ids(one) == ["t1"]
    zero = windows.page_before(large, "t1")
    assert zero is not None and ids(zero) == ["t0"]


def test_an_action_that_names_a_turn_outside_brings_what_lies_between() -> None:
    cut = reduce_chat(chat(6), {"type": "chat/truncated", "turnId": "t1"})
    brings = windows.missing_for(cut, {"t4", "t5"}, {"type": "chat/truncated", "turnId": "t1"})
    assert brings is not None and ids(brings) == ["t1"]
    assert windows.turn_of(brings["turnsNextCursor"]) == "t1"
    held = {"t0", "t1"}
    assert windows.missing_for(cut, held, {"type": "chat/truncated", "turnId": "t1"}) is None
    assert windows.missing_for(cut, held, {"type": "chat/truncated"}) is None
    assert windows.missing_for(cut, held, {"type": "chat/delta", "turnId": "new"}) is None


MOVES = st.lists(
    st.tuples(st.sampled_from(["turn", "fetch", "cut", "cut all", "cut"]), st.integers(0, 20)),
    max_size=12,
)


@given(turns=st.integers(0, 12), view=st.integers(0, 12), moves=MOVES)
def test_law_a_window_is_the_end_of_the_whole_and_fetching_brings_the_rest(
    turns: int, view: int, moves: list[tuple[str, int]]
) -> None:
    """One connection with a window, against the whole chat; driven as a connection drives it."""
    whole = chat(turns)
    seen, held = windows.windowed(whole, view)
    count = 100

    def send(action: Json) -> None:
        nonlocal whole, seen
        whole = reduce_chat(whole, action)
        if held is not None:
            missing = windows.missing_for(whole, held, action)
            if missing is not None:
                load(missing)
            windows.remember(held, action)
        seen = reduce_chat(seen, action)

    def load(page: Json) -> None:
        nonlocal seen
        assert check_action(page) is None
        if held is not None:
            windows.remember(held, page)
        seen = reduce_chat(seen, page)

    def fetch() -> None:
        turn_id = windows.turn_of(seen["turnsNextCursor"])
        page = windows.page_before(whole, turn_id) if turn_id is not None else None
        assert page is not None, "a cursor that leads nowhere"
        load(page)

    for move, pick in moves:
        if move == "turn":
            count += 1
            started = {"turnId": f"t{count}", "startedAt": NOON, "message": USER}
            send({"type": "chat/turnStarted", **started})
            send({"type": "chat/turnComplete", "turnId": f"t{count}", "duration": 1})
        elif move == "fetch" and "turnsNextCursor" in seen:
            fetch()
        elif move == "cut all":
            send({"type": "chat/truncated"})
        elif move == "cut" and whole["turns"]:
            named = whole["turns"][pick % len(whole["turns"])]["id"]
            send({"type": "chat/truncated", "turnId": named})
        shown = ids(seen)
        assert shown == ids(whole)[len(whole["turns"]) - len(shown) :]
        assert ("turnsNextCursor" in seen) == (len(shown) < len(whole["turns"]))
    while "turnsNextCursor" in seen:
        fetch()
    assert same_json(seen, whole)
