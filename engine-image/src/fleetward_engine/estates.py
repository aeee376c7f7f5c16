"""What each owner holds, found by any scope that it belongs to, without looking at the rest."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

from fleetward_api.owner import Owner
from fleetward_api.scope import Scope

Item = TypeVar("Item", bound=Hashable)


class Estates(Generic[Item]):
    """Items by owner, and owners by scope.

    An item costs O(1); an owner's first and last one also O(scopes of the owner). An owner without
    items is forgotten, and a scope without owners: callers choose the names of users and tags, so
    what is kept here must be bounded by what is held.
    """

    def __init__(self) -> None:
        self._items: dict[Owner, dict[Item, None]] = {}
        self._owners: dict[Scope, dict[Owner, None]] = {}

    def __len__(self) -> int:
        """How many owners hold something."""
        return len(self._items)

    @property
    def num_scopes(self) -> int:
        """How many scopes hold something."""
        return len(self._owners)

    def add(self, owner: Owner, item: Item) -> None:
        """The owner holds the item from now on."""
        items = self._items.get(owner)
        if items is None:
            items = self._items[owner] = {}
            for scope in owner.scopes:
                self._owners.setdefault(scope, {})[owner] = None
        items[item] = None

    def remove(self, owner: Owner, item: Item) -> bool:
        """The owner holds the item no more; whether it was the owner's last.

        Raises:
            KeyError: it did not hold it.
        """
        items = self._items[owner]
        del items[item]
        if items:
            return False
        del self._items[owner]
        for scope in owner.scopes:
            owners = self._owners[scope]
            del owners[owner]
            if not owners:
                del self._owners[scope]
        return True

    def owners(self, scope: Scope) -> Iterator[Owner]:
        """Those that belong to the scope and hold something."""
        return iter(self._owners.get(scope, ()))

    def count(self, owner: Owner) -> int:
        """How many items it holds."""
        return len(self._items.get(owner, ()))

    def below(self, scope: Scope, floor: int) -> Iterator[Item]:
        """What is held by owners of the scope from below the floor; not to be changed meanwhile."""
        for owner in self.owners(scope):
            if owner.is_below(scope, floor):
                yield from self._items[owner]

    def check_integrity(self, held: dict[Item, Owner]) -> None:
        """Raise AssertionError when the books contradict each other or these, all items held."""
        listed = {item: owner for owner, items in self._items.items() for item in items}
        if listed != held or sum(map(len, self._items.values())) != len(held):
            raise AssertionError("what is held and who is said to hold it disagree")
        pairs = {(scope, owner) for scope, owners in self._owners.items() for owner in owners}
        if pairs != {(scope, owner) for owner in self._items for scope in owner.scopes}:
            raise AssertionError("an owner is not listed under its scopes, or under another's")
        if not all(self._items.values()) or not all(self._owners.values()):
            raise AssertionError("who holds nothing was not forgotten")
