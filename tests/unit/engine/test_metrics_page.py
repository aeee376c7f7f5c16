"""docs/metrics.md names metrics that an engine really exposes, and all that its clock gives."""

from __future__ import annotations

import re
from pathlib import Path

from fleetward_engine.server.metrics import EngineMetrics
from tests.support.engine_core import Bench, make_bench, make_request

PAGE = Path(__file__).parents[3] / "docs" / "metrics.md"


def exposed(bench: Bench) -> set[str]:
    """Names of an engine's series as a scraper sees them, without the parts of a histogram."""
    families = EngineMetrics(bench.engine.stats).registry.collect()
    return {f"{one.name}_total" if one.type == "counter" else one.name for one in families}


def test_every_metric_on_the_page_exists() -> None:
    named = set(re.findall(r"`(fleetward_engine_[a-z_]+[a-z])`", PAGE.read_text()))
    assert len(named) > 50
    assert named <= exposed(make_bench())


def test_the_phases_of_a_step_add_up_to_it() -> None:
    bench = make_bench()
    run = bench.runner.run

    def slow(step):  # type: ignore[no-untyped-def]
        bench.clock.advance(0.5)
        return run(step)

    bench.runner.run = slow  # type: ignore[method-assign]
    began = bench.clock.now
    bench.run(make_request("r", range(20), max_tokens=3))
    seconds = bench.engine.stats().step_seconds
    assert seconds == {"schedule": 0.0, "run": 1.5, "update": 0.0}
    assert sum(seconds.values()) == bench.clock.now - began
    family = {one.name: one for one in EngineMetrics(bench.engine.stats).registry.collect()}
    samples = family["fleetward_engine_step_seconds"].samples
    assert {one.labels["phase"]: one.value for one in samples} == seconds
