"""Sealed blocks: what is bound to a seal, and when a key dies."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fleetward_api.owner import Owner
from fleetward_engine.cache_entry import Entry
from fleetward_engine.host_tier.seal import (
    TAG_BYTES,
    Bytes,
    KeyRing,
    SealDamaged,
    SealKey,
    facts_of,
)

PLAIN: Bytes = np.arange(64, dtype=np.uint8)
ENTRY = Entry(key=b"k" * 32, block=1, owner=Owner.of("acme", 3), created=0.0, last_used=0.0)


def room(size: int) -> Bytes:
    return np.zeros(size, dtype=np.uint8)


@pytest.mark.parametrize("encrypt", [True, False])
@pytest.mark.parametrize(
    "other",
    [
        facts_of(replace(ENTRY, key=b"j" * 32), 7),
        facts_of(replace(ENTRY, owner=Owner.of("beta", 3)), 7),
        facts_of(replace(ENTRY, owner=Owner.of("acme", 4)), 7),
        facts_of(ENTRY, 8),
    ],
    ids=["key", "tenant", "floor", "stay"],
)
def test_a_seal_opens_for_its_own_key_owner_and_stay_alone(encrypt: bool, other: bytes) -> None:
    key, sealed, back = SealKey(), room(PLAIN.size + TAG_BYTES), room(PLAIN.size)
    nonce = key.seal(PLAIN, facts_of(ENTRY, 7), sealed, encrypt=encrypt)
    key.unseal(sealed, nonce, facts_of(ENTRY, 7), back, encrypt=encrypt)
    assert (back == PLAIN).all()
    assert (sealed[: PLAIN.size] == PLAIN).all() is np.bool_(not encrypt)
    with pytest.raises(SealDamaged):
        key.unseal(sealed, nonce, other, back, encrypt=encrypt)
    with pytest.raises(SealDamaged):
        SealKey().unseal(sealed, nonce, facts_of(ENTRY, 7), back, encrypt=encrypt)


def test_no_nonce_comes_twice_under_a_key() -> None:
    key, sealed = SealKey(), room(PLAIN.size + TAG_BYTES)
    nonces = [key.seal(PLAIN, b"", sealed, encrypt=one % 2 == 0) for one in range(300)]
    assert len(set(nonces)) == 300


def test_a_key_dies_with_the_last_block_under_it_and_a_retired_one_takes_no_more() -> None:
    ring = KeyRing()
    first = ring.take("acme")
    assert ring.take("acme") is first
    assert ring.take("beta") is not first
    ring.give_back("acme", first)
    assert ring.take("acme") is first
    ring.retire("acme")
    second = ring.take("acme")
    assert second is not first
    ring.give_back("acme", first)
    ring.give_back("acme", first)
    assert (first.uses, second.uses, len(ring)) == (0, 1, 2)
    ring.give_back("acme", second)
    assert len(ring) == 1
