"""Absent is absent: a member that is null where its shape means "not there" is left out.

An agent or a client that says `null` means absent, and is taken so. But what
goes on from here must not say null: a reducer that asks whether a member is
there (`chat/truncated` without a turn clears everything) would take null for a
value, and clients would come apart. Pure.
"""

from typing import Any, Final

#: Members whose inside is anybody's JSON, in which null is a value like another.
FREE_FORM: Final = frozenset(
    {
        "_meta",
        "config",
        "configSchema",
        "default",
        "inputSchema",
        "mcpApp",
        "outputSchema",
        "structuredContent",
    }
)


def without_nulls(value: Any) -> Any:
    """The same JSON without members that are null; the very value when there is none.

    Elements of arrays stay, and so does what stands inside `FREE_FORM`.
    """
    if isinstance(value, dict):
        return _members(value)
    if isinstance(value, list):
        items = [without_nulls(item) for item in value]
        return items if any(a is not b for a, b in zip(items, value, strict=True)) else value
    return value


def _members(value: dict[str, Any]) -> dict[str, Any]:
    kept: dict[str, Any] = {}
    changed = False
    for key, item in value.items():
        if item is None:
            changed = True
            continue
        inner = item
        if isinstance(item, (dict, list)) and key not in FREE_FORM:
            inner = without_nulls(item)
            changed = changed or inner is not item
        kept[key] = inner
    return kept if changed else value
