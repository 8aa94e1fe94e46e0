"""The state directory: where it is, whose it is, and who runs on it.

Files: `lock` (held by the running supervisor as long as it lives),
`supervisor.json` (its pid and addresses, for people and scripts), `token`,
`control.sock`, `state.db` (with its log beside it), `logs/`. The directory is for its owner alone.
"""

import fcntl
import json
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from attrs import frozen

LOCK_FILE = "lock"
RUNNING_FILE = "supervisor.json"
TOKEN_FILE = "token"
#: The database; its log and its index stand beside it while it is in use.
DATABASE_FILE = "state.db"

#: A file of ours is read no further than this.
MAX_FILE_BYTES = 64 * 1024

#: How long the one who has the lock may take to write its name down, until it is left out.
NAMING_LIMIT_S = 0.5

# The longest path in a `sockaddr_un` of Linux, its NUL apart.
_MAX_SOCKET_PATH_BYTES = 107


class StateDirError(Exception):
    """The state directory cannot be used; the message is one sentence for a person."""


def default_state_dir() -> Path:
    """This user's state directory, by XDG: `~/.local/state/ahpd-supervisor` unless told else.

    Raises:
        StateDirError: the user has no home folder.
    """
    from platformdirs import user_state_path

    try:
        path = user_state_path("ahpd-supervisor", appauthor=False)
    except RuntimeError:
        path = None
    # Of platformdirs' versions some refuse, and others leave `~` as it is.
    if path is None or not path.is_absolute():
        raise StateDirError(
            "There is no home folder to keep the state in: set HOME, "
            "or name a folder by --state-dir."
        )
    return path


def home_folder() -> str:
    """The home folder of the user as whom this runs, an absolute path; `/` for who has none."""
    home = os.path.expanduser("~")
    return home if os.path.isabs(home) else "/"


@frozen(kw_only=True)
class StateDir:
    """A state directory that this process holds. Made by `hold_state_dir`."""

    path: Path

    def announce(self, *, ahp: str) -> None:
        """Writes `supervisor.json`: who runs here, and where it listens (no token in it)."""
        said = {"pid": os.getpid(), "ahp": ahp}
        path = self.path / RUNNING_FILE
        fresh = path.with_name(RUNNING_FILE + ".new")
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(json.dumps(said) + "\n")
        os.replace(fresh, path)


@contextmanager
def hold_state_dir(path: Path) -> Iterator[StateDir]:
    """Makes the directory if it is missing, and holds it: nobody else runs on it meanwhile.

    The kernel lets go of the lock with the process, however that ends. The file
    stays: removing it would let two hold two files of one name.

    Raises:
        StateDirError: it cannot be made, is not ours alone, or is held by another supervisor.
    """
    try:
        path = path.absolute()
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        _close_to_others(path)
        descriptor = os.open(path / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise _unusable(path, error) from None
    try:
        try:
            _lock(path, descriptor)
        except OSError as error:
            raise _unusable(path, error) from None
        try:
            yield StateDir(path=path)
        finally:
            (path / RUNNING_FILE).unlink(missing_ok=True)
            os.ftruncate(descriptor, 0)
    finally:
        os.close(descriptor)


def read_own_token(path: Path) -> str | None:
    """The token by which this user steers the host of a state directory; None for none.

    For the command line, which only presents it; the host itself checks whose file it is.
    """
    try:
        with open(path / TOKEN_FILE, "rb") as file:
            return file.read(MAX_FILE_BYTES).decode("ascii").strip() or None
    except (OSError, UnicodeDecodeError):
        return None


@contextmanager
def socket_path(folder: Path, name: str) -> Iterator[str]:
    """A path by which a Unix socket in `folder` can be bound or connected to, however long it is.

    Raises:
        OSError: the folder is not there.
    """
    path = str(folder / name)
    if len(os.fsencode(path)) <= _MAX_SOCKET_PATH_BYTES:
        yield path
        return
    # The kernel copies the path, which may lead through a descriptor.
    descriptor = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{descriptor}/{name}"
    finally:
        os.close(descriptor)


def _close_to_others(path: Path) -> None:
    status = path.stat()
    if status.st_uid != os.geteuid():
        raise StateDirError(f"the state directory {path} belongs to another user")
    if status.st_mode & stat.S_ISVTX:
        raise StateDirError(f"{path} is a folder that users share: name one inside it")
    if stat.S_IMODE(status.st_mode) & 0o077:
        path.chmod(0o700)


def _unusable(path: Path, error: OSError) -> StateDirError:
    return StateDirError(f"cannot use the state directory {path}: {error.strerror or error}")


def _lock(path: Path, descriptor: int) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise StateDirError(_held_sentence(path, descriptor)) from None
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)


def _held_sentence(path: Path, descriptor: int) -> str:
    pid = _written_pid(descriptor)
    if pid is None:
        return f"the state directory {path} is in use by another supervisor"
    running = _read_json(path / RUNNING_FILE)
    address = running.get("ahp") if running.get("pid") == pid else None
    at = f", which listens at {address}" if isinstance(address, str) else ""
    return f"the state directory {path} is in use by the supervisor of process {pid}{at}"


def _written_pid(descriptor: int) -> int | None:
    deadline = time.monotonic() + NAMING_LIMIT_S
    while True:
        text = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip()
        if text.isdecimal():
            return int(text)
        if time.monotonic() > deadline:
            return None
        time.sleep(0.01)


def _read_json(path: Path) -> dict[str, Any]:
    try:
        with open(path, "rb") as file:
            value = json.loads(file.read(MAX_FILE_BYTES))
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}
