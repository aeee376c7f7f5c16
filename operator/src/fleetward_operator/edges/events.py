"""Writes Events: the same words about the same object once, however often a pass repeats them."""

from __future__ import annotations

import hashlib
import logging
from collections import OrderedDict
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from fleetward_kube import KubeError
from fleetward_operator.core.events import Announcement
from fleetward_operator.edges.writer import STATUS, Writer

COMPONENT = "fleetward-operator"
REPEAT_AFTER_S = 3600.0
REMEMBERED = 4096
CLUSTER_EVENTS_NAMESPACE = "default"

logger = logging.getLogger(__name__)


class EventRecorder:
    """Announces on objects. An Event that can't be written is logged, never an error."""

    def __init__(self, writer: Writer, *, instance: str, wall: Callable[[], datetime]) -> None:
        self._writer = writer
        self._instance = instance
        self._wall = wall
        self._told: OrderedDict[str, float] = OrderedDict()

    async def announce(self, about: Mapping[str, Any], announcement: Announcement) -> None:
        """Write one Event on the object `about`, unless it was told within the hour."""
        metadata = about["metadata"]
        words = f"{metadata['uid']}/{announcement.reason}/{announcement.message}"
        mark = hashlib.sha256(words.encode()).hexdigest()[:16]
        now = self._wall()
        if not self._is_news(mark, now.timestamp()):
            return
        logger.info("%s %s: %s", about["kind"], metadata["name"], announcement.message)
        try:
            await self._writer.create(
                self._event(about, announcement, now=now, mark=mark), manager=STATUS
            )
        except KubeError as error:
            # In a namespace that terminates no Event can be made; that is nobody's fault.
            logger.info("the Event %s was not written: %s", announcement.reason, error)

    def _is_news(self, mark: str, now: float) -> bool:
        last = self._told.get(mark)
        if last is not None and now - last < REPEAT_AFTER_S:
            return False
        self._told[mark] = now
        self._told.move_to_end(mark)
        while len(self._told) > REMEMBERED:
            self._told.popitem(last=False)
        return True

    def _event(
        self, about: Mapping[str, Any], announcement: Announcement, *, now: datetime, mark: str
    ) -> dict[str, Any]:
        metadata = about["metadata"]
        namespace = metadata.get("namespace") or CLUSTER_EVENTS_NAMESPACE
        stamp = now.strftime("%Y-%m-%dT%H:%M:%SZ")
        reference = {
            "apiVersion": about["apiVersion"],
            "kind": about["kind"],
            "name": metadata["name"],
            "uid": metadata["uid"],
        }
        if metadata.get("namespace"):
            reference["namespace"] = metadata["namespace"]
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {
                "name": f"{metadata['name'][:200]}.{mark}.{int(now.timestamp() * 1000):x}",
                "namespace": namespace,
            },
            "involvedObject": reference,
            "type": announcement.type,
            "reason": announcement.reason,
            "message": announcement.message[:1024],
            "firstTimestamp": stamp,
            "lastTimestamp": stamp,
            "count": 1,
            "source": {"component": COMPONENT},
            "reportingComponent": COMPONENT,
            "reportingInstance": self._instance,
        }
