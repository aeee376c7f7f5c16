"""Who holds what, found by scope, against a plain list of everything."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from fleetward_api.owner import Owner
from fleetward_api.scope import Scope
from fleetward_engine.estates import Estates

SCOPES = [
    Scope("a"), Scope("a", user="u"), Scope("a", user="v"), Scope("a", document_tag="t"),
    Scope("a", permission_scope="p"), Scope("b"), Scope("b", user="u"),
]  # fmt: skip
FINER = st.lists(
    st.tuples(st.sampled_from(SCOPES), st.integers(0, 2)), unique_by=lambda one: one[0], max_size=4
)


@st.composite
def owners(draw: st.DrawFn) -> Owner:
    tenant = draw(st.sampled_from(["a", "b"]))
    finer = [one for one in draw(FINER) if one[0].tenant == tenant and one[0].kind != "tenant"]
    return Owner(((Scope(tenant), draw(st.integers(0, 2))), *finer))


class Books(RuleBasedStateMachine):
    """Items come and go; both books must say the same."""

    def __init__(self) -> None:
        super().__init__()
        self.estates: Estates[int] = Estates()
        self.held: dict[int, Owner] = {}
        self.made = 0

    @rule(owner=owners())
    def add(self, owner: Owner) -> None:
        self.made += 1
        self.estates.add(owner, self.made)
        self.held[self.made] = owner

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        item = data.draw(st.sampled_from(sorted(self.held)))
        owner = self.held.pop(item)
        last = owner not in self.held.values()
        assert self.estates.remove(owner, item) is last

    @invariant()
    def the_same_is_found(self) -> None:
        self.estates.check_integrity(self.held)
        for scope in SCOPES:
            for floor in range(4):
                expected = {i for i, owner in self.held.items() if owner.is_below(scope, floor)}
                found = list(self.estates.below(scope, floor))
                assert len(found) == len(set(found))
                assert set(found) == expected

    @invariant()
    def nothing_is_kept_of_who_holds_nothing(self) -> None:
        assert len(self.estates) == len(set(self.held.values()))
        named = {scope for owner in self.held.values() for scope in owner.scopes}
        assert self.estates.num_scopes == len(named)


TestBooks = Books.TestCase
