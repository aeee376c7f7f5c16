"""The four CustomResourceDefinitions: names, columns and subresources beside the schema."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal

from fleetward_api.crd.structural import structural_schema
from fleetward_api.resources import (
    GROUP,
    VERSION,
    CachePolicy,
    CachePurge,
    InferenceService,
    Resource,
    Tenant,
)


@dataclass(frozen=True, slots=True)
class Column:
    """A column of ``kubectl get``; a wide one shows with ``-o wide`` only."""

    name: str
    path: str
    type: Literal["string", "integer", "date"] = "string"
    wide: bool = False
    description: str = ""

    def to_manifest(self) -> dict[str, Any]:
        """The entry of ``additionalPrinterColumns``."""
        entry: dict[str, Any] = {"name": self.name, "type": self.type, "jsonPath": self.path}
        if self.description:
            entry["description"] = self.description
        return {**entry, "priority": 1} if self.wide else entry


@dataclass(frozen=True, slots=True)
class Definition:
    """One kind, as its CustomResourceDefinition names it."""

    model: type[Resource]
    plural: str
    short_name: str
    scope: Literal["Namespaced", "Cluster"]
    columns: tuple[Column, ...]
    selectable: tuple[str, ...] = ()
    scalable: bool = False

    @property
    def name(self) -> str:
        """Name of the CustomResourceDefinition."""
        return f"{self.plural}.{GROUP}"

    @property
    def file_name(self) -> str:
        """Name of the printed file."""
        return f"{GROUP}_{self.plural}.yaml"


def _condition(kind: str, field: str) -> str:
    return f'.status.conditions[?(@.type=="{kind}")].{field}'


_AGE: Final = Column("Age", ".metadata.creationTimestamp", "date")
_READY: Final = Column("Ready", _condition("Ready", "status"), description="Whether it works")
_REASON: Final = Column("Reason", _condition("Ready", "reason"), description="Why, in one word")
_MESSAGE: Final = Column("Message", ".status.message", wide=True)

DEFINITIONS: Final = (
    Definition(
        InferenceService,
        "inferenceservices",
        "fsvc",
        "Namespaced",
        (
            _READY,
            _REASON,
            Column("Replicas", ".status.replicaSummary", description="Ready and wanted replicas"),
            Column("Model", ".spec.model.name", description="Id that clients ask for"),
            _AGE,
            Column("Engine", ".status.engine.runner", wide=True),
            Column("CachePolicy", ".status.cachePolicy.name", wide=True),
            Column("Isolation", _condition("IsolationVerified", "status"), wide=True),
            Column("URL", ".status.url", wide=True),
            _MESSAGE,
        ),
        selectable=(".spec.model.name",),
        scalable=True,
    ),
    Definition(
        CachePolicy,
        "cachepolicies",
        "cpol",
        "Namespaced",
        (
            _READY,
            _REASON,
            Column("Isolation", ".spec.isolation"),
            Column("Idle-TTL", ".spec.retention.idleTTL"),
            Column("Max-TTL", ".spec.retention.maxTTL"),
            Column("Services", ".status.services", "integer"),
            _AGE,
            Column("Enforced", ".status.enforcedServices", "integer", wide=True),
            _MESSAGE,
        ),
    ),
    Definition(
        Tenant,
        "tenants",
        "ften",
        "Cluster",
        (
            _READY,
            _REASON,
            Column("Keys", ".status.readyKeys", "integer", description="API keys that work"),
            _AGE,
            Column("Class", ".spec.retentionClass", wide=True),
            _MESSAGE,
        ),
    ),
    Definition(
        CachePurge,
        "cachepurges",
        "cpurge",
        "Cluster",
        (
            Column("Tenant", ".spec.tenant"),
            Column("Phase", ".status.phase"),
            Column("Blocks", ".status.blocks", "integer", description="Blocks removed"),
            Column("Members", ".status.members", "integer", description="Who had to answer"),
            Column("Completed", ".status.completedAt", "date"),
            _AGE,
            Column("Evidence", ".status.evidenceDigest", wide=True),
            _MESSAGE,
        ),
        selectable=(".spec.tenant",),
    ),
)


def build_definition(definition: Definition) -> dict[str, Any]:
    """The CustomResourceDefinition of one kind, as a manifest."""
    kind = definition.model.__name__
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": definition.name,
            "labels": {"app.kubernetes.io/part-of": "fleetward"},
        },
        "spec": {
            "group": GROUP,
            "scope": definition.scope,
            "names": {
                "kind": kind,
                "listKind": f"{kind}List",
                "plural": definition.plural,
                "singular": kind.lower(),
                "shortNames": [definition.short_name],
                "categories": ["fleetward"],
            },
            "versions": [_version(definition)],
        },
    }


def _version(definition: Definition) -> dict[str, Any]:
    subresources: dict[str, Any] = {"status": {}}
    if definition.scalable:
        subresources["scale"] = {
            "specReplicasPath": ".spec.replicas",
            "statusReplicasPath": ".status.replicas",
            "labelSelectorPath": ".status.selector",
        }
    version: dict[str, Any] = {
        "name": VERSION,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": _root_schema(definition.model)},
        "subresources": subresources,
        "additionalPrinterColumns": [column.to_manifest() for column in definition.columns],
    }
    if definition.selectable:
        version["selectableFields"] = [{"jsonPath": path} for path in definition.selectable]
    return version


def _root_schema(model: type[Resource]) -> dict[str, Any]:
    """The schema of a whole object: what the API server validates itself is left to it."""
    schema = structural_schema(model)
    spec, status = schema["properties"]["spec"], schema["properties"]["status"]
    # The operator writes status as a whole; a default there would stand before it has looked.
    del status["default"]
    schema["properties"] = {
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        "metadata": {"type": "object"},
        "spec": spec,
        "status": status,
    }
    schema["required"] = ["spec"]
    return schema
