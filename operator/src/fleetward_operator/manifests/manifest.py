"""The type of a manifest, and the hash that says whether it is the one we want."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from fleetward_operator.manifests.names import DESIRED_HASH_ANNOTATION

Manifest = dict[str, Any]
"""A Kubernetes object as plain JSON types. The one place where mixed-value dicts are allowed."""


def desired_hash(manifest: Manifest) -> str:
    """SHA-256 (hex) of a manifest's canonical JSON; independent of key order."""
    text = json.dumps(manifest, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def stamp(manifest: Manifest) -> Manifest:
    """The same manifest with its own hash in the desired-hash annotation."""
    metadata = dict(manifest["metadata"])
    annotations = dict(metadata.get("annotations", {}))
    annotations[DESIRED_HASH_ANNOTATION] = desired_hash(manifest)
    metadata["annotations"] = annotations
    return {**manifest, "metadata": metadata}


def stamped_hash(live: Manifest) -> str:
    """The desired hash that a live object was last applied with, or the empty string."""
    annotations = live.get("metadata", {}).get("annotations") or {}
    return str(annotations.get(DESIRED_HASH_ANNOTATION, ""))
