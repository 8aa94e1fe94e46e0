"""Commands that look at a running host and steer it: status, stop, ps, kill, restart, logs."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from .failures import CommandFailed
from .options import json_option, state_dir_option
from .output import age, as_json, on_one_line, printable, shortened, size, table

if TYPE_CHECKING:
    from attrs import AttrsInstance

    from ...contracts.control_wire import Processes, Status, WorkerRow
    from .control import ControlClient

#: How long a host that was told to stop is waited for: what it takes at most, and some more.
STOP_LIMIT_S = 30

#: The widest that a column of free text becomes.
TEXT_CELLS = 40

ID_HELP = "ID is a session's or chat's id or URI, or the beginning of an id."


@click.command()
@state_dir_option
@json_option
def status(state_dir: Path, as_json: bool) -> None:
    """Say how the running host does."""
    from ...contracts.control_wire import Nothing

    with _connect(state_dir) as host:
        told: Status = host.ask("host.status", Nothing())
    click.echo(_json(told) if as_json else _status_text(told, state_dir))


@click.command(short_help="Stop the running host.")
@state_dir_option
def stop(state_dir: Path) -> None:
    """Stop the running host: turns end as interrupted, workers and connections are ended."""
    from ...contracts.control_wire import Nothing
    from .control import watched_process

    with _connect(state_dir) as host, watched_process(host.host_pid) as process:
        pid = host.host_pid
        host.ask("host.stop", Nothing())
        if not process.poll(STOP_LIMIT_S * 1000):
            raise CommandFailed(
                f"The host (process {pid}) was told to stop {STOP_LIMIT_S} s ago and still runs."
            )
    click.echo(f"The host (process {pid}) has stopped.")


@click.command(short_help="List the workers.")
@state_dir_option
@json_option
def ps(state_dir: Path, as_json: bool) -> None:
    """List the workers: a row a process that runs an agent.

    MEMORY and CPU are of the worker and everything it started. An id is shown by its
    beginning when it is long; `kill`, `restart`, `logs` and `chat` take it so.
    """
    from ...contracts.control_wire import Nothing

    with _connect(state_dir) as host:
        told: Processes = host.ask("host.processes", Nothing())
    click.echo(_json(told.workers) if as_json else _rows_text(told.workers))


@click.command(
    short_help="End a session, or one chat of it, with all its processes.", epilog=ID_HELP
)
@click.argument("id")
@state_dir_option
@json_option
def kill(id: str, state_dir: Path, as_json: bool) -> None:
    """End a session, or one chat of it, with every process that runs for it."""
    from ...contracts.control_wire import Killed, Named

    with _connect(state_dir) as host:
        killed: Killed = host.ask("host.kill", Named(id=id), limit_s=None)
    what = f"session {killed.session}" if killed.chat is None else f"chat {killed.chat}"
    said = f"Killed {on_one_line(what)}: {_count(killed.processes, 'process', 'processes')} ended."
    click.echo(_json(killed) if as_json else said)


@click.command(short_help="End a chat's process and keep its thread.", epilog=ID_HELP)
@click.argument("id")
@state_dir_option
@json_option
def restart(id: str, state_dir: Path, as_json: bool) -> None:
    """End a chat's process and keep its thread: the next message starts a new one."""
    from ...contracts.control_wire import Named, Restarted

    with _connect(state_dir) as host:
        done: Restarted = host.ask("host.restart", Named(id=id), limit_s=None)
    said = (
        f"Restarted chat {on_one_line(done.chat)}: "
        f"{_count(done.processes, 'process', 'processes')} ended; "
        "its next message starts a new one."
    )
    click.echo(_json(done) if as_json else said)


@click.command(
    short_help="Show what the processes of a chat printed.",
    epilog=ID_HELP + " An agent's name shows what it printed outside of any chat.",
)
@click.argument("id")
@click.option("-f", "--follow", is_flag=True, help="Go on with what is written from now on.")
@state_dir_option
def logs(id: str, follow: bool, state_dir: Path) -> None:
    """Show what the processes of a chat printed, and what the host noted about them."""
    from ...contracts.control_wire import LogEnded, Logs, LogTail

    with _connect(state_dir) as host:
        tail: LogTail = host.ask("host.logs", Logs(id=id, follow=follow))
        click.echo(printable(tail.text), nl=False)
        if not follow:
            if not tail.text:
                click.echo("Nothing was printed or noted yet.", err=True)
            return
        for told in host.events():
            if isinstance(told, LogEnded):
                click.echo("The chat is gone.", err=True)
                return
            click.echo(printable(told.text), nl=False)
    click.echo("The host has stopped.", err=True)


COMMANDS = (status, stop, ps, kill, restart, logs)


def _connect(state_dir: Path) -> "ControlClient":
    from .control import ControlClient

    return ControlClient.connect(state_dir)


def _json(value: "AttrsInstance | Sequence[AttrsInstance]") -> str:
    from attrs import asdict

    if isinstance(value, Sequence):
        return as_json([asdict(one) for one in value])
    return as_json(asdict(value))


def _status_text(told: "Status", state_dir: Path) -> str:
    agents = ", ".join(agent.name for agent in told.agents if agent.fault is None)
    keeper = "none at the moment" if told.keeper_pid is None else f"process {told.keeper_pid}"
    rows = [
        ("host", f"version {told.version}, process {told.pid}, up {age(told.uptime_s)}"),
        ("AHP", told.ahp),
        ("state", str(state_dir)),
        ("agents", agents or "none that can be used"),
        *(
            ("", f"{agent.name} cannot be used: {on_one_line(agent.fault)}")
            for agent in told.agents
            if agent.fault is not None
        ),
        (
            "serves",
            f"{_count(told.sessions, 'session')}, {_count(told.chats, 'chat')}, "
            f"{_count(told.connections, 'connection')}",
        ),
        ("workers", f"{told.workers}, their keeper is {keeper}"),
        ("memory", f"{size(told.memory_bytes)}, workers not counted"),
    ]
    return "\n".join(f"{name:<9} {text}" for name, text in rows)


def _rows_text(workers: "list[WorkerRow]") -> str:
    if not workers:
        return "No worker is running."
    ids = shortened(
        id for worker in workers for id in (worker.session, worker.chat) if id is not None
    )

    def named(id: str | None) -> str:
        return "-" if id is None else on_one_line(ids[id])

    heads = (
        *("SESSION", "CHAT", "AGENT", "TITLE", "STATUS"),
        *("PID", "MEMORY", "CPU", "AGE", "WAITS ON"),
    )
    rows = [
        (
            named(worker.session),
            # A session's default chat has its id.
            "default" if worker.chat and worker.chat == worker.session else named(worker.chat),
            worker.agent,
            on_one_line(worker.title, TEXT_CELLS) or "-",
            worker.status,
            "-" if worker.pid is None else str(worker.pid),
            size(worker.memory_bytes),
            f"{worker.cpu_s:.1f} s",
            age(worker.age_s),
            on_one_line(worker.waits_on or "-", TEXT_CELLS),
        )
        for worker in workers
    ]
    return table(heads, rows, right=(5, 6, 7, 8))


def _count(number: int, one: str, several: str | None = None) -> str:
    return f"{number} {one if number == 1 else several or one + 's'}"
