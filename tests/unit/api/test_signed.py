"""Signed envelopes: one domain, one spelling."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetward_api.canonical import canonical_bytes, parse_model
from fleetward_api.errors import CanonicalError, SignatureInvalid
from fleetward_api.keys import SigningKey
from fleetward_api.receipt import TierCounts
from fleetward_api.signed import Signed, sign, signed_bytes, verify

KEY = SigningKey.generate()
TIER = TierCounts(tier="device", blocks=3, bytes=12, method="overwritten")
SIGNED = sign(TIER, KEY, domain="receipt")


def test_what_was_signed_is_what_is_read() -> None:
    data = canonical_bytes(SIGNED)
    again = parse_model(Signed[TierCounts], data)
    assert verify(again, KEY.verify_key, domain="receipt") == TIER


def test_signing_twice_gives_the_same_bytes() -> None:
    assert canonical_bytes(sign(TIER, KEY, domain="receipt")) == canonical_bytes(SIGNED)


def test_the_signed_bytes_name_their_domain_and_version() -> None:
    assert signed_bytes(TIER, domain="receipt").startswith(b"fleetward/receipt/v1\n{")


def test_a_signature_for_one_purpose_does_not_serve_another() -> None:
    with pytest.raises(SignatureInvalid):
        verify(SIGNED, KEY.verify_key, domain="evidence")


def test_another_key_is_named() -> None:
    other = SigningKey.generate().verify_key
    with pytest.raises(SignatureInvalid, match=other.key_id):
        verify(SIGNED, other, domain="receipt")


def test_a_forged_key_id_does_not_help() -> None:
    mine = SigningKey.generate()
    forged = sign(TIER, mine, domain="receipt").model_copy(update={"key_id": KEY.verify_key.key_id})
    with pytest.raises(SignatureInvalid):
        verify(forged, KEY.verify_key, domain="receipt")


@pytest.mark.parametrize("domain", ["", "Receipt", "a\nb", "1a", "a/b"])
def test_a_domain_cannot_reach_into_the_payload(domain: str) -> None:
    with pytest.raises(SignatureInvalid, match="domain"):
        sign(TIER, KEY, domain=domain)


@given(st.data())
def test_no_changed_byte_of_an_envelope_is_taken(data: st.DataObject) -> None:
    good = bytearray(canonical_bytes(SIGNED))
    good[data.draw(st.integers(0, len(good) - 1))] ^= data.draw(st.integers(1, 255))
    with pytest.raises((CanonicalError, SignatureInvalid)):
        verify(parse_model(Signed[TierCounts], bytes(good)), KEY.verify_key, domain="receipt")


def test_hex_in_capitals_is_refused() -> None:
    upper = canonical_bytes(SIGNED).replace(
        SIGNED.signature.encode(), SIGNED.signature.upper().encode()
    )
    with pytest.raises(CanonicalError):
        parse_model(Signed[TierCounts], upper)


def test_an_envelope_writes_every_field_of_its_payload() -> None:
    # A generic envelope that serialised by its bound would sign one thing and send another.
    assert b'"blocks":3' in canonical_bytes(SIGNED)
    assert type(SIGNED) is Signed[TierCounts]
