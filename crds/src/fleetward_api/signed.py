"""A signed value: payload, key id and Ed25519 signature over domain ‖ canonical bytes.

The domain keeps a signature made for one purpose from being read as one made for another; the
signature is lowercase hex, which has one spelling (base64 has several, RFC 4648 section 3.5).
"""

from __future__ import annotations

import re
from typing import Annotated, Final, Generic, TypeVar

from pydantic import Field

from fleetward_api.canonical import WireModel, canonical_bytes
from fleetward_api.errors import SignatureInvalid
from fleetward_api.keys import SigningKey, VerifyKey

T = TypeVar("T", bound=WireModel)

KeyId = Annotated[str, Field(pattern=r"^ed25519:[0-9a-f]{32}$")]
SignatureHex = Annotated[str, Field(pattern=r"^[0-9a-f]{128}$")]
_DOMAIN: Final = re.compile(r"[a-z][a-z0-9-]*")


class Signed(WireModel, Generic[T]):
    """An envelope that names its key. Nothing in `payload` may be used before `verify`."""

    payload: T
    key_id: KeyId
    signature: SignatureHex


def sign(payload: T, key: SigningKey, *, domain: str) -> Signed[T]:
    """Sign `payload` for one purpose. The same payload, key and domain give the same envelope."""
    signature = key.sign(signed_bytes(payload, domain=domain)).hex()
    # Parametrised by the payload's own class, so that the envelope writes all of its fields.
    envelope: type[Signed[T]] = Signed.__class_getitem__(type(payload))  # type: ignore[assignment]
    return envelope(payload=payload, key_id=key.verify_key.key_id, signature=signature)


def verify(signed: Signed[T], key: VerifyKey, *, domain: str) -> T:
    """Return the payload if `key` signed it for `domain`.

    Raises:
        SignatureInvalid: another key, another domain, or a changed payload.
    """
    if signed.key_id != key.key_id:
        raise SignatureInvalid(f"signed by {signed.key_id}, expected {key.key_id}")
    key.verify(signed_bytes(signed.payload, domain=domain), bytes.fromhex(signed.signature))
    return signed.payload


def signed_bytes(payload: WireModel, *, domain: str) -> bytes:
    """Return exactly the bytes that are signed: `fleetward/<domain>/v1`, a newline, the payload."""
    if not _DOMAIN.fullmatch(domain):
        raise SignatureInvalid(f"{domain!r} is no signature domain")
    return f"fleetward/{domain}/v1\n".encode() + canonical_bytes(payload)
