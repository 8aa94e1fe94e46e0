"""The folder of notes: a name is a file of it, never a path, and nothing leads out of it."""

import os
import re
import stat

#: A larger note is not read, and not written.
MAX_NOTE_BYTES = 1024 * 1024

_NAME = re.compile(r"[A-Za-z0-9._-]+")


class NoteError(Exception):
    """A note could not be read or written; the message is for a person."""


def is_name(text: str) -> bool:
    """Whether a note can be called that."""
    return _NAME.fullmatch(text) is not None and text not in (".", "..")


class NotesFolder:
    """Reads and writes notes. Every method blocks, and may be called from any thread."""

    def __init__(self, path: str) -> None:
        self._path = path

    def names(self) -> list[str]:
        """The notes that are there, sorted; hidden files are not offered."""
        try:
            with os.scandir(self._path) as entries:
                return sorted(
                    entry.name
                    for entry in entries
                    if is_name(entry.name)
                    and not entry.name.startswith(".")
                    and entry.is_file(follow_symlinks=False)
                )
        except OSError:
            return []

    def read(self, name: str) -> str:
        """The note's text.

        Raises:
            NoteError: there is none, it is too large, or it is no plain file.
        """
        try:
            fd = self._open(name, os.O_RDONLY)
        except FileNotFoundError:
            raise NoteError(f"There is no note {name}") from None
        with open(fd, "rb") as file:
            data = file.read(MAX_NOTE_BYTES + 1)
        if len(data) > MAX_NOTE_BYTES:
            raise NoteError(f"{name} is larger than {MAX_NOTE_BYTES} bytes")
        return data.decode("utf-8", "replace").rstrip("\n")

    def write(self, name: str, text: str) -> str:
        """Writes the note anew, making the folder if it is missing; answers what was done.

        Raises:
            NoteError: it cannot be written.
        """
        data = (text + "\n").encode("utf-8", "replace")
        if len(data) > MAX_NOTE_BYTES:
            raise NoteError(f"A note is at most {MAX_NOTE_BYTES} bytes")
        try:
            os.makedirs(self._path, exist_ok=True)
        except OSError as error:
            raise NoteError(f"The folder of notes cannot be made: {error.strerror}") from None
        fd = self._open(name, os.O_WRONLY | os.O_CREAT)
        with open(fd, "wb") as file:
            file.truncate(0)
            file.write(data)
        return f"Wrote {name}."

    def _open(self, name: str, flags: int) -> int:
        """Opens a plain file of the folder, whatever else may stand there under its name.

        Raises:
            FileNotFoundError: there is none.
            NoteError: it is no plain file, or cannot be opened.
        """
        if not is_name(name):
            raise NoteError(f"{name!r} is no name for a note")
        try:
            folder = os.open(self._path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise NoteError(f"The folder of notes cannot be opened: {error.strerror}") from None
        try:
            # A link is not followed out of the folder, and a pipe is not waited for.
            quiet = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            fd = os.open(name, flags | quiet, 0o644, dir_fd=folder)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise NoteError(f"{name} cannot be opened: {error.strerror}") from None
        finally:
            os.close(folder)
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            raise NoteError(f"{name} is not a note")
        return fd
