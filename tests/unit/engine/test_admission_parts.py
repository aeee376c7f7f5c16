"""What admission learns and foresees, part by part: step costs, answer lengths, the queue ahead."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetward_engine.admission.answer_lengths import COLD_BELOW, MAX_KINDS, WINDOW, AnswerLengths
from fleetward_engine.admission.forecast import Room, Work, load_before, load_until_released
from fleetward_engine.admission.limits import AdmissionLimits
from fleetward_engine.admission.promises import KvPromises
from fleetward_engine.admission.step_costs import Load, StepCosts
from fleetward_engine.errors import ConfigInvalid

KIND = ("acme", "")
ROOM = Room(seqs=2, prefill_per_step=8, free_blocks=100, tenant_blocks=100)

works = st.builds(
    Work,
    tenant=st.sampled_from(["acme", "beta"]),
    prefill_tokens=st.integers(0, 50),
    output_tokens=st.integers(1, 50),
    blocks=st.integers(1, 10),
)


def work(prefill: int, output: int, *, blocks: int = 1, tenant: str = "acme") -> Work:
    return Work(tenant=tenant, prefill_tokens=prefill, output_tokens=output, blocks=blocks)


@given(
    st.floats(1e-4, 1.0),
    st.floats(1e-5, 0.1),
    st.floats(1e-5, 0.1),
    st.lists(st.integers(1, 64), min_size=2, unique=True),
)
def test_costs_of_steps_that_follow_a_line_are_found(
    step: float, row: float, token: float, batches: list[int]
) -> None:
    costs = StepCosts()
    for rows in batches:
        costs.observe(prefill_tokens=0, decode_rows=rows, seconds=step + row * rows)
    for tokens in (10, 500):
        seconds = step + row * batches[0] + token * tokens
        # What a mixed step costs is told apart only where its prompt costs a part that shows.
        if token * tokens > seconds / 5:
            costs.observe(prefill_tokens=tokens, decode_rows=batches[0], seconds=seconds)
    load = Load(steps=100, prefill_tokens=0, decode_rows=100 * batches[-1])
    assert costs.expected_s(load) == pytest.approx(100 * (step + row * batches[-1]), rel=0.01)
    if costs.seconds_per_prefill_token:
        assert costs.seconds_per_prefill_token == pytest.approx(token, rel=0.05)


@given(
    st.lists(
        st.tuples(
            st.integers(0, 10**6), st.integers(0, 10**4),
            st.one_of(st.floats(allow_nan=False, allow_infinity=False, max_value=1e6)),
        )
    ),
    st.integers(0, 10**6),
)  # fmt: skip
def test_whatever_was_seen_costs_are_finite_and_not_negative(
    steps: list[tuple[int, int, float]], tokens: int
) -> None:
    costs = StepCosts()
    for prefill, rows, seconds in steps:
        costs.observe(prefill_tokens=prefill, decode_rows=rows, seconds=seconds)
    for value in (
        costs.expected_s(Load(steps=7.5, prefill_tokens=tokens, decode_rows=3)),
        costs.at_least_s(tokens),
    ):
        assert 0 <= value < math.inf


def test_decodes_do_not_make_the_prefill_rate_forgotten() -> None:
    costs = StepCosts()
    costs.observe(prefill_tokens=100, decode_rows=0, seconds=1.0)
    for _ in range(10_000):
        costs.observe(prefill_tokens=0, decode_rows=4, seconds=0.05)
    assert costs.seconds_per_prefill_token == pytest.approx(0.01)


def test_a_lower_bound_takes_the_best_rate_and_the_expectation_does_not() -> None:
    costs = StepCosts()
    for seconds in (1.0, 2.0, 3.0):
        costs.observe(prefill_tokens=100, decode_rows=0, seconds=seconds)
    assert costs.at_least_s(100) == pytest.approx(1.0)
    assert costs.expected_s(Load(steps=1, prefill_tokens=100, decode_rows=0)) > 1.5


ends = st.lists(st.one_of(st.none(), st.integers(1, 100)), min_size=COLD_BELOW, max_size=WINDOW)


@given(ends, st.integers(0, 120), st.integers(1, 150))
def test_what_is_left_is_the_mean_of_the_longer_ones(
    seen: list[int | None], generated: int, limit: int
) -> None:
    lengths = AnswerLengths()
    for end in seen:
        lengths.observe(KIND, end or 1, reached_limit=end is None)
    left = lengths.left(KIND, generated=generated, limit=limit)
    longer = [limit if end is None else min(end, limit) for end in seen
              if end is None or end > generated]  # fmt: skip
    mean = sum(longer) / len(longer) - generated if longer else generated
    assert left == max(1, min(limit - generated, round(mean)))


def test_a_kind_that_is_new_is_expected_to_come_to_its_limit() -> None:
    lengths = AnswerLengths()
    for _ in range(COLD_BELOW - 1):
        lengths.observe(KIND, 5, reached_limit=False)
    assert lengths.left(KIND, generated=10, limit=100) == 90
    lengths.observe(KIND, 5, reached_limit=False)
    assert lengths.left(KIND, generated=0, limit=100) == 5
    assert lengths.left(("acme", "short"), generated=0, limit=100) == 100


def test_answers_that_were_cut_say_nothing_of_longer_limits() -> None:
    lengths = AnswerLengths()
    for _ in range(WINDOW):
        lengths.observe(KIND, 16, reached_limit=True)
    assert lengths.left(KIND, generated=0, limit=4096) == 4096


def test_only_so_many_kinds_and_answers_are_remembered() -> None:
    lengths = AnswerLengths()
    for _ in range(WINDOW):
        lengths.observe(KIND, 80, reached_limit=False)
    for _ in range(WINDOW):
        lengths.observe(KIND, 10, reached_limit=False)
    assert lengths.left(KIND, generated=0, limit=100) == 10
    for number in range(MAX_KINDS):
        lengths.observe((f"t{number}", ""), 1, reached_limit=False)
    assert len(lengths) == MAX_KINDS
    assert lengths.left(KIND, generated=0, limit=100) == 100


def test_with_a_lane_and_room_nothing_is_waited_for() -> None:
    load = load_before(work(50, 9), running=[work(0, 100)], ahead=[], room=ROOM)
    assert load == Load(steps=0, prefill_tokens=0, decode_rows=0)


def test_prompts_ahead_are_computed_first() -> None:
    load = load_before(work(5, 5), running=[work(16, 100)], ahead=[], room=ROOM)
    assert load == Load(steps=2, prefill_tokens=16, decode_rows=0)


def test_without_a_lane_the_first_end_is_waited_for() -> None:
    running = [work(0, 30), work(0, 10)]
    load = load_before(work(5, 5), running=running, ahead=[], room=ROOM)
    assert load == Load(steps=10, prefill_tokens=0, decode_rows=20)
    # The one ahead takes that lane from step 10, computes for one step, and ends after 4 more.
    load = load_before(work(5, 5), running=running, ahead=[work(8, 4)], room=ROOM)
    assert load == Load(steps=15, prefill_tokens=8, decode_rows=10 + 15 + 4)


def test_without_blocks_as_many_ends_are_waited_for_as_give_enough() -> None:
    room = Room(seqs=9, prefill_per_step=8, free_blocks=1, tenant_blocks=100)
    running = [work(0, 10, blocks=2), work(0, 20, blocks=3)]
    assert load_before(work(5, 5, blocks=6), running=running, ahead=[], room=room).steps == 20
    assert load_before(work(5, 5, blocks=3), running=running, ahead=[], room=room).steps == 10


def test_one_that_its_own_limit_keeps_out_holds_up_its_tenant_alone() -> None:
    room = Room(seqs=9, prefill_per_step=8, free_blocks=50, tenant_blocks=4)
    running = [work(0, 40, blocks=3)]
    ahead = [work(8, 40, blocks=2)]
    assert (
        load_before(work(8, 5, tenant="beta"), running=running, ahead=ahead, room=room).steps == 0
    )
    assert load_before(work(8, 5), running=running, ahead=ahead, room=room).steps == 41


@given(st.lists(works, max_size=5), st.lists(works, max_size=8), works, works)
def test_one_more_ahead_never_shortens_the_wait(
    running: list[Work], ahead: list[Work], last: Work, new: Work
) -> None:
    room = Room(seqs=4, prefill_per_step=8, free_blocks=12, tenant_blocks=20)
    before = load_before(new, running=running, ahead=ahead, room=room)
    after = load_before(new, running=running, ahead=[*ahead, last], room=room)
    assert after.steps >= before.steps >= 0
    assert before.decode_rows <= 4 * before.steps + 1e-6 or len(running) > 4


@given(st.lists(works, max_size=5), st.lists(works, max_size=8), st.integers(0, 60))
def test_more_released_blocks_take_longer(
    running: list[Work], waiting: list[Work], blocks: int
) -> None:
    def steps(wanted: int) -> float:
        return load_until_released(wanted, running=running, waiting=waiting, room=ROOM).steps

    assert 0 <= steps(blocks) <= steps(blocks + 5) < math.inf


def test_promises_keep_the_headroom_and_others_guarantees() -> None:
    promises = KvPromises(
        pool=100, by_tenant={"acme": 30, "beta": 5}, floors={"acme": 20, "beta": 20}
    )
    assert promises.missing_for("acme", 40, headroom_percent=10) == 0
    assert promises.missing_for("acme", 41, headroom_percent=10) == 1
    assert promises.missing_for("beta", 56, headroom_percent=10) == 1
    assert promises.missing_for("beta", 55, headroom_percent=10) == 0


def test_who_is_alone_is_promised_all() -> None:
    promises = KvPromises(pool=10, by_tenant={"acme": 0}, floors={"acme": 5, "beta": 5})
    assert promises.missing_for("acme", 10, headroom_percent=50) == 0


@pytest.mark.parametrize("wait", [0.0, -1.0, math.nan])
def test_a_wait_that_lets_nobody_in_is_refused(wait: float) -> None:
    with pytest.raises(ConfigInvalid, match="max_predicted_wait"):
        AdmissionLimits(max_predicted_wait_s=wait)


@pytest.mark.parametrize("percent", [-1, 100])
def test_a_headroom_outside_its_range_is_refused(percent: int) -> None:
    with pytest.raises(ConfigInvalid, match="kv_headroom_percent"):
        AdmissionLimits(kv_headroom_percent=percent)
