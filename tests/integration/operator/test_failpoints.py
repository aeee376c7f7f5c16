"""The operator interrupted at the calls that it makes: it ends where an undisturbed one does."""

from __future__ import annotations

import logging
import random
from pathlib import Path

import pytest

from e2e.chaos.scale import is_full, seed
from e2e.cluster.apiserver import ApiServer
from e2e.figures.record import record
from tests.support.failpoints_stage import open_stage
from tests.support.failpoints_stories import STORIES
from tests.support.failpoints_sweep import sweep
from tests.support.operator_world import World

logger = logging.getLogger(__name__)


@pytest.mark.parametrize("name", STORIES)
async def test_interrupted_at_any_call_it_ends_as_if_undisturbed(
    world: World, api_server: ApiServer, tmp_path: Path, name: str
) -> None:
    """Each call as it was really made, before and after it, killed and late."""
    rng = random.Random(f"{seed()}/{name}")  # noqa: S311 - where to strike
    async with open_stage(world, api_server, tmp_path) as stage:
        report = await sweep(stage, STORIES[name](), rng=rng, whole=is_full())
    logger.warning("%s", report)
    if is_full():
        record(f"failpoints-{name}-not-converged", len(report.failed), str(report))
        record(f"failpoints-{name}-writes", len(report.second_pass_writes), str(report))
    assert report.reached
    assert not report.failed, "\n".join(report.failed)
    assert not report.second_pass_writes, "\n".join(report.second_pass_writes)
