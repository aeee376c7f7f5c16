"""What a connection says by itself, where no application is reached: an error in OpenAI's shape."""

from __future__ import annotations

from typing import Final

from fleetward_api.openai import CODE_INVALID_VALUE, CODE_REQUEST_TOO_LARGE
from fleetward_gateway.problem import Problem
from fleetward_gateway.proxy.asgi import kept_request_id

_PHRASES: Final = {
    400: b"Bad Request",
    413: b"Content Too Large",
    431: b"Request Header Fields Too Large",
}


def not_http() -> Problem:
    """The bytes are no request."""
    return Problem(400, CODE_INVALID_VALUE, "This is not an HTTP/1.1 request.")


def head_too_large(limit: int) -> Problem:
    """The request's head has more than `limit` bytes."""
    message = f"The request's headers are larger than {limit} bytes."
    return Problem(431, CODE_REQUEST_TOO_LARGE, message)


def last_answer(problem: Problem) -> bytes:
    """A whole answer (400, 413 or 431), after which the connection closes."""
    body = problem.encoded()
    head = (
        b"HTTP/1.1 %d %s" % (problem.status, _PHRASES[problem.status]),
        b"content-type: application/json",
        b"content-length: %d" % len(body),
        b"x-request-id: " + kept_request_id(None),
        b"connection: close",
    )
    return b"\r\n".join(head) + b"\r\n\r\n" + body
