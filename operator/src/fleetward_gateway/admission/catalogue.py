"""Served names to services, and which tenant may see which."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from fleetward_gateway.admission.facts import ServiceFacts, TenantFacts


@dataclass(frozen=True, slots=True)
class NameConflict:
    """A served name that two services claim; the older one keeps it."""

    name: str
    keeper: ServiceFacts
    loser: ServiceFacts


class Catalogue:
    """The services of the fleet by served name.

    A name belongs to the oldest service that claims it (creation time, then uid), whoever may
    call it; so nobody can take a name over by making a service with a wider selector.
    """

    def __init__(self, services: Iterable[ServiceFacts]) -> None:
        self._owners: dict[str, ServiceFacts] = {}
        conflicts: list[NameConflict] = []
        for service in sorted(services, key=lambda s: (s.created, s.uid)):
            for name in dict.fromkeys(service.names):
                keeper = self._owners.setdefault(name, service)
                if keeper is not service:
                    conflicts.append(NameConflict(name, keeper, service))
        self.conflicts = tuple(conflicts)
        self._views: dict[tuple[tuple[str, str], ...], Mapping[str, ServiceFacts]] = {}

    @property
    def owners(self) -> Mapping[str, ServiceFacts]:
        """Every served name and the service that keeps it."""
        return MappingProxyType(self._owners)

    def view(self, tenant: TenantFacts) -> Mapping[str, ServiceFacts]:
        """What the tenant may call, by served name.

        Made once per set of labels: a lookup in it takes the same steps for another tenant's
        service as for one that does not exist.
        """
        view = self._views.get(tenant.labels)
        if view is None:
            labels = dict(tenant.labels)
            view = {
                name: service
                for name, service in self._owners.items()
                if service.selector is not None and service.selector.matches(labels)
            }
            self._views[tenant.labels] = view
        return view
