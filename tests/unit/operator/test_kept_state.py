"""Floors, evidence and purge records: killed at every write, they go on and lose nothing."""

from __future__ import annotations

from typing import Any, cast

import pytest

from fleetward_api.chain_log import ChainHead
from fleetward_api.evidence import Cut, Header, build_evidence, evidence_head, verify_evidence
from fleetward_api.floors import Floors
from fleetward_api.keys import SigningKey
from fleetward_api.scope import Scope
from fleetward_kube import KubeClient, KubeError
from fleetward_operator.core.purge.state import Member, Phase, PurgeState
from fleetward_operator.edges.evidence_store import EvidenceStore
from fleetward_operator.edges.floors_store import FLOORS, FloorsStore
from fleetward_operator.edges.holds import FINALIZER, PodHolds
from fleetward_operator.edges.metrics import Metrics
from fleetward_operator.edges.purge_record import PurgeRecords
from fleetward_operator.edges.release_keys import EPOCH_SECRET, OPERATOR_KEYS, SecretStore
from fleetward_operator.edges.writer import Writer
from fleetward_operator.errors import KeysUnreadable, NotLeading, StateLost
from tests.support.object_api import Killed, ObjectApi
from tests.support.operator_facts import NOW

ALPHA = Scope("alpha")
KEY = SigningKey.generate()
CONFIGMAPS = "/api/v1/namespaces/n/configmaps"
POD = "/api/v1/namespaces/n/pods/p"
SECRETS = "/api/v1/namespaces/n/secrets"


def client(api: ObjectApi) -> KubeClient:
    return cast("KubeClient", api)


def writer(api: ObjectApi, *, leads: bool = True) -> Writer:
    return Writer(client(api), may_write=lambda: leads, metrics=Metrics(), timeout_s=1.0)


def floors(api: ObjectApi) -> FloorsStore:
    return FloorsStore(client(api), writer(api), namespace="n")


def evidence(api: ObjectApi) -> EvidenceStore:
    return EvidenceStore(client(api), writer(api), namespace="n")


def build(uid: str) -> object:
    def made(previous: ChainHead) -> bytes:
        header = Header(
            sequence=previous.sequence + 1,
            previous=previous,
            purge_uid=uid,
            scope_digest="a" * 64,
            scope_kind="tenant",
            cut=Cut(floor=1, floors_version=1),
            operator_key=KEY.verify_key.to_b64(),
            started_at=1,
        )
        return build_evidence(header=header, members=[], outcomes=[], key=KEY, completed_at=2)

    return made


async def store(api: ObjectApi, uid: str) -> str:
    stored = await evidence(api).store(uid, uid, build(uid))  # type: ignore[arg-type]
    return stored.digest


async def test_a_floor_is_raised_once_per_call_and_survives() -> None:
    api = ObjectApi()
    await floors(api).start_over(Floors())
    first = await floors(api).raise_floor(ALPHA)
    second = await floors(api).raise_floor(ALPHA)
    assert (first.floors.floor_of(ALPHA), second.floors.floor_of(ALPHA)) == (1, 2)
    assert (first.floors.version, second.floors.version) == (1, 2)
    read = await floors(api).read()
    assert read is not None
    assert read.floors == second.floors


async def test_a_floor_raised_beside_another_writer_keeps_both() -> None:
    api = ObjectApi()
    one, other = floors(api), floors(api)
    await one.start_over(Floors())
    await other.read()
    await one.raise_floor(ALPHA)
    raised = await other.raise_floor(Scope("beta"))
    assert raised.floors.tenants == {"alpha": 1, "beta": 1}


async def test_floors_that_someone_lowered_are_written_back_higher() -> None:
    api = ObjectApi()
    kept = floors(api)
    await kept.start_over(Floors())
    await kept.raise_floor(ALPHA)
    await floors(api).start_over(Floors(version=9))
    read = await kept.read()
    assert read is not None
    assert read.floors.tenants == {"alpha": 1}
    assert read.floors.version == 10
    assert (await floors(api).read()) == read


async def test_lost_floors_are_said_and_not_made_up() -> None:
    api = ObjectApi()
    kept = floors(api)
    with pytest.raises(StateLost):
        _ = kept.current
    await kept.start_over(Floors())
    del api.objects[f"{CONFIGMAPS}/{FLOORS}"]
    with pytest.raises(StateLost, match="gone"):
        await kept.raise_floor(ALPHA)


async def test_lost_floors_begin_again_above_what_this_process_saw() -> None:
    api = ObjectApi()
    kept = floors(api)
    await kept.start_over(Floors())
    before = await kept.raise_floor(ALPHA)
    del api.objects[f"{CONFIGMAPS}/{FLOORS}"]
    assert await kept.read() is None
    after = await kept.start_over(Floors(tenants={"beta": 4}))
    assert after.floors.tenants == {"alpha": 1, "beta": 4}
    assert after.floors.version > before.floors.version


async def test_the_floor_just_raised_is_never_the_one_folded_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("fleetward_operator.edges.floors_store.MAX_FINER_FLOORS", 2)
    api = ObjectApi()
    kept = floors(api)
    await kept.start_over(Floors())
    for number in range(5):
        scope = Scope("alpha", user=f"u{number}")
        raised = (await kept.raise_floor(scope)).floors
        assert raised.finer_count <= 2
        assert raised.floor_of(scope) > raised.floor_of(ALPHA)


async def test_evidence_is_one_chain() -> None:
    api = ObjectApi()
    first, second = await store(api, "one"), await store(api, "two")
    data = api.objects[f"{CONFIGMAPS}/fleetward-evidence-two-0"]["data"]["evidence.jsonl"]
    assert first in data
    assert verify_evidence(data.encode(), key_fingerprint=KEY.verify_key.fingerprint).ok
    head = api.objects[f"{CONFIGMAPS}/fleetward-evidence-head"]["data"]["head.json"]
    assert ChainHead.model_validate_json(head) == evidence_head(data.encode(), sequence=2)
    assert second in head


async def test_storing_the_same_evidence_again_changes_nothing() -> None:
    api = ObjectApi()
    first = await store(api, "one")
    writes = len(api.writes)
    assert await store(api, "one") == first
    assert len(api.writes) == writes


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("write", range(1, 4))
async def test_killed_at_any_write_of_evidence_it_ends_in_one_chain(
    write: int, *, after: bool
) -> None:
    api = ObjectApi()
    api.kill_at, api.after = write, after
    with pytest.raises(Killed):
        await store(api, "one")
    await store(api, "one")
    await store(api, "two")
    head = api.objects[f"{CONFIGMAPS}/fleetward-evidence-head"]["data"]["head.json"]
    assert ChainHead.model_validate_json(head).sequence == 2


async def test_an_attempt_overtaken_by_another_purge_is_made_anew() -> None:
    api = ObjectApi()
    api.kill_at, api.after = 2, True
    with pytest.raises(Killed):
        await store(api, "one")
    await store(api, "two")
    digest = await store(api, "one")
    head = api.objects[f"{CONFIGMAPS}/fleetward-evidence-head"]["data"]["head.json"]
    found = ChainHead.model_validate_json(head)
    assert (found.sequence, found.digest) == (2, digest)


async def test_a_purge_record_is_kept_read_and_removed() -> None:
    api = ObjectApi()
    records = PurgeRecords(client(api), writer(api), namespace="n")
    assert await records.recall("u") is None
    state = PurgeState(deadline=5.0, phase=Phase.FENCING, cut=3)
    await records.write("u", "wipe", state)
    successor = PurgeRecords(client(api), writer(api), namespace="n")
    kept = await successor.recall("u")
    assert kept is not None
    assert (kept.state, kept.scope, kept.widened) == (state, None, False)
    scope = Scope("a", user="d" * 64)
    await successor.write("u", "wipe", state, scope=scope, widened=True)
    kept = await successor.recall("u")
    assert kept is not None
    assert (kept.scope, kept.widened) == (scope, True)
    await successor.write("u", "wipe", PurgeState(deadline=5.0, phase=Phase.PURGING))
    with pytest.raises(KubeError, match="Conflict"):
        await records.write("u", "wipe", state)
    await successor.remove("u")
    assert await successor.recall("u") is None
    await successor.remove("u")


async def test_without_the_lease_nothing_is_sent() -> None:
    api = ObjectApi()
    records = PurgeRecords(client(api), writer(api, leads=False), namespace="n")
    with pytest.raises(NotLeading):
        await records.write("u", "wipe", PurgeState(deadline=5.0))
    assert api.writes == []


def secrets(api: ObjectApi) -> SecretStore:
    return SecretStore(
        client(api),
        writer(api),
        namespace="n",
        entropy=lambda size: b"\7" * size,
        now=lambda: NOW,
    )


async def test_keys_are_made_once_and_read_ever_after() -> None:
    api = ObjectApi()
    first = await secrets(api).release_keys()
    second = await secrets(api).release_keys()
    assert first.public == second.public
    assert len(api.writes) == 2
    assert await secrets(api).find_epoch() is None
    assert (await secrets(api).make_epoch()).number == 1
    again = await secrets(api).make_epoch(above=5)
    assert again.number == 1
    assert await secrets(api).find_epoch() == again
    rotated = await secrets(api).rotate_epoch(again)
    assert rotated.number == 2
    with pytest.raises(KubeError, match="Conflict"):
        await secrets(api).rotate_epoch(again)


@pytest.mark.parametrize("name", [OPERATOR_KEYS, EPOCH_SECRET])
async def test_a_spoilt_secret_is_named_and_not_overwritten(name: str) -> None:
    api = ObjectApi()
    await secrets(api).release_keys()
    await secrets(api).make_epoch()
    api.objects[f"{SECRETS}/{name}"]["data"] = {}
    writes = len(api.writes)
    read = secrets(api).release_keys if name == OPERATOR_KEYS else secrets(api).find_epoch
    with pytest.raises(KeysUnreadable, match=name):
        await read()
    assert len(api.writes) == writes


def put_pod(api: ObjectApi, *, uid: str) -> None:
    metadata = {"name": "p", "namespace": "n", "uid": uid, "resourceVersion": "900"}
    api.objects[POD] = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata}


async def test_a_later_pod_of_the_name_is_not_held() -> None:
    api = ObjectApi()
    put_pod(api, uid="later")
    holds = PodHolds(client(api), writer(api))
    await holds.hold("one", [Member(kind="engine", namespace="n", name="p", uid="u")])
    assert api.writes == []


async def test_a_hold_does_not_overtake_what_its_kubelet_writes() -> None:
    class Busy(ObjectApi):
        """A pod whose status changes right after each of the first reads."""

        left = 2

        async def request(self, method: str, path: str, **kwargs: Any) -> dict[str, Any]:
            answer = await super().request(method, path, **kwargs)
            if method == "GET" and self.left:
                self.left -= 1
                self.objects[POD]["metadata"]["resourceVersion"] += "0"
            return answer

    api = Busy()
    put_pod(api, uid="u")
    holds = PodHolds(client(api), writer(api))
    await holds.hold("one", [Member(kind="engine", namespace="n", name="p", uid="u")])
    assert len(api.writes) == 3
    assert api.objects[POD]["metadata"]["finalizers"] == [FINALIZER]


async def test_a_pod_is_held_until_the_last_purge_that_needs_it() -> None:
    api = ObjectApi()
    holds = PodHolds(client(api), writer(api))
    member = Member(kind="engine", namespace="n", name="p", uid="u")
    put_pod(api, uid="u")
    api.away = True
    with pytest.raises(KubeError):
        await holds.hold("one", [member])
    # What did not happen is not remembered as done.
    assert not holds.is_needed("u")
    api.away = False
    for uid in ("one", "two", "two"):
        await holds.hold(uid, [member])
    assert len(api.writes) == 1
    await holds.release("one", [member])
    assert len(api.writes) == 1
    assert holds.is_needed("u")
    await holds.release("two", [member])
    (pod,) = api.objects.values()
    assert pod["metadata"]["finalizers"] == []
