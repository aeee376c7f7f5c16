"""Certificate authorities and certificates, in memory."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from datetime import datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

VALID = timedelta(days=365)
CLOCK_SKEW = timedelta(minutes=5)
"""Certificates are valid from a little before their making, for clocks that lag."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its private key, both PEM."""

    certificate: bytes
    key: bytes


@dataclass(frozen=True, slots=True)
class Subject:
    """Who a certificate is for.

    ``name`` and ``groups`` become user and groups in Kubernetes (CN and O); ``hosts`` are the DNS
    names and IP addresses that a server answers under.
    """

    name: str
    groups: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()


def new_authority(name: str, *, now: datetime) -> Pair:
    """A self-signed authority that signs leaf certificates only."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    usage = key_usage(signs_certificates=True)
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    certificate = (
        builder(subject, subject, key.public_key(), now)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(identifier, critical=False)
        .sign(key, hashes.SHA256())
    )
    return to_pair(certificate, key)


def issue(authority: Pair, subject: Subject, *, now: datetime) -> Pair:
    """A certificate signed by ``authority``, for a client and, where it has hosts, a server."""
    parent = x509.load_pem_x509_certificate(authority.certificate)
    signer = serialization.load_pem_private_key(authority.key, password=None)
    if not isinstance(signer, ec.EllipticCurvePrivateKey):
        raise TypeError("the authority's key is not an elliptic-curve key")
    key = ec.generate_private_key(ec.SECP256R1())
    usages = [ExtendedKeyUsageOID.CLIENT_AUTH]
    if subject.hosts:
        usages.append(ExtendedKeyUsageOID.SERVER_AUTH)
    issuer_key = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key())
    request = (
        builder(to_name(subject), parent.subject, key.public_key(), now)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(key_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        .add_extension(issuer_key, critical=False)
    )
    if subject.hosts:
        names = x509.SubjectAlternativeName([to_general_name(host) for host in subject.hosts])
        request = request.add_extension(names, critical=False)
    return to_pair(request.sign(signer, hashes.SHA256()), key)


def new_signing_key() -> tuple[bytes, bytes]:
    """Private and public key (PEM) for service-account tokens."""
    key = ec.generate_private_key(ec.SECP256R1())
    public = key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return private_pem(key), public


def builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, now: datetime
) -> x509.CertificateBuilder:
    """The fields that every certificate has."""
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_SKEW)
        .not_valid_after(now + VALID)
    )


def to_name(subject: Subject) -> x509.Name:
    """O for each group, then CN, as Kubernetes reads them."""
    groups = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in subject.groups]
    return x509.Name([*groups, x509.NameAttribute(NameOID.COMMON_NAME, subject.name)])


def to_general_name(host: str) -> x509.GeneralName:
    """An address as an address, anything else as a DNS name."""
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    """Sign certificates, or sign handshakes; nothing else."""
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=not signs_certificates,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def to_pair(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> Pair:
    """Both as PEM."""
    return Pair(certificate.public_bytes(serialization.Encoding.PEM), private_pem(key))


def private_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    """Unencrypted PEM; the file it goes to is readable by its owner only."""
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
