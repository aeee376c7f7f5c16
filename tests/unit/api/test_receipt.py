"""A receipt's arithmetic."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from fleetward_api.canonical import canonical_bytes, parse_model
from fleetward_api.evidence import GENESIS
from fleetward_api.keys import SigningKey
from fleetward_api.receipt import RECEIPT_DOMAIN, Receipt, TierCounts, receipt_faults
from fleetward_api.signed import Signed, sign, verify
from tests.support.purge_facts import receipt_of

KEY = SigningKey.generate()
EMPTY = {"inserted": 0, "evicted": 0, "removed": 0, "probes": 0, "tiers": ()}


def test_a_full_removal_has_no_fault() -> None:
    assert receipt_faults(receipt_of("a", KEY)) == []


def test_a_scope_with_nothing_in_it_has_no_fault() -> None:
    assert receipt_faults(receipt_of("a", KEY, **EMPTY)) == []


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"inserted": 10}, "inserted minus evicted is 8, but 7 were removed"),
        ({"evicted": 10}, "inserted minus evicted is -1"),
        ({"removed": 6}, "but 6 were removed"),
        ({"probe_hits": 1}, "1 of 7 probes still hit"),
        ({"probe_hits": 8}, "8 probe hits out of 7"),
        ({"probes": 0}, "7 keys were removed and 0 were probed"),
        ({"probes": 6}, "7 keys were removed and 6 were probed"),
        ({"tiers": (TierCounts(tier="index", blocks=6, method="dropped"),)}, "index lost 6"),
        ({"recount": 2}, "recount still found 2"),
        ({"sequence_after": 0}, "sequence number did not grow"),
        ({"chain_after": GENESIS}, "head did not change"),
        ({"tiers": (TierCounts(tier="device", blocks=1),)}, "no method for 1 blocks"),
        ({"tiers": (TierCounts(tier="device", bytes=1),)}, "1 bytes in no block"),
        ({"tiers": (TierCounts(tier="host"), TierCounts(tier="host"))}, "host is counted twice"),
    ],
)
def test_each_fault_is_named(changes: dict[str, Any], words: str) -> None:
    faults = receipt_faults(receipt_of("a", KEY, **changes))
    assert any(words in fault for fault in faults), faults


@given(
    inserted=st.integers(0, 50),
    evicted=st.integers(0, 50),
    removed=st.integers(0, 50),
    hits=st.integers(0, 2),
    recount=st.integers(0, 2),
)
def test_counts_have_no_fault_exactly_when_they_add_up(
    inserted: int, evicted: int, removed: int, hits: int, recount: int
) -> None:
    receipt = receipt_of(
        "a",
        KEY,
        inserted=inserted,
        evicted=evicted,
        removed=removed,
        tiers=(),
        probes=removed,
        probe_hits=hits,
        recount=recount,
    )
    good = inserted - evicted == removed and hits == 0 and recount == 0
    assert (receipt_faults(receipt) == []) == good


def test_wall_clocks_that_run_backwards_are_no_fault() -> None:
    assert receipt_faults(receipt_of("a", KEY, started_at=9, finished_at=1)) == []


def test_a_receipt_survives_the_wire_and_names_no_one() -> None:
    signed = sign(receipt_of("a", KEY), KEY, domain=RECEIPT_DOMAIN)
    again = parse_model(Signed[Receipt], canonical_bytes(signed))
    assert verify(again, KEY.verify_key, domain=RECEIPT_DOMAIN) == receipt_of("a", KEY)


@pytest.mark.parametrize(
    "changes",
    [
        {"scope_digest": "acme"},
        {"scope_digest": "5C" * 32},
        {"removed": -1},
        {"removed": 2**63},
        {"chain_after": "sha256:"},
        {"key_id": "rsa:1"},
        {"pod_uid": ""},
        {"tiers": tuple(TierCounts(tier=str(n)) for n in range(17))},
    ],
)
def test_a_malformed_receipt_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        receipt_of("a", KEY, **changes)
