"""The operator's branch of the exception tree.

::

FleetwardError
├── SettingsError      the environment makes no sense        (settings.py)
├── NotLeading         the lease is not ours: nothing may be written
├── KeysUnreadable     a Secret of ours holds no usable key
├── StateLost          a ConfigMap of ours cannot be read
└── MemberError        a member did not do what was asked    (retryable unless it says so)
"""

from __future__ import annotations

from typing import ClassVar

from fleetward_api.errors import FleetwardError


class NotLeading(FleetwardError):
    """The lease is not ours, or was not renewed in time: nothing may be written."""

    default_reason: ClassVar[str] = "NotLeading"


class KeysUnreadable(FleetwardError):
    """A Secret of ours exists but holds no usable key."""

    default_reason: ClassVar[str] = "KeysUnreadable"


class StateLost(FleetwardError):
    """A ConfigMap of ours exists but cannot be read."""

    default_reason: ClassVar[str] = "StateLost"


class MemberError(FleetwardError):
    """A member of the fleet did not do what was asked; the message says which and why."""

    default_reason: ClassVar[str] = "MemberUnreachable"
    default_retryable: ClassVar[bool] = True
