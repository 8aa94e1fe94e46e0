"""The database as a whole: looked through, and copied while it is in use."""

import os
import sqlite3
from pathlib import Path

from .interface import StoreError, Unreadable
from .rows import read_session

#: Waiting for a lock: another program may look into the database for a moment.
BUSY_S = 5.0


def connect(path: Path) -> sqlite3.Connection:
    """A connection to a database, without transactions of its own; for one thread at a time."""
    connection = sqlite3.connect(
        path, timeout=BUSY_S, isolation_level=None, check_same_thread=False
    )
    # What a broken or foreign file may hold is not run.
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.execute("PRAGMA cell_size_check = ON")
    return connection


def check_database(path: Path) -> list[str]:
    """Looks at the whole of a database without changing it; what is wrong, a sentence each."""
    try:
        connection = connect(path)
        try:
            connection.execute("PRAGMA query_only = ON")
            said = [row[0] for row in connection.execute("PRAGMA integrity_check")]
            wrong = [f"SQLite says: {line}" for line in said if line != "ok"]
            ids = [id for (id,) in connection.execute("SELECT id FROM sessions ORDER BY id")]
            for id in ids:
                try:
                    kept = read_session(connection, id)
                    wrong.extend(kept.unreadable.values() if kept is not None else ())
                except Unreadable as error:
                    wrong.append(str(error))
            return wrong
        finally:
            connection.close()
    except sqlite3.Error as error:
        return [f"The database {path} cannot be read: {error}."]


def copy_database(connection: sqlite3.Connection, path: Path) -> None:
    """Copies the whole of a database, as it was last committed, into a new file.

    Raises:
        StoreError: the file is there already, or cannot be written.
    """
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except OSError as error:
        raise StoreError(f"cannot make {path}: {error.strerror or error}") from None
    try:
        target = sqlite3.connect(path, isolation_level=None)
        try:
            connection.backup(target)
            # A copy is one file: it needs no log beside it.
            target.execute("PRAGMA journal_mode = DELETE")
        finally:
            target.close()
    except sqlite3.Error as error:
        path.unlink(missing_ok=True)
        raise StoreError(f"cannot write {path}: {error}") from None
