"""The command line, `ahpd-supervisor`: a module a group of commands.

What is imported here is imported for every command: click alone. What a
command needs beside it is imported when it runs.
"""

import sys

import click

from . import chat, connect, keeping, operate, start
from .output import give_up_stdout, guard_streams

#: What a shell says of a program that Ctrl-C ended.
INTERRUPTED = 130


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="ahpd-supervisor", message="%(prog)s %(version)s")
def commands() -> None:
    """A host for AI agent sessions, every conversation in a process of its own.

    Start one with `start`; talk to an agent with `chat`; see and steer what runs with
    `status`, `ps`, `kill`, `restart`, `logs` and `stop`. What a host keeps is written out,
    taken in, copied and looked through with `export`, `import`, `backup` and `verify`.
    `connect` is for clients that reach this machine by ssh.

    Exit status: 0 done, 1 it failed, 2 the input was wrong, 3 no host is running.
    """


commands.add_command(start.start)
commands.add_command(chat.chat)
commands.add_command(connect.connect)
for _command in (*operate.COMMANDS, *keeping.COMMANDS):
    commands.add_command(_command)


def main() -> None:
    """Runs the command that `sys.argv` names, and exits with its status."""
    guard_streams()
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Runs a command; answers its exit status. What goes wrong is one sentence on stderr."""
    try:
        status = commands.main(arguments, prog_name="ahpd-supervisor", standalone_mode=False)
        sys.stdout.flush()
    except BaseException as error:  # What is not known here is raised again.
        return _status_of(error, arguments)
    return status if isinstance(status, int) else 0


def _status_of(error: BaseException, arguments: list[str]) -> int:
    """Says what ended a command; answers the exit status. Raises what nobody foresaw."""
    # An event loop wraps it, maybe with what its end brought about elsewhere.
    found = sorted(_leaves(error), key=_weight)[0]
    match found:
        case KeyboardInterrupt() | click.Abort():
            return INTERRUPTED
        case BrokenPipeError():
            give_up_stdout()
            return 1
        case click.exceptions.NoArgsIsHelpError():
            found.show()
            return found.exit_code
        case click.UsageError():
            command = _command_meant(found, arguments)
            click.echo(f"{command}: {_sentence(found)} (`{command} --help` says more)", err=True)
            return found.exit_code
        case click.ClickException():
            click.echo(f"ahpd-supervisor: {_sentence(found)}", err=True)
            return found.exit_code
    raise error


def _command_meant(error: click.UsageError, arguments: list[str]) -> str:
    """The command whose help says more. click does not tell whose option lacks its value."""
    if error.ctx is not None:
        return error.ctx.command_path
    named = next((one for one in arguments if not one.startswith("-")), None)
    return f"ahpd-supervisor {named}" if named in commands.commands else "ahpd-supervisor"


def _leaves(error: BaseException) -> list[BaseException]:
    if not isinstance(error, BaseExceptionGroup):
        return [error]
    return [leaf for one in error.exceptions for leaf in _leaves(one)]


def _weight(error: BaseException) -> int:
    """Of several at once the one that is told: Ctrl-C, then what nobody foresaw."""
    if isinstance(error, KeyboardInterrupt):
        return 0
    return 2 if isinstance(error, click.ClickException | click.Abort | BrokenPipeError) else 1


def _sentence(error: click.ClickException) -> str:
    return " ".join(error.format_message().split())
