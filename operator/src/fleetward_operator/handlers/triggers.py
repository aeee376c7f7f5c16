"""What wakes whom: changes that the informers see become keys. Nothing here decides anything."""

from __future__ import annotations

from typing import Any

from fleetward_operator.edges.catalog import Catalog
from fleetward_operator.edges.floors_store import FLOORS
from fleetward_operator.edges.holds import FINALIZER
from fleetward_operator.edges.purge_record import PREFIX
from fleetward_operator.edges.store import Store
from fleetward_operator.handlers.context import Enqueue, EnqueueLater
from fleetward_operator.manifests.names import PURGE_LABEL, SERVICE_LABEL
from fleetward_operator.manifests.trust import RELEASE_TRUST

KubeObject = dict[str, Any]
AFTER_FLOORS_S = 1.0


class Triggers:
    """Subscribes to every informer."""

    def __init__(
        self,
        store: Store,
        catalog: Catalog,
        *,
        enqueue: Enqueue,
        enqueue_later: EnqueueLater,
        release_namespace: str,
    ) -> None:
        self._enqueue_later = enqueue_later
        self._store = store
        self._catalog = catalog
        self._enqueue = enqueue
        self._release_namespace = release_namespace

    def subscribe(self) -> None:
        """Start listening."""
        self._store.subscribe("InferenceService", self._service)
        self._store.subscribe("CachePolicy", self._policy)
        self._store.subscribe("Tenant", lambda key, _old, _new: self._enqueue("tenant", key))
        self._store.subscribe("CachePurge", self._purge)
        for kind in ("Deployment", "Service", "ServiceAccount", "NetworkPolicy"):
            self._store.subscribe(kind, self._child)
        self._store.subscribe("PodDisruptionBudget", self._child)
        self._store.subscribe("ConfigMap", self._configmap)
        self._store.subscribe("Pod", self._pod)
        self._store.subscribe("Secret", self._secret)

    def _service(self, key: str, old: KubeObject | None, new: KubeObject | None) -> None:
        self._enqueue("service", key)
        namespace = key.split("/", maxsplit=1)[0]
        for policy in self._store.in_namespace("CachePolicy", namespace):
            self._enqueue("policy", f"{namespace}/{policy['metadata']['name']}")
        if old is None or new is None or _names(old) != _names(new):
            self._wake_rivals(key, old, new)
        if new is None and old is not None:
            self._enqueue("gone", str(old["metadata"].get("uid", "")))

    def _wake_rivals(self, key: str, *versions: KubeObject | None) -> None:
        names = set().union(*(_names(item) for item in versions if item is not None))
        for other in self._catalog.holders(names):
            if other != key:
                self._enqueue("service", other)

    def _policy(self, key: str, old: KubeObject | None, new: KubeObject | None) -> None:
        self._enqueue("policy", key)
        if old is not None and new is not None and old.get("spec") == new.get("spec"):
            return
        namespace = key.split("/", maxsplit=1)[0]
        for item in self._store.in_namespace("InferenceService", namespace):
            self._enqueue("service", f"{namespace}/{item['metadata']['name']}")
        for item in self._store.in_namespace("CachePolicy", namespace):
            self._enqueue("policy", f"{namespace}/{item['metadata']['name']}")

    def _purge(self, key: str, old: KubeObject | None, new: KubeObject | None) -> None:
        self._enqueue("purge", key)
        # A Tenant that is being deleted waits for its purge.
        self._enqueue("tenant", str(((new or old or {}).get("spec") or {}).get("tenant", "")))

    def _child(self, key: str, old: KubeObject | None, new: KubeObject | None) -> None:
        # Of the old and the new: somebody may have taken the label off, or changed it.
        for service in {_service_of(item) for item in (old, new)} - {""}:
            self._enqueue("service", f"{key.split('/', maxsplit=1)[0]}/{service}")

    def _configmap(self, key: str, old: KubeObject | None, new: KubeObject | None) -> None:
        namespace, _, name = key.partition("/")
        if namespace != self._release_namespace:
            self._child(key, old, new)
        elif name in {FLOORS, RELEASE_TRUST}:
            self._enqueue("fleet", "")
            for service in self._store.keys("InferenceService") if name == FLOORS else ():
                # The purge that raised them is fencing its members right now and goes first.
                self._enqueue_later("service", service, AFTER_FLOORS_S)
        elif not name.startswith(PREFIX):
            self._child(key, old, new)
        elif old is None and new is not None:
            # Its purge may have been deleted while nobody led: then only the record tells.
            labels = new["metadata"].get("labels") or {}
            self._enqueue("purge", labels.get(PURGE_LABEL, ""))

    def _pod(self, key: str, old: KubeObject | None, new: KubeObject | None) -> None:
        item = new or old or {}
        metadata = item.get("metadata", {})
        service = (metadata.get("labels") or {}).get(SERVICE_LABEL)
        if service:
            self._enqueue("service", f"{key.split('/', maxsplit=1)[0]}/{service}")
        else:
            self._enqueue("fleet", "")
        if new is None or FINALIZER in (metadata.get("finalizers") or ()):
            self._enqueue("hold", key)
            for purge in self._store.keys("CachePurge"):
                self._enqueue("purge", purge)
        if new is None and old is not None:
            self._enqueue("gone", str(old["metadata"].get("uid", "")))

    def _secret(self, key: str, old: KubeObject | None, new: KubeObject | None) -> None:
        del key, old, new
        for tenant in self._store.keys("Tenant"):
            self._enqueue("tenant", tenant)


def _service_of(child: KubeObject | None) -> str:
    labels = (child or {}).get("metadata", {}).get("labels") or {}
    return str(labels.get(SERVICE_LABEL, ""))


def _names(item: KubeObject) -> set[str]:
    model = (item.get("spec") or {}).get("model") or {}
    return {str(model.get("name", "")), *map(str, model.get("aliases") or ())}
