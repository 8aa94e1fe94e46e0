"""Attachments: the bytes that a message brings, in the state directory, under ids of the host's.

`attachments/<first 32 hex digits of SHA-256 of the chat id>/<id>`, for its owner alone.
A name that a client gave is never part of a path.
"""

import hashlib
import os
import shutil
from base64 import b64decode
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from uuid import uuid4

import imagesize  # type: ignore[import-untyped]  # the library ships no types
import structlog
import trio

from ....contracts.chats import Attachment, AttachmentUpload, attachment_image_mime

FOLDER = "attachments"

#: What a picture's head is looked at for its size.
HEAD_BYTES = 256 * 1024

_log = structlog.get_logger(__name__)


async def keep_uploads(
    state_dir: Path, chat_id: str, uploads: Sequence[AttachmentUpload]
) -> tuple[Attachment, ...]:
    """Writes a message's files down, and answers what the thread keeps of them.

    Raises:
        OSError: they cannot be written; none of them is left.
    """
    return await trio.to_thread.run_sync(_keep_all, _folder_of(state_dir, chat_id), uploads)


async def drop_uploads(state_dir: Path, chat_id: str) -> None:
    """Removes all files of a chat."""
    folder = _folder_of(state_dir, chat_id)
    try:
        await trio.to_thread.run_sync(shutil.rmtree, folder)
    except FileNotFoundError:
        return
    except OSError as error:
        _log.warning("attachments could not be removed", folder=str(folder), why=str(error))


def _folder_of(state_dir: Path, chat_id: str) -> Path:
    digest = hashlib.sha256(chat_id.encode("utf-8", "surrogatepass")).hexdigest()
    return state_dir / FOLDER / digest[:32]


def _keep_all(folder: Path, uploads: Sequence[AttachmentUpload]) -> tuple[Attachment, ...]:
    folder.parent.mkdir(mode=0o700, exist_ok=True)
    folder.mkdir(mode=0o700, exist_ok=True)
    kept: list[Attachment] = []
    try:
        for upload in uploads:
            kept.append(_keep(folder, upload))
    except OSError:
        for attachment in kept:
            Path(attachment.path).unlink(missing_ok=True)
        raise
    return tuple(kept)


def _keep(folder: Path, upload: AttachmentUpload) -> Attachment:
    ident = uuid4().hex
    data = b64decode(upload.data)
    path = folder / ident
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with open(descriptor, "wb") as file:
            file.write(data)
    except OSError:
        path.unlink(missing_ok=True)
        raise
    picture = attachment_image_mime(upload.name, upload.mime) is not None
    width, height = _size_of(data) if picture else (None, None)
    return Attachment(
        id=ident,
        name=upload.name,
        mime=upload.mime,
        size=len(data),
        path=str(path),
        width=width,
        height=height,
    )


def _size_of(data: bytes) -> tuple[int | None, int | None]:
    """A picture's size in pixels; None and None where its head does not say."""
    try:
        width, height = imagesize.get(BytesIO(data[:HEAD_BYTES]))
    except Exception:
        # The library raises whatever a broken head provokes; the picture is kept all the same.
        return None, None
    fits = isinstance(width, int) and isinstance(height, int) and 0 < width < 2**31
    return (width, height) if fits and 0 < height < 2**31 else (None, None)
