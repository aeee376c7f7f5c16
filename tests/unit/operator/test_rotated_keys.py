"""The gateways' signing key, rotated by people: followed, published beside the one before."""

from __future__ import annotations

import base64
from dataclasses import replace
from typing import cast

import pytest

from fleetward_api.keys import SigningKey
from fleetward_kube import KubeClient
from fleetward_operator.edges.metrics import Metrics
from fleetward_operator.edges.release_keys import GATEWAY_KEYS, SecretStore
from fleetward_operator.edges.writer import Writer
from fleetward_operator.errors import KeysUnreadable
from fleetward_operator.manifests.trust import build_release_trust
from tests.support.object_api import ObjectApi
from tests.support.operator_facts import NOW

GATEWAY_PATH = f"/api/v1/namespaces/n/secrets/{GATEWAY_KEYS}"


def secrets(api: ObjectApi) -> SecretStore:
    client = cast("KubeClient", api)
    writer = Writer(client, may_write=lambda: True, metrics=Metrics(), timeout_s=1.0)
    return SecretStore(
        client,
        writer,
        namespace="n",
        entropy=lambda size: b"\7" * size,
        now=lambda: NOW,
    )


def entries(**values: bytes) -> dict[str, str]:
    return {f"{name}.pem": base64.b64encode(raw).decode() for name, raw in values.items()}


async def test_the_gateways_keys_are_followed_and_the_others_stay() -> None:
    api = ObjectApi()
    first = await secrets(api).release_keys()
    assert first.public.gateway_overlap == ""
    data = api.objects[GATEWAY_PATH]["data"]
    old, new = first.gateway, SigningKey.generate()
    data.update(entries(overlap=new.to_pem()))
    announced = await secrets(api).follow_gateway_keys(first)
    assert announced.public == replace(first.public, gateway_overlap=new.verify_key.to_b64())
    data.update(entries(signing=new.to_pem(), overlap=old.to_pem()))
    swapped = await secrets(api).follow_gateway_keys(announced)
    assert swapped.gateway.verify_key == new.verify_key
    assert swapped.public.gateway_overlap == old.verify_key.to_b64()
    # A new leader reads the same, in the middle of it too.
    assert (await secrets(api).release_keys()).public == swapped.public
    del data["overlap.pem"]
    done = await secrets(api).follow_gateway_keys(swapped)
    assert done.public == replace(first.public, gateway=new.verify_key.to_b64())
    assert (done.signing, done.sealing, done.digest) == (first.signing, first.sealing, first.digest)


async def test_the_gateways_secret_is_made_again_of_the_key_in_force() -> None:
    api = ObjectApi()
    first = await secrets(api).release_keys()
    made = api.objects.pop(GATEWAY_PATH)
    assert (await secrets(api).follow_gateway_keys(first)).public == first.public
    assert api.objects[GATEWAY_PATH]["data"] == made["data"]


@pytest.mark.parametrize("entry", ["signing", "overlap"])
async def test_a_spoilt_key_of_the_gateways_is_named_and_not_overwritten(entry: str) -> None:
    api = ObjectApi()
    first = await secrets(api).release_keys()
    api.objects[GATEWAY_PATH]["data"].update(entries(**{entry: b"no key"}))
    writes = len(api.writes)
    for read in (secrets(api).release_keys, lambda: secrets(api).follow_gateway_keys(first)):
        with pytest.raises(KeysUnreadable, match=f"{GATEWAY_KEYS}: {entry}.pem"):
            await read()
    assert len(api.writes) == writes


async def test_a_second_key_is_published_in_an_entry_of_its_own() -> None:
    api = ObjectApi()
    keys = await secrets(api).release_keys()
    alone = build_release_trust(keys.public, namespace="n")["data"]
    assert set(alone) == {"operator.pub", "sealing.pub", "gateway.pub"}
    rotating = replace(keys, gateway_overlap=SigningKey.generate())
    data = build_release_trust(rotating.public, namespace="n")["data"]
    # Who knows of one key only goes on reading the one that signs.
    assert data == {**alone, "gateway-overlap.pub": rotating.public.gateway_overlap}
    assert data["gateway-overlap.pub"] != alone["gateway.pub"]
