"""Which cache policy governs a service, and the bundle that says it to engines."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from fleetward_api.bundle import (
    Admission,
    Deletion,
    Eviction,
    HostTier,
    PolicyBundle,
    Quota,
    Retention,
    RetentionClass,
    Scheduling,
    ServiceRef,
    SharedPrefix,
    Tiers,
)
from fleetward_api.floors import Floors
from fleetward_api.quantity import parse_duration, parse_quantity
from fleetward_api.resources import CachePolicy, CachePolicySpec, InferenceService
from fleetward_api.resources.service_goals import AdmissionSpec
from fleetward_operator.core.gate import Refusal

DEFAULT_POLICY = CachePolicySpec()
"""In force where no policy is named and the namespace has no default: the schema's defaults."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyChoice:
    """The policy of a service. `missing` is set when the one it names can't be used."""

    name: str = ""
    generation: int = 0
    spec: CachePolicySpec = DEFAULT_POLICY
    missing: Refusal | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class InForce:
    """What is the same for the whole fleet: floors and the epoch's number."""

    floors: Floors
    epoch: int


def choose_policy(
    service: InferenceService,
    policies: Iterable[CachePolicy],
    *,
    invalid: Iterable[str] = (),
) -> PolicyChoice:
    """The referenced policy, else the namespace's default, else the built-in defaults.

    Args:
        service: whose policy it is.
        policies: the valid policies of its namespace.
        invalid: names of policies there that cannot be read.
    """
    known = {policy.metadata.name: policy for policy in policies}
    reference = service.spec.cache_policy_ref
    if reference is not None:
        found = known.get(reference.name)
        return _choice(found) if found else _missing(reference.name, invalid=invalid)
    found = namespace_default(known.values())
    return _choice(found) if found else PolicyChoice()


def namespace_default(policies: Iterable[CachePolicy]) -> CachePolicy | None:
    """Of several policies that say they are the default, the oldest."""
    defaults = [policy for policy in policies if policy.spec.namespace_default]
    key = lambda one: (one.metadata.creation_timestamp, one.metadata.uid)  # noqa: E731
    return min(defaults, key=key, default=None)


def bundle_content(
    service: InferenceService, choice: PolicyChoice, *, fleet: InForce
) -> PolicyBundle:
    """The bundle of a service but for its generation, which is 0 here."""
    metadata = service.metadata
    spec = choice.spec
    return PolicyBundle(
        service=ServiceRef(namespace=metadata.namespace, name=metadata.name, uid=metadata.uid),
        generation=0,
        policy_name=choice.name,
        policy_generation=choice.generation,
        epoch=fleet.epoch,
        isolation=spec.isolation,
        permission_scopes=spec.permission_scopes,
        retention=_retention(spec),
        deletion=Deletion(scrub=spec.deletion.scrub, in_flight=spec.deletion.in_flight),
        eviction=_eviction(spec),
        quota=_quota(spec),
        tiers=_tiers(spec),
        scheduling=_scheduling(service),
        shared_prefixes=tuple(
            SharedPrefix(name=one.name, text=one.text) for one in spec.shared_prefixes
        ),
        floors=fleet.floors,
    )


def last_bundle_content(last: PolicyBundle, *, fleet: InForce) -> PolicyBundle:
    """The last bundle's rules under today's floors, for a service whose policy is missing."""
    return last.model_copy(update={"generation": 0, "floors": fleet.floors, "epoch": fleet.epoch})


def next_bundle(
    content: PolicyBundle, *, last: PolicyBundle | None, seen_generation: int
) -> PolicyBundle:
    """The bundle to have in force: the last one while its content holds, else a new generation.

    Args:
        content: what it must say; its generation is ignored.
        last: what was last in force, as far as is known.
        seen_generation: the largest one met anywhere else (the status, a member).
    """
    known = max(last.generation if last else 0, seen_generation)
    same = last is not None and last.content_digest == content.content_digest
    if last is not None and same and last.generation == known:
        return last
    return content.model_copy(update={"generation": known + 1})


def _choice(policy: CachePolicy) -> PolicyChoice:
    return PolicyChoice(
        name=policy.metadata.name, generation=policy.metadata.generation, spec=policy.spec
    )


def _missing(name: str, *, invalid: Iterable[str]) -> PolicyChoice:
    if name in set(invalid):
        refusal = Refusal(
            reason="PolicyInvalid",
            message=f"CachePolicy {name} cannot be read: its own status says why.",
        )
    else:
        refusal = Refusal(
            reason="PolicyNotFound",
            message=f"CachePolicy {name} does not exist in this namespace: create it.",
        )
    return PolicyChoice(name=name, missing=refusal)


def _retention(spec: CachePolicySpec) -> Retention:
    retention = spec.retention
    return Retention(
        idle_ttl_ms=parse_duration(retention.idle_ttl),
        max_ttl_ms=parse_duration(retention.max_ttl),
        classes={
            one.name: RetentionClass(
                store=one.store,
                idle_ttl_ms=_ms(one.idle_ttl),
                max_ttl_ms=_ms(one.max_ttl),
            )
            for one in retention.classes
        },
    )


def _eviction(spec: CachePolicySpec) -> Eviction:
    eviction = spec.eviction
    return Eviction(
        policy=eviction.policy, protected_share_percent=eviction.protected_share_percent or 0
    )


def _quota(spec: CachePolicySpec) -> Quota:
    if spec.quota is None:
        return Quota()
    return Quota(
        max_share_percent=spec.quota.max_share_percent or 100,
        guaranteed_share_percent=spec.quota.guaranteed_share_percent or 0,
    )


def _tiers(spec: CachePolicySpec) -> Tiers:
    host = spec.tiers.host if spec.tiers is not None else None
    if host is None:
        return Tiers()
    return Tiers(host=HostTier(size_bytes=parse_quantity(host.size), encrypt=host.encrypt))


def _scheduling(service: InferenceService) -> Scheduling:
    wanted = service.spec.scheduling
    return Scheduling(
        policy=wanted.policy,
        aging_after_ms=_ms(wanted.aging_after),
        admission=_admission(wanted.admission),
    )


def _admission(wanted: AdmissionSpec | None) -> Admission:
    if wanted is None:
        return Admission()
    return Admission(
        max_predicted_wait_ms=_ms(wanted.max_predicted_wait),
        kv_headroom_percent=wanted.kv_headroom_percent,
    )


def _ms(text: str | None) -> int | None:
    return None if text is None else parse_duration(text)
