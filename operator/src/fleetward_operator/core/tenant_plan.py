"""The status of a Tenant: whether its API keys work."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass

from fleetward_api.api_key import MAX_KEY_CHARS, MIN_KEY_CHARS
from fleetward_api.resources import ApiKey, Tenant, TenantStatus
from fleetward_operator.core.service_facts import Verdict, fails, holds
from fleetward_operator.core.verdicts import conditions_from

SecretKeys = Mapping[str, frozenset[str]]
"""Names of the usable keys in each Secret of the key namespace; never a value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantPlan:
    """The status to have, and seconds until a key expires (None: none will)."""

    status: TenantStatus
    requeue_after: float | None


def plan_tenant(
    tenant: Tenant,
    secrets: SecretKeys,
    *,
    key_namespace: str,
    now: dt.datetime,
    leaving: str = "",
) -> TenantPlan:
    """Judge each API key by its Secret and its expiry; `leaving` says what a deletion awaits."""
    keys = tenant.spec.api_keys
    missing = [_absence(key, secrets, key_namespace) for key in keys]
    absent = [words for words in missing if words]
    expired = [
        f"{key.name} expired at {key.expires_at}"
        for key, words in zip(keys, missing, strict=True)
        if not words and _expired(key, now)
    ]
    working = len(keys) - len(absent) - len(expired)
    every, some = _judge(len(keys), working, absent=absent, expired=expired)
    generation = tenant.metadata.generation
    if tenant.metadata.deleting:
        some = fails("Deleting", leaving or "The tenant is being deleted.")
    status = TenantStatus(
        message=(every if every.status == "False" and working else some).message,
        observed_generation=generation,
        keys=len(keys),
        ready_keys=working,
        conditions=conditions_from(
            tenant.status.conditions,
            {"Ready": some, "KeysReady": every},
            generation=generation,
            now=now,
        ),
    )
    return TenantPlan(status=status, requeue_after=_next_expiry(keys, now))


def _judge(
    total: int, working: int, *, absent: list[str], expired: list[str]
) -> tuple[Verdict, Verdict]:
    """(KeysReady, Ready)."""
    if not total:
        none = fails("NoKeys", "spec.apiKeys is empty, so nobody can call as this tenant.")
        return none, none
    works = holds("KeysWork", f"{working} of {total} API key(s) work.")
    if absent:
        every = fails("KeysMissing", f"{'; '.join(absent)}."[:4096])
    elif expired:
        every = fails("KeysExpired", f"API key {'; '.join(expired)}.")
    else:
        every = holds("AllKeysWork", f"All {total} API key(s) work.")
    return every, works if working else every


def _absence(key: ApiKey, secrets: SecretKeys, namespace: str) -> str:
    reference = key.secret_ref
    found = secrets.get(reference.name)
    if found is None:
        return f"API key {key.name}: Secret {reference.name} is not in namespace {namespace}"
    if reference.key not in found:
        return (
            f"API key {key.name}: Secret {namespace}/{reference.name} has no {reference.key} "
            f"of {MIN_KEY_CHARS} to {MAX_KEY_CHARS} characters"
        )
    return ""


def _expired(key: ApiKey, now: dt.datetime) -> bool:
    return key.expires_at is not None and dt.datetime.fromisoformat(key.expires_at) <= now


def _next_expiry(keys: tuple[ApiKey, ...], now: dt.datetime) -> float | None:
    times = [dt.datetime.fromisoformat(key.expires_at) for key in keys if key.expires_at]
    ahead = [(time - now).total_seconds() for time in times if time > now]
    return min(ahead) + 1.0 if ahead else None
