"""Shares of a pool in blocks."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from fleetward_engine.share_rules import ShareRules

PERCENT = st.integers(0, 100)
BLOCKS = st.integers(1, 10**6)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"max_percent": 0}, "at least 1"),
        ({"max_percent": 101}, "0 to 100"),
        ({"guaranteed_percent": -1}, "0 to 100"),
        ({"protected_percent": 101}, "0 to 100"),
        ({"guaranteed_percent": 1}, "exceed 100 percent together"),
        ({"max_percent": 60, "guaranteed_percent": 41}, "exceed 100 percent together"),
    ],
)
def test_shares_that_contradict_each_other_are_refused(values: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        ShareRules(**values)


@pytest.mark.parametrize(
    ("rules", "largest", "headroom", "guaranteed"),
    [
        (ShareRules(), 1000, 0, 0),
        (ShareRules(max_percent=50), 500, 31, 0),
        (ShareRules(max_percent=60, guaranteed_percent=10), 600, 37, 100),
        (ShareRules(max_percent=60, guaranteed_percent=40), 600, 37, 200),
        (ShareRules(max_percent=1), 10, 0, 0),
    ],
)
def test_shares_in_blocks(rules: ShareRules, largest: int, headroom: int, guaranteed: int) -> None:
    assert rules.max_blocks(1000) == largest
    assert rules.headroom_blocks(1000) == headroom
    assert rules.guaranteed_blocks(1000, num_tenants=3) == guaranteed


@given(BLOCKS, PERCENT.filter(bool), PERCENT, st.integers(0, 200))
def test_floors_of_all_others_leave_room_for_the_largest_request(
    blocks: int, largest: int, guaranteed: int, tenants: int
) -> None:
    assume(not guaranteed or largest + guaranteed <= 100)
    rules = ShareRules(max_percent=largest, guaranteed_percent=guaranteed)
    others = max(0, tenants - 1) * rules.guaranteed_blocks(blocks, num_tenants=tenants)
    assert others + rules.max_blocks(blocks) <= blocks
    assert 1 <= rules.max_blocks(blocks) <= blocks
    assert 0 <= rules.headroom_blocks(blocks) < rules.max_blocks(blocks)
