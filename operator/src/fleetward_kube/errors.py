"""What a call to the API server can end with, other than an answer."""

from __future__ import annotations

from typing import Any

from fleetward_api.errors import FleetwardError

_RETRYABLE = frozenset({0, 429, 500, 502, 503, 504})


class KubeError(FleetwardError):
    """A refused or failed call.

    Attributes:
        status: HTTP status; 0 when no answer came (unreachable, timed out, broken off).
        reason: the API server's machine-readable reason (`NotFound`, `Conflict`, `Expired`, …),
            or `Unreachable`, `Timeout`, `Malformed`, `NotConfigured` when the fault is on the way.
        message: one sentence for people.
        retryable: the same call may succeed later without anyone changing it.
        retry_after_s: seconds for which the API server does not want this call again.
    """

    def __init__(
        self, status: int, reason: str, message: str, *, retry_after_s: float = 0.0
    ) -> None:
        text = f"{reason} ({status}): {message}" if status else f"{reason}: {message}"
        super().__init__(text, reason=reason, retryable=status in _RETRYABLE)
        self.status = status
        self.message = message
        self.retry_after_s = retry_after_s

    @property
    def not_found(self) -> bool:
        """True when the object (or its kind) is not there."""
        return self.status == 404  # noqa: PLR2004 - the status is the name

    @property
    def conflict(self) -> bool:
        """True when a precondition, a field manager or an existing object stood in the way."""
        return self.status == 409  # noqa: PLR2004 - the status is the name

    @property
    def expired(self) -> bool:
        """True when the resource version asked for is no longer kept: list again."""
        return self.status == 410  # noqa: PLR2004 - the status is the name


def error_from_status(body: object, *, http_status: int, retry_after_s: float = 0.0) -> KubeError:
    """The error told by a `metav1.Status`, or by any other body of a failed call.

    Args:
        body: parsed JSON, or the text of a body that was not JSON.
        http_status: used where the body names no code.
        retry_after_s: what the answer's header asked for.
    """
    if not isinstance(body, dict):
        text = str(body).strip()[:500] or "the API server gave no reason"
        return KubeError(http_status, "Unknown", text, retry_after_s=retry_after_s)
    fields: dict[str, Any] = body
    code = fields.get("code")
    return KubeError(
        code if isinstance(code, int) and code else http_status,
        str(fields.get("reason") or "Unknown"),
        str(fields.get("message") or "the API server gave no reason"),
        retry_after_s=retry_after_s,
    )
