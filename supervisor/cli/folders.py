"""The current folder, which a shell may stand in after it was removed."""

from pathlib import Path

from .failures import BadInput


def current_folder() -> Path:
    """The folder that the command is run in.

    Raises:
        BadInput: there is none any more, or it cannot be seen.
    """
    try:
        return Path.cwd()
    except FileNotFoundError:
        raise BadInput("The current folder was removed: run this in one that is there.") from None
    except OSError as error:
        why = error.strerror or error
        raise BadInput(f"The current folder cannot be used: {why}.") from None


def absolute(path: Path) -> Path:
    """`path`, which is meant from the current folder when it is relative.

    Raises:
        BadInput: it is, and there is no current folder.
    """
    return path if path.is_absolute() else current_folder() / path
