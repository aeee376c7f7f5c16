"""Figures of the KV cache: flood, governing per step and per block, host memory, isolation.

python engine-image/bench/cache.py
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from cache_block_cost import cost_by_size
from cache_flood import flood_losses
from cache_isolation import isolation_costs
from cache_overhead import overhead_percent
from host_reload import reloads

from e2e.figures.record import record
from e2e.figures.registry.kv_cache import FIGURES


def host_reload() -> tuple[float, str]:
    """The worst ratio of all lengths that the cost test had loaded, and each length's."""
    found = reloads()
    chosen = [one.ratio for one in found if one.chosen]
    if not chosen:
        raise RuntimeError("the cost test had nothing loaded, so there is nothing to compare")
    table = ", ".join(
        f"{one.tokens}: {1000 * one.loaded_s:.0f} of {1000 * one.computed_s:.0f} ms"
        + ("" if one.chosen else " (computed)")
        for one in found
    )
    return round(max(chosen), 3), f"tokens loaded and computed, demo model, bf16: {table}"


def main() -> int:
    """Measure, print, keep the figures; exits 1 when one misses its target."""
    governed, without = flood_losses()
    values = {"flood-hit-loss": (round(governed, 2), f"{without:.0f} points without quotas")}
    costs = cost_by_size()
    for size, cost in costs.items():
        sys.stdout.write(f"{size:>9} blocks  {cost:8.0f} ns per block\n")
    first, last = min(costs), max(costs)
    table = ", ".join(f"{size}: {cost:.0f} ns" for size, cost in costs.items())
    values["block-cost-ratio"] = (round(costs[last] / costs[first], 2), table)
    values["cache-overhead"] = (round(overhead_percent(), 2), "32 sequences, demo model, bf16")
    values["host-reload"] = host_reload()
    declared, private = isolation_costs()
    detail = f"medians of pairs, one thread; {private:.0f} % where the prompt is not declared"
    values["isolation-cost"] = (round(declared, 2), detail)
    kept = True
    for figure in FIGURES:
        if figure.name in values:
            value, detail = values[figure.name]
            record(figure.name, value, detail)
            sys.stdout.write(f"{figure.name}: {value} {figure.unit} ({detail})\n")
            kept = kept and figure.holds(value)
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
