"""The policy in force: which bundle, which epoch secret, which floors; and what a push changes.

Pure: `decide_push` says what to do, the caller does it. Floors only grow, also across bundles.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from fleetward_api.admin import WIRE_VERSIONS
from fleetward_api.bundle import BundlePush, PolicyBundle
from fleetward_api.floors import Floors, merge_floors
from fleetward_api.scope import Scope
from fleetward_engine.admin.retention import TtlLimits, live_limits


@dataclass(frozen=True, slots=True)
class PolicyInForce:
    """What new requests are governed by from the moment it is set.

    `public_blocks` of the pool are set apart for its public prefixes; 0 while it is not known.
    """

    bundle: PolicyBundle
    secret: bytes = field(repr=False)
    floors: Floors
    public_blocks: int = 0


@dataclass(frozen=True, slots=True)
class Apply:
    """Put ``policy`` in force, then fence ``raised`` and apply ``ttls`` before acknowledging.

    ``ttls`` are for what is cached already; None where nothing was in force before.
    ``divides_anew``: who shares within a tenant is another question than before.
    """

    policy: PolicyInForce
    raised: tuple[tuple[Scope, int], ...]
    ttls: TtlLimits | None
    divides_anew: bool = False


@dataclass(frozen=True, slots=True)
class Repeat:
    """The bundle in force came again: acknowledge it again."""


@dataclass(frozen=True, slots=True)
class Refuse:
    """Do not take it: ``status`` and ``code`` for the answer, ``message`` for people."""

    status: int
    code: str
    message: str


def decide_push(
    current: PolicyInForce | None, push: BundlePush, *, known: Floors, service_uid: str
) -> Apply | Repeat | Refuse:
    """What to do with a pushed bundle; ``known`` are the floors that were ever in force."""
    bundle = push.bundle
    refusal = _unsupported(bundle, service_uid=service_uid) or _stale(current, bundle)
    if refusal is not None:
        return refusal
    if current is not None and bundle.generation == current.bundle.generation:
        return Repeat()
    secret = _secret(current, push)
    if secret is None:
        message = f"The bundle is of epoch {bundle.epoch}, whose secret was not sent with it."
        return Refuse(400, "epoch_missing", message)
    floors = merge_floors(known, bundle.floors)
    policy = PolicyInForce(bundle=bundle, secret=secret, floors=floors)
    raised = raised_scopes(known, floors)
    if current is None:
        return Apply(policy=policy, raised=raised, ttls=None)
    divides_anew = _divisions(current) != _divisions(policy)
    ttls = _live_limits(current, policy, divides_anew=divides_anew)
    return Apply(policy=policy, raised=raised, ttls=ttls, divides_anew=divides_anew)


def raised_scopes(before: Floors, after: Floors) -> tuple[tuple[Scope, int], ...]:
    """The scopes whose floor is higher in ``after``, with that floor; tenants first."""
    return tuple(
        (scope, floor) for scope, floor in after.entries() if floor > before.floor_of(scope)
    )


def _divisions(policy: PolicyInForce) -> tuple[str, str]:
    return policy.bundle.isolation, policy.bundle.permission_scopes


def _live_limits(before: PolicyInForce, after: PolicyInForce, *, divides_anew: bool) -> TtlLimits:
    if before.secret != after.secret or divides_anew:
        # What the old epoch keyed can't be found any more: only its bytes are left to drop. What
        # was shared by other rules does not say whose it is by these.
        return TtlLimits(idle_ttl_ms=0, max_ttl_ms=0)
    return live_limits(before.bundle.retention, after.bundle.retention)


def _stale(current: PolicyInForce | None, bundle: PolicyBundle) -> Refuse | None:
    if current is None:
        return None
    in_force = current.bundle.generation
    if bundle.generation < in_force:
        message = f"Generation {in_force} is in force; {bundle.generation} is older."
        return Refuse(409, "stale_generation", message)
    if bundle.generation == in_force and bundle.digest != current.bundle.digest:
        message = f"Generation {in_force} is in force with another content: use a higher one."
        return Refuse(409, "generation_conflict", message)
    return None


def _unsupported(bundle: PolicyBundle, *, service_uid: str) -> Refuse | None:
    if bundle.service.uid != service_uid:
        message = f"The bundle is for service uid {bundle.service.uid}, this is {service_uid}."
        return Refuse(400, "wrong_service", message)
    # A later version may narrow in ways that this one would read past.
    if bundle.wire_version not in WIRE_VERSIONS:
        spoken = ", ".join(map(str, WIRE_VERSIONS))
        message = f"The bundle's wireVersion is {bundle.wire_version}; spoken: {spoken}."
        return Refuse(400, "unknown_wire_version", message)
    return None


def _secret(current: PolicyInForce | None, push: BundlePush) -> bytes | None:
    if push.epoch is not None and push.epoch.number == push.bundle.epoch:
        return push.epoch.raw
    if current is not None and current.bundle.epoch == push.bundle.epoch:
        return current.secret
    return None
