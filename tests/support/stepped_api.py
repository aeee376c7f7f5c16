"""Coroutines run by hand, one API call at a time, so that tests choose the order of calls."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator, Mapping
from typing import Any, Generic, TypeVar

from fleetward_kube import KubeError
from fleetward_operator.edges.kinds import collection_path, object_path
from fleetward_operator.manifests.manifest import Manifest
from tests.support.object_api import ObjectApi

T = TypeVar("T")


class _Turn:
    """Awaited before each call: hands control back to whoever steps the coroutine."""

    def __await__(self) -> Generator[None, None, None]:
        yield


class SteppedApi:
    """`ObjectApi` for one process; each of its calls waits for a step."""

    def __init__(self, api: ObjectApi) -> None:
        self._api = api

    async def request(self, method: str, path: str, **facts: Any) -> dict[str, Any]:
        await _Turn()
        wanted = (facts.get("body") or {}).get("preconditions", {})
        found = self._api.objects.get(path, {}).get("metadata", {})
        if found and any(found[key] != value for key, value in wanted.items()):
            raise KubeError(409, "Conflict", path)
        return await self._api.request(method, path, **facts)


class SteppedWriter:
    """What `Writer` does between the lease and the client: nothing that a step could split."""

    def __init__(self, api: SteppedApi) -> None:
        self._api = api

    async def create(self, manifest: Manifest, *, manager: str) -> dict[str, Any]:
        """As `Writer.create`."""
        del manager
        path = collection_path(manifest["kind"], manifest["metadata"]["namespace"])
        return await self._api.request("POST", path, body=manifest)

    async def replace(self, manifest: Manifest, *, manager: str) -> dict[str, Any]:
        """As `Writer.replace`."""
        del manager
        metadata = manifest["metadata"]
        path = object_path(manifest["kind"], metadata["namespace"], metadata["name"])
        return await self._api.request("PUT", path, body=manifest)

    async def delete(
        self, kind: str, namespace: str, name: str, *, seen: Mapping[str, Any]
    ) -> dict[str, Any]:
        """As `Writer.delete`."""
        metadata = seen["metadata"]
        body = {"preconditions": {key: metadata[key] for key in ("uid", "resourceVersion")}}
        return await self._api.request("DELETE", object_path(kind, namespace, name), body=body)


class Stepper(Generic[T]):
    """Iterates over a coroutine's calls; `result` holds what it returned.

    The first step runs up to the first call; each one after that lets one call through.
    """

    def __init__(self, work: Callable[[], Coroutine[Any, Any, T]]) -> None:
        self._work = work
        self._results: list[T] = []

    @property
    def result(self) -> T:
        """What the coroutine returned."""
        return self._results[0]

    def __iter__(self) -> Generator[None, None, T]:
        result = yield from self._work().__await__()
        self._results.append(result)
        return result
