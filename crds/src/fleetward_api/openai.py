"""The error body that OpenAI clients read, shared by gateway and engine.

Shape and words follow the public OpenAI API reference ("Error codes"), so that an SDK raises the
exception its user expects.
"""

from __future__ import annotations

from typing import Final, TypedDict

INVALID_REQUEST: Final = "invalid_request_error"
AUTHENTICATION: Final = "authentication_error"
PERMISSION: Final = "permission_error"
NOT_FOUND: Final = "not_found_error"
RATE_LIMIT: Final = "rate_limit_error"
SERVER: Final = "server_error"
OVERLOADED: Final = "overloaded_error"

CODE_INVALID_API_KEY: Final = "invalid_api_key"
CODE_INVALID_IDENTITY: Final = "invalid_identity"
CODE_MODEL_NOT_FOUND: Final = "model_not_found"
CODE_MODEL_NOT_ALLOWED: Final = "model_not_allowed"
CODE_CONTEXT_LENGTH: Final = "context_length_exceeded"
CODE_UNSUPPORTED_PARAMETER: Final = "unsupported_parameter"
CODE_UNKNOWN_PARAMETER: Final = "unknown_parameter"
CODE_INVALID_VALUE: Final = "invalid_value"
CODE_INVALID_JSON: Final = "invalid_json"
CODE_REQUEST_TOO_LARGE: Final = "request_too_large"
CODE_RATE_LIMIT: Final = "rate_limit_exceeded"
CODE_DEADLINE_UNREACHABLE: Final = "deadline_unreachable"
CODE_PREDICTED_WAIT: Final = "predicted_wait_too_long"
CODE_KV_HEADROOM: Final = "kv_headroom_exhausted"
CODE_DEADLINE_EXCEEDED: Final = "deadline_exceeded"
CODE_OVERLOADED: Final = "overloaded"
CODE_NO_REPLICA: Final = "no_replica_ready"
CODE_UPSTREAM_FAILED: Final = "upstream_failed"
CODE_GRAMMAR_LIMIT: Final = "grammar_too_complex"
CODE_PURGED: Final = "purged"
CODE_INTERNAL: Final = "internal_error"

_TYPE_OF_STATUS: Final = {
    401: AUTHENTICATION,
    403: PERMISSION,
    404: NOT_FOUND,
    429: RATE_LIMIT,
    503: OVERLOADED,
}
_FIRST_SERVER_STATUS: Final = 500


class ErrorDetail(TypedDict):
    """What is wrong: a sentence, a class of error, the parameter at fault, a stable code."""

    message: str
    type: str
    param: str | None
    code: str | None


class ErrorBody(TypedDict):
    """The JSON body of an error answer, and the `data:` of an error inside a stream."""

    error: ErrorDetail


def error_body(
    message: str,
    type: str,  # noqa: A002  # the wire name
    param: str | None = None,
    code: str | None = None,
) -> ErrorBody:
    """Build the body. All four keys are always there, as SDKs expect."""
    return {"error": {"message": message, "type": type, "param": param, "code": code}}


def error_type(status: int) -> str:
    """Return the class of error that goes with an HTTP status."""
    fallback = SERVER if status >= _FIRST_SERVER_STATUS else INVALID_REQUEST
    return _TYPE_OF_STATUS.get(status, fallback)
