"""Our kinds, parsed once per version, with an index of served names."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from fleetward_api.resources import CachePolicy, InferenceService, InvalidResource
from fleetward_operator.core.gate import NameClaim, claim_of
from fleetward_operator.edges.store import Store

KubeObject = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Invalid:
    """An object that this release's rules refuse, and the sentence that says why."""

    message: str


class Catalog:
    """Parsed services and policies. What cannot be parsed is kept as its fault.

    Args:
        store: the watched cluster.
        may_serve: whether a namespace may hold services; those of others hold no name.
    """

    def __init__(self, store: Store, *, may_serve: Callable[[str], bool]) -> None:
        self._store = store
        self._may_serve = may_serve
        self._services: dict[str, tuple[str, InferenceService | Invalid]] = {}
        self._policies: dict[str, tuple[str, CachePolicy | Invalid]] = {}
        self._claims: dict[str, NameClaim] = {}
        self._holders: dict[str, set[str]] = {}
        store.subscribe("InferenceService", self._index_service)

    def service(self, key: str) -> InferenceService | Invalid | None:
        """The newest known version of a service."""
        item = self._store.get("InferenceService", key)
        if item is None:
            self._services.pop(key, None)
            return None
        version = item["metadata"]["resourceVersion"]
        known = self._services.get(key)
        if known is None or known[0] != version:
            known = (version, _parse_service(item))
            self._services[key] = known
        return known[1]

    def services(self) -> Iterator[InferenceService]:
        """Every valid service."""
        for key in self._store.keys("InferenceService"):
            parsed = self.service(key)
            if isinstance(parsed, InferenceService):
                yield parsed

    def policies(self, namespace: str) -> Iterator[CachePolicy]:
        """The valid policies of a namespace."""
        for item in self._store.in_namespace("CachePolicy", namespace):
            parsed = self._policy(f"{namespace}/{item['metadata']['name']}", item)
            if isinstance(parsed, CachePolicy):
                yield parsed

    def invalid_policies(self, namespace: str) -> tuple[str, ...]:
        """Names of policies of a namespace that cannot be read."""
        return tuple(
            item["metadata"]["name"]
            for item in self._store.in_namespace("CachePolicy", namespace)
            if isinstance(self._policy(f"{namespace}/{item['metadata']['name']}", item), Invalid)
        )

    def policy(self, key: str) -> CachePolicy | Invalid | None:
        """The newest known version of a policy."""
        item = self._store.get("CachePolicy", key)
        return None if item is None else self._policy(key, item)

    def rivals(self, claim: NameClaim) -> list[NameClaim]:
        """The other services that ask for one of these names."""
        return [self._claims[key] for key in sorted(self.holders(claim.names) - {claim.key})]

    def holders(self, names: Iterable[str]) -> set[str]:
        """Keys of the services that ask for one of these names."""
        return {key for name in names for key in self._holders.get(name, ())}

    def _policy(self, key: str, item: KubeObject) -> CachePolicy | Invalid:
        version = item["metadata"]["resourceVersion"]
        known = self._policies.get(key)
        if known is None or known[0] != version:
            known = (version, _parse_policy(item))
            self._policies[key] = known
        return known[1]

    def _index_service(self, key: str, old: KubeObject | None, new: KubeObject | None) -> None:
        del old
        before = self._claims.pop(key, None)
        for name in before.names if before else ():
            self._holders[name].discard(key)
        allowed = new is not None and self._may_serve(key.partition("/")[0])
        parsed = _parse_service(new) if new is not None and allowed else None
        if isinstance(parsed, InferenceService):
            claim = claim_of(parsed)
            self._claims[key] = claim
            for name in claim.names:
                self._holders.setdefault(name, set()).add(key)


def _parse_service(item: KubeObject) -> InferenceService | Invalid:
    try:
        return InferenceService.parse(item)
    except InvalidResource as fault:
        return Invalid(fault.message)


def _parse_policy(item: KubeObject) -> CachePolicy | Invalid:
    try:
        return CachePolicy.parse(item)
    except InvalidResource as fault:
        return Invalid(fault.message)
