"""The operator and the engine's own program (simulated runner): both sides of the contract."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from e2e.cluster.ports import free_port
from fleetward_api.evidence import verify_evidence
from fleetward_api.keys import VerifyKey
from tests.support.cluster_facts import condition, running
from tests.support.operator_process import REPOSITORY
from tests.support.operator_world import World, until


@dataclass
class RealEngines:
    """Engine processes of one test."""

    world: World
    folder: Path
    processes: list[subprocess.Popen[bytes]]

    async def start(self, pod: dict[str, Any], service: dict[str, Any], *program: str) -> None:
        """Run the engine that a pod's container would run, or another program's, and say so."""
        world, metadata = self.world, pod["metadata"]
        address = f"127.0.1.{len(self.processes) + 2}"
        home = self.folder / metadata["name"]
        trust = home / "trust"
        trust.mkdir(parents=True)
        for name, value in (await world.trust()).items():
            (trust / name).write_text(value)
        (home / "token").write_text(await world.token(pod))
        container = pod["spec"]["containers"][0]
        environment = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": os.pathsep.join(
                str(REPOSITORY / part) for part in ("", "crds/src", "engine-image/src")
            ),
            "POD_NAME": metadata["name"],
            "POD_NAMESPACE": metadata["namespace"],
            "POD_UID": metadata["uid"],
            "POD_IP": address,
            "FLEETWARD_SERVICE": f"{metadata['namespace']}/{service['metadata']['name']}",
            "FLEETWARD_SERVICE_UID": service["metadata"]["uid"],
        }
        moved = [
            *("--host", address, "--port", str(free_port())),
            *("--admin-port", str(world.admin_port), "--metrics-port", str(free_port())),
            *("--trust-folder", str(trust), "--token-path", str(home / "token")),
            *("--termination-log", str(home / "last-words"), "--pid-file", str(home / "pid")),
        ]
        program = program or ("fleetward_engine",)
        arguments = [*program, *container["args"], *moved]
        self.processes.append(launch(arguments, environment, home / "log"))
        await world.say(pod, running(address))


def launch(args: list[str], environment: dict[str, str], log: Path) -> subprocess.Popen[bytes]:
    """A program of Python's, writing to a log."""
    with log.open("wb") as sink:
        return subprocess.Popen(
            [sys.executable, "-m", *args],
            env=environment,
            stdout=sink,
            stderr=subprocess.STDOUT,
        )


@pytest.fixture
async def engines(world: World, tmp_path: Path) -> AsyncIterator[RealEngines]:
    made = RealEngines(world, tmp_path, [])
    yield made
    for process in made.processes:
        process.kill()
        process.wait()


async def test_real_engines_take_policies_and_sign_purges(
    world: World, engines: RealEngines
) -> None:
    async with world.operator():
        service = await world.service("demo", scaling={"minReplicas": 2})

        async def both() -> list[dict[str, Any]]:
            pods = await world.pods("demo")
            return pods if len(pods) == 2 else []

        for pod in await until(both, what="two pods"):
            await engines.start(pod, service)

        async def serving() -> bool:
            found = await world.get("InferenceService", "demo")
            return condition(found, "Ready").get("reason") == "Serving"

        await until(serving, within_s=60, what="Ready")

        async def proved() -> bool:
            found = await world.get("InferenceService", "demo")
            return condition(found, "IsolationVerified").get("reason") == "Verified"

        await until(proved, within_s=60, what="the isolation probes")
        found = await world.get("InferenceService", "demo")
        assert condition(found, "ModelLoaded")["reason"] == "Simulated"
        await world.create(
            {
                "apiVersion": "fleetward.io/v1alpha1",
                "kind": "CachePurge",
                "metadata": {"name": "wipe"},
                "spec": {"tenant": "alpha", "reason": "asked to"},
            }
        )

        async def completed() -> dict[str, Any]:
            purge = await world.get("CachePurge", "wipe")
            return purge if purge.get("status", {}).get("phase") == "Completed" else {}

        purge = await until(completed, within_s=60, what="the purge")
        assert purge["status"]["provedMembers"] == 2
        key = VerifyKey.from_b64((await world.trust())["operator.pub"])
        evidence = await world.evidence(purge)
        checked = verify_evidence(evidence, key_fingerprint=key.fingerprint)
        assert checked.ok, checked.summary


async def test_an_engine_that_begins_to_share_is_caught_at_the_next_change(
    world: World, engines: RealEngines
) -> None:
    trigger = engines.folder / "share"
    async with world.operator():
        service = await world.service("demo")
        pods = await until(lambda: world.pods("demo"), what="the pod")
        await engines.start(pods[0], service, "tests.support.sabotage", "sharing", str(trigger))

        async def told() -> str:
            found = await world.get("InferenceService", "demo")
            return str(condition(found, "IsolationVerified").get("reason", ""))

        async def proved() -> bool:
            return await told() == "Verified"

        async def caught() -> bool:
            return await told() == "IsolationBroken"

        await until(proved, within_s=60, what="the proof")
        trigger.touch()
        await world.create(
            {
                "apiVersion": "fleetward.io/v1alpha1",
                "kind": "CachePolicy",
                "metadata": {"name": "strict", "namespace": world.apps},
                "spec": {"namespaceDefault": True, "retention": {"idleTTL": "1m"}},
            }
        )
        await until(caught, within_s=60, what="the failure")
        found = await world.get("InferenceService", "demo")
        assert "another tenant found" in condition(found, "IsolationVerified")["message"]
        assert condition(found, "Degraded")["reason"] == "IsolationBroken"
