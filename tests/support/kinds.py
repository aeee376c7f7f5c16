"""Installs our CustomResourceDefinitions from the printed files."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.support.raw_api import RawApi, read_manifests

CRDS = Path(__file__).resolve().parents[2] / "crds"
_PATH = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


async def install_kinds(kubeconfig: Path) -> None:
    """Applies `crds/*.yaml` and waits until the API server serves every kind."""
    async with RawApi.connect(kubeconfig) as api:
        for manifest in read_manifests(sorted(CRDS.glob("*.yaml"))):
            path = f"{_PATH}/{manifest['metadata']['name']}"
            answer = await api.apply(path, manifest)
            assert answer.accepted, answer.message
        for plural in ("inferenceservices", "cachepolicies", "tenants", "cachepurges"):
            await _served(api, plural)


async def _served(api: RawApi, plural: str) -> None:
    async with asyncio.timeout(60):
        path = f"/apis/fleetward.io/v1alpha1/{plural}"
        while not (await api.send("GET", path)).accepted:  # noqa: ASYNC110  # another process
            await asyncio.sleep(0.05)
