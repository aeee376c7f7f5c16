"""Has someone changed a field that we own? Compares what we want with what is there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
    # Which kind it is, is how it was found; the items of a list don't repeat it.
    owned = {name: value for name, value in wanted.items() if name not in {"apiVersion", "kind"}}
    return _mapping(owned, live, ())


def format_path(path: Path) -> str:
    """A path for people: `spec.template.spec.containers[engine].image`."""
    return ".".join(path).replace(".[", "[")


def field_owner(path: Path, live: Mapping[str, Any], *, ours: str) -> str:
    """Name of the manager, other than ours, that last touched the field at `path`."""
    steps = [step for step in path if not step.startswith("[")]
    entries = live.get("metadata", {}).get("managedFields") or []
    rivals = [one for one in entries if one.get("manager") != ours and not one.get("subresource")]
    rivals.sort(key=lambda one: str(one.get("time", "")), reverse=True)
    for entry in rivals:
        if _touches(entry.get("fieldsV1") or {}, steps):
            return str(entry.get("manager", "unknown"))
    return "unknown"


def _mapping(wanted: Mapping[str, Any], live: object, path: Path) -> Path:
    if not isinstance(live, Mapping):
        return path or (".",)
    for name, value in wanted.items():
        where = (*path, name)
        if name not in live:
            # The API server leaves out what is empty.
            if value in ({}, [], "", None):
                continue
            return where
        found = _value(value, live[name], where)
        if found:
            return found
    return ()


def _value(wanted: object, live: object, path: Path) -> Path:
    if isinstance(wanted, Mapping):
        return _mapping(wanted, live, path)
    if not isinstance(wanted, list):
        return () if _equal(wanted, live) else path
    if not isinstance(live, list):
        return path
    if path[-1] in _KEYED and all(isinstance(item, Mapping) for item in wanted):
        return _keyed_list(wanted, live, path)
    if len(live) != len(wanted):
        return path
    for index, (item, other) in enumerate(zip(wanted, live, strict=True)):
        found = _value(item, other, (*path, f"[{index}]"))
        if found:
            return found
    return ()


def _keyed_list(wanted: Sequence[Any], live: Sequence[Any], path: Path) -> Path:
    for item in wanted:
        key = next((name for name in reversed(_KEYS) if name in item), "port")
        where = (*path, f"[{item.get(key)}]")
        match = next((one for one in live if one.get(key) == item.get(key)), None)
        found = where if match is None else _mapping(item, match, where)
        if found:
            return found
    return ()


def _equal(wanted: object, live: object) -> bool:
    if wanted == live:
        return True
    if not isinstance(wanted, str) or not isinstance(live, str | int) or isinstance(live, bool):
        return False
    try:
        return quantity_fraction(wanted) == quantity_fraction(live)
    except ValueError:
        return False


def _touches(fields: Mapping[str, Any], steps: Sequence[str]) -> bool:
    if not steps:
        return True
    inner = fields.get(f"f:{steps[0]}")
    if inner is not None:
        # A manager that owns a whole map or list owns what is in it.
        return not inner or _touches(inner, steps[1:])
    entries = (value for key, value in fields.items() if key.startswith(("k:", "v:", "i:")))
    return any(_touches(value, steps) for value in entries)
