"""JSON and the frames made of it: nothing received raises, everything sent reads back the same."""

import json
import math
import sys
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ahpd.contracts.frames import (
    BadFrame,
    Event,
    Failure,
    Frame,
    FrameTooLong,
    LineDecoder,
    Request,
    Success,
    encode_frame,
    parse_frame,
    parse_request,
    parse_server_frame,
)
from ahpd.contracts.json import (
    MAX_NESTING,
    JsonError,
    decode_json,
    encode_json,
    holds_more_values,
    json_size,
    mend_surrogates,
    same_json,
)

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
JSON: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)
NAMES = TEXT.filter(bool)
FRAMES: st.SearchStrategy[Frame] = st.one_of(
    st.builds(Request, id=NAMES, type=NAMES.filter(lambda name: name != "event"), payload=JSON),
    st.builds(Success, id=NAMES, result=JSON),
    st.builds(Failure, id=st.none() | NAMES, code=TEXT, message=TEXT),
    st.builds(Event, event=NAMES, payload=JSON),
)


def nested(levels: int) -> str:
    return "[" * levels + "]" * levels


def values_in(value: Any) -> int:
    """How many values a document holds, where an empty object or array counts twice."""
    if isinstance(value, dict):
        value = list(value.values())
    if not isinstance(value, list):
        return 1
    return 1 + sum(map(values_in, value)) if value else 2


# -- JSON ----------------------------------------------------------------------


@given(JSON)
@example(['[{,":', {'","': "\\"}, '\\"[[[', "\\\\"])
def test_values_are_counted_as_they_stand_and_not_in_strings(value: Any) -> None:
    count = values_in(value)
    data = encode_json(value)
    assert not holds_more_values(data, count)
    assert holds_more_values(data, count - 1)


@given(JSON)
@example("\ud800")
def test_a_value_is_measured_as_it_is_written(value: Any) -> None:
    assert json_size(value) == len(encode_json(value))


@given(JSON, st.sampled_from([math.nan, -math.nan, math.inf, -math.inf]), st.booleans())
@example([None, "null", 0xCB7FF0], math.nan, True)
def test_no_number_is_refused_wherever_it_stands_and_null_never_is(
    value: Any, no_number: float, named: bool
) -> None:
    encode_json([None, value])
    with pytest.raises(JsonError):
        encode_json([value, {"x": no_number} if named else [no_number]])


@given(st.integers(0, 2**64 - 1) | st.floats(allow_nan=False, allow_infinity=False) | st.text())
@example(0xCB7FF0_0000000000)
@example(0xCBFFFF_CB7FF8_CB)
def test_what_looks_like_no_number_in_its_bytes_is_one_all_the_same(value: Any) -> None:
    assert encode_json({"null": value}) == b'{"null":' + encode_json(value) + b"}"


@pytest.mark.parametrize("begins_with", ["text, [and] {more}, ", '\\"', "\\\\", '","'])
def test_values_are_counted_behind_much_text_too(begins_with: str) -> None:
    text = begins_with * (2_500_000 // len(begins_with))
    data = encode_json([text, *range(1000)])
    assert not holds_more_values(data, 1002)
    assert holds_more_values(data, 1001)
    assert holds_more_values(encode_json([*range(500_000), text]), 1001)


@given(st.binary())
def test_whatever_the_bytes_are_counting_answers(data: bytes) -> None:
    assert holds_more_values(data, 3) in (True, False)


@given(JSON)
def test_json_reads_back_what_was_written(value: Any) -> None:
    assert decode_json(encode_json(value)) == value


@given(st.binary() | st.text())
@example(b"\xef\xbb\xbf{}")
@example('"\\ud800')
@example("[" * 100_000)
@example(b'{"a":' * 100_000)
def test_decoding_refuses_with_a_json_error_and_nothing_else(data: bytes | str) -> None:
    try:
        value = decode_json(data)
    except JsonError:
        return
    # What was taken is what the standard library reads too, surrogates mended.
    assert value == mend_surrogates(json.loads(data))


@given(
    st.recursive(
        JSON | st.text() | st.floats() | st.integers(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
        max_leaves=8,
    )
)
def test_encoding_gives_json_or_a_json_error(value: Any) -> None:
    try:
        data = encode_json(value)
    except JsonError:
        return
    assert b"\n" not in data
    json.loads(data)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"{} {}",
        b"NaN",
        b"[Infinity]",
        b"[-Infinity]",
        b"1e999",
        b"1" + b"0" * 400,
        b'{"a": [-1' + b"0" * 309 + b"]}",
        b'["\\ud800", 1' + b"0" * 400 + b"]",
        b'["\\ud800", NaN]',
        b'["\\ud800", 1e999]',
        b'\xef\xbb\xbf"x"',
        b'\xef\xbb\xbf"\\ud800"',
        b'"\xff"',
        b'"\xed\xa0\x80"',
        b"'x'",
        nested(MAX_NESTING + 1).encode(),
        b'["\\ud800",' + nested(MAX_NESTING).encode() + b"]",
    ],
)
def test_what_is_not_json_is_refused(data: bytes) -> None:
    with pytest.raises(JsonError):
        decode_json(data)


def test_a_number_is_taken_up_to_what_a_double_reaches() -> None:
    largest = str(int(sys.float_info.max))
    assert decode_json(largest) == int(largest)
    assert encode_json(int(largest)) == largest.encode()
    with pytest.raises(JsonError):
        encode_json(10 * int(largest))
    digits = "7" * 1000
    assert decode_json(f'["{digits}", 0.{digits}]') == [digits, float(f"0.{digits}")]


def test_nesting_is_taken_up_to_its_bound() -> None:
    assert decode_json(nested(MAX_NESTING)) == json.loads(nested(MAX_NESTING))


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b'"\\ud800"', "\ufffd"),
        (b'{"\\udc00": ["a\\ud83d"]}', {"\ufffd": ["a\ufffd"]}),
        (b'"\\ud83d\\ude00"', "😀"),
        (b'["\\ud800", "\\ud83d\\ude00"]', ["\ufffd", "😀"]),
    ],
)
def test_a_lone_surrogate_is_mended_and_a_pair_is_a_character(data: bytes, value: Any) -> None:
    assert decode_json(data) == value


@given(st.text(st.characters()))
@example("\ud83d\ude00")
def test_any_text_can_be_written(text: str) -> None:
    said = decode_json(encode_json({"text": text}))["text"]
    assert said == mend_surrogates(text)
    said.encode("utf-8")


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_a_number_json_cannot_say_is_refused_even_beside_a_null(number: float) -> None:
    for value in (number, [None, number], {"a": {"b": [None, number]}}):
        with pytest.raises(JsonError):
            encode_json(value)


@pytest.mark.parametrize("value", [object(), {1, object()}, {(1, 2): 3}])
def test_what_is_no_json_value_is_refused(value: Any) -> None:
    with pytest.raises(JsonError):
        encode_json(value)


@given(JSON, JSON)
@example([1], [True])
@example({"a": [0]}, {"a": [False]})
@example([1], [1.0])
@example({"a": None}, {})
def test_two_values_are_the_same_when_they_are_written_the_same(left: Any, right: Any) -> None:
    assert same_json(left, decode_json(encode_json(left)))
    assert same_json(left, right) == same_json(right, left) == (canonical(left) == canonical(right))


def canonical(value: Any) -> str:
    """The value as text, each number in one spelling."""
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return json.dumps(value)
    if isinstance(value, dict):
        return repr({key: canonical(value[key]) for key in sorted(value)})
    if isinstance(value, list):
        return repr([canonical(item) for item in value])
    return repr(int(value)) if value == int(value) else repr(value)


# -- frames --------------------------------------------------------------------


@given(FRAMES)
def test_a_frame_reads_back_as_it_was(frame: Frame) -> None:
    data = encode_frame(frame)
    assert b"\n" not in data
    assert parse_frame(data) == frame
    if isinstance(frame, Request):
        assert parse_request(data) == frame
    else:
        assert parse_server_frame(data) == frame


NEAR_FRAMES = st.dictionaries(
    st.sampled_from(["id", "type", "payload", "ok", "result", "error", "event", "code"]),
    JSON | st.sampled_from(["event", True, False, "1", {"code": "x", "message": "y"}]),
)


@given(st.binary() | st.text() | NEAR_FRAMES.map(json.dumps))
def test_parsing_never_raises(data: bytes | str) -> None:
    for parse in (parse_request, parse_server_frame, parse_frame):
        frame = parse(data)
        if isinstance(frame, BadFrame):
            assert frame.message
        else:
            assert parse(encode_frame(frame)) == frame


@pytest.mark.parametrize(
    ("frame", "bad"),
    [
        ("[]", BadFrame("a frame is a JSON object")),
        ('{"type":"t","payload":1}', BadFrame("a request needs `id`, a nonempty string")),
        ('{"id":"","type":"t","payload":1}', BadFrame("a request needs `id`, a nonempty string")),
        ('{"id":"1","payload":1}', BadFrame("a request needs `type`, a nonempty string", "1")),
        ('{"id":"1","type":"t"}', BadFrame("a request needs `payload`", "1")),
    ],
)
def test_a_bad_request_says_what_is_missing_and_whose_it_was(frame: str, bad: BadFrame) -> None:
    assert parse_request(frame) == bad


def test_a_refusal_of_an_unreadable_request_has_a_null_id() -> None:
    assert json.loads(encode_frame(Failure(id=None, code="c", message="m"))) == {
        "id": None,
        "ok": False,
        "error": {"code": "c", "message": "m"},
    }


# -- lines ---------------------------------------------------------------------


def decoded(chunks: list[bytes], max_bytes: int) -> tuple[list[bytes], bool]:
    """The lines of a stream that came in these chunks, and whether one was too long."""
    decoder, lines = LineDecoder(max_bytes), []
    try:
        for chunk in chunks:
            for line in decoder.feed(chunk):
                lines.append(line)
                assert b"\n" not in line and 0 < len(line) <= max_bytes
            assert decoder.partial_bytes <= max_bytes
    except FrameTooLong:
        return lines, True
    return lines, False


def cut(data: bytes, at: list[int]) -> list[bytes]:
    edges = [0, *sorted(place % (len(data) + 1) for place in at), len(data)]
    return [data[start:end] for start, end in pairwise(edges)]


LINES = st.lists(st.binary(max_size=12), max_size=6).map(b"\n".join)


@given(LINES, st.lists(st.integers(min_value=0), max_size=20), st.integers(1, 16))
@example(b"\n\nab\n", [1, 2, 3], 1)
def test_any_chunking_gives_the_same_lines(data: bytes, at: list[int], limit: int) -> None:
    whole = decoded([data], limit)
    assert decoded(cut(data, at), limit) == whole
    assert decoded([bytes([byte]) for byte in data], limit) == whole
    pieces = data.split(b"\n")
    if all(len(piece) <= limit for piece in pieces):
        assert whole == ([piece for piece in pieces[:-1] if piece], False)
    else:
        assert whole[1]


@given(st.lists(FRAMES, max_size=5), st.lists(st.integers(min_value=0), max_size=20))
def test_frames_survive_the_pipe(frames: list[Frame], at: list[int]) -> None:
    stream = b"".join(encode_frame(frame) + b"\n" for frame in frames)
    lines, too_long = decoded(cut(stream, at), 1 << 20)
    assert not too_long
    assert [parse_frame(line) for line in lines] == frames


def test_a_line_written_a_byte_at_a_time_is_held_in_few_objects() -> None:
    decoder = LineDecoder()
    for _ in range(5_000):
        assert not list(decoder.feed(b"x"))
    assert decoder.partial_bytes == 5_000
    assert list(decoder.feed(b"\n")) == [b"x" * 5_000]
    assert decoder.partial_bytes == 0
