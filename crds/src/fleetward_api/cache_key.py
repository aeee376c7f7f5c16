"""The one formula of cache identity: reuse happens only when every input is equal.

root = HMAC-SHA256(secret of the epoch, "fleetward/kv/v1" ‖ every fact that bounds reuse), each fact
length-prefixed (RFC 2104, FIPS 198-1); block[i] = SHA-256(block[i-1] ‖ token ids of block i).

A public prefix has a root of its own, without a tenant: public root = HMAC-SHA256(secret,
"fleetward/kv/public/v1" ‖ the model's facts). The first private block after it chains from both:
fold = SHA-256("fleetward/kv/fold/v1" ‖ key of the last public block ‖ root), so that what goes on
from a public prefix is as private as what begins without one.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from fleetward_api.canonical import length_prefixed
from fleetward_api.errors import CacheKeyInvalid

SECRET_BYTES: Final = 32
KEY_BYTES: Final = 32
_LABEL: Final = b"fleetward/kv/v1"
_PUBLIC_LABEL: Final = b"fleetward/kv/public/v1"
_FOLD_LABEL: Final = b"fleetward/kv/fold/v1"
_TAGS_LABEL: Final = b"fleetward/document-tags/v1"


@dataclass(frozen=True, slots=True)
class ModelFingerprint:
    """What makes KV of one model unusable by another.

    Attributes:
        model_digest, adapter_digest, tokenizer_digest: `sha256:…`; `""` where there is none.
        kv_layout: KV dtype, block size, layout and rope/window configuration, as one text.
    """

    model_digest: str
    adapter_digest: str
    tokenizer_digest: str
    kv_layout: str


@dataclass(frozen=True, slots=True)
class RootInputs:
    """The authenticated facts of a request that bound what it may reuse.

    Attributes:
        tenant: name of the tenant.
        tenant_uid: uid of the Tenant: a later one of the same name inherits nothing; `""` for none.
        isolation_subject: user or session digest where the policy isolates by it, else `""`.
        permission_scope_digest: keyed digest of the permission scopes, or `""`.
        document_tags_digest: `document_tags_digest` of the request's tags.
        floors: of tenant, user, permission scope and document tags (`Floors.of_request`).
        model: the model's fingerprint.
    """

    tenant: str
    tenant_uid: str
    isolation_subject: str
    permission_scope_digest: str
    document_tags_digest: str
    floors: tuple[int, int, int, int]
    model: ModelFingerprint


def cache_root(secret: bytes, inputs: RootInputs) -> bytes:
    """Return the 32-byte root of every block key that a request may share.

    Raises:
        CacheKeyInvalid: the epoch secret is not 32 bytes, a floor is no 64-bit number, or a text
            is not valid Unicode.
    """
    texts = (
        inputs.tenant,
        inputs.tenant_uid,
        inputs.isolation_subject,
        inputs.permission_scope_digest,
        inputs.document_tags_digest,
    )
    try:
        floors = struct.pack(">4Q", *inputs.floors)
        facts = (*_raw(texts), floors, *_raw(_facts(inputs.model)))
    except (struct.error, UnicodeEncodeError) as fault:
        raise CacheKeyInvalid(f"no cache root can be made of these inputs: {fault}") from fault
    return _root(secret, _LABEL, facts)


def public_root(secret: bytes, model: ModelFingerprint) -> bytes:
    """Return the 32-byte root of the blocks of declared public prefixes, which belong to no tenant.

    Raises:
        CacheKeyInvalid: the epoch secret is not 32 bytes, or a text is not valid Unicode.
    """
    try:
        facts = _raw(_facts(model))
    except UnicodeEncodeError as fault:
        raise CacheKeyInvalid(f"no cache root can be made of these inputs: {fault}") from fault
    return _root(secret, _PUBLIC_LABEL, facts)


def fold_root(public_parent: bytes, root: bytes) -> bytes:
    """Return the 32-byte parent of the first private block after a public prefix.

    Args:
        public_parent: key of the last public block.
        root: `cache_root` of the request.

    Raises:
        CacheKeyInvalid: one of the two is not 32 bytes.
    """
    if len(public_parent) != KEY_BYTES or len(root) != KEY_BYTES:
        raise CacheKeyInvalid("a public parent and a root hold 32 bytes each")
    return hashlib.sha256(length_prefixed(_FOLD_LABEL, public_parent, root)).digest()


def block_key(parent: bytes, token_ids: Sequence[int]) -> bytes:
    """Return the 32-byte key of a block: SHA-256(parent ‖ u32 count ‖ token ids), little-endian.

    Args:
        parent: 32 bytes: the root for the first block, else the key of the block before.
        token_ids: the block's tokens, each 0 ≤ id < 2^32.

    Raises:
        CacheKeyInvalid: the parent is not 32 bytes, or a token id is out of range.
    """
    count = len(token_ids)
    if len(parent) != KEY_BYTES:
        raise CacheKeyInvalid(f"a parent key holds {len(parent)} bytes, must hold 32")
    try:
        tokens = _packer(count).pack(count, *token_ids)
    except struct.error as fault:
        raise CacheKeyInvalid(f"a token id is no 32-bit number: {fault}") from fault
    return hashlib.sha256(parent + tokens).digest()


def document_tags_digest(tags: Iterable[str]) -> str:
    """Return the digest of a set of document-tag digests; `""` for none. Order is ignored."""
    names = sorted(set(tags))
    if not names:
        return ""
    return hashlib.sha256(length_prefixed(_TAGS_LABEL, *_raw(names))).hexdigest()


def _root(secret: bytes, label: bytes, facts: Iterable[bytes]) -> bytes:
    if len(secret) != SECRET_BYTES:
        raise CacheKeyInvalid(f"the epoch secret holds {len(secret)} bytes, must hold 32")
    return hmac.digest(secret, length_prefixed(label, *facts), "sha256")


def _facts(model: ModelFingerprint) -> tuple[str, ...]:
    return (model.model_digest, model.adapter_digest, model.tokenizer_digest, model.kv_layout)


@lru_cache(maxsize=128)
def _packer(count: int) -> struct.Struct:
    return struct.Struct(f"<I{count}I")


def _raw(texts: Iterable[str]) -> list[bytes]:
    return [text.encode() for text in texts]
