"""What a policy lets into host memory: how much, whose classes, and whether it lies there open."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class HostRules:
    """Rules of the tier; nothing enters under the default.

    `size` in bytes bounds it further than the memory it was given at start. `classes` are the
    retention classes whose blocks may come here. Without `encrypt` the bytes lie open.
    """

    size: int = 0
    classes: frozenset[str] = frozenset()
    encrypt: bool = True
