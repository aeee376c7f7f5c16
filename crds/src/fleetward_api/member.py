"""What engine and gateway share to be members of a purge: keys, certificate, admission.

A member proves itself by a ServiceAccount token that only the operator can read, sealed together
with the keys it will use. Whoever sits in between can neither read the token nor put in a key.
"""

from __future__ import annotations

import base64
import hmac
import ipaddress
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from fleetward_api.admin import AdmissionReply, MemberKind, SealedProof
from fleetward_api.canonical import canonical_bytes, digest, parse_model
from fleetward_api.errors import AdmissionError, CanonicalError, KeyMalformed, SealInvalid
from fleetward_api.keys import (
    SealingKey,
    SealingPublicKey,
    SigningKey,
    VerifyKey,
    decode_base64,
)

# The certificate is pinned and lives as long as its pod, so its dates only have to admit every
# clock; the last one is what RFC 5280 (4.1.2.5) sets for "no expiry".
_NOT_BEFORE: Final = datetime(2000, 1, 1, tzinfo=UTC)
_NOT_AFTER: Final = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)
_MAX_COMMON_NAME: Final = 64


@dataclass(frozen=True, slots=True, repr=False)
class MemberKeys:
    """The keys that a member makes at start and never stores.

    Attributes:
        receipt_key: signs its receipts.
        certificate_pem, private_key_pem: the admin port's TLS (ECDSA P-256, self-signed).
        certificate_fingerprint: `sha256:…` of the certificate's DER.
    """

    receipt_key: SigningKey
    certificate_pem: bytes
    private_key_pem: bytes
    certificate_fingerprint: str

    @classmethod
    def generate(cls, *, pod_uid: str, pod_ip: str) -> MemberKeys:
        """Make fresh keys for one pod.

        Raises:
            ValueError: `pod_ip` is no IP address.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = _self_signed(key, pod_uid=pod_uid, pod_ip=pod_ip)
        return cls(
            receipt_key=SigningKey.generate(),
            certificate_pem=certificate.public_bytes(Encoding.PEM),
            private_key_pem=key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
            certificate_fingerprint=certificate_fingerprint(certificate.public_bytes(Encoding.DER)),
        )

    @contextmanager
    def tls_files(self) -> Iterator[tuple[Path, Path]]:
        """Paths of certificate and key for a TLS library, which reads nothing but files.

        The files are memory of this process without a name in any folder, and gone after the block:
        a key that was on a disk once may be found there when it is deleted.
        """
        with ExitStack() as stack:
            yield (
                stack.enter_context(_memory_file("admin.crt", self.certificate_pem)),
                stack.enter_context(_memory_file("admin.key", self.private_key_pem)),
            )


@contextmanager
def _memory_file(name: str, content: bytes) -> Iterator[Path]:
    with os.fdopen(os.memfd_create(name, os.MFD_CLOEXEC), "wb") as file:
        file.write(content)
        file.flush()
        yield Path(f"/proc/self/fd/{file.fileno()}")


def certificate_fingerprint(der: bytes) -> str:
    """Return the fingerprint of a certificate, as both sides name it."""
    return digest(der)


def admission_reply(
    keys: MemberKeys,
    *,
    kind: MemberKind,
    pod_uid: str,
    token: str,
    nonce: str,
    sealing: SealingPublicKey,
) -> AdmissionReply:
    """Return the answer to `GET /admission?nonce=…`.

    Args:
        keys: this member's keys.
        kind: engine or gateway.
        pod_uid: of this pod.
        token: the projected ServiceAccount token (audience `fleetward-operator`).
        nonce: from the query: 32 to 128 lowercase hex digits.
        sealing: the operator's public sealing key.

    Raises:
        AdmissionError: the nonce is malformed.
    """
    receipt_key = keys.receipt_key.verify_key.to_b64()
    try:
        proof = SealedProof(
            token=token,
            nonce=nonce,
            pod_uid=pod_uid,
            receipt_key=receipt_key,
            certificate_fingerprint=keys.certificate_fingerprint,
        )
    except ValueError as fault:
        raise AdmissionError(
            "no proof: the nonce must be 32 to 128 lowercase hex digits, and the "
            "ServiceAccount token present"
        ) from fault
    return AdmissionReply(
        kind=kind,
        pod_uid=pod_uid,
        receipt_key=receipt_key,
        certificate_fingerprint=keys.certificate_fingerprint,
        sealed_proof=base64.b64encode(sealing.seal(canonical_bytes(proof))).decode(),
    )


def open_admission(
    reply: AdmissionReply,
    *,
    sealing: SealingKey,
    nonce: str,
    peer_certificate_der: bytes,
    expected_pod_uid: str,
) -> SealedProof:
    """Open and check a member's proof. The caller then has the API server review `proof.token`.

    Args:
        reply: what the member answered.
        sealing: the operator's private sealing key.
        nonce: what the operator asked with.
        peer_certificate_der: the certificate of the very connection that carried the reply.
        expected_pod_uid: the pod that the operator meant to reach.

    Raises:
        AdmissionError: naming what does not agree; nothing in the reply may then be used.
    """
    try:
        sealed = decode_base64(reply.sealed_proof, what="the sealed proof", size=None)
        proof = parse_model(SealedProof, sealing.open(sealed))
        VerifyKey.from_b64(proof.receipt_key)
    except (KeyMalformed, SealInvalid, CanonicalError) as fault:
        raise AdmissionError(f"the member's proof cannot be read: {fault}") from fault
    if not hmac.compare_digest(proof.nonce, nonce):
        raise AdmissionError("the proof answers another nonce: it is a replay", retryable=True)
    if proof.certificate_fingerprint != certificate_fingerprint(peer_certificate_der):
        raise AdmissionError("the connection's certificate is not the one inside the seal")
    if proof.pod_uid != expected_pod_uid:
        raise AdmissionError(f"the proof is of pod {proof.pod_uid}, expected {expected_pod_uid}")
    outside = (reply.pod_uid, reply.receipt_key, reply.certificate_fingerprint)
    if outside != (proof.pod_uid, proof.receipt_key, proof.certificate_fingerprint):
        raise AdmissionError("the reply says something else than the proof sealed in it")
    return proof


def _self_signed(key: ec.EllipticCurvePrivateKey, *, pod_uid: str, pod_ip: str) -> x509.Certificate:
    common_name = x509.NameAttribute(NameOID.COMMON_NAME, pod_uid[:_MAX_COMMON_NAME])
    name = x509.Name([common_name])
    address = x509.IPAddress(ipaddress.ip_address(pod_ip))
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(_NOT_BEFORE)
        .not_valid_after(_NOT_AFTER)
        .add_extension(x509.SubjectAlternativeName([address]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
