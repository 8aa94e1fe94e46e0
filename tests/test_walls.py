"""The rooms keep their walls, and what is installed is what stands in the folders."""

import ast
import importlib.metadata
import importlib.util
import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import pytest

from walls import KEEPER, ROOMS, broken_walls

REPOSITORY = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
DISTRIBUTION = "ahpd-supervisor"
IMPORT_LIMIT_S = 60


def files_of(folder: str) -> Iterator[PurePosixPath]:
    """Paths of a folder's files from the top of the repository, caches left out."""
    for path in sorted((REPOSITORY / folder).rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            yield PurePosixPath(path.relative_to(REPOSITORY).as_posix())


def modules_of(folder: str) -> list[PurePosixPath]:
    return [path for path in files_of(folder) if path.suffix == ".py"]


def import_name(path: PurePosixPath) -> str:
    parts = path.with_suffix("").parts
    return ".".join(("ahpd", *(parts[:-1] if parts[-1] == "__init__" else parts)))


def runtime_dependencies() -> frozenset[str]:
    """What pyproject.toml names, as it is imported: each is spelled so but for the dashes."""
    names = (re.match(r"[A-Za-z0-9._-]+", line) for line in PROJECT["project"]["dependencies"])
    return frozenset(name[0].replace("-", "_") for name in names if name)


def broken_in(path: str, source: str) -> list[str]:
    return broken_walls(PurePosixPath(path), source, runtime_dependencies())


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_imports_only_what_its_walls_let_through(room: str) -> None:
    modules = modules_of(room)
    assert modules, f"{room} has no modules"
    broken = [
        sentence
        for path in modules
        for sentence in broken_in(str(path), (REPOSITORY / path).read_text())
    ]
    assert broken == []


@pytest.mark.parametrize("room", ROOMS)
def test_importing_a_whole_room_loads_no_room_behind_a_wall(room: str) -> None:
    """Whatever the source says: what is in memory afterwards is what counts."""
    names = [import_name(path) for path in modules_of(room) if path.stem != "__main__"]
    program = (
        "import importlib, sys\n"
        "for name in sys.argv[1:]: importlib.import_module(name)\n"
        "print(*sorted({n.split('.')[1] for n in sys.modules if n.startswith('ahpd.')}))"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", program, *names],
        capture_output=True,
        text=True,
        timeout=IMPORT_LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert set(done.stdout.split()) <= {room, *ROOMS[room].rooms}


def test_the_modules_of_the_keeper_stand_where_the_walls_look_for_them() -> None:
    assert set(map(import_name, modules_of("supervisor"))) >= KEEPER


@pytest.mark.parametrize(
    ("path", "source", "sentence"),
    [
        ("contracts/x.py", "import trio", "contracts imports trio"),
        ("contracts/x.py", "from os import path", "contracts imports os: contracts do no I/O"),
        ("contracts/x.py", "import urllib.request", "contracts imports urllib.request"),
        (
            "contracts/x.py",
            "def f():\n    import time",
            "contracts imports time: contracts have no",
        ),
        ("contracts/x.py", "from datetime import datetime\ndatetime.now()", "calls datetime.now"),
        ("contracts/x.py", "open('state')", "calls open"),
        ("contracts/ahp/x.py", "from ...worker import main", "contracts imports worker"),
        ("contracts/ahp/x.py", "from ... import worker", "contracts imports worker"),
        ("contracts/x.py", "from ...secrets import token", "imports from outside of `ahpd`"),
        ("contracts/x.py", "import ahpd.contracts.frames", "absolutely; inside, imports are"),
        ("worker/x.py", "from ..supervisor import host", "worker imports supervisor"),
        ("worker/x.py", "import structlog", "worker imports structlog"),
        ("worker/x.py", "from ahpd.contracts import frames", "absolutely; inside, imports are"),
        ("supervisor/x.py", "from ..worker import main", "supervisor imports worker"),
        ("supervisor/x.py", "if TYPE_CHECKING:\n    from ..agents import echo", "imports agents"),
        ("supervisor/x.py", "from agents import echo", "supervisor imports agents"),
        ("supervisor/x.py", "import requests", "supervisor imports requests"),
        ("supervisor/x.py", "from importlib import import_module", "runs no agent's code"),
        ("supervisor/x.py", "import importlib.metadata, importlib.util", "importlib.util: the"),
        ("supervisor/x.py", "__import__('ahpd.agents')", "calls __import__"),
        ("supervisor/processes/keeper.py", "import trio", "the standard library alone"),
        ("supervisor/processes/keeper.py", "from . import launcher", "the standard library alone"),
        ("supervisor/processes/kernel.py", "from ...contracts import json", "library alone"),
        ("agents/x.py", "from ..supervisor import host", "agents imports supervisor"),
        ("agents/x.py", "import msgspec", "agents imports msgspec"),
    ],
)
def test_an_import_through_a_wall_is_told(path: str, source: str, sentence: str) -> None:
    told = broken_in(path, source)
    assert len(told) == 1
    assert sentence in told[0]
    assert told[0].startswith(f"{path}:{len(source.splitlines())}: ")


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("contracts/ahp/x.py", "import attrs, cattrs, msgspec\nfrom ..frames import Request"),
        ("contracts/x.py", "from urllib.parse import quote\nfrom datetime import datetime"),
        ("worker/x.py", "import os, time, trio\nfrom ..contracts.frames import Request"),
        ("supervisor/cli/x.py", "import click\nfrom importlib.metadata import entry_points"),
        ("supervisor/cli/x.py", "from importlib import metadata\nfrom ...contracts import frames"),
        ("supervisor/processes/keeper.py", "import ctypes, os\nfrom .kernel import prctl"),
        ("supervisor/processes/forking.py", "from . import kernel"),
        ("agents/x.py", "import trio\nfrom ..worker import kit\nfrom ..contracts import frames"),
    ],
)
def test_an_import_inside_the_walls_passes(path: str, source: str) -> None:
    assert broken_in(path, source) == []


@pytest.mark.parametrize("folder", [*ROOMS, "scripts", "tests"])
def test_each_module_first_says_what_it_is_about(folder: str) -> None:
    silent = [
        str(path)
        for path in modules_of(folder)
        if not (ast.get_docstring(ast.parse((REPOSITORY / path).read_text())) or "").strip()
    ]
    assert silent == []


def test_pyproject_lists_every_package_and_each_folder_is_one() -> None:
    folders = {path.parent for room in ROOMS for path in modules_of(room)}
    assert {str(f) for f in folders if not (REPOSITORY / f / "__init__.py").is_file()} == set()
    listed = PROJECT["tool"]["setuptools"]["packages"]
    assert sorted(listed) == sorted(".".join(("ahpd", *folder.parts)) for folder in folders)


def test_ahpd_is_a_namespace_that_other_distributions_may_join() -> None:
    assert not (REPOSITORY / "ahpd").exists()
    spec = importlib.util.find_spec("ahpd")
    assert spec is not None
    assert spec.origin is None


def test_every_room_says_that_it_is_typed() -> None:
    assert [room for room in ROOMS if not (REPOSITORY / room / "py.typed").is_file()] == []


def test_what_is_installed_is_what_stands_in_the_folders() -> None:
    """File for file and byte for byte: else the tests would test something else."""
    distribution = importlib.metadata.distribution(DISTRIBUTION)
    origin = json.loads(distribution.read_text("direct_url.json") or "{}")
    if origin.get("dir_info", {}).get("editable"):
        pytest.skip("an editable install runs the folders themselves")
    installed = {
        PurePosixPath(*path.parts[1:]): Path(path.locate()).read_bytes()
        for path in distribution.files or ()
        if path.parts[0] == "ahpd" and path.suffix != ".pyc"
    }
    standing = {path: (REPOSITORY / path).read_bytes() for room in ROOMS for path in files_of(room)}
    assert sorted(map(str, installed)) == sorted(map(str, standing))
    changed = [str(path) for path, content in standing.items() if installed[path] != content]
    assert changed == [], "installed before these were changed; scripts/test installs them"
