"""The database's schema, and the steps from each version of it to the next.

`PRAGMA user_version` says which version a file has. A step is never changed
once it was released: another one follows it. A database of a later version is
refused and left as it is.
"""

import sqlite3

#: Marks a file as ours (`PRAGMA application_id`): "ahpd".
APPLICATION_ID = 0x61687064

#: Each step makes the version of its place, counted from 1, out of the one before.
STEPS: tuple[str, ...] = (
    """
    CREATE TABLE facts (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;

    CREATE TABLE sessions (
        id TEXT NOT NULL PRIMARY KEY,
        modified_at TEXT NOT NULL,
        spelling TEXT NOT NULL,
        agent TEXT NOT NULL,
        created_at TEXT NOT NULL,
        titled_by_person INTEGER NOT NULL,
        default_chat TEXT NOT NULL,
        summary BLOB NOT NULL,
        state BLOB NOT NULL
    );
    CREATE INDEX sessions_by_change ON sessions (modified_at DESC, id DESC);

    -- A chat's place among its session's is the order of `number`.
    CREATE TABLE chats (
        number INTEGER PRIMARY KEY,
        id TEXT NOT NULL UNIQUE,
        session TEXT NOT NULL,
        uri TEXT NOT NULL,
        parent TEXT,
        tool_call_id TEXT,
        agent_id TEXT,
        rewind_at TEXT,
        queue_paused INTEGER NOT NULL,
        beside BLOB NOT NULL,
        turn_count INTEGER NOT NULL,
        running INTEGER NOT NULL,
        head BLOB NOT NULL
    );
    CREATE INDEX chats_by_session ON chats (session);
    CREATE INDEX chats_running ON chats (session) WHERE running;

    CREATE TABLE turns (
        chat TEXT NOT NULL,
        number INTEGER NOT NULL,
        body BLOB NOT NULL,
        PRIMARY KEY (chat, number)
    );

    -- The journal: actions since a chat's head was written. Empty but for running turns.
    CREATE TABLE actions (number INTEGER PRIMARY KEY, chat TEXT NOT NULL, body BLOB NOT NULL);
    CREATE INDEX actions_by_chat ON actions (chat, number);

    CREATE TABLE clients (
        id TEXT NOT NULL PRIMARY KEY,
        version TEXT NOT NULL,
        last_seen TEXT NOT NULL
    );
    """,
)

#: The version that this program writes.
SCHEMA_VERSION = len(STEPS)


class WrongDatabase(Exception):
    """The database is not ours, or is of a later version; the message follows its path."""


def bring_up_to_date(connection: sqlite3.Connection) -> None:
    """Makes the schema, or takes the steps that a database of an earlier version lacks.

    All of it is one transaction: a step that fails leaves the database as it was.

    Args:
        connection: without transactions of its own (`isolation_level=None`).

    Raises:
        WrongDatabase: it is another program's, or of a later version.
        sqlite3.Error: it cannot be read or written.
    """
    version = check_version(connection)
    if version == SCHEMA_VERSION:
        return
    connection.execute("BEGIN EXCLUSIVE")
    try:
        for step in STEPS[version:]:
            for statement in step.split(";\n"):
                connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def check_version(connection: sqlite3.Connection) -> int:
    """The version of a database; 0 for one in which nothing is yet.

    Raises:
        WrongDatabase: it is another program's, or of a later version.
        sqlite3.Error: it cannot be read.
    """
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    if application == 0 and version == 0 and tables == 0:
        return 0
    if application != APPLICATION_ID or version < 1:
        raise WrongDatabase("is no database of this program")
    if version > SCHEMA_VERSION:
        raise WrongDatabase(
            f"was written by a later version of this program (its schema is {version}, this one "
            f"knows {SCHEMA_VERSION})"
        )
    return int(version)
