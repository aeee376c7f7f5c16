"""Certificates: who they are for, and who vouches for them."""

from __future__ import annotations

import ipaddress
from datetime import UTC, datetime
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from e2e.cluster.certificates import control_plane_identities, ensure_certificates
from e2e.cluster.pki import VALID, Pair, Subject, issue, new_authority

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def load(pair: Pair) -> x509.Certificate:
    return x509.load_pem_x509_certificate(pair.certificate)


def alternative_names(certificate: x509.Certificate) -> x509.SubjectAlternativeName:
    return certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value


def test_a_server_answers_under_its_addresses_and_its_names() -> None:
    subject = Subject("server", hosts=("127.0.0.1", "198.19.0.1", "kubernetes.default.svc"))
    names = alternative_names(load(issue(new_authority("a", now=NOW), subject, now=NOW)))
    assert names.get_values_for_type(x509.DNSName) == ["kubernetes.default.svc"]
    assert names.get_values_for_type(x509.IPAddress) == [
        ipaddress.ip_address("127.0.0.1"),
        ipaddress.ip_address("198.19.0.1"),
    ]


def test_user_and_groups_are_what_kubernetes_reads() -> None:
    subject = Subject("ann", ("readers", "writers"))
    certificate = load(issue(new_authority("a", now=NOW), subject, now=NOW))
    values = [(attribute.oid, attribute.value) for attribute in certificate.subject]
    assert values == [
        (NameOID.ORGANIZATION_NAME, "readers"),
        (NameOID.ORGANIZATION_NAME, "writers"),
        (NameOID.COMMON_NAME, "ann"),
    ]


@pytest.mark.parametrize(("hosts", "serves"), [((), False), (("localhost",), True)])
def test_only_a_certificate_with_hosts_may_serve(hosts: tuple[str, ...], serves: bool) -> None:
    pair = issue(new_authority("a", now=NOW), Subject("x", hosts=hosts), now=NOW)
    usage = load(pair).extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert ExtendedKeyUsageOID.CLIENT_AUTH in usage
    assert (ExtendedKeyUsageOID.SERVER_AUTH in usage) is serves


def test_validity_spans_now() -> None:
    certificate = load(issue(new_authority("a", now=NOW), Subject("x"), now=NOW))
    assert certificate.not_valid_before_utc < NOW
    assert certificate.not_valid_after_utc == NOW + VALID


def test_one_authority_does_not_vouch_for_the_leaf_of_another() -> None:
    ours, other = new_authority("same name", now=NOW), new_authority("same name", now=NOW)
    leaf = load(issue(ours, Subject("x"), now=NOW))
    leaf.verify_directly_issued_by(load(ours))
    with pytest.raises(InvalidSignature):
        leaf.verify_directly_issued_by(load(other))


def test_a_leaf_can_sign_no_certificates() -> None:
    leaf = load(issue(new_authority("a", now=NOW), Subject("x"), now=NOW))
    constraints = leaf.extensions.get_extension_for_class(x509.BasicConstraints).value
    usage = leaf.extensions.get_extension_for_class(x509.KeyUsage).value
    assert not constraints.ca
    assert not usage.key_cert_sign
    assert isinstance(leaf.public_key(), ec.EllipticCurvePublicKey)


def test_files_are_written_once_and_keys_are_private(tmp_path: Path) -> None:
    folder = tmp_path / "pki"
    assert ensure_certificates(folder, control_plane_identities("198.19.0.1"), now=NOW)
    first = {file.name: file.read_bytes() for file in folder.iterdir()}
    assert not ensure_certificates(folder, control_plane_identities("198.19.0.1"), now=NOW)
    assert first == {file.name: file.read_bytes() for file in folder.iterdir()}
    keys = list(folder.glob("*.key"))
    assert keys
    assert {file.stat().st_mode & 0o777 for file in keys} == {0o600}


def test_a_half_written_folder_is_written_anew(tmp_path: Path) -> None:
    identities = control_plane_identities()
    ensure_certificates(tmp_path, identities, now=NOW)
    (tmp_path / "complete").unlink()
    before = (tmp_path / "ca.crt").read_bytes()
    assert ensure_certificates(tmp_path, identities, now=NOW)
    assert (tmp_path / "ca.crt").read_bytes() != before


def test_no_user_certificate_opens_the_store(tmp_path: Path) -> None:
    ensure_certificates(tmp_path, control_plane_identities(), now=NOW)
    admin = x509.load_pem_x509_certificate((tmp_path / "admin.crt").read_bytes())
    store = x509.load_pem_x509_certificate((tmp_path / "etcd-ca.crt").read_bytes())
    with pytest.raises(ValueError, match="Issuer"):
        admin.verify_directly_issued_by(store)
