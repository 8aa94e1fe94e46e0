"""What every test gets: folders of its own, and laws that hold on a slow machine too.

Helpers that only some tests need stand in modules of their own beside this one
and are imported by name (`tests` is on the path, see pyproject.toml).
"""

import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

# A law is not broken by a loaded machine. In CI hypothesis brings a profile of its
# own, without a deadline too, which repeats the same examples in each run.
hypothesis.settings.register_profile("repository", deadline=None)
if not os.environ.get("CI"):
    hypothesis.settings.load_profile("repository")

# A runner under `nohup` hands the ignored hang-up on to every program that a test
# starts, and a host that was started so is right to outlive one.
signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture
def state_dir() -> Iterator[Path]:
    """An empty folder for a host's state, gone after the test.

    Its path is short: a socket is made in it, whose path has at most 107 bytes,
    and pytest's `tmp_path` alone can take more.
    """
    path = Path(tempfile.mkdtemp(prefix="ahpd-", dir="/tmp"))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


@pytest.fixture(autouse=True)
def own_user_folders(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No test reads or writes the state or configuration of the person who runs it."""
    home = tmp_path_factory.getbasetemp() / "user"
    for variable, folder in (
        ("XDG_STATE_HOME", "state"),
        ("XDG_CONFIG_HOME", "config"),
        ("XDG_DATA_HOME", "data"),
        ("XDG_CACHE_HOME", "cache"),
        ("XDG_RUNTIME_DIR", "run"),
    ):
        monkeypatch.setenv(variable, str(home / folder))
