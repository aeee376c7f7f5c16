"""Our finalizer on the member pods of a running purge, so that the kubelet's word stays readable.

Only while a purge runs, at most until its deadline. To break it by hand (docs/operator.md):
`kubectl patch pod NAME --type merge -p '{"metadata":{"finalizers":null}}'`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from fleetward_kube import KubeClient, KubeError
from fleetward_operator.core.purge.state import Member
from fleetward_operator.edges.kinds import object_path
from fleetward_operator.edges.writer import PURGE, Writer

FINALIZER = "fleetward.io/purge"
ATTEMPTS = 5
"""How often a pod that its kubelet writes at the same moment is read anew."""


class PodHolds:
    """Puts the finalizer on pods and takes it off, each pod once however many purges need it."""

    def __init__(self, client: KubeClient, writer: Writer) -> None:
        self._client = client
        self._writer = writer
        self._needed_by: dict[str, set[str]] = {}

    async def hold(self, purge_uid: str, members: Iterable[Member]) -> None:
        """Hold these pods for a purge. A pod that is on its way out already can't be held."""
        await asyncio.gather(*(self._hold_one(purge_uid, member) for member in members))

    async def release(self, purge_uid: str, members: Iterable[Member]) -> None:
        """Let go of a purge's pods, but for those that another purge needs."""
        await asyncio.gather(*(self._release_one(purge_uid, member) for member in members))

    def is_needed(self, pod_uid: str) -> bool:
        """Whether a purge that this process knows of holds the pod."""
        return bool(self._needed_by.get(pod_uid))

    async def drop(self, namespace: str, name: str, uid: str) -> None:
        """Take the finalizer off one pod."""
        await self._apply(namespace, name, uid, finalizers=[])

    async def _hold_one(self, purge_uid: str, member: Member) -> None:
        needed = self._needed_by.setdefault(member.uid, set())
        first = not needed
        needed.add(purge_uid)
        if not first:
            return
        try:
            await self._apply(member.namespace, member.name, member.uid, finalizers=[FINALIZER])
        except BaseException:
            # Not held: the next pass must try again.
            needed.discard(purge_uid)
            raise

    async def _release_one(self, purge_uid: str, member: Member) -> None:
        needed = self._needed_by.get(member.uid, set())
        needed.discard(purge_uid)
        if not needed:
            self._needed_by.pop(member.uid, None)
            await self._apply(member.namespace, member.name, member.uid, finalizers=[])

    async def _apply(self, namespace: str, name: str, uid: str, *, finalizers: list[str]) -> None:
        for attempt in range(1, ATTEMPTS + 1):
            try:
                # Read live: a hold must not mean a later pod, nor arrive after a later leader's.
                pod = await self._client.request("GET", object_path("Pod", namespace, name))
                metadata = pod["metadata"]
                held = FINALIZER in (metadata.get("finalizers") or ())
                if metadata["uid"] == uid and held != bool(finalizers):
                    await self._apply_to(pod, finalizers=finalizers)
            except KubeError as error:
                if error.conflict and attempt < ATTEMPTS:
                    continue
                # Gone, or on its way out: then there is nothing to hold.
                if error.status not in {404, 422}:
                    raise
            return

    async def _apply_to(self, pod: dict[str, Any], *, finalizers: list[str]) -> None:
        seen = pod["metadata"]
        metadata = {
            "name": seen["name"],
            "namespace": seen["namespace"],
            "finalizers": finalizers,
        }
        manifest = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata}
        await self._writer.apply(manifest, manager=PURGE, seen=pod)
