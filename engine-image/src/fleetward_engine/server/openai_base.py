"""What every request body's reader builds on."""

from __future__ import annotations

from typing import Annotated, TypeVar

from pydantic import BaseModel, ConfigDict, Field

Item = TypeVar("Item")
# One body can hold a million wrong items: an error for each takes seconds and gigabytes. For the
# same reason values that are only ever refused are `object`: they were JSON when they came.
Items = Annotated[list[Item], Field(fail_fast=True)]


class Body(BaseModel):
    """A strict reader: ``"5"`` is not 5, and NaN is not a number."""

    model_config = ConfigDict(extra="ignore", strict=True, allow_inf_nan=False, frozen=True)
