"""A tenant's purge on two pods under load: fast, signed, checkable, and honest when it fails."""

from __future__ import annotations

import secrets
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Self

from e2e.figures.record import record
from e2e.tests.support import manifests
from e2e.tests.support.evidence import evidence_of, key_fingerprint, purge_blocks, purge_seconds
from e2e.tests.support.gateway import Gateway
from e2e.tests.support.images import image_without_removal
from e2e.tests.support.kubectl import Cluster
from e2e.tests.support.purges import ended
from e2e.tests.support.services import pods_of, ready
from fleetward_api.evidence import verify_evidence

_ENGINE = {"kvMemory": "768Mi", "maxModelLen": 4096, "blockSize": 16}


def test_a_purge_is_fast_and_its_evidence_holds(
    cluster: Cluster, tenants: dict[str, Gateway], playground: str, full: bool
) -> None:
    engine = _ENGINE if full else {**_ENGINE, "runner": "Simulated"}
    resources = {"cpu": "500m", "memory": "3Gi"} if full else {"cpu": "50m", "memory": "1Gi"}
    cluster.apply(
        manifests.policy("strict", namespace=playground, namespaceDefault=True),
        manifests.service(
            "purged", namespace=playground, replicas=2, engine=engine, resources=resources
        ),
    )
    ready(cluster, "purged", playground, within=180)
    pods = {pod["metadata"]["uid"] for pod in pods_of(cluster, "purged", playground)}
    _fill(tenants["ada"], "purged")
    with _Decoding(tenants["bob"], "purged") as bob:
        purge = _purge(cluster, "ada", phase="Completed")
    assert bob.error is None
    evidence = evidence_of(cluster, purge)
    fingerprint = key_fingerprint(cluster)
    report = verify_evidence(evidence, key_fingerprint=fingerprint)
    assert report.ok, report.first_fault
    missed = _flips_missed(evidence, fingerprint)
    counts = purge_blocks(evidence, pods=pods)
    assert len(counts) == 2
    least = min(counts)
    seconds = purge_seconds(cluster, purge)
    if full:
        record("purge-blocks-least-pod", least, "torch runner, blocks of 16 tokens")
        record("purge-seconds", round(seconds, 3), "from its creation to Completed, audit log")
        record("purge-flips-missed", missed, f"each of {len(evidence)} bytes flipped")
    assert least >= 1000
    assert missed == 0
    assert tenants["ada"].cached_tokens("purged", "anything at all " * 40) == 0


def test_a_build_that_does_not_remove_ends_incomplete(
    cluster: Cluster, tenants: dict[str, Gateway], playground: str
) -> None:
    cluster.apply(
        manifests.policy("strict", namespace=playground, namespaceDefault=True),
        manifests.service(
            "forgetful",
            namespace=playground,
            engine={"runner": "Simulated", "kvMemory": "64Mi", "image": image_without_removal()},
        ),
    )
    ready(cluster, "forgetful", playground)
    tenants["bob"].chat("forgetful", "remember this, please " * 40)
    purge = _purge(cluster, "bob", phase="Incomplete")
    status = cluster.get("cpurge", purge)["status"]
    assert status["notCovered"]
    record("purge-without-removal-incomplete", 1, str(status.get("message", ""))[:80])


def _purge(cluster: Cluster, tenant: str, *, phase: str) -> str:
    """Purge a tenant, wait for the end and check it; returns the purge's name."""
    name = f"forget-{tenant}-{secrets.token_hex(3)}"
    cluster.apply(manifests.purge(name, tenant=tenant))
    status = ended(cluster, name, within=90)
    assert status["phase"] == phase, status
    return name


def _fill(gateway: Gateway, model: str) -> None:
    """Put well over 1,000 blocks of distinct prompts on each of two pods."""

    def _one(_: int) -> None:
        prompt = secrets.token_hex(700)
        answer = gateway.post(
            {"model": model, "prompt": prompt, "max_tokens": 1}, path="/v1/completions"
        )
        assert answer.status_code == 200, answer.text

    with ThreadPoolExecutor(max_workers=4) as pool:
        list(pool.map(_one, range(32)))


class _Decoding:
    """A tenant that streams a long answer as long as the block runs."""

    def __init__(self, gateway: Gateway, model: str) -> None:
        self.error: str | None = None
        self._gateway = gateway
        self._model = model
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._stream, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._started.wait(60), "the other tenant never got a token"
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.join(120)

    def _stream(self) -> None:
        for event in self._gateway.stream(
            self._model, "count", max_tokens=300, ignore_eos=True, temperature=0
        ):
            self._started.set()
            if "error" in event:
                self.error = str(event["error"])


def _flips_missed(evidence: bytes, fingerprint: str) -> int:
    """How many single flipped bits (one in each byte) verification does not catch and name."""
    missed = 0
    for index in range(len(evidence)):
        flipped = bytearray(evidence)
        flipped[index] ^= 1 << (index % 8)
        report = verify_evidence(bytes(flipped), key_fingerprint=fingerprint)
        missed += report.ok or report.first_fault is None
    return missed
