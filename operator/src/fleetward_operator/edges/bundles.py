"""Which bundle each service has, remembered between passes, and the engines' word on it."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import Any

from fleetward_api.admin import MemberState
from fleetward_api.bundle import PolicyBundle
from fleetward_operator.core.observed import Ack
from fleetward_operator.core.policy import next_bundle
from fleetward_operator.core.probe_seen import ProbeSeen
from fleetward_operator.manifests.bundle import BUNDLE_KEY

RETIRED_KEPT = 1024
"""Services that are gone whose bundles are still known."""


class BundleLedger:
    """Bundles by service uid. In memory; what must survive stands in each service's ConfigMap."""

    def __init__(self) -> None:
        self._last: dict[str, PolicyBundle] = {}
        self._seen: dict[str, int] = {}
        self._retired: OrderedDict[str, None] = OrderedDict()

    def last(self, service_uid: str) -> PolicyBundle | None:
        """The bundle last settled on."""
        return self._last.get(service_uid)

    def recall(self, service_uid: str, configmap: Mapping[str, Any] | None) -> None:
        """Learn from the service's ConfigMap what an earlier operator settled on."""
        if configmap is None or service_uid in self._last:
            return
        try:
            found = PolicyBundle.model_validate_json((configmap.get("data") or {})[BUNDLE_KEY])
        except (KeyError, ValueError):
            # Somebody emptied it: generations met elsewhere still keep ours growing.
            return
        if found.service.uid == service_uid:
            self._last[service_uid] = found

    def saw_generation(self, service_uid: str, generation: int) -> None:
        """A generation met in a status or a member: ours must not be below it."""
        self._seen[service_uid] = max(self._seen.get(service_uid, 0), generation)

    def settle(self, content: PolicyBundle) -> PolicyBundle:
        """The bundle for this content, with its generation."""
        uid = content.service.uid
        last = self._last.get(uid)
        bundle = next_bundle(content, last=last, seen_generation=self._seen.get(uid, 0))
        self._last[uid] = bundle
        self.saw_generation(uid, bundle.generation)
        return bundle

    def retire(self, service_uid: str) -> None:
        """The service is gone; its bundle goes once 1024 others have gone after it.

        A purge may still tell its last engines the floors, and names the policy in its evidence.
        """
        if service_uid not in self._last and service_uid not in self._seen:
            return
        self._retired[service_uid] = None
        while len(self._retired) > RETIRED_KEPT:
            oldest, _ = self._retired.popitem(last=False)
            self._last.pop(oldest, None)
            self._seen.pop(oldest, None)


class EngineWords:
    """What engines last said: acks, states, why a push failed, and what probes of them showed.

    In memory, by pod uid.
    """

    def __init__(self) -> None:
        self.acks: dict[str, Ack] = {}
        self.states: dict[str, MemberState] = {}
        self.faults: dict[str, str] = {}
        self.probes: dict[str, ProbeSeen] = {}
        self._read_at: dict[str, float] = {}
        self._restarts: dict[str, int] = {}

    def stated(self, uid: str, state: MemberState, at: float) -> None:
        """Take note of what a pod said of itself; `at` in monotonic seconds."""
        self.states[uid] = state
        self._read_at[uid] = at

    def stale(self, uids: Iterable[str], *, before: float) -> frozenset[str]:
        """Those of the pods whose state was last read before this moment, or never."""
        return frozenset(uid for uid in uids if self._read_at.get(uid, -math.inf) < before)

    def notice_restart(self, uid: str, restarts: int) -> None:
        """A container that restarted knows nothing any more."""
        if self._restarts.get(uid, restarts) != restarts:
            self.forget(uid)
        self._restarts[uid] = restarts

    def forget(self, uid: str) -> None:
        """The pod, or the process in it, is gone."""
        for words in (
            self.acks,
            self.states,
            self.faults,
            self.probes,
            self._read_at,
            self._restarts,
        ):
            words.pop(uid, None)
