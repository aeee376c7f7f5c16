"""Services, pods and observations for tests of the operator's core."""

from __future__ import annotations

import datetime as dt
from typing import Any

from fleetward_api.admin import MemberState, ModelState
from fleetward_api.floors import Floors
from fleetward_api.isolation_probe import ProbeJudgement
from fleetward_api.resources import CachePolicy, InferenceService
from fleetward_operator.core.observed import Ack, ServiceConfig, ServiceObserved
from fleetward_operator.core.pods import PodSeen, observe_pod
from fleetward_operator.core.policy import (
    InForce,
    PolicyChoice,
    bundle_content,
    choose_policy,
    next_bundle,
)
from fleetward_operator.core.probe_seen import remember_probe
from fleetward_operator.manifests.desired import Environment, PublicKeys
from fleetward_operator.settings import EngineRules

NOW = dt.datetime(2026, 1, 1, 12, 0, 0, tzinfo=dt.UTC)
IMAGE = "registry.test/fleetward-engine:1"
PROVED = ProbeJudgement("Proved", "")
RULES = EngineRules(
    default_image=IMAGE,
    images=(),
    namespaces=("*",),
    pull_policy="IfNotPresent",
    scraper_namespaces=("monitoring",),
)
CONFIG = ServiceConfig(
    rules=RULES,
    environment=Environment(release_namespace="fleetward-system", scraper_namespaces=("mon",)),
    keys=PublicKeys(operator="b3A=", sealing="c2U=", gateway="Z3c="),
    gateway_url="http://gateway.test",
)


def service(
    name: str = "demo",
    *,
    namespace: str = "apps",
    created: str = "2026-01-01T00:00:00Z",
    status: dict[str, Any] | None = None,
    generation: int = 1,
    **spec: Any,
) -> InferenceService:
    """An InferenceService with a uid made of its name."""
    full: dict[str, Any] = {
        "model": {"name": name, "source": "package://demo"},
        "access": {"tenantSelector": {}},
    }
    return InferenceService.parse(
        {
            "apiVersion": "fleetward.io/v1alpha1",
            "kind": "InferenceService",
            "metadata": {
                "name": name,
                "namespace": namespace,
                "uid": f"uid-{name}",
                "generation": generation,
                "resourceVersion": "1",
                "creationTimestamp": created,
            },
            "spec": {**full, **spec},
            "status": status or {},
        }
    )


def policy(name: str, *, created: str = "2026-01-01T00:00:00Z", **spec: Any) -> CachePolicy:
    """A CachePolicy in the namespace of `service`."""
    return CachePolicy.parse(
        {
            "apiVersion": "fleetward.io/v1alpha1",
            "kind": "CachePolicy",
            "metadata": {
                "name": name,
                "namespace": "apps",
                "uid": f"uid-{name}",
                "generation": 3,
                "creationTimestamp": created,
            },
            "spec": spec,
        }
    )


def pod_manifest(
    name: str,
    *,
    state: dict[str, Any] | None = None,
    last: dict[str, Any] | None = None,
    ready: bool = False,
    restarts: int = 0,
    phase: str = "Running",
    scheduled: dict[str, Any] | None = None,
    deleting: bool = False,
) -> dict[str, Any]:
    """A pod as the API server shows it; it runs unless `state` says otherwise."""
    metadata: dict[str, Any] = {
        "name": name,
        "namespace": "apps",
        "uid": f"uid-{name}",
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "labels": {"app.kubernetes.io/component": "engine", "fleetward.io/service": "demo"},
    }
    if deleting:
        metadata["deletionTimestamp"] = "2026-01-01T00:01:00Z"
    container: dict[str, Any] = {
        "name": "engine",
        "restartCount": restarts,
        "state": state if state is not None else {"running": {}},
    }
    if last is not None:
        container["lastState"] = {"terminated": last}
    return {
        "metadata": metadata,
        "spec": {"serviceAccountName": "demo", "containers": [{"image": IMAGE}]},
        "status": {
            "phase": phase,
            "podIP": "10.0.0.1",
            "conditions": [
                {"type": "Ready", "status": "True" if ready else "False"},
                scheduled or {"type": "PodScheduled", "status": "True"},
            ],
            "containerStatuses": [container],
        },
    }


def pod(name: str, **kwargs: Any) -> PodSeen:
    """The same, as the core sees it."""
    return observe_pod(pod_manifest(name, **kwargs))


def deployment(*, wanted: int, updated: int | None = None, total: int | None = None) -> Any:
    """A live Deployment whose controller has seen its spec."""
    return {
        "metadata": {"name": "demo", "namespace": "apps", "generation": 1, "uid": "d"},
        "spec": {"replicas": wanted},
        "status": {
            "observedGeneration": 1,
            "updatedReplicas": wanted if updated is None else updated,
            "replicas": wanted if total is None else total,
        },
    }


def observed(
    subject: InferenceService | None = None,
    *,
    pods: tuple[PodSeen, ...] = (),
    acked: bool = True,
    policies: tuple[CachePolicy, ...] = (),
    live: Any = None,
    **kwargs: Any,
) -> ServiceObserved:
    """What a pass sees of a service whose engines acked and were probed, unless told otherwise."""
    subject = subject or service()
    choice = kwargs.pop("choice", None) or choose_policy(subject, policies)
    bundle = kwargs.pop("bundle", None) or first_bundle(subject, choice)
    words = {one.uid: engine_state(one.uid) for one in pods} if acked else {}
    acks = {}
    if acked and bundle is not None:
        ack = Ack(generation=bundle.generation, digest=bundle.digest)
        acks = {one.uid: ack for one in pods if one.reachable}
    if acks:
        proofs = {uid: remember_probe(None, bundle, PROVED, at=0.0, wall=0.0) for uid in acks}
        kwargs.setdefault("probes", proofs)
    children = {("Deployment", subject.metadata.name): live} if live else {}
    return ServiceObserved(
        service=subject,
        children=kwargs.pop("children", children),
        pods=pods,
        choice=choice,
        bundle=bundle,
        acks=acks,
        states=kwargs.pop("states", words),
        **kwargs,
    )


def first_bundle(subject: InferenceService, choice: PolicyChoice) -> Any:
    """Generation 1 of a service's bundle; None while its policy is missing."""
    if choice.missing is not None:
        return None
    fleet = InForce(floors=Floors(), epoch=1)
    content = bundle_content(subject, choice, fleet=fleet)
    return next_bundle(content, last=None, seen_generation=0)


def engine_state(uid: str, *, fault: str = "", digest: str = "sha256:aa") -> MemberState:
    """What an engine says of itself."""
    model = None if fault else ModelState(model_digest=digest, engine_version="1.2.3")
    return MemberState(kind="engine", pod_uid=uid, model=model, fault=fault)
