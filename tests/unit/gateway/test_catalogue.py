"""Served names: who keeps one, who sees one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fleetward_api.resources import LabelSelector
from fleetward_gateway.admission.catalogue import Catalogue
from fleetward_gateway.admission.facts import ServiceFacts, TenantFacts

EVERYONE = LabelSelector()


def service(
    name: str,
    *names: str,
    created: str = "2026-01-01T00:00:00Z",
    selector: LabelSelector | None = EVERYONE,
) -> ServiceFacts:
    return ServiceFacts("ns", name, f"uid-{name}", created, names, selector)


def tenant(**labels: str) -> TenantFacts:
    return TenantFacts("t", "u", "c", labels=tuple(sorted(labels.items())))


def test_the_older_service_keeps_a_name_and_the_uid_decides_a_tie() -> None:
    old = service("z", "m", created="2026-01-01T00:00:00Z")
    young = service("a", "m", "alias", created="2026-01-01T00:00:01Z")
    twin = service("b", "alias", created="2026-01-01T00:00:01Z")
    catalogue = Catalogue([twin, young, old])
    assert catalogue.owners == {"m": old, "alias": young}
    assert [(c.name, c.keeper.name, c.loser.name) for c in catalogue.conflicts] == [
        ("m", "z", "a"),
        ("alias", "a", "b"),
    ]


def test_a_younger_service_does_not_get_a_name_by_admitting_more_tenants() -> None:
    closed = service("old", "m", selector=None)
    opened = service("new", "m", created="2027-01-01T00:00:00Z")
    assert Catalogue([closed, opened]).view(tenant()) == {}


def test_no_selector_is_nobody_and_an_empty_one_everybody() -> None:
    only_x = LabelSelector.model_validate({"matchLabels": {"team": "x"}})
    catalogue = Catalogue(
        [
            service("n", "none", selector=None),
            service("e", "every"),
            service("x", "x", selector=only_x),
        ]
    )
    assert set(catalogue.view(tenant())) == {"every"}
    assert set(catalogue.view(tenant(team="x"))) == {"every", "x"}
    assert set(catalogue.view(tenant(team="y"))) == {"every"}


@given(st.permutations([service(c, "m", f"own-{c}") for c in "abcd"]))
def test_the_order_of_arrival_does_not_matter(services: list[ServiceFacts]) -> None:
    owners = Catalogue(services).owners
    assert owners["m"].name == "a"
    assert {owners[f"own-{c}"].name for c in "abcd"} == set("abcd")


def test_a_view_follows_the_labels_of_the_tenant() -> None:
    only_x = LabelSelector.model_validate({"matchLabels": {"team": "x"}})
    catalogue = Catalogue([service("x", "x", selector=only_x)])
    assert set(catalogue.view(tenant(team="x"))) == {"x"}
    assert catalogue.view(tenant(team="x")) is catalogue.view(tenant(team="x"))
    assert set(catalogue.view(tenant())) == set()
