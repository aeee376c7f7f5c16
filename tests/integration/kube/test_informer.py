"""The informer against a real API server, also one that went away and forgot its history."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from e2e.cluster.apiserver import ApiServer, ends_with_caller
from e2e.cluster.controlplane import api_server as api_server_program
from fleetward_kube import Informer, KubeClient, KubeError
from fleetward_kube.client import APPLY
from fleetward_kube.connection import load_connection
from fleetward_kube.watch import watch_events
from tests.support.eventually import eventually
from tests.support.tcp_proxy import TcpProxy

Change = tuple[str, str | None, str | None]


@pytest.fixture
async def client(api_server: ApiServer) -> AsyncIterator[KubeClient]:
    async with KubeClient.from_environment(
        {"KUBECONFIG": str(api_server.kubeconfig)}, patience_s=60
    ) as opened:
        yield opened


@pytest.fixture
async def path(client: KubeClient) -> str:
    """The ConfigMaps of a fresh namespace; the one that every namespace gets is in it."""
    namespace = f"informer-{secrets.token_hex(3)}"
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
    await client.request("POST", "/api/v1/namespaces", body=body)
    return f"/api/v1/namespaces/{namespace}/configmaps"


def config_map(name: str, value: str, **labels: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "labels": labels},
        "data": {"v": value},
    }


async def put(client: KubeClient, path: str, name: str, value: str, **labels: str) -> None:
    await client.request(
        "PATCH",
        f"{path}/{name}",
        query={"fieldManager": "test", "force": "true"},
        body=config_map(name, value, **labels),
        content_type=APPLY,
    )


class Told:
    """What an informer told, without the ConfigMap that the controller manager adds."""

    def __init__(self, informer: Informer) -> None:
        self.changes: list[Change] = []
        informer.subscribe(self._note)

    def _note(self, key: str, old: dict[str, Any] | None, new: dict[str, Any] | None) -> None:
        name = key.partition("/")[2]
        if name != "kube-root-ca.crt":
            self.changes.append((name, value_of(old), value_of(new)))


def value_of(item: dict[str, Any] | None) -> str | None:
    return None if item is None else str(item["data"]["v"])


@asynccontextmanager
async def running(informer: Informer) -> AsyncIterator[None]:
    task = asyncio.create_task(informer.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


async def test_follows_pages_changes_and_selectors(client: KubeClient, path: str) -> None:
    for number in range(7):
        await put(client, path, f"a{number}", "1", kind="a" if number < 5 else "b")
    informer = Informer(client, path, label_selector="kind=a", page_size=2)
    named = Informer(client, path, field_selector="metadata.name=a6")
    told, told_named = Told(informer), Told(named)
    async with running(informer), running(named):
        await asyncio.wait_for(informer.synced.wait(), 30)
        await asyncio.wait_for(named.synced.wait(), 30)
        assert sorted(name for name, _, _ in told.changes) == [f"a{n}" for n in range(5)]
        assert told_named.changes == [("a6", None, "1")]
        told.changes.clear()
        await put(client, path, "a0", "2", kind="a")
        await put(client, path, "a1", "1", kind="b")
        await put(client, path, "a6", "2", kind="a")
        await client.request("DELETE", f"{path}/a2")
        await eventually(lambda: len(told.changes) == 4 and len(told_named.changes) == 2)
    assert told.changes == [
        ("a0", "1", "2"),
        ("a1", "1", None),
        ("a6", None, "2"),
        ("a2", "1", None),
    ]
    assert told_named.changes[1] == ("a6", "1", "2")


async def test_tells_what_was_deleted_while_it_was_cut_off_and_history_was_lost(
    api_server: ApiServer, client: KubeClient, path: str
) -> None:
    for name in ("gone", "kept", "edited", "remade"):
        await put(client, path, name, "1")
    proxy = TcpProxy(urlsplit(api_server.url).port or 0)
    await proxy.mend()
    direct = await load_connection({"KUBECONFIG": str(api_server.kubeconfig)})
    through = replace(direct, server=f"https://127.0.0.1:{proxy.port}")
    async with KubeClient(through) as cut_off:
        informer = Informer(cut_off, path)
        told = Told(informer)
        async with running(informer):
            await eventually(lambda: len(told.changes) == 4)
            told.changes.clear()
            await proxy.cut()
            await client.request("DELETE", f"{path}/gone")
            await client.request("DELETE", f"{path}/remade")
            await put(client, path, "remade", "2")
            await put(client, path, "edited", "2")
            await put(client, path, "new", "1")
            # In this thread, since the server ends with the thread that starts it.
            restart(api_server)
            await eventually(lambda: informer.problem != "")
            assert "kept" in {key.partition("/")[2] for key in informer.objects}
            await proxy.mend()
            await eventually(lambda: len(told.changes) == 5, within_s=60)
        await proxy.cut()
    assert sorted(told.changes, key=lambda change: change[0]) == [
        ("edited", "1", "2"),
        ("gone", "1", None),
        ("new", None, "1"),
        ("remade", "1", None),
        ("remade", None, "2"),
    ]


async def test_a_watch_that_stands_again_is_no_problem_though_nothing_happens(
    api_server: ApiServer, client: KubeClient, path: str
) -> None:
    """A bookmark may be a minute away: the grant of the watch itself is a word of the server."""
    proxy = TcpProxy(urlsplit(api_server.url).port or 0)
    await proxy.mend()
    direct = await load_connection({"KUBECONFIG": str(api_server.kubeconfig)})
    through = replace(direct, server=f"https://127.0.0.1:{proxy.port}")
    async with KubeClient(through) as cut_off:
        informer = Informer(cut_off, path, label_selector="quiet=yes")
        async with running(informer):
            await asyncio.wait_for(informer.synced.wait(), 20)
            await put(client, path, "last-news", "1", quiet="yes")
            await eventually(lambda: bool(informer.objects))
            await proxy.cut()
            await eventually(lambda: informer.problem != "")
            await proxy.mend()
            await eventually(lambda: informer.problem == "")
        await proxy.cut()


def restart(server: ApiServer) -> None:
    """A new API server over the same store: its window of watch history begins anew."""
    server.table.stop("kube-apiserver")
    program = ends_with_caller(api_server_program(server.plane))
    server.table.ensure(program)
    server.table.wait_healthy(program)


async def test_a_user_without_rights_sees_why(api_server: ApiServer, path: str) -> None:
    config: Path = api_server.kubeconfig_for_user("nobody-special")
    async with KubeClient.from_environment({"KUBECONFIG": str(config)}) as nobody:
        informer = Informer(nobody, path)
        async with running(informer):
            await eventually(lambda: "Forbidden (403)" in informer.problem)
        assert not informer.synced.is_set()
        with pytest.raises(KubeError) as refused:
            await nobody.request("GET", path)
    assert (refused.value.status, refused.value.retryable) == (403, False)


async def test_refusals_of_the_real_server_are_typed(client: KubeClient, path: str) -> None:
    with pytest.raises(KubeError) as absent:
        await client.request("GET", f"{path}/absent")
    assert absent.value.not_found
    await put(client, path, "here", "1")
    with pytest.raises(KubeError) as twice:
        await client.request("POST", path, body=config_map("here", "1"))
    assert (twice.value.conflict, twice.value.reason) == (True, "AlreadyExists")
    with pytest.raises(KubeError) as owned:
        await client.request(
            "PATCH",
            f"{path}/here",
            query={"fieldManager": "another"},
            body=config_map("here", "2"),
            content_type=APPLY,
        )
    assert owned.value.conflict
    assert 'with "test"' in owned.value.message
    with pytest.raises(KubeError) as expired:
        await anext(watch_events(client, path, query={}, resource_version="1"))
    assert expired.value.expired
