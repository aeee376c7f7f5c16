"""The engine's faults, each with what to do about it in its message.

FleetwardError
└── EngineError
    ├── ConfigInvalid      the engine was started with values that can't work
    ├── ModelUnavailable   the model source doesn't exist, or isn't the one that was pinned
    ├── ModelUnsupported   the model exists, but this engine has no code for it
    ├── RequestRefused     this request can never be served
    ├── DeadlineUnreachable  this request would be late
    ├── AdmissionRefused   this request would wait too long, or need KV that is promised to others
    ├── ChatRefused        these messages don't fit the model's chat template
    ├── GrammarRefused     this schema or grammar can't be followed
    └── GrammarFailed      a grammar came to its limits within one text
"""

from __future__ import annotations

from typing import Literal

from fleetward_api.errors import FleetwardError


class EngineError(FleetwardError):
    """Root of the engine's faults."""


class ConfigInvalid(EngineError):
    """A setting is out of range or contradicts another."""

    default_reason = "ConfigInvalid"


class ModelUnavailable(EngineError):
    """No model file where the source points, or its digest isn't the pinned one."""

    default_reason = "ModelUnavailable"


class ModelUnsupported(EngineError):
    """The model file uses a feature this engine has no code for; the message names it."""

    default_reason = "ModelUnsupported"


class RequestRefused(EngineError):
    """The request can never be served by this engine; waiting would not help.

    Args:
        param: the request field to change, or empty.
    """

    default_reason = "RequestRefused"
    quotes_request = True

    def __init__(self, message: str, *, param: str = "") -> None:
        super().__init__(message)
        self.param = param


class DeadlineUnreachable(EngineError):
    """The request would be late.

    Args:
        wait_s: seconds that it would have waited at least.
    """

    default_reason = "DeadlineUnreachable"

    def __init__(self, wait_s: float) -> None:
        super().__init__(
            f"This request can't make its deadline: it would wait for {wait_s:.1f} s or longer."
        )
        self.wait_s = wait_s


class AdmissionRefused(EngineError):
    """The engine has too much to do for this request; later it may not.

    Args:
        why: the limit that it would break.
        retry_after_s: seconds after which it would not, if nobody else came.
    """

    default_reason = "AdmissionRefused"

    def __init__(
        self, message: str, *, why: Literal["predicted_wait", "kv_headroom"], retry_after_s: float
    ) -> None:
        super().__init__(message)
        self.why: Literal["predicted_wait", "kv_headroom"] = why
        self.retry_after_s = retry_after_s


class ChatRefused(EngineError):
    """The model's chat template refused the messages; the message is the template's own."""

    default_reason = "ChatRefused"
    quotes_request = True


class GrammarRefused(EngineError):
    """A grammar can't be compiled; the message says what is wrong with it."""

    default_reason = "GrammarRefused"
    quotes_request = True


class GrammarFailed(EngineError):
    """A grammar came to its limits within one text; only that text ends."""

    default_reason = "GrammarFailed"
    quotes_request = True


def one_line(fault: BaseException) -> str:
    """A foreign fault in one line; its kind where it has no words."""
    return " ".join(str(fault).split()) or type(fault).__name__
