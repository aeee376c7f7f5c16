"""The first start, killed at every write; and floors that are lost afterwards."""

from __future__ import annotations

from typing import cast

import pytest

from fleetward_kube import KubeClient
from fleetward_operator.edges.bootstrap import begin, settle_floors
from fleetward_operator.edges.floors_store import FLOORS, FloorsStore
from fleetward_operator.edges.metrics import Metrics
from fleetward_operator.edges.release_keys import EPOCH_SECRET, SecretStore
from fleetward_operator.edges.store import Store
from fleetward_operator.edges.writer import Writer
from tests.support.object_api import Killed, ObjectApi
from tests.support.operator_facts import NOW

CONFIGMAPS = "/api/v1/namespaces/n/configmaps"


def floors(api: ObjectApi) -> FloorsStore:
    client = cast("KubeClient", api)
    return FloorsStore(client, writer(client), namespace="n")


def writer(client: KubeClient) -> Writer:
    return Writer(client, may_write=lambda: True, metrics=Metrics(), timeout_s=1.0)


class NothingTold:
    """Stands in for a `Store` of a cluster without services and purges."""

    def keys(self, kind: str) -> list[str]:
        del kind
        return []


def secrets(api: ObjectApi) -> SecretStore:
    client = cast("KubeClient", api)
    return SecretStore(
        client,
        writer(client),
        namespace="n",
        entropy=lambda size: b"\7" * size,
        now=lambda: NOW,
    )


async def begun(api: ObjectApi) -> int:
    return (await begin(floors(api), secrets(api), cast("Store", NothingTold()))).number


@pytest.mark.parametrize("fate", ["touched", "deleted"])
async def test_floors_that_are_lost_after_the_epochs_secret_changed_begin_again(fate: str) -> None:
    api = ObjectApi()
    await begun(api)
    epoch = await secrets(api).find_epoch()
    del api.objects[f"{CONFIGMAPS}/{FLOORS}"]
    path = f"/api/v1/namespaces/n/secrets/{EPOCH_SECRET}"
    if fate == "touched":
        api.objects[path]["metadata"]["resourceVersion"] = "999"
    else:
        del api.objects[path]
    rotated = await settle_floors(floors(api), secrets(api), cast("Store", NothingTold()), epoch)
    assert rotated is not None
    assert rotated.number == 2
    assert await floors(api).read() is not None


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("write", [1, 2])
async def test_a_first_start_killed_at_any_write_is_no_loss_of_floors(
    write: int, *, after: bool
) -> None:
    api = ObjectApi()
    api.kill_at, api.after = write, after
    with pytest.raises(Killed):
        await begun(api)
    assert await begun(api) == 1
    writes = len(api.writes)
    assert await begun(api) == 1
    assert len(api.writes) == writes


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("write", [1, 2])
async def test_lost_floors_never_come_back_under_the_epoch_of_before(
    write: int, *, after: bool
) -> None:
    api = ObjectApi()
    assert await begun(api) == 1
    del api.objects[f"{CONFIGMAPS}/{FLOORS}"]
    api.kill_at, api.after = len(api.writes) + write, after
    with pytest.raises(Killed):
        await begun(api)
    assert await begun(api) >= 2
    assert await floors(api).read() is not None
