"""The base of whole objects: apiVersion, kind, metadata, and the rule on an object's name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, Literal, Self

from pydantic import Field, ValidationError, field_validator

from fleetward_api.resources.base import ApiModel
from fleetward_api.resources.errors import Fault, InvalidResource
from fleetward_api.resources.metadata import ObjectMeta
from fleetward_api.resources.rules import Rule

GROUP: Final = "fleetward.io"
VERSION: Final = "v1alpha1"


class Resource(ApiModel):
    """A whole object of our group."""

    api_version: Literal["fleetward.io/v1alpha1"] = "fleetward.io/v1alpha1"
    metadata: ObjectMeta = Field(default=ObjectMeta())
    spec: ApiModel

    @field_validator("metadata", mode="before")
    @classmethod
    def _read_metadata(cls, value: object) -> object:
        # Metadata is the API server's business: it is read leniently, whatever its types.
        return ObjectMeta.model_validate(value) if isinstance(value, Mapping) else value

    @classmethod
    def parse(cls, manifest: Mapping[str, Any]) -> Self:
        """Reads an object as strictly as the API server with strict field validation.

        Raises:
            InvalidResource: with one fault per field or rule, each naming its path.
        """
        try:
            return cls.model_validate(manifest, by_alias=True, by_name=False)
        except ValidationError as error:
            raise InvalidResource.from_validation(cls.__name__, error) from None

    def check_update(self, old: Self) -> None:
        """Holds the rules on changes: this is the object as it shall be, `old` as it is.

        Raises:
            InvalidResource: a rule on changes is broken.
        """
        faults = tuple(
            Fault("spec", rule.message)
            for rule in self.spec.transition_rules
            if not rule.holds(self.spec, old.spec)
        )
        if faults:
            raise InvalidResource(type(self).__name__, faults)


def name_rule(longest: int) -> Rule:
    """The object's name must be a DNS label of bounded length: children and labels carry it."""
    pattern = r"^[a-z]([-a-z0-9]*[a-z0-9])?$"
    compiled = re.compile(pattern[:-1] + r"\Z")
    return Rule(
        cel=f"size(self.metadata.name) <= {longest} && self.metadata.name.matches('{pattern}')",
        message=(
            f"metadata.name must be at most {longest} lower-case letters, digits and dashes, "
            "start with a letter and end with a letter or digit"
        ),
        holds=lambda self: (
            not self.metadata.name
            or (
                len(self.metadata.name) <= longest
                and compiled.match(self.metadata.name) is not None
            )
        ),
    )
