"""Keys, whole or damaged: no fault, log line or repr of ours shows one."""

from __future__ import annotations

import base64
import logging
from typing import Any, cast

import pytest

from fleetward_api.bundle import EpochSecret
from fleetward_api.fault_words import trail_of
from fleetward_api.logs import FORMAT, WithoutContent
from fleetward_api.member import MemberKeys
from fleetward_engine.server.assembly import local_policy
from fleetward_gateway.admission.keyring import KeyHasher
from fleetward_gateway.cluster.trim import trim_key_secret
from fleetward_gateway.cluster.view import ClusterView
from fleetward_kube import KubeClient
from fleetward_operator.edges.metrics import Metrics
from fleetward_operator.edges.release_keys import SecretStore
from fleetward_operator.edges.writer import Writer
from fleetward_operator.errors import KeysUnreadable
from tests.support.canaries import CANARY
from tests.support.gateway import DIGEST_KEY, b64, key_secret, tenant
from tests.support.object_api import ObjectApi
from tests.support.operator_facts import NOW

KEY = f"sk-{CANARY}-0123456789abcdef"
PEM = f"-----BEGIN PRIVATE KEY-----\n{CANARY}\n-----END PRIVATE KEY-----\n"
DAMAGED = (PEM, CANARY, f"\n{CANARY}", f"{CANARY}é", "")


def shows(*things: object) -> bool:
    """Whether the canary stands in any of them, plainly or as base64 or bytes."""
    told = " ".join(map(str, things)) + " ".join(map(repr, things))
    return any(form in told for form in (CANARY, b64(CANARY.encode())[:-2]))


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What is logged, as our programs print it."""
    caplog.set_level(logging.DEBUG)
    printed: list[str] = []
    formatter = WithoutContent(FORMAT)
    caplog.handler.emit = lambda record: printed.append(formatter.format(record))  # type: ignore[method-assign]
    return printed


@pytest.mark.parametrize("value", [KEY, *DAMAGED])
def test_no_api_key_is_shown_by_the_gateway(value: str, lines: list[str]) -> None:
    view = ClusterView()
    trim = trim_key_secret(KeyHasher(bytes(32)))
    for name in ("a", "b"):
        view.on_tenant(name, None, tenant(name))
        trimmed = trim(key_secret(f"{name}-key", value))
        view.on_secret(f"fleetward-keys/{name}-key", None, trimmed)
    index = view.key_index
    assert view.faults
    assert lines
    assert not shows(index, view.faults, vars(view), *lines)


@pytest.mark.parametrize("value", DAMAGED)
def test_no_damaged_key_of_the_gateway_is_shown(value: str, lines: list[str]) -> None:
    view = ClusterView()
    for data in (
        {"signing.pem": b64(value.encode()), "digest.key": b64(DIGEST_KEY)},
        {"signing.pem": value, "digest.key": value},
        {"signing.pem": b64(PEM.encode()), "digest.key": b64(value.encode())},
    ):
        view.on_own_keys("n/fleetward-gateway-keys", None, {"data": data})
        view.on_trust("n/fleetward-trust", None, {"data": {"operator.pub": value}})
    assert view.own_keys is None
    assert not shows(view.faults, *lines)


@pytest.mark.parametrize("value", DAMAGED)
@pytest.mark.parametrize("name", ["fleetward-operator-keys", "fleetward-cache-epoch"])
async def test_no_damaged_key_of_the_release_is_shown(value: str, name: str) -> None:
    api = ObjectApi()
    client = cast("KubeClient", api)
    writer = Writer(client, may_write=lambda: True, metrics=Metrics(), timeout_s=1.0)
    store = SecretStore(
        client,
        writer,
        namespace="n",
        entropy=lambda size: b"\7" * size,
        now=lambda: NOW,
    )
    await store.release_keys()
    await store.make_epoch()
    path = f"/api/v1/namespaces/n/secrets/{name}"
    for entry in list(api.objects[path]["data"]):
        whole: dict[str, Any] = dict(api.objects[path]["data"])
        api.objects[path]["data"][entry] = base64.b64encode(value.encode()).decode()
        with pytest.raises(KeysUnreadable) as refused:
            await (store.find_epoch() if "epoch" in name else store.release_keys())
        assert not shows(refused.value.message, trail_of(refused.value))
        api.objects[path]["data"] = whole


def test_no_repr_shows_a_key() -> None:
    keys = MemberKeys.generate(pod_uid="p", pod_ip="127.0.0.1")
    epoch = EpochSecret.of(1, b"\7" * 32)
    policy = local_policy()
    view = ClusterView()
    own = {"signing.pem": b64(keys.receipt_key.to_pem()), "digest.key": b64(DIGEST_KEY)}
    view.on_own_keys("n/fleetward-gateway-keys", None, {"data": own})
    assert view.own_keys is not None
    told = repr((keys, epoch, policy, view.own_keys))
    for secret in (epoch.secret, str(policy.secret), str(DIGEST_KEY)[2:-1], "PRIVATE"):
        assert secret not in told
