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


_ENGINE = "make test-engine"
_CLUSTER = "make bench-cluster"

FIGURES: tuple[Figure, ...] = (
    Figure(
        name="up-cold-seconds",
        promise="make up on a machine with nothing of ours",
        comparison="<=",
        target=900,
        unit="s",
        command="make bench-up",
    ),
    Figure(
        name="up-again-seconds",
        promise="make up with the cluster running",
        comparison="<=",
        target=60,
        unit="s",
        command="make bench-up",
    ),
    Figure(
        name="up-after-down-seconds",
        promise="make up after make down",
        comparison="<=",
        target=90,
        unit="s",
        command="make bench-up",
    ),
    Figure(
        name="down-leftovers",
        promise="left by make down: processes, mounts, links, routes, rules",
        comparison="==",
        target=0,
        unit="",
        command="make bench-up",
    ),
    Figure(
        name="redeploy-seconds",
        promise="a one-line change of our Python code reaches the cluster",
        comparison="<=",
        target=60,
        unit="s",
        command="make bench-up",
    ),
    Figure(
        name="demo-back-seconds",
        promise="make up brings the demo back after the end-to-end tests",
        comparison="<=",
        target=60,
        unit="s",
        command="make bench-up",
    ),
    Figure(
        name="test-seconds",
        promise="make test",
        comparison="<=",
        target=1500,
        unit="s",
        command="make test",
    ),
    Figure(
        name="unit-seconds",
        promise="unit and property tests alone",
        comparison="<",
        target=60,
        unit="s",
        command="make test-unit",
    ),
    Figure(
        name="tiny-token-mismatches",
        promise="tiny random models in fp64 against transformers: tokens that differ",
        comparison="==",
        target=0,
        unit="tokens",
        command=_ENGINE,
    ),
    Figure(
        name="demo-logit-difference",
        promise="demo model in fp32, teacher-forced: largest difference of a logit",
        comparison="<=",
        target=0.0001,
        unit="",
        command=_ENGINE,
    ),
    Figure(
        name="demo-token-mismatches",
        promise="demo model: tokens that differ where the top-2 margin > 1e-3",
        comparison="==",
        target=0,
        unit="tokens",
        command=_ENGINE,
    ),
    Figure(
        name="throughput-ratio",
        promise="tokens/s over the continuous batching of transformers, same run",
        comparison=">=",
        target=1,
        unit="x",
        command="make bench-throughput",
    ),
    Figure(
        name="crd-verdict-differences",
        promise="generated specs on which pydantic and the API server disagree",
        comparison="==",
        target=0,
        unit="specs",
        command="make test-integration",
    ),
    Figure(
        name="pairs-same-tenant-hits",
        promise="paired prompts: tenant A again reads cached tokens",
        comparison="==",
        target=200,
        unit="of 200",
        command=_CLUSTER,
    ),
    Figure(
        name="pairs-other-tenant-hits",
        promise="paired prompts: tenant B reads cached tokens",
        comparison="==",
        target=0,
        unit="of 200",
        command=_CLUSTER,
    ),
    Figure(
        name="purge-blocks-least-pod",
        promise="tenant purge: blocks of the scope on the pod with fewer",
        comparison=">=",
        target=1000,
        unit="blocks",
        command=_CLUSTER,
    ),
    Figure(
        name="purge-seconds",
        promise="tenant purge on 2 pods while another tenant decodes",
        comparison="<",
        target=2,
        unit="s",
        command=_CLUSTER,
    ),
    Figure(
        name="purge-flips-missed",
        promise="flipped bytes of that evidence that verification did not catch",
        comparison="==",
        target=0,
        unit="bytes",
        command=_CLUSTER,
    ),
    Figure(
        name="purge-without-removal-incomplete",
        promise="a build with removal switched off ends Incomplete",
        comparison="==",
        target=1,
        unit="",
        command=_CLUSTER,
    ),
    Figure(
        name="idle-writes",
        promise="20 idle services for 5 minutes: writes of ours beyond the lease",
        comparison="==",
        target=0,
        unit="writes",
        command=_CLUSTER,
    ),
    Figure(
        name="kills-survived",
        promise="operator killed -9 at random moments of create, update, delete: converged",
        comparison="==",
        target=20,
        unit="of 20",
        command=_CLUSTER,
    ),
    Figure(
        name="kills-slowest-seconds",
        promise="slowest convergence, from the kill on",
        comparison="<=",
        target=30,
        unit="s",
        command=_CLUSTER,
    ),
    Figure(
        name="kills-orphans-duplicates",
        promise="orphans and duplicates after those kills",
        comparison="==",
        target=0,
        unit="objects",
        command=_CLUSTER,
    ),
)
