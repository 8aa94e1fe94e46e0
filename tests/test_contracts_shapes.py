"""Wire shapes are held to what JSON means, and a fault is named by its place."""

from typing import Any, Literal

import pytest
from attrs import frozen
from hypothesis import given
from hypothesis import strategies as st

from ahpd.contracts.shapes import ShapeError, structure, unstructure


@frozen(kw_only=True)
class View:
    turns: int


@frozen(kw_only=True)
class Params:
    channel: str
    subscriptions: tuple[str, ...] = ()
    last_seen_server_seq: int | None = None
    ratio: float | None = None
    fresh: bool | None = None
    config: dict[str, Any] | None = None
    view: View | None = None
    views: list[View] | None = None
    order: Literal["newest", "oldest"] = "newest"
    meta: dict[str, Any] | None = None


JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def optional(of: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | of


GOOD = st.builds(
    Params,
    channel=st.text(),
    subscriptions=st.lists(st.text(), max_size=3).map(tuple),
    last_seen_server_seq=optional(st.integers()),
    ratio=optional(st.floats(allow_nan=False, allow_infinity=False)),
    fresh=optional(st.booleans()),
    config=optional(st.dictionaries(st.text(), JSON, max_size=3)),
    view=optional(st.builds(View, turns=st.integers())),
    views=optional(st.lists(st.builds(View, turns=st.integers()), max_size=2)),
    order=st.sampled_from(["newest", "oldest"]),
    meta=optional(st.dictionaries(st.text(), JSON, max_size=3)),
)


@given(GOOD)
def test_what_is_written_reads_back_the_same(params: Params) -> None:
    assert structure(unstructure(params), Params) == params


@given(JSON)
def test_any_json_gives_an_instance_or_a_shape_error(value: Any) -> None:
    try:
        assert isinstance(structure(value, Params), Params)
    except ShapeError as error:
        assert str(error).startswith("params")


@given(st.dictionaries(st.sampled_from(["channel", "view", "views", "config", "_meta"]), JSON))
def test_any_object_gives_an_instance_or_a_shape_error(value: Any) -> None:
    try:
        assert structure(value, Params).channel == value["channel"]
    except ShapeError as error:
        assert str(error).startswith("params")


def test_members_are_camel_case_on_the_wire() -> None:
    params = Params(channel="c", last_seen_server_seq=3, meta={"k": None})
    assert unstructure(params) == {
        "channel": "c",
        "subscriptions": [],
        "lastSeenServerSeq": 3,
        "order": "newest",
        "_meta": {"k": None},
    }


def test_unknown_keys_are_ignored() -> None:
    assert structure({"channel": "c", "future": {"x": 1}}, Params) == Params(channel="c")


def test_an_optional_null_is_absent() -> None:
    read = structure({"channel": "c", "view": None, "fresh": None, "_meta": None}, Params)
    assert read == Params(channel="c")
    assert "view" not in unstructure(read)


def test_an_integral_float_is_a_whole_number() -> None:
    read = structure({"channel": "c", "lastSeenServerSeq": 7.0}, Params)
    assert read.last_seen_server_seq == 7
    assert isinstance(read.last_seen_server_seq, int)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (None, "params: expected an object"),
        ([], "params: expected an object"),
        ({}, "params.channel: is missing"),
        ({"channel": None}, "params.channel: expected a string"),
        ({"channel": 5}, "params.channel: expected a string"),
        ({"channel": "c", "subscriptions": "abc"}, "params.subscriptions: expected an array"),
        ({"channel": "c", "subscriptions": ["a", "b", 3]}, "params.subscriptions[2]: "),
        ({"channel": "c", "lastSeenServerSeq": True}, "params.lastSeenServerSeq: expected a whole"),
        ({"channel": "c", "lastSeenServerSeq": 1.5}, "params.lastSeenServerSeq: expected a whole"),
        ({"channel": "c", "lastSeenServerSeq": "1"}, "params.lastSeenServerSeq: expected a whole"),
        ({"channel": "c", "ratio": True}, "params.ratio: expected a number"),
        ({"channel": "c", "ratio": float("inf")}, "params.ratio: expected a finite number"),
        ({"channel": "c", "fresh": 1}, "params.fresh: expected true or false"),
        ({"channel": "c", "config": [["a", 1]]}, "params.config: expected an object"),
        ({"channel": "c", "view": {"turns": "2"}}, "params.view.turns: expected a whole number"),
        ({"channel": "c", "views": [{"turns": 1}, {}]}, "params.views[1].turns: is missing"),
        ({"channel": "c", "order": "none"}, "params.order: expected one of"),
    ],
)
def test_a_fault_is_named_by_its_place(value: Any, message: str) -> None:
    with pytest.raises(ShapeError) as caught:
        structure(value, Params)
    assert str(caught.value).startswith(message)


def test_the_place_begins_where_the_caller_says() -> None:
    with pytest.raises(ShapeError, match=r"^payload\.turns: is missing$"):
        structure({}, View, at="payload")
