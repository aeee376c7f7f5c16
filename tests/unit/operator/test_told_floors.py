"""Floors that are lost: what services' bundles and purges still tell of them."""

from __future__ import annotations

from typing import Any, cast

import pytest

from fleetward_api.floors import Floors
from fleetward_operator.edges.bootstrap import still_told
from fleetward_operator.edges.store import Store


class Objects:
    """The part of the store that is asked."""

    def __init__(self, *purges: dict[str, Any]) -> None:
        self._purges = {str(number): purge for number, purge in enumerate(purges)}

    def keys(self, kind: str) -> list[str]:
        return list(self._purges) if kind == "CachePurge" else []

    def get(self, _kind: str, key: str) -> dict[str, Any] | None:
        return self._purges.get(key)


def told(*purges: dict[str, Any]) -> Floors:
    return still_told(cast("Store", Objects(*purges))).floors


def test_purges_tell_the_floors_that_they_raised() -> None:
    raised = [
        {"spec": {"tenant": tenant}, "status": {"floor": floor}}
        for tenant, floor in (("alpha", 2), ("alpha", 5), ("beta", 1))
    ]
    assert told(*raised).tenants == {"alpha": 5, "beta": 1}


@pytest.mark.parametrize(
    "purge",
    [{}, {"spec": {"tenant": "alpha"}}, {"spec": {}, "status": {"floor": 3}}]
    + [{"spec": {"tenant": "alpha"}, "status": {"floor": odd}} for odd in (None, 0, -1, "3")],
)
def test_a_purge_that_raised_nothing_tells_nothing(purge: dict[str, Any]) -> None:
    assert told(purge) == Floors()
