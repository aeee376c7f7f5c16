"""Admission: nobody in between can put in a key of their own."""

from __future__ import annotations

import base64
import ssl
from typing import Any

import pytest
from cryptography import x509

from fleetward_api.admin import AdmissionReply, SealedProof
from fleetward_api.canonical import canonical_bytes
from fleetward_api.errors import AdmissionError
from fleetward_api.keys import SealingKey, SigningKey
from fleetward_api.member import (
    MemberKeys,
    admission_reply,
    certificate_fingerprint,
    open_admission,
)

SEALING = SealingKey.generate()
KEYS = MemberKeys.generate(pod_uid="pod-1", pod_ip="10.0.0.7")
DER = ssl.PEM_cert_to_DER_cert(KEYS.certificate_pem.decode())
NONCE = "0a" * 16


def _reply(**changes: Any) -> AdmissionReply:
    facts: dict[str, Any] = {
        "kind": "engine",
        "pod_uid": "pod-1",
        "token": "header.claims.signature",
        "nonce": NONCE,
        "sealing": SEALING.public,
    }
    return admission_reply(KEYS, **{**facts, **changes})


def _open(reply: AdmissionReply, **changes: Any) -> SealedProof:
    facts: dict[str, Any] = {
        "sealing": SEALING,
        "nonce": NONCE,
        "peer_certificate_der": DER,
        "expected_pod_uid": "pod-1",
    }
    return open_admission(reply, **{**facts, **changes})


def test_a_member_is_admitted_by_what_it_sealed() -> None:
    proof = _open(_reply())
    assert proof.token == "header.claims.signature"
    assert proof.receipt_key == KEYS.receipt_key.verify_key.to_b64()
    assert proof.certificate_fingerprint == certificate_fingerprint(DER)


def test_the_token_is_nowhere_in_the_clear() -> None:
    reply = _reply(token="a-token-of-the-pod")
    assert "a-token-of-the-pod" not in reply.model_dump_json()
    assert b"a-token-of-the-pod" not in base64.b64decode(reply.sealed_proof)
    assert "a-token-of-the-pod" not in repr(_open(reply))


def test_somebody_in_between_cannot_put_in_a_certificate() -> None:
    other = MemberKeys.generate(pod_uid="pod-1", pod_ip="10.0.0.7")
    der = ssl.PEM_cert_to_DER_cert(other.certificate_pem.decode())
    with pytest.raises(AdmissionError, match="connection's certificate"):
        _open(_reply(), peer_certificate_der=der)


@pytest.mark.parametrize(
    "changes",
    [
        {"receipt_key": SigningKey.generate().verify_key.to_b64()},
        {"certificate_fingerprint": "sha256:" + "0" * 64},
        {"pod_uid": "pod-2"},
    ],
)
def test_somebody_in_between_cannot_change_what_is_outside(changes: dict[str, str]) -> None:
    with pytest.raises(AdmissionError, match="something else"):
        _open(_reply().model_copy(update=changes))


def test_an_old_answer_does_not_serve_a_new_question() -> None:
    with pytest.raises(AdmissionError, match="nonce") as caught:
        _open(_reply(), nonce="0b" * 16)
    assert caught.value.retryable


def test_another_pod_is_not_the_one_that_was_meant() -> None:
    with pytest.raises(AdmissionError, match="pod-2"):
        _open(_reply(), expected_pod_uid="pod-2")


def test_only_the_operator_can_open_it() -> None:
    with pytest.raises(AdmissionError, match="cannot be read"):
        _open(_reply(), sealing=SealingKey.generate())


def test_a_changed_seal_is_caught() -> None:
    sealed = bytearray(base64.b64decode(_reply().sealed_proof))
    for at in range(0, len(sealed), 7):
        changed = bytearray(sealed)
        changed[at] ^= 1
        reply = _reply().model_copy(
            update={"sealed_proof": base64.b64encode(bytes(changed)).decode()}
        )
        with pytest.raises(AdmissionError, match="cannot be read"):
            _open(reply)


@pytest.mark.parametrize("message", [b"{}", b"", b"\xff", b'{"token":"t"}'])
def test_a_seal_around_something_else_is_caught(message: bytes) -> None:
    sealed = base64.b64encode(SEALING.public.seal(message)).decode()
    with pytest.raises(AdmissionError, match="cannot be read"):
        _open(_reply().model_copy(update={"sealed_proof": sealed}))


def test_a_receipt_key_that_is_no_key_is_caught() -> None:
    bad = base64.b64encode(b"short").decode()
    proof = _open(_reply()).model_copy(update={"receipt_key": bad})
    sealed = base64.b64encode(SEALING.public.seal(canonical_bytes(proof))).decode()
    with pytest.raises(AdmissionError, match="public key"):
        _open(_reply().model_copy(update={"sealed_proof": sealed, "receipt_key": bad}))


@pytest.mark.parametrize("nonce", ["", "0a", "0A" * 16, "x" * 32, "0a" * 65])
def test_a_nonce_is_hex_of_some_length(nonce: str) -> None:
    with pytest.raises(AdmissionError, match="nonce"):
        _reply(nonce=nonce)


def test_an_absent_token_is_no_proof() -> None:
    with pytest.raises(AdmissionError, match="token"):
        _reply(token="")


@pytest.mark.parametrize("address", ["10.0.0.7", "fd00::7"])
def test_the_certificate_names_pod_and_address_and_outlives_any_clock(address: str) -> None:
    keys = MemberKeys.generate(pod_uid="p" * 80, pod_ip=address)
    certificate = x509.load_pem_x509_certificate(keys.certificate_pem)
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert [str(ip) for ip in names.get_values_for_type(x509.IPAddress)] == [address]
    assert certificate.not_valid_before_utc.year == 2000
    assert certificate.not_valid_after_utc.year == 9999


def test_an_address_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="address"):
        MemberKeys.generate(pod_uid="p", pod_ip="")


def test_the_files_serve_tls_and_lie_in_no_folder() -> None:
    with KEYS.tls_files() as files:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(*files)
        assert all(str(file.readlink()).startswith("/memfd:") for file in files)
        assert all(file.stat().st_nlink == 0 for file in files)
    assert not any(file.exists() and "admin" in str(file.readlink()) for file in files)


def test_no_key_shows_in_a_repr() -> None:
    assert "PRIVATE" not in repr(KEYS)
