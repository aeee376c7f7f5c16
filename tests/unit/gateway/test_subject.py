"""On whose behalf: what applications say of users, sessions and documents, and hostile values."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetward_api.identity import IdentityClaims, verify_identity
from fleetward_api.scope import (
    document_tag_digest,
    permission_scope_digest,
    session_digest,
    user_digest,
)
from fleetward_gateway.admission.facts import KeyRef, TenantFacts
from fleetward_gateway.admission.keyring import build_key_index
from fleetward_gateway.admission.subject import (
    MAX_NAME_CHARS,
    MAX_TAGS,
    Subject,
    digest_subject,
    read_name,
    read_tags,
)
from fleetward_gateway.problem import Problem
from tests.support.fake_engine import FakeEngine
from tests.support.gateway import DIGEST_KEY, KEY_A, GatewayUnderTest, tenant
from tests.support.gateway_problem import problem

KEY = b"k" * 32
NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=MAX_NAME_CHARS)
SUBJECTS = st.builds(
    Subject,
    user=st.just("") | NAMES,
    session=st.just("") | NAMES,
    permission_scopes=st.sets(NAMES, max_size=3).map(lambda names: tuple(sorted(names))),
    document_tags=st.lists(NAMES, max_size=3).map(tuple),
)


@given(SUBJECTS, SUBJECTS, st.sampled_from(["a", "b"]))
def test_digests_are_equal_exactly_where_names_are(one: Subject, other: Subject, who: str) -> None:
    first, second = digest_subject(KEY, "a", one), digest_subject(KEY, who, other)
    same = who == "a"
    assert (first.user == second.user) is (one.user == other.user and (same or not one.user))
    whose = (same and one.user == other.user) or not one.session
    assert (first.session == second.session) is (one.session == other.session and whose)
    scopes = one.permission_scopes == other.permission_scopes
    assert (first.permission_scope == second.permission_scope) is (
        scopes and (same or not one.permission_scopes)
    )
    assert len(first.document_tags) == len(set(one.document_tags))
    shared = set(first.document_tags) & set(second.document_tags)
    assert len(shared) == (len(set(one.document_tags) & set(other.document_tags)) if same else 0)
    shown = repr(first)
    assert not any(name in shown for name in (one.user, one.session) if len(name) > 40)


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ([b"a", b"a"], "twice"),
        ([b""], "1 to 128"),
        ([b"   "], "1 to 128"),
        ([b"x" * 129], "1 to 128"),
        ([b"\xff\xfe"], "UTF-8"),
        (["é".encode("latin-1")], "UTF-8"),
        ([b"\xed\xa0\x80"], "UTF-8"),
    ],
)
def test_a_name_that_could_be_read_in_two_ways_is_refused(values: list[bytes], says: str) -> None:
    with pytest.raises(Problem, match=says) as caught:
        read_name(values, header="Fleetward-User")
    assert (caught.value.status, caught.value.param) == (400, "Fleetward-User")


def test_names_are_taken_as_they_stand() -> None:
    for name in ("Zoë", "a%20b", "a/b", "A", "a\u0301", "x" * 128, "名" * 128, "a, b"):
        assert read_name([name.encode()], header="Fleetward-User") == name
    assert read_name([b" a\t"], header="Fleetward-User") == "a"
    assert read_name([], header="Fleetward-User") is None


def test_tags_are_a_bounded_list() -> None:
    assert read_tags([]) == ()
    assert read_tags([b"a, b", b"c"]) == ("a", "b", "c")
    assert len(read_tags([b",".join([b"x"] * MAX_TAGS)])) == MAX_TAGS
    for bad in ([b",".join([b"x"] * (MAX_TAGS + 1))], [b"a,,b"], [b""], [b"a,"], [b"y" * 129]):
        with pytest.raises(Problem) as caught:
            read_tags(bad)
        assert (caught.value.status, caught.value.param) == (400, "Fleetward-Document-Tags")


def test_one_key_with_two_sets_of_scopes_opens_nothing() -> None:
    keys = [KeyRef(name, name, "key", None, scopes) for name, scopes in (("k", ("p",)), ("l", ()))]
    digests = {name: {"key": b"d" * 32} for name in "kl"}
    index = build_key_index([TenantFacts("a", "u", "c", keys=tuple(keys))], digests)
    assert index.grants == {}
    assert "different permission scopes" in index.faults[0]
    same = [KeyRef(name, name, "key", None, ("p",)) for name in "kl"]
    index = build_key_index([TenantFacts("a", "u", "c", keys=tuple(same))], digests)
    assert (len(index.grants), index.faults) == (1, ())


def told(headers: dict[str, str], gateway: GatewayUnderTest) -> IdentityClaims:
    return verify_identity(
        headers["fleetward-identity"],
        gateway.signing.verify_key,
        service_uid="uid-apps-s",
        now=time.time(),
    )


async def claims_of(
    gateway: GatewayUnderTest, engine: FakeEngine, body: dict[str, Any], headers: dict[str, str]
) -> IdentityClaims:
    async with gateway.post({"model": "m", **body}, headers=headers) as response:
        assert response.status == 200
    sent, raw = engine.requests.pop()
    assert json.loads(raw) == {"model": "m", **body}
    assert not any(name.startswith("fleetward-") for name in sent if name != "fleetward-identity")
    return told(sent, gateway)


async def test_a_user_is_named_by_header_then_identifier_then_user(
    served: GatewayUnderTest, engine: FakeEngine
) -> None:
    cases: tuple[tuple[dict[str, Any], dict[str, str], str], ...] = (
        ({}, {}, ""),
        ({"user": "u"}, {}, "u"),
        ({"user": "u", "safety_identifier": "s"}, {}, "s"),
        ({"user": "u", "safety_identifier": None}, {}, "u"),
        ({"user": "u", "safety_identifier": ""}, {}, "u"),
        ({"user": ""}, {}, ""),
        ({"user": "\ufffd"}, {}, "\ufffd"),
        ({"user": "u", "safety_identifier": "s"}, {"Fleetward-User": "h"}, "h"),
    )
    for body, headers, name in cases:
        claims = await claims_of(served, engine, body, headers)
        assert claims.user == user_digest(DIGEST_KEY, "a", name)


async def test_session_tags_and_the_keys_scopes_reach_the_engine_as_digests_only(
    served: GatewayUnderTest, engine: FakeEngine
) -> None:
    item = tenant("a")
    item["spec"]["apiKeys"][0]["permissionScopes"] = ["finance", "hr"]
    served.gateway.view.on_tenant("a", None, item)
    users = {
        f"a/{user_digest(DIGEST_KEY, 'a', 'u')}": 3,
        f"a/{user_digest(DIGEST_KEY, 'a', 'v')}": 9,
    }
    served.gateway.view.raise_floors(served.gateway.view.floors.model_copy(update={"users": users}))
    headers = {
        "Fleetward-User": "u", "Fleetward-Session": "s", "Fleetward-Document-Tags": "q3, q4",
    }  # fmt: skip
    claims = await claims_of(served, engine, {}, headers)
    assert claims.session == session_digest(DIGEST_KEY, "a", "u", "s")
    assert claims.permission_scope == permission_scope_digest(DIGEST_KEY, "a", ["finance", "hr"])
    each = [permission_scope_digest(DIGEST_KEY, "a", [name]) for name in ("finance", "hr")]
    assert claims.permission_scopes == tuple(sorted(each))
    tags = [document_tag_digest(DIGEST_KEY, "a", tag) for tag in ("q3", "q4")]
    assert claims.document_tags == tuple(sorted(tags))
    assert claims.floors.as_tuple() == (0, 3, 0, 0)
    item["spec"]["apiKeys"][0]["permissionScopes"] = ["hr"]
    served.gateway.view.on_tenant("a", None, item)
    claims = await claims_of(served, engine, {}, {})
    assert claims.permission_scope == permission_scope_digest(DIGEST_KEY, "a", ["hr"])
    assert claims.permission_scopes == ()
    assert claims.each_permission_scope == (claims.permission_scope,)


async def test_what_names_nobody_clearly_is_refused_before_an_engine_hears_of_it(
    served: GatewayUnderTest, engine: FakeEngine
) -> None:
    bodies: tuple[dict[str, Any], ...] = (
        {"user": 5}, {"user": "x" * 129}, {"safety_identifier": ["u"]}, {"user": {}},
        {"user": "\ud800"},
    )  # fmt: skip
    for body in bodies:
        async with served.post({"model": "m", **body}) as response:
            assert response.status == 400
            assert (await problem(response))["param"] in body
    twice = [("Authorization", f"Bearer {KEY_A}"), ("Fleetward-User", "u"), ("Fleetward-User", "v")]
    async with served.session.post(
        served.url + "/v1/completions", json={"model": "m"}, headers=twice
    ) as response:
        assert response.status == 400
        assert (await problem(response))["param"] == "Fleetward-User"
    assert engine.requests == []
