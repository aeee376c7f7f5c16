"""Which policy governs, what its bundle says, and generations that only grow."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetward_api.bundle import HostTier, PolicyBundle
from fleetward_api.canonical import canonical_bytes
from fleetward_api.floors import Floors
from fleetward_api.scope import Scope
from fleetward_operator.core.gate import claim_of, decide_name_conflict, decide_refusal
from fleetward_operator.core.policy import (
    InForce,
    bundle_content,
    choose_policy,
    last_bundle_content,
    next_bundle,
)
from fleetward_operator.edges.bundles import RETIRED_KEPT, BundleLedger
from fleetward_operator.settings import EngineRules
from tests.support.operator_facts import IMAGE, RULES, first_bundle, policy, service

FLEET = InForce(floors=Floors(), epoch=1)


def content(idle: str = "5m", *, fleet: InForce = FLEET) -> PolicyBundle:
    found = policy("strict", retention={"idleTTL": idle, "maxTTL": "1h"})
    subject = service(cachePolicyRef={"name": "strict"})
    return bundle_content(subject, choose_policy(subject, [found]), fleet=fleet)


def test_the_reference_wins_over_the_default_and_the_oldest_default_counts() -> None:
    old = policy("old", created="2025-01-01T00:00:00Z", namespaceDefault=True)
    new = policy("new", created="2026-01-01T00:00:00Z", namespaceDefault=True)
    named = policy("named")
    everything = [new, named, old]
    assert choose_policy(service(), everything).name == "old"
    subject = service(cachePolicyRef={"name": "named"})
    assert choose_policy(subject, everything).name == "named"
    assert choose_policy(service(), [named]).name == ""


@pytest.mark.parametrize(
    ("invalid", "reason"), [((), "PolicyNotFound"), (("absent",), "PolicyInvalid")]
)
def test_a_policy_that_cannot_be_used_is_named(invalid: tuple[str, ...], reason: str) -> None:
    subject = service(cachePolicyRef={"name": "absent"})
    missing = choose_policy(subject, [], invalid=invalid).missing
    assert missing is not None
    assert missing.reason == reason


def test_a_bundle_says_what_its_policy_says() -> None:
    classes = [
        {"name": "none", "store": "None"},
        {"name": "short", "idleTTL": "1m", "maxTTL": "10m"},
    ]
    found = policy(
        "strict",
        retention={"idleTTL": "5m", "maxTTL": "1h", "classes": classes},
        deletion={"scrub": False, "inFlight": "Finish"},
    )
    subject = service(cachePolicyRef={"name": "strict"})
    bundle = bundle_content(subject, choose_policy(subject, [found]), fleet=FLEET)
    assert (bundle.policy_name, bundle.policy_generation) == ("strict", 3)
    assert (bundle.retention.idle_ttl_ms, bundle.retention.max_ttl_ms) == (300_000, 3_600_000)
    assert bundle.retention.classes["none"].store == "None"
    assert bundle.retention.classes["short"].idle_ttl_ms == 60_000
    assert (bundle.deletion.scrub, bundle.deletion.in_flight) == (False, "Finish")
    assert bundle.service.uid == "uid-demo"


@pytest.mark.parametrize(
    ("spec", "quota", "eviction"),
    [
        ({}, (100, 0), ("LRU", 0)),
        ({"quota": {}}, (100, 0), ("LRU", 0)),
        (
            {
                "quota": {"maxSharePercent": 60, "guaranteedSharePercent": 20},
                "eviction": {"policy": "Priority", "protectedSharePercent": 30},
            },
            (60, 20),
            ("Priority", 30),
        ),
    ],
)
def test_a_bundle_says_who_may_hold_how_much(
    spec: dict[str, Any], quota: tuple[int, int], eviction: tuple[str, int]
) -> None:
    subject = service(cachePolicyRef={"name": "strict"})
    choice = choose_policy(subject, [policy("strict", **spec)])
    bundle = bundle_content(subject, choice, fleet=FLEET)
    told = bundle.quota
    assert (told.max_share_percent, told.guaranteed_share_percent) == quota
    assert (bundle.eviction.policy, bundle.eviction.protected_share_percent) == eviction


def test_a_bundle_carries_the_public_texts() -> None:
    texts = [{"name": "city", "text": "You help."}, {"name": "law", "text": "Be exact.\n"}]
    subject = service(cachePolicyRef={"name": "strict"})
    choice = choose_policy(subject, [policy("strict", sharedPrefixes=texts)])
    bundle = bundle_content(subject, choice, fleet=FLEET)
    assert [(one.name, one.text) for one in bundle.shared_prefixes] == [
        ("city", "You help."),
        ("law", "Be exact.\n"),
    ]
    assert bundle.content_digest != content().content_digest


@pytest.mark.parametrize(
    ("spec", "order"),
    [
        ({}, ("FCFS", None)),
        ({"policy": "WeightedFair"}, ("WeightedFair", None)),
        ({"policy": "Priority", "agingAfter": "30s"}, ("Priority", 30_000)),
    ],
)
def test_a_bundle_says_in_which_order_its_service_takes_requests(
    spec: dict[str, Any], order: tuple[str, int | None]
) -> None:
    subject = service(scheduling=spec)
    told = bundle_content(subject, choose_policy(subject, []), fleet=FLEET).scheduling
    assert (told.policy, told.aging_after_ms) == order


@pytest.mark.parametrize(
    ("spec", "limits"),
    [
        ({}, (None, None)),
        ({"maxPredictedWait": "2s500ms"}, (2500, None)),
        ({"kvHeadroomPercent": 0}, (None, 0)),
        ({"maxPredictedWait": "1m", "kvHeadroomPercent": 10}, (60_000, 10)),
    ],
)
def test_a_bundle_says_which_requests_are_turned_away(
    spec: dict[str, Any], limits: tuple[int | None, int | None]
) -> None:
    subject = service(scheduling={"admission": spec} if spec else {})
    told = bundle_content(subject, choose_policy(subject, []), fleet=FLEET).scheduling.admission
    assert (told.max_predicted_wait_ms, told.kv_headroom_percent) == limits


def test_the_built_in_policy_is_the_schemas_defaults() -> None:
    bundle = first_bundle(service(), choose_policy(service(), []))
    assert bundle.isolation == "Tenant"
    assert bundle.deletion.scrub is True
    assert bundle.retention.max_ttl_ms == 24 * 3_600_000


def test_without_its_policy_a_service_keeps_its_rules_under_todays_floors() -> None:
    last = next_bundle(content(), last=None, seen_generation=0)
    floors = Floors().raised(Scope("alpha"))
    kept = last_bundle_content(last, fleet=InForce(floors=floors, epoch=2))
    assert kept.retention == last.retention
    assert (kept.floors, kept.epoch) == (floors, 2)


@given(
    st.lists(
        st.tuples(st.sampled_from(["1m", "2m", "3m"]), st.integers(0, 2), st.integers(0, 9)),
        min_size=1,
        max_size=30,
    )
)
def test_a_generation_never_falls_and_grows_exactly_with_the_content(
    story: list[tuple[str, int, int]],
) -> None:
    last: PolicyBundle | None = None
    for idle, raises, seen in story:
        floors = Floors()
        for _ in range(raises):
            floors = floors.raised(Scope("alpha"))
        wanted = content(idle, fleet=InForce(floors=floors, epoch=1))
        bundle = next_bundle(wanted, last=last, seen_generation=seen)
        assert bundle.content_digest == wanted.content_digest
        assert bundle.generation >= seen
        if last is not None:
            same = last.content_digest == bundle.content_digest
            assert bundle.generation >= last.generation
            assert (bundle.generation == last.generation) == (same and seen <= last.generation)
        last = bundle


def test_a_ledger_goes_on_from_the_configmap_and_above_what_it_met() -> None:
    kept = content().model_copy(update={"generation": 7})
    configmap = {"data": {"bundle.json": kept.model_dump_json(by_alias=True)}}
    ledger = BundleLedger()
    ledger.recall("uid-demo", configmap)
    assert ledger.settle(content()).generation == 7
    assert ledger.settle(content("1m")).generation == 8
    ledger.saw_generation("uid-demo", 20)
    assert ledger.settle(content("1m")).generation == 21


def test_of_services_that_are_gone_the_last_bundles_are_known_and_no_more() -> None:
    ledger = BundleLedger()
    uids = [f"uid-{number}" for number in range(RETIRED_KEPT + 1)]
    for uid in uids:
        bundle = content()
        service = bundle.service.model_copy(update={"uid": uid})
        ledger.settle(bundle.model_copy(update={"service": service}))
    for uid in ("uid-unknown", *uids[:-1]):
        ledger.retire(uid)
    # A purge that is under way still tells its last engines the floors.
    assert all(ledger.last(uid) for uid in uids)
    ledger.retire(uids[-1])
    assert [uid for uid in uids if ledger.last(uid) is None] == ["uid-0"]


@pytest.mark.parametrize("data", [{}, {"bundle.json": "nonsense"}, {"bundle.json": "{}"}])
def test_an_emptied_configmap_is_no_memory(data: dict[str, str]) -> None:
    ledger = BundleLedger()
    ledger.recall("uid-demo", {"data": data})
    ledger.recall("uid-other", None)
    assert ledger.last("uid-demo") is None


def test_a_bundle_of_an_earlier_service_of_the_name_is_not_recalled() -> None:
    kept = content().model_copy(update={"generation": 7})
    ledger = BundleLedger()
    ledger.recall("uid-new", {"data": {"bundle.json": kept.model_dump_json(by_alias=True)}})
    assert ledger.last("uid-new") is None


def test_of_two_claims_on_a_name_the_older_wins_then_the_uid() -> None:
    old = claim_of(service("old", model={"name": "m", "source": "package://x"}))
    new = claim_of(
        service(
            "new",
            created="2026-02-01T00:00:00Z",
            model={"name": "other", "aliases": ["m"], "source": "package://x"},
        )
    )
    assert decide_name_conflict(old, [new]) is None
    refusal = decide_name_conflict(new, [old])
    assert refusal is not None
    assert refusal.message == "Service apps/old is already served as m: choose other names."
    twin = claim_of(service("twin", model={"name": "m", "source": "package://x"}))
    verdicts = [decide_name_conflict(old, [twin]), decide_name_conflict(twin, [old])]
    assert sum(one is not None for one in verdicts) == 1


def test_a_strangers_namespace_is_not_told() -> None:
    mine = claim_of(service("mine", created="2026-02-01T00:00:00Z"))
    model = {"name": "mine", "source": "package://x"}
    theirs = claim_of(service("secret", namespace="secret", model=model))
    refusal = decide_name_conflict(mine, [theirs])
    assert refusal is not None
    assert "secret" not in refusal.message


@pytest.mark.parametrize(
    ("images", "image", "allowed"),
    [
        ((), IMAGE, True),
        ((), "other.test/x:1", False),
        (("registry.test/*",), "registry.test/a/b:2", True),
        (("registry.test/*",), "registry.test.evil/a:2", False),
    ],
)
def test_images_are_bounded_by_the_allow_list(
    images: tuple[str, ...], image: str, *, allowed: bool
) -> None:
    rules = EngineRules(
        default_image=IMAGE,
        images=images,
        namespaces=("apps",),
        pull_policy="Never",
        scraper_namespaces=(),
    )
    assert (decide_refusal(service(), rules, image=image) is None) == allowed
    elsewhere = decide_refusal(service(namespace="other"), rules, image=image)
    assert elsewhere is not None
    assert elsewhere.reason == "NamespaceNotAllowed"
    assert decide_refusal(service(namespace="other"), RULES, image=IMAGE) is None


def test_a_bundle_says_what_may_go_to_host_memory_and_an_older_engine_reads_it_without() -> None:
    subject = service(cachePolicyRef={"name": "strict"})
    classes = [{"name": "warm", "store": "DeviceAndHost"}]
    host = {"size": "1Gi", "encrypt": False}
    strict = policy("strict", tiers={"host": host}, retention={"classes": classes})
    choice = choose_policy(subject, [strict])
    bundle = bundle_content(subject, choice, fleet=FLEET)
    assert bundle.retention.classes["warm"].store == "DeviceAndHost"
    assert bundle.tiers.host == HostTier(size_bytes=1 << 30, encrypt=False)
    plain = bundle_content(subject, choose_policy(subject, [policy("strict")]), fleet=FLEET)
    assert plain.tiers.host is None
    assert b"tiers" not in canonical_bytes(plain)
