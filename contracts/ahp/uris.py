"""Names of channels: every spelling of a root, session or chat, and the id each of them means.

A session's URI is its client's to choose and ours to echo; only the id, the
last segment of the path, identifies (reference: "Channels"). VS Code spells
sessions `<provider>:/<id>` and computes the default chat's name from its own
spelling, so one id has many names. These functions are pure: a channel that is
known under exactly the spelling given is the caller's to resolve first.
"""

import base64
import binascii
import hashlib
import re
from typing import Final, Literal, TypeAlias
from urllib.parse import quote, quote_from_bytes, unquote_to_bytes

from attrs import frozen

Family: TypeAlias = Literal["root", "session", "chat"]

#: The root channel, in the one spelling that clients compare with.
ROOT_URI: Final = "ahp-root://"

#: Of an id, decoded. On `/chats` the client chooses any: one of 10,000 characters is an id
#: like any other, and an id is the same on both wires, so no shorter stand-in is made of it.
MAX_ID_CHARS: Final = 10_000

#: Of a URI: an id of four-byte characters, percent-encoded (12 each), inside base64 (16), fits.
MAX_URI_CHARS: Final = 16 * MAX_ID_CHARS + 1024

_URI: Final = re.compile(
    r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*):(?://(?P<authority>[^/?#]*))?(?P<path>[^?#]*)", re.DOTALL
)
_PERCENT: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")


@frozen
class ChannelName:
    """What a URI names: a family of channels and the id in it; the root's id is empty.

    A default chat has its session's id.
    """

    family: Family
    id: str


def parse_channel(uri: str) -> ChannelName | None:
    """What `uri` names in any spelling, or None when it names no root, session or chat.

    Any scheme that is not one of AHP's own may be a session's.
    """
    parts = _split(uri)
    if parts is None:
        return None
    scheme, authority, path = parts
    match scheme:
        case "ahp-root":
            bare = not authority and not path.strip("/")
            return ChannelName("root", "") if bare else None
        case "ahp-chat":
            if authority == "default":
                session = session_uri_in(uri)
                ident = None if session is None else id_in(session)
            else:
                ident = _last_segment(path)
            return None if ident is None else ChannelName("chat", ident)
        case _ if scheme.startswith("ahp-") and scheme != "ahp-session":
            return None
        case _:
            ident = _last_segment(path)
            return None if ident is None else ChannelName("session", ident)


def id_in(uri: str) -> str | None:
    """The id in a URI of any scheme: its last segment, percent-decoded; None for no valid one."""
    parts = _split(uri)
    return None if parts is None else _last_segment(parts[2])


def session_uri_in(uri: str) -> str | None:
    """The session's URI, as its client spells it, inside a default chat's computed name.

    The name is `ahp-chat://default/<base64url of the session's URI, no padding>`;
    None for every other URI.
    """
    parts = _split(uri)
    if parts is None or parts[0] != "ahp-chat" or parts[1] != "default":
        return None
    encoded = parts[2].removeprefix("/").rstrip("=")
    try:
        padded = encoded + "=" * (-len(encoded) % 4)
        session = base64.b64decode(padded, altchars=b"-_", validate=True).decode("utf-8")
    except (binascii.Error, ValueError):
        return None
    named = parse_channel(session)
    return session if named is not None and named.family == "session" else None


def is_valid_id(ident: str) -> bool:
    """Whether it can be an id: not empty, at most `MAX_ID_CHARS`, and sayable in UTF-8."""
    return 0 < len(ident) <= MAX_ID_CHARS and not any("\ud800" <= c <= "\udfff" for c in ident)


def session_uri(ident: str) -> str:
    """Our own spelling of a session.

    Raises:
        ValueError: `ident` is no valid id.
    """
    return "ahp-session:/" + _encoded(ident)


def chat_uri(ident: str) -> str:
    """Our own spelling of a chat.

    Raises:
        ValueError: `ident` is no valid id.
    """
    return "ahp-chat:/" + _encoded(ident)


def default_chat_uri(session_uri_as_spelled: str) -> str:
    """The name clients compute for the default chat of a session they spell this way.

    Raises:
        ValueError: the spelling cannot be said in UTF-8.
    """
    encoded = base64.urlsafe_b64encode(session_uri_as_spelled.encode("utf-8"))
    return "ahp-chat://default/" + encoded.decode("ascii").rstrip("=")


def subagent_chat_id(chat_id: str, tool_call_id: str) -> str:
    """The id of the chat that a tool call of a chat opens.

    The same pair always gives the same id, and no other pair can be made to
    give it: both lengths are part of what is hashed.
    """
    digest = hashlib.sha256()
    for text in (chat_id, tool_call_id):
        data = text.encode("utf-8", "surrogatepass")
        digest.update(len(data).to_bytes(8, "big") + data)
    return "sub-" + digest.hexdigest()[:32]


def subagent_turn_id(subagent_chat: str) -> str:
    """The id of the turn that a subagent chat opens with, from the chat's id."""
    return f"{subagent_chat}-turn"


def file_uri(path: str) -> str:
    """The `file://` URI of an absolute path.

    Raises:
        ValueError: the path is relative or holds a NUL.
    """
    if not path.startswith("/") or "\0" in path:
        raise ValueError(f"no absolute path: {path!r}")
    # A name that is not UTF-8 reaches Python with surrogates: give its bytes back.
    return "file://" + quote_from_bytes(path.encode("utf-8", "surrogateescape"), safe="/")


def path_of_file_uri(uri: str) -> str | None:
    """The absolute path a `file:` URI of this machine names, or None when it names none.

    Refused: another host, a query or fragment, a relative path, a broken
    percent-escape, a NUL.
    """
    parts = _split(uri)
    if parts is None or "?" in uri or "#" in uri:
        return None
    scheme, authority, path = parts
    here = authority.lower() in ("", "localhost")
    if scheme != "file" or not here or not path.startswith("/") or _PERCENT.search(path):
        return None
    try:
        decoded = unquote_to_bytes(path).decode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return None
    return None if "\0" in decoded else decoded


def _split(uri: str) -> tuple[str, str, str] | None:
    """Scheme in lower case, authority and path; neither of them decoded."""
    if len(uri) > MAX_URI_CHARS:
        return None
    found = _URI.match(uri)
    if found is None:
        return None
    return found["scheme"].lower(), found["authority"] or "", found["path"]


def _last_segment(path: str) -> str | None:
    segment = path.rpartition("/")[2]
    try:
        # A percent sign that escapes nothing stands for itself.
        ident = unquote_to_bytes(segment).decode("utf-8", "strict")
    except UnicodeError:
        return None
    return ident if is_valid_id(ident) else None


def _encoded(ident: str) -> str:
    if not is_valid_id(ident):
        raise ValueError(f"an id has 1 to {MAX_ID_CHARS} characters: {ident[:40]!r}")
    return quote(ident, safe="")
