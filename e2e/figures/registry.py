"""Every figure the project promises: its target and the command that measures it."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

Comparison = Literal["<=", "<", ">=", "=="]

_COMPARE: dict[Comparison, Callable[[float, float], bool]] = {
    "<=": operator.le,
    "<": operator.lt,
    ">=": operator.ge,
    "==": operator.eq,
}


@dataclass(frozen=True, slots=True)
class Figure:
    """One promised number.

    `name` is its key on disk, `promise` says what is measured, `unit` is the unit of `target`,
    `command` measures it again.
    """

    name: str
    promise: str
    comparison: Comparison
    target: float
    unit: str
    command: str

    def holds(self, value: float) -> bool:
        """Whether a measured `value` keeps the promise; NaN never does."""
        return _COMPARE[self.comparison](value, self.target)


def _figure(name: str, promise: str, bound: str, *, unit: str, command: str) -> Figure:
    comparison, target = bound.split()
    if comparison not in _COMPARE:
        raise ValueError(f"figure {name}: unknown comparison {comparison!r}")
    return Figure(name, promise, comparison, float(target), unit, command)


_ENGINE = "make test-engine"
_CLUSTER = "make bench-cluster"

FIGURES: tuple[Figure, ...] = (
    _figure("up-cold-seconds", "make up on a machine with nothing of ours", "<= 900", unit="s", command="make bench-up"),
    _figure("up-again-seconds", "make up with the cluster running", "<= 60", unit="s", command="make bench-up"),
    _figure("up-after-down-seconds", "make up after make down", "<= 90", unit="s", command="make bench-up"),
    _figure("down-leftovers", "left by make down: processes, mounts, links, routes, rules", "== 0", unit="", command="make bench-up"),
    _figure("redeploy-seconds", "a one-line change of our Python code reaches the cluster", "<= 60", unit="s", command="make bench-up"),
    _figure("demo-back-seconds", "make up brings the demo back after the end-to-end tests", "<= 60", unit="s", command="make bench-up"),
    _figure("test-seconds", "make test", "<= 1500", unit="s", command="make test"),
    _figure("unit-seconds", "unit and property tests alone", "< 60", unit="s", command="make test-unit"),
    _figure("tiny-token-mismatches", "tiny random models in fp64 against transformers: tokens that differ", "== 0", unit="tokens", command=_ENGINE),
    _figure("demo-logit-difference", "demo model in fp32, teacher-forced: largest difference of a logit", "<= 0.0001", unit="", command=_ENGINE),
    _figure("demo-token-mismatches", "demo model: tokens that differ where the top-2 margin > 1e-3", "== 0", unit="tokens", command=_ENGINE),
    _figure("throughput-ratio", "tokens/s over transformers" own continuous batching, same run", ">= 1", unit="x", command="make bench-throughput"),
    _figure("crd-verdict-differences", "generated specs on which pydantic and the API server disagree", "== 0", unit="specs", command="make test-integration"),
    _figure("pairs-same-tenant-hits", "paired prompts: tenant A again reads cached tokens", "== 200", unit="of 200", command=_CLUSTER),
    _figure("pairs-other-tenant-hits", "paired prompts: tenant B reads cached tokens", "== 0", unit="of 200", command=_CLUSTER),
    _figure("purge-blocks-least-pod", "tenant purge: blocks of the scope on the pod with fewer", ">= 1000", unit="blocks", command=_CLUSTER),
    _figure("purge-seconds", "tenant purge on 2 pods while another tenant decodes", "< 2", unit="s", command=_CLUSTER),
    _figure("purge-flips-missed", "flipped bytes of that evidence that verification did not catch", "== 0", unit="bytes", command=_CLUSTER),
    _figure("purge-without-removal-incomplete", "a build with removal switched off ends Incomplete", "== 1", unit="", command=_CLUSTER),
    _figure("idle-writes", "20 idle services for 5 minutes: writes of ours beyond the lease", "== 0", unit="writes", command=_CLUSTER),
    _figure("kills-survived", "operator killed -9 at random moments of create, update, delete: converged", "== 20", unit="of 20", command=_CLUSTER),
    _figure("kills-slowest-seconds", "slowest convergence after the successor leads", "<= 30", unit="s", command=_CLUSTER),
    _figure("kills-orphans-duplicates", "orphans and duplicates after those kills", "== 0", unit="objects", command=_CLUSTER),
)
