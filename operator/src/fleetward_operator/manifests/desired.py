"""What the builders are given: one service's wishes as plain frozen values."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimMount:
    """A PersistentVolumeClaim that holds the model, mounted read-only at `/models`."""

    claim: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PodShape:
    """What the pod asks of the cluster. Amounts are Kubernetes quantities.

    `accelerated`: whether it asks for an accelerator.
    """

    requests: dict[str, str] = field(default_factory=dict)
    limits: dict[str, str] = field(default_factory=dict)
    node_selector: dict[str, str] = field(default_factory=dict)
    tolerations: tuple[dict[str, str | int], ...] = ()
    priority_class: str = ""
    accelerated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """What the release decides for all services."""

    release_namespace: str
    pull_policy: str = "IfNotPresent"
    scraper_namespaces: tuple[str, ...] = ()
    pull_secrets: tuple[str, ...] = ()
    accelerator_runtime_class: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicKeys:
    """Base64 of the raw public keys that every engine trusts.

    `gateway_overlap` is trusted beside `gateway` while that one is rotated; "" at other times.
    """

    operator: str
    sealing: str
    gateway: str
    gateway_overlap: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DesiredService:
    """Everything the children of one InferenceService are made from.

    `engine_args` is the engine's command line after `serve`; `max_surge` and `max_unavailable` are
    counts or percentages as the Deployment takes them.
    """

    namespace: str
    name: str
    uid: str
    image: str
    engine_args: tuple[str, ...]
    replicas: int
    max_surge: str | int
    max_unavailable: str | int
    shape: PodShape
    claim: ClaimMount | None
    environment: Environment
    keys: PublicKeys
