"""Purges across engines and gateways, with real evidence."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from fleetward_api.bundle import PolicyBundle
from fleetward_api.evidence import verify_evidence
from fleetward_api.keys import VerifyKey
from fleetward_api.scope import Scope, scope_digest, user_digest
from tests.support.cluster_facts import condition, ended
from tests.support.fake_member import FakeMember
from tests.support.operator_world import World, until

ENDED = ("Completed", "Incomplete")


async def two_engines_and_a_gateway(world: World) -> list[FakeMember]:
    await world.service("demo", scaling={"minReplicas": 2})

    async def both() -> list[dict[str, Any]]:
        pods = await world.pods("demo")
        return pods if len(pods) == 2 else []

    pods = await until(both, what="two pods")
    gateway = await world.gateway_pod()
    members = [await world.run_pod(pod) for pod in (*pods, gateway)]

    async def all_have_a_bundle() -> bool:
        return all(member.bundle is not None for member in members)

    await until(all_have_a_bundle, what="the first bundles")
    return members


async def purge(world: World, name: str = "wipe", **spec: Any) -> None:
    await world.create(
        {
            "apiVersion": "fleetward.io/v1alpha1",
            "kind": "CachePurge",
            "metadata": {"name": name},
            "spec": {"tenant": "alpha", "reason": "asked to", **spec},
        }
    )


async def ending(world: World, name: str = "wipe") -> dict[str, Any]:
    async def final() -> dict[str, Any]:
        found = await world.get("CachePurge", name)
        return found if found.get("status", {}).get("phase") in ENDED else {}

    found: dict[str, Any] = await until(final, what="the end of the purge")
    return found


async def report(world: World, found: dict[str, Any]) -> Any:
    key = VerifyKey.from_b64((await world.trust())["operator.pub"])
    return verify_evidence(await world.evidence(found), key_fingerprint=key.fingerprint)


async def test_a_purge_raises_the_floor_everywhere_and_leaves_verified_evidence(
    world: World,
) -> None:
    async with world.operator():
        members = await two_engines_and_a_gateway(world)
        for member in members[:2]:
            member.blocks = 1000
        await purge(world)
        found = await ending(world)
        status = found["status"]
        assert status["phase"] == "Completed", status
        assert (status["members"], status["provedMembers"], status["blocks"]) == (3, 3, 2000)
        assert condition(found, "Complete")["status"] == "True"
        checked = await report(world, found)
        assert checked.ok, checked.summary
        assert checked.pinned
        for member in members:
            assert len(member.orders) == 1
            assert member.bundle is not None
            assert member.bundle.floors.tenants["alpha"] == 1

        async def released() -> bool:
            pods = [*await world.items("Pod"), *await world.items("Pod", world.release)]
            return not any(pod["metadata"].get("finalizers") for pod in pods)

        await until(released, what="the pods without finalizers")
        names = [one["metadata"]["name"] for one in await world.items("ConfigMap", world.release)]
        assert not [name for name in names if name.startswith("fleetward-purge-")]


async def test_evidence_of_two_purges_is_one_chain(world: World) -> None:
    async with world.operator():
        await two_engines_and_a_gateway(world)
        await purge(world, "first")
        first = await ending(world, "first")
        await purge(world, "second")
        second = await ending(world, "second")
        assert (await report(world, first)).ok
        assert (await report(world, second)).ok
        assert first["status"]["evidenceDigest"].encode() in await world.evidence(second)


async def test_counts_that_do_not_add_up_end_incomplete(world: World) -> None:
    async with world.operator():
        members = await two_engines_and_a_gateway(world)
        members[0].blocks = 10
        members[0].faulty = True
        await purge(world)
        found = await ending(world)
        assert found["status"]["phase"] == "Incomplete"
        assert condition(found, "Failed")["reason"] == "ProbeHit"
        assert "probes still hit" in found["status"]["notCovered"][0]["reason"]
        checked = await report(world, found)
        assert checked.ok, checked.summary


async def test_a_silent_member_is_named_when_the_deadline_passes(world: World) -> None:
    async with world.operator():
        members = await two_engines_and_a_gateway(world)
        members[1].silent = {"purge"}
        await purge(world, deadline="8s")
        found = await ending(world)
        assert found["status"]["phase"] == "Incomplete"
        assert condition(found, "Failed")["reason"] == "DeadlineExceeded"
        told = found["status"]["notCovered"]
        assert [members[1].pod_uid in one["subject"] for one in told] == [True]
        assert "told to be silent" in told[0]["reason"]
        assert (await report(world, found)).ok


async def test_a_member_that_cannot_be_fenced_keeps_no_other_from_removing(world: World) -> None:
    async with world.operator():
        members = await two_engines_and_a_gateway(world)
        members[1].silent = {"policy"}
        await purge(world, deadline="8s")
        found = await ending(world)
        assert found["status"]["phase"] == "Incomplete"
        told = found["status"]["notCovered"]
        assert [members[1].pod_uid in one["subject"] for one in told] == [True]
        assert found["status"]["provedMembers"] == 2
        assert (len(members[0].orders), len(members[2].orders)) == (1, 1)
        assert (await report(world, found)).ok


async def test_a_purge_that_is_deleted_while_it_runs_leaves_what_was_shown(world: World) -> None:
    async with world.operator():
        members = await two_engines_and_a_gateway(world)
        members[1].silent = {"purge"}
        await purge(world, deadline="10m")

        async def two_have_signed() -> bool:
            found = await world.get("CachePurge", "wipe")
            return len(members[0].receipts) + len(members[2].receipts) == 2 and bool(
                found["status"].get("floor")
            )

        await until(two_have_signed, what="two receipts")
        await world.delete("CachePurge", "wipe")

        async def evidence() -> bytes:
            items = await world.items("ConfigMap", world.release)
            labelled = [
                item["data"]["evidence.jsonl"]
                for item in items
                if item["metadata"].get("labels", {}).get("fleetward.io/purge") == "wipe"
                and "evidence.jsonl" in item["data"]
            ]
            return "".join(labelled).encode()

        data = await until(evidence, what="the evidence", within_s=60)
        key = VerifyKey.from_b64((await world.trust())["operator.pub"])
        checked = verify_evidence(data, key_fingerprint=key.fingerprint)
        assert (checked.ok, checked.phase) == (True, "Incomplete"), checked.summary
        assert b"the CachePurge was deleted while it ran" in data
        assert "2 receipts" in checked.summary

        async def nothing_is_left() -> bool:
            pods = [*await world.items("Pod"), *await world.items("Pod", world.release)]
            names = [
                one["metadata"]["name"] for one in await world.items("ConfigMap", world.release)
            ]
            held = any(pod["metadata"].get("finalizers") for pod in pods)
            return not held and not any(name.startswith("fleetward-purge-") for name in names)

        await until(nothing_is_left, what="the end of holds and records")


async def test_the_kubelets_word_on_a_dead_engine_proves_it(world: World) -> None:
    async with world.operator():
        members = await two_engines_and_a_gateway(world)
        victim = members[0]
        victim.silent = {"purge"}
        await purge(world)

        async def held() -> dict[str, Any]:
            pods = await world.pods("demo")
            mine = [pod for pod in pods if pod["metadata"]["uid"] == victim.pod_uid]
            return mine[0] if mine and mine[0]["metadata"].get("finalizers") else {}

        pod = await until(held, what="the finalizer")
        await world.delete("Pod", pod["metadata"]["name"])
        await world.say(pod, ended(victim.address, exit_code=137))
        found = await ending(world)
        assert found["status"]["phase"] == "Completed", found["status"]
        assert b'"dead"' in await world.evidence(found)
        assert (await report(world, found)).ok


async def test_a_purge_of_some_services_is_widened_or_refused(world: World) -> None:
    async with world.operator():
        await two_engines_and_a_gateway(world)
        selector = {"matchLabels": {"a": "b"}}
        await purge(world, "refused", serviceSelector=selector, onCoarseIsolation="Refuse")
        await purge(world, "widened", serviceSelector=selector)
        refused = await ending(world, "refused")
        assert condition(refused, "Failed")["reason"] == "Refused"
        widened = await ending(world, "widened")
        assert widened["status"]["phase"] == "Completed"
        assert widened["status"]["widenedTo"] == "all services"


async def test_a_users_cache_is_purged_alone_where_services_tell_users_apart(world: World) -> None:
    await world.create(
        {
            "apiVersion": "fleetward.io/v1alpha1",
            "kind": "CachePolicy",
            "metadata": {"name": "apart", "namespace": world.apps},
            "spec": {"namespaceDefault": True, "isolation": "User"},
        }
    )
    async with world.operator():
        members = await two_engines_and_a_gateway(world)
        keys = await world.get("Secret", "fleetward-operator-keys", world.release)
        key = base64.b64decode(keys["data"]["digest.key"])
        user = user_digest(key, "alpha", "Zoë")
        await purge(world, user="Zoë")
        found = await ending(world)
        assert found["status"]["phase"] == "Completed", found["status"]
        assert "widenedTo" not in found["status"]
        assert found["status"]["scopeDigest"] == scope_digest(key, Scope("alpha", user=user))
        for member in members:
            (order,) = member.orders
            assert order.scope == Scope("alpha", user=user).to_wire()
            assert member.bundle is not None
            assert member.bundle.floors.users == {f"alpha/{user}": 1}
            assert member.bundle.floors.tenants == {}
        checked = await report(world, found)
        assert checked.ok, checked.summary
        assert "(user)" in checked.summary
        assert "Zoë".encode() not in await world.evidence(found)

        await world.patch("CachePolicy", "apart", {"spec": {"isolation": "Tenant"}})
        await purge(world, "refused", user="Zoë", onCoarseIsolation="Refuse")
        refused = await ending(world, "refused")
        assert condition(refused, "Failed")["reason"] == "Refused"
        await purge(world, "widened", user="Zoë")
        widened = await ending(world, "widened")
        assert widened["status"]["phase"] == "Completed", widened["status"]
        apps = world.apps
        assert widened["status"]["widenedTo"] == f"tenant alpha ({apps}/demo shares within it)"
        assert members[0].orders[-1].scope == Scope("alpha").to_wire()
        assert "(tenant, widened to it)" in (await report(world, widened)).summary


@pytest.mark.parametrize("call", ["policy", "purge"])
async def test_a_purge_goes_on_under_the_next_operator(world: World, call: str) -> None:
    async with world.operator():
        members = await two_engines_and_a_gateway(world)
        members[0].silent = {call}
        await purge(world, deadline="2m")

        async def begun() -> bool:
            found = await world.get("CachePurge", "wipe")
            done = members[1].orders if call == "purge" else True
            return bool(done) and found.get("status", {}).get("phase") in {"Fencing", "Purging"}

        await until(begun, what="the purge under way")
    members[0].silent = set()
    async with world.operator(pod="operator-1"):
        found = await ending(world)
        assert found["status"]["phase"] == "Completed", found["status"]
        assert (await report(world, found)).ok
        assert all(len(member.receipts) == 1 for member in members)


async def test_lost_floors_rotate_the_epoch_and_never_go_back(world: World) -> None:
    async with world.operator():
        members = await two_engines_and_a_gateway(world)
        await purge(world)
        await ending(world)
        await world.delete("ConfigMap", "fleetward-floors", world.release)

        async def rotated() -> bool:
            bundle = members[0].bundle
            assert isinstance(bundle, PolicyBundle)
            return bundle.epoch == 2 and bundle.floors.tenants.get("alpha") == 1

        await until(rotated, what="the next epoch")
        await purge(world, "again")
        found = await ending(world, "again")
        assert (found["status"]["phase"], found["status"]["floor"]) == ("Completed", 2)


async def test_a_lost_epoch_secret_never_brings_its_number_back(world: World) -> None:
    async with world.operator():
        await two_engines_and_a_gateway(world)
    await world.delete("Secret", "fleetward-cache-epoch", world.release)
    async with world.operator(pod="operator-1"):

        async def second_epoch() -> bool:
            bundles = [member.bundle for member in world.members.values()]
            return all(b.epoch > 1 for b in bundles if isinstance(b, PolicyBundle))

        await until(second_epoch, what="the next epoch")
