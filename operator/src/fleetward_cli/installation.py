"""What must hold for an installed release, judged from objects and answers alone."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from fleetward_api.crd.definitions import DEFINITIONS
from fleetward_api.resources import VERSION
from fleetward_cli.summary import find_condition

KubeObject = dict[str, Any]

PARTS: Final = ("operator", "gateway")
LEASE: Final = "fleetward-operator"
WRONG_KEY: Final = "fw-no-such-key"
ERROR_FIELDS: Final = {"message", "type", "param", "code"}
UNAUTHORIZED: Final = 401
OK: Final = 200


@dataclass(frozen=True, slots=True)
class Finding:
    """One check and what is wrong; `fault` is "" when all is well."""

    what: str
    fault: str = ""


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """What the gateway said."""

    status: int
    body: str


def check_definition(name: str, definition: KubeObject) -> Finding:
    """A CustomResourceDefinition serves our version; an empty object is one that is not there."""
    what = f"kind {name}"
    if not definition:
        return Finding(what, "is not installed: set crds.install, or apply `fleetward crds print`")
    served = [one["name"] for one in definition["spec"]["versions"] if one.get("served")]
    if VERSION not in served:
        return Finding(what, f"serves {', '.join(served) or 'nothing'}, not {VERSION}")
    established = find_condition(definition.get("status") or {}, "Established")
    if established.get("status") != "True":
        return Finding(what, f"is not established: {established.get('message') or 'no word yet'}")
    return Finding(what)


def definition_names() -> tuple[str, ...]:
    """Names of the definitions that an installation needs."""
    return tuple(each.name for each in DEFINITIONS)


def check_rollout(part: str, deployment: KubeObject) -> Finding:
    """All replicas of a Deployment are of its present spec, and available."""
    what = f"{part}: every replica is ready"
    if not deployment:
        return Finding(what, "its Deployment is not there")
    wanted = deployment["spec"].get("replicas", 1)
    status = deployment.get("status") or {}
    if status.get("observedGeneration", 0) < deployment["metadata"]["generation"]:
        return Finding(what, "its newest spec was not taken up yet")
    counts = {name: status.get(name, 0) for name in ("updatedReplicas", "availableReplicas")}
    if all(count == wanted for count in counts.values()):
        return Finding(what)
    told = ", ".join(f"{name} {count} of {wanted}" for name, count in counts.items())
    words = [
        str(one["message"])
        for one in status.get("conditions") or ()
        if one.get("message") and (one["type"], one["status"]) != ("Available", "True")
    ]
    return Finding(what, "; ".join([told, *words]))


def check_restricted(part: str, deployment: KubeObject) -> Finding:
    """The pods ask for nothing that the restricted Pod Security level forbids."""
    what = f"{part}: pods meet the restricted Pod Security level"
    if not deployment:
        return Finding(what, "its Deployment is not there")
    return Finding(what, "; ".join(beyond_restricted(deployment["spec"]["template"]["spec"])))


def beyond_restricted(pod: KubeObject) -> list[str]:
    """What of a pod spec the restricted level forbids."""
    found = [name for name in ("hostNetwork", "hostPID", "hostIPC") if pod.get(name)]
    allowed = {"configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "image"}
    allowed |= {"persistentVolumeClaim", "projected", "secret"}
    for volume in pod.get("volumes") or ():
        found += [f"volume {kind}" for kind in volume.keys() - {"name"} - allowed]
    shared = pod.get("securityContext") or {}
    for container in [*(pod.get("initContainers") or ()), *pod["containers"]]:
        context = {**shared, **(container.get("securityContext") or {})}
        found += [f"{container['name']}: {fault}" for fault in _container_faults(context)]
    return found


def _container_faults(context: Mapping[str, Any]) -> Iterable[str]:
    if context.get("privileged"):
        yield "privileged"
    if context.get("allowPrivilegeEscalation") is not False:
        yield "may escalate its privileges"
    if not context.get("runAsNonRoot") or context.get("runAsUser") == 0:
        yield "may run as root"
    if "ALL" not in ((context.get("capabilities") or {}).get("drop") or ()):
        yield "keeps capabilities"
    if (context.get("seccompProfile") or {}).get("type") not in {"RuntimeDefault", "Localhost"}:
        yield "has no seccomp profile"


def check_lease(lease: KubeObject) -> Finding:
    """Somebody leads."""
    what = "operator: one leads"
    if not lease:
        return Finding(what, f"there is no Lease {LEASE}: no operator has ever led here")
    if not (lease.get("spec") or {}).get("holderIdentity"):
        return Finding(what, "nobody holds the lease")
    return Finding(what)


def check_ready(answer: HttpAnswer) -> Finding:
    """The gateway takes requests."""
    what = "gateway: /readyz"
    if answer.status == OK:
        return Finding(what)
    try:
        missing = json.loads(answer.body)["missing"]
    except (ValueError, KeyError, TypeError):
        missing = []
    words = f"; it waits for: {', '.join(map(str, missing))}" if missing else ""
    return Finding(what, f"answered {answer.status}, not {OK}{words}")


def check_refusal(what: str, answer: HttpAnswer) -> Finding:
    """A request that nobody may make is answered 401, in OpenAI's shape."""
    if answer.status != UNAUTHORIZED:
        return Finding(what, f"was answered {answer.status}, not {UNAUTHORIZED}")
    try:
        error = json.loads(answer.body)["error"]
        shaped = set(error) == ERROR_FIELDS
    except (ValueError, KeyError, TypeError):
        shaped = False
    return Finding(what, "" if shaped else "was answered 401, but not in OpenAI's shape")
