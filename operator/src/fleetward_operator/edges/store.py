"""The watched cluster: one informer per kind, our own newer writes on top, a few indexes."""

from __future__ import annotations

import asyncio
import base64
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any

from fleetward_api.api_key import usable_key
from fleetward_kube import Informer, KubeClient
from fleetward_operator.core.children import OUR_MANAGERS, STAMP_PATH
from fleetward_operator.core.field_manager import field_manager
from fleetward_operator.core.pods import PodSeen, observe_pod, trim_pod
from fleetward_operator.edges.kinds import collection_path
from fleetward_operator.edges.own_writes import OwnWrites
from fleetward_operator.manifests.names import DESIRED_HASH_ANNOTATION, GATEWAY_COMPONENT

KubeObject = dict[str, Any]
Callback = Callable[[str, KubeObject | None, KubeObject | None], None]
OURS = "app.kubernetes.io/managed-by=fleetward"
PARTS = "app.kubernetes.io/part-of=fleetward"

LAST_WORDS_KEPT = 4096

RESOURCES = ("InferenceService", "CachePolicy", "Tenant", "CachePurge")
CHILDREN = (
    "Deployment",
    "Service",
    "ServiceAccount",
    "NetworkPolicy",
    "PodDisruptionBudget",
    "ConfigMap",
)
_ONLY_THE_STAMP: dict[str, Any] = {
    "f:metadata": {"f:annotations": {f"f:{DESIRED_HASH_ANNOTATION}": {}}}
}


def trim_object(item: KubeObject) -> KubeObject:
    """An object without `managedFields`, which are most of its bytes and none of its sense."""
    metadata = {key: value for key, value in item["metadata"].items() if key != "managedFields"}
    return {**item, "metadata": metadata}


def trim_child(item: KubeObject) -> KubeObject:
    """A child; of its `managedFields` only who took the desired hash from us, if anybody did."""
    trimmed = trim_object(item)
    usurper = field_manager(STAMP_PATH, item, ours=OUR_MANAGERS)
    if usurper:
        entry = {"manager": usurper, "fieldsV1": _ONLY_THE_STAMP}
        trimmed["metadata"]["managedFields"] = [entry]
    return trimmed


def trim_secret(item: KubeObject) -> KubeObject:
    """A Secret's metadata and the names of the entries that can be API keys. No value is kept."""
    kept = ("name", "namespace", "uid", "resourceVersion")
    entries = item.get("data") or {}
    return {
        "metadata": {key: item["metadata"].get(key, "") for key in kept},
        "data": {name: "" for name, value in entries.items() if usable_key(_raw(value))},
    }


def _raw(value: object) -> bytes:
    try:
        return base64.b64decode(str(value), validate=True)
    except ValueError:
        return b""


class Store:
    """What the operator knows of the cluster.

    Args:
        client: an open client.
        release_namespace: where gateways run.
        key_namespace: where API keys lie.
        own_writes: answers of our own writes.
    """

    def __init__(
        self,
        client: KubeClient,
        *,
        release_namespace: str,
        key_namespace: str,
        own_writes: OwnWrites,
    ) -> None:
        self._release_namespace = release_namespace
        self._own_writes = own_writes
        self._pods: dict[str, PodSeen] = {}
        self._pods_of: dict[str, dict[str, PodSeen]] = {}
        self._last_words: OrderedDict[str, PodSeen] = OrderedDict()
        self.informers: dict[str, Informer] = {
            kind: Informer(client, collection_path(kind), trim=trim_object) for kind in RESOURCES
        }
        for kind in CHILDREN:
            self.informers[kind] = Informer(
                client, collection_path(kind), label_selector=OURS, trim=trim_child
            )
        self.informers["Pod"] = Informer(
            client, collection_path("Pod"), label_selector=PARTS, trim=trim_pod
        )
        self.informers["Secret"] = Informer(
            client, collection_path("Secret", key_namespace), trim=trim_secret
        )
        self.informers["Pod"].subscribe(self._index_pod)
        for kind, informer in self.informers.items():
            informer.subscribe(self._deletions_of(kind))

    async def synced(self) -> None:
        """Wait until every kind was listed once."""
        await asyncio.gather(*(informer.synced.wait() for informer in self.informers.values()))

    def silent_for(self) -> float:
        """Seconds since the quietest watch heard the API server."""
        return max(informer.silent_for() for informer in self.informers.values())

    def get(self, kind: str, key: str) -> KubeObject | None:
        """The newest known object: the watched one, or our own newer write of it."""
        return self._own_writes.newest(kind, key, self.informers[kind].objects.get(key))

    def keys(self, kind: str) -> list[str]:
        """Keys of all watched objects of a kind."""
        return list(self.informers[kind].objects)

    def in_namespace(self, kind: str, namespace: str) -> Iterator[KubeObject]:
        """The watched objects of a kind in one namespace."""
        prefix = f"{namespace}/"
        for key, item in self.informers[kind].objects.items():
            if key.startswith(prefix):
                yield item

    def pod(self, key: str) -> PodSeen | None:
        """One pod of ours."""
        return self._pods.get(key)

    def pods_of(self, service_key: str) -> tuple[PodSeen, ...]:
        """The pods labelled as engines of a service, by name."""
        pods = self._pods_of.get(service_key, {})
        return tuple(pods[key] for key in sorted(pods))

    def gateway_pods(self) -> tuple[PodSeen, ...]:
        """The gateways: pods of that component in the release namespace only."""
        return tuple(pod for pod in self._pods.values() if self.is_gateway(pod))

    def is_gateway(self, pod: PodSeen) -> bool:
        """Whether a pod counts as a gateway."""
        return pod.component == GATEWAY_COMPONENT and pod.namespace == self._release_namespace

    def ended_pod(self, uid: str) -> PodSeen | None:
        """A pod that is gone, where the kubelet had said how its containers ended.

        One that was on its way out before a purge can't be held, but its last words are as good.
        """
        return self._last_words.get(uid)

    def pods(self) -> tuple[PodSeen, ...]:
        """All pods of ours."""
        return tuple(self._pods.values())

    def subscribe(self, kind: str, callback: Callback) -> None:
        """As `Informer.subscribe`."""
        self.informers[kind].subscribe(callback)

    def _deletions_of(self, kind: str) -> Callback:
        def tell(key: str, old: KubeObject | None, new: KubeObject | None) -> None:
            if new is None and old is not None:
                self._own_writes.saw_deletion(kind, key, str(old["metadata"].get("uid", "")))

        return tell

    def _index_pod(self, key: str, old: KubeObject | None, new: KubeObject | None) -> None:
        if old is not None:
            before = self._pods.pop(key, None)
            if before is not None and before.ended and new is None:
                self._last_words[before.uid] = before
                if len(self._last_words) > LAST_WORDS_KEPT:
                    self._last_words.popitem(last=False)
            if before is not None and before.service:
                service = f"{before.namespace}/{before.service}"
                siblings = self._pods_of.get(service, {})
                siblings.pop(key, None)
                if not siblings:
                    self._pods_of.pop(service, None)
        if new is not None:
            seen = observe_pod(new)
            self._pods[key] = seen
            if seen.service:
                self._pods_of.setdefault(f"{seen.namespace}/{seen.service}", {})[key] = seen
