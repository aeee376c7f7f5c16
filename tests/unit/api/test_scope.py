"""Scopes and their keyed digests."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetward_api.canonical import canonical_bytes, parse_model
from fleetward_api.errors import KeyMalformed, ScopeInvalid
from fleetward_api.scope import (
    Scope,
    ScopeWire,
    document_tag_digest,
    permission_scope_digest,
    scope_digest,
    user_digest,
)

KEY = b"k" * 32
NAMES = st.text("abc_1é/", min_size=1, max_size=6)
SCOPES = st.one_of(
    st.builds(Scope, NAMES.filter(lambda name: "/" not in name)),
    st.builds(
        lambda tenant, field, name: Scope(tenant, **{field: name}),
        NAMES.filter(lambda name: "/" not in name),
        st.sampled_from(["user", "permission_scope", "document_tag"]),
        NAMES,
    ),
)


@given(SCOPES)
def test_a_scope_survives_the_wire(scope: Scope) -> None:
    wire = parse_model(ScopeWire, canonical_bytes(scope.to_wire()))
    assert Scope.from_wire(wire) == scope


@given(SCOPES, SCOPES)
def test_scopes_share_a_digest_only_when_equal(a: Scope, b: Scope) -> None:
    assert (scope_digest(KEY, a) == scope_digest(KEY, b)) == (a == b)


def test_kinds() -> None:
    assert Scope("acme").kind == "tenant"
    assert Scope("acme", user="u").kind == "user"
    assert Scope("acme", permission_scope="p").kind == "permissionScope"
    assert Scope("acme", document_tag="d").kind == "documentTag"


def test_the_edge_between_tenant_and_user_cannot_be_moved() -> None:
    assert user_digest(KEY, "org_1", "2345") != user_digest(KEY, "org_12345", "")
    assert user_digest(KEY, "org_1", "2345") != user_digest(KEY, "org_12", "345")
    assert scope_digest(KEY, Scope("org_1", user="2345")) != scope_digest(KEY, Scope("org_12345"))


def test_a_digest_cannot_be_guessed_without_the_key() -> None:
    assert scope_digest(KEY, Scope("acme")) != scope_digest(b"j" * 32, Scope("acme"))


def test_the_purposes_of_digests_are_apart() -> None:
    digests = {
        user_digest(KEY, "acme", "x"),
        permission_scope_digest(KEY, "acme", ["x"]),
        document_tag_digest(KEY, "acme", "x"),
        scope_digest(KEY, Scope("acme", user="x")),
    }
    assert len(digests) == 4
    assert document_tag_digest(KEY, "acme", "x") != document_tag_digest(KEY, "acme", "y")


def test_permission_scopes_are_a_set() -> None:
    once = permission_scope_digest(KEY, "acme", ["b", "a"])
    assert once == permission_scope_digest(KEY, "acme", ["a", "b", "a"])
    assert once != permission_scope_digest(KEY, "acme", ["ab"])


def test_nothing_named_has_no_digest() -> None:
    assert user_digest(KEY, "acme", "") == ""
    assert permission_scope_digest(KEY, "acme", []) == ""
    assert document_tag_digest(KEY, "acme", "") == ""


def test_a_name_that_utf8_lacks_still_has_one_digest() -> None:
    assert user_digest(KEY, "acme", "\ud800") != user_digest(KEY, "acme", "\ud801")


@pytest.mark.parametrize(
    "fields",
    [
        {"tenant": ""},
        {"tenant": "a/b"},
        {"tenant": "a", "user": "u", "document_tag": "d"},
        {"tenant": "a", "user": "u", "permission_scope": "p"},
        {"tenant": "a" * 254},
        {"tenant": "a", "user": "u" * 254},
    ],
)
def test_a_scope_names_one_thing(fields: dict[str, str]) -> None:
    with pytest.raises(ScopeInvalid):
        Scope(**fields)


def test_a_short_key_is_refused() -> None:
    with pytest.raises(KeyMalformed, match=r"digest\.key"):
        scope_digest(b"short", Scope("acme"))
