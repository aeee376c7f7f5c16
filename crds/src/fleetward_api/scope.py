"""What a purge names: a tenant, or one user, permission scope or document tag inside it.

Inside a tenant, names are keyed digests made here, never the names themselves: what engines keep,
receipts and evidence hold no user name.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from fleetward_api.canonical import Name, OptionalName, WireModel, length_prefixed
from fleetward_api.errors import KeyMalformed, ScopeInvalid

ScopeKind = Literal["tenant", "user", "permissionScope", "documentTag"]
MAX_NAME = 253
MIN_KEY_BYTES = 32


class ScopeWire(WireModel):
    """A scope as it crosses processes; read it with `Scope.from_wire`."""

    tenant: Name
    user: OptionalName = ""
    permission_scope: OptionalName = ""
    document_tag: OptionalName = ""


@dataclass(frozen=True, slots=True)
class Scope:
    """A set of requests: the tenant's, or those of one user, permission scope or document tag.

    Attributes:
        tenant: the `Tenant` object's name; holds no `/`.
        user: `user_digest` of the user, or `""`.
        permission_scope: `permission_scope_digest` of the scopes, or `""`.
        document_tag: `document_tag_digest` of the tag, or `""`.

    Raises:
        ScopeInvalid: no tenant, a name too long, or more than one of the finer three.
    """

    tenant: str
    user: str = ""
    permission_scope: str = ""
    document_tag: str = ""

    def __post_init__(self) -> None:
        finer = (self.user, self.permission_scope, self.document_tag)
        if not self.tenant or "/" in self.tenant:
            raise ScopeInvalid("a scope needs a tenant, whose name holds no '/'")
        if sum(map(bool, finer)) > 1:
            raise ScopeInvalid("a scope names one of user, permission scope, document tag at most")
        if max(map(len, (self.tenant, *finer))) > MAX_NAME:
            raise ScopeInvalid(f"a name in a scope is longer than {MAX_NAME} characters")

    @property
    def kind(self) -> ScopeKind:
        """What the scope is cut by."""
        if self.user:
            return "user"
        if self.permission_scope:
            return "permissionScope"
        return "documentTag" if self.document_tag else "tenant"

    @property
    def value(self) -> str:
        """The finer name; the tenant's for a whole tenant."""
        return self.user or self.permission_scope or self.document_tag or self.tenant

    def to_wire(self) -> ScopeWire:
        """Return the wire model."""
        return ScopeWire(
            tenant=self.tenant,
            user=self.user,
            permission_scope=self.permission_scope,
            document_tag=self.document_tag,
        )

    @classmethod
    def from_wire(cls, wire: ScopeWire) -> Scope:
        """Read the wire model. Raises `ScopeInvalid`."""
        return cls(wire.tenant, wire.user, wire.permission_scope, wire.document_tag)


def scope_digest(key: bytes, scope: Scope) -> str:
    """Return the keyed digest by which receipts and evidence name `scope` (64 hex digits).

    `key` is the release's `digest.key`: without it nobody can test a guess of a user's name.
    """
    return _keyed(key, b"fleetward/scope/v1", scope.kind, scope.tenant, scope.value)


def user_digest(key: bytes, tenant: str, user: str) -> str:
    """Return the keyed digest of one user of a tenant; `""` for no user."""
    return _keyed(key, b"fleetward/user/v1", tenant, user) if user else ""


def session_digest(key: bytes, tenant: str, user: str, session: str) -> str:
    """Return the keyed digest of one session of a user; `""` for no session.

    Sessions that two users name alike are two sessions; `user` is their name, `""` where unknown.
    """
    return _keyed(key, b"fleetward/session/v1", tenant, user, session) if session else ""


def permission_scope_digest(key: bytes, tenant: str, scopes: Iterable[str]) -> str:
    """Return the keyed digest of a set of permission scopes; `""` for none. Order is ignored."""
    names = sorted(set(scopes))
    return _keyed(key, b"fleetward/permission-scope/v1", tenant, *names) if names else ""


def document_tag_digest(key: bytes, tenant: str, tag: str) -> str:
    """Return the keyed digest of one document tag of a tenant; `""` for none."""
    return _keyed(key, b"fleetward/document-tag/v1", tenant, tag) if tag else ""


def _keyed(key: bytes, label: bytes, *parts: str) -> str:
    if len(key) < MIN_KEY_BYTES:
        raise KeyMalformed(f"digest.key holds {len(key)} bytes, must hold {MIN_KEY_BYTES}")
    # surrogatepass: where a reader lets a lone surrogate by, it is still one name.
    raw = (part.encode("utf-8", "surrogatepass") for part in parts)
    return hmac.digest(key, length_prefixed(label, *raw), "sha256").hex()
