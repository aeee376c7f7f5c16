"""The identity token: what the gateway vouches for, once, to one service.

A compact JWS (RFC 7515) with EdDSA (RFC 8037). The header is fixed to the byte and the payload is
canonical JSON, so a token has one spelling and no algorithm to choose.
"""

from __future__ import annotations

import base64
import json
from typing import Annotated, Any, Final, Literal

from jwt import InvalidTokenError
from jwt.api_jws import PyJWS
from pydantic import (
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    ValidationError,
    field_validator,
    model_serializer,
)

from fleetward_api.canonical import (
    Count,
    Name,
    OptionalName,
    WireModel,
    canonical_bytes,
    first_error,
    parse_canonical,
)
from fleetward_api.errors import CanonicalError, IdentityError
from fleetward_api.keys import SIGNATURE_BYTES, SigningKey, VerifyKey
from fleetward_api.replay import ReplayGuard

__all__ = [
    "IDENTITY_HEADER",
    "IdentityClaims",
    "IdentityError",
    "IdentityFloors",
    "ReplayGuard",
    "mint_identity",
    "verify_identity",
]

IDENTITY_HEADER: Final = "Fleetward-Identity"
TOKEN_TYPE: Final = "fleetward-identity+jwt"  # noqa: S105  # a media type
ALGORITHM: Final = "EdDSA"
VERSION: Final = 1
LIFETIME_S: Final = 60
LEEWAY_S: Final = 900.0
MAX_LIFETIME_S: Final = 3600
MAX_TOKEN_CHARS: Final = 32_768
MAX_TAGS: Final = 64
MAX_PERMISSION_SCOPES: Final = 32
_LATER_CLAIMS: Final = {"session": "ses", "permission_scopes": "scs"}
"""Claims that were added after the first release, and how a token spells them."""
_JWS = PyJWS(algorithms=[ALGORITHM])


class IdentityFloors(WireModel):
    """The floors of the request's scopes, as the gateway knew them (`Floors.of_request`)."""

    tenant: Count = 0
    user: Count = 0
    permission_scope: Count = 0
    document_tag: Count = 0

    def as_tuple(self) -> tuple[int, int, int, int]:
        """Return them in the order that the cache root takes them."""
        return (self.tenant, self.user, self.permission_scope, self.document_tag)


class IdentityClaims(WireModel):
    """Authenticated facts of one request.

    A later claim that is empty is left out of the token, so that an engine from before it goes on
    reading tokens; one that is not is refused there, as it would narrow what may be shared.

    Attributes:
        service_uid: uid of the `InferenceService` that the token is for.
        tenant: name of the tenant.
        tenant_uid: uid of the Tenant, or `""`.
        user: keyed digest of the user, or `""`. session: of one of the user's sessions, or `""`.
        permission_scope: keyed digest of all permission scopes together, or `""`.
        permission_scopes: those of each, where there are several; kept sorted and unique.
        document_tags: keyed digests of the document tags; kept sorted and unique.
        floors: what the gateway knew of the floors when it authorised the request.
        priority: larger is served earlier. weight: share among tenants, at least 1.
        retention_class: name of a class of the policy, or `""` for the policy's default.
        deadline_ms: what is left of the request's time when the token was made; 0 for none.
        request_id: `jti`, accepted once.
        issued_at, expires_at: seconds since the epoch.
        version: of this format.
    """

    model_config = ConfigDict(alias_generator=None)

    service_uid: Annotated[Name, Field(alias="svc")]
    tenant: Annotated[Name, Field(alias="ten")]
    tenant_uid: Annotated[OptionalName, Field(alias="tid")] = ""
    user: Annotated[OptionalName, Field(alias="usr")] = ""
    session: Annotated[OptionalName, Field(alias="ses")] = ""
    permission_scope: Annotated[OptionalName, Field(alias="scp")] = ""
    permission_scopes: Annotated[
        tuple[Name, ...], Field(alias="scs", max_length=MAX_PERMISSION_SCOPES)
    ] = ()
    document_tags: Annotated[tuple[Name, ...], Field(alias="tag", max_length=MAX_TAGS)] = ()
    floors: Annotated[IdentityFloors, Field(alias="flr")] = IdentityFloors()
    priority: Annotated[int, Field(alias="pri", ge=-(2**31), lt=2**31, strict=True)] = 0
    weight: Annotated[int, Field(alias="wgt", ge=1, lt=2**31, strict=True)] = 1
    retention_class: Annotated[OptionalName, Field(alias="rcl")] = ""
    deadline_ms: Annotated[Count, Field(alias="ddl")] = 0
    request_id: Annotated[Name, Field(alias="jti")]
    issued_at: Annotated[Count, Field(alias="iat")]
    expires_at: Annotated[Count, Field(alias="exp")]
    version: Annotated[Literal[1], Field(alias="ver")] = VERSION

    @field_validator("permission_scopes", "document_tags")
    @classmethod
    def _as_a_set(cls, digests: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(sorted(set(digests)))

    @model_serializer(mode="wrap")
    def _leave_out_what_says_nothing(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        written: dict[str, Any] = write(self)
        for name, spelled in _LATER_CLAIMS.items():
            if not getattr(self, name):
                written.pop(name, None)
                written.pop(spelled, None)
        return written

    @property
    def each_permission_scope(self) -> tuple[str, ...]:
        """The keyed digest of each permission scope: of one alone, that of all together."""
        if self.permission_scopes or not self.permission_scope:
            return self.permission_scopes
        return (self.permission_scope,)


def mint_identity(claims: IdentityClaims, key: SigningKey) -> str:
    """Return the token for one request."""
    return _JWS.encode(
        canonical_bytes(claims),
        key.private_key,
        algorithm=ALGORITHM,
        headers={"typ": TOKEN_TYPE, "kid": key.verify_key.key_id},
        sort_headers=True,
    )


def verify_identity(
    token: str | None, *keys: VerifyKey, service_uid: str, now: float, leeway: float = LEEWAY_S
) -> IdentityClaims:
    """Return the claims of a token for this service that is genuine and still in time.

    The caller then asks its `ReplayGuard` whether `request_id` is new.

    Args:
        token: value of the `Fleetward-Identity` header, None when absent.
        keys: the gateways' public keys; the token's `kid` names the one that must hold.
        service_uid: uid of the service this engine belongs to.
        now: seconds since the epoch.
        leeway: seconds by which the clocks of gateway and engine may differ.

    Raises:
        IdentityError: code `missing`, `malformed`, `forged`, `unknown_version`, `wrong_service`,
            `expired` or `not_yet_valid`.
    """
    if not token:
        raise IdentityError("missing", f"the request carries no {IDENTITY_HEADER} header")
    payload = _authentic_payload(token, keys)
    claims = _claims(payload)
    if claims.service_uid != service_uid:
        raise IdentityError("wrong_service", "the identity token is for another service")
    _check_time(claims, now=now, leeway=leeway)
    return claims


def _authentic_payload(token: str, keys: tuple[VerifyKey, ...]) -> bytes:
    segments = token.split(".")
    if len(token) > MAX_TOKEN_CHARS or len(segments) != 3 or not all(map(_is_base64url, segments)):  # noqa: PLR2004
        raise IdentityError("malformed", "the identity token is not a compact JWS")
    key = next((key for key in keys if segments[0] == _header_segment(key)), None)
    if key is None or len(_decoded(segments[2])) != SIGNATURE_BYTES:
        raise IdentityError("forged", "the identity token is not signed by this fleet's gateway")
    try:
        return bytes(_JWS.decode(token, key.public_key, algorithms=[ALGORITHM]))
    except InvalidTokenError as fault:
        raise IdentityError("forged", "the identity token's signature does not hold") from fault


def _claims(payload: bytes) -> IdentityClaims:
    try:
        value = parse_canonical(payload)
    except CanonicalError as fault:
        raise IdentityError("malformed", f"the identity token's claims: {fault}") from fault
    version = value.get("ver") if isinstance(value, dict) else None
    if type(version) is not int or version != VERSION:
        raise IdentityError("unknown_version", f"identity version {version!r}; spoken: {VERSION}")
    try:
        claims = IdentityClaims.model_validate_json(payload, by_name=False, by_alias=True)
    except ValidationError as fault:
        raise IdentityError("malformed", f"the token's claims: {first_error(fault)}") from fault
    if canonical_bytes(claims) != payload:
        raise IdentityError("malformed", "the identity token's claims have another spelling")
    return claims


def _check_time(claims: IdentityClaims, *, now: float, leeway: float) -> None:
    # Written so that a NaN clock refuses.
    if not 0 <= claims.expires_at - claims.issued_at <= MAX_LIFETIME_S:
        raise IdentityError("malformed", f"the token lives longer than {MAX_LIFETIME_S} s")
    if not now <= claims.expires_at + leeway:
        raise IdentityError("expired", "the identity token has expired")
    if not claims.issued_at <= now + leeway:
        raise IdentityError("not_yet_valid", "the identity token is from the future")


def _header_segment(key: VerifyKey) -> str:
    header = {"alg": ALGORITHM, "kid": key.key_id, "typ": TOKEN_TYPE}
    raw = json.dumps(header, separators=(",", ":"), sort_keys=True).encode()
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def _is_base64url(segment: str) -> bool:
    try:
        raw = _decoded(segment)
    except ValueError:
        return False
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode() == segment


def _decoded(segment: str) -> bytes:
    padded = segment.encode("ascii") + b"=" * (-len(segment) % 4)
    return base64.b64decode(padded, altchars=b"-_", validate=True)
