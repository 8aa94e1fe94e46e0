"""Checks of JSON values: small functions that say what is wrong, and how they are put together.

A check takes a value and what to call it, and answers None or one sentence that
names the faulty member: `action.part.kind: expected a string`. Unknown members
are never looked at, so they survive. A member that is null is one that is not
there.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeAlias

from attrs import frozen


class Check(Protocol):
    """Tells what is wrong with `value`, called `at`; None when nothing is."""

    def __call__(self, value: Any, at: str, /) -> str | None: ...


@frozen
class Optional:
    """Marks a member that may be absent."""

    check: Check


#: A required member's check, or an optional one's.
Member: TypeAlias = Check | Optional
Members: TypeAlias = Mapping[str, Member]


def optional(check: Check) -> Optional:
    """A member that may be absent; when it is there, `check` holds."""
    return Optional(check)


def text(value: Any, at: str, /) -> str | None:
    """A string."""
    return None if isinstance(value, str) else f"{at}: expected a string"


def boolean(value: Any, at: str, /) -> str | None:
    """True or false."""
    return None if isinstance(value, bool) else f"{at}: expected true or false"


def number(value: Any, at: str, /) -> str | None:
    """A finite number; in JSON true is none."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return f"{at}: expected a number"
    if isinstance(value, float) and not math.isfinite(value):
        return f"{at}: expected a finite number"
    return None


def whole_number(value: Any, at: str, /) -> str | None:
    """A number without a fraction; 1.0 is one."""
    if isinstance(value, float) and value.is_integer():
        return None
    if isinstance(value, bool) or not isinstance(value, int):
        return f"{at}: expected a whole number"
    return None


def anything(value: Any, at: str, /) -> str | None:
    """Any value."""
    return None


def record(value: Any, at: str, /) -> str | None:
    """An object of any members."""
    return None if isinstance(value, dict) else f"{at}: expected an object"


def one_of(*allowed: str) -> Check:
    """One of these strings and no other: for an enumeration that the protocol keeps closed."""

    def check(value: Any, at: str, /) -> str | None:
        if isinstance(value, str) and value in allowed:
            return None
        return f"{at}: expected one of {', '.join(map(repr, allowed))}"

    return check


def array(of: Check) -> Check:
    """An array whose every element holds `of`."""

    def check(value: Any, at: str, /) -> str | None:
        if not isinstance(value, list):
            return f"{at}: expected an array"
        for index, item in enumerate(value):
            fault = of(item, f"{at}[{index}]")
            if fault is not None:
                return fault
        return None

    return check


def mapping(of: Check) -> Check:
    """An object of any keys whose every value holds `of`."""

    def check(value: Any, at: str, /) -> str | None:
        if not isinstance(value, dict):
            return f"{at}: expected an object"
        for key, item in value.items():
            fault = of(item, f"{at}.{key}")
            if fault is not None:
                return fault
        return None

    return check


def shape(*bases: Members, **members: Member) -> Check:
    """An object with these members, and those of `bases`; others may be there too."""
    table: dict[str, Member] = {}
    for base in bases:
        table |= base
    return members_check(table | members)


def members_check(table: Members) -> Check:
    """An object that holds the members of `table`."""
    rows = tuple(
        (name, member.check, False) if isinstance(member, Optional) else (name, member, True)
        for name, member in table.items()
    )

    def check(value: Any, at: str, /) -> str | None:
        if not isinstance(value, dict):
            return f"{at}: expected an object"
        for name, holds, required in rows:
            item = value.get(name)
            if item is None:
                if required:
                    return f"{at}.{name}: is missing"
                continue
            fault = holds(item, f"{at}.{name}")
            if fault is not None:
                return fault
        return None

    return check


def tagged(tag: str, variants: Mapping[str, Check], base: Check = record) -> Check:
    """An object whose member `tag` says which variant holds beside `base`.

    The protocol keeps its unions open: one of a tag nobody knows yet passes as
    it is. So every known tag has its row in `variants`.
    """

    def check(value: Any, at: str, /) -> str | None:
        if not isinstance(value, dict):
            return f"{at}: expected an object"
        kind = value.get(tag)
        if kind is None:
            return f"{at}.{tag}: is missing"
        if not isinstance(kind, str):
            return f"{at}.{tag}: expected a string"
        variant = variants.get(kind)
        return None if variant is None else base(value, at) or variant(value, at)

    return check


def text_or(other: Check) -> Check:
    """A string, or an object that holds `other`."""

    def check(value: Any, at: str, /) -> str | None:
        if isinstance(value, str):
            return None
        if not isinstance(value, dict):
            return f"{at}: expected a string or an object"
        return other(value, at)

    return check


def every(*checks: Check) -> Check:
    """All of these hold."""

    def check(value: Any, at: str, /) -> str | None:
        for one in checks:
            fault = one(value, at)
            if fault is not None:
                return fault
        return None

    return check


def without(*names: str, because: str) -> Check:
    """An object that has none of these members."""

    def check(value: Any, at: str, /) -> str | None:
        for name in names:
            if name in value:
                return f"{at}.{name}: {because}"
        return None

    return check


def deferred(of: Callable[[], Check]) -> Check:
    """A check that is made later than the one it is part of."""

    def check(value: Any, at: str, /) -> str | None:
        return of()(value, at)

    return check
