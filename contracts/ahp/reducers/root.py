"""Reduces the root channel: agents, count of active sessions, terminals, host configuration."""

from collections.abc import Mapping
from typing import Final

from .steps import Action, Rule, State, finite_number_in, merge_configuration, reducer_of, set_from


def _active_sessions_changed(state: State, action: Action) -> State:
    count = finite_number_in(action, "activeSessions")
    return state if count is None else {**state, "activeSessions": count}


_RULES: Final[Mapping[str, Rule]] = {
    "root/agentsChanged": set_from("agents", list),
    "root/activeSessionsChanged": _active_sessions_changed,
    "root/terminalsChanged": set_from("terminals", list),
    "root/configChanged": merge_configuration,
}

reduce_root = reducer_of(_RULES)
