"""Copy-on-write steps that every reducer shares: absent is absent, equal is unchanged.

A state is plain JSON. Nothing here changes a value it was given: a copy is made
of what is on the path to a change, and everything beside the path is shared.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

from ...json import same_json
from ..status import status_of, with_flag

State: TypeAlias = dict[str, Any]
Action: TypeAlias = dict[str, Any]
Rule: TypeAlias = Callable[[State, Action], State]
Reducer: TypeAlias = Callable[[State, Any], State]


def reducer_of(rules: Mapping[str, Rule]) -> Reducer:
    """The reducer that follows `rules`, which map an action's type to what it does.

    It never raises on any JSON value given as the action, and answers the very
    `state` it was given when the action is malformed, unknown or changes nothing.
    """

    def reduce(state: State, action: Any) -> State:
        if not isinstance(action, dict):
            return state
        kind = action.get("type")
        rule = rules.get(kind) if isinstance(kind, str) else None
        if rule is None:
            return state
        after = rule(state, action)
        return state if after is state or same_json(after, state) else after

    return reduce


def present(**members: Any) -> dict[str, Any]:
    """An object of those members that are there: None is an absent one."""
    return {key: value for key, value in members.items() if value is not None}


def without_nulls(members: Mapping[str, Any]) -> dict[str, Any]:
    """A copy without the members that are None; what lies deeper is left as it is."""
    return {key: value for key, value in members.items() if value is not None}


def with_member(state: State, key: str, value: Any) -> State:
    """A copy of `state` whose member `key` is `value`, or is absent when `value` is None."""
    after = {**state, key: value}
    if value is None:
        del after[key]
    return after


def without_member(state: State, key: str) -> State:
    """`state` without the member `key`; `state` itself when it has none."""
    if key not in state:
        return state
    after = {**state}
    del after[key]
    return after


def text_in(action: Action, key: str) -> str | None:
    """The string at `key`, or None when there is no string."""
    value = action.get(key)
    return value if isinstance(value, str) else None


def object_in(action: Mapping[str, Any], key: str) -> dict[str, Any] | None:
    """The object at `key`, or None when there is no object."""
    value = action.get(key)
    return value if isinstance(value, dict) else None


def list_in(action: Mapping[str, Any], key: str) -> list[Any] | None:
    """The array at `key`, or None when there is no array."""
    value = action.get(key)
    return value if isinstance(value, list) else None


def finite_number_in(action: Action, key: str) -> int | float | None:
    """The number at `key`, or None when there is none or it is not finite."""
    value = action.get(key)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return value if isinstance(value, int) or math.isfinite(value) else None


def objects(items: Iterable[Any] | None) -> list[dict[str, Any]]:
    """Those items that are objects."""
    return [item for item in items or () if isinstance(item, dict)]


def index_of(items: list[Any], key: str, value: str) -> int:
    """Where the first object with `value` at `key` stands, or -1."""
    for index, item in enumerate(items):
        if isinstance(item, dict) and item.get(key) == value:
            return index
    return -1


def replaced(items: list[Any], index: int, item: Any) -> list[Any]:
    """A copy of `items` with another one at `index`."""
    after = items.copy()
    after[index] = item
    return after


def removed(items: list[Any], index: int) -> list[Any]:
    """A copy of `items` without the one at `index`."""
    return [*items[:index], *items[index + 1 :]]


def upserted(items: list[Any], key: str, item: dict[str, Any]) -> list[Any]:
    """A copy with `item` in the place of the one that has its `key`, else at the end."""
    index = index_of(items, key, item[key])
    return [*items, item] if index < 0 else replaced(items, index, item)


def set_from(key: str, kind: type) -> Rule:
    """The rule that takes a required member over as it is; of another type, nothing happens."""

    def rule(state: State, action: Action) -> State:
        value = action.get(key)
        if not isinstance(value, kind) or (kind is not bool and isinstance(value, bool)):
            return state
        return {**state, key: value}

    return rule


def set_or_clear_from(key: str, kind: type) -> Rule:
    """The rule that takes an optional member over, and clears it when the action has none."""

    def rule(state: State, action: Action) -> State:
        value = action.get(key)
        if value is None:
            return without_member(state, key)
        return {**state, key: value} if isinstance(value, kind) else state

    return rule


def flag_from(key: str, flag: int) -> Rule:
    """The rule that sets or clears one flag of the status."""

    def rule(state: State, action: Action) -> State:
        on = action.get(key)
        if not isinstance(on, bool):
            return state
        return {**state, "status": with_flag(status_of(state), flag, on)}

    return rule


def merge_configuration(state: State, action: Action) -> State:
    """`configChanged` of root and session: merges values, or replaces them all."""
    configuration, changes = object_in(state, "config"), object_in(action, "config")
    if configuration is None or changes is None:
        return state
    before = {} if action.get("replace") is True else object_in(configuration, "values") or {}
    return {**state, "config": {**configuration, "values": {**before, **changes}}}


def add_working_directory(state: State, action: Action) -> State:
    """`workingDirectorySet` of session and chat: a set that keeps its order."""
    directory = text_in(action, "directory")
    folders = list_in(state, "workingDirectories") or []
    if directory is None or directory in folders:
        return state
    return {**state, "workingDirectories": [*folders, directory]}


def remove_working_directory(state: State, action: Action) -> State:
    """`workingDirectoryRemoved` of session and chat; the list stays when it becomes empty."""
    directory = text_in(action, "directory")
    folders = list_in(state, "workingDirectories") or []
    if directory is None or directory not in folders:
        return state
    return {**state, "workingDirectories": removed(folders, folders.index(directory))}
