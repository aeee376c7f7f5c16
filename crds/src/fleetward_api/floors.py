"""Floors: per scope, a number that only grows. Raising one makes older cache unreachable.

The floor is an input of the cache root (`cache_key`), so raising it needs no list of copies.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Final

from pydantic import Field

from fleetward_api.canonical import Count, WireModel
from fleetward_api.scope import Scope, ScopeKind

MAX_FINER_FLOORS = 4096
"""Users, permission scopes and tags with a floor, before compaction folds them into their tenant's.

One entry takes about 350 bytes at most, so that the floors stay below a ConfigMap's 1 MiB.
"""

FloorMap = dict[Annotated[str, Field(min_length=1, max_length=507)], Count]


class Floors(WireModel):
    """Every floor of the fleet; an absent entry is 0.

    Attributes:
        version: grows by one with every change; the larger one is the newer.
        tenants: by tenant name.
        users: by `tenant/user digest`; likewise `permission_scopes` and `document_tags`.

    A finer scope is raised above its tenant's floor, so one that is at or below it was raised
    before the tenant was: whoever knows the tenant's floor was authorised after both. Such an entry
    says nothing more than its tenant's, and may be left out.
    """

    version: Count = 0
    tenants: FloorMap = Field(default_factory=dict)
    users: FloorMap = Field(default_factory=dict)
    permission_scopes: FloorMap = Field(default_factory=dict)
    document_tags: FloorMap = Field(default_factory=dict)

    def floor_of(self, scope: Scope) -> int:
        """Return the scope's floor: its own, or that of the tenant around it where that is higher.

        A request was authorised before the scope was raised to a number exactly when the scope's
        floor, as the request knows it, is below that number.
        """
        return max(self._map(scope).get(floor_key(scope), 0), self.tenants.get(scope.tenant, 0))

    def of_request(
        self,
        tenant: str,
        *,
        user: str,
        permission_scopes: Iterable[str],
        document_tags: Iterable[str],
    ) -> tuple[int, int, int, int]:
        """Return the four floors of a request, as the cache root and the identity token take them.

        0 for what the request does not have. Those of permission scopes, and of tags, are summed:
        the sum grows when any one grows, which the largest would not.
        """
        scopes = (
            self.floor_of(Scope(tenant, permission_scope=each)) for each in set(permission_scopes)
        )
        tags = (self.floor_of(Scope(tenant, document_tag=tag)) for tag in set(document_tags))
        return (
            self.tenants.get(tenant, 0),
            self.floor_of(Scope(tenant, user=user)) if user else 0,
            sum(scopes),
            sum(tags),
        )

    def raised(self, scope: Scope) -> Floors:
        """Return the floors with this scope's raised and the version one higher.

        A finer scope is also raised above its tenant's floor, so that a number dropped by
        `compacted` is never given out again.
        """
        grown = {**self._map(scope), floor_key(scope): self.floor_of(scope) + 1}
        raised = self.model_copy(update={_FIELD[scope.kind]: grown, "version": self.version + 1})
        return raised.pruned()

    def at_least(self, scope: Scope, floor: int) -> Floors:
        """Return the floors with this scope's no lower than `floor`; the version stays."""
        if self.floor_of(scope) >= floor:
            return self
        grown = {**self._map(scope), floor_key(scope): floor}
        return self.model_copy(update={_FIELD[scope.kind]: grown}).pruned()

    def pruned(self) -> Floors:
        """Return the same floors without the entries that say no more than their tenant's."""
        return self.model_copy(
            update={
                "users": self._above_tenants(self.users),
                "permission_scopes": self._above_tenants(self.permission_scopes),
                "document_tags": self._above_tenants(self.document_tags),
            }
        )

    def compacted(self, tenant: str) -> Floors:
        """Return the floors with a tenant's finer entries folded into its own floor.

        The tenant's floor rises above all of them, which makes all its older cache unreachable:
        more than was asked, never less.
        """
        prefix = f"{tenant}/"
        finer = (self.users, self.permission_scopes, self.document_tags)
        dropped = [n for entries in finer for key, n in entries.items() if key.startswith(prefix)]
        floor = max([self.tenants.get(tenant, 0), *dropped]) + 1
        return Floors(
            version=self.version + 1,
            tenants={**self.tenants, tenant: floor},
            users=_without(self.users, prefix),
            permission_scopes=_without(self.permission_scopes, prefix),
            document_tags=_without(self.document_tags, prefix),
        )

    def bounded(self, limit: int = MAX_FINER_FLOORS) -> Floors:
        """Return floors with at most `limit` finer entries: the fullest tenants are compacted.

        Bound before raising (`floors.bounded(limit - 1).raised(scope)`): after it, the entry that
        was just raised could be the one folded away.
        """
        floors = self
        while floors.finer_count > limit:
            counts: dict[str, int] = {}
            for key in (*floors.users, *floors.permission_scopes, *floors.document_tags):
                tenant = key.partition("/")[0]
                counts[tenant] = counts.get(tenant, 0) + 1
            fullest = max(sorted(counts), key=counts.__getitem__)
            floors = floors.compacted(fullest)
        return floors

    @property
    def finer_count(self) -> int:
        """Entries of users, permission scopes and document tags."""
        return len(self.users) + len(self.permission_scopes) + len(self.document_tags)

    def entries(self) -> Iterator[tuple[Scope, int]]:
        """Every scope with a floor of its own, and that floor; tenants first, in a fixed order."""
        for kind, name in _FIELD.items():
            entries: Mapping[str, int] = getattr(self, name)
            for key, floor in sorted(entries.items()):
                yield scope_of(kind, key), floor

    def _map(self, scope: Scope) -> Mapping[str, int]:
        entries: Mapping[str, int] = getattr(self, _FIELD[scope.kind])
        return entries

    def _above_tenants(self, entries: Mapping[str, int]) -> dict[str, int]:
        tenants = self.tenants
        return {
            key: floor
            for key, floor in entries.items()
            if floor > tenants.get(key.partition("/")[0], 0)
        }


_FIELD: Final[dict[ScopeKind, str]] = {
    "tenant": "tenants",
    "user": "users",
    "permissionScope": "permission_scopes",
    "documentTag": "document_tags",
}


def floor_key(scope: Scope) -> str:
    """Return the entry's name: the tenant, or `tenant/digest`. A tenant's name holds no `/`."""
    return scope.tenant if scope.kind == "tenant" else f"{scope.tenant}/{scope.value}"


def scope_of(kind: ScopeKind, key: str) -> Scope:
    """Return the scope of an entry's name: the other way round of `floor_key`."""
    tenant, _, value = key.partition("/")
    match kind:
        case "tenant":
            return Scope(tenant)
        case "user":
            return Scope(tenant, user=value)
        case "permissionScope":
            return Scope(tenant, permission_scope=value)
        case "documentTag":
            return Scope(tenant, document_tag=value)


def merge_floors(a: Floors, b: Floors) -> Floors:
    """Return the pointwise maximum, pruned: commutative, associative, idempotent, never lower."""
    merged = Floors(
        version=max(a.version, b.version),
        tenants=_merged(a.tenants, b.tenants),
        users=_merged(a.users, b.users),
        permission_scopes=_merged(a.permission_scopes, b.permission_scopes),
        document_tags=_merged(a.document_tags, b.document_tags),
    )
    return merged.pruned()


def _merged(a: Mapping[str, int], b: Mapping[str, int]) -> dict[str, int]:
    return {key: max(a.get(key, 0), b.get(key, 0)) for key in a.keys() | b.keys()}


def _without(entries: Mapping[str, int], prefix: str) -> dict[str, int]:
    return {key: floor for key, floor in entries.items() if not key.startswith(prefix)}
