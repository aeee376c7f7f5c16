"""A rollout of many services that an operator is killed in, and what it must have left."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from dataclasses import dataclass, field

from tests.support.cluster_facts import condition
from tests.support.failpoints_facts import OWN_CHILDREN, observe, orphans
from tests.support.failpoints_stage import LONG_QUIET_S, Stage

LEADS_AFTER_S = 0.3
"""About what a start takes before it works; kills fall before, in and after its first passes."""


@dataclass
class Rollout:
    """Services that are made, changed and removed while their operator dies again and again.

    `specs` are the services that are to be there, with the setting each is to have; `changes` how
    often the spec of each was written.
    """

    stage: Stage
    rng: random.Random
    specs: dict[str, int] = field(default_factory=dict)
    changes: Counter[str] = field(default_factory=Counter)
    made: int = 0

    async def step(self, *, most: int) -> None:
        """One thing that somebody does: make a service, change one, or remove one."""
        if len(self.specs) < most:
            name = f"svc-{self.made}"
            self.made += 1
            await self.stage.world.service(
                name, engine=self._engine(name, 8), scaling={"minReplicas": 0}
            )
        elif self.rng.random() < 0.2:
            name = self.rng.choice(sorted(self.specs))
            del self.specs[name]
            await self.stage.world.delete("InferenceService", name)
        else:
            name = self.rng.choice(sorted(self.specs))
            engine = self._engine(name, self.specs[name] + 1)
            await self.stage.world.patch("InferenceService", name, {"spec": {"engine": engine}})

    async def killed(self, times: int, *, services: int, steps: int) -> None:
        """Start and kill the operator so often, with so many steps in between."""
        done = 0
        for number in range(1, times + 1):
            self.stage.start()
            while done < steps * number // times:
                await self.step(most=services)
                done += 1
            await asyncio.sleep(LEADS_AFTER_S + self.rng.uniform(0.0, 1.2))
            self.stage.kill()

    async def converged(self) -> bool:
        """Whether every service is what its spec says, and nothing else of ours is there."""
        if self.stage.points.quiet_for() < LONG_QUIET_S:
            return False
        for item in await self.stage.world.items("InferenceService"):
            status = item.get("status", {})
            if status.get("observedGeneration") != item["metadata"]["generation"]:
                return False
            if condition(item, "Ready").get("reason") != "Idle":
                return False
        given: dict[str, int] = {}
        for item in await self.stage.world.items("Deployment"):
            args = item["spec"]["template"]["spec"]["containers"][0]["args"]
            given[item["metadata"]["name"]] = int(args[args.index("--max-num-seqs") + 1])
        return given == self.specs

    async def strays(self) -> tuple[list[str], list[str]]:
        """Orphans, and what there is more or less of than each service's own children."""
        facts = await observe(self.stage.world)
        wanted = {one.format(name) for name in self.specs for one in OWN_CHILDREN}
        found = {key for key in facts if not key.startswith(("InferenceService/", "release/"))}
        lost = orphans(facts)
        return lost, sorted((found ^ wanted) - set(lost))

    async def generations(self) -> dict[str, tuple[str, int]]:
        """Uid and generation of every child."""
        facts = await observe(self.stage.world)
        kept = ("InferenceService/", "release/")
        return {
            key: (seen.uid, seen.numbers.get("generation", 0))
            for key, seen in facts.items()
            if not key.startswith(kept)
        }

    def _engine(self, name: str, most: int) -> dict[str, object]:
        self.specs[name] = most
        self.changes[name] += 1
        return {"runner": "Simulated", "maxNumSeqs": most}
