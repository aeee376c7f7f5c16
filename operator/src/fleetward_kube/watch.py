"""The wire side of list and watch: pages, lines and events, without any store."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from fleetward_kube.client import KubeClient
from fleetward_kube.errors import KubeError, error_from_status

DEAD_STREAM_S = 70.0
"""The API server sends a bookmark about once a minute; more silence means a dead stream."""

SERVER_TIMEOUT_S = 300
"""How long one watch request may live before we ask again from where it ended."""


@dataclass(frozen=True, slots=True)
class Listing:
    """A whole list at one resource version: what a watch continues from."""

    items: list[dict[str, Any]]
    resource_version: str


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """One line of a watch: `ADDED`, `MODIFIED`, `DELETED` or `BOOKMARK`."""

    kind: str
    object: dict[str, Any]

    @property
    def resource_version(self) -> str:
        """Where a later watch may continue."""
        return str(self.object.get("metadata", {}).get("resourceVersion", ""))


async def list_all(
    client: KubeClient, path: str, *, query: Mapping[str, str], page_size: int
) -> Listing:
    """Every object, read in pages of one consistent list.

    Raises:
        KubeError: `expired` when the list took longer than the server keeps its snapshot.
    """
    items: list[dict[str, Any]] = []
    asked = {**query, "limit": str(page_size)}
    while True:
        page = await client.request("GET", path, query=asked)
        metadata = page.get("metadata") or {}
        items.extend(page.get("items") or ())
        following = metadata.get("continue")
        if not following:
            return Listing(items, str(metadata.get("resourceVersion", "")))
        asked["continue"] = following


async def watch_events(
    client: KubeClient,
    path: str,
    *,
    query: Mapping[str, str],
    resource_version: str,
    opened: Callable[[], None] = lambda: None,
    quiet_s: float = DEAD_STREAM_S,
) -> AsyncIterator[WatchEvent]:
    """Events after `resource_version`, until the server ends this watch.

    Args:
        client: an open client.
        path: the collection.
        query: selectors.
        resource_version: where to begin.
        opened: called once the server has granted the watch; its first event may be long in coming.
        quiet_s: seconds of silence after which the stream counts as dead.

    Raises:
        KubeError: the stream broke off, went silent, or carried an error event
            (`expired`: the caller must list again).
    """
    asked = {
        **query,
        "watch": "1",
        "allowWatchBookmarks": "true",
        "resourceVersion": resource_version,
        "timeoutSeconds": str(SERVER_TIMEOUT_S),
    }
    async with client.stream(path, query=asked, quiet_s=quiet_s) as content:
        opened()
        # Not readline(): it refuses lines above its buffer, and an object may hold 1.5 MB.
        pending = bytearray()
        async for chunk in content.iter_any():
            pending += chunk
            if b"\n" not in chunk:
                continue
            *lines, rest = pending.split(b"\n")
            pending = rest
            for line in lines:
                if line.strip():
                    yield parse_event(bytes(line))


def parse_event(line: bytes) -> WatchEvent:
    """One line of the watch protocol.

    Raises:
        KubeError: the line is an error event, or is no event at all (`Malformed`).
    """
    try:
        value = orjson.loads(line)
    except ValueError as error:
        raise KubeError(0, "Malformed", f"a watch line is not JSON: {error}") from None
    if not isinstance(value, dict) or not isinstance(value.get("object"), dict):
        raise KubeError(0, "Malformed", "a watch line has no object")
    kind = value.get("type")
    if kind == "ERROR":
        raise error_from_status(value["object"], http_status=500)
    if kind not in {"ADDED", "MODIFIED", "DELETED", "BOOKMARK"}:
        raise KubeError(0, "Malformed", f"a watch line has the unknown type {kind!r}")
    return WatchEvent(kind, value["object"])
