"""The larger exploration: two overlapping purges, with failures and deadlines."""

from __future__ import annotations

import sys

import pytest

from fleetward_operator.core.purge.state import Phase
from fleetward_operator.core.purge.transition import advance
from tests.support.purge_world import Explorer, first_fleet


def test_two_overlapping_purges_keep_the_promises_in_every_state(
    capsys: pytest.CaptureFixture[str],
) -> None:
    explorer = Explorer(advance, troubles=1, deadlines=True)
    assert explorer.explore(first_fleet(purges=2, newcomer=False)) == ""
    ended = (Phase.COMPLETED, Phase.INCOMPLETE)
    assert explorer.ends == {(one, other) for one in ended for other in ended}
    with capsys.disabled():
        sys.stdout.write(f"\nstates of two overlapping purges explored: {len(explorer.visited)}\n")
