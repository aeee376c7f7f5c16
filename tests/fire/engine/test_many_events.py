"""A hundred thousand events in any order: the books of pool, index, shares and engine hold."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from e2e.figures.record import record
from tests.support.engine_machine import EngineMachine
from tests.support.tiered_machine import TieredMachine

FEWEST_STEPS = 100_000
MACHINES = (EngineMachine, TieredMachine)

pytestmark = pytest.mark.timeout(900)


def test_any_order_of_events_keeps_the_books() -> None:
    before = EngineMachine.steps
    while (steps := EngineMachine.steps - before) < FEWEST_STEPS:
        for machine in MACHINES:
            run_state_machine_as_test(
                machine,
                settings=settings(max_examples=100, stateful_step_count=80, deadline=None),
            )
    record("state-machine-steps", steps, "each followed by every check")
