"""What ends a command: each with its exit status, shown as one sentence on stderr."""

from pathlib import Path

import click


class CommandFailed(click.ClickException):
    """It was tried and did not work."""

    exit_code = 1


class OutputRefused(CommandFailed):
    """What was to be printed cannot be written. Who reads no more is another matter."""

    def __init__(self, error: OSError) -> None:
        super().__init__(f"The output cannot be written: {error.strerror or error}.")


class BadInput(click.ClickException):
    """What was given cannot be used."""

    exit_code = 2


class NoHost(click.ClickException):
    """No host is running on a state directory."""

    exit_code = 3

    def __init__(self, state_dir: Path) -> None:
        super().__init__(f"No host is running on {state_dir}; `ahpd-supervisor start` starts one.")
