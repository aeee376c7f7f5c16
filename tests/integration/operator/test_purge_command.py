"""`fleetward cache purge` against a real API server and a working operator."""

from __future__ import annotations

import pytest

from fleetward_api.evidence import verify_evidence
from fleetward_cli.purge import build_manifest, carry_out, exit_code, last_words, progress
from fleetward_kube import KubeError
from tests.support.operator_world import World, until


async def test_it_makes_a_purge_and_follows_it_to_its_evidence(world: World) -> None:
    told: list[str] = []
    async with world.operator():
        await world.service("demo")
        pods = await until(lambda: world.pods("demo"), what="the pod")
        await world.run_pod(pods[0], blocks=3)
        manifest = build_manifest({"tenant": "alpha", "reason": "asked to"}, mark="0123abcd")
        ended = await carry_out(manifest, kubeconfig=world.kubeconfig, wait=True, tell=told.append)
        evidence = await world.evidence(ended)
    assert exit_code(ended) == 0
    assert told[0] == "cachepurge/purge-alpha-0123abcd created"
    assert told[-1] == progress(ended) == "Completed: 1 of 1 member(s) proved"
    words = list(last_words(ended, release_namespace=world.release))
    assert f"evidence: {verify_evidence(evidence, key_fingerprint=None).digest}" in words


async def test_what_the_kind_refuses_is_told_in_its_words(world: World) -> None:
    spec = {"tenant": "alpha", "reason": "asked to", "deadline": "soon"}
    with pytest.raises(KubeError, match="deadline"):
        await carry_out(
            build_manifest(spec, mark="0123abcd"),
            kubeconfig=world.kubeconfig,
            wait=True,
            tell=lambda _words: None,
        )
