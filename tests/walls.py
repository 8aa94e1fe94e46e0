"""The walls between the rooms: what each may import, and what a module's source breaks.

Pure: a path and a source in, sentences out. `test_walls.py` holds every module of
the repository against it. What a rule is for stands beside it, since whoever
meets one first reads it here.
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import PurePosixPath

from attrs import field, frozen


@frozen(kw_only=True)
class Room:
    """One folder at the top, installed as `ahpd.<name>`."""

    name: str
    #: Which other rooms its modules may import.
    rooms: frozenset[str]
    #: Top-level names of the libraries it may import; None: every runtime dependency.
    libraries: frozenset[str] | None
    #: Modules of the standard library it may not import, each with the reason.
    refused: dict[str, str] = field(factory=dict)
    #: Functions it may not call, as they are written, each with the reason.
    uncalled: dict[str, str] = field(factory=dict)


_PURE = frozenset({"attrs", "attr", "cattrs", "msgspec"})

_IO = "contracts do no I/O"
_CLOCK = "contracts have no clock: the caller says what time it is"
_CHANCE = "contracts answer the same to the same input"
_TASKS = "contracts start nothing and wait for nothing"

_IMPURE_MODULES = {
    **dict.fromkeys(
        (
            "os", "pathlib", "shutil", "tempfile", "glob", "fileinput", "mmap", "fcntl",
            "socket", "socketserver", "ssl", "select", "selectors", "http", "ftplib", "smtplib",
            "urllib.request", "xmlrpc", "sqlite3", "dbm", "shelve", "logging", "syslog",
            "getpass", "pty", "tty", "termios", "curses", "readline",
        ),
        _IO,
    ),
    **dict.fromkeys(("time", "sched", "timeit"), _CLOCK),
    **dict.fromkeys(("random", "secrets", "uuid"), _CHANCE),
    **dict.fromkeys(
        (
            "asyncio", "threading", "_thread", "concurrent", "multiprocessing", "subprocess",
            "signal", "queue", "contextvars", "atexit", "gc", "resource", "ctypes",
        ),
        _TASKS,
    ),
    **dict.fromkeys(("importlib", "runpy", "pkgutil", "code"), "contracts load no code"),
}  # fmt: skip

_IMPURE_CALLS = {
    **dict.fromkeys(("open", "print", "input", "breakpoint"), _IO),
    **dict.fromkeys(
        (
            "datetime.now", "datetime.utcnow", "datetime.today", "date.today",
            "datetime.datetime.now", "datetime.datetime.utcnow", "datetime.datetime.today",
            "datetime.date.today",
        ),
        _CLOCK,
    ),
    **dict.fromkeys(("exec", "eval", "compile", "__import__"), "contracts load no code"),
}  # fmt: skip

_NO_AGENT_CODE = "the supervisor runs no agent's code; whatever loads by name could"

ROOMS = {
    room.name: room
    for room in (
        Room(
            name="contracts",
            rooms=frozenset(),
            # `regex` splits grapheme clusters, for the chats; no worker pays for it.
            libraries=_PURE | {"regex"},
            refused=_IMPURE_MODULES,
            uncalled=_IMPURE_CALLS,
        ),
        # Every conversation pays for what its process imports.
        Room(name="worker", rooms=frozenset({"contracts"}), libraries=_PURE | {"trio"}),
        Room(
            name="supervisor",
            rooms=frozenset({"contracts"}),
            libraries=None,
            refused=dict.fromkeys(
                (
                    "importlib", "importlib.abc", "importlib.machinery", "importlib.util",
                    "runpy", "pkgutil", "code", "zipimport", "multiprocessing",
                ),
                _NO_AGENT_CODE,
            ),
            uncalled=dict.fromkeys(("exec", "eval", "__import__"), _NO_AGENT_CODE),
        ),
        Room(
            name="agents",
            rooms=frozenset({"contracts", "worker"}),
            libraries=frozenset({"trio"}),
        ),
    )
}  # fmt: skip

#: The keeper, which other processes depend on while everything else fails: its
#: modules import the standard library and each other, and are started without the
#: environment's packages.
KEEPER = frozenset(
    {
        "ahpd.supervisor.processes.keeper",
        "ahpd.supervisor.processes.forking",
        "ahpd.supervisor.processes.kernel",
        "ahpd.supervisor.processes.reaper",
    }
)

#: What a room may import of a refused module all the same: it reads metadata, no code.
_READS_ONLY = {"supervisor": frozenset({"importlib.metadata", "importlib.resources"})}


@frozen
class Import:
    """A module that an import statement reaches, with the line it stands on."""

    module: str
    line: int
    #: How many dots the statement has: 0 for an absolute one.
    dots: int = 0


def imports_of(path: PurePosixPath, tree: ast.Module) -> Iterator[Import]:
    """Every import in the module at `path`, wherever it stands, by its absolute name.

    `from a import b` is told as `a.b`, since `b` may be a module; relative ones are
    resolved under `ahpd`. One that climbs out of `ahpd` is told as `..`.
    """
    package = ["ahpd", *path.parts[:-1]]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(alias.name, node.lineno)
        elif isinstance(node, ast.ImportFrom):
            base = node.module.split(".") if node.module else []
            if node.level:
                kept = len(package) - (node.level - 1)
                if kept < 1:
                    yield Import("..", node.lineno, node.level)
                    continue
                base = package[:kept] + base
            for alias in node.names:
                yield Import(".".join([*base, alias.name]), node.lineno, node.level)


def calls_of(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Every call of a plain or dotted name, as it is written, with its line."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute):
            yield ast.unparse(node.func), node.lineno


def broken_walls(path: PurePosixPath, source: str, dependencies: frozenset[str]) -> list[str]:
    """What the module breaks, a sentence each, with the line; empty when nothing.

    Args:
        path: the module's path from the top of the repository, its room first.
        source: its text.
        dependencies: the runtime dependencies, by the names they are imported by.
    """
    room = ROOMS[path.parts[0]]
    alone = ".".join(("ahpd", *path.with_suffix("").parts)) in KEEPER
    tree = ast.parse(source)
    broken = [
        f"{path}:{found.line}: {why}"
        for found in imports_of(path, tree)
        if (why := _import_broken(room, found, alone, dependencies)) is not None
    ]
    for name, line in calls_of(tree):
        if name in room.uncalled:
            broken.append(f"{path}:{line}: calls {name}: {room.uncalled[name]}")
    return broken


def _import_broken(
    room: Room, found: Import, alone: bool, dependencies: frozenset[str]
) -> str | None:
    top, _, rest = found.module.partition(".")
    if found.module == "..":
        return "imports from outside of `ahpd`"
    if top == "ahpd":
        target = rest.split(".")[0]
        if alone and not KEEPER & {found.module, found.module.rpartition(".")[0]}:
            return f"imports {found.module}: the keeper is of the standard library alone"
        if not found.dots:
            return f"imports {found.module} absolutely; inside, imports are relative"
        if target != room.name and target not in room.rooms:
            return f"{room.name} imports {target}"
        return None
    if top in sys.stdlib_module_names:
        return _standard_broken(room, found.module)
    if alone:
        return f"imports {top}: the keeper is of the standard library alone"
    allowed = dependencies if room.libraries is None else room.libraries
    return None if top in allowed else f"{room.name} imports {top}"


def _standard_broken(room: Room, module: str) -> str | None:
    parts = module.split(".")
    for end in range(len(parts), 0, -1):
        prefix = ".".join(parts[:end])
        if prefix in _READS_ONLY.get(room.name, ()):
            return None
        if prefix in room.refused:
            return f"{room.name} imports {prefix}: {room.refused[prefix]}"
    return None
