"""What is wrong with a manifest, fault by fault."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from pydantic import ValidationError

from fleetward_api.errors import FleetwardError


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault: where it is, and what to do about it."""

    path: str
    message: str

    def __str__(self) -> str:
        # The messages of rules begin with the path themselves.
        named = not self.path or self.message.startswith(("spec.", "metadata."))
        return self.message if named else f"{self.path}: {self.message}"


class InvalidResource(FleetwardError):
    """A manifest that the API server would refuse; trying again does not help.

    Attributes:
        faults: every fault found, in the order of the fields.
    """

    def __init__(self, kind: str, faults: tuple[Fault, ...]) -> None:
        words = "; ".join(str(fault) for fault in faults)
        super().__init__(f"{kind} is not valid: {words}", reason="InvalidSpec", retryable=False)
        self.faults = faults

    @classmethod
    def from_validation(cls, kind: str, error: ValidationError) -> Self:
        """One fault per error that pydantic found."""
        return cls(
            kind,
            tuple(
                Fault(".".join(str(part) for part in entry["loc"]), entry["msg"])
                for entry in error.errors(include_url=False, include_input=False)
            ),
        )
