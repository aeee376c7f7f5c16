"""Imported by no_removal.pth at start: from here on a purge finds nothing to remove."""

from __future__ import annotations

from fleetward_api.scope import Scope
from fleetward_engine.cache_entry import Entry
from fleetward_engine.prefix_index import PrefixIndex


def _remove_nothing(_self: PrefixIndex, _scope: Scope, _floor: int) -> list[Entry]:
    return []


PrefixIndex.remove_below = _remove_nothing  # type: ignore[assignment, method-assign]
