"""Dialling a host: a WebSocket to its address, or one sentence that says why there is none."""

import ssl
from contextlib import AsyncExitStack

from trio_websocket import (
    ConnectionRejected,
    HandshakeError,
    WebSocketConnection,
    open_websocket_url,
)

from ..contracts.frames import MAX_FRAME_BYTES

#: For the connection and its handshake. What closes during the handshake is waited for as well.
CONNECT_LIMIT_S = 10.0

#: For the closing handshake.
LEAVE_LIMIT_S = 2.0


class ClientError(Exception):
    """The host cannot be reached, or the connection is over; a sentence for a person."""


async def dial(stack: AsyncExitStack, url: str, tls: ssl.SSLContext | None) -> WebSocketConnection:
    """A connection that lives as long as `stack`. The token in the address is never told.

    Raises:
        ClientError: nobody is there, or does not let us in.
    """
    where = url.partition("?")[0]
    try:
        return await stack.enter_async_context(
            open_websocket_url(
                url,
                tls,
                # Characters, which are no more than the bytes of the host's own bound.
                max_message_size=MAX_FRAME_BYTES,
                connect_timeout=CONNECT_LIMIT_S,
                disconnect_timeout=LEAVE_LIMIT_S,
            )
        )
    except ConnectionRejected as refused:
        raise ClientError(_refused_sentence(where, refused)) from None
    except (HandshakeError, OSError, ValueError) as error:
        # The library wraps what the system says of a connection.
        why = error.__cause__ if isinstance(error, HandshakeError) else error
        if isinstance(error, HandshakeError) and not isinstance(why, OSError):
            raise ClientError(f"nothing at {where} answers as a host does") from None
        said = getattr(why, "strerror", None) or why
        raise ClientError(f"cannot connect to {where}: {said}") from None


def _refused_sentence(where: str, refused: ConnectionRejected) -> str:
    if refused.status_code == 401:
        return f"the host at {where} refuses the token (401)"
    said = (refused.body or b"").decode("utf-8", "replace").strip().partition("\n")[0]
    why = f"{refused.status_code}: {said}" if said else str(refused.status_code)
    return f"the host at {where} refuses the connection ({why})"
