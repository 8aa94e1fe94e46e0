"""The scripts refuse with a sentence, and a build sees the sources and nothing else."""

import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent
SCRIPT_LIMIT_S = 30
SCRIPTS = ("start", "test", "fuzz", "bench", "faults", "crash")


def run(
    *command: str | Path, folder: Path, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(part) for part in command],
        cwd=folder,
        env={**os.environ, **(environment or {})},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SCRIPT_LIMIT_S,
        check=False,
    )


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A repository with a space in its path, without git and without an environment."""
    root = tmp_path / "a check out"
    for folder in ("scripts", ".ci"):
        shutil.copytree(REPOSITORY / folder, root / folder)
    for room in ("contracts", "worker", "supervisor", "agents"):
        (root / room).mkdir()
        (root / room / "__init__.py").write_text(f'"""{room}"""\n')
    (root / "pyproject.toml").write_text("[project]\n")
    return root


def digest(root: Path, *copy: Path) -> str:
    done = run(sys.executable, root / "scripts" / "clean_copy.py", root, *copy, folder=root)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_ci_refuses_to_run_without_the_test_data(checkout: Path, tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    done = run(
        "bash", checkout / ".ci" / "run", folder=tmp_path, environment={"AHP_DATA": str(missing)}
    )
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        f".ci/run: AHP's test data is not in {missing}; set AHP_DATA to the folder that holds it"
    ]


@pytest.mark.parametrize("script", SCRIPTS)
def test_an_interpreter_that_is_none_is_refused_and_nothing_made(
    checkout: Path, tmp_path: Path, script: str
) -> None:
    nothing = tmp_path / "python"
    done = run(
        "bash", checkout / "scripts" / script, folder=tmp_path, environment={"PYTHON": str(nothing)}
    )
    assert done.returncode == 2
    assert done.stderr == f"scripts/{script}: PYTHON={nothing} is not Python 3.11 or later\n"
    assert done.stdout == ""
    assert not (checkout / ".venv").exists()


def test_a_wrong_interpreter_is_told_while_another_run_holds_the_environment(
    checkout: Path,
) -> None:
    descriptor = os.open(checkout, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        done = run(
            "bash", checkout / "scripts" / "start", folder=checkout, environment={"PYTHON": "/nope"}
        )
    finally:
        os.close(descriptor)
    assert done.returncode == 2
    assert done.stderr == "scripts/start: PYTHON=/nope is not Python 3.11 or later\n"


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_script_runs_by_another_shell_and_by_a_link(
    checkout: Path, tmp_path: Path, script: str
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    link = elsewhere / "link"
    link.symlink_to(checkout / "scripts" / script)
    for command in (["sh", link], ["sh", "link"], [link], ["bash", "./link"]):
        done = run(*command, folder=elsewhere, environment={"PYTHON": "/nope"})
        assert done.returncode == 2
        assert done.stderr == f"scripts/{script}: PYTHON=/nope is not Python 3.11 or later\n"


def test_a_clean_copy_leaves_behind_what_earlier_builds_and_runs_left(
    checkout: Path, tmp_path: Path
) -> None:
    for stale in ("build/lib/ahpd/worker/gone.py", "worker/__pycache__/gone.pyc", "notes.txt"):
        (checkout / stale).parent.mkdir(parents=True, exist_ok=True)
        (checkout / stale).write_text("stale")
    copy = tmp_path / "copy"
    digest(checkout, copy)
    assert sorted(str(path.relative_to(copy)) for path in copy.rglob("*") if path.is_file()) == [
        "agents/__init__.py",
        "contracts/__init__.py",
        "pyproject.toml",
        "supervisor/__init__.py",
        "worker/__init__.py",
    ]


def test_the_digest_changes_with_a_source_and_with_nothing_else(
    checkout: Path, tmp_path: Path
) -> None:
    before = digest(checkout)
    (checkout / "worker" / "__pycache__").mkdir()
    (checkout / "worker" / "__pycache__" / "main.pyc").write_text("compiled")
    assert digest(checkout) == before
    assert digest(checkout, tmp_path / "copy") == before

    (checkout / "worker" / "main.py").write_text("pass\n")
    added = digest(checkout)
    assert added != before

    (checkout / "worker" / "main.py").rename(checkout / "worker" / "port.py")
    assert digest(checkout) not in (before, added)
