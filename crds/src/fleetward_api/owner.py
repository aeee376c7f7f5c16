"""Whose a request is: every scope it belongs to, each with the floor it was authorised at."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from fleetward_api.errors import ScopeInvalid
from fleetward_api.floors import Floors
from fleetward_api.scope import Scope

RequestFloors = tuple[int, int, int, int]
"""Of tenant, user, permission scopes (summed) and document tags (summed): `Floors.of_request`."""


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose bytes something holds: the tenant, then each finer scope of the request that made it.

    Attributes:
        standings: scope and floor. A purge of a scope below a floor is about what has the scope
            here with a lower one.
        tenant: name of the tenant.

    Raises:
        ScopeInvalid: the first scope is no whole tenant, or another one is not inside it.
    """

    standings: tuple[tuple[Scope, int], ...]
    tenant: str = field(init=False, repr=False, compare=False)
    # Owners are keys of every block's books: asked far more often than made.
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        scopes = [scope for scope, _ in self.standings]
        first = scopes[0] if scopes else None
        if first is None or first.kind != "tenant":
            raise ScopeInvalid("an owner's first scope is its whole tenant")
        if any(each.tenant != first.tenant for each in scopes) or len(set(scopes)) < len(scopes):
            raise ScopeInvalid("an owner's scopes are of one tenant, each once")
        object.__setattr__(self, "tenant", first.tenant)
        object.__setattr__(self, "_hash", hash(self.standings))

    def __hash__(self) -> int:
        return self._hash

    @classmethod
    def of(cls, tenant: str, floor: int = 0) -> Owner:
        """Return the owner that belongs to its tenant and to nothing finer."""
        return cls(((Scope(tenant), floor),))

    @property
    def scope(self) -> Scope:
        """The whole tenant."""
        return self.standings[0][0]

    @property
    def scopes(self) -> Iterator[Scope]:
        """The scopes it belongs to, the tenant first."""
        return (scope for scope, _ in self.standings)

    def is_below(self, scope: Scope, floor: int) -> bool:
        """Whether it belongs to the scope and was authorised below the floor."""
        return any(each == scope and known < floor for each, known in self.standings)


def count_below(owners: Iterable[Owner | None], scope: Scope, floor: int) -> int:
    """Return how many of these belong to the scope and were authorised below the floor.

    Every one is looked at; each object among them is judged once.
    """
    listed = list(owners)
    distinct = {id(owner): owner for owner in listed if owner is not None}
    below = {number for number, owner in distinct.items() if owner.is_below(scope, floor)}
    return sum(1 for owner in listed if id(owner) in below) if below else 0


def owner_of(
    tenant: str,
    *,
    user: str = "",
    permission_scopes: Iterable[str] = (),
    document_tags: Iterable[str] = (),
    floors: RequestFloors,
    known: Floors,
) -> Owner:
    """Return the owner of what a request makes.

    Args:
        tenant: name of the tenant.
        user: keyed digest, or `""`.
        permission_scopes: keyed digests of those that count here.
        document_tags: keyed digests.
        floors: the request's, of everything that it belongs to.
        known: the floors in force here, which tell apart what `floors` holds as a sum.
    """
    of_tenant, of_user, of_scopes, of_tags = floors
    standings = [(Scope(tenant), of_tenant)]
    if user:
        standings.append((Scope(tenant, user=user), of_user))
    scopes = (Scope(tenant, permission_scope=each) for each in sorted(set(permission_scopes)))
    tags = (Scope(tenant, document_tag=each) for each in sorted(set(document_tags)))
    standings += _shared_out(list(scopes), of_scopes, known)
    standings += _shared_out(list(tags), of_tags, known)
    return Owner(tuple(standings))


def _shared_out(scopes: list[Scope], total: int, known: Floors) -> list[tuple[Scope, int]]:
    """Each scope's floor, of a sum that was taken elsewhere at another time; never too high.

    One alone has the sum itself. Of several, those behind are not told apart, so each may be the
    one behind; where the sum is ahead of what is known here, what is known is the lower.
    """
    floors = [known.floor_of(scope) for scope in scopes]
    ahead = total - sum(floors)
    shift = ahead if len(scopes) == 1 else min(0, ahead)
    return [(scope, max(0, floor + shift)) for scope, floor in zip(scopes, floors, strict=True)]
