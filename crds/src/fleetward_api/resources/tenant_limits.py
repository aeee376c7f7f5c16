"""Parts of a Tenant that are not available yet, in the shape they will have.

They stand in the schema so that a manifest which asks for a limit is refused with a sentence
instead of being pruned and silently served without it.
"""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from fleetward_api.resources.base import ApiModel
from fleetward_api.resources.lists import DistinctValues
from fleetward_api.resources.scalars import WHOLE, ShortText

_Url: TypeAlias = Annotated[str, Field(max_length=512, pattern=r"^https://[^ ]+$")]
_Names: TypeAlias = Annotated[tuple[ShortText, ...], Field(max_length=32), DistinctValues()]
_Limit: TypeAlias = Annotated[int, Field(ge=1, le=1_000_000_000), WHOLE]


class JwtClaims(ApiModel):
    """Which claims of a token name the caller."""

    user: ShortText | None = None
    """Claim that names the user."""
    scopes: ShortText | None = None
    """Claim that lists the permission scopes."""


class JwtSpec(ApiModel):
    """Tokens of an identity provider."""

    issuer: _Url
    """Issuer that a token must name."""
    audience: ShortText
    """Audience that a token must name."""
    jwks: _Url
    """Where the issuer's public keys lie."""
    claims: JwtClaims | None = None
    """Which claims name the caller."""


class TenantQuotas(ApiModel):
    """Limits of one tenant."""

    requests_per_minute: _Limit | None = None
    """Requests in a minute."""
    tokens_per_minute: _Limit | None = None
    """Tokens, prompt and answer together, in a minute."""
    concurrent_requests: _Limit | None = None
    """Requests at one time."""
    max_context_tokens: _Limit | None = None
    """Longest prompt, in tokens."""
    max_output_tokens: _Limit | None = None
    """Longest answer, in tokens."""


class PrivacySpec(ApiModel):
    """What is masked before the engine sees it."""

    mask: _Names = ()
    """Kinds of data to look for."""
    on_match: Literal["Mask", "Reject"] | None = None
    """What happens to a request that holds such data."""


class PlacementSpec(ApiModel):
    """Where requests may run."""

    regions: _Names = ()
    """Regions, by name."""
    accelerators: _Names = ()
    """Accelerators, by name."""
