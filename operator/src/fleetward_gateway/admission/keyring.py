"""API keys to tenants, over keyed hashes only.

Keys are hashed with HMAC-SHA256 under a secret that lives as long as the process. Nobody outside
can predict a digest, so the time a lookup takes tells nothing about how near a guess came, and
memory holds nothing that could be replayed.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from fleetward_api.api_key import MAX_KEY_CHARS, MIN_KEY_CHARS, usable_key
from fleetward_gateway.admission.facts import KeyRef, TenantFacts

_NOBODY: Final = bytes(32)

Refusal = Literal["unknown", "expired"]


@dataclass(frozen=True, slots=True)
class Grant:
    """What one API key opens."""

    tenant: TenantFacts
    key: KeyRef


@dataclass(frozen=True, slots=True)
class KeyIndex:
    """Every key that is worth something, by digest, and what is wrong with the others."""

    grants: Mapping[bytes, Grant]
    faults: tuple[str, ...]


class KeyHasher:
    """Digests of keys under one process-wide secret of 32 bytes."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    def digest(self, key: bytes) -> bytes:
        """The keyed digest of one API key, 32 bytes."""
        return hmac.digest(self._secret, key, "sha256")

    def digest_entry(self, value: bytes) -> bytes | None:
        """The digest of the key in a Secret's entry; None when it cannot be a key."""
        key = usable_key(value)
        return None if key is None else self.digest(key)


def build_key_index(
    tenants: Iterable[TenantFacts], secrets: Mapping[str, Mapping[str, bytes | None]]
) -> KeyIndex:
    """Join tenants with the digests of their keys.

    A key that stands in two tenants opens neither: nobody can say whose request it would be. So it
    is with one that stands twice in a tenant with different permission scopes.

    Args:
        tenants: every Tenant; those being deleted open nothing.
        secrets: by Secret name, by entry, the digest (None: unusable as a key).
    """
    grants: dict[bytes, Grant] = {}
    ambiguous: set[bytes] = set()
    faults: list[str] = []
    for tenant in tenants:
        if tenant.deleting:
            continue
        for key in tenant.keys:
            digest = secrets.get(key.secret, {}).get(key.field)
            if digest is None:
                faults.append(_absent(tenant, key, known=key.secret in secrets))
                continue
            other = grants.get(digest)
            if other is None or _outlasts(key, other.key):
                grants[digest] = Grant(tenant, key)
            if other is not None and other.tenant.name != tenant.name:
                ambiguous.add(digest)
                faults.append(
                    f"tenants {other.tenant.name} and {tenant.name} hold the same API key: "
                    "it opens neither; give each its own"
                )
            elif other is not None and other.key.permission_scopes != key.permission_scopes:
                ambiguous.add(digest)
                faults.append(
                    f"tenant {tenant.name}: the API keys {other.key.name} and {key.name} are the "
                    "same and have different permission scopes: it opens nothing; give each its own"
                )
    for digest in ambiguous:
        del grants[digest]
    return KeyIndex(grants, tuple(faults))


def find_grant(index: KeyIndex, digest: bytes, *, now: float) -> Grant | Refusal:
    """The grant of a key's digest, or why there is none.

    The reason is for metrics; callers must not learn it.
    """
    grant = index.grants.get(digest)
    if grant is None:
        # The same work as for a hit.
        hmac.compare_digest(_NOBODY, digest)
        return "unknown"
    expires_at = grant.key.expires_at
    # Written so that a clock that is not a number refuses.
    if expires_at is not None and not now < expires_at:
        return "expired"
    return grant


def _outlasts(key: KeyRef, other: KeyRef) -> bool:
    if other.expires_at is None:
        return False
    return key.expires_at is None or key.expires_at > other.expires_at


def _absent(tenant: TenantFacts, key: KeyRef, *, known: bool) -> str:
    where = f"Secret {key.secret}"
    if not known:
        return f"tenant {tenant.name}, key {key.name}: {where} is not in the key namespace"
    return (
        f"tenant {tenant.name}, key {key.name}: {where} has no usable entry {key.field!r} "
        f"({MIN_KEY_CHARS} to {MAX_KEY_CHARS} characters)"
    )
