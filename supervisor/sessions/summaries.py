"""Summaries: a chat's row in its session, a session's row in the list, and a status from many.

Pure. A catalogue entry, a summary and the channel's own state never disagree,
because each is projected from the state here and nowhere else.
"""

from collections.abc import Iterable
from typing import Any

from ...contracts.ahp.status import (
    ERROR,
    IDLE,
    IN_PROGRESS,
    INPUT_NEEDED,
    is_error,
    is_in_progress,
    is_input_needed,
)
from ...contracts.json import same_json

Json = dict[str, Any]

#: `ChatSummary`'s members that are also `ChatState`'s.
CHAT_FIELDS = (
    "resource",
    "title",
    "status",
    "activity",
    "modifiedAt",
    "origin",
    "interactivity",
    "workingDirectories",
)

#: `SessionSummary`'s members that are also `SessionState`'s.
SESSION_FIELDS = (
    "provider",
    "title",
    "status",
    "activity",
    "project",
    "workingDirectories",
    "annotations",
    "_meta",
)

#: Never among the changes of a summary.
IDENTITY_FIELDS = frozenset({"resource", "provider", "createdAt"})


def chat_summary(state: Json) -> Json:
    """A chat's entry in its session's catalogue."""
    return {key: state[key] for key in CHAT_FIELDS if key in state}


def session_summary(state: Json, *, resource: str, created_at: str, modified_at: str) -> Json:
    """A session's entry in the list; `state` carries the derived status already."""
    summary = {key: state[key] for key in SESSION_FIELDS if key in state}
    return {
        **summary,
        "resource": resource,
        "createdAt": created_at,
        "modifiedAt": modified_at,
    }


def derived_activity(chats: Iterable[Json]) -> int:
    """The low status bits of a session, from its chats: who needs a person comes first."""
    statuses = [chat["status"] for chat in chats]
    if any(map(is_input_needed, statuses)):
        return INPUT_NEEDED
    if any(map(is_in_progress, statuses)):
        return IN_PROGRESS
    return ERROR if any(map(is_error, statuses)) else IDLE


def shown_activity(chats: Iterable[Json], default_chat: str | None) -> str | None:
    """What a session says it does: its default chat's words, else another chat's that has some."""
    rows = sorted(chats, key=lambda chat: chat["resource"] != default_chat)
    return next((row["activity"] for row in rows if row.get("activity")), None)


def changed_fields(old: Json, new: Json) -> Json:
    """What a summary's change carries: the fields that are other now.

    A field that is gone is said as empty, since the protocol's partial summary
    has no word for absent and null is no value of it.
    """
    changes = {
        key: value
        for key, value in new.items()
        if key not in IDENTITY_FIELDS and not (key in old and same_json(old[key], value))
    }
    for key in old.keys() - new.keys() - IDENTITY_FIELDS:
        changes[key] = [] if isinstance(old[key], list) else "" if isinstance(old[key], str) else {}
    return changes
