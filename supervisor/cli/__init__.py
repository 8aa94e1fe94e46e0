"""The command line, `ahpd-supervisor`: a module a group of commands.

What is imported here is imported for every command: click alone. What a
command needs beside it is imported when it runs.
"""

import sys

import click

from . import chat, connect, keeping, operate, start
from .output import give_up_stdout

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
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Runs a command; answers its exit status. What goes wrong is one sentence on stderr."""
    try:
        status = commands.main(arguments, prog_name="ahpd-supervisor", standalone_mode=False)
        sys.stdout.flush()
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return error.exit_code
    except click.UsageError as error:
        command = error.ctx.command_path if error.ctx is not None else "ahpd-supervisor"
        click.echo(f"{command}: {_sentence(error)} (`{command} --help` says more)", err=True)
        return error.exit_code
    except click.ClickException as error:
        click.echo(f"ahpd-supervisor: {_sentence(error)}", err=True)
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except BrokenPipeError:
        give_up_stdout()
        return 1
    except BaseExceptionGroup as group:
        # What an event loop wraps.
        if group.subgroup(KeyboardInterrupt) is not None:
            return INTERRUPTED
        if group.subgroup(BrokenPipeError) is None:
            raise
        give_up_stdout()
        return 1
    return status if isinstance(status, int) else 0


def _sentence(error: click.ClickException) -> str:
    return " ".join(error.format_message().split())
