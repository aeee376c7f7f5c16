"""Has someone changed a field that we own? Compares what we want with what is there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fleetward_api.quantity import quantity_fraction

Path = tuple[str, ...]
"""Steps to a field; a step in brackets is a list entry, by key or position."""

# Lists that Kubernetes merges by a key: others may add entries of their own.
_KEYED = frozenset({"env", "containers", "volumes", "volumeMounts", "ports", "ownerReferences"})
_KEYS = ("name", "uid")


def find_drift(wanted: Mapping[str, Any], live: Mapping[str, Any]) -> Path:
    """The first wanted field that is missing or different in `live`; an empty path for none.

    Fields that others added are not drift. Quantities are equal when their amounts are.
    """
    return next(find_drifts(wanted, live), ())


def find_drifts(wanted: Mapping[str, Any], live: Mapping[str, Any]) -> Iterator[Path]:
    """Every wanted field that is missing or different in `live`, in the order of `wanted`."""
    # Which kind it is, is how it was found; the items of a list don't repeat it.
    owned = {name: value for name, value in wanted.items() if name not in {"apiVersion", "kind"}}
    yield from _mapping(owned, live, ())


def format_path(path: Path) -> str:
    """A path for people: `spec.template.spec.containers[engine].image`."""
    return ".".join(path).replace(".[", "[")


def _mapping(wanted: Mapping[str, Any], live: object, path: Path) -> Iterator[Path]:
    if not isinstance(live, Mapping):
        yield path or (".",)
        return
    for name, value in wanted.items():
        where = (*path, name)
        if name in live:
            yield from _value(value, live[name], where)
        elif value not in ({}, [], "", None):
            # The API server leaves out what is empty.
            yield where


def _value(wanted: object, live: object, path: Path) -> Iterator[Path]:
    if isinstance(wanted, Mapping):
        yield from _mapping(wanted, live, path)
    elif not isinstance(wanted, list):
        if not _equal(wanted, live):
            yield path
    elif not isinstance(live, list):
        yield path
    elif path[-1] in _KEYED and all(isinstance(item, Mapping) for item in wanted):
        yield from _keyed_list(wanted, live, path)
    elif len(live) != len(wanted):
        yield path
    else:
        for index, (item, other) in enumerate(zip(wanted, live, strict=True)):
            yield from _value(item, other, (*path, f"[{index}]"))


def _keyed_list(wanted: Sequence[Any], live: Sequence[Any], path: Path) -> Iterator[Path]:
    for item in wanted:
        key = next((name for name in reversed(_KEYS) if name in item), "port")
        where = (*path, f"[{item.get(key)}]")
        match = next((one for one in live if one.get(key) == item.get(key)), None)
        if match is None:
            yield where
        else:
            yield from _mapping(item, match, where)


def _equal(wanted: object, live: object) -> bool:
    if wanted == live:
        return True
    if not isinstance(wanted, str) or not isinstance(live, str | int) or isinstance(live, bool):
        return False
    try:
        return quantity_fraction(wanted) == quantity_fraction(live)
    except ValueError:
        return False
