"""Where evidence comes from: a file, or the ConfigMaps that outlive a purge."""

from __future__ import annotations

import base64
import binascii
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from fleetward_api.keys import VerifyKey
from fleetward_cli.cluster import GROUP, read_paths
from fleetward_cli.errors import CliError
from fleetward_kube import KubeError

CHUNK_KEY: Final = "evidence.jsonl"
PURGE_LABEL: Final = "fleetward.io/purge"
EVIDENCE: Final = "app.kubernetes.io/name=fleetward-evidence"
"""What else bears a purge's name: the operator's own record of it, for a moment after its end."""
TRUST: Final = "fleetward-trust"
OPERATOR_KEY: Final = "operator.pub"


@dataclass(frozen=True, slots=True)
class Found:
    """Evidence, where it was found, and the digest that the purge's status names (or "")."""

    data: bytes
    source: str
    expected_digest: str = ""


def read_file(path: Path) -> Found:
    """Evidence from a file.

    Raises:
        CliError: it cannot be read.
    """
    try:
        return Found(path.read_bytes(), str(path))
    except OSError as error:
        raise CliError(f"cannot read {path}: {error.strerror}") from error


def read_purge(name: str, *, namespace: str, kubeconfig: Path | None) -> Found:
    """The evidence of the purge of this name; the newest where several had it.

    Raises:
        CliError: there is none.
    """
    chunks = (
        f"/api/v1/namespaces/{namespace}/configmaps?labelSelector={PURGE_LABEL}={name},{EVIDENCE}"
    )
    items = read_paths({"maps": chunks}, kubeconfig=kubeconfig)["maps"].get("items") or []
    if not items:
        raise CliError(
            f"namespace {namespace} holds no evidence of a purge named {name}: it has not ended, "
            "its evidence is past its retention, or --release-namespace is another"
        )
    source = f"ConfigMaps of purge {name} in {namespace}"
    expected = read_expected_digest(name, kubeconfig=kubeconfig)
    return Found(join_chunks(items), source, expected)


def read_expected_digest(name: str, *, kubeconfig: Path | None) -> str:
    """What the purge's status says of its evidence; "" when the purge object is gone."""
    try:
        purge = read_paths({"purge": f"{GROUP}/cachepurges/{name}"}, kubeconfig=kubeconfig)["purge"]
    except KubeError as error:
        if error.not_found:
            return ""
        raise
    return str((purge.get("status") or {}).get("evidenceDigest") or "")


def join_chunks(config_maps: Iterable[dict[str, Any]]) -> bytes:
    """The evidence of the newest purge among these ConfigMaps, its chunks in order.

    Raises:
        CliError: a chunk is missing, or a name has no number.
    """
    purges: dict[str, dict[int, dict[str, Any]]] = defaultdict(dict)
    for item in config_maps:
        stem, _, number = str(item["metadata"]["name"]).rpartition("-")
        if not number.isdecimal():
            raise CliError(f"ConfigMap {item['metadata']['name']} has no chunk number in its name")
        purges[stem][int(number)] = item
    newest = max(purges.values(), key=lambda chunks: created(next(iter(chunks.values()))))
    missing = sorted(set(range(max(newest) + 1)) - newest.keys())
    if missing:
        raise CliError(f"the evidence is not whole: chunk {missing[0]} is missing")
    texts = [(newest[number].get("data") or {}).get(CHUNK_KEY, "") for number in sorted(newest)]
    return "".join(texts).encode()


def created(item: dict[str, Any]) -> str:
    """RFC 3339 times in UTC sort as text."""
    return str(item["metadata"].get("creationTimestamp") or "")


def read_operator_key(*, namespace: str, kubeconfig: Path | None) -> VerifyKey:
    """The public key that this cluster's operator signs with.

    Raises:
        CliError: the operator has not made its keys yet, or the ConfigMap is damaged.
    """
    path = f"/api/v1/namespaces/{namespace}/configmaps/{TRUST}"
    try:
        trust = read_paths({"trust": path}, kubeconfig=kubeconfig)["trust"]
    except KubeError as error:
        if error.not_found:
            raise CliError(
                f"namespace {namespace} has no ConfigMap {TRUST}: the operator makes it at its "
                "first start; check that it runs, and --release-namespace"
            ) from error
        raise
    text = str((trust.get("data") or {}).get(OPERATOR_KEY) or "")
    try:
        base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise CliError(f"{OPERATOR_KEY} of ConfigMap {TRUST} is not base64") from error
    return VerifyKey.from_b64(text)
