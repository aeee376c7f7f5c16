"""Identity tokens: one spelling, no forgery, clocks that differ."""

from __future__ import annotations

import base64
import json
import math
from typing import Any

import jwt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetward_api.canonical import canonical_bytes
from fleetward_api.errors import IdentityError
from fleetward_api.identity import (
    IdentityClaims,
    IdentityFloors,
    mint_identity,
    verify_identity,
)
from fleetward_api.keys import SigningKey

KEY = SigningKey.generate()
NOW = 1_700_000_000
CLAIMS = IdentityClaims(
    service_uid="svc-1",
    tenant="acme",
    tenant_uid="uid-1",
    user="aa" * 32,
    permission_scope="bb" * 32,
    document_tags=("t2", "t1", "t1"),
    floors=IdentityFloors(tenant=1, user=2, permission_scope=3, document_tag=4),
    priority=-5,
    weight=3,
    retention_class="short",
    deadline_ms=30_000,
    request_id="req-1",
    issued_at=NOW,
    expires_at=NOW + 60,
)
TOKEN = mint_identity(CLAIMS, KEY)
NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)


def _verify(token: str | None, *, now: float = NOW) -> IdentityClaims:
    return verify_identity(token, KEY.verify_key, service_uid="svc-1", now=now)


def _code(token: str | None, *, now: float = NOW) -> str:
    with pytest.raises(IdentityError) as caught:
        _verify(token, now=now)
    return caught.value.code


def test_the_named_key_is_the_one_that_must_hold() -> None:
    other, third = SigningKey.generate(), SigningKey.generate()
    keys = (other.verify_key, KEY.verify_key)

    def code(token: str) -> str:
        try:
            verify_identity(token, *keys, service_uid="svc-1", now=NOW)
        except IdentityError as error:
            return error.code
        return ""

    from_other = mint_identity(CLAIMS, other)
    assert [code(TOKEN), code(from_other), code(mint_identity(CLAIMS, third))] == ["", "", "forged"]
    # Signed by one, in the name of the other.
    for named, signed in ((TOKEN, from_other), (from_other, TOKEN)):
        head, payload, _ = named.split(".")
        assert code(f"{head}.{payload}.{signed.rsplit('.', 1)[1]}") == "forged"
    with pytest.raises(IdentityError, match="not signed by"):
        verify_identity(TOKEN, service_uid="svc-1", now=NOW)


def _b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _token(header: dict[str, Any], payload: bytes, *, key: SigningKey = KEY) -> str:
    head = _b64(json.dumps(header, separators=(",", ":"), sort_keys=True).encode())
    body = f"{head}.{_b64(payload)}"
    return f"{body}.{_b64(key.sign(body.encode()))}"


HEADER = {"alg": "EdDSA", "kid": KEY.verify_key.key_id, "typ": "fleetward-identity+jwt"}


def _with_claims(**changes: Any) -> str:
    payload = json.loads(canonical_bytes(CLAIMS))
    return _token(HEADER, canonical_bytes({**payload, **changes}))


def test_what_was_minted_is_what_is_read() -> None:
    assert _verify(TOKEN) == CLAIMS
    assert CLAIMS.document_tags == ("t1", "t2")
    assert CLAIMS.floors.as_tuple() == (1, 2, 3, 4)


def test_the_token_is_a_jwt_that_others_can_read() -> None:
    claims = jwt.decode(
        TOKEN, KEY.verify_key.public_key, algorithms=["EdDSA"], options={"verify_exp": False}
    )
    assert claims["svc"] == "svc-1"
    assert set(claims) == {
        *("svc", "ten", "tid", "usr", "scp", "tag", "flr", "pri", "wgt"),
        *("rcl", "ddl", "jti", "iat", "exp", "ver"),
    }


@given(tenant=NAMES, user=NAMES, request_id=NAMES)
def test_any_name_survives(tenant: str, user: str, request_id: str) -> None:
    claims = CLAIMS.model_copy(update={"tenant": tenant, "user": user, "request_id": request_id})
    assert _verify(mint_identity(claims, KEY)) == claims


def test_the_hand_made_token_of_these_tests_is_the_minted_one() -> None:
    assert _token(HEADER, canonical_bytes(CLAIMS)) == TOKEN


@pytest.mark.parametrize("token", [None, ""])
def test_no_token_is_missing(token: str | None) -> None:
    assert _code(token) == "missing"


@pytest.mark.parametrize(
    "token",
    [
        "x",
        "a.b",
        TOKEN + ".x",
        TOKEN.replace(".", "..", 1),
        " " + TOKEN,
        TOKEN + "\n",
        TOKEN + "=",
        f"Bearer {TOKEN}",
        "é.é.é",
        "A" * 40_000,
        ".".join(["A" * 20_000] * 3),
    ],
)
def test_what_is_no_compact_jws_is_malformed(token: str) -> None:
    assert _code(token) == "malformed"


def test_every_changed_character_is_refused() -> None:
    for at, old in enumerate(TOKEN):
        for new in {"A", "B", "_", "."} - {old}:
            changed = TOKEN[:at] + new + TOKEN[at + 1 :]
            assert _code(changed) in {"malformed", "forged"}


def test_the_unused_bits_of_the_last_character_give_no_second_spelling() -> None:
    # 64 bytes end in 4 unused bits: a lax decoder takes 16 spellings of one signature.
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    last = alphabet.index(TOKEN[-1])
    for stray in range(1, 16):
        assert _code(TOKEN[:-1] + alphabet[last ^ stray]) == "malformed"


@pytest.mark.parametrize(
    "header",
    [
        {"alg": "none", "typ": HEADER["typ"], "kid": HEADER["kid"]},
        {**HEADER, "alg": "HS256"},
        {**HEADER, "alg": "ES256"},
        {**HEADER, "alg": "eddsa"},
        {**HEADER, "typ": "JWT"},
        {**HEADER, "kid": "ed25519:" + "0" * 32},
        {**HEADER, "crit": ["exp"]},
        {**HEADER, "jwk": {"kty": "OKP"}},
        {**HEADER, "b64": False},
        {"alg": "EdDSA"},
        {},
    ],
)
def test_only_one_header_is_taken(header: dict[str, Any]) -> None:
    assert _code(_token(header, canonical_bytes(CLAIMS))) == "forged"


def test_the_public_key_is_no_hmac_secret() -> None:
    raw = base64.b64decode(KEY.verify_key.to_b64())
    token = jwt.encode({"svc": "svc-1"}, raw, algorithm="HS256")
    assert _code(token) == "forged"


def test_an_unsigned_token_is_refused() -> None:
    head, body, _ = TOKEN.split(".")
    assert _code(f"{head}.{body}.") == "forged"
    assert _code(f"{head}.{body}.{_b64(bytes(64))}") == "forged"


def test_another_gateways_key_is_refused_even_under_our_key_id() -> None:
    other = SigningKey.generate()
    assert _code(mint_identity(CLAIMS, other)) == "forged"
    assert _code(_token(HEADER, canonical_bytes(CLAIMS), key=other)) == "forged"


def test_claims_of_one_token_do_not_go_with_the_signature_of_another() -> None:
    other = mint_identity(CLAIMS.model_copy(update={"tenant": "evil"}), KEY)
    mixed = [*TOKEN.split(".")[:1], other.split(".")[1], TOKEN.split(".")[2]]
    assert _code(".".join(mixed)) == "forged"


def test_a_token_for_another_service_is_refused() -> None:
    assert _code(_with_claims(svc="svc-2")) == "wrong_service"


@pytest.mark.parametrize("version", [0, 2, "1", None, True, 10**30 % 2**62])
def test_an_unknown_version_is_named_before_its_claims_are_read(version: Any) -> None:
    token = _token(HEADER, canonical_bytes({"ver": version, "new": "claims"}))
    assert _code(token) == "unknown_version"


@pytest.mark.parametrize(
    "changes",
    [
        {"exp": NOW + 3601},
        {"exp": NOW - 1},
        {"extra": 1},
        {"ten": ""},
        {"ten": "a" * 254},
        {"pri": "1"},
        {"pri": True},
        {"wgt": 0},
        {"wgt": 2**31},
        {"ddl": -1},
        {"iat": str(NOW)},
        {"tag": ["b", "a"]},
        {"tag": ["a", "a"]},
        {"tag": "a"},
        {"tag": [str(n).zfill(3) for n in range(65)]},
        {"flr": {}},
        {"flr": [1, 2, 3, 4]},
        {"jti": ""},
    ],
)
def test_signed_nonsense_is_malformed(changes: dict[str, Any]) -> None:
    assert _code(_with_claims(**changes)) == "malformed"


@pytest.mark.parametrize("name", ["tenant", "service_uid", "document_tags"])
def test_long_names_are_not_claim_names(name: str) -> None:
    assert _code(_with_claims(**{name: "x"})) == "malformed"


@pytest.mark.parametrize(
    "payload",
    [b"", b"{}x", b"\xff", b'{"ver": 1}', b'{"ver":1,"ver":1}', b'{"ver":1.0}', b"[" * 9000],
)
def test_a_payload_that_is_not_canonical_is_malformed(payload: bytes) -> None:
    assert _code(_token(HEADER, payload)) == "malformed"


def test_a_payload_that_is_no_object_has_no_version() -> None:
    assert _code(_token(HEADER, b"[]")) == "unknown_version"


@pytest.mark.parametrize(
    ("now", "code"),
    [
        (NOW + 60 + 900, None),
        (NOW + 60 + 900.5, "expired"),
        (NOW - 900, None),
        (NOW - 900.5, "not_yet_valid"),
        (math.inf, "expired"),
        (-math.inf, "not_yet_valid"),
        (math.nan, "expired"),
    ],
)
def test_clocks_may_differ_by_the_leeway_and_no_more(now: float, code: str | None) -> None:
    if code is None:
        assert _verify(TOKEN, now=now) == CLAIMS
    else:
        assert _code(TOKEN, now=now) == code


def test_a_refusal_says_nothing_of_the_claims() -> None:
    with pytest.raises(IdentityError) as caught:
        _verify(_with_claims(svc="svc-2"))
    assert "acme" not in caught.value.message
