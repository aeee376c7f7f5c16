"""Keys that the operator publishes for the gateway: read strictly, kept until better ones come."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field

from fleetward_api.errors import KeyMalformed
from fleetward_api.keys import SealingPublicKey, SigningKey, VerifyKey
from fleetward_api.scope import MIN_KEY_BYTES


@dataclass(frozen=True, slots=True)
class Trust:
    """Public keys from the ConfigMap `fleetward-trust`."""

    operator: VerifyKey
    sealing: SealingPublicKey


def read_trust(data: Mapping[str, str]) -> Trust:
    """Read the ConfigMap's data. Raises `KeyMalformed`, naming the entry."""
    return Trust(
        operator=VerifyKey.from_b64(_entry(data, "operator.pub").strip()),
        sealing=SealingPublicKey.from_b64(_entry(data, "sealing.pub").strip()),
    )


@dataclass(frozen=True, slots=True)
class OwnKeys:
    """What the gateway's own Secret holds.

    Attributes:
        signing: signs identity tokens.
        digest: keys the digests by which scopes are named.
    """

    signing: SigningKey
    digest: bytes = field(repr=False)


def read_own_keys(data: Mapping[str, str]) -> OwnKeys:
    """Read the data of `fleetward-gateway-keys`. Raises `KeyMalformed`, naming the entry."""
    digest = _raw(data, "digest.key")
    if len(digest) < MIN_KEY_BYTES:
        raise KeyMalformed(f"digest.key holds {len(digest)} bytes, must hold {MIN_KEY_BYTES}")
    return OwnKeys(SigningKey.from_pem(_raw(data, "signing.pem")), digest)


def _raw(data: Mapping[str, str], name: str) -> bytes:
    try:
        return base64.b64decode(_entry(data, name), validate=True)
    except ValueError:
        raise KeyMalformed(f"{name} is not base64") from None


def _entry(data: Mapping[str, str], name: str) -> str:
    if name not in data:
        raise KeyMalformed(f"the entry {name} is missing; the operator writes it")
    return data[name]
