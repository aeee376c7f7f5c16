"""Kubernetes object metadata, as far as we read it, and the base of a whole object."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel


class ObjectMeta(BaseModel):
    """Metadata of an object; the API server has validated it, so other fields pass unread."""

    model_config = ConfigDict(
        frozen=True,
        extra="ignore",
        alias_generator=to_camel,
        validate_by_alias=True,
        validate_by_name=True,
    )

    name: str = ""
    namespace: str = ""
    uid: str = ""
    generation: int = 0
    resource_version: str = ""
    creation_timestamp: str = ""
    deletion_timestamp: str | None = None
    labels: dict[str, str] = Field(default={})
    annotations: dict[str, str] = Field(default={})
    finalizers: tuple[str, ...] = ()

    @property
    def deleting(self) -> bool:
        """Whether the object waits for its finalizers."""
        return self.deletion_timestamp is not None

    def to_manifest(self) -> dict[str, Any]:
        """The metadata as it stands in a manifest, empty fields left out."""
        return self.model_dump(mode="json", by_alias=True, exclude_defaults=True)
