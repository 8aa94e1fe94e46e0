"""Commands about what a host keeps: export, import, backup, verify."""

import os
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .failures import BadInput, CommandFailed, NoHost
from .folders import absolute
from .options import state_dir_option
from .output import give_up_stdout, on_one_line

if TYPE_CHECKING:
    from ..store.interface import KeptSession

_FILE = click.Path(dir_okay=False, path_type=Path)

#: How many of the sessions that were meant a refusal lists.
MAX_LISTED = 10


@click.command(short_help="Write a session as JSON lines.")
@click.argument("id")
@click.option("-o", "--output", type=_FILE, metavar="FILE", help="Where to; it must be new.")
@state_dir_option
def export(id: str, output: Path | None, state_dir: Path) -> int:
    """Write a session as JSON lines, to FILE or to the standard output.

    ID is a session's id or URI, or the beginning of an id. A host may be running. The first
    line is the session, then come its chats, each followed by its turns; the last line
    counts them. `import` takes such a file in.
    """
    from ..store.transfer import export_lines

    kept = _read_session(state_dir, id)
    lines = export_lines(kept)
    if output is None:
        try:
            for line in lines:
                sys.stdout.buffer.write(line)
            sys.stdout.buffer.flush()
        except BrokenPipeError:
            give_up_stdout()
            return 1
        return 0
    try:
        # What was said is for its owner's eyes.
        descriptor = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with open(descriptor, "wb") as file:
            file.writelines(lines)
    except OSError as error:
        raise CommandFailed(f"Cannot write {output}: {error.strerror or error}.") from None
    turns = sum(len(chat.turns) for chat in kept.chats)
    click.echo(f"Wrote session {on_one_line(kept.record.id)} with {turns} turns to {output}.")
    return 0


@click.command(name="import", short_help="Take in a session that `export` wrote.")
@click.argument("file", type=_FILE)
@state_dir_option
def import_(file: Path, state_dir: Path) -> None:
    """Take in the session of a file that `export` wrote, with the ids that it has.

    It is read whole first, and refused whole with the line that is wrong. A running host
    shows the session at once.
    """
    from ...contracts.control_wire import FileNamed, Imported
    from .control import ControlClient

    try:
        with ControlClient.connect(state_dir) as host:
            told: Imported = host.ask(
                "host.import", FileNamed(path=str(absolute(file))), limit_s=None
            )
    except NoHost:
        told = _import_without_host(file, state_dir)
    click.echo(
        f"Took in session {on_one_line(told.session)}: {told.chats} chats, {told.turns} turns."
    )


@click.command(short_help="Copy everything that is kept to a new file.")
@click.argument("file", type=_FILE)
@state_dir_option
def backup(file: Path, state_dir: Path) -> None:
    """Copy everything that is kept to FILE, which must be new, also while a host is running.

    The copy is a database like `state.db` in the state directory, and is put back by
    putting it in its place while no host is running.
    """
    from ...contracts.control_wire import FileNamed, Nothing
    from .control import ControlClient

    try:
        with ControlClient.connect(state_dir) as host:
            told: Nothing = host.ask(
                "host.backup", FileNamed(path=str(absolute(file))), limit_s=None
            )
            assert told is not None
    except NoHost:
        _backup_without_host(file, state_dir)
    click.echo(f"Copied to {file}: {file.stat().st_size} bytes.")


@click.command(short_help="Say what of everything that is kept cannot be read.")
@state_dir_option
def verify(state_dir: Path) -> int:
    """Look through everything that is kept, and say what cannot be read. Changes nothing."""
    from ..store.upkeep import check_database

    wrong = check_database(_database(state_dir))
    for sentence in wrong:
        click.echo(on_one_line(sentence))
    if not wrong:
        click.echo("Everything that is kept can be read.")
    return 1 if wrong else 0


COMMANDS = (export, import_, backup, verify)


def _database(state_dir: Path) -> Path:
    from ..state_dir import DATABASE_FILE

    path = state_dir / DATABASE_FILE
    if not path.exists():
        raise BadInput(f"Nothing is kept in {state_dir}: there is no {DATABASE_FILE}.")
    return path


@contextmanager
def _connected(path: Path) -> Iterator[sqlite3.Connection]:
    """A connection that only reads, beside a host or without one."""
    from ..store.schema import WrongDatabase, check_version
    from ..store.upkeep import connect

    try:
        with closing(connect(path)) as connection:
            connection.execute("PRAGMA query_only = ON")
            check_version(connection)
            yield connection
    except WrongDatabase as error:
        raise CommandFailed(f"{path} {error}.") from None
    except sqlite3.Error as error:
        raise CommandFailed(f"Cannot read {path}: {error}.") from None


def _read_session(state_dir: Path, given: str) -> "KeptSession":
    from ...contracts.ahp.uris import parse_channel
    from ..store.interface import Unreadable
    from ..store.rows import read_session

    name = parse_channel(given) if ":" in given else None
    wanted = name.id if name is not None else given
    with _connected(_database(state_dir)) as connection:
        ids = [id for (id,) in connection.execute("SELECT id FROM sessions ORDER BY id")]
        found = [id for id in ids if id == wanted] or [id for id in ids if id.startswith(wanted)]
        if not wanted or not found:
            raise CommandFailed(f"There is no session {on_one_line(given, 200)!r}.")
        if len(found) > 1:
            listed = ", ".join(on_one_line(id, 80) for id in found[:MAX_LISTED])
            raise CommandFailed(f"{on_one_line(given, 80)!r} may be {listed}.")
        try:
            kept = read_session(connection, found[0])
        except Unreadable as error:
            raise CommandFailed(str(error)) from None
    if kept is None:
        raise CommandFailed(f"There is no session {on_one_line(given, 200)!r}.")
    for why in kept.unreadable.values():
        click.echo(f"{on_one_line(why)} It is left out.", err=True)
    return kept


@contextmanager
def _held(state_dir: Path) -> Iterator[Path]:
    """The database of a state directory on which no host runs, nor can start meanwhile."""
    from ..state_dir import DATABASE_FILE, StateDirError, hold_state_dir

    try:
        with hold_state_dir(state_dir) as held:
            yield held.path / DATABASE_FILE
    except StateDirError as error:
        raise CommandFailed(f"{str(error)[:1].upper()}{str(error)[1:]}.") from None


def _import_without_host(file: Path, state_dir: Path) -> Any:
    import trio

    from ...contracts.control_wire import Imported
    from ..store.interface import StoreError
    from ..store.sqlite import SqliteStore
    from ..store.transfer import ImportRefused, put_session, read_export_file

    async def take_in(database: Path) -> Imported:
        kept = read_export_file(file)
        store = SqliteStore(database)
        opened = await store.open()
        try:
            taken = {row.id for row in opened.sessions}
            taken |= {name for row in opened.chats for name in (row.id, row.uri)}
            chats = [name for one in kept.chats for name in (one.record.id, one.record.uri)]
            for name in (kept.record.id, *chats):
                if name in taken:
                    raise ImportRefused(f"there is {name} already")
            put_session(store, kept)
        finally:
            await store.close()
        turns = sum(len(chat.turns) for chat in kept.chats)
        return Imported(session=kept.record.id, chats=len(kept.chats), turns=turns)

    try:
        with _held(state_dir) as database:
            return trio.run(take_in, database)
    except (ImportRefused, StoreError) as error:
        said = str(error)
        raise CommandFailed(f"{said[:1].upper()}{said[1:]}.") from None


def _backup_without_host(file: Path, state_dir: Path) -> None:
    from ..store.interface import StoreError
    from ..store.upkeep import copy_database

    with _connected(_database(state_dir)) as connection:
        try:
            copy_database(connection, file)
        except StoreError as error:
            said = str(error)
            raise CommandFailed(f"{said[:1].upper()}{said[1:]}.") from None
