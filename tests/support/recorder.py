"""An API server reduced to answers in turn, and what was sent to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from fleetward_kube import KubeClient, KubeError
from fleetward_operator.edges.metrics import Metrics
from fleetward_operator.edges.writer import Writer


class Recorder:
    """Stands in for `KubeClient`: keeps what is sent, answers with `answers` in turn."""

    def __init__(self, *answers: dict[str, Any] | Exception) -> None:
        self.sent: list[tuple[str, str, Any]] = []
        self.answers = list(answers)

    async def request(self, method: str, path: str, **kwargs: Any) -> dict[str, Any]:
        self.sent.append((method, path, kwargs.get("body")))
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def preconditions(self) -> list[Any]:
        bodies = [body for method, _, body in self.sent if method != "GET"]
        return [body["metadata"].get("resourceVersion") for body in bodies]


def conflict() -> KubeError:
    return KubeError(409, "Conflict", "it was changed")


def client(api: object) -> KubeClient:
    return cast("KubeClient", api)


def writer(api: object, may_write: Callable[[], bool] = lambda: True) -> Writer:
    return Writer(client(api), may_write=may_write, metrics=Metrics(), timeout_s=1.0)
