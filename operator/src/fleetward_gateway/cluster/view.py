"""The cluster as requests see it: kept current by the watches, read without waiting.

An object that cannot be read keeps its last good facts and is named in `faults`. A Secret is the
exception: what is not there any more opens nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeVar

from fleetward_api.errors import FleetwardError
from fleetward_api.floors import Floors, merge_floors
from fleetward_gateway.admission.catalogue import Catalogue
from fleetward_gateway.admission.facts import PolicyFacts, ServiceFacts, TenantFacts
from fleetward_gateway.admission.keyring import KeyIndex, build_key_index
from fleetward_gateway.admission.retention import pick_policy
from fleetward_gateway.cluster.facts import policy_facts, service_facts, tenant_facts
from fleetward_gateway.cluster.trust import OwnKeys, Trust, read_own_keys, read_trust
from fleetward_gateway.routing.endpoints import EndpointTable

Facts = TypeVar("Facts")
KubeObject = dict[str, Any]

logger = logging.getLogger(__name__)


class ClusterView:
    """Everything that admission and routing read; changed only in the event loop's thread.

    Args:
        namespaces: those that may hold services; `*` is any. A service elsewhere is refused by the
            operator, so it must not hold a name either.
    """

    def __init__(self, namespaces: Collection[str] = ("*",)) -> None:
        self._namespaces = frozenset(namespaces)
        self.endpoints = EndpointTable()
        self.floors = Floors()
        self.floors_known = False
        self.trust: Trust | None = None
        self.own_keys: OwnKeys | None = None
        self.faults: dict[tuple[str, str], str] = {}
        self._tenants: dict[str, TenantFacts] = {}
        self._secrets: dict[str, Mapping[str, bytes | None]] = {}
        self._services: dict[str, ServiceFacts] = {}
        self._policies: dict[str, PolicyFacts] = {}
        self._key_index: KeyIndex | None = None
        self._catalogue: Catalogue | None = None

    @property
    def key_index(self) -> KeyIndex:
        """Keys to tenants; made again after a Tenant or Secret changed."""
        if self._key_index is None:
            self._key_index = build_key_index(self._tenants.values(), self._secrets)
            self._note_all("key", self._key_index.faults)
        return self._key_index

    @property
    def catalogue(self) -> Catalogue:
        """Served names; made again after a service changed."""
        if self._catalogue is None:
            self._catalogue = Catalogue(self._services.values())
            self._note_all(
                "model name",
                tuple(
                    f"{c.name} belongs to {c.keeper.namespace}/{c.keeper.name}, which is older "
                    f"than {c.loser.namespace}/{c.loser.name}: rename one"
                    for c in self._catalogue.conflicts
                ),
            )
        return self._catalogue

    def policy_of(self, service: ServiceFacts) -> PolicyFacts | None:
        """The cache policy that governs a service."""
        return pick_policy(
            self._policies.values(), namespace=service.namespace, name=service.policy
        )

    def raise_floors(self, floors: Floors) -> None:
        """Take in floors from whichever source; they only grow."""
        self.floors = merge_floors(self.floors, floors)

    def on_tenant(self, key: str, _old: KubeObject | None, new: KubeObject | None) -> None:
        """A Tenant changed."""
        if self._keep("Tenant", key, new, into=self._tenants, read=tenant_facts):
            self._key_index = None

    def on_secret(self, key: str, _old: KubeObject | None, new: KubeObject | None) -> None:
        """A Secret of API keys changed (already reduced to digests)."""
        name = key.partition("/")[2]
        if new is None:
            self._secrets.pop(name, None)
        else:
            self._secrets[name] = new["digests"]
        self._key_index = None

    def on_service(self, key: str, _old: KubeObject | None, new: KubeObject | None) -> None:
        """An InferenceService changed; most changes are of its status and alter nothing here."""
        if not self._namespaces & {"*", key.partition("/")[0]}:
            return
        if self._keep("InferenceService", key, new, into=self._services, read=service_facts):
            self._catalogue = None

    def on_policy(self, key: str, _old: KubeObject | None, new: KubeObject | None) -> None:
        """A CachePolicy changed."""
        self._keep("CachePolicy", key, new, into=self._policies, read=policy_facts)

    def on_slice(self, key: str, old: KubeObject | None, new: KubeObject | None) -> None:
        """An EndpointSlice changed."""
        self.endpoints.replace(key, old, new)

    def on_floors(self, key: str, _old: KubeObject | None, new: KubeObject | None) -> None:
        """The floors ConfigMap changed; without it the last known floors stay."""
        if new is None:
            return
        try:
            self.raise_floors(Floors.model_validate_json(new["data"].get("floors.json", "")))
        except ValueError:
            self._note("ConfigMap", key, "floors.json cannot be read: the last floors stay")
            return
        self.floors_known = True
        self._clear("ConfigMap", key)

    def on_trust(self, key: str, _old: KubeObject | None, new: KubeObject | None) -> None:
        """The ConfigMap of public keys changed."""
        trust = self._read_or_note("ConfigMap", key, new, read=read_trust)
        self.trust = trust or self.trust

    def on_own_keys(self, key: str, _old: KubeObject | None, new: KubeObject | None) -> None:
        """The Secret of the gateway's own keys changed."""
        own_keys = self._read_or_note("Secret", key, new, read=read_own_keys)
        self.own_keys = own_keys or self.own_keys

    def unreadable(self, kind: str, key: str) -> None:
        """A change of an object could not be taken in at all; what was known of it stays."""
        self._note(kind, key, "it cannot be read; its last good version stays")

    def readable(self, kind: str, key: str) -> None:
        """A change of an object was taken in; pairs with `unreadable`."""
        self._clear(kind, key)

    def missing(self) -> list[str]:
        """What must still come before a request can be served."""
        needs = {
            "the ConfigMap fleetward-floors": self.floors_known,
            "the ConfigMap fleetward-trust": self.trust is not None,
            "the Secret fleetward-gateway-keys": self.own_keys is not None,
        }
        return [what for what, present in needs.items() if not present]

    def _keep(
        self,
        kind: str,
        key: str,
        new: KubeObject | None,
        *,
        into: dict[str, Facts],
        read: Callable[[KubeObject], Facts],
    ) -> bool:
        """Store the facts of one object; True when they differ from those before."""
        before = into.get(key)
        if new is None:
            into.pop(key, None)
            self._clear(kind, key)
            return before is not None
        try:
            facts = read(new)
        except FleetwardError as error:
            kept = "its last good version stays" if before is not None else "it is left out"
            self._note(kind, key, f"{error.message}; {kept}")
            return False
        self._clear(kind, key)
        into[key] = facts
        return facts != before

    def _read_or_note(
        self,
        kind: str,
        key: str,
        new: KubeObject | None,
        *,
        read: Callable[[Mapping[str, str]], Facts],
    ) -> Facts | None:
        if new is None:
            self._note(kind, key, "it is gone: its last version stays in use")
            return None
        try:
            facts = read(new["data"])
        except FleetwardError as error:
            self._note(kind, key, f"{error.message}; its last good version stays")
            return None
        self._clear(kind, key)
        return facts

    def _note(self, kind: str, key: str, text: str) -> None:
        if self.faults.get((kind, key)) != text:
            self.faults[(kind, key)] = text
            logger.warning("%s %s: %s", kind, key, text)

    def _clear(self, kind: str, key: str) -> None:
        if self.faults.pop((kind, key), None) is not None:
            logger.info("%s %s is valid again", kind, key)

    def _note_all(self, kind: str, texts: tuple[str, ...]) -> None:
        for known in [k for k in self.faults if k[0] == kind and k[1] not in texts]:
            del self.faults[known]
        for text in texts:
            self._note(kind, text, "ignored until it is mended")
