"""A refusal, as its caller will read it."""

from __future__ import annotations

import orjson

from fleetward_api.errors import FleetwardError
from fleetward_api.openai import CODE_REQUEST_TOO_LARGE, ErrorBody, error_body, error_type

MAX_RETRY_AFTER_S = 60
"""The official client gives up at once above 120 s; overload never lasts a planned minute."""


class Problem(FleetwardError):
    """An answer other than success, in the shape that OpenAI clients read.

    Args:
        status: HTTP status; never 409, which the official client retries as a lock.
        code: stable word for programs, see `fleetward_api.openai`.
        message: one sentence: what is wrong and what to do.
        param: the request field at fault.
        retry_after_s: whole seconds, 1 to 60; None when trying again cannot help.
        headers: further response headers.
        close: end the connection after the answer.
    """

    default_reason = "RequestRefused"
    quotes_request = True

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *,
        param: str | None = None,
        retry_after_s: int | None = None,
        headers: tuple[tuple[bytes, bytes], ...] = (),
        close: bool = False,
    ) -> None:
        super().__init__(message, retryable=retry_after_s is not None)
        self.status = status
        self.code = code
        self.param = param
        self.retry_after_s = retry_after_s
        self.headers = headers
        self.close = close
        self.shaped_body: bytes | None = None

    def encoded(self) -> bytes:
        """The JSON body; an engine's own where it already has the shape."""
        return orjson.dumps(self.body()) if self.shaped_body is None else self.shaped_body

    def body(self) -> ErrorBody:
        """The body's value."""
        return error_body(self.message, error_type(self.status), self.param, self.code)

    def extra_headers(self) -> list[tuple[bytes, bytes]]:
        """Headers beside content type and length."""
        found = list(self.headers)
        if self.retry_after_s is not None:
            seconds = bounded_retry_after(self.retry_after_s)
            found.append((b"retry-after", str(seconds).encode()))
        if self.close:
            found.append((b"connection", b"close"))
        return found


def bounded_retry_after(seconds: int) -> int:
    """`seconds` brought into 1 to 60."""
    return max(1, min(MAX_RETRY_AFTER_S, seconds))


def model_not_found(name: str) -> Problem:
    """The one answer for a model that is missing and for one that is another tenant's."""
    return Problem(
        404,
        "model_not_found",
        f"The model {name!r} does not exist or you do not have access to it; "
        "GET /v1/models lists the models you may call.",
        param="model",
    )


def too_large(limit: int) -> Problem:
    """413, with the bound in bytes."""
    return Problem(
        413,
        CODE_REQUEST_TOO_LARGE,
        f"The request body is larger than {limit} bytes; send a shorter one.",
    )
