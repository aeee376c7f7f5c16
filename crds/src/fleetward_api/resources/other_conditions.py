"""The conditions of CachePolicy, Tenant and CachePurge, with every reason and what it means."""

from __future__ import annotations

from typing import Final

from fleetward_api.resources.condition import ConditionType, Reason
from fleetward_api.resources.service_conditions import INVALID, NOT_OBSERVED

POLICY_CONDITIONS: Final = (
    ConditionType(
        "CachePolicy",
        "Ready",
        "Is the policy in force wherever it applies?",
        (
            Reason("InUse", "Every service that follows it has it in force."),
            Reason("Unused", "No service follows it."),
        ),
        (
            Reason("WaitingForAcks", "Some service has yet to put this generation in force."),
            Reason("NotDefault", "An older policy is the default here; the message names it."),
            INVALID,
        ),
        (NOT_OBSERVED,),
    ),
)

TENANT_CONDITIONS: Final = (
    ConditionType(
        "Tenant",
        "Ready",
        "Can somebody call as this tenant?",
        (Reason("KeysWork", "At least one API key works."),),
        (
            Reason("NoKeys", "spec.apiKeys is empty."),
            Reason("KeysMissing", "No key works: a Secret, or its data, is missing."),
            Reason("KeysExpired", "Every key has expired."),
            Reason("Deleting", "The tenant is being deleted, and its cache purged."),
            INVALID,
        ),
        (NOT_OBSERVED,),
    ),
    ConditionType(
        "Tenant",
        "KeysReady",
        "Do all its API keys work?",
        (Reason("AllKeysWork", "Every API key has its Secret and has not expired."),),
        (
            Reason("NoKeys", "spec.apiKeys is empty."),
            Reason("KeysMissing", "A Secret, or its data, is missing; the message names it."),
            Reason("KeysExpired", "A key has expired; the message names it."),
            INVALID,
        ),
        (NOT_OBSERVED,),
    ),
)

_PURGE_FAULTS: Final = (
    Reason("DeadlineExceeded", "The deadline passed; the message names who had not answered."),
    Reason("MemberUnproved", "A member neither signed a receipt nor is proved dead."),
    Reason("CountsDiffer", "A receipt's counts do not add up."),
    Reason("ProbeHit", "A removed block could still be found."),
    Reason("Refused", "The scope is finer than isolation can separate, and Refuse was asked."),
    INVALID,
)

PURGE_CONDITIONS: Final = (
    ConditionType(
        "CachePurge",
        "Complete",
        "Is the scope's cache gone from everywhere, and shown to be?",
        (Reason("Completed", "Every member signed or is proved dead; the evidence is stored."),),
        (
            Reason("Pending", "The purge has not raised the floor yet."),
            Reason("Fencing", "Members are being told not to reuse the scope's cache."),
            Reason("Purging", "Members remove and overwrite."),
            Reason("Verifying", "Receipts are being checked."),
            *_PURGE_FAULTS,
        ),
        (NOT_OBSERVED,),
    ),
    ConditionType(
        "CachePurge",
        "Failed",
        "Did it end without showing that all is gone?",
        _PURGE_FAULTS,
        (Reason("NotFailed", "It is under way, or Completed."),),
        (NOT_OBSERVED,),
    ),
    ConditionType(
        "CachePurge",
        "Reconciling",
        "Is it under way?",
        (Reason("Running", "It is between Pending and its end."),),
        (Reason("Ended", "It is Completed or Incomplete."),),
        (NOT_OBSERVED,),
    ),
    ConditionType(
        "CachePurge",
        "Stalled",
        "Does it need somebody to act?",
        _PURGE_FAULTS,
        (Reason("NotStalled", "Nobody needs to act."),),
        (NOT_OBSERVED,),
    ),
)
