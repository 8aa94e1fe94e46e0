"""What every shape of this wire is: a frozen class that checks itself when it is made.

The rules stand in the types of the members (`Annotated[str, Length(1)]`), so an
instance that a program builds is held to the same as one that came over the wire.
What breaks a rule is a `MemberError` (a ValueError) with the wire's path of the member.
"""

import re
from collections.abc import Callable
from types import UnionType
from typing import Annotated, Any, ClassVar, Protocol, Union, get_args, get_origin, get_type_hints

import attrs
from attrs import frozen

from ..shapes import MemberError, wire_names
from .text import is_blank, trimmed, utf16_length

#: What a JSON number can say exactly: beyond it a JavaScript client rounds.
MAX_SAFE_INTEGER = 2**53 - 1


@frozen(kw_only=True)
class Shape:
    """The base of every payload, result, item and event.

    An optional member is None here and left out on the wire, where null is no way
    to leave it out. A member that may be null is always there, and has no default.
    """

    null_is_absent: ClassVar[bool] = False

    def __attrs_post_init__(self) -> None:
        for name, wire_name, check in _checks_of(type(self)):
            check(wire_name, getattr(self, name))


class Rule(Protocol):
    """A rule about one value; put beside its type with `Annotated`."""

    def fault(self, value: Any) -> str | None:
        """What was expected instead, or None."""


@frozen
class Length:
    """How long a text is, in UTF-16 units, as the source of these contracts counts."""

    least: int = 0
    most: int | None = None

    def fault(self, value: str) -> str | None:
        if len(value) < self.least:
            return _at_least(self.least)
        if self.most is not None and utf16_length(value, self.most) > self.most:
            return f"expected at most {self.most} characters"
        return None


@frozen
class TrimmedLength:
    """How long a text is without the white space around it, in UTF-16 units."""

    least: int
    most: int

    def fault(self, value: str) -> str | None:
        inner = trimmed(value)
        if len(inner) < self.least:
            return "expected text that is not blank"
        if utf16_length(inner, self.most) > self.most:
            return f"expected at most {self.most} characters"
        return None


@frozen
class Matching:
    """The whole text fits the pattern: not, as `$` would have it, up to a last newline."""

    pattern: "re.Pattern[str]"
    what: str

    def fault(self, value: str) -> str | None:
        return None if self.pattern.fullmatch(value) else f"expected {self.what}"


@frozen
class Between:
    """A number's range, both ends in it unless `above` says the lower one is not."""

    least: float | None = None
    most: float | None = None
    above: float | None = None

    def fault(self, value: float) -> str | None:
        if self.least is not None and value < self.least:
            return f"expected at least {self.least}"
        if self.above is not None and value <= self.above:
            return f"expected more than {self.above}"
        if self.most is not None and value > self.most:
            return f"expected at most {self.most}"
        return None


@frozen
class Entries:
    """How many entries an array has."""

    least: int = 0
    most: int | None = None

    def fault(self, value: tuple[Any, ...]) -> str | None:
        if len(value) < self.least:
            return f"expected at least {self.least}"
        if self.most is not None and len(value) > self.most:
            return f"expected at most {self.most}"
        return None


def _at_least(least: int) -> str:
    return "expected a nonempty string" if least == 1 else f"expected at least {least} characters"


NonEmpty = Annotated[str, Length(1)]
#: A whole number that counts something.
Count = Annotated[int, Between(0, MAX_SAFE_INTEGER)]
PositiveCount = Annotated[int, Between(1, MAX_SAFE_INTEGER)]
WholeNumber = Annotated[int, Between(-MAX_SAFE_INTEGER, MAX_SAFE_INTEGER)]
NotNegative = Annotated[float, Between(0)]
#: A message, a title, or what else a person has to have written something in.
Titled = Annotated[str, TrimmedLength(1, 120)]

_Check = Callable[[str, Any], None]


#: By class: what is checked of its instances, found out once.
_CHECKS: dict[type[Any], tuple[tuple[str, str, _Check], ...]] = {}


def _checks_of(cls: type[Any]) -> tuple[tuple[str, str, _Check], ...]:
    """The members of a class that have rules: their name, their wire name, and the check."""
    known = _CHECKS.get(cls)
    if known is None:
        known = _CHECKS[cls] = _found_checks(cls)
    return known


def _found_checks(cls: Any) -> tuple[tuple[str, str, _Check], ...]:
    hints, names = get_type_hints(cls, include_extras=True), wire_names(cls)
    checks = []
    for field in attrs.fields(cls):
        check = _check_of(hints[field.name])
        if check is not None:
            optional = field.default is None
            named = (field.name, names[field.name])
            checks.append((*named, _unless_none(check) if optional else check))
    return tuple(checks)


def _check_of(kind: Any) -> _Check | None:
    """What checks a value of that type, or None where nothing is to be checked."""
    origin, args = get_origin(kind), get_args(kind)
    if origin is Annotated:
        inner, *extras = args
        parts = [_check_of(inner), *(_by_rule(rule) for rule in extras if hasattr(rule, "fault"))]
        checks = [check for check in parts if check is not None]
        return None if not checks else _all_of(checks)
    if origin in (Union, UnionType):
        arms = [check for arg in args if (check := _check_of(arg)) is not None]
        return _unless_none(arms[0]) if arms else None
    if origin is tuple:
        if args[-1] is Ellipsis:
            inner_check = _check_of(args[0])
            return None if inner_check is None else _each(inner_check)
        return _each_its_own([_check_of(arg) for arg in args])
    if origin is dict:
        return _each_entry(*map(_check_of, args))
    return None


def _by_rule(rule: Rule) -> _Check:
    def check(at: str, value: Any) -> None:
        fault = rule.fault(value)
        if fault is not None:
            raise MemberError(at, fault)

    return check


def _unless_none(check: _Check) -> _Check:
    return lambda at, value: None if value is None else check(at, value)


def _all_of(checks: list[_Check]) -> _Check:
    if len(checks) == 1:
        return checks[0]

    def check(at: str, value: Any) -> None:
        for one in checks:
            one(at, value)

    return check


def _each(inner: _Check) -> _Check:
    def check(at: str, value: Any) -> None:
        for index, item in enumerate(value):
            inner(f"{at}[{index}]", item)

    return check


def _each_its_own(inner: list[_Check | None]) -> _Check | None:
    if not any(inner):
        return None

    def check(at: str, value: Any) -> None:
        for index, (one, item) in enumerate(zip(inner, value, strict=True)):
            if one is not None:
                one(f"{at}[{index}]", item)

    return check


def _each_entry(key: _Check | None, item: _Check | None) -> _Check | None:
    if key is None and item is None:
        return None

    def check(at: str, value: Any) -> None:
        for name, entry in value.items():
            if key is not None:
                key(f"{at}.{name}", name)
            if item is not None:
                item(f"{at}.{name}", entry)

    return check


def require_words_or(at: str, text: str, otherwise: bool) -> None:
    """Raises MemberError for a blank text, unless something else stands in for it."""
    if is_blank(text) and not otherwise:
        raise MemberError(at, "expected text that is not blank, or an attachment")
