"""One findable block, and the tree that prefixes form."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from fleetward_api.owner import Owner
from fleetward_engine.public_tenant import PUBLIC_TENANT


@dataclass(slots=True, eq=False)
class Entry:
    """One findable block. Times are monotonic seconds; a TTL of infinity never ends it.

    `parent` is the entry of the block before it in its prefix, None for a first block. A block
    can only be found through its parent, so an entry never outlives it in the index. The index
    links and unlinks; the links are a list per parent that costs O(1) to change.
    `fingerprint` is of the block's KV at that time (`canary.py`), None where none are taken.
    """

    key: bytes
    block: int
    owner: Owner
    created: float
    last_used: float
    idle_ttl: float = math.inf
    max_ttl: float = math.inf
    retention_class: str = ""
    parent: Entry | None = None
    ticket: int | None = None
    fingerprint: int | None = None
    first_child: Entry | None = None
    next_sibling: Entry | None = None
    previous_sibling: Entry | None = None

    @property
    def deadline(self) -> float:
        """The moment from which no lookup may find it."""
        return min(self.created + self.max_ttl, self.last_used + self.idle_ttl)

    @property
    def is_leaf(self) -> bool:
        """Whether no cached prefix goes on from here."""
        return self.first_child is None

    @property
    def is_public(self) -> bool:
        """Whether it is of a declared public prefix, and so nobody's data."""
        return self.owner.tenant == PUBLIC_TENANT

    def moved_to(self, block: int, *, parent: Entry | None = None) -> Entry:
        """The same content, with its whole past, in a block of another tier; in no index yet."""
        return replace(
            self,
            block=block,
            parent=parent,
            ticket=None,
            first_child=None,
            next_sibling=None,
            previous_sibling=None,
        )

    def link(self) -> None:
        """Become a child of the parent."""
        parent = self.parent
        if parent is not None:
            self.next_sibling = parent.first_child
            if self.next_sibling is not None:
                self.next_sibling.previous_sibling = self
            parent.first_child = self

    def unlink(self) -> None:
        """Stop being a child of the parent."""
        if self.next_sibling is not None:
            self.next_sibling.previous_sibling = self.previous_sibling
        if self.previous_sibling is not None:
            self.previous_sibling.next_sibling = self.next_sibling
        elif self.parent is not None:
            self.parent.first_child = self.next_sibling
        self.next_sibling = self.previous_sibling = None

    def subtree(self) -> list[Entry]:
        """This entry and all that go on from it, each after its children."""
        found = [self]
        for entry in found:
            found.extend(entry.children())
        found.reverse()
        return found

    def children(self) -> Iterator[Entry]:
        """The entries that go on from here, the latest first."""
        child = self.first_child
        while child is not None:
            yield child
            child = child.next_sibling
