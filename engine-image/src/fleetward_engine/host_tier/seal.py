"""Sealed blocks: AES-256-GCM under keys that are made in this process and never leave it.

A key lives as long as something is sealed with it; then it is destroyed, and with it whatever may
be left of the ciphertext. Where a policy wants no encryption, the bytes lie open and carry the
same tag without it (GMAC): what moved is checked either way.

NIST SP 800-38D: a nonce is used once per key. It is a counter here, and a key seals far fewer than
the 2**32 blocks that a random one would be limited to.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from fleetward_api.canonical import length_prefixed
from fleetward_engine.cache_entry import Entry

Bytes: TypeAlias = npt.NDArray[np.uint8]

TAG_BYTES: Final = 16
_KEY_BYTES: Final = 32
_NONCE_BYTES: Final = 12


class SealDamaged(Exception):
    """The bytes are not those that were sealed, or not for this entry."""


class SealKey:
    """One tenant's key for a time. `uses` counts what is sealed with it now."""

    def __init__(self) -> None:
        # Drawn into memory of ours and wiped there; the cipher's own copy is wiped when it goes.
        key = bytearray(os.urandom(_KEY_BYTES))
        self._cipher = AESGCM(key)
        key[:] = bytes(_KEY_BYTES)
        self._sealed = 0
        self.uses = 0

    def seal(self, plain: Bytes, facts: bytes, into: Bytes, *, encrypt: bool) -> bytes:
        """Write `plain` and its tag; returns the nonce. into: [len(plain) + 16], plain: [n]."""
        nonce = self._sealed.to_bytes(_NONCE_BYTES, "big")
        self._sealed += 1
        if encrypt:
            self._cipher.encrypt_into(nonce, plain.data, facts, into.data)
        else:
            into[: plain.size] = plain
            tag = self._cipher.encrypt(nonce, b"", facts + plain.tobytes())
            into[plain.size :] = np.frombuffer(tag, dtype=np.uint8)
        return nonce

    def unseal(
        self, sealed: Bytes, nonce: bytes, facts: bytes, into: Bytes, *, encrypt: bool
    ) -> None:
        """Write the plain bytes into `into`, [len(sealed) - 16].

        Raises:
            SealDamaged: they are not what was sealed with this nonce and these facts; what is in
                `into` then means nothing.
        """
        try:
            if encrypt:
                self._cipher.decrypt_into(nonce, sealed.data, facts, into.data)
            else:
                into[:] = sealed[: into.size]
                tag = sealed[into.size :].tobytes()
                self._cipher.decrypt(nonce, tag, facts + into.tobytes())
        except InvalidTag as fault:
            raise SealDamaged from fault


@dataclass(frozen=True, slots=True)
class Seal:
    """What opens one slot: nothing of it is in the slot itself.

    `generation` counts what was ever sealed here, so that bytes of an earlier stay never pass.
    """

    key: SealKey
    nonce: bytes
    generation: int
    encrypted: bool


@dataclass(slots=True)
class KeyRing:
    """The key that each tenant's next block is sealed with; older ones die with their blocks."""

    _current: dict[str, SealKey] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self._current)

    def take(self, tenant: str) -> SealKey:
        """The tenant's key, made where there is none, for one more use."""
        key = self._current.get(tenant)
        if key is None:
            key = self._current[tenant] = SealKey()
        key.uses += 1
        return key

    def give_back(self, tenant: str, key: SealKey) -> None:
        """One use fewer; a key without any is forgotten, here and so everywhere."""
        key.uses -= 1
        if key.uses == 0 and self._current.get(tenant) is key:
            del self._current[tenant]

    def retire(self, tenant: str) -> None:
        """Seal with a new key from here on: the old one dies with the last block it sealed."""
        self._current.pop(tenant, None)


def facts_of(entry: Entry, generation: int) -> bytes:
    """What a seal binds its bytes to: the block key, the stay, and whose it is."""
    # The owner's words are for this process alone: they are made and compared from one object.
    return length_prefixed(entry.key, generation.to_bytes(8, "big"), repr(entry.owner).encode())
