"""Reasons not to run a service at all, or not to route to it. Each is a value with a sentence."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from fleetward_api.resources import InferenceService
from fleetward_operator.settings import EngineRules


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why something is not done, and what a person can do about it."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NameClaim:
    """A service's claim on the names it is served under."""

    key: str
    uid: str
    created: str
    names: frozenset[str]

    @property
    def seniority(self) -> tuple[str, str]:
        """The older one keeps a name: creation time, then uid."""
        return (self.created, self.uid)


def decide_refusal(service: InferenceService, rules: EngineRules, *, image: str) -> Refusal | None:
    """Whether the administrator's rules forbid the service."""
    namespace = service.metadata.namespace
    if not rules.namespace_allowed(namespace):
        return Refusal(
            reason="NamespaceNotAllowed",
            message=(
                f"Namespace {namespace} may not hold services: the release allows "
                f"{', '.join(rules.namespaces) or 'none'} (chart value for service namespaces)."
            ),
        )
    if not rules.image_allowed(image):
        allowed = ", ".join(rules.images or (rules.default_image,))
        return Refusal(
            reason="ImageNotAllowed",
            message=f"spec.engine.image {image} is not allowed: the release allows {allowed}.",
        )
    return None


def claim_of(service: InferenceService) -> NameClaim:
    """The names a service asks for."""
    metadata = service.metadata
    return NameClaim(
        key=f"{metadata.namespace}/{metadata.name}",
        uid=metadata.uid,
        created=metadata.creation_timestamp,
        names=frozenset((service.spec.model.name, *service.spec.model.aliases)),
    )


def decide_name_conflict(claim: NameClaim, others: Iterable[NameClaim]) -> Refusal | None:
    """Whether an older service holds one of the names."""
    for other in sorted(others, key=lambda one: one.seniority):
        shared = claim.names & other.names
        if shared and other.uid != claim.uid and other.seniority < claim.seniority:
            names = ", ".join(sorted(shared))
            # The holder may be another team's: a stranger's namespace is not told.
            where = other.key if other.key.split("/")[0] == claim.key.split("/")[0] else ""
            holder = f"Service {where}" if where else "An older service in another namespace"
            return Refusal(
                reason="NameTaken",
                message=f"{holder} is already served as {names}: choose other names.",
            )
    return None
