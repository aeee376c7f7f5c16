"""Endpoints from slices; filter, score, pick."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetward_gateway.routing.endpoints import Endpoint, EndpointTable, endpoints_of_slice
from fleetward_gateway.routing.load import SUSPECT_S, EngineLoad
from fleetward_gateway.routing.pick import filter_endpoints, pick_endpoint, score_load


def slice_(*endpoints: dict[str, Any], service: str = "s", **fields: Any) -> dict[str, Any]:
    return {
        "metadata": {"namespace": "n", "name": "x", "labels": {"fleetward.io/service": service}},
        "addressType": "IPv4",
        "ports": [{"name": "http", "port": 8000}],
        "endpoints": list(endpoints),
        **fields,
    }


def endpoint(address: str, **conditions: Any) -> dict[str, Any]:
    target = {"uid": f"pod-{address}"}
    return {"addresses": [address], "conditions": conditions, "targetRef": target}


@pytest.mark.parametrize(
    ("conditions", "counts"),
    [
        ({}, True),
        ({"ready": None}, True),
        ({"ready": True}, True),
        ({"ready": False}, False),
        ({"ready": True, "terminating": True}, False),
        ({"ready": False, "serving": True, "terminating": True}, False),
    ],
)
def test_only_ready_endpoints_count(conditions: dict[str, Any], counts: bool) -> None:
    found = endpoints_of_slice(slice_(endpoint("10.0.0.1", **conditions)))
    assert found == ((Endpoint("pod-10.0.0.1", "10.0.0.1:8000"),) if counts else ())


@pytest.mark.parametrize(
    ("ports", "port"),
    [
        ([{"name": "metrics", "port": 9090}, {"name": "http", "port": 8000}], 8000),
        ([{"port": 8000}], 8000),
        ([{"name": "http", "port": 8000, "protocol": "UDP"}], None),
        ([{"name": "a", "port": 1}, {"name": "b", "port": 2}], None),
        ([{"name": "http", "port": None}], None),
        ([], None),
        (None, None),
    ],
)
def test_the_port_is_the_one_named_http_or_the_only_one(ports: Any, port: int | None) -> None:
    found = endpoints_of_slice(slice_(endpoint("10.0.0.1"), ports=ports))
    assert [e.address for e in found] == ([] if port is None else [f"10.0.0.1:{port}"])


def test_addresses_of_both_families_and_no_others() -> None:
    six = slice_(endpoint("fd00::1"), addressType="IPv6")
    assert endpoints_of_slice(six)[0].address == "[fd00::1]:8000"
    assert endpoints_of_slice(slice_(endpoint("a.example"), addressType="FQDN")) == ()
    assert endpoints_of_slice(slice_({"addresses": []}, {})) == ()


def test_the_table_follows_slices_that_move_and_vanish() -> None:
    table = EndpointTable()
    table.replace("n/x", None, slice_(endpoint("10.0.0.1"), endpoint("10.0.0.2")))
    table.replace("n/y", None, slice_(endpoint("10.0.0.2"), endpoint("10.0.0.3")))
    assert len(table.ready("n", "s")) == 3
    assert table.ready("other", "s") == ()
    table.replace("n/x", slice_(), None)
    assert {e.uid for e in table.ready("n", "s")} == {"pod-10.0.0.2", "pod-10.0.0.3"}
    table.replace("n/y", None, slice_(endpoint("10.0.0.3", ready=False)))
    assert table.ready("n", "s") == ()
    table.replace("n/y", slice_(), None)
    table.replace("n/y", slice_(), None)
    assert table == EndpointTable()


counts = st.dictionaries(st.sampled_from("abcdef"), st.integers(-3, 10**9))


def pods(uids: str) -> list[Endpoint]:
    return [Endpoint(uid, f"{uid}:1") for uid in uids]


@given(counts, st.integers())
def test_the_pick_is_always_one_of_the_least_loaded(in_flight: dict[str, int], seed: int) -> None:
    endpoints = pods("abcdef")
    picked = pick_endpoint(endpoints, in_flight=in_flight, rng=random.Random(seed))  # noqa: S311
    assert picked is not None
    assert max(0, in_flight.get(picked.uid, 0)) == min(
        max(0, in_flight.get(e.uid, 0)) for e in endpoints
    )


def test_ties_are_spread_and_a_seed_repeats() -> None:
    def picks(seed: int) -> list[str]:
        rng = random.Random(seed)  # noqa: S311
        found = [pick_endpoint(pods("abcd"), in_flight={}, rng=rng) for _ in range(400)]
        return [e.uid for e in found if e is not None]

    assert picks(7) == picks(7)
    assert min(Counter(picks(7)).values()) > 60


@given(st.integers(-(10**18), 10**18))
def test_scores_lie_in_zero_to_one(in_flight: int) -> None:
    assert 0.0 <= score_load(in_flight) <= 1.0


def test_nothing_to_pick_is_none() -> None:
    assert pick_endpoint([], in_flight={}, rng=random.Random(0)) is None  # noqa: S311


@given(st.sets(st.sampled_from("abc")), st.sets(st.sampled_from("abc")))
def test_suspects_are_passed_over_unless_nothing_else_is_left(
    tried: set[str], suspects: set[str]
) -> None:
    found = {e.uid for e in filter_endpoints(pods("abc"), tried=tried, suspects=suspects)}
    fresh = set("abc") - tried
    assert found == (fresh - suspects or fresh)


def test_counts_go_back_to_nothing_and_suspicion_ends() -> None:
    load = EngineLoad()
    for _ in range(3):
        load.begin("a")
    assert load.in_flight == {"a": 3}
    for _ in range(3):
        load.end("a")
    assert load.in_flight == {}
    load.suspect("a", 10.0)
    load.suspect("b", 11.0)
    assert load.suspects(10.0) == {"a", "b"}
    assert load.suspects(10.0 + SUSPECT_S) == {"b"}
    load.trust("b")
    assert load.suspects(0.0) == frozenset()
