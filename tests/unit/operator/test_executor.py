"""Children that cannot be written now do not hold up the others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest

from fleetward_kube import KubeClient, KubeError
from fleetward_operator.core.children import ApplyChild, DeleteChild
from fleetward_operator.edges.executor import CONFIRMED_S, Executor, Outcome, Owner
from fleetward_operator.edges.metrics import Metrics
from fleetward_operator.edges.own_writes import OwnWrites
from fleetward_operator.edges.writer import Writer
from fleetward_operator.manifests.manifest import stamp
from tests.support.object_api import ObjectApi

OWNER = Owner(namespace="n", name="demo", uid="owner")
CONFIGMAPS = "/api/v1/namespaces/n/configmaps"
SERVICE = "/apis/fleetward.io/v1alpha1/namespaces/n/inferenceservices/demo"


class Throttling(ObjectApi):
    """Puts off the writes of some objects, each for so many seconds."""

    def __init__(self, put_off: dict[str, float]) -> None:
        super().__init__()
        self.put_off = put_off
        self.objects[SERVICE] = {
            "kind": "InferenceService",
            "metadata": {"name": "demo", "namespace": "n", "uid": "owner"},
        }

    async def request(self, method: str, path: str, **kwargs: Any) -> dict[str, Any]:
        wait_s = self.put_off.get(path.rpartition("/")[2])
        if method != "GET" and wait_s is not None:
            raise KubeError(429, "TooManyRequests", "later", retry_after_s=wait_s)
        return await super().request(method, path, **kwargs)


def child(name: str, *, uid: str = "owner") -> dict[str, Any]:
    owner = {"kind": "InferenceService", "name": "demo", "uid": uid, "controller": True}
    metadata = {
        "name": name,
        "namespace": "n",
        "labels": {"fleetward.io/service": "demo"},
        "ownerReferences": [owner],
    }
    return stamp({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {}})


def missing(name: str) -> ApplyChild:
    return ApplyChild(manifest=child(name), why="Missing")


def executor(api: ObjectApi, clock: Callable[[], float] = lambda: 0.0) -> Executor:
    client = cast("KubeClient", api)
    writer = Writer(client, may_write=lambda: True, metrics=Metrics(), timeout_s=1.0)
    return Executor(client, writer, OwnWrites(lambda: 0.0), clock=clock)


async def execute(api: ObjectApi, *actions: ApplyChild | DeleteChild) -> Outcome:
    return await executor(api).execute(actions, owner=OWNER)


async def test_those_that_are_not_put_off_are_made_and_the_longest_wait_is_told() -> None:
    api = Throttling({"a": 1.0, "c": 3.0, "gone": 2.0})
    gone = DeleteChild(kind="ConfigMap", namespace="n", name="gone", seen=child("gone"), reason="x")
    gone.seen["metadata"].update(uid="u", resourceVersion="7")
    outcome = await execute(api, missing("a"), gone, missing("b"), missing("c"), missing("d"))
    assert outcome.put_off is not None
    assert outcome.put_off.retry_after_s == 3.0
    assert [one.message for one in outcome.announcements] == ["Applied ConfigMap b, ConfigMap d."]
    made = [path.rpartition("/")[2] for path in api.objects if path.startswith(CONFIGMAPS)]
    assert sorted(made) == ["b", "d"]


async def test_a_service_is_looked_at_once_for_what_is_put_off_and_again_later() -> None:
    api, now = Throttling({"a": 1.0}), [0.0]
    made = executor(api, clock=lambda: now[0])
    assert (await made.execute([missing("a")], owner=OWNER)).put_off is not None
    del api.objects[SERVICE]
    now[0] = CONFIRMED_S - 0.1
    assert not (await made.execute([missing("a")], owner=OWNER)).parent_gone
    now[0] = CONFIRMED_S
    api.put_off.clear()
    assert (await made.execute([missing("a")], owner=OWNER)).parent_gone
    assert f"{CONFIGMAPS}/a" not in api.objects


async def test_where_nothing_is_put_off_each_pass_looks_at_the_service() -> None:
    api = Throttling({})
    made = executor(api)
    assert (await made.execute([missing("a")], owner=OWNER)).put_off is None
    del api.objects[SERVICE]
    assert (await made.execute([missing("b")], owner=OWNER)).parent_gone
    assert f"{CONFIGMAPS}/b" not in api.objects


def of_an_earlier_service(name: str) -> DeleteChild:
    seen = child(name, uid="another")
    seen["metadata"] |= {"uid": "u", "resourceVersion": "7"}
    return DeleteChild(kind="ConfigMap", namespace="n", name=name, seen=seen, reason="x")


async def test_the_children_of_a_successor_are_left_alone_where_the_watch_lags() -> None:
    api, gone = Throttling({}), of_an_earlier_service("a")
    api.objects[f"{CONFIGMAPS}/a"] = dict(gone.seen)
    api.objects[SERVICE]["metadata"]["uid"] = "another"
    assert (await execute(api, gone)).parent_gone
    assert f"{CONFIGMAPS}/a" in api.objects
    api.objects[SERVICE]["metadata"]["uid"] = "owner"
    assert not (await execute(api, gone)).parent_gone
    assert f"{CONFIGMAPS}/a" not in api.objects


async def test_an_api_server_that_answers_nothing_is_asked_once() -> None:
    api = ObjectApi()
    api.away = True
    with pytest.raises(KubeError):
        await execute(api, missing("a"), missing("b"))
    assert api.writes == []


async def test_a_name_that_another_object_has_is_told_and_the_object_left_alone() -> None:
    api = Throttling({})
    other = child("a", uid="stranger")
    other["metadata"]["ownerReferences"][0] |= {"kind": "Notebook", "name": "mine"}
    other["metadata"] |= {"uid": "u", "resourceVersion": "7"}
    api.objects[f"{CONFIGMAPS}/a"] = other
    outcome = await execute(api, missing("a"), missing("b"))
    assert outcome.taken == ["ConfigMap a"]
    assert api.objects[f"{CONFIGMAPS}/a"] == other
    assert f"{CONFIGMAPS}/b" in api.objects
