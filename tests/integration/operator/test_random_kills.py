"""The operator killed -9 again and again during a rollout: it converges, and leaves no strays."""

from __future__ import annotations

import random
import time
from pathlib import Path

from e2e.chaos.scale import is_full, seed
from e2e.cluster.apiserver import ApiServer
from e2e.figures.record import record
from tests.support.failpoints_stage import open_stage, wait_for
from tests.support.operator_world import World
from tests.support.random_kills import Rollout


async def test_killed_during_a_rollout_it_converges_and_leaves_no_strays(
    world: World, api_server: ApiServer, tmp_path: Path
) -> None:
    """20 services and 100 kills in full: 80 while specs change, 20 while none does."""
    rng = random.Random(seed())  # noqa: S311 - when to kill
    services, kills, idle_kills, steps = (20, 80, 20, 120) if is_full() else (4, 2, 1, 8)
    async with open_stage(world, api_server, tmp_path) as stage:
        rollout = Rollout(stage, rng)
        await rollout.killed(kills, services=services, steps=steps)
        stage.start()
        last_kill_at = time.monotonic()
        await wait_for(rollout.converged, what="convergence", within_s=200)
        seconds = time.monotonic() - last_kill_at
        stage.kill()
        before = await rollout.generations()
        await rollout.killed(idle_kills, services=services, steps=0)
        stage.start()
        await wait_for(rollout.converged, what="convergence", within_s=200)
        after = await rollout.generations()
        orphans, others = await rollout.strays()
    changed = [key for key in after if before.get(key) != after[key]]
    too_many = [
        key
        for key, (_, generation) in after.items()
        if key.startswith("Deployment/") and generation > rollout.changes[key.partition("/")[2]]
    ]
    if is_full():
        detail = f"{kills} + {idle_kills} kills, {rollout.made} services made, seed {seed()}"
        record("kills-converged-seconds", seconds, detail)
        record("kills-orphans", len(orphans), detail)
        record("kills-duplicates", len(others), detail)
        record("kills-generations-moved", len(changed) + len(too_many), detail)
    assert not orphans
    assert not others
    assert not changed, {key: (before.get(key), after[key]) for key in changed}
    assert not too_many
