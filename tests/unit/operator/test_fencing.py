"""What was sent by a leader of yesterday bounces off what was written since."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from fleetward_api.keys import SigningKey
from fleetward_api.resources import TenantStatus
from fleetward_kube import KubeError
from fleetward_operator.core.children import ApplyChild, DeleteChild, plan_child
from fleetward_operator.edges.executor import Executor, Owner
from fleetward_operator.edges.member_client import Address, MemberClient
from fleetward_operator.edges.metrics import Metrics
from fleetward_operator.edges.own_writes import OwnWrites
from fleetward_operator.edges.status_writer import StatusWriter
from fleetward_operator.edges.writer import ABSENT, CHILDREN
from fleetward_operator.errors import NotLeading
from fleetward_operator.handlers.replica import Replica
from fleetward_operator.manifests.manifest import stamp
from fleetward_operator.settings import EngineRules, Identity, Settings
from tests.support.eventually import eventually
from tests.support.recorder import Recorder, client, conflict, writer

OWNER = Owner(namespace="n", name="demo", uid="owner")


CHILD = "/api/v1/namespaces/n/configmaps/demo"


TENANT: dict[str, Any] = {
    "apiVersion": "fleetward.io/v1alpha1",
    "kind": "Tenant",
    "metadata": {"name": "alpha", "uid": "t", "resourceVersion": "5", "generation": 1},
}


def wanted(value: str = "new") -> dict[str, Any]:
    metadata = {
        "name": "demo",
        "namespace": "n",
        "labels": {"fleetward.io/service": "demo"},
        "ownerReferences": [
            {"kind": "InferenceService", "name": "demo", "uid": "owner", "controller": True}
        ],
    }
    return stamp(
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"k": value}}
    )


def live(version: str, value: str = "old") -> dict[str, Any]:
    found = wanted(value)
    found["metadata"] |= {"uid": "child", "resourceVersion": version}
    return found


async def test_an_apply_names_the_object_that_was_seen_or_that_there_was_none() -> None:
    api = Recorder({}, {})
    manifest = wanted()
    await writer(api).apply(manifest, manager=CHILDREN, seen=live("7"))
    await writer(api).apply(manifest, manager=CHILDREN, seen=None)
    told = [body["metadata"] for _, _, body in api.sent]
    assert (told[0]["uid"], told[0]["resourceVersion"]) == ("child", "7")
    assert ("uid" in told[1], told[1]["resourceVersion"]) == (False, ABSENT)
    assert "resourceVersion" not in manifest["metadata"]


async def test_no_write_of_what_exists_goes_without_a_precondition() -> None:
    api = Recorder(TENANT)
    await writer(api).delete("ConfigMap", "n", "demo", seen=live("7"))
    assert api.sent[0][2]["preconditions"] == {"uid": "child", "resourceVersion": "7"}
    with pytest.raises(ValueError, match="no resource version"):
        await writer(api).replace(wanted(), manager=CHILDREN)
    with pytest.raises(ValueError, match="no resource version"):
        await writer(api).merge("ConfigMap", "n", "demo", patch={"metadata": {}}, manager="m")
    assert len(api.sent) == 1


async def test_a_child_that_its_controller_writes_meanwhile_is_decided_upon_anew() -> None:
    api = Recorder(conflict(), live("8"), live("9", "new"))
    outcome = await execute(api, plan_child(wanted(), live("7"), owner_uid="owner"))
    assert api.preconditions() == ["7", "8"]
    assert len(outcome.announcements) == 1


async def test_a_child_that_another_leader_has_settled_is_left_alone() -> None:
    api = Recorder(conflict(), live("8", "new"))
    outcome = await execute(api, plan_child(wanted(), live("7"), owner_uid="owner"))
    assert api.preconditions() == ["7"]
    assert outcome.announcements == []


@pytest.mark.parametrize("then", [KubeError(404, "NotFound", "gone"), {}])
async def test_a_child_that_is_another_by_now_waits_for_the_next_pass(then: Any) -> None:
    if then == {}:
        then = live("8")
        then["metadata"]["ownerReferences"][0]["uid"] = "another"
    api = Recorder(conflict(), then)
    with pytest.raises(KubeError, match="Conflict"):
        await execute(api, plan_child(wanted(), live("7"), owner_uid="owner"))
    assert api.preconditions() == ["7"]


async def test_a_child_that_is_written_all_the_time_is_given_up_for_this_pass() -> None:
    api = Recorder(*[one for n in range(10) for one in (conflict(), live(str(n)))])
    with pytest.raises(KubeError, match="Conflict"):
        await execute(api, plan_child(wanted(), live("7"), owner_uid="owner"))
    assert len(api.preconditions()) == 5


async def test_a_removal_that_bounces_is_decided_upon_anew() -> None:
    action = DeleteChild(kind="ConfigMap", namespace="n", name="demo", seen=live("7"), reason="x")
    there = {"metadata": {"uid": OWNER.uid}}
    with pytest.raises(KubeError, match="Conflict"):
        await execute(Recorder(there, conflict()), action)
    await execute(Recorder(there, KubeError(404, "NotFound", "gone")), action)


async def execute(api: Recorder, action: ApplyChild | DeleteChild | None) -> Any:
    assert action is not None
    executor = Executor(client(api), writer(api), OwnWrites(lambda: 0.0))
    return await executor.execute([action], owner=OWNER)


async def test_a_status_stands_although_others_write_the_object() -> None:
    later = {**TENANT, "metadata": {**TENANT["metadata"], "resourceVersion": "6"}}
    api = Recorder(conflict(), later, {**TENANT, "status": {}})
    assert await write_status(api) is None
    assert api.preconditions() == ["5", "6"]


@pytest.mark.parametrize(
    "changes",
    [
        {"metadata": {**TENANT["metadata"], "generation": 2}},
        {"metadata": {**TENANT["metadata"], "uid": "another"}},
        {"status": {"keys": 3}},
        {"status": {"keys": "three"}},
    ],
)
async def test_a_status_planned_upon_something_else_bounces(changes: dict[str, Any]) -> None:
    api = Recorder(conflict(), {**TENANT, **changes})
    with pytest.raises(KubeError, match="Conflict"):
        await write_status(api)
    assert api.preconditions() == ["5"]


async def test_a_guarded_status_bounces_off_anything() -> None:
    with pytest.raises(KubeError, match="Conflict"):
        await write_status(Recorder(conflict()), guarded=True)


NEWER = {**TENANT, "metadata": {**TENANT["metadata"], "resourceVersion": "7"}}


@pytest.mark.parametrize(
    ("newest", "guarded", "named"),
    [
        (NEWER, False, "7"),
        ({**NEWER, "status": {"keys": 3}}, False, "5"),
        ({**NEWER, "metadata": {**NEWER["metadata"], "generation": 9}}, False, "5"),
        (NEWER, True, "5"),
    ],
)
async def test_a_status_names_the_newest_copy_that_it_fits(
    newest: dict[str, Any], guarded: bool, named: str
) -> None:
    api = Recorder(TENANT)
    await write_status(api, guarded=guarded, newest=newest)
    assert api.preconditions() == [named]


async def write_status(
    api: Recorder, *, guarded: bool = False, newest: dict[str, Any] | None = None
) -> float | None:
    statuses = StatusWriter(
        client(api),
        writer(api),
        OwnWrites(lambda: 0.0),
        newest=lambda _kind, _key: newest,
        clock=lambda: 0.0,
    )
    after = TenantStatus(keys=1)
    return await statuses.write(TENANT, before=TenantStatus(), after=after, guarded=guarded)


class Held(Recorder):
    """Answers when it is let."""

    def __init__(self, *answers: dict[str, Any] | Exception) -> None:
        super().__init__(*answers)
        self.open = asyncio.Event()

    async def request(self, method: str, path: str, **kwargs: Any) -> dict[str, Any]:
        await self.open.wait()
        return await super().request(method, path, **kwargs)


@pytest.mark.parametrize(
    ("answer", "landed"),
    [({}, True), (conflict(), True), (KubeError(0, "Timeout", "no answer"), False)],
)
async def test_draining_waits_for_answers_and_tells_whether_there_are(
    answer: Any, landed: bool
) -> None:
    api = Held(answer)
    made = writer(api)
    sending = asyncio.create_task(made.apply(wanted(), manager=CHILDREN, seen=None))
    await asyncio.sleep(0)
    draining = asyncio.create_task(made.drain())
    await asyncio.sleep(0)
    assert not draining.done()
    assert not made.leads()
    with pytest.raises(NotLeading):
        await made.apply(wanted(), manager=CHILDREN, seen=None)
    api.open.set()
    assert await draining is landed
    await asyncio.gather(sending, return_exceptions=True)


async def test_a_write_that_was_broken_off_may_still_arrive() -> None:
    made = writer(Held())
    sending = asyncio.create_task(made.apply(wanted(), manager=CHILDREN, seen=None))
    await asyncio.sleep(0)
    sending.cancel()
    await asyncio.gather(sending, return_exceptions=True)
    assert await made.drain() is False


async def test_a_replica_that_is_told_to_stop_lets_its_writes_land() -> None:
    api, made = Held({}), None
    identity = Identity(pod_name="p", namespace="n", pod_uid="p")
    rules = EngineRules(
        default_image="e",
        images=(),
        namespaces=("*",),
        pull_policy="Never",
        scraper_namespaces=(),
    )
    settings = Settings(identity=identity, key_namespace="k", engine=rules, gateway_url="")
    replica = Replica(client(api), settings, Metrics())
    replica._store.informers.clear()
    answers: list[Any] = []

    async def lead() -> None:
        nonlocal made
        replica._writer = made = writer(api)
        answers.append(await made.apply(wanted(), manager=CHILDREN, seen=None))
        await asyncio.Event().wait()

    async def candidate() -> None:
        await asyncio.Event().wait()

    replica._lead = lead  # type: ignore[method-assign]
    replica._leadership.run = candidate  # type: ignore[method-assign]
    running = asyncio.create_task(replica.run())
    await eventually(lambda: made is not None and not made._idle.is_set())
    running.cancel()
    await asyncio.sleep(0.01)
    assert not running.done()
    api.open.set()
    await asyncio.gather(running, return_exceptions=True)
    assert answers == [{}]
    assert replica._landed


async def test_a_lost_lease_silences_calls_to_members_too() -> None:
    calls = MemberClient(
        key=SigningKey.generate(),
        wall=lambda: 0.0,
        request_id=lambda: "r",
        metrics=Metrics(),
        may_call=lambda: False,
        timeout_s=1.0,
    )
    await calls.open()
    address = Address(host="127.0.0.1", port=9, pod_uid="u", pod="n/p")
    with pytest.raises(NotLeading):
        await calls.call("PUT", "/policy", address=address, fingerprint="sha256:" + "0" * 64)
    await calls.close()
