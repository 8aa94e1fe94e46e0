"""Attachments: what a message uploads, what a thread keeps of it, and the rules of both."""

import re
from collections.abc import Sequence
from typing import Annotated, Any, Final

from attrs import frozen

from ..shapes import MemberError
from .limits import (
    MAX_ATTACHMENT_BASE64_CHARS,
    MAX_ATTACHMENT_BYTES,
    MAX_ATTACHMENT_NAME,
    MAX_ATTACHMENTS,
    MAX_ATTACHMENTS_BYTES,
)
from .shape import Count, Entries, Length, NonEmpty, PositiveCount, Shape

#: Apart from the length, which is a multiple of four. One class of characters,
#: repeated: a repeated group would cost memory for every four of them.
_BASE64_CHARS: Final = re.compile(r"[A-Za-z0-9+/]*={0,2}")

_IMAGE_MIMES: Final = {
    "png": "image/png",
    "jpg": "image/jpeg",
    "jpeg": "image/jpeg",
    "webp": "image/webp",
    "gif": "image/gif",
}
_NO_TYPE: Final = ("", "application/octet-stream", "binary/octet-stream")


@frozen
class _Base64:
    """Base64 without a `data:` prefix, and not too much of it."""

    def fault(self, value: str) -> str | None:
        if len(value) % 4 or _BASE64_CHARS.fullmatch(value) is None:
            return "expected base64"
        if attachment_bytes(value) > MAX_ATTACHMENT_BYTES:
            return f"expected at most {MAX_ATTACHMENT_BYTES} bytes, decoded"
        return None


@frozen(kw_only=True)
class AttachmentUpload(Shape):
    """A file as a client sends it. The name is for people and never a path."""

    name: Annotated[str, Length(1, MAX_ATTACHMENT_NAME)]
    mime: Annotated[str, Length(1, MAX_ATTACHMENT_NAME)]
    data: Annotated[str, Length(1, MAX_ATTACHMENT_BASE64_CHARS), _Base64()]


@frozen
class _TogetherInBounds:
    def fault(self, value: Sequence[AttachmentUpload]) -> str | None:
        if sum(attachment_bytes(upload.data) for upload in value) > MAX_ATTACHMENTS_BYTES:
            return f"expected at most {MAX_ATTACHMENTS_BYTES} bytes together, decoded"
        return None


AttachmentUploads = Annotated[
    tuple[AttachmentUpload, ...], Entries(0, MAX_ATTACHMENTS), _TogetherInBounds()
]


@frozen(kw_only=True)
class Attachment(Shape):
    """A file as a thread keeps it; the bytes are in the host's store.

    `path` is absolute on the host's machine, `size` in bytes, `width` and `height`
    are a picture's, in pixels.
    """

    id: NonEmpty
    name: NonEmpty
    mime: str
    size: Count
    path: str
    width: PositiveCount | None = None
    height: PositiveCount | None = None


def attachment_bytes(data: str) -> int:
    """How many bytes base64 stands for."""
    padding = len(data[-2:]) - len(data[-2:].rstrip("="))
    return len(data) * 3 // 4 - padding


def attachment_image_mime(name: str, mime: str) -> str | None:
    """The picture type of an attachment, or None when it is no picture a client shows.

    A declared picture type wins; an empty or a generic binary type is told by the
    name's extension; anything else that is declared is what it says.
    """
    declared = mime.split(";", 1)[0].strip().lower()
    if declared in _IMAGE_MIMES.values():
        return declared
    _, dot, extension = name.rpartition(".")
    return _IMAGE_MIMES.get(extension.lower()) if declared in _NO_TYPE and dot else None


def check_uploads(uploads: Sequence[AttachmentUpload], at: str = "attachments") -> None:
    """Holds uploads that a program gathered itself to the rules of one message.

    Raises:
        MemberError: too many, or too large together.
    """
    rules: tuple[Any, ...] = (Entries(0, MAX_ATTACHMENTS), _TogetherInBounds())
    for rule in rules:
        fault = rule.fault(tuple(uploads))
        if fault is not None:
            raise MemberError(at, fault)
