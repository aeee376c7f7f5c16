"""Errors of the public API, and the one place that shapes them the way OpenAI clients expect."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

import orjson
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from fleetward_api.openai import (
    CODE_CONTEXT_LENGTH,
    CODE_DEADLINE_EXCEEDED,
    CODE_DEADLINE_UNREACHABLE,
    CODE_INTERNAL,
    CODE_KV_HEADROOM,
    CODE_PREDICTED_WAIT,
    CODE_UNSUPPORTED_PARAMETER,
    error_body,
    error_type,
)
from fleetward_engine.errors import AdmissionRefused, DeadlineUnreachable

MAX_RETRY_AFTER_S: Final = 60


class ApiError(Exception):
    """An answer to the client that is not a completion.

    ``code`` is the machine-readable word, ``param`` the request field at fault.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.param = param
        self.code = code
        self.headers = dict(headers or {})

    def body(self) -> bytes:
        """The JSON error object, all four keys present."""
        kind = error_type(self.status)
        return orjson.dumps(error_body(self.message, kind, self.param, self.code))

    def response(self) -> Response:
        """The error before the first byte: a real status and a JSON body."""
        return Response(
            self.body(),
            status_code=self.status,
            headers=self.headers,
            media_type="application/json",
        )


def refused(param: str, message: str, *, code: str | None = CODE_UNSUPPORTED_PARAMETER) -> ApiError:
    """A 400 that names the parameter."""
    return ApiError(400, message, param=param, code=code)


def too_long(param: str, *, prompt_tokens: int, max_tokens: int | None, limit: int) -> ApiError:
    """A 400 ``context_length_exceeded`` that says by how much."""
    asked = f"{prompt_tokens} tokens in the prompt"
    if max_tokens is not None:
        asked += f" and up to {max_tokens} in the completion"
    message = (
        f"This model's maximum context length is {limit} tokens, but the request has {asked}. "
        "Shorten the prompt or lower max_tokens."
    )
    return ApiError(400, message, param=param, code=CODE_CONTEXT_LENGTH)


def unavailable(message: str, *, code: str, retry_after_s: int = 1) -> ApiError:
    """A 503 that tells the client when to come back (whole seconds)."""
    return ApiError(503, message, code=code, headers={"retry-after": str(retry_after_s)})


def not_taken_in(fault: AdmissionRefused | DeadlineUnreachable) -> ApiError:
    """A request that would wait too long, be late or have no room: 503, and when to retry.

    Not 429, which is the tenant's own limit: here nobody could be served in time.

    The time is what the engine expects, brought into 1 to 60 s: clients give up on longer ones.
    """
    seconds = fault.wait_s if isinstance(fault, DeadlineUnreachable) else fault.retry_after_s
    retry_after = {"retry-after": str(min(MAX_RETRY_AFTER_S, max(1, math.ceil(seconds))))}
    if isinstance(fault, DeadlineUnreachable):
        code = CODE_DEADLINE_UNREACHABLE
    elif fault.why == "predicted_wait":
        code = CODE_PREDICTED_WAIT
    else:
        code = CODE_KV_HEADROOM
    return ApiError(503, fault.message, code=code, headers=retry_after)


def late(message: str) -> ApiError:
    """A 504: the deadline has passed, so there is nothing to try again for."""
    no_retry = {"x-should-retry": "false"}
    return ApiError(504, message, code=CODE_DEADLINE_EXCEEDED, headers=no_retry)


def server_fault(message: str, *, code: str = CODE_INTERNAL) -> ApiError:
    """A 500: the engine's own fault, never the caller's."""
    return ApiError(500, message, code=code)


async def on_api_error(_request: Request, error: Exception) -> Response:
    """Starlette handler for `ApiError`."""
    if not isinstance(error, ApiError):
        raise TypeError("on_api_error handles ApiError only")
    return error.response()


async def on_http_error(request: Request, error: Exception) -> Response:
    """Starlette handler for its own errors: unknown routes and methods."""
    if not isinstance(error, HTTPException):
        raise TypeError("on_http_error handles HTTPException only")
    words = {
        404: ("unknown_url", f"There is no {request.method} {request.url.path} here."),
        405: ("method_not_allowed", f"{request.url.path} does not take {request.method}."),
    }
    code, message = words.get(error.status_code, ("http_error", str(error.detail)))
    headers = dict(error.headers or {})
    return ApiError(error.status_code, message, code=code, headers=headers).response()


async def on_unexpected(_request: Request, _error: Exception) -> Response:
    """Starlette handler of last resort; the traceback goes to the log, not to the client."""
    return server_fault("The engine failed to handle this request.").response()
