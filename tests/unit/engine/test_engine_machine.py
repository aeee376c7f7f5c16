"""The state machines of the engine in short; in full: tests/fire/engine/test_many_events.py."""

from __future__ import annotations

from hypothesis import settings

from tests.support.engine_machine import EngineMachine
from tests.support.tiered_machine import TieredMachine

EngineMachine.TestCase.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
TestEngineMachine = EngineMachine.TestCase

TieredMachine.TestCase.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)
TestTieredMachine = TieredMachine.TestCase
