"""Kubeconfig files that carry their certificates inside, readable by their owner only."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from e2e.cluster.certificates import read_pair, write_private
from e2e.cluster.pki import Pair, Subject, issue

CLUSTER = "fleetward-local"


def build_kubeconfig(server: str, *, authority: bytes, user: str, pair: Pair) -> dict[str, object]:
    """The document; ``authority`` is the PEM certificate that vouches for ``server``."""
    credentials = {
        "client-certificate-data": encode(pair.certificate),
        "client-key-data": encode(pair.key),
    }
    cluster = {"server": server, "certificate-authority-data": encode(authority)}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": CLUSTER, "cluster": cluster}],
        "users": [{"name": user, "user": credentials}],
        "contexts": [{"name": CLUSTER, "context": {"cluster": CLUSTER, "user": user}}],
        "current-context": CLUSTER,
    }


def write_kubeconfig(file: Path, *, pki: Path, server: str, identity: str) -> Path:
    """A kubeconfig for one of the certificates in ``pki`` (``identity`` is its file name)."""
    authority = (pki / "ca.crt").read_bytes()
    pair = read_pair(pki / identity)
    document = build_kubeconfig(server, authority=authority, user=identity, pair=pair)
    # JSON is YAML, and needs no library.
    write_private(file, json.dumps(document, indent=2).encode())
    return file


def write_user_kubeconfig(
    file: Path, *, pki: Path, server: str, user: str, groups: Sequence[str], now: datetime
) -> Path:
    """A kubeconfig for a user who exists by certificate only: CN ``user``, O ``groups``."""
    authority = read_pair(pki / "ca")
    pair = issue(authority, Subject(user, tuple(groups)), now=now)
    document = build_kubeconfig(server, authority=authority.certificate, user=user, pair=pair)
    write_private(file, json.dumps(document, indent=2).encode())
    return file


def encode(content: bytes) -> str:
    """As kubeconfig's ``*-data`` fields want it."""
    return base64.b64encode(content).decode()
