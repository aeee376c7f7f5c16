"""Ed25519 signing keys (RFC 8032) and X25519 sealing keys (RFC 7748, HKDF RFC 5869, AES-256-GCM).

Private keys travel as PKCS8 PEM (RFC 5958), public ones as base64 of their 32 raw bytes. Reading is
strict: each key has one spelling.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from typing import Final

from cryptography.exceptions import InvalidSignature, InvalidTag, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from fleetward_api.errors import KeyMalformed, SealInvalid, SignatureInvalid

KEY_BYTES: Final = 32
SIGNATURE_BYTES: Final = 64
SEAL_VERSION: Final = b"\x01"
_SEAL_INFO: Final = b"fleetward/seal/v1"
_NONCE_BYTES: Final = 12
_TAG_BYTES: Final = 16


def decode_base64(text: str, *, what: str, size: int | None = KEY_BYTES) -> bytes:
    """Decode standard base64 (RFC 4648, section 4), refusing every spelling but the canonical one.

    Raises:
        KeyMalformed: naming `what`.
    """
    try:
        raw = base64.b64decode(text.encode("ascii"), validate=True)
    except (UnicodeEncodeError, binascii.Error) as fault:
        raise KeyMalformed(f"{what} is not base64") from fault
    if base64.b64encode(raw).decode() != text:
        raise KeyMalformed(f"{what} is not canonical base64")
    if size is not None and len(raw) != size:
        raise KeyMalformed(f"{what} holds {len(raw)} bytes, must hold {size}")
    return raw


class VerifyKey:
    """The public half of an Ed25519 key pair."""

    __slots__ = ("_key", "_raw")

    def __init__(self, key: Ed25519PublicKey) -> None:
        self._key = key
        self._raw = key.public_bytes_raw()

    @classmethod
    def from_b64(cls, text: str) -> VerifyKey:
        """Read base64 of 32 raw bytes. Raises `KeyMalformed`."""
        return cls(Ed25519PublicKey.from_public_bytes(decode_base64(text, what="public key")))

    def to_b64(self) -> str:
        """Return base64 of the 32 raw bytes."""
        return base64.b64encode(self._raw).decode()

    def verify(self, data: bytes, signature: bytes) -> None:
        """Check `signature` (64 bytes) over `data`. Raises `SignatureInvalid`."""
        try:
            self._key.verify(signature, data)
        except InvalidSignature as fault:
            raise SignatureInvalid(f"the signature does not hold under {self.key_id}") from fault

    @property
    def public_key(self) -> Ed25519PublicKey:
        """The key as the cryptography package has it."""
        return self._key

    @property
    def key_id(self) -> str:
        """`ed25519:` and the first 32 hex digits of the SHA-256 of the raw key."""
        return "ed25519:" + hashlib.sha256(self._raw).hexdigest()[:32]

    @property
    def fingerprint(self) -> str:
        """`sha256:` and all 64 hex digits: what a person pins."""
        return "sha256:" + hashlib.sha256(self._raw).hexdigest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, VerifyKey) and other._raw == self._raw

    def __hash__(self) -> int:
        return hash(self._raw)

    def __repr__(self) -> str:
        return f"VerifyKey({self.key_id})"


class SigningKey:
    """An Ed25519 private key. Its repr shows the public key id only."""

    __slots__ = ("_key", "verify_key")

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self._key = key
        self.verify_key = VerifyKey(key.public_key())

    @classmethod
    def generate(cls) -> SigningKey:
        """Make a key from the system's randomness."""
        return cls(Ed25519PrivateKey.generate())

    @classmethod
    def from_pem(cls, pem: bytes) -> SigningKey:
        """Read PKCS8 PEM. Raises `KeyMalformed`."""
        key = _load_pem(pem)
        if not isinstance(key, Ed25519PrivateKey):
            raise KeyMalformed("the PEM holds no Ed25519 private key")
        return cls(key)

    def to_pem(self) -> bytes:
        """Return unencrypted PKCS8 PEM."""
        return self._key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())

    def sign(self, data: bytes) -> bytes:
        """Return the 64-byte signature over `data` (deterministic, RFC 8032)."""
        return self._key.sign(data)

    @property
    def private_key(self) -> Ed25519PrivateKey:
        """The key as the cryptography package has it."""
        return self._key

    def __repr__(self) -> str:
        return f"SigningKey({self.verify_key.key_id})"


class SealingPublicKey:
    """The public half of an X25519 key pair: anyone may seal to it."""

    __slots__ = ("_key", "_raw")

    def __init__(self, key: X25519PublicKey) -> None:
        self._key = key
        self._raw = key.public_bytes_raw()

    @classmethod
    def from_b64(cls, text: str) -> SealingPublicKey:
        """Read base64 of 32 raw bytes. Raises `KeyMalformed`."""
        return cls(X25519PublicKey.from_public_bytes(decode_base64(text, what="sealing key")))

    def to_b64(self) -> str:
        """Return base64 of the 32 raw bytes."""
        return base64.b64encode(self._raw).decode()

    def seal(self, message: bytes) -> bytes:
        """Encrypt to the holder of the private key: version ‖ one-time public key ‖ ciphertext.

        Raises:
            KeyMalformed: the key is of small order (RFC 7748, section 6.1), so it seals nothing.
        """
        once = X25519PrivateKey.generate()
        head = SEAL_VERSION + once.public_key().public_bytes_raw()
        try:
            shared = once.exchange(self._key)
        except ValueError as fault:
            raise KeyMalformed("the sealing key is of small order") from fault
        key, nonce = _seal_secrets(shared, salt=head + self._raw)
        return head + AESGCM(key).encrypt(nonce, message, head)


class SealingKey:
    """An X25519 private key that opens what was sealed to its public half."""

    __slots__ = ("_key", "public")

    def __init__(self, key: X25519PrivateKey) -> None:
        self._key = key
        self.public = SealingPublicKey(key.public_key())

    @classmethod
    def generate(cls) -> SealingKey:
        """Make a key from the system's randomness."""
        return cls(X25519PrivateKey.generate())

    @classmethod
    def from_pem(cls, pem: bytes) -> SealingKey:
        """Read PKCS8 PEM. Raises `KeyMalformed`."""
        key = _load_pem(pem)
        if not isinstance(key, X25519PrivateKey):
            raise KeyMalformed("the PEM holds no X25519 private key")
        return cls(key)

    def to_pem(self) -> bytes:
        """Return unencrypted PKCS8 PEM."""
        return self._key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())

    def open(self, sealed: bytes) -> bytes:
        """Decrypt a sealed message. Raises `SealInvalid`."""
        head, box = sealed[: 1 + KEY_BYTES], sealed[1 + KEY_BYTES :]
        if len(box) < _TAG_BYTES or not head.startswith(SEAL_VERSION):
            raise SealInvalid("the sealed message is cut short or of an unknown version")
        try:
            shared = self._key.exchange(X25519PublicKey.from_public_bytes(head[1:]))
            raw = self.public.to_b64()
            key, nonce = _seal_secrets(shared, salt=head + base64.b64decode(raw))
            return AESGCM(key).decrypt(nonce, box, head)
        except (ValueError, InvalidTag) as fault:
            raise SealInvalid("the sealed message was changed, or sealed to another key") from fault


def _seal_secrets(shared: bytes, *, salt: bytes) -> tuple[bytes, bytes]:
    # The one-time key makes both single-use, so the nonce may be derived beside the key (RFC 9180).
    size = KEY_BYTES + _NONCE_BYTES
    kdf = HKDF(algorithm=hashes.SHA256(), length=size, salt=salt, info=_SEAL_INFO)
    okm = kdf.derive(shared)
    return okm[:KEY_BYTES], okm[KEY_BYTES:]


def _load_pem(pem: bytes) -> object:
    try:
        return load_pem_private_key(pem, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as fault:
        raise KeyMalformed("not an unencrypted PKCS8 PEM private key") from fault
