"""Whose something is, and from before which purges."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetward_api.errors import ScopeInvalid
from fleetward_api.floors import Floors
from fleetward_api.owner import Owner, count_below, owner_of
from fleetward_api.scope import Scope

USERS, PLACES, TAGS = ["u", "v"], ["p", "q"], ["s", "t", "w"]
SCOPES = st.one_of(
    st.just(Scope("a")),
    st.builds(lambda name: Scope("a", user=name), st.sampled_from(USERS)),
    st.builds(lambda name: Scope("a", permission_scope=name), st.sampled_from(PLACES)),
    st.builds(lambda name: Scope("a", document_tag=name), st.sampled_from(TAGS)),
)
PURGES = st.lists(SCOPES, max_size=6)
CALLS = st.fixed_dictionaries(
    {
        "user": st.sampled_from(["", *USERS]),
        "permission_scopes": st.lists(st.sampled_from(PLACES), unique=True),
        "document_tags": st.lists(st.sampled_from(TAGS), unique=True),
    }
)


def floors_after(purges: list[Scope], start: Floors | None = None) -> Floors:
    floors = start or Floors()
    for scope in purges:
        floors = floors.raised(scope)
    return floors


def scopes_of(call: dict[str, list[str] | str]) -> set[Scope]:
    user = {Scope("a", user=str(call["user"]))} if call["user"] else set()
    return {
        Scope("a"),
        *user,
        *(Scope("a", permission_scope=each) for each in call["permission_scopes"]),
        *(Scope("a", document_tag=each) for each in call["document_tags"]),
    }


@given(earlier=PURGES, purged=SCOPES, later=PURGES, call=CALLS)
def test_what_was_authorised_before_a_purge_is_below_it_and_nothing_of_another_scope(
    earlier: list[Scope], purged: Scope, later: list[Scope], call: Any
) -> None:
    """Whatever the engine knows when the request comes: the token's floors, or later ones."""
    issued = floors_after(earlier)
    cut = issued.raised(purged)
    for known in (issued, cut, floors_after(later, cut)):
        owner = owner_of("a", **call, floors=issued.of_request("a", **call), known=known)
        assert owner.is_below(purged, cut.floor_of(purged)) is (purged in scopes_of(call))
        assert set(owner.scopes) == scopes_of(call)


@given(earlier=PURGES, purged=SCOPES, later=PURGES, call=CALLS)
def test_what_was_authorised_after_a_purge_is_not_below_it(
    earlier: list[Scope], purged: Scope, later: list[Scope], call: Any
) -> None:
    cut = floors_after(earlier).raised(purged)
    issued = floors_after(later, cut)
    owner = owner_of("a", **call, floors=issued.of_request("a", **call), known=issued)
    assert not owner.is_below(purged, cut.floor_of(purged))


@given(st.lists(st.none() | st.builds(Owner.of, st.sampled_from("ab"), st.integers(0, 3))))
def test_each_owner_is_counted_as_often_as_it_stands_there(owners: list[Owner | None]) -> None:
    owners = [*owners, *owners[:2]]
    one_by_one = [owner for owner in owners if owner and owner.is_below(Scope("a"), 2)]
    assert count_below(owners, Scope("a"), 2) == len(one_by_one)


def test_an_owner_is_of_one_tenant_and_names_it_first() -> None:
    assert (Owner.of("a", 3).tenant, Owner.of("a").scope) == ("a", Scope("a"))
    assert Owner.of("a", 1) == Owner.of("a", 1) != Owner.of("a", 2)
    assert hash(Owner.of("a", 1)) == hash(Owner.of("a", 1))
    user, other = (Scope("a", user="u"), 0), (Scope("b"), 0)
    for standings in ((), (user,), ((Scope("a"), 0), other), ((Scope("a"), 0), user, user)):
        with pytest.raises(ScopeInvalid):
            Owner(standings)
