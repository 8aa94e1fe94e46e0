"""JSON-RPC 2.0 as AHP uses it: one message a text frame (reference: "JSON-RPC").

An id is a number or a string and is answered as it came. A batch is refused.
Whatever is no message becomes a `Malformed`, which says how to answer it.
"""

import math
from typing import Any, TypeAlias

from attrs import frozen

from ..json import JsonError, decode_json, encode_json
from .errors import ErrorCode

Id: TypeAlias = int | float | str


@frozen(kw_only=True)
class Request:
    """Asks for something; answered by one `success` or `error` of the same id."""

    id: Id
    method: str
    params: dict[str, Any]


@frozen(kw_only=True)
class Notification:
    """Tells something; never answered."""

    method: str
    params: dict[str, Any]


@frozen(kw_only=True)
class ResponseError:
    """Why a request of ours was refused."""

    code: int
    message: str
    data: Any = None


@frozen(kw_only=True)
class Response:
    """Answers a request of ours: `result`, or `error` when it was refused.

    The id is None when the other end could not read one.
    """

    id: Id | None
    result: Any = None
    error: ResponseError | None = None


@frozen(kw_only=True)
class Malformed:
    """What was received is no message that can be served.

    Answer with `error(id, code, message)`, unless `silent`: it was meant as a
    notification, and those are never answered.
    """

    code: ErrorCode
    message: str
    id: Id | None = None
    silent: bool = False


Message: TypeAlias = Request | Notification | Response


def parse_message(data: bytes | str) -> Message | Malformed:
    """The message in one text frame, or what is wrong with it. Never raises."""
    try:
        value = decode_json(data)
    except JsonError as error:
        return Malformed(code=ErrorCode.PARSE_ERROR, message=str(error))
    if isinstance(value, list):
        return _invalid("a batch is not served: send one message a frame")
    if not isinstance(value, dict):
        return _invalid("a message is a JSON object")
    ident = value.get("id")
    usable = ident if _is_id(ident) else None
    if value.get("jsonrpc") != "2.0":
        return _invalid('a message says `"jsonrpc": "2.0"`', usable)
    if "id" in value and usable is None and (ident is not None or "method" in value):
        return _invalid("an id is a number or a string")
    if "method" in value:
        return _parse_call(value, usable)
    if "result" in value or "error" in value:
        return _parse_response(value, usable)
    return _invalid("a message has a `method`, a `result` or an `error`", usable)


def request(ident: Id, method: str, params: dict[str, Any]) -> bytes:
    """A request. Raises `JsonError` when the parameters cannot be said in JSON."""
    return encode_json({"jsonrpc": "2.0", "id": ident, "method": method, "params": params})


def notification(method: str, params: dict[str, Any]) -> bytes:
    """A notification. Raises `JsonError` when the parameters cannot be said in JSON."""
    return encode_json({"jsonrpc": "2.0", "method": method, "params": params})


def success(ident: Id, result: Any) -> bytes:
    """The answer to a request; a result of None is said as null. Raises `JsonError`."""
    return encode_json({"jsonrpc": "2.0", "id": ident, "result": result})


def error(ident: Id | None, code: ErrorCode | int, message: str, data: Any = None) -> bytes:
    """The refusal of a request; `ident` is None when it had no usable one. Raises `JsonError`."""
    said: dict[str, Any] = {"code": int(code), "message": message}
    if data is not None:
        said["data"] = data
    return encode_json({"jsonrpc": "2.0", "id": ident, "error": said})


def _parse_call(value: dict[str, Any], ident: Id | None) -> Request | Notification | Malformed:
    method, params = value["method"], value.get("params")
    if not isinstance(method, str) or not method:
        return _invalid("a method is a nonempty string", ident)
    params = {} if params is None else params
    if not isinstance(params, dict):
        return Malformed(
            code=ErrorCode.INVALID_PARAMS,
            message="params: expected an object",
            id=ident,
            silent=ident is None,
        )
    if ident is None:
        return Notification(method=method, params=params)
    return Request(id=ident, method=method, params=params)


def _parse_response(value: dict[str, Any], ident: Id | None) -> Response | Malformed:
    if "error" not in value:
        if ident is None:
            return _invalid("a result has the id of what it answers")
        return Response(id=ident, result=value["result"])
    refused = value["error"]
    code = refused.get("code") if isinstance(refused, dict) else None
    message = refused.get("message") if isinstance(refused, dict) else None
    if isinstance(code, bool) or not isinstance(code, int) or not isinstance(message, str):
        return _invalid("an error has `code`, a whole number, and `message`, a string", ident)
    return Response(
        id=ident, error=ResponseError(code=code, message=message, data=refused.get("data"))
    )


def _invalid(message: str, ident: Id | None = None) -> Malformed:
    return Malformed(code=ErrorCode.INVALID_REQUEST, message=message, id=ident)


def _is_id(value: Any) -> bool:
    if isinstance(value, bool):
        return False
    return isinstance(value, (int, str)) or (isinstance(value, float) and math.isfinite(value))
