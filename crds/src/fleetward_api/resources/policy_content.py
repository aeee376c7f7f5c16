"""Parts of a CachePolicy that do nothing today except for their plainest value.

They stand in the schema so that a manifest which asks for more is refused with a sentence instead
of being pruned and silently governed less strictly.
"""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from fleetward_api.resources.base import ApiModel
from fleetward_api.resources.rules import only
from fleetward_api.resources.scalars import LabelName, MemoryAmount

Content: TypeAlias = Literal["None", "Full"]


class SharedPrefix(ApiModel):
    """A public prefix that the operator of the fleet declares."""

    name: LabelName
    """Name of the prefix."""
    text: Annotated[str, Field(min_length=1, max_length=32_768)]
    """The public text at the start of a prompt."""


class HostTier(ApiModel):
    """Host memory as a second tier."""

    size: MemoryAmount
    """Size, in bytes as a quantity."""
    encrypt: bool = True
    """Whether blocks are encrypted there, with a key per tenant."""


class TiersSpec(ApiModel):
    """Where blocks go beyond the device."""

    host: HostTier | None = None
    """Host memory."""


class TelemetrySpec(ApiModel):
    """What of the content may enter traces and metrics."""

    prompts: Content = "None"
    """Prompts. None today."""
    outputs: Content = "None"
    """Answers. None today."""

    rules = (
        only("prompts", "None", "spec.telemetry.prompts", "set it to None"),
        only("outputs", "None", "spec.telemetry.outputs", "set it to None"),
    )


class LoggingSpec(ApiModel):
    """What of the content may enter logs."""

    prompts: Content = "None"
    """Prompts. None today."""
    outputs: Content = "None"
    """Answers. None today."""

    rules = (
        only("prompts", "None", "spec.logging.prompts", "set it to None"),
        only("outputs", "None", "spec.logging.outputs", "set it to None"),
    )
