"""Parts of a CachePolicy about content: what is public, where it may go, what may be told of it.

Those that do nothing today except for their plainest value stand in the schema so that a manifest
which asks for more is refused with a sentence instead of being pruned and silently governed less
strictly.
"""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from fleetward_api.resources.base import ApiModel
from fleetward_api.resources.rules import only
from fleetward_api.resources.scalars import LabelName, MemoryAmount

Content: TypeAlias = Literal["None", "Full"]


class SharedPrefix(ApiModel):
    """A public text at the start of prompts. Its cache belongs to no tenant: all of them use it."""

    name: LabelName
    """Name of the prefix."""
    text: Annotated[
        str,
        Field(
            min_length=1,
            max_length=32_768,
            pattern=r"^[^\x00-\x08\x0b\x0c\x0e-\x1f\x7f]*$",
        ),
    ]
    """The whole system message of a conversation, or the beginning of a plain prompt, exactly as
    clients send it. Whoever may read the policy reads it, and whoever may call a service that
    follows it can find out that it is declared: put nothing into it that is not public. No control
    characters but tabs and ends of lines."""


MAX_SHARED_BYTES = 131_072
"""UTF-8 bytes of all public prefixes of a policy: they travel in each bundle."""


def shared_bytes(prefixes: tuple[SharedPrefix, ...]) -> int:
    """UTF-8 bytes of the texts together."""
    return sum(len(prefix.text.encode()) for prefix in prefixes)


class HostTier(ApiModel):
    """Host memory as a second tier: blocks that leave the device for want of room wait here."""

    size: MemoryAmount
    """Most of each engine's host memory that blocks may take, in bytes as a quantity. A service
    gives it with spec.engine.hostKvMemory, and the smaller of the two counts. Live: what is above
    a smaller size is evicted at once."""
    encrypt: bool = True
    """Whether blocks are encrypted there, with keys per tenant that never leave the engine. Live: a
    change drops what is there."""


class TiersSpec(ApiModel):
    """Where blocks go that have to leave the device to make room."""

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
