"""Messages between the two wires: what one carries beside its text.

Pure. What `chat.send` says and AHP has no place for (mentions, skills, the time it was
queued, the turn reserved for it, where its attachments are kept) travels in the
message's `_meta` under `MESSAGE_META_KEY`; AHP's own attachments stand beside it for other
clients. A message of an AHP client has no such entry: its attachments are read.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from attrs import frozen

from ....contracts.ahp.uris import chat_uri, parse_channel
from ....contracts.chats import Attachment, ShapeError, attachment_bytes, write
from ....contracts.chats.names import MESSAGE_META_KEY as META_KEY
from ....contracts.chats.shape import NonEmpty, Shape
from ....contracts.shapes import structure
from .words import file_uri, path_of, prose

Json = dict[str, Any]


@frozen(kw_only=True)
class Extras(Shape):
    """What a message carries on this wire beside its text."""

    created_at: float | None = None
    turn_id: NonEmpty | None = None
    mentions: tuple[str, ...] | None = None
    skills: tuple[str, ...] | None = None
    chats: tuple[str, ...] | None = None
    attachments: tuple[Attachment, ...] | None = None


def message_of(text: str, extras: Extras) -> Json:
    """The AHP message of a person who wrote on this wire."""
    attachments = list(_attachments_of(extras))
    message: Json = {"text": text, "origin": {"kind": "user"}}
    if attachments:
        message["attachments"] = attachments
    carried = write(extras)
    return {**message, "_meta": {META_KEY: carried}} if carried else message


def _attachments_of(extras: Extras) -> Iterator[Json]:
    """What AHP's clients are shown of it."""
    for kept in extras.attachments or ():
        found: Json = {"type": "resource", "label": kept.name, "uri": file_uri(kept.path)}
        yield {**found, "contentType": kept.mime, "sizeHint": kept.size}
    for path in extras.mentions or ():
        if path.startswith("/"):
            yield {"type": "resource", "label": path, "uri": file_uri(path), "displayKind": "file"}
        else:
            yield {"type": "simple", "label": path, "displayKind": "file"}
    for skill in extras.skills or ():
        yield {"type": "simple", "label": skill, "displayKind": "skill"}
    for ident in extras.chats or ():
        try:
            yield {"type": "chat", "label": ident, "resource": chat_uri(ident)}
        except ValueError:
            # No id that a channel could have, so there is no such chat to show.
            continue


def extras_of(message: Mapping[str, Any], owner: str) -> Extras:
    """What a message carries, whichever wire it came in by.

    Args:
        owner: what the ids of an AHP client's attachments are made with.
    """
    meta = message.get("_meta")
    carried = meta.get(META_KEY) if isinstance(meta, dict) else None
    if isinstance(carried, dict):
        try:
            return structure(carried, Extras)
        except ShapeError:
            # Somebody else's entry of that name: the message is read as any other.
            pass
    return _read_attachments(message.get("attachments"), owner)


def _read_attachments(given: Any, owner: str) -> Extras:
    attachments, mentioned = [], []
    for index, one in enumerate(given if isinstance(given, list) else ()):
        if not isinstance(one, dict):
            continue
        match one.get("type"):
            case "resource" | "embeddedResource":
                attachments.append(_attachment(one, f"attachment:{index}:{owner}"))
            case "chat":
                name = parse_channel(prose(one.get("resource")))
                if name is not None and name.id:
                    mentioned.append(name.id)
    return Extras(attachments=tuple(attachments) or None, chats=tuple(mentioned) or None)


def _attachment(given: Json, ident: str) -> Attachment:
    size, data = given.get("sizeHint"), given.get("data")
    if isinstance(data, str):
        size = max(0, attachment_bytes(data))
    whole = isinstance(size, (int, float)) and not isinstance(size, bool) and 0 <= size < 2**53
    return Attachment(
        id=ident,
        name=prose(given.get("label")) or "attachment",
        mime=prose(given.get("contentType")),
        size=int(size) if whole and size is not None else 0,
        path=path_of(given.get("uri")),
    )
