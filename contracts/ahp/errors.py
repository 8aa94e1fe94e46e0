"""Error codes of the wire: JSON-RPC's own, and AHP's (reference: the table under "JSON-RPC")."""

from enum import IntEnum
from typing import Any


class ErrorCode(IntEnum):
    """What went wrong, as a client is told."""

    PARSE_ERROR = -32700
    INVALID_REQUEST = -32600
    METHOD_NOT_FOUND = -32601
    INVALID_PARAMS = -32602
    INTERNAL_ERROR = -32603

    SESSION_NOT_FOUND = -32001
    PROVIDER_NOT_FOUND = -32002
    SESSION_ALREADY_EXISTS = -32003
    TURN_IN_PROGRESS = -32004
    #: `data.supportedVersions` lists what we speak.
    UNSUPPORTED_PROTOCOL_VERSION = -32005
    #: Reserved since 0.9: say `RESOURCE_NOT_FOUND`.
    CONTENT_NOT_FOUND = -32006
    #: `data.resources` lists what a token is needed for.
    AUTHENTICATION_REQUIRED = -32007
    RESOURCE_NOT_FOUND = -32008
    #: `data.request` is the grant that would unlock it; absent when none would.
    PERMISSION_DENIED = -32009
    ALREADY_EXISTS = -32010
    #: A stale `ifMatch`.
    CONFLICT = -32011


class AhpError(Exception):
    """A request is refused: the client is answered with this code, message and data.

    Args:
        code: one of `ErrorCode`.
        message: for the person who reads it; no traceback, no secret.
        data: JSON that the code's own row asks for, or None for none.
    """

    def __init__(self, code: ErrorCode, message: str, data: Any = None) -> None:
        super().__init__(code, message, data)
        self.code = code
        self.message = message
        self.data = data

    def __str__(self) -> str:
        return f"{self.message} ({int(self.code)})"
