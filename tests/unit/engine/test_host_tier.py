"""Host memory as a second tier: what enters, what is found, and that nothing is left behind."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from fleetward_engine.host_tier.rules import HostRules
from fleetward_engine.host_tier.seal import TAG_BYTES
from fleetward_engine.host_tier.tier import HostTier
from fleetward_engine.sequence import Sequence as EngineSequence
from fleetward_engine.share_rules import ShareRules
from tests.support.engine_core import ACME, BETA, Bench, expected_tokens, make_bench, make_request

SLOT = 4 * 2 + TAG_BYTES
"""Bytes of a block of four tokens in the simulated runner, and its tag."""
OPEN = HostRules(size=1 << 20, classes=frozenset({""}))
PROMPT = list(range(100, 117))
"""Four blocks of four tokens, and one token that is always computed."""


def make_tiered(*, slots: int = 64, rules: HostRules = OPEN) -> Bench:
    """An engine with six blocks on its device, so that every prompt pushes the last one out."""
    bench = make_bench(num_blocks=6, block_size=4, host_kv_cache_memory_bytes=slots * SLOT)
    bench.engine.governance.set_host_rules(rules)
    return bench


def tier_of(bench: Bench) -> HostTier:
    return bench.engine._kv_cache.host


def push_out(bench: Bench, *, times: int = 2) -> None:
    """Fill the device with another tenant's prompts."""
    for number in range(times):
        name = f"push {len(bench.outputs)}"
        prompt = [200 + (number + len(bench.outputs)) % 40] * 17
        bench.run(make_request(name, prompt, scope=BETA, retention_class="device only"))


def serve(bench: Bench, name: str, prompt: Sequence[int] = PROMPT, **terms: object) -> int:
    """Run one request to its end and check its answer; returns its cached tokens."""
    [output] = bench.run(make_request(name, prompt, **terms))  # type: ignore[arg-type]
    assert bench.tokens(name) == expected_tokens(prompt, 4)
    return output.cached_tokens


def holds_plain(bench: Bench, tokens: Sequence[int]) -> bool:
    """Whether the tier's memory shows a block's bytes anywhere."""
    memory = tier_of(bench)._arena.rows.tobytes() + tier_of(bench)._arena.staging.tobytes()
    plain = b"".join((token + 1).to_bytes(2, "little") for token in tokens)
    return plain in memory


def test_what_left_the_device_is_found_again_by_its_own_tenant_alone() -> None:
    bench = make_tiered()
    assert serve(bench, "first") == 0
    push_out(bench)
    assert serve(bench, "other", scope=BETA) == 0
    push_out(bench)
    assert serve(bench, "again") == 16
    stats = tier_of(bench).stats()
    assert stats.counters.loads == 4
    assert stats.counters.damaged == stats.counters.refused_loads == 0


def test_a_block_lies_in_one_tier_at_a_time() -> None:
    bench = make_tiered()
    serve(bench, "first")
    push_out(bench)
    held = tier_of(bench).stats().blocks
    assert held == 5
    serve(bench, "again")
    bench.engine.check_integrity()
    assert tier_of(bench).stats().counters.loads == 4
    keys = {entry.key for entry in tier_of(bench).index.entries()}
    assert not keys & {entry.key for entry in bench.engine._kv_cache.index.entries()}


def test_only_classes_that_may_enter_do() -> None:
    bench = make_tiered(rules=HostRules(size=1 << 20, classes=frozenset({"host"})))
    serve(bench, "device")
    push_out(bench)
    assert tier_of(bench).stats().blocks == 0
    serve(bench, "host", retention_class="host")
    push_out(bench)
    assert tier_of(bench).stats().blocks == 5
    serve(bench, "none", [7] * 17, retention_class="host", store=False)
    push_out(bench)
    assert tier_of(bench).stats().counters.offloads == 5


def test_without_rules_or_memory_nothing_enters() -> None:
    for bench in (make_tiered(rules=HostRules()), make_tiered(slots=0)):
        serve(bench, "first")
        push_out(bench)
        assert tier_of(bench).stats().counters.offloads == 0
        assert serve(bench, "again") == 0


@pytest.mark.parametrize("encrypt", [True, False])
def test_bytes_lie_open_only_where_the_policy_says_so(encrypt: bool) -> None:
    rules = HostRules(size=1 << 20, classes=frozenset({""}), encrypt=encrypt)
    bench = make_tiered(rules=rules)
    serve(bench, "first")
    push_out(bench)
    assert holds_plain(bench, PROMPT[:4]) is not encrypt
    assert serve(bench, "again") == 16
    assert not holds_plain(bench, PROMPT[:4])


@pytest.mark.parametrize("encrypt", [True, False])
@pytest.mark.parametrize("where", [0, 5, SLOT - 1])
def test_a_damaged_block_is_a_miss_and_never_used(encrypt: bool, where: int) -> None:
    bench = make_tiered(rules=HostRules(size=1 << 20, classes=frozenset({""}), encrypt=encrypt))
    serve(bench, "first")
    push_out(bench)
    tier = tier_of(bench)
    by_key = {entry.key: entry for entry in tier.index.entries()}
    keys = keys_of_prompt()
    tier._arena.rows[by_key[keys[2]].block, where] ^= 1
    assert serve(bench, "again") == 8
    assert tier.stats().counters.damaged == 1
    assert keys[2] not in {entry.key for entry in tier.index.entries()}


def keys_of_prompt() -> Sequence[bytes]:
    return EngineSequence(make_request("keys", PROMPT), order=0).block_keys(4, 4)


def test_bytes_of_an_earlier_stay_or_of_another_slot_do_not_pass() -> None:
    bench = make_tiered()
    serve(bench, "first")
    push_out(bench)
    tier, keys = tier_of(bench), keys_of_prompt()
    by_key = {entry.key: entry.block for entry in tier.index.entries()}
    rows = tier._arena.rows
    rows[by_key[keys[0]]], rows[by_key[keys[1]]] = (
        rows[by_key[keys[1]]].copy(), rows[by_key[keys[0]]].copy(),
    )  # fmt: skip
    assert serve(bench, "again") == 0
    stale = tier._arena.rows.copy()
    push_out(bench)
    tier._arena.rows[:] = stale
    assert serve(bench, "once more") == 0
    assert tier.stats().counters.damaged == 2


def test_lifetimes_go_on_in_host_memory_and_end_exactly() -> None:
    bench = make_tiered()
    serve(bench, "first", max_ttl_ms=10_000, idle_ttl_ms=4_000)
    bench.clock.advance(3)
    push_out(bench)
    assert tier_of(bench).stats().blocks == 5
    bench.clock.advance(0.5)
    assert serve(bench, "again", max_ttl_ms=10_000, idle_ttl_ms=4_000) == 16
    push_out(bench)
    bench.clock.advance(4.0)
    assert serve(bench, "idle for too long") == 0
    bench.engine.governance.expire(bench.clock.now)
    left = {entry.created for entry in tier_of(bench).index.entries()}
    assert left <= {bench.clock.now}


def test_what_expired_or_was_loaded_is_overwritten() -> None:
    bench = make_tiered(rules=HostRules(size=1 << 20, classes=frozenset({""}), encrypt=False))
    serve(bench, "first", max_ttl_ms=1_000)
    push_out(bench)
    bench.clock.advance(1)
    bench.engine.governance.expire(bench.clock.now)
    tier = tier_of(bench)
    assert tier.stats().blocks == 0
    assert not tier._arena.rows.any()
    assert not tier._keys


def test_a_stricter_policy_reaches_host_memory() -> None:
    bench = make_tiered()
    serve(bench, "first")
    push_out(bench)
    bench.engine.governance.limit_ttls(idle_ttl_ms=None, max_ttl_ms=1_000)
    bench.clock.advance(1)
    bench.engine.governance.expire(bench.clock.now)
    assert not tier_of(bench)._arena.rows.any()


def test_a_purge_finds_both_tiers_and_spares_others() -> None:
    bench = make_tiered()
    serve(bench, "theirs", [50] * 17, scope=BETA)
    serve(bench, "first")
    push_out(bench)
    tier, governance = tier_of(bench), bench.engine.governance
    theirs = [entry for entry in tier.index.entries() if entry.owner.tenant == "beta"]
    assert len(theirs) == 5
    assert governance.host_residue(ACME, 1) == 5
    purged = governance.purge(ACME, 1, scrub=True)
    assert purged.index_entries == purged.overwritten.host_blocks == 5
    assert purged.overwritten.host_bytes == 5 * SLOT
    assert tier.index.counts(ACME).resident == 0
    assert governance.probe(purged.removed_keys) == 0
    assert governance.recount(ACME, 1) == governance.residue(ACME, 1) == 0
    assert [entry for entry in tier.index.entries() if entry.owner.tenant == "beta"] == theirs
    assert set(tier._keys._current) == {"beta"}
    assert serve(bench, "older") == 0
    assert serve(bench, "theirs again", [50] * 17, scope=BETA) == 16


def test_bytes_that_a_purge_left_are_counted_and_overwritten_in_slices() -> None:
    bench = make_tiered()
    serve(bench, "first")
    push_out(bench)
    governance = bench.engine.governance
    assert governance.purge(ACME, 1, scrub=False).index_entries == 5
    assert governance.recount(ACME, 1) == 0
    assert governance.residue(ACME, 1) == governance.host_residue(ACME, 1) == 5
    done = [governance.overwrite(ACME, 1, limit_bytes=2 * 8) for _ in range(4)]
    assert [each.host_blocks for each in done] == [2, 2, 1, 0]
    assert governance.residue(ACME, 1) == 0
    assert not tier_of(bench)._arena.rows.any()


def test_after_a_purge_a_tenants_blocks_are_sealed_with_another_key() -> None:
    bench = make_tiered()
    serve(bench, "below")
    serve(bench, "above", floor=1)
    push_out(bench)
    tier = tier_of(bench)
    old = tier._keys._current["acme"]
    assert old.uses == 10
    bench.engine.governance.purge(ACME, 1, scrub=True)
    assert old.uses == 5
    serve(bench, "later", list(range(30, 47)), floor=1)
    push_out(bench)
    assert tier._keys._current["acme"] is not old
    assert old.uses == 5


def test_a_tenant_at_its_share_replaces_its_own() -> None:
    bench = make_tiered(slots=20)
    bench.engine.governance.set_share_rules(ShareRules(max_percent=50))
    tier = tier_of(bench)
    for number in range(6):
        serve(bench, f"acme {number}", [number] * 9)
        serve(bench, f"beta {number}", [90 + number] * 9, scope=BETA)
    shares = tier.stats().shares
    assert shares["acme"].cached == shares["beta"].cached == 10
    assert tier.index.counts(ACME).evicted_quota > 0
    assert tier.index.counts(ACME).evicted_pool == 0


def test_a_flood_does_not_reach_below_a_floor_in_host_memory() -> None:
    bench = make_tiered(slots=12)
    bench.engine.governance.set_share_rules(ShareRules(max_percent=60, guaranteed_percent=40))
    serve(bench, "mine", list(range(9)))
    for number in range(12):
        serve(bench, f"flood {number}", [90 + number] * 9, scope=BETA)
    assert serve(bench, "mine again", list(range(9))) == 8


def test_a_smaller_tier_evicts_at_once_and_a_larger_one_takes_more() -> None:
    bench = make_tiered()
    tier, governance = tier_of(bench), bench.engine.governance
    for number in range(6):
        serve(bench, f"{number}", [number] * 17)
    held = tier.stats().blocks
    assert held > 10
    governance.set_host_rules(HostRules(size=10 * SLOT, classes=frozenset({""})))
    assert (tier.stats().blocks, tier.stats().slots) == (10, 10)
    bench.engine.check_integrity()
    assert (tier._arena.rows.any(axis=1)).sum() == 10
    governance.set_host_rules(OPEN)
    for number in range(6, 12):
        serve(bench, f"{number}", [number] * 17)
    assert tier.stats().blocks > 10
    governance.set_host_rules(HostRules())
    assert not tier._arena.rows.any()
    bench.engine.check_integrity()


def test_a_smaller_tier_lowers_each_tenants_share_at_once() -> None:
    bench = make_tiered()
    bench.engine.governance.set_share_rules(ShareRules(max_percent=60))
    for number in range(6):
        serve(bench, f"{number}", [number] * 9)
    assert tier_of(bench).stats().shares["acme"].cached > 6
    bench.engine.governance.set_host_rules(HostRules(size=10 * SLOT, classes=frozenset({""})))
    assert tier_of(bench).stats().shares["acme"].cached == 6
    bench.engine.check_integrity()


@pytest.mark.parametrize(
    "rules",
    [
        HostRules(size=1 << 20, classes=frozenset({"another"})),
        HostRules(size=1 << 20, classes=frozenset({""}), encrypt=False),
    ],
)
def test_what_the_rules_let_in_no_more_goes_at_once(rules: HostRules) -> None:
    bench = make_tiered()
    serve(bench, "first")
    push_out(bench)
    bench.engine.governance.set_host_rules(rules)
    assert tier_of(bench).stats().blocks == 0
    assert not tier_of(bench)._arena.rows.any()


def test_loading_that_would_be_slower_is_refused_and_counted() -> None:
    bench = make_tiered()
    serve(bench, "first")
    push_out(bench)
    tier = tier_of(bench)
    tier.rates.loaded_bytes.observe(8, 1.0)
    bench.engine.admission.costs.observe(prefill_tokens=1000, decode_rows=0, seconds=1.0)
    assert serve(bench, "again") == 0
    assert (tier.stats().counters.refused_loads, tier.stats().counters.loads) == (4, 0)
    # Computed again, so the device has them: the copies in host memory went.
    assert serve(bench, "on the device") == 16


def test_a_request_that_finds_no_room_on_the_device_loads_nothing() -> None:
    bench = make_tiered()
    serve(bench, "first")
    push_out(bench)
    bench.engine.add_request(make_request("long", [9] * 17, scope=BETA, max_tokens=4))
    bench.step()
    bench.engine.add_request(make_request("again", PROMPT))
    bench.step()
    assert tier_of(bench).stats().counters.loads == 0
    while bench.engine.has_work:
        bench.step()
    assert tier_of(bench).stats().counters.loads == 4
    assert bench.tokens("again") == expected_tokens(PROMPT, 4)
