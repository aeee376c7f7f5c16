"""What one pass over a service looked at. Built by the edges, read by the core."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from fleetward_api.admin import MemberState
from fleetward_api.bundle import PolicyBundle
from fleetward_api.resources import InferenceService, InferenceServiceStatus
from fleetward_operator.core.children import ChildKey
from fleetward_operator.core.gate import Refusal
from fleetward_operator.core.pods import PodSeen
from fleetward_operator.core.policy import PolicyChoice
from fleetward_operator.core.probe_seen import BundleName, ProbeSeen
from fleetward_operator.manifests.desired import Environment, PublicKeys
from fleetward_operator.settings import EngineRules


@dataclass(frozen=True, slots=True, kw_only=True)
class Ack:
    """The bundle that an engine last said it holds in force."""

    generation: int
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceConfig:
    """What the release decides for every service."""

    rules: EngineRules
    environment: Environment
    keys: PublicKeys
    gateway_url: str


@dataclass(frozen=True, kw_only=True)
class ServiceObserved:
    """One service and everything around it that its plan depends on.

    `acks`, `states` and `push_faults` are by pod uid; `bundle` is the one to have in force, None
    while its policy is missing and none was ever in force. `stale` are uids of pods whose state was
    not read for a while. `taken` and `refused` are the executor's
    words on children that could not be written.
    """

    service: InferenceService
    children: Mapping[ChildKey, Mapping[str, Any]]
    pods: tuple[PodSeen, ...]
    choice: PolicyChoice
    bundle: PolicyBundle | None
    name_conflict: Refusal | None = None
    acks: Mapping[str, Ack] = field(default_factory=dict)
    states: Mapping[str, MemberState] = field(default_factory=dict)
    push_faults: Mapping[str, str] = field(default_factory=dict)
    stale: frozenset[str] = frozenset()
    probes: Mapping[str, ProbeSeen] = field(default_factory=dict)
    taken: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()

    @property
    def status(self) -> InferenceServiceStatus:
        """The status as it stands in the API server."""
        return self.service.status

    @property
    def present(self) -> tuple[PodSeen, ...]:
        """Pods that aren't on their way out."""
        over = {"Succeeded", "Failed"}
        return tuple(pod for pod in self.pods if not pod.deleting and pod.phase not in over)

    @property
    def running(self) -> tuple[PodSeen, ...]:
        """Pods whose engine can be called."""
        return tuple(pod for pod in self.present if pod.reachable)

    @property
    def ready(self) -> tuple[PodSeen, ...]:
        """Pods that take requests."""
        return tuple(pod for pod in self.running if pod.ready)

    @cached_property
    def bundle_name(self) -> BundleName | None:
        """What names the wanted bundle; every engine is compared with it, several times."""
        return None if self.bundle is None else BundleName.of(self.bundle)

    def has_acked(self, pod: PodSeen) -> bool:
        """Whether a pod holds the wanted bundle in force."""
        ack, named = self.acks.get(pod.uid), self.bundle_name
        return (
            self.bundle is not None
            and named is not None
            and ack == Ack(generation=self.bundle.generation, digest=named.digest)
        )
