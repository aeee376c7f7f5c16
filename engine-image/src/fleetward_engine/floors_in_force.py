"""The floors in force here: requests that were authorised below one use and leave no cache."""

from __future__ import annotations

from collections.abc import Iterator

from fleetward_api.owner import Owner
from fleetward_api.scope import Scope


class FloorsInForce:
    """Each fenced scope's floor, which only rises."""

    def __init__(self) -> None:
        self._floors: dict[Scope, int] = {}

    def of(self, scope: Scope) -> int:
        """The scope's floor; 0 where none was raised."""
        return self._floors.get(scope, 0)

    def shut_out(self, owner: Owner) -> bool:
        """Whether a request was authorised below the floor of any scope that it belongs to."""
        return any(floor < self.of(scope) for scope, floor in owner.standings)

    def raise_to(self, scope: Scope, floor: int) -> None:
        """Shut out what belongs to the scope and was authorised below the floor."""
        floor = self._floors[scope] = max(floor, self.of(scope))
        if scope.kind == "tenant":
            # Whoever is below one of the others is below the tenant's too (see `Floors`).
            for one in [one for one in self._floors if one.tenant == scope.tenant]:
                if one != scope and self._floors[one] <= floor:
                    del self._floors[one]

    def __iter__(self) -> Iterator[Scope]:
        return iter(self._floors)
