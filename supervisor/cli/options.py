"""Options that several commands have, each written once."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from .failures import BadInput

Command = TypeVar("Command", bound=Callable[..., Any])


def state_dir_option(command: Command) -> Command:
    """`--state-dir`, given to the command as a path; the user's own directory unless told."""
    return click.option(
        "--state-dir",
        type=click.Path(file_okay=False, path_type=Path),
        callback=lambda _context, _option, given: given or _default_state_dir(),
        metavar="DIR",
        help="The host's state directory.  [default: the user's own, by XDG]",
    )(command)


def json_option(command: Command) -> Command:
    """`--json`, given to the command as `as_json`."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")(
        command
    )


def _default_state_dir() -> Path:
    from ..state_dir import StateDirError, default_state_dir

    try:
        return default_state_dir()
    except StateDirError as error:
        raise BadInput(str(error)) from None
