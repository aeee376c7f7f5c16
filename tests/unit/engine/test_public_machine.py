"""The state machine with public prefixes, in short."""

from __future__ import annotations

from hypothesis import settings

from tests.support.public_machine import PublicMachine

PublicMachine.TestCase.settings = settings(max_examples=25, stateful_step_count=40, deadline=None)
TestPublicMachine = PublicMachine.TestCase
