"""kopf keeps the process and nothing else: what it watches, it can die of."""

from __future__ import annotations

from itertools import islice
from typing import cast

from fleetward_operator.handlers.app import App
from fleetward_operator.handlers.kopf_registry import Backoffs, build_registry, build_settings


def test_no_handler_makes_kopf_watch_anything() -> None:
    registry = build_registry(cast("App", None))
    for kinds in (
        *(registry._webhooks, registry._indexing, registry._watching),
        *(registry._spawning, registry._changing),
    ):
        assert kinds.get_all_handlers() == []


def test_kopf_never_runs_out_of_tries() -> None:
    backoffs = build_settings().networking.error_backoffs
    assert isinstance(backoffs, Backoffs)
    # kopf takes the length of a sized series for the number of tries.
    assert not hasattr(backoffs, "__len__")
    for _ in range(2):
        assert list(islice(backoffs, 6)) == [1, 1, 2, 3, 5, 5]
