"""Sliding windows that a config asks for: which layers see how far back."""

from __future__ import annotations

from fleetward_engine.hf.json_file import JsonObject
from fleetward_engine.models.llama import LlamaConfig

_MAX_WINDOW = 1 << 24
_FULL, _SLIDING = "full_attention", "sliding_attention"


def refuse_windows(
    file: JsonObject, config: LlamaConfig, *, default: int | None, optional: bool
) -> None:
    """Refuse a window that a sequence of this model could outgrow; one that none can is no window.

    `default` is what a file means that names no `sliding_window`; with `optional` there is one
    only where `use_sliding_window` says so.
    """
    window = default
    if "sliding_window" in file.values:
        given = file.get("sliding_window")
        window = None if given is None else file.integer("sliding_window", low=1, high=_MAX_WINDOW)
    if optional and not file.flag("use_sliding_window", default=False):
        window = None
    kinds = file.items("layer_types")
    for kind in kinds:
        if kind not in {_FULL, _SLIDING}:
            file.refuse("layer_types", f"names {str(kind)[:40]!r}, which has no code here")
    if window is None and _SLIDING in kinds:
        file.refuse("layer_types", "names sliding_attention, but no sliding_window is given")
    if window is not None and window < config.max_model_len and set(kinds) != {_FULL}:
        file.refuse("sliding_window", f"({window}) has no code here: only full attention")
