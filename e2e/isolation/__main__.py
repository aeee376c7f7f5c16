"""`python -m e2e.isolation [timing | lifetimes | purges]…`: measure, print, keep the figures."""

from __future__ import annotations

import os

os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import asyncio
import sys

import torch

from e2e.chaos.scale import seed
from e2e.figures.record import record
from e2e.figures.registry.isolation import FIGURES
from e2e.isolation.lifetimes import lifetimes
from e2e.isolation.purges import BLOCKS, purges
from e2e.isolation.timing import TIERS, auc, summary, times_to_first_token

TRIALS = 2000
PURGES = 30
Values = dict[str, tuple[float, str]]


def _timing() -> Values:
    values: Values = {}
    for tier in TIERS:
        times = asyncio.run(times_to_first_token(tier, trials=TRIALS, seed=seed()))
        if times.cross_hits:
            print(f"error: B was served from A's cache {times.cross_hits} times")
        detail = f"{TRIALS} samples of each kind; medians: {summary(times)}"
        cross = auc(times.cross_new, times.cross_cached) if not times.cross_hits else 1.0
        values[f"timing-cross-auc-{tier}"] = (round(cross, 3), detail)
        own = auc(times.own_new, times.own_found)
        values[f"timing-own-auc-{tier}"] = (round(own, 3), "the same run")
    return values


def _lifetimes() -> Values:
    seen = asyncio.run(lifetimes())
    detail = f"{seen.blocks} blocks, idle (wall clock an hour forth and back) and beside decodes"
    if seen.earliest < 0:
        print(f"error: a block went {-seen.earliest:.3f} s before its time")
    return {
        "kv-outlives-ttl": (round(seen.latest, 3), detail),
        "kv-answers-late": (seen.answered, f"{seen.asked} prompts asked again at their time"),
    }


def _purges() -> Values:
    seen = asyncio.run(purges(count=PURGES, seed=seed()))
    for fault in seen.faults:
        print(f"error: {fault}")
    detail = (
        f"{PURGES} purges of {min(seen.blocks, default=0)} blocks or more, {seen.block_bytes} "
        f"bytes each; median {sorted(seen.seconds)[len(seen.seconds) // 2]:.3f} s"
    )
    whole = not seen.faults and min(seen.blocks) >= BLOCKS
    return {"purge-p99": (round(seen.p99, 3) if whole else float("inf"), detail)}


PARTS = {"timing": _timing, "lifetimes": _lifetimes, "purges": _purges}


def main(names: list[str]) -> int:
    """Measure the named parts, or all; exits 1 when a figure misses its target."""
    unknown = set(names) - PARTS.keys()
    if unknown:
        print(f"unknown: {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
        return 2
    # A second thread costs more than it brings to a model this small.
    torch.set_num_threads(1)
    figures = {figure.name: figure for figure in FIGURES}
    kept = True
    for name in names or PARTS:
        for figure, (value, detail) in PARTS[name]().items():
            record(figure, value, detail)
            print(f"{figure}: {value:g} {figures[figure].unit} ({detail})")
            kept = kept and figures[figure].holds(value)
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
