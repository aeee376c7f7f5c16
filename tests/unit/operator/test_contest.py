"""How often a revert is sent and told while somebody fights for a field."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fleetward_operator.core.contest import (
    AT_ONCE,
    LONGEST_WAIT_S,
    QUIET_S,
    TELL_EVERY_S,
    Contest,
    add_revert,
    may_tell,
    wait_before_revert,
)

GAPS = st.lists(st.floats(0.0, 2 * QUIET_S), max_size=60)


def test_a_few_edits_are_put_back_at_once() -> None:
    contest = Contest()
    for number in range(AT_ONCE):
        assert wait_before_revert(contest, now=float(number)) == 0.0
        assert may_tell(contest, now=float(number))
        contest = add_revert(contest, now=float(number))
    assert wait_before_revert(contest, now=AT_ONCE - 1.0) == 1.0


@given(GAPS)
def test_no_revert_waits_longer_than_the_limit_and_each_contest_begins_once(
    gaps: list[float],
) -> None:
    contest, now, begun, since = Contest(), 0.0, 0, 0
    for gap in gaps:
        now += gap
        wait_s = wait_before_revert(contest, now=now)
        assert 0.0 <= wait_s <= LONGEST_WAIT_S
        now += wait_s
        assert wait_before_revert(contest, now=now) < 1e-6
        quiet = now - contest.last_at >= QUIET_S
        contest = add_revert(contest, now=now)
        since = 1 if quiet or contest.reverts == 1 else since + 1
        assert contest.reverts == since
        begun += contest.begins
        if contest.begins:
            assert since == AT_ONCE + 1


def test_a_fight_of_an_hour_costs_few_writes_and_fewer_words() -> None:
    contest, now, writes, words = Contest(), 0.0, 0, 0
    while now < 3600.0:
        wait_s = wait_before_revert(contest, now=now)
        if wait_s == 0.0:
            words += may_tell(contest, now=now) or add_revert(contest, now=now).begins
            contest = add_revert(contest, now=now)
            writes += 1
        now += max(wait_s, 0.02)
    assert writes <= AT_ONCE + 5 + 3600.0 / LONGEST_WAIT_S
    assert words <= AT_ONCE + 1 + 3600.0 / TELL_EVERY_S


@given(st.floats(allow_nan=False), st.integers(0, 10_000))
def test_a_clock_that_jumps_back_does_not_lengthen_the_wait(last: float, reverts: int) -> None:
    contest = Contest(reverts=reverts, last_at=last)
    assert 0.0 <= wait_before_revert(contest, now=0.0) <= LONGEST_WAIT_S
