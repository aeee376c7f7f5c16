"""API keys to tenants."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetward_api.api_key import MIN_KEY_CHARS
from fleetward_gateway.admission.facts import KeyRef, TenantFacts
from fleetward_gateway.admission.keyring import (
    Grant,
    KeyHasher,
    build_key_index,
    find_grant,
)

HASHER = KeyHasher(b"s" * 32)


def tenant(name: str, *keys: KeyRef, deleting: bool = False) -> TenantFacts:
    return TenantFacts(name, f"uid-{name}", "2026-01-01", keys=keys, deleting=deleting)


def ref(secret: str, *, expires_at: float | None = None) -> KeyRef:
    return KeyRef("k", secret, "key", expires_at)


def secrets(**values: str) -> dict[str, dict[str, bytes | None]]:
    return {name: {"key": HASHER.digest_entry(value.encode())} for name, value in values.items()}


KEY = "sk-0123456789abcdef"
OTHER = "sk-fedcba9876543210"


def test_key_opens_its_tenant_and_no_other() -> None:
    tenants = [tenant("a", ref("sa")), tenant("b", ref("sb"))]
    index = build_key_index(tenants, secrets(sa=KEY, sb=OTHER))
    for key, name in ((KEY, "a"), (OTHER, "b")):
        grant = find_grant(index, HASHER.digest(key.encode()), now=0)
        assert isinstance(grant, Grant)
        assert grant.tenant.name == name
    assert index.faults == ()


@given(st.binary(max_size=64))
def test_no_other_bytes_open_anything(guess: bytes) -> None:
    index = build_key_index([tenant("a", ref("sa"))], secrets(sa=KEY))
    found = find_grant(index, HASHER.digest(guess), now=0)
    assert (found == "unknown") == (guess != KEY.encode())


@pytest.mark.parametrize(
    ("now", "opens"),
    [(99.9, True), (100.0, False), (1e12, False), (-math.inf, True), (math.nan, False)],
)
def test_expiry_is_the_first_moment_of_refusal(now: float, opens: bool) -> None:
    index = build_key_index([tenant("a", ref("sa", expires_at=100.0))], secrets(sa=KEY))
    found = find_grant(index, HASHER.digest(KEY.encode()), now=now)
    assert isinstance(found, Grant) if opens else found == "expired"


def test_a_key_of_two_tenants_opens_neither_and_is_named() -> None:
    tenants = [tenant("a", ref("s")), tenant("b", ref("s")), tenant("c", ref("sc"))]
    index = build_key_index(tenants, secrets(s=KEY, sc=OTHER))
    assert find_grant(index, HASHER.digest(KEY.encode()), now=0) == "unknown"
    assert isinstance(find_grant(index, HASHER.digest(OTHER.encode()), now=0), Grant)
    assert "a and b hold the same API key" in index.faults[0]


def test_a_key_twice_in_one_tenant_lives_as_long_as_the_longer_entry() -> None:
    keys = (ref("s", expires_at=10.0), ref("t"), ref("s", expires_at=20.0))
    index = build_key_index([tenant("a", *keys)], secrets(s=KEY, t=KEY))
    assert isinstance(find_grant(index, HASHER.digest(KEY.encode()), now=1e9), Grant)


def test_tenants_being_deleted_open_nothing() -> None:
    index = build_key_index([tenant("a", ref("sa"), deleting=True)], secrets(sa=KEY))
    assert index.grants == {}


def test_absent_secret_and_absent_entry_are_told_apart() -> None:
    keys = (ref("gone"), KeyRef("k", "here", "wrong", None))
    index = build_key_index([tenant("a", *keys)], secrets(here=KEY))
    assert index.grants == {}
    assert "gone is not in the key namespace" in index.faults[0]
    assert "here has no usable entry 'wrong'" in index.faults[1]


@given(st.text(alphabet=" \t\r\n", max_size=4), st.text(alphabet=" \t\r\n", max_size=4))
def test_white_space_around_an_entry_is_no_part_of_the_key(before: str, after: str) -> None:
    entry = (before + KEY + after).encode()
    assert HASHER.digest_entry(entry) == HASHER.digest(KEY.encode())


@pytest.mark.parametrize("value", [b"", b" " * 64, b"x" * (MIN_KEY_CHARS - 1), b"x" * 513])
def test_entries_that_cannot_be_keys_have_no_digest(value: bytes) -> None:
    assert HASHER.digest_entry(value) is None


def test_digests_differ_between_processes() -> None:
    assert KeyHasher(b"t" * 32).digest(KEY.encode()) != HASHER.digest(KEY.encode())
