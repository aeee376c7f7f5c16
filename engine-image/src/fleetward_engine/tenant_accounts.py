"""What each tenant holds of the pool, and whose cached block goes next.

Every command costs O(1) in the size of the pool: a block sits in one list of its tenant, and the
tenants' oldest blocks in one heap, whose depth is logarithmic in the number of tenants.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from fleetward_engine.outputs import TenantShare
from fleetward_engine.public_tenant import PUBLIC_TENANT, is_listed
from fleetward_engine.share_rules import ShareRules

_SMALL = 64
"""Heaps up to this size are never swept."""

Rank = tuple[int, bool, int]
"""What goes first has the lowest: the tenant's priority (0 under LRU), whether the block was reused
and is protected, and when it was last released."""


@dataclass(slots=True, eq=False)
class Account:
    """One tenant's blocks: how many are in use, and which are cached only, oldest first.

    `newcomers` and `protected` map each block to the moment it was released or demoted, counted in
    such events. A `guest` is guaranteed nothing, and takes nothing from what others are.
    """

    tenant: str
    number: int
    guest: bool = False
    priority: int = 0
    in_use: int = 0
    newcomers: OrderedDict[int, int] = field(default_factory=OrderedDict)
    protected: OrderedDict[int, int] = field(default_factory=OrderedDict)
    offered: Rank | None = None

    @property
    def is_public(self) -> bool:
        """Whether these are the blocks of public prefixes, which never make room for others."""
        return self.tenant == PUBLIC_TENANT

    @property
    def cached(self) -> int:
        """Blocks that nobody uses and the prefix index still finds."""
        return len(self.newcomers) + len(self.protected)

    @property
    def held(self) -> int:
        """Blocks in use and cached together, which the tenant's limit bounds."""
        return self.in_use + self.cached

    @property
    def taken(self) -> int:
        """Blocks that nobody else can have now: in use, or public, which stay while declared.

        More public ones than are set apart are held while requests use some that were withdrawn.
        """
        return self.held if self.is_public else self.in_use

    def next_block(self) -> int | None:
        """The cached block that goes first."""
        return next(iter(self.newcomers or self.protected), None)


class TenantAccounts:
    """The accounts of all tenants that an engine has met, under one set of rules.

    A tenant keeps its account, and with it its guaranteed share, when it holds nothing any more:
    what others may use must not depend on what it has cached. Only a purge of the tenant closes it.
    """

    def __init__(self, num_blocks: int, rules: ShareRules) -> None:
        self.num_blocks = num_blocks
        self._accounts: dict[str, Account] = {}
        self._by_number: list[Account] = []
        self._heap: list[tuple[Rank, int]] = []
        self._events = 0
        self._reserved = 0
        self.set_rules(rules)

    def __iter__(self) -> Iterator[Account]:
        return iter(self._by_number)

    def set_rules(self, rules: ShareRules) -> None:
        """Judge by other rules from now on; what is above a limit is for the caller to trim."""
        self.rules = rules
        self._tenant_blocks = rules.tenant_blocks(self.num_blocks)
        self.max_blocks = rules.max_blocks(self._tenant_blocks)
        self._protected_limit = self.max_blocks * rules.protected_percent // 100
        self._cache_limit = self.max_blocks - rules.headroom_blocks(self._tenant_blocks)
        self._rebuild()
        if rules.public_blocks:
            # What is set apart is reserved from now on, whether anything lies there yet or not.
            self.of(PUBLIC_TENANT)

    def resize(self, num_blocks: int) -> None:
        """Take the shares of another number of blocks from now on."""
        self.num_blocks = num_blocks
        self.set_rules(self.rules)

    def of(self, tenant: str) -> Account:
        """The tenant's account, opened at its first request."""
        account = self._accounts.get(tenant)
        if account is None:
            account = Account(tenant, number=len(self._by_number), guest=not is_listed(tenant))
            self._accounts[tenant] = account
            self._by_number.append(account)
            self._rebuild()
        return account

    def close(self, tenant: str) -> None:
        """Forget a purged tenant that holds nothing: others share the pool as if it never came.

        One that holds something (its requests from above the purge's floor) keeps its account.
        """
        account = self._accounts.get(tenant)
        if account is None or account.held:
            return
        del self._accounts[tenant]
        self._by_number.remove(account)
        for number, each in enumerate(self._by_number):
            each.number = number
        self._rebuild()

    def set_priority(self, tenant: str, priority: int) -> None:
        """Take note of a tenant's priority; higher ones keep their blocks longer."""
        account = self.of(tenant)
        if account.priority != priority:
            account.priority = priority
            self._offer(account)

    def shares(self) -> dict[str, TenantShare]:
        """What each tenant that was ever met holds, by name; guests are in nobody's books."""
        return {
            account.tenant: TenantShare(in_use=account.in_use, cached=account.cached)
            for account in self._by_number
            if not account.guest
        }

    def share_left(self, account: Account) -> int:
        """Blocks that the tenant's own limit lets it take into use, if it evicts all it caches."""
        limit = self.rules.public_blocks if account.is_public else self.max_blocks
        return limit - account.taken

    def room_for(self, account: Account) -> int:
        """Blocks that the tenant can take into use now; below zero when others run in its room.

        What any tenant has cached makes no difference: only what is in use, and the guaranteed
        shares of all others whether they fill them or not.
        """
        return min(self.share_left(account), self.pool_left(account))

    def pool_left(self, account: Account) -> int:
        """The same but for the tenant's own limit."""
        others = self._reserved - self._reserved_for(account)
        return self.num_blocks - others - account.taken

    def floor_of(self, account: Account) -> int:
        """Blocks that others can't take from the tenant."""
        if account.is_public:
            return self.rules.public_blocks
        return 0 if account.guest else self.guaranteed_blocks

    def use(self, account: Account) -> None:
        """One more of the tenant's blocks is in use."""
        before = self._reserved_for(account)
        account.in_use += 1
        self._reserved += self._reserved_for(account) - before
        self._offer(account)

    def unuse(self, account: Account) -> None:
        """One block of the tenant's fewer is in use."""
        before = self._reserved_for(account)
        account.in_use -= 1
        self._reserved += self._reserved_for(account) - before

    def cache(self, account: Account, block: int, *, reused: bool) -> None:
        """A block without users stays findable; one that was reused is protected."""
        before = self._reserved_for(account)
        self._events += 1
        (account.protected if reused else account.newcomers)[block] = self._events
        while len(account.protected) > self._protected_limit:
            demoted, _ = account.protected.popitem(last=False)
            self._events += 1
            account.newcomers[demoted] = self._events
        self._reserved += self._reserved_for(account) - before
        self._offer(account)

    def uncache(self, account: Account, block: int) -> None:
        """A cached block is used again, or leaves."""
        before = self._reserved_for(account)
        if account.newcomers.pop(block, None) is None:
            del account.protected[block]
        self._reserved += self._reserved_for(account) - before
        self._offer(account)

    def surplus(self, account: Account) -> int | None:
        """The block to evict because the tenant's cache leaves no head-room below its limit."""
        if account.is_public or account.held <= self._cache_limit:
            return None
        return account.next_block()

    def at_limit(self, account: Account) -> bool:
        """Whether one more block has to replace one of the tenant's own for its limit's sake."""
        limited = self.max_blocks < self._tenant_blocks and not account.is_public
        return limited and account.held >= self.max_blocks

    def next_victim(self, account: Account) -> int | None:
        """The block that makes room in a full pool: the tenant's own, or beyond another's floor."""
        other = self._first_beyond_floor()
        mine = None if account.is_public else account
        ranks = [(self._rank(each), each) for each in (mine, other) if each and each.cached]
        return min(ranks, key=lambda one: one[0])[1].next_block() if ranks else None

    def next_excess(self) -> int | None:
        """The block that goes first of all that tenants hold beyond their guaranteed shares."""
        account = self._first_beyond_floor()
        return None if account is None else account.next_block()

    def check_integrity(self, in_use: Sequence[int]) -> None:
        """Raise AssertionError when the books contradict each other or these counts, by account."""
        if [account.in_use for account in self._by_number] != list(in_use):
            raise AssertionError("blocks in use were miscounted")
        if self._reserved != self._count_reserved():
            raise AssertionError("reserved blocks were miscounted")
        for account in self._by_number:
            for stamps in (list(account.newcomers.values()), list(account.protected.values())):
                if stamps != sorted(stamps):
                    raise AssertionError(f"{account.tenant}: cached blocks are out of order")
            offer = self._is_offerable(account) and (self._rank(account), account.number)
            if offer and offer not in self._heap:
                raise AssertionError(f"{account.tenant}: its next block is not offered")

    def _first_beyond_floor(self) -> Account | None:
        while self._heap:
            rank, number = self._heap[0]
            account = self._by_number[number]
            if self._is_offerable(account) and self._rank(account) == rank:
                return account
            heapq.heappop(self._heap)
            if account.offered == rank:
                account.offered = None
                self._offer(account)
        return None

    def _is_offerable(self, account: Account) -> bool:
        spare = account.cached > 0 and account.held > self.floor_of(account)
        return spare and not account.is_public

    def _count_reserved(self) -> int:
        return sum(map(self._reserved_for, self._by_number))

    def _reserved_for(self, account: Account) -> int:
        return max(account.taken, self.floor_of(account))

    def _rank(self, account: Account) -> Rank:
        stamps = account.newcomers or account.protected
        stamp = next(iter(stamps.values()))
        priority = account.priority if self.rules.by_priority else 0
        return (priority, not account.newcomers, stamp)

    def _offer(self, account: Account) -> None:
        if not self._is_offerable(account):
            return
        rank = self._rank(account)
        if rank != account.offered:
            account.offered = rank
            heapq.heappush(self._heap, (rank, account.number))
            # Whatever is not on top stays behind as a husk when its tenant has a new next block.
            if len(self._heap) > _SMALL + 4 * len(self._by_number):
                self._sweep()

    def _rebuild(self) -> None:
        self.guaranteed_blocks = self.rules.guaranteed_blocks(
            self._tenant_blocks, num_tenants=sum(not account.guest for account in self._by_number)
        )
        self._reserved = self._count_reserved()
        self._sweep()

    def _sweep(self) -> None:
        self._heap = []
        for account in self._by_number:
            account.offered = None
            if self._is_offerable(account):
                account.offered = self._rank(account)
                self._heap.append((account.offered, account.number))
        heapq.heapify(self._heap)
