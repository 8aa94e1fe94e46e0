"""JSON as every wire of ours reads and writes it: strict, bounded in depth, lone surrogates mended.

msgspec does the work. It refuses lone surrogates, which agents and clients do
send, so a failed text is tried once more with the standard library, which is
then held to what JSON means: no byte order mark, no NaN, no infinities. A number
that no double reaches is an infinity to whoever reads it, with a fraction or
without, and is refused like one.
"""

import json
import math
import re
from typing import Any, NoReturn

import msgspec

#: How deep arrays and objects may nest in any input. CPython's C recursion and
#: msgspec's own limit lie far above; what a client can make us walk lies here.
MAX_NESTING = 128


#: The largest double, written out, has so many digits before its point.
_DIGITS_OF_A_DOUBLE = 309
_TOO_MANY_DIGITS = b"0" * _DIGITS_OF_A_DOUBLE
#: As much of a document as is looked at before all of it is.
_BEGINNING_BYTES = 1024 * 1024

_NO_NUMBER_IN_MSGPACK = re.compile(rb"\xcb[\x7f\xff][\xf0-\xff]")
_DIGITS_ALIKE = bytes.maketrans(b"123456789", b"000000000")


class JsonError(ValueError):
    """The bytes are not JSON as our wires accept it; the message says why."""


def decode_json(data: bytes | bytearray | memoryview | str) -> Any:
    """The JSON value in `data`.

    Args:
        data: UTF-8 bytes, or text already decoded.

    Raises:
        JsonError: not UTF-8, not JSON, NaN, a number larger than any double, or
            nested deeper than `MAX_NESTING`.
    """
    try:
        value = msgspec.json.decode(data)
    except msgspec.DecodeError as error:
        value = _decode_with_surrogates(data, error)
    except (UnicodeError, RecursionError) as error:
        raise JsonError(f"not JSON: {error}") from None
    if _has_long_digits(data) and _holds_no_number(value):
        raise JsonError("not JSON: a number is out of range")
    if _has_brackets_for(data, MAX_NESTING) and nests_deeper_than(value, MAX_NESTING):
        raise JsonError(f"nested deeper than {MAX_NESTING} levels")
    return value


def encode_json(value: Any) -> bytes:
    """`value` as compact UTF-8 JSON; lone surrogates become U+FFFD.

    Raises:
        JsonError: the value holds what JSON cannot say (an infinite number,
            NaN, one that no double reaches, a key that is no string, an object
            of some class).
    """
    try:
        try:
            data = msgspec.json.encode(value)
        except UnicodeEncodeError:
            data = msgspec.json.encode(mend_surrogates(value))
        # msgspec writes NaN and infinities as null: where a null stands, look again.
        suspect = (b"null" in data and _may_hold_no_number(value)) or _has_long_digits(data)
        if suspect and _holds_no_number(value):
            raise JsonError("NaN and infinite numbers cannot be said in JSON")
        return data
    except JsonError:
        raise
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise JsonError(f"cannot be said in JSON: {error}") from None


def json_size(value: Any) -> int:
    """How many bytes `encode_json` would write; what it would refuse is measured all the same.

    For whoever only has to know whether something fits: nothing is looked for.

    Raises:
        JsonError: the value holds an object of some class, or a key that is no string.
    """
    try:
        try:
            return len(msgspec.json.encode(value))
        except UnicodeEncodeError:
            return len(msgspec.json.encode(mend_surrogates(value)))
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise JsonError(f"cannot be said in JSON: {error}") from None


def mend_surrogates(value: Any) -> Any:
    """`value` with every surrogate that has no partner replaced by U+FFFD."""
    if isinstance(value, str):
        # A pair of escapes that msgspec never saw together becomes one character.
        return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    if isinstance(value, dict):
        return {mend_surrogates(key): mend_surrogates(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [mend_surrogates(item) for item in value]
    return value


def _decode_with_surrogates(data: bytes | bytearray | memoryview | str, first: Exception) -> Any:
    try:
        text = data if isinstance(data, str) else bytes(data).decode("utf-8", "strict")
    except UnicodeDecodeError as error:
        raise JsonError(f"not UTF-8: {error.reason} at byte {error.start}") from None
    if "\\u" not in text and not any("\ud800" <= char <= "\udfff" for char in text):
        raise JsonError(f"not JSON: {first}")
    try:
        value = json.loads(text, parse_constant=_refuse_constant, parse_float=_finite)
    except (ValueError, RecursionError):
        raise JsonError(f"not JSON: {first}") from None
    if nests_deeper_than(value, MAX_NESTING):
        raise JsonError(f"nested deeper than {MAX_NESTING} levels")
    return mend_surrogates(value)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is no finite number")
    return number


def _has_long_digits(data: bytes | bytearray | memoryview | str) -> bool:
    """Whether so many digits stand in a row that they may be a number no double reaches."""
    if len(data) < _DIGITS_OF_A_DOUBLE:
        return False
    said = data.encode("utf-8", "surrogatepass") if isinstance(data, str) else bytes(data)
    return _TOO_MANY_DIGITS in said.translate(_DIGITS_ALIKE)


def _may_hold_no_number(value: Any) -> bool:
    """False: it holds neither NaN nor an infinity, told without a walk of ours.

    MessagePack has no null to write for them: eight bytes of a float follow 0xcb there,
    whose exponent is all ones. UTF-8 has no such bytes, some integers do.
    """
    try:
        return _NO_NUMBER_IN_MSGPACK.search(msgspec.msgpack.encode(value)) is not None
    except (TypeError, ValueError, OverflowError, RecursionError):
        return True


def _holds_no_number(value: Any) -> bool:
    if isinstance(value, (int, float)):
        try:
            return not math.isfinite(value)
        except OverflowError:
            return True
    if isinstance(value, dict):
        return any(_holds_no_number(item) for item in value.values())
    if isinstance(value, (list, tuple)):
        return any(_holds_no_number(item) for item in value)
    return False


def _has_brackets_for(data: bytes | bytearray | memoryview | str, levels: int) -> bool:
    """Whether there are enough opening brackets for more than so many levels."""
    if isinstance(data, str):
        return data.count("{") + data.count("[") > levels
    said = bytes(data)
    return said.count(b"{") + said.count(b"[") > levels


def holds_more_values(data: bytes, limit: int) -> bool:
    """Whether a JSON document holds more than `limit` values, told without making any of them.

    A value is the document itself, or what stands in an object or an array of it; an empty
    one counts twice. Each becomes an object of ours, several times the size of its bytes,
    which whoever walks the document looks at: so a bound in bytes alone bounds neither
    memory nor time. Of bytes that are no JSON nothing is promised, but that it answers.
    """
    # A dense document shows by its beginning what it is.
    beginning = data[:_BEGINNING_BYTES]
    return _values_show(beginning, limit) or (
        len(data) > len(beginning) and _values_show(data, limit)
    )


def _values_show(data: bytes, limit: int) -> bool:
    """Whether a document, or the beginning of one, holds more values than that."""
    if _values_at_most(data) <= limit:
        return False
    # What looks like so many may stand in strings. Escapes go first, so that every quote
    # that is left begins or ends one.
    unescaped = data.replace(b"\\\\", b"").replace(b'\\"', b"")
    # A string is a key or a value.
    if unescaped.count(b'"') > 4 * limit:
        return True
    return _values_at_most(b"".join(unescaped.split(b'"')[::2])) > limit


def _values_at_most(data: bytes) -> int:
    # In an array or object that is not empty stands one value more than commas.
    return data.count(b",") + data.count(b"[") + data.count(b"{") + 1


def nests_deeper_than(value: Any, limit: int) -> bool:
    """Whether objects and arrays stand in each other more than `limit` deep."""
    # Breadth first, so that the walk itself cannot exhaust the stack; in one piece, since
    # what a peer sent is waited for by everybody. What was decoded has no subclasses.
    level: list[Any] = [value] if isinstance(value, (dict, list)) else []
    for _ in range(limit):
        if not level:
            return False
        level = [
            child
            for item in level
            for child in (item.values() if type(item) is dict else item)
            if type(child) is dict or type(child) is list
        ]
    return bool(level)


def same_json(left: Any, right: Any) -> bool:
    """Whether two JSON values say the same, as JSON means it.

    `True` is not `1`, and `1.0` is `1`. What both share is not walked twice.
    """
    if left is right:
        return True
    # Python's own comparison is quick, takes shared parts as equal without a
    # look, and is only wrong about true and 1: so it is asked first.
    return bool(left == right) and _booleans_agree(left, right)


def _booleans_agree(left: Any, right: Any) -> bool:
    if left is right:
        return True
    if isinstance(left, dict):
        return all(_booleans_agree(value, right[key]) for key, value in left.items())
    if isinstance(left, list):
        return all(map(_booleans_agree, left, right))
    return isinstance(left, bool) == isinstance(right, bool)
