"""What is common to the whole fleet, and the bundles that follow from it."""

from __future__ import annotations

from dataclasses import dataclass, field

from fleetward_api.bundle import EpochSecret, PolicyBundle
from fleetward_api.resources import InferenceService
from fleetward_operator.core.policy import (
    InForce,
    PolicyChoice,
    bundle_content,
    choose_policy,
    last_bundle_content,
)
from fleetward_operator.edges.bundles import BundleLedger
from fleetward_operator.edges.catalog import Catalog
from fleetward_operator.edges.floors_store import FloorsStore
from fleetward_operator.edges.release_keys import Epoch, ReleaseKeys
from fleetward_operator.edges.store import Store
from fleetward_operator.manifests.names import bundle_name


@dataclass(slots=True)
class Fleet:
    """Keys, epoch and floors, with the ledger of bundles made from them."""

    store: Store
    catalog: Catalog
    floors: FloorsStore
    keys: ReleaseKeys
    epoch: Epoch
    ledger: BundleLedger = field(default_factory=BundleLedger)

    @property
    def in_force(self) -> InForce:
        """Floors and epoch as every bundle must carry them now."""
        return InForce(floors=self.floors.current.floors, epoch=self.epoch.number)

    @property
    def epoch_secret(self) -> EpochSecret:
        """The secret as it is pushed."""
        return EpochSecret.of(self.epoch.number, self.epoch.secret)

    def choice(self, service: InferenceService) -> PolicyChoice:
        """Which policy governs a service."""
        namespace = service.metadata.namespace
        return choose_policy(
            service,
            self.catalog.policies(namespace),
            invalid=self.catalog.invalid_policies(namespace),
        )

    def bundle(self, service: InferenceService) -> PolicyBundle | None:
        """The bundle that a service must have in force; None while it can have none."""
        metadata = service.metadata
        key = f"{metadata.namespace}/{bundle_name(metadata.name)}"
        self.ledger.recall(metadata.uid, self.store.get("ConfigMap", key))
        if service.status.cache_policy and service.status.cache_policy.bundle_generation:
            generation = service.status.cache_policy.bundle_generation
            self.ledger.saw_generation(metadata.uid, generation)
        choice = self.choice(service)
        if choice.missing is None:
            return self.ledger.settle(bundle_content(service, choice, fleet=self.in_force))
        last = self.ledger.last(metadata.uid)
        if last is None:
            return None
        return self.ledger.settle(last_bundle_content(last, fleet=self.in_force))

    def bundles(self) -> list[PolicyBundle]:
        """The bundles of all services that have one."""
        found = (self.bundle(service) for service in self.catalog.services())
        return [bundle for bundle in found if bundle is not None]

    def bundle_of(self, service_key: str, service_uid: str) -> PolicyBundle | None:
        """The bundle for an engine whose service may be gone: its last rules, today's floors."""
        service = self.catalog.service(service_key)
        if isinstance(service, InferenceService) and service.metadata.uid == service_uid:
            return self.bundle(service)
        last = self.ledger.last(service_uid)
        return last and self.ledger.settle(last_bundle_content(last, fleet=self.in_force))
