"""The pool's books under each command."""

from __future__ import annotations

import pytest

from fleetward_api.owner import Owner
from fleetward_engine.block_pool import NULL_BLOCK, BlockPool, Eviction
from tests.support.engine_core import ACME, BETA

A, B = Owner.of("acme"), Owner.of("beta")


def test_hands_out_every_block_but_the_null_block() -> None:
    pool = BlockPool(3)
    blocks = {pool.allocate(A) for _ in range(3)}
    assert blocks == {1, 2, 3}
    assert NULL_BLOCK not in blocks
    assert (pool.num_available, pool.num_in_use) == (0, 3)
    pool.check_integrity()


def test_refuses_to_allocate_from_nothing() -> None:
    pool = BlockPool(1)
    pool.allocate(A)
    with pytest.raises(RuntimeError, match="no free block"):
        pool.allocate(A)


def test_a_pool_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one"):
        BlockPool(0)


def test_a_shared_block_stays_until_its_last_user_leaves() -> None:
    pool = BlockPool(1)
    block = pool.allocate(A)
    pool.acquire(block)
    pool.release(block)
    assert pool.num_available == 0
    pool.release(block)
    assert pool.num_available == 1
    with pytest.raises(RuntimeError, match="no user"):
        pool.release(block)


def test_retained_blocks_go_least_recently_released_first() -> None:
    pool = BlockPool(3)
    first, second, third = (pool.allocate(A) for _ in range(3))
    for block in (first, second, third):
        pool.retain(block)
    for block in (second, first, third):
        pool.release(block)
    assert pool.next_eviction("acme") == Eviction(second, "pool")
    pool.acquire(second)
    pool.release(second)
    assert pool.next_eviction("acme") == Eviction(first, "pool")
    pool.check_integrity()


def test_a_free_block_is_preferred_to_eviction() -> None:
    pool = BlockPool(2)
    block = pool.allocate(A)
    pool.retain(block)
    pool.release(block)
    assert pool.next_eviction("acme") is None
    assert pool.allocate(A) != block


def test_forgetting_frees_an_unused_block_and_leaves_a_used_one() -> None:
    pool = BlockPool(2)
    used, unused = pool.allocate(A), pool.allocate(A)
    pool.retain(used)
    pool.retain(unused)
    pool.release(unused)
    pool.forget(unused)
    pool.forget(used)
    assert pool.num_available == 1
    pool.check_integrity()
    with pytest.raises(RuntimeError, match="not retained"):
        pool.forget(used)


def test_free_blocks_cannot_be_shared_or_retained_and_used_ones_not_overwritten() -> None:
    pool = BlockPool(1)
    with pytest.raises(RuntimeError, match="free"):
        pool.acquire(1)
    with pytest.raises(RuntimeError, match="nothing to retain"):
        pool.retain(1)
    pool.allocate(A)
    with pytest.raises(RuntimeError, match="in use"):
        pool.scrub(1)


def test_a_released_block_is_overwritten_unless_it_is_retained() -> None:
    pool = BlockPool(2)
    kept, dropped = pool.allocate(A), pool.allocate(A)
    pool.retain(kept)
    pool.release(kept)
    pool.release(dropped)
    assert pool.take_dirty() == [dropped]
    assert pool.take_dirty() == []


@pytest.mark.parametrize(("before", "dirty"), [(A, []), (Owner.of("acme", 1), [1]), (B, [1])])
def test_an_evicted_block_is_overwritten_when_it_changes_owner(
    before: Owner, dirty: list[int]
) -> None:
    pool = BlockPool(1)
    pool.retain(pool.allocate(before))
    pool.release(1)
    pool.forget(1)
    pool.allocate(A)
    assert pool.take_dirty() == dirty


def test_owned_below_sees_used_retained_and_forgotten_blocks_until_overwritten() -> None:
    pool = BlockPool(4)
    used, retained, freed = (pool.allocate(A) for _ in range(3))
    for block in (retained, freed):
        pool.retain(block)
        pool.release(block)
    pool.forget(freed)
    assert pool.owned_below(ACME, 1) == [used, retained, freed]
    assert set(pool.unused_below(ACME, 1)) == {retained, freed}
    assert (pool.count_below(ACME, 1), pool.count_below(ACME, 0)) == (3, 0)
    assert pool.owned_below(ACME, 0) == pool.owned_below(BETA, 1) == []
    pool.scrub(freed)
    assert pool.owned_below(ACME, 1) == [used, retained]
    assert pool.count_below(ACME, 1) == 2


@pytest.mark.parametrize(
    "damage",
    [
        lambda pool: pool._free.append(2),
        lambda pool: pool._free.append(1),
        lambda pool: pool._ref_counts.__setitem__(1, 0),
        lambda pool: pool._retained.__setitem__(2, True),
        lambda pool: pool._owners.__setitem__(1, None),
        lambda pool: pool._ref_counts.__setitem__(NULL_BLOCK, 1),
    ],
)
def test_integrity_check_finds_damage(damage) -> None:  # type: ignore[no-untyped-def]
    pool = BlockPool(2)
    assert pool.allocate(A) == 1
    pool.check_integrity()
    damage(pool)
    with pytest.raises(AssertionError):
        pool.check_integrity()
