"""Signing and sealing keys: RFC vectors, malleability, strict reading."""

from __future__ import annotations

import base64

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from hypothesis import given
from hypothesis import strategies as st

from fleetward_api.errors import KeyMalformed, SealInvalid, SignatureInvalid
from fleetward_api.keys import SealingKey, SealingPublicKey, SigningKey, VerifyKey

KEY = SigningKey.generate()
SEALING = SealingKey.generate()


@given(st.binary(max_size=200))
def test_a_signature_holds_for_its_bytes_under_its_key_only(data: bytes) -> None:
    signature = KEY.sign(data)
    KEY.verify_key.verify(data, signature)
    with pytest.raises(SignatureInvalid):
        KEY.verify_key.verify(data + b"x", signature)
    with pytest.raises(SignatureInvalid):
        SigningKey.generate().verify_key.verify(data, signature)


def test_every_flipped_bit_of_a_signature_is_caught() -> None:
    good = KEY.sign(b"data")
    for bit in range(len(good) * 8):
        bad = bytearray(good)
        bad[bit // 8] ^= 1 << bit % 8
        with pytest.raises(SignatureInvalid):
            KEY.verify_key.verify(b"data", bytes(bad))


def test_a_signature_has_no_second_form_with_the_group_order_added() -> None:
    # RFC 8032, 5.1.7: S must be below L, else every signature would have a twin.
    good = KEY.sign(b"data")
    order = 2**252 + 27742317777372353535851937790883648493
    twin = int.from_bytes(good[32:], "little") + order
    with pytest.raises(SignatureInvalid):
        KEY.verify_key.verify(b"data", good[:32] + twin.to_bytes(32, "little"))


@pytest.mark.parametrize("size", [0, 63, 65])
def test_a_signature_of_another_length_is_refused(size: int) -> None:
    with pytest.raises(SignatureInvalid):
        KEY.verify_key.verify(b"data", b"\0" * size)


def test_published_vector_of_rfc_8032() -> None:
    seed = bytes.fromhex("4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb")
    public = bytes.fromhex("3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c")
    signature = bytes.fromhex(
        "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da"
        "085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00"
    )
    pkcs8 = bytes.fromhex("302e020100300506032b657004220420") + seed
    body = base64.encodebytes(pkcs8)
    pem = b"-----BEGIN PRIVATE KEY-----\n" + body + b"-----END PRIVATE KEY-----\n"
    key = SigningKey.from_pem(pem)
    assert key.sign(b"\x72") == signature
    assert key.verify_key.to_b64() == base64.b64encode(public).decode()


def test_keys_survive_their_spelling() -> None:
    again = SigningKey.from_pem(KEY.to_pem())
    assert again.verify_key == KEY.verify_key
    assert VerifyKey.from_b64(KEY.verify_key.to_b64()) == KEY.verify_key
    sealed = SEALING.public.seal(b"x")
    assert SealingKey.from_pem(SEALING.to_pem()).open(sealed) == b"x"
    assert SealingPublicKey.from_b64(SEALING.public.to_b64()).to_b64() == SEALING.public.to_b64()


def test_key_id_is_the_start_of_the_fingerprint() -> None:
    short = KEY.verify_key.key_id.removeprefix("ed25519:")
    full = KEY.verify_key.fingerprint.removeprefix("sha256:")
    assert len(short) == 32
    assert len(full) == 64
    assert full.startswith(short)


def test_private_keys_do_not_show_in_a_repr() -> None:
    assert KEY.verify_key.key_id in repr(KEY)
    seed = KEY.private_key.private_bytes_raw().hex()
    assert seed not in repr(KEY)


def _with_stray_bits(text: str) -> str:
    # 32 bytes end in 4 unused bits before the padding; setting one gives a second spelling.
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    return text[:42] + alphabet[alphabet.index(text[42]) | 1] + "="


@pytest.mark.parametrize(
    "spelling",
    [
        _with_stray_bits(KEY.verify_key.to_b64()),
        KEY.verify_key.to_b64() + "\n",
        " " + KEY.verify_key.to_b64(),
        KEY.verify_key.to_b64().rstrip("="),
        KEY.verify_key.to_b64() + "====",
        base64.b64encode(b"short").decode(),
        "ключ",
        "",
    ],
    ids=["last-bit", "newline", "space", "unpadded", "overpadded", "short", "words", "empty"],
)
def test_a_public_key_has_one_spelling(spelling: str) -> None:
    with pytest.raises(KeyMalformed):
        VerifyKey.from_b64(spelling)
    with pytest.raises(KeyMalformed):
        SealingPublicKey.from_b64(spelling)


def test_a_pem_of_another_kind_is_refused() -> None:
    elliptic = ec.generate_private_key(ec.SECP256R1())
    pem = elliptic.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    for bad in (pem, SEALING.to_pem(), b"", b"-----BEGIN PRIVATE KEY-----\n"):
        with pytest.raises(KeyMalformed):
            SigningKey.from_pem(bad)
    with pytest.raises(KeyMalformed):
        SealingKey.from_pem(KEY.to_pem())


@given(st.binary(max_size=300))
def test_a_sealed_message_opens_with_its_key_only(message: bytes) -> None:
    sealed = SEALING.public.seal(message)
    assert SEALING.open(sealed) == message
    assert SEALING.public.seal(message) != sealed
    with pytest.raises(SealInvalid):
        SealingKey.generate().open(sealed)


def test_every_changed_byte_and_every_cut_of_a_sealed_message_is_caught() -> None:
    sealed = SEALING.public.seal(b"a token")
    for at in range(len(sealed)):
        changed = bytearray(sealed)
        changed[at] ^= 0x80
        with pytest.raises(SealInvalid):
            SEALING.open(bytes(changed))
        with pytest.raises(SealInvalid):
            SEALING.open(sealed[:at])


@pytest.mark.parametrize(
    "sealed",
    [b"", b"\x01" * 48, b"\x02" + SEALING.public.seal(b"x")[1:]],
    ids=["empty", "short", "another-version"],
)
def test_a_seal_cut_short_or_of_another_version_is_named(sealed: bytes) -> None:
    with pytest.raises(SealInvalid, match="cut short or of an unknown version"):
        SEALING.open(sealed)


def test_a_sealing_key_of_small_order_seals_nothing() -> None:
    nothing = SealingPublicKey.from_b64(base64.b64encode(b"\0" * 32).decode())
    with pytest.raises(KeyMalformed, match="small order"):
        nothing.seal(b"secret")
