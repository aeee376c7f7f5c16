"""What an answer tells of its cache's lifetime, and what a client may ask for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetward_engine.request import CacheContext
from fleetward_engine.server.errors import ApiError
from fleetward_engine.server.openai_models import CompletionBody
from fleetward_engine.server.retention_header import asked_ttl_ms, retention_header
from tests.support.engine_core import make_request

ROOT = bytes(32)


def context(**fields: object) -> CacheContext:
    base = make_request("r", [1, 2, 3]).cache
    facts = {"root": ROOT, "owner": base.owner, "idle_ttl_ms": 600_000, "max_ttl_ms": 3_600_000}
    return CacheContext(**{**facts, **fields})  # type: ignore[arg-type]


def body(**fields: object) -> CompletionBody:
    return CompletionBody.model_validate({"model": "m", "prompt": "p", **fields})


def told(
    cache: CacheContext,
    *,
    asked: int | None = None,
    caching: bool = True,
    on_host: bool = False,
) -> str:
    return retention_header(cache, caching=caching, on_host=on_host, asked_ms=asked)


def test_the_times_of_the_class_in_force_are_told() -> None:
    assert told(context()) == "store=device, idle-ttl-ms=600000, max-ttl-ms=3600000"
    short = context(retention_class="short", max_ttl_ms=None)
    assert told(short) == 'store=device, class="short", idle-ttl-ms=600000'
    both = 'store=device-and-host, class="short", idle-ttl-ms=600000'
    assert told(short, on_host=True) == both
    assert told(context(root=None), on_host=True) == "store=none"


@pytest.mark.parametrize("fields", [{"root": None}, {"store": False}])
def test_what_leaves_nothing_says_so_and_has_no_times(fields: dict[str, object]) -> None:
    assert told(context(**fields)) == "store=none"
    assert told(context(retention_class="none", **fields)) == 'store=none, class="none"'
    assert told(context(), caching=False) == "store=none"


def test_the_policys_maximum_wins_over_what_was_asked_for_and_says_so() -> None:
    assert told(context(), asked=600_000).endswith("asked-ttl-ms=600000")
    assert told(context(), asked=600_001).endswith("asked-ttl-ms=600001, bounded")
    assert told(context(root=None), asked=1) == "store=none, asked-ttl-ms=1, bounded"
    unlimited = context(idle_ttl_ms=None, max_ttl_ms=None)
    assert told(unlimited, asked=10**9) == "store=device, asked-ttl-ms=1000000000"


@pytest.mark.parametrize(
    ("fields", "asked"),
    [
        ({}, None),
        ({"prompt_cache_options": {}}, None),
        ({"prompt_cache_options": {"ttl": "30m", "mode": "implicit"}}, 1_800_000),
        ({"prompt_cache_retention": "24h"}, 86_400_000),
        ({"prompt_cache_retention": "in_memory"}, None),
        ({"prompt_cache_retention": "24h", "prompt_cache_options": {"ttl": "48h"}}, 172_800_000),
    ],
)
def test_the_longest_that_was_asked_for_counts(fields: dict[str, object], asked: int) -> None:
    assert asked_ttl_ms(body(**fields)) == asked


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"prompt_cache_options": {"ttl": "soon"}}, "prompt_cache_options.ttl"),
        ({"prompt_cache_options": {"ttl": ""}}, "prompt_cache_options.ttl"),
        ({"prompt_cache_options": {"ttl": "-1m"}}, "prompt_cache_options.ttl"),
        ({"prompt_cache_retention": "forever"}, "prompt_cache_retention"),
    ],
)
def test_what_is_no_time_is_refused_by_name(fields: dict[str, object], param: str) -> None:
    with pytest.raises(ApiError) as refusal:
        asked_ttl_ms(body(**fields))
    assert (refusal.value.status, refusal.value.param) == (400, param)


times = st.none() | st.integers(0, 10**9)


@given(times, times, times, st.booleans())
def test_bounded_is_said_exactly_where_less_is_kept_than_was_asked_for(
    idle: int | None, longest: int | None, asked: int | None, store: bool
) -> None:
    header = told(context(idle_ttl_ms=idle, max_ttl_ms=longest, store=store), asked=asked)
    less = asked is not None and (
        not store or any(limit is not None and limit < asked for limit in (idle, longest))
    )
    assert header.endswith("bounded") == less
    assert header.isascii()
