"""One pass over what the whole fleet shares: floors, epoch, public keys, gateways."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from fleetward_api.bundle import GatewayBundle
from fleetward_api.errors import FleetwardError
from fleetward_kube import KubeError
from fleetward_operator.core.children import ApplyChild, plan_children
from fleetward_operator.core.events import epoch_rotated, keys_unreadable
from fleetward_operator.core.observed import Ack
from fleetward_operator.core.pods import PodSeen
from fleetward_operator.edges.bootstrap import settle_floors
from fleetward_operator.edges.floors_store import FLOORS
from fleetward_operator.edges.writer import KEYS
from fleetward_operator.errors import KeysUnreadable
from fleetward_operator.handlers.context import Operator
from fleetward_operator.handlers.salt_rotation import rotate_when_due
from fleetward_operator.manifests.manifest import stamp
from fleetward_operator.manifests.trust import RELEASE_TRUST, build_release_trust

RETRY_S = 1.0
KEYS_RECHECK_S = 10.0
"""Between looks at the gateways' Secret: our rights name it, and no watch of Secrets covers it.

A rotation of the epoch comes no later than this after it is due.
"""


async def reconcile_fleet(op: Operator, _key: str) -> float | None:
    """Keep the release's shared objects, and every gateway at today's floors."""
    await _keep_floors(op)
    await _follow_gateway_keys(op)
    await _keep_trust(op)
    reached = await asyncio.gather(*(_push(op, pod) for pod in op.store.gateway_pods()))
    await rotate_when_due(op)
    return KEYS_RECHECK_S if all(reached) else RETRY_S


async def _keep_floors(op: Operator) -> None:
    fleet = op.fleet
    epoch = await settle_floors(fleet.floors, op.secrets, fleet.store, fleet.epoch)
    if epoch is None:
        return
    fleet.epoch = epoch
    key = f"{op.settings.identity.namespace}/{FLOORS}"
    item = op.store.get("ConfigMap", key)
    if item is not None:
        about = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": item["metadata"]}
        await op.events.announce(about, epoch_rotated(epoch.number, why="the floors were lost"))
    for service in op.store.keys("InferenceService"):
        op.enqueue("service", service)


async def _follow_gateway_keys(op: Operator) -> None:
    """Take up keys that were rotated. Those of before stay where the Secret can't be read."""
    try:
        keys = await op.secrets.follow_gateway_keys(op.fleet.keys)
    except KeysUnreadable as error:
        item = op.store.get("ConfigMap", f"{op.settings.identity.namespace}/{RELEASE_TRUST}")
        if item is not None:
            about = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": item["metadata"]}
            await op.events.announce(about, keys_unreadable(error.message))
        return
    if keys.public == op.fleet.keys.public:
        return
    op.fleet.keys = keys
    op.config = replace(op.config, keys=keys.public)
    for service in op.store.keys("InferenceService"):
        op.enqueue("service", service)


async def _keep_trust(op: Operator) -> None:
    namespace = op.settings.identity.namespace
    wanted = stamp(build_release_trust(op.fleet.keys.public, namespace=namespace))
    name = wanted["metadata"]["name"]
    live = op.store.get("ConfigMap", f"{namespace}/{name}")
    actions = plan_children([wanted], {("ConfigMap", name): live} if live else {}, owner_uid="")
    for action in actions:
        if isinstance(action, ApplyChild):
            written = await op.writer.apply(action.manifest, manager=KEYS, seen=action.seen)
            op.own_writes.remember("ConfigMap", f"{namespace}/{name}", written)


async def _push(op: Operator, pod: PodSeen) -> bool:
    bundle = GatewayBundle.of(op.fleet.floors.current.floors)
    wanted = Ack(generation=bundle.generation, digest=bundle.digest)
    op.words.notice_restart(pod.uid, pod.container.restarts)
    if pod.deleting or not pod.reachable or op.words.acks.get(pod.uid) == wanted:
        return True
    try:
        await op.pusher.push_gateway(pod, bundle)
    except (FleetwardError, KubeError):
        return False
    return True
