"""What a story leaves behind, in a form that two runs of it can be compared by."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fleetward_operator.edges.kinds import CHILD_KINDS
from tests.support.operator_world import World

OURS = "app.kubernetes.io/managed-by"
EVIDENCE_HEAD = "fleetward-evidence-head"
"""The first purge makes it; what it says is checked with the evidence."""

OWN_CHILDREN = (
    *("ServiceAccount/{}", "NetworkPolicy/{}", "Service/{}", "PodDisruptionBudget/{}"),
    *("Deployment/{}", "ConfigMap/{}-trust", "ConfigMap/{}-bundle"),
)
"""The children of a service by its name."""

_UID = re.compile(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}")
_KEY = re.compile(r"[A-Za-z0-9+/]{43}=")
_CHANCE = ("fleetward.io/desired-hash", "deployment.kubernetes.io/revision")
_PASSING = (
    *("lastTransitionTime", "message", "startedAt", "completedAt"),
    *("evidenceDigest", "digest", "cut", "isolationSubject"),
)
_GIVEN = ("clusterIP", "clusterIPs")
_COUNTERS = ("generation", "bundleGeneration", "policyGeneration", "version", "floor")


@dataclass(frozen=True, slots=True)
class Seen:
    """One object: who it is, what it says, and the numbers in it that only grow."""

    uid: str
    content: str
    numbers: Mapping[str, int] = field(default_factory=dict)


Facts = dict[str, Seen]


async def observe(world: World) -> Facts:
    """Everything of ours in a world: services, policies, purges, children, the release's own."""
    facts: Facts = {}
    for kind in (*CHILD_KINDS, "InferenceService", "CachePolicy"):
        for item in await world.items(kind):
            labels = item["metadata"].get("labels") or {}
            if kind in CHILD_KINDS and labels.get(OURS) != "fleetward":
                continue
            facts[f"{kind}/{item['metadata']['name']}"] = _seen(kind, item)
    for item in await world.items("CachePurge", ""):
        facts[f"CachePurge/{item['metadata']['name']}"] = _seen("CachePurge", item)
    for kind in ("ConfigMap", "Secret"):
        for item in await world.items(kind, world.release):
            if (item["metadata"].get("labels") or {}).get(OURS) == "fleetward":
                name = _UID.sub("UID", item["metadata"]["name"])
                if name == EVIDENCE_HEAD:
                    continue
                many = facts.get(f"release/{kind}/{name}")
                count = 1 + (many.numbers["count"] if many else 0)
                facts[f"release/{kind}/{name}"] = Seen("", "", {"count": count})
    for namespace in (world.apps, world.release):
        for pod in await world.items("Pod", namespace):
            held = sorted(pod["metadata"].get("finalizers") or ())
            key = f"Pod/{pod['metadata']['uid']}"
            facts[key] = Seen(pod["metadata"]["uid"], f"held by {held}")
    return facts


def change(
    before: Facts, after: Facts, *, loose: tuple[str, ...] = (), chosen: tuple[str, ...] = ()
) -> dict[str, str]:
    """What differs between two moments, without what differs from run to run.

    An object that is the same one in both tells by how much its numbers grew; one that was made, or
    made anew, tells them whole. Of numbers with one of `loose` in their names only that they grew.
    `chosen` are patterns of what the story itself varies; their first group is kept.
    """
    told = {key: "gone" for key in before if key not in after}
    for key, seen in after.items():
        was = before.get(key)
        same = not seen.uid or (was is not None and was.uid == seen.uid)
        start = was.numbers if was is not None and same else {}
        grown = {
            name: _grown(value - start.get(name, 0), loose=any(word in name for word in loose))
            for name, value in seen.numbers.items()
        }
        words = f"{'same' if same else 'new'} {json.dumps(grown, sort_keys=True)} {seen.content}"
        for pattern in chosen:
            words = re.sub(pattern, r"\1…", words)
        told[key] = words
    return told


def orphans(facts: Facts) -> list[str]:
    """Children of no service."""
    services = {key.partition("/")[2] for key in facts if key.startswith("InferenceService/")}
    return [
        key
        for key in facts
        if key.partition("/")[0] in CHILD_KINDS
        and not any(key.partition("/")[2] in _names(name) for name in services)
    ]


def _grown(by: int, *, loose: bool) -> int | str:
    return "more" if loose and by > 0 else by


def _names(service: str) -> tuple[str, ...]:
    return (service, f"{service}-trust", f"{service}-bundle")


def _seen(kind: str, item: dict[str, Any]) -> Seen:
    metadata, numbers = item["metadata"], {}
    numbers["generation"] = int(metadata.get("generation", 0))
    said = {
        "labels": metadata.get("labels"),
        "annotations": _without(metadata.get("annotations") or {}, _CHANCE),
        "owners": [owner["name"] for owner in metadata.get("ownerReferences", [])],
        "finalizers": metadata.get("finalizers"),
        "spec": _without(item.get("spec") or {}, _GIVEN),
        "data": {name: _parsed(text) for name, text in (item.get("data") or {}).items()},
    }
    if kind in {"InferenceService", "CachePolicy", "CachePurge"}:
        said["status"] = _plain(item.get("status") or {})
    text = json.dumps(_count(said, numbers, "", parent=int(numbers["generation"])), sort_keys=True)
    return Seen(metadata["uid"], _KEY.sub("KEY", _UID.sub("UID", text)), numbers)


def _without(mapping: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: value for name, value in mapping.items() if name not in names}


def _parsed(text: str) -> Any:
    return json.loads(text) if text.startswith("{") else text


def _plain(value: Any) -> Any:
    """A status without times, sentences and digests of what differs from run to run."""
    if isinstance(value, dict):
        kept = {name: one for name, one in value.items() if name not in _PASSING}
        return {name: _plain(one) for name, one in kept.items()}
    return [_plain(one) for one in value] if isinstance(value, list) else value


def _count(value: Any, numbers: dict[str, int], where: str, *, parent: int) -> Any:
    """Take the counters out of a document into `numbers`."""
    if isinstance(value, list):
        return [_count(one, numbers, f"{where}[]", parent=parent) for one in value]
    if not isinstance(value, dict):
        return value
    rest: dict[str, Any] = {}
    for name, one in value.items():
        if name == "observedGeneration":
            rest[name] = "current" if one == parent else "old"
        elif (name in _COUNTERS or where.endswith("floors.tenants")) and isinstance(one, int):
            numbers[f"{where}.{name}"] = one
        else:
            rest[name] = _count(one, numbers, f"{where}.{name}", parent=parent)
    return rest
