"""The exceptions of Fleetward's shared formats.

The tree (each program adds its own branches under the root)::

    FleetwardError
    ├── CanonicalError      bytes that are not the one canonical form
    ├── KeyMalformed        a key that cannot be read
    ├── SignatureInvalid    a signature that does not hold
    ├── SealInvalid         a sealed message that cannot be opened
    ├── ScopeInvalid        a scope that names nothing, or two things
    ├── CacheKeyInvalid     inputs no cache key can be made of
    ├── IdentityError       an identity token that is refused      (code)
    ├── AdminError          an admin call that is refused          (status, code)
    ├── AdmissionError      a member that cannot be admitted
    └── EvidenceError       evidence that cannot be built

`reason` is the CamelCase word that conditions, Events and metrics carry; `retryable` says whether
the same call may succeed later without anybody changing it. `quotes_request` is true of those whose
message may repeat what a client sent: it is for that client alone, and for no log (`fault_words`).
"""

from __future__ import annotations

from typing import ClassVar


class FleetwardError(Exception):
    """Root of every exception we raise on purpose.

    Args:
        message: one sentence for a person: what is wrong and what to do.
        reason: overrides the class's `reason` for this instance.
        retryable: overrides the class's `retryable` for this instance.
    """

    default_reason: ClassVar[str] = "Failed"
    default_retryable: ClassVar[bool] = False
    quotes_request: ClassVar[bool] = False

    def __init__(
        self, message: str, *, reason: str | None = None, retryable: bool | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.reason = self.default_reason if reason is None else reason
        self.retryable = self.default_retryable if retryable is None else retryable


class CanonicalError(FleetwardError):
    """Bytes or values that are not canonical JSON."""

    default_reason = "NotCanonical"


class KeyMalformed(FleetwardError):
    """A key, secret or fingerprint that cannot be read."""

    default_reason = "KeyMalformed"


class SignatureInvalid(FleetwardError):
    """A signature that does not hold under the key it must hold under."""

    default_reason = "SignatureInvalid"


class SealInvalid(FleetwardError):
    """A sealed message that this key cannot open, or that was changed."""

    default_reason = "SealInvalid"


class ScopeInvalid(FleetwardError):
    """A scope that names no tenant, or more than one thing inside it."""

    default_reason = "ScopeInvalid"


class CacheKeyInvalid(FleetwardError):
    """Inputs from which no cache key may be derived."""

    default_reason = "CacheKeyInvalid"


class IdentityError(FleetwardError):
    """An identity token that is refused; always answered with 401.

    `code` is one of `missing`, `malformed`, `forged`, `expired`, `not_yet_valid`,
    `wrong_service`, `unknown_version`, `replayed`.
    """

    default_reason = "IdentityRefused"

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class AdminError(FleetwardError):
    """An admin call that is refused, as the answer to send: HTTP status, code, message."""

    default_reason = "AdminCallRefused"

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code


class AdmissionError(FleetwardError):
    """An admission reply that does not prove who answered."""

    default_reason = "AdmissionRefused"


class EvidenceError(FleetwardError):
    """Facts from which no honest evidence can be built."""

    default_reason = "EvidenceInvalid"
