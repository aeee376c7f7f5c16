"""Objects in memory with the API server's rules of versions and names, and calls that can fail."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from fleetward_kube import KubeError

WRITES = {"POST", "PUT", "DELETE", "PATCH"}


class Killed(Exception):
    """The process died at this call."""


class ObjectApi:
    """Stands in for `KubeClient`. `kill_at` is the number of the write at which the process dies.

    With `after` the write has reached the server before the process dies.
    """

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Any]] = {}
        self.writes: list[str] = []
        self.kill_at = 0
        self.after = False
        self.away = False
        self._version = 0

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        content_type: str = "",
        timeout: float = 0.0,  # noqa: ASYNC109 - the client's own signature
    ) -> dict[str, Any]:
        del content_type, timeout
        if self.away:
            raise KubeError(0, "Unreachable", "the API server is away")
        if method not in WRITES:
            return copy.deepcopy(self._read(path, query or {}))
        self.writes.append(f"{method} {path}")
        dies = len(self.writes) == self.kill_at
        if dies and not self.after:
            raise Killed(path)
        answer = copy.deepcopy(self._write(method, path, copy.deepcopy(body)))
        if dies:
            raise Killed(path)
        return answer

    def _read(self, path: str, query: Mapping[str, str]) -> dict[str, Any]:
        if path in self.objects:
            return self.objects[path]
        if "labelSelector" in query:
            return {
                "items": [o for p, o in self.objects.items() if self._matches(p, path, o, query)]
            }
        raise KubeError(404, "NotFound", path)

    def _matches(
        self, path: str, collection: str, item: dict[str, Any], query: Mapping[str, str]
    ) -> bool:
        wanted = dict(part.split("=") for part in query.get("labelSelector", "").split(",") if part)
        labels = item["metadata"].get("labels") or {}
        inside = path.startswith(f"{collection}/")
        return inside and all(labels.get(key) == value for key, value in wanted.items())

    def _write(self, method: str, path: str, body: dict[str, Any]) -> dict[str, Any]:
        if method == "POST":
            path = f"{path}/{body['metadata']['name']}"
            if path in self.objects:
                raise KubeError(409, "AlreadyExists", path)
            return self._put(path, body)
        known = self.objects.get(path)
        if method == "PATCH":
            self._check_precondition(path, known, body["metadata"])
            return self._put(path, {**(known or {}), **body})
        if known is None:
            raise KubeError(404, "NotFound", path)
        if method == "DELETE":
            return self.objects.pop(path)
        if known.get("immutable"):
            raise KubeError(422, "Invalid", "the object is immutable")
        version = body["metadata"].get("resourceVersion")
        if version and version != known["metadata"]["resourceVersion"]:
            raise KubeError(409, "Conflict", path)
        return self._put(path, body)

    def _check_precondition(
        self, path: str, known: dict[str, Any] | None, told: dict[str, Any]
    ) -> None:
        """What a server-side apply names: an object there is, or a version that none can have."""
        if path.endswith("/status"):
            return
        if known is None:
            fits = "uid" not in told
        else:
            there = known["metadata"]
            fits = all(
                told.get(key, there[key]) == there[key] for key in ("uid", "resourceVersion")
            )
        if not fits:
            raise KubeError(409, "Conflict", path)

    def _put(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        self._version += 1
        uid = self.objects.get(path, {}).get("metadata", {}).get("uid") or f"u{self._version}"
        body["metadata"] |= {"resourceVersion": str(self._version), "uid": uid}
        self.objects[path] = body
        return body
