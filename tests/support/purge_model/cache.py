"""What engines hold in the model: content by who asked and what the gateway knew then.

A piece of content is a class of requests with the floors in its token and the epoch it was keyed
under. What decides about it is the product's own: `Floors`, `decide_push`, `is_behind`, whom
content belongs to, and the prefix index's removal.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from fleetward_api.bundle import BundlePush, EpochSecret, PolicyBundle, ServiceRef
from fleetward_api.floors import Floors
from fleetward_api.owner import Owner, owner_of
from fleetward_api.scope import Scope
from fleetward_engine.admin.policy import Apply, PolicyInForce, decide_push
from fleetward_engine.cache_entry import Entry
from fleetward_engine.prefix_index import PrefixIndex
from fleetward_engine.server.cache_context import is_behind
from fleetward_engine.server.identity import Caller

Token = tuple[int, int, int, int]
TENANT = Scope("alpha")
USER = Scope("alpha", user="u")
PLACE = {"tenant": 0, "user": 1, "permissionScope": 2, "documentTag": 3}
SERVICE = ServiceRef(namespace="n", name="s", uid="s")


@dataclass(frozen=True, slots=True)
class Policy:
    """Floors and epoch as the operator keeps them, at one moment."""

    floors: Floors
    epoch: int


@dataclass(frozen=True, slots=True)
class Content:
    """Cache made for one class of requests under one token and epoch."""

    kind: int
    token: Token
    epoch: int


@dataclass(frozen=True, slots=True)
class Rules:
    """What an engine of the model does; faulty ones show that the exploration looks.

    `key` says which content a request's lookup can find: equal keys are one root.
    """

    refuses_old_tokens: bool = True
    remembers_receipts: bool = True
    separates: bool = True
    raises: bool = True
    key: Callable[[Content], object] = lambda content: content


HONEST = Rules()


class Caches:
    """Numbers for policies and contents; all that engines do with them, each worked out once."""

    def __init__(self, nested: Scope, rules: Rules) -> None:
        self.scopes = (TENANT, nested)
        self.rules = rules
        self._policies = [Policy(Floors(), 1)]
        self._parents = [-1]
        self._children: dict[tuple[int, object], int] = {}
        self._contents: list[Content] = []
        self._numbers: dict[Content, int] = {}
        self.grown = cache(self._grown)
        self.held = cache(self._held)
        self.taken = cache(self._taken)
        self.remaining = cache(self._remaining)
        self.old = cache(self._old)
        self.reachable_old = cache(self._reachable_old)

    def policy(self, number: int) -> Policy:
        """Floors and epoch by number; 0 is before everything."""
        return self._policies[number]

    def raised(self, number: int, purge: int) -> int:
        """The policy after a purge's raise, as `Floors.raised` makes it."""
        before = self._policies[number]
        return self._child(
            number, purge, lambda: Policy(before.floors.raised(self.scopes[purge]), before.epoch)
        )

    def rotated(self, number: int) -> int:
        """After the floors' record was lost and found: the next epoch, a later version."""
        before = self._policies[number]
        floors = before.floors.model_copy(update={"version": before.floors.version + 1})
        return self._child(number, "rotated", lambda: Policy(floors, before.epoch + 1))

    def history(self, number: int, since: int = 0) -> tuple[int, ...]:
        """Policies from a later one back to an earlier one, both among them."""
        found = [number]
        while found[-1] != since:
            found.append(self._parents[found[-1]])
        return tuple(found)

    def _child(self, number: int, why: object, make: Callable[[], Policy]) -> int:
        known = self._children.get((number, why))
        if known is None:
            known = len(self._policies)
            self._children[number, why] = known
            self._policies.append(make())
            self._parents.append(number)
        return known

    def _taken(self, before: int, pushed: int) -> int:
        """The policy of an engine (-1: a new process) after a push, as `decide_push` decides."""
        current = None if before < 0 else self._in_force(before)
        push = BundlePush(
            bundle=self._bundle(pushed),
            epoch=EpochSecret.of(self._policies[pushed].epoch, b"e" * 32),
        )
        known = Floors() if current is None else current.floors
        verdict = decide_push(current, push, known=known, service_uid=SERVICE.uid)
        return pushed if isinstance(verdict, Apply) else before

    def _in_force(self, number: int) -> PolicyInForce:
        return PolicyInForce(self._bundle(number), b"e" * 32, self._policies[number].floors)

    def _bundle(self, number: int) -> PolicyBundle:
        policy = self._policies[number]
        return PolicyBundle(
            service=SERVICE,
            generation=policy.floors.version + 1,
            epoch=policy.epoch,
            floors=policy.floors,
        )

    def _caller(self, kind: int, floors: Floors) -> Caller:
        """Kind 0: of the tenant; 1: of the nested scope too; 2: of another tenant."""
        nested = self.scopes[1]
        inner = kind == 1
        tenant = "other" if kind == 2 else TENANT.tenant
        user = nested.user if inner else ""
        permission = nested.permission_scope if inner else ""
        permissions = (permission,) if permission else ()
        tags = (nested.document_tag,) if inner and nested.document_tag else ()
        token = floors.of_request(
            tenant, user=user, permission_scopes=permissions, document_tags=tags
        )
        return Caller(
            tenant=tenant,
            user=user,
            permission_scope=permission,
            permission_scopes=permissions,
            document_tags=tags,
            floors=token,
        )

    def _grown(self, engine: int, gateway: int) -> int:
        """All that an engine can hold by requests with any token that was ever given out."""
        in_force = self._in_force(engine)
        mask = 0
        for issued in self.history(gateway):
            for kind in range(3):
                caller = self._caller(kind, self._policies[issued].floors)
                if self.rules.refuses_old_tokens and is_behind(caller, in_force):
                    continue
                content = Content(kind, caller.floors, in_force.bundle.epoch)
                mask |= 1 << self._number(content)
        return mask

    def _number(self, content: Content) -> int:
        number = self._numbers.get(content)
        if number is None:
            number = self._numbers[content] = len(self._contents)
            self._contents.append(content)
        return number

    def _held(self, mask: int) -> tuple[Content, ...]:
        return tuple(one for n, one in enumerate(self._contents) if mask >> n & 1)

    def _old(self, mask: int, purge: int, floor: int) -> int:
        """What of it was made for the scope by requests from before the cut."""
        place = PLACE[self.scopes[purge].kind]
        found = 0
        for one in self._held(mask):
            inside = one.kind == 1 if purge else one.kind < 2
            if inside and one.token[place] < floor:
                found |= 1 << self._number(one)
        return found

    def _remaining(self, mask: int, purge: int, floor: int) -> int:
        """What a removal leaves, by the product's prefix index."""
        scope = self.scopes[purge] if self.rules.separates else TENANT
        index = PrefixIndex()
        contents = self._held(mask)
        for block, one in enumerate(contents, start=1):
            key = str(block).encode()
            owner = self._owner(one)
            index.insert(Entry(key=key, block=block, owner=owner, created=0, last_used=0))
        index.remove_below(scope, floor)
        kept = (one for n, one in enumerate(contents, start=1) if index.entry_of(n) is not None)
        return sum(1 << self._number(one) for one in kept)

    def _owner(self, content: Content) -> Owner:
        """Kinds as in `_caller`; what is known here makes no difference with one tag at most."""
        nested = self.scopes[1]
        if content.kind != 1:
            return Owner.of("other" if content.kind == 2 else TENANT.tenant, content.token[0])
        return owner_of(
            TENANT.tenant,
            user=nested.user,
            permission_scopes=[nested.permission_scope] if nested.permission_scope else [],
            document_tags=[nested.document_tag] if nested.document_tag else [],
            floors=content.token,
            known=Floors(),
        )

    def _reachable_old(self, mask: int, engine: int, gateway: int, purge: int, floor: int) -> bool:
        """Whether any request could be answered from content that the purge is about."""
        old = {self.rules.key(one) for one in self._held(self._old(mask, purge, floor))}
        asked = {self.rules.key(one) for one in self._held(self._grown(engine, gateway))}
        return bool(old & asked)
