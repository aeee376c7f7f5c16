"""How many bodies came and left, by owner: what a purge's receipt is checked against."""

from __future__ import annotations

from dataclasses import dataclass

from fleetward_api.owner import Owner
from fleetward_api.scope import Scope


@dataclass(slots=True)
class _Count:
    came: int = 0
    left: int = 0


class BodyLedger:
    """Counts per owner while one has a body here, and per tenant since the start.

    Clients choose the names of users and tags, so an owner is forgotten once its counts balance:
    its tenant's books keep them.
    """

    def __init__(self) -> None:
        self._owners: dict[Owner, _Count] = {}
        self._settled: dict[str, int] = {}

    def __len__(self) -> int:
        """How many owners have a body here."""
        return len(self._owners)

    def came(self, owner: Owner) -> None:
        """A body of the owner was taken in."""
        self._owners.setdefault(owner, _Count()).came += 1

    def left(self, owner: Owner) -> None:
        """A body of the owner was let go.

        Raises:
            KeyError: none is here.
        """
        count = self._owners[owner]
        count.left += 1
        if count.left == count.came:
            del self._owners[owner]
            self._settled[owner.tenant] = self._settled.get(owner.tenant, 0) + count.came

    def below(self, scope: Scope, floor: int) -> tuple[int, int]:
        """Bodies that came, and that left, of owners of the scope from below the floor."""
        counts = [count for owner, count in self._owners.items() if owner.is_below(scope, floor)]
        settled = self._settled.get(scope.tenant, 0) if scope.kind == "tenant" else 0
        came, left = (sum(count.came for count in counts), sum(count.left for count in counts))
        return settled + came, settled + left
