"""Who changed a field: reads the managedFields that the API server keeps (KEP-555).

An update that changes a field takes it over from us, so its manager is on record. An update that
removes a field leaves no trace: nobody owns what is not there.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from fleetward_operator.core.drift import Path
from fleetward_operator.core.words import enumerated

_NAMING = ("name", "uid")


def field_managers(paths: Iterable[Path], live: Mapping[str, Any], *, ours: Collection[str]) -> str:
    """Names of those who own any of the fields, ours left out, as words; "" when nobody does."""
    found = dict.fromkeys(field_manager(path, live, ours=ours) for path in paths)
    return enumerated([name for name in found if name])


def field_manager(path: Path, live: Mapping[str, Any], *, ours: Collection[str]) -> str:
    """The manager that last took the field at `path` from us; "" when nobody did.

    One that holds it beside us wants what we want.
    """
    holders = [
        entry
        for entry in live.get("metadata", {}).get("managedFields") or ()
        if not entry.get("subresource") and owns(entry.get("fieldsV1") or {}, path)
    ]
    if not holders or any(entry.get("manager") in ours for entry in holders):
        return ""
    last = max(holders, key=lambda entry: str(entry.get("time", "")))
    return str(last.get("manager") or "unknown")


def owns(fields: Mapping[str, Any], path: Sequence[str]) -> bool:
    """Whether a set of fields (FieldsV1) holds the field at `path` or something inside it.

    An entry without anything inside is owned as a whole: a plain value, or an atomic list or map.
    """
    if not path:
        return True
    step, rest = path[0], path[1:]
    if not step.startswith("["):
        inner = fields.get(f"f:{step}")
        return inner is not None and (not inner or owns(inner, rest))
    return any(
        (not inner or owns(inner, rest))
        for key, inner in fields.items()
        if _names_entry(key, step[1:-1])
    )


def _names_entry(key: str, wanted: str) -> bool:
    """Whether a list entry's key (`k:{"name":"engine"}`, `i:0`, `v:"x"`) is the wanted one."""
    kind, _, text = key.partition(":")
    if kind == "i":
        return text == wanted
    if kind not in {"k", "v"}:
        return False
    try:
        value = json.loads(text)
    except ValueError:
        return False
    if kind == "k" and isinstance(value, Mapping):
        named = [value[name] for name in _NAMING if name in value]
        # Ports and mounts are keyed by numbers and paths: a name can't tell which one it is.
        return wanted in map(str, named) if named else True
    return str(value) == wanted
