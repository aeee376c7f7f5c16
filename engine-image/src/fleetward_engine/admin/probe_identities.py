"""Who an isolation probe asks as: one identity twice, and others that differ in one thing each."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace

from fleetward_api.bundle import PolicyBundle
from fleetward_engine.probe_tenants import OTHER_PROBE_TENANT, PROBE_TENANT
from fleetward_engine.server.identity import Caller

LOWEST_PRIORITY = -1_000_000
FLOORS_USED = 2
"""Floors that one probe takes: its own, and the one that a purge would raise it to."""


@dataclass(frozen=True, slots=True)
class ProbeIdentity:
    """One asker: in words, as the engine sees it, and whether it may find what was asked before."""

    words: str
    caller: Caller
    may_reuse: bool = False


def probe_identities(bundle: PolicyBundle, *, floor: int) -> tuple[ProbeIdentity, ...]:
    """All that must be told apart under these rules, in the order to ask in.

    Args:
        bundle: the rules in force.
        floor: of the probes' tenants; the next one is taken as well.
    """
    base = Caller(
        tenant=PROBE_TENANT,
        tenant_uid="first",
        user=_name("user"),
        session=_name("session"),
        permission_scope=_name("scope"),
        permission_scopes=(_name("scope"),),
        floors=(floor, 0, 0, 0),
        priority=LOWEST_PRIORITY,
    )
    others = {
        "another tenant": replace(base, tenant=OTHER_PROBE_TENANT),
        "a later tenant of the same name": replace(base, tenant_uid="later"),
        "a request after a purge": replace(base, floors=(floor + 1, 0, 0, 0)),
        "another document tag": replace(base, document_tags=(_name("tag"),)),
    }
    if bundle.isolation == "User":
        others["another user"] = replace(base, user=_name("other user"))
    if bundle.isolation == "Session":
        others["another session"] = replace(base, session=_name("other session"))
    if bundle.permission_scopes == "Include":
        scope = _name("other scope")
        others["another permission scope"] = replace(
            base, permission_scope=scope, permission_scopes=(scope,)
        )
    return (
        ProbeIdentity("the first request", base),
        ProbeIdentity("the same identity", base, may_reuse=True),
        *(ProbeIdentity(words, caller) for words, caller in others.items()),
    )


def _name(what: str) -> str:
    """A keyed digest as a gateway would send it, of nobody."""
    return hashlib.sha256(f"fleetward/isolation-probe {what}".encode()).hexdigest()
