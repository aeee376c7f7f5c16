"""Reading a request body: bounded in bytes, time and values, plain JSON, an object at the top."""

from __future__ import annotations

import asyncio
from typing import TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails
from starlette.requests import ClientDisconnect, Request

from fleetward_api.json_text import parse_json
from fleetward_api.openai import CODE_INVALID_JSON, CODE_INVALID_VALUE, CODE_REQUEST_TOO_LARGE
from fleetward_engine.server.errors import ApiError

MAX_BODY_BYTES = 4 * 1024 * 1024
BODY_S = 60.0
"""How long a body may take to arrive; the gateway sends what it has whole."""
MAX_CONTAINERS = 16_384
MAX_STRINGS = 65_536
MAX_VALUES = 524_288
UNCOUNTED = 8_192
"""Objects and lists, strings, and all values of one body; and how many commas and brackets may be
in it before any of these is counted. Each value costs the event loop time: a body has room for
millions, which would hold up every stream for seconds. A conversation of as many messages as are
allowed stays below, and so does a long context as token ids."""

Model = TypeVar("Model", bound=BaseModel)


async def read_body(request: Request, *, limit: int = MAX_BODY_BYTES) -> bytes:
    """The whole body.

    Raises:
        ApiError: 413 above ``limit`` bytes (declared or counted), 415 for an encoded body,
            400 when the client's length is no number or it left while sending, 408 when it took
            longer than a minute.
    """
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise ApiError(415, "Send the body without a content-encoding.", code="unsupported_media")
    declared = request.headers.get("content-length", "0")
    if not declared.isdecimal():
        raise ApiError(400, "content-length is not a number.", code="invalid_request")
    if int(declared) > limit:
        raise _too_large(limit)
    chunks: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(BODY_S):
            async for chunk in request.stream():
                size += len(chunk)
                if size > limit:
                    raise _too_large(limit)
                chunks.append(chunk)
    except TimeoutError as late:
        message = f"The body did not arrive within {BODY_S:g} seconds."
        headers = {"connection": "close"}
        raise ApiError(408, message, code="request_timeout", headers=headers) from late
    except ClientDisconnect as gone:
        raise ApiError(400, "The client left while sending.", code="client_closed") from gone
    return b"".join(chunks)


def parse(model: type[Model], body: bytes) -> Model:
    """``body`` as ``model``.

    Raises:
        ApiError: 400 that names the first field at fault and says what it should be, 413 for more
            values than the event loop may spend its time on.
    """
    _check_values(body)
    try:
        value = parse_json(body)
    except ValueError as fault:
        message = f"The body is not valid JSON: {fault}."
        raise ApiError(400, message, code=CODE_INVALID_JSON) from fault
    if not isinstance(value, dict):
        raise ApiError(400, "The body must be a JSON object.", code=CODE_INVALID_JSON)
    try:
        return model.model_validate(value)
    except ValidationError as fault:
        raise _invalid(telling_error(fault)) from fault


def _check_values(body: bytes) -> None:
    """Refuse too many values by counting, at the speed of memory, before any is built."""
    if body.count(b",") + body.count(b"[") + body.count(b"{") <= UNCOUNTED:
        return
    # Escapes go first, so that each quote left opens or closes a string; of what lies between
    # strings the commas and brackets are the document's own.
    plain = body.replace(b"\\\\", b"").replace(b'\\"', b"")
    if plain.count(b'"') > 2 * MAX_STRINGS:
        raise _too_many(MAX_STRINGS, "strings")
    outside = b"".join(plain.split(b'"')[::2])
    if outside.count(b"[") + outside.count(b"{") > MAX_CONTAINERS:
        raise _too_many(MAX_CONTAINERS, "objects and lists")
    if outside.count(b",") > MAX_VALUES:
        raise _too_many(MAX_VALUES, "values")


def _too_many(limit: int, what: str) -> ApiError:
    message = f"The body holds more than {limit} {what}."
    return ApiError(413, message, code=CODE_REQUEST_TOO_LARGE)


def _too_large(limit: int) -> ApiError:
    message = f"The body is larger than {limit} bytes."
    # The connection stays open: closing it with bytes unread would reset it before the client has
    # seen the answer. The server reads the rest and keeps none of it.
    return ApiError(413, message, code=CODE_REQUEST_TOO_LARGE)


def _invalid(error: ErrorDetails) -> ApiError:
    param = field_path(error["loc"])
    code = "missing_required_parameter" if error["type"] == "missing" else CODE_INVALID_VALUE
    where = f"{param}: " if param else ""
    return ApiError(400, f"{where}{error['msg']}.", param=param or None, code=code)


def telling_error(fault: ValidationError) -> ErrorDetails:
    """Of the first field's errors (one for each branch of a union), the one that says most.

    That is a right type with a wrong value before a wrong type, then the deepest.
    """
    errors = fault.errors(include_url=False, include_input=False)
    first = [error for error in errors if error["loc"][:1] == errors[0]["loc"][:1]]
    return max(first, key=lambda error: (not error["type"].endswith("_type"), len(error["loc"])))


def field_path(location: tuple[int | str, ...]) -> str:
    """The path of a field as a person writes it, for example ``messages[0].content``.

    pydantic also names the branch of a union (``list[str]``, ``StopList``); a field's name is the
    only lower-case identifier among them that is not a type's name.
    """
    path = ""
    for step in location:
        if isinstance(step, int):
            path += f"[{step}]"
        elif step.replace("_", "").isalnum() and step.islower() and step not in _TYPE_NAMES:
            path += f".{step}" if path else step
    return path


_TYPE_NAMES = frozenset({"str", "int", "float", "bool", "list", "dict", "none", "constrained"})
