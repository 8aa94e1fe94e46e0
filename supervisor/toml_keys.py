"""A TOML document's keys and values: checked one by one, and found again in its text.

Each check takes a value and its keys from the top of the document, and answers
the value or raises `WrongKey`, which knows the keys.
"""

import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

#: A value's place: the keys that lead to it from the top of the document.
Keys: TypeAlias = tuple[str, ...]


class WrongKey(Exception):
    """A value that is wrong, by its keys from the top of the document."""

    def __init__(self, keys: tuple[str, ...], what: str) -> None:
        super().__init__(keys, what)
        self.keys = keys
        self.what = what

    def sentence(self) -> str:
        """The dotted key, and what is wrong with its value."""
        return f"{'.'.join(map(spelled, self.keys))}: {self.what}" if self.keys else self.what


def check_keys(table: Mapping[str, Any], known: Iterable[str], keys: Keys) -> None:
    """No key of the table at `keys` but the known ones."""
    names = list(known)
    for name in table:
        if name not in names:
            raise WrongKey((*keys, name), f"there is no such key; there are {', '.join(names)}")


def table_of(value: Any, keys: Keys) -> dict[str, Any]:
    """A table."""
    if not isinstance(value, dict):
        raise WrongKey(keys, f"a table is needed, not {kind_of(value)}")
    return value


def list_of(value: Any, keys: Keys) -> list[Any]:
    """A list, whose items the caller checks."""
    if not isinstance(value, list):
        raise WrongKey(keys, f"a list of strings is needed, not {kind_of(value)}")
    return value


def string_of(value: Any, keys: Keys) -> str:
    """A string."""
    if not isinstance(value, str):
        raise WrongKey(keys, f"a string is needed, not {kind_of(value)}")
    return value


def boolean_of(value: Any, keys: Keys) -> bool:
    """True or false, and no number in their place."""
    if not isinstance(value, bool):
        raise WrongKey(keys, f"true or false is needed, not {kind_of(value)}")
    return value


def integer_of(value: Any, keys: Keys) -> int:
    """A whole number."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise WrongKey(keys, f"a whole number is needed, not {kind_of(value)}")
    return value


def port_of(value: Any, keys: Keys) -> int:
    """A TCP port, or 0 for a free one."""
    if not 0 <= integer_of(value, keys) <= 65535:
        raise WrongKey(keys, f"a port is needed (0 to 65535), not {value}")
    return int(value)


def path_of(value: Any, keys: Keys, folder: Path) -> Path:
    """A path, `~` expanded, relative to `folder`."""
    text = string_of(value, keys)
    if not text or "\0" in text:
        raise WrongKey(keys, "a path is needed")
    try:
        return folder / Path(text).expanduser()
    except RuntimeError as error:
        raise WrongKey(keys, str(error)) from None


def kind_of(value: Any) -> str:
    """What a value is, in words."""
    kinds = {bool: "true or false", int: "a whole number", float: "a number", str: "a string"}
    return {**kinds, list: "a list", dict: "a table"}.get(type(value), "a date or a time")


def spelled(key: str) -> str:
    """A key as TOML spells it."""
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else f'"{key}"'


def value_or_text(text: str) -> Any:
    """The TOML value that `text` spells, or `text` itself when it spells none."""
    try:
        document = tomllib.loads(f"value = {text}")
    except (tomllib.TOMLDecodeError, RecursionError):
        return text
    # A value with a newline could be a whole document.
    return document["value"] if set(document) == {"value"} and "\n" not in text else text


def syntax_sentence(path: Path, text: str, error: tomllib.TOMLDecodeError) -> str:
    """What is wrong with the document, with the line and, where known, the column."""
    what = str(error)
    found = re.search(r" \(at line (\d+), column (\d+)\)$", what)
    if found:
        return f"{path}, line {found[1]}, column {found[2]}: {what[: found.start()]}"
    what = what.removesuffix(" (at end of document)")
    return f"{path}, line {text.rstrip().count(chr(10)) + 1}: {what}"


def line_of(text: str, keys: Keys) -> int | None:
    """The line on which a key of a TOML document stands; None when it is not easily found.

    Reads headers and `key = …` at the beginning of a line, as people write them.
    """
    header: Keys = ()
    nearest = None
    for number, line in enumerate(text.splitlines(), 1):
        bare = line.strip()
        if found := re.match(r"\[([^\[\]]+)\]", bare):
            header = _split_key(found[1])
            here = header
        elif found := re.match(r"""((?:[A-Za-z0-9_.\s-]|"[^"]*"|'[^']*')+)=""", bare):
            here = header + _split_key(found[1])
        else:
            continue
        if here == keys:
            return number
        # A key inside of an inline table, or a table named by its first child alone.
        if here and (here == keys[: len(here)] or here[: len(keys)] == keys):
            nearest = number
    return nearest


def _split_key(text: str) -> Keys:
    parts = re.findall(r"""[A-Za-z0-9_-]+|"[^"]*"|'[^']*'""", text)
    return tuple(part.strip("\"'") for part in parts)
