"""Objects of the cluster with junk in them."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from typing import Any

JUNK: tuple[Any, ...] = (
    *(-1, 1e30, True, ["x"], {"a": None}, "\x00", "9999-99-99T00:00:00Z", [None], {"a": "b"}),
    *("10parsecs", float("nan"), 10**40, "\u00e4" * 300),
)


def broken(item: dict[str, Any], rng: random.Random) -> dict[str, Any]:
    """The object with junk for one of the values in its spec, data or endpoints."""
    made = copy.deepcopy(item)
    part = next(name for name in ("spec", "data", "endpoints") if name in made)
    if part == "endpoints":
        # Such that it cannot be read: an endpoint that is none.
        return {**made, part: [rng.choice(JUNK[:3])]}
    path = rng.choice(list(paths(made[part])))
    at: Any = made[part]
    for step in path[:-1]:
        at = at[step]
    at[path[-1]] = copy.deepcopy(rng.choice(JUNK))
    if part == "spec":
        # Junk may be valid by chance; a field that nobody knows never is.
        made["spec"]["surelyUnknown"] = 1
    return made


def paths(value: Any, prefix: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where the values inside a value are."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for step, inner in items:
        yield (*prefix, step)
        if isinstance(inner, dict | list):
            yield from paths(inner, (*prefix, step))
