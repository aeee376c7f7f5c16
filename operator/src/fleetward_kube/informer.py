"""A copy of one kind of objects that is kept true: list, watch, and relist with a diff.

After an outage or an expired resource version the whole list is read again and compared with the
copy, so that objects deleted meanwhile are reported as deleted instead of staying as ghosts.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from fleetward_kube.backoff import Backoff, not_before
from fleetward_kube.client import KubeClient
from fleetward_kube.errors import KubeError
from fleetward_kube.watch import DEAD_STREAM_S, Listing, WatchEvent, list_all, watch_events

KubeObject = dict[str, Any]
Callback = Callable[[str, KubeObject | None, KubeObject | None], None]

_BUSY = frozenset({429, 503})

logger = logging.getLogger(__name__)


def identity(item: KubeObject) -> KubeObject:
    """Keep an object whole."""
    return item


def object_key(item: Mapping[str, Any]) -> str:
    """`namespace/name`, or `name` alone for a cluster-scoped object."""
    metadata = item["metadata"]
    namespace = metadata.get("namespace")
    return f"{namespace}/{metadata['name']}" if namespace else str(metadata["name"])


@dataclass(frozen=True, slots=True)
class WatchTiming:
    """What an informer takes from the outside world besides the server.

    Attributes:
        quiet_s: seconds of silence after which a watch counts as dead.
        clock: monotonic seconds.
        rng: jitter of the backoff.
    """

    quiet_s: float = DEAD_STREAM_S
    clock: Callable[[], float] = time.monotonic
    rng: random.Random = field(default_factory=random.Random)


class Informer:
    """The objects at one API path, kept equal to the server's.

    Args:
        client: an open client.
        path: the collection, such as `/api/v1/namespaces/a/secrets` (one namespace) or
            `/apis/fleetward.io/v1alpha1/inferenceservices` (all of them).
        label_selector: as in the API; empty selects all.
        field_selector: as in the API, such as `metadata.name=fleetward-floors`.
        trim: reduces an object to what is needed before it is kept; must be pure and
            must not raise for any object the API server accepts.
        page_size: objects per page of a list.
        timing: silence limit, clock and jitter; the defaults suit a real API server.

    `run()` never returns by itself. `synced` is set once the first list is in `objects`, and stays
    set: during an outage the last known objects remain, and `problem` says what is wrong.
    """

    def __init__(
        self,
        client: KubeClient,
        path: str,
        *,
        label_selector: str = "",
        field_selector: str = "",
        trim: Callable[[KubeObject], KubeObject] = identity,
        page_size: int = 500,
        timing: WatchTiming | None = None,
    ) -> None:
        self.path = path
        self.synced = asyncio.Event()
        self.problem = ""
        self._client = client
        selectors = {"labelSelector": label_selector, "fieldSelector": field_selector}
        self._query = {name: value for name, value in selectors.items() if value}
        self._trim = trim
        self._page_size = page_size
        self._timing = timing or WatchTiming()
        self._backoff = Backoff(self._timing.rng)
        self._objects: dict[str, KubeObject] = {}
        self._versions: dict[str, tuple[str, str]] = {}
        self._callbacks: list[Callback] = []
        self._last_contact = self._timing.clock()
        self._last_excuse = self._last_contact
        self._granted = False
        self._position = ""

    @property
    def objects(self) -> Mapping[str, KubeObject]:
        """Trimmed objects by `object_key`; a live, read-only view."""
        return MappingProxyType(self._objects)

    def silent_for(self) -> float:
        """Seconds since the server told anything: a list, an event or a bookmark.

        That it grants a watch is no word: something between us and it may do so and say nothing.
        """
        return self._timing.clock() - self._last_contact

    def mute_for(self) -> float:
        """That silence since the last watch that was not granted; a watchdog's input.

        An outage explains a silence. Watches that are granted, one after another, do not.
        """
        return self._timing.clock() - max(self._last_contact, self._last_excuse)

    def subscribe(self, callback: Callback) -> None:
        """Call `callback(key, old, new)` on each change: `old` None is added, `new` None deleted.

        Objects that are already here are told at once as added. The callback runs in the event
        loop between two events, must not block, and sees `objects` already changed. An object
        deleted and made again under one name is told as deleted, then added.
        """
        self._callbacks.append(callback)
        for key, item in list(self._objects.items()):
            self._tell(callback, key, None, item)

    async def run(self) -> None:
        """List and watch until cancelled.

        Every fault is logged and retried within 5 s, or when the server wants to be asked again.
        """
        while True:
            self._granted = False
            try:
                if not self._position:
                    await self._list()
                await self._watch()
            except KubeError as error:
                odd = error.status or error.reason == "Malformed"
                if odd and error.status not in _BUSY:
                    # The server refused or said something odd: only a fresh list is sure. One that
                    # is too busy for a watch must not be made to list everything instead.
                    self._position = ""
                self.problem = str(error)
                if not self._granted:
                    self._last_excuse = self._timing.clock()
                delay = not_before(error, self._backoff.next_delay())
                level = logging.INFO if error.expired else logging.WARNING
                logger.log(level, "watch of %s: %s; again in %.1f s", self.path, error, delay)
                await asyncio.sleep(delay)

    async def _list(self) -> None:
        listing = await list_all(
            self._client, self.path, query=self._query, page_size=self._page_size
        )
        self._heard()
        self._replace(listing)
        # Only a watch that gives something ends the backoff: one that is refused at once, or has
        # always expired, would otherwise have the whole list read again without a pause.
        self._position = listing.resource_version
        self.synced.set()

    async def _watch(self) -> None:
        events = 0
        async for event in watch_events(
            self._client,
            self.path,
            query=self._query,
            resource_version=self._position,
            opened=self._opened,
            quiet_s=self._timing.quiet_s,
        ):
            self._heard()
            self._backoff.reset()
            self._apply(event)
            self._position = event.resource_version or self._position
            events += 1
        if not events:
            # Something between us and the server may end every watch at once: don't spin.
            await asyncio.sleep(self._backoff.next_delay())

    def _opened(self) -> None:
        self._granted = True
        self.problem = ""

    def _heard(self) -> None:
        self._last_contact = self._timing.clock()
        self.problem = ""

    def _replace(self, listing: Listing) -> None:
        present = {object_key(item): item for item in listing.items}
        for key in [key for key in self._objects if key not in present]:
            self._remove(key)
        for key, item in present.items():
            self._put(key, item)

    def _apply(self, event: WatchEvent) -> None:
        match event.kind:
            case "ADDED" | "MODIFIED":
                self._put(object_key(event.object), event.object)
            case "DELETED":
                self._remove(object_key(event.object))
            case _:  # a bookmark carries only its resource version
                pass

    def _put(self, key: str, item: KubeObject) -> None:
        metadata = item["metadata"]
        version = (str(metadata.get("uid", "")), str(metadata.get("resourceVersion", "")))
        known = self._versions.get(key)
        if known == version:
            return
        if known is not None and known[0] != version[0]:
            self._remove(key)
        old = self._objects.get(key)
        new = self._trim(item)
        self._objects[key] = new
        self._versions[key] = version
        self._announce(key, old, new)

    def _remove(self, key: str) -> None:
        old = self._objects.pop(key, None)
        self._versions.pop(key, None)
        if old is not None:
            self._announce(key, old, None)

    def _announce(self, key: str, old: KubeObject | None, new: KubeObject | None) -> None:
        for callback in self._callbacks:
            self._tell(callback, key, old, new)

    def _tell(
        self, callback: Callback, key: str, old: KubeObject | None, new: KubeObject | None
    ) -> None:
        try:
            callback(key, old, new)
        except Exception:
            # One subscriber's fault on one object must not blind the others.
            logger.exception("a subscriber of %s failed on %s", self.path, key)
