"""Wire shapes as attrs classes: one strict converter between JSON objects and instances.

A class's members are snake_case here and camelCase on the wire; `meta` is
`_meta`, and `metadata={"wire": …}` names any other. Unknown keys are ignored.
A member whose default is None is optional: absent or null on the wire is None,
and None is left out when written. Values are checked as JSON means them: 5 is
no string, true is no number, 1.0 is a whole number.

A class with `null_is_absent = False` tells absent from null: its optional members
are absent or have a value, and every other member is there, whatever its default.
A union of classes is told apart by the member that is a `Literal` in each of them.
"""

import math
from collections.abc import Callable
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import attrs
from cattrs import BaseValidationError, ClassValidationError, Converter, IterableValidationError
from cattrs.cols import homogenous_tuple_structure_factory, list_structure_factory
from cattrs.gen import (
    make_dict_structure_fn,
    make_dict_unstructure_fn,
    mapping_structure_factory,
    override,
)

T = TypeVar("T")


class ShapeError(ValueError):
    """A value has not the shape asked for; the message names the member and what was expected."""


class MemberError(ValueError):
    """For attrs validators: what is wrong with a member, in the wire's names.

    Args:
        member: where inside the object, such as `initialMessage.text`.
        what: what was expected there.
    """

    def __init__(self, member: str, what: str) -> None:
        super().__init__(member, what)
        self.member = member
        self.what = what


class _Expected(ValueError):
    """What a leaf should have been; `structure` adds where it stands."""


def structure(value: Any, cls: type[T], at: str = "params") -> T:
    """An instance of `cls` made of a JSON value.

    Args:
        value: as `decode_json` gives it.
        cls: an attrs class, or any type its members may have.
        at: what to call the value in messages.

    Raises:
        ShapeError: `params.subscriptions[2]: expected a string`.
    """
    try:
        return _CONVERTER.structure(value, cls)
    except (BaseValidationError, _Expected, MemberError) as error:
        where, what = _first_fault(error, at)
        raise ShapeError(f"{where}: {what}") from None


def unstructure(instance: Any) -> Any:
    """The JSON value of an instance: camelCase keys, and no key for an optional None."""
    return _CONVERTER.unstructure(instance)


@cache
def wire_names(cls: type[attrs.AttrsInstance]) -> dict[str, str]:
    """The wire's name of each member of an attrs class."""
    return {field.name: _wire_name(field) for field in attrs.fields(cls)}


def _wire_name(field: "attrs.Attribute[Any]") -> str:
    named = field.metadata.get("wire")
    if isinstance(named, str):
        return named
    if field.name == "meta":
        return "_meta"
    head, *tail = field.name.rstrip("_").split("_")
    return head + "".join(part.capitalize() for part in tail)


def _first_fault(error: BaseException, at: str) -> tuple[str, str]:
    """Where the first fault stands, in the wire's names, and what is wrong there."""
    if isinstance(error, ClassValidationError):
        names = wire_names(error.cl)
        with_notes, others = error.group_exceptions()
        if with_notes:
            inner, note = with_notes[0]
            name = f"{at}.{names.get(note.name, note.name)}"
            return (
                (name, "is missing") if isinstance(inner, KeyError) else _first_fault(inner, name)
            )
        return _first_fault(others[0], at)
    if isinstance(error, IterableValidationError):
        found, others = error.group_exceptions()
        if found:
            inner, item = found[0]
            index = item.index
            place = f"{at}[{index}]" if isinstance(index, int) else f"{at}.{index}"
            return _first_fault(inner, place)
        return _first_fault(others[0], at)
    if isinstance(error, MemberError):
        return f"{at}.{error.member}", error.what
    return at, str(error)


_Hook = Callable[[Any, Any], Any]


def _text(value: Any, _: Any) -> str:
    if not isinstance(value, str):
        raise _Expected("expected a string")
    return value


def _boolean(value: Any, _: Any) -> bool:
    if not isinstance(value, bool):
        raise _Expected("expected true or false")
    return value


def _whole_number(value: Any, _: Any) -> int:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise _Expected("expected a whole number")
    return value


def _number(value: Any, _: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise _Expected("expected a number")
    if not _is_finite(value):
        raise _Expected("expected a finite number")
    return value


def _is_finite(value: int | float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:
        # A whole number beyond what any JSON number can be.
        return False


def _one_of(cls: Any) -> _Hook:
    allowed = get_args(cls)

    def hook(value: Any, _: Any) -> Any:
        # Compared by type too: in Python true is 1.
        if not any(value == one and type(value) is type(one) for one in allowed):
            raise _Expected("expected one of " + ", ".join(map(repr, allowed)))
        return value

    return hook


def _array(cls: Any) -> _Hook:
    if get_origin(cls) is tuple and get_args(cls)[-1] is not Ellipsis:
        return _fixed_array(cls)
    elements = (
        list_structure_factory if get_origin(cls) is list else homogenous_tuple_structure_factory
    )
    inner = elements(cls, _CONVERTER)

    def hook(value: Any, _: Any) -> Any:
        if not isinstance(value, list):
            raise _Expected("expected an array")
        return inner(value, cls)

    return hook


def _fixed_array(cls: Any) -> _Hook:
    kinds = get_args(cls)

    def hook(value: Any, _: Any) -> Any:
        if not isinstance(value, list) or len(value) != len(kinds):
            raise _Expected(f"expected an array of {len(kinds)}")
        return tuple(map(_CONVERTER.structure, value, kinds))

    return hook


def _mapping(cls: Any) -> _Hook:
    inner = mapping_structure_factory(cls, _CONVERTER)

    def hook(value: Any, _: Any) -> Any:
        if not isinstance(value, dict):
            raise _Expected("expected an object")
        return inner(value, cls)

    return hook


def _object(cls: Any) -> _Hook:
    names = wire_names(cls)
    optional = {names[field.name] for field in attrs.fields(cls) if field.default is None}
    renames: dict[str, Any] = {name: override(rename=wire) for name, wire in names.items()}
    inner = make_dict_structure_fn(cls, _CONVERTER, **renames)
    if not getattr(cls, "null_is_absent", True):
        return _exact_object(cls, inner)

    def hook(value: Any, _: Any) -> Any:
        if not isinstance(value, dict):
            raise _Expected("expected an object")
        # An optional member that is null is one that is not there.
        there = {k: v for k, v in value.items() if v is not None or k not in optional}
        return inner(there, cls)

    return hook


def _exact_object(cls: Any, inner: _Hook) -> _Hook:
    """As `_object`, for a class that tells absent from null.

    A member whose metadata says `null` may be null beside absent; both mean the same.
    """
    names = wire_names(cls)
    fields = attrs.fields(cls)
    defaulted = [names[one.name] for one in fields if one.default not in (None, attrs.NOTHING)]
    optional = [one for one in fields if one.default is None]
    never_null = [names[one.name] for one in optional if not one.metadata.get("null")]

    def hook(value: Any, _: Any) -> Any:
        if not isinstance(value, dict):
            raise _Expected("expected an object")
        for name in defaulted:
            if name not in value:
                raise MemberError(name, "is missing")
        for name in never_null:
            if name in value and value[name] is None:
                raise MemberError(name, "expected a value; what is not there is left out")
        return inner(value, cls)

    return hook


def _is_union(cls: Any) -> bool:
    return get_origin(cls) in (Union, UnionType) and NoneType not in get_args(cls)


def _one_of_several(cls: Any) -> _Hook:
    kinds = get_args(cls)
    if all(map(attrs.has, kinds)):
        return _tagged(kinds)

    def hook(value: Any, _: Any) -> Any:
        for kind in kinds:
            try:
                return _CONVERTER.structure(value, kind)
            except _Expected:
                continue
        raise _Expected("expected one of: " + ", ".join(kind.__name__ for kind in kinds))

    return hook


def _tagged(classes: tuple[Any, ...]) -> _Hook:
    """The classes of a union by the member whose `Literal` differs in each of them."""
    tags = [_tags_of(cls) for cls in classes]
    name = next(name for name in tags[0] if all(name in one for one in tags))
    by_tag = {one[name]: cls for one, cls in zip(tags, classes, strict=True)}

    def hook(value: Any, _: Any) -> Any:
        if not isinstance(value, dict):
            raise _Expected("expected an object")
        if name not in value:
            raise MemberError(name, "is missing")
        tag = value[name]
        cls = by_tag.get(tag) if isinstance(tag, str) else None
        if cls is None:
            raise MemberError(name, "expected one of " + ", ".join(map(repr, by_tag)))
        return _CONVERTER.structure(value, cls)

    return hook


def _tags_of(cls: Any) -> dict[str, str]:
    """The members that can only be one word, by their wire name."""
    names = wire_names(cls)
    return {
        names[name]: get_args(kind)[0]
        for name, kind in get_type_hints(cls).items()
        if name in names and get_origin(kind) is Literal and len(get_args(kind)) == 1
    }


def _to_object(cls: Any) -> Callable[[Any], dict[str, Any]]:
    members: dict[str, Any] = {
        field.name: override(
            rename=wire_names(cls)[field.name], omit_if_default=field.default is None
        )
        for field in attrs.fields(cls)
    }
    return make_dict_unstructure_fn(cls, _CONVERTER, **members)


def _is_made_of(*origins: Any) -> Callable[[Any], bool]:
    return lambda cls: get_origin(cls) in origins


def _converter() -> Converter:
    converter = Converter(detailed_validation=True, unstruct_collection_overrides={tuple: list})
    for scalar, hook in ((str, _text), (bool, _boolean), (int, _whole_number), (float, _number)):
        converter.register_structure_hook(scalar, hook)
    converter.register_structure_hook_factory(_is_made_of(Literal), _one_of)
    converter.register_structure_hook_factory(_is_made_of(list, tuple), _array)
    converter.register_structure_hook_factory(_is_made_of(dict), _mapping)
    converter.register_structure_hook_factory(attrs.has, _object)
    converter.register_structure_hook_factory(_is_union, _one_of_several)
    converter.register_unstructure_hook_factory(attrs.has, _to_object)
    return converter


_CONVERTER = _converter()
