"""Sessions and chats as a client asks for them: made, listed in pages, disposed of."""

import base64
import binascii
from collections.abc import Callable
from itertools import islice
from typing import TYPE_CHECKING, Any

from attrs import frozen

from ....contracts.ahp.absence import without_nulls
from ....contracts.ahp.actions import MAX_ACTION_NESTING
from ....contracts.ahp.commands import (
    CreateChat,
    CreateSession,
    DisposeChat,
    DisposeSession,
    ListSessions,
)
from ....contracts.ahp.errors import AhpError, ErrorCode
from ....contracts.ahp.uris import path_of_file_uri
from ....contracts.json import decode_json, encode_json, nests_deeper_than
from ....contracts.shapes import structure

if TYPE_CHECKING:
    from .connection import AhpConnection

Json = dict[str, Any]

#: How many sessions one answer lists, also to a client that asks for no pages.
MAX_LISTED = 20_000


@frozen(kw_only=True)
class Then:
    """A result, and what happens when it was sent."""

    result: Any
    then: Callable[[], None] = lambda: None


async def create_session(connection: "AhpConnection", params: CreateSession) -> None:
    """Makes a session under the URI that the client chose. Raises `AhpError`."""
    directories = _folders(params.working_directories)
    client = params.active_client
    if client is not None and client["clientId"] != connection.client_id:
        raise AhpError(
            ErrorCode.INVALID_PARAMS, "params.activeClient.clientId: expected this client's own"
        )
    await connection.host.create_session(
        params.channel,
        provider=params.provider,
        directories=directories,
        config=params.config,
        progress_token=params.progress_token,
        active_client=client,
    )


def dispose_session(connection: "AhpConnection", params: DisposeSession) -> None:
    """Ends a session and everything it runs. Raises `AhpError`."""
    connection.host.hold_keeping()
    if connection.host.remove_unreadable(params.channel):
        return
    connection.host.dispose_session(connection.host.session_at(params.channel))


def list_sessions(connection: "AhpConnection", params: ListSessions) -> Json:
    """A page of the sessions, newest change first. Raises `AhpError`."""
    listed = connection.host.listed()
    if params.cursor is not None:
        after = _listed_after(params.cursor)
        if after is None:
            raise AhpError(
                ErrorCode.INVALID_PARAMS, "params.cursor: expected a cursor of listSessions"
            )
        listed = (held for held in listed if (held.modified_at, held.id) < after)
    limit = min(params.limit or MAX_LISTED, MAX_LISTED)
    page = list(islice(listed, limit))
    result: Json = {"items": [session.summary() for session in page]}
    if next(listed, None) is not None:
        result["nextCursor"] = _list_cursor(page[-1].modified_at, page[-1].id)
    return result


def create_chat(connection: "AhpConnection", params: CreateChat) -> "Then":
    """Adds a chat to a session whose agent can have several. Raises `AhpError`."""
    session = connection.host.session_at(params.channel)
    if params.source is not None:
        raise AhpError(ErrorCode.INVALID_PARAMS, "params.source: this host does not fork chats yet")
    message = params.initial_message
    if message is not None and message["origin"].get("kind") != "user":
        raise AhpError(
            ErrorCode.INVALID_PARAMS, "params.initialMessage.origin.kind: expected `user`"
        )
    if nests_deeper_than(message, MAX_ACTION_NESTING):
        raise AhpError(
            ErrorCode.INVALID_PARAMS,
            f"params.initialMessage: nested deeper than {MAX_ACTION_NESTING} levels",
        )
    directories = _folders(params.working_directories)
    chat = connection.host.create_chat(session, params.chat, directories=directories)

    def start() -> None:
        if message is not None:
            chat.start_turn(without_nulls(message))

    # The protocol's order: the catalogue has the chat, the client its answer, then the turn.
    return Then(result=None, then=start)


def dispose_chat(connection: "AhpConnection", params: DisposeChat) -> None:
    """Ends a chat; a default chat ends its session. Raises `AhpError`."""
    connection.host.hold_keeping()
    connection.host.remove_chat(connection.host.chat_at(params.channel))


def _folders(uris: tuple[str, ...] | None) -> list[str]:
    for index, uri in enumerate(uris or ()):
        if path_of_file_uri(uri) is None:
            raise AhpError(
                ErrorCode.INVALID_PARAMS,
                f"params.workingDirectories[{index}]: expected a file:// URI",
            )
    return list(uris or ())


def _list_cursor(modified_at: str, id: str) -> str:
    return base64.urlsafe_b64encode(encode_json([modified_at, id])).decode()


def _listed_after(cursor: str) -> tuple[str, str] | None:
    try:
        data = base64.b64decode(cursor.encode(), altchars=b"-_", validate=True)
        modified_at, id = structure(decode_json(data), list[str], "cursor")
    except (ValueError, binascii.Error):
        return None
    return modified_at, id
