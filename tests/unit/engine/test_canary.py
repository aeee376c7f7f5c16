"""`verify_kv`: a cached block whose bytes have changed is never used, and computed anew."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetward_engine.host_tier.rules import HostRules
from tests.support.engine_core import (
    ACME,
    BETA,
    Bench,
    expected_tokens,
    make_bench,
    make_request,
)

PROMPT = [3 + number for number in range(18)]
HIT = 16


def make_cached(*, verify_kv: bool = True) -> Bench:
    bench = make_bench(verify_kv=verify_kv)
    bench.run(make_request("first", PROMPT))
    return bench


def flip(bench: Bench, position: int, bit: int = 0) -> None:
    """Change a bit of the block that caches the prompt's token at a position."""
    keys = list(bench.engine._kv_cache.index._entries.values())
    block, slot = keys[position // 4].block, position % 4
    bench.runner._kv[block, slot] ^= 1 << bit


@given(st.integers(0, HIT - 1), st.integers(0, 15))
def test_a_changed_bit_costs_a_hit_and_no_token(position: int, bit: int) -> None:
    bench = make_cached()
    flip(bench, position, bit)
    output = bench.run(make_request("again", PROMPT))[0]
    assert output.cached_tokens == position // 4 * 4
    assert bench.tokens("again") == expected_tokens(PROMPT, 4)
    stats = bench.engine.stats()
    assert stats.kv_corruptions == 1
    # With the changed block goes what could only be found through it: the answer's first block too.
    assert stats.scope_counts[ACME].evicted_corrupt == 5 - position // 4
    assert bench.run(make_request("later", PROMPT))[0].cached_tokens == HIT
    assert bench.engine.stats().kv_corruptions == 1


def test_unchanged_blocks_are_found_as_ever() -> None:
    bench = make_cached()
    assert bench.run(make_request("again", PROMPT))[0].cached_tokens == HIT
    assert bench.engine.stats().kv_corruptions == 0


def test_without_it_nothing_is_compared() -> None:
    bench = make_cached(verify_kv=False)
    flip(bench, 5)
    assert bench.run(make_request("again", PROMPT))[0].cached_tokens == HIT
    assert bench.engine.stats().kv_corruptions == 0


def test_a_changed_block_that_another_request_uses_is_found_by_nobody_else() -> None:
    bench = make_cached()
    bench.engine.add_request(make_request("user", PROMPT, max_tokens=8))
    bench.step()
    flip(bench, 1)
    assert bench.run(make_request("later", PROMPT))[0].cached_tokens == 0
    assert bench.tokens("later") == expected_tokens(PROMPT, 4)


def test_a_request_that_computed_the_same_keeps_its_own_copy_of_a_changed_block() -> None:
    bench = make_bench(verify_kv=True, max_num_batched_tokens=24, max_num_seqs=4)
    bench.engine.add_request(make_request("one", PROMPT, max_tokens=8))
    bench.engine.add_request(make_request("two", PROMPT, max_tokens=8))
    bench.step()  # the first one's prompt is cached, the second one's is half computed
    flip(bench, 2)
    bench.run()
    assert bench.tokens("two") == expected_tokens(PROMPT, 8)
    assert bench.engine.stats().kv_corruptions == 1
    assert bench.run(make_request("three", PROMPT))[0].cached_tokens == HIT
    assert bench.tokens("three") == expected_tokens(PROMPT, 4)


@pytest.mark.parametrize("blocks", [8, 9])
def test_a_full_pool_still_serves_what_it_must_compute_anew(blocks: int) -> None:
    bench = make_bench(num_blocks=blocks, verify_kv=True)
    bench.run(make_request("first", PROMPT))
    flip(bench, 9)
    bench.run(make_request("again", PROMPT), make_request("other", PROMPT[::-1]))
    assert bench.tokens("again") == expected_tokens(PROMPT, 4)
    assert bench.tokens("other") == expected_tokens(PROMPT[::-1], 4)


@pytest.mark.parametrize("changed", [0, 6, 13])
def test_what_changed_before_it_went_to_host_memory_is_not_used_after_either(changed: int) -> None:
    bench = make_bench(num_blocks=6, host_kv_cache_memory_bytes=4096, verify_kv=True)
    rules = HostRules(size=1 << 20, classes=frozenset({""}))
    bench.engine.governance.set_host_rules(rules)
    bench.run(make_request("first", PROMPT[:17]))
    flip(bench, changed)
    for token in (200, 210):
        push = make_request(str(token), [token] * 17, scope=BETA, retention_class="device only")
        bench.run(push)
    output = bench.run(make_request("again", PROMPT[:17]))[0]
    assert bench.engine._kv_cache.host.counters.loads == HIT // 4
    assert output.cached_tokens == changed // 4 * 4
    assert bench.tokens("again") == expected_tokens(PROMPT[:17], 4)
    assert bench.engine.stats().kv_corruptions == 1
