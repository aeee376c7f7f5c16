"""Sliding windows that a config asks for: which layers see how far back."""

from __future__ import annotations

from fleetward_engine.hf.json_file import JsonObject

_MAX_WINDOW = 1 << 24
_MAX_LAYERS = 1 << 10
_FULL, _SLIDING = "full_attention", "sliding_attention"


def read_windows(
    file: JsonObject, *, num_layers: int, max_model_len: int, default: int | None, optional: bool
) -> tuple[int | None, ...]:
    """How many positions each layer attends to; None where it is all.

    A window that no sequence of the model can outgrow is none. `default` is what a file means that
    names no `sliding_window`; with `optional` there is one only where `use_sliding_window` says so,
    and then by default only from layer `max_window_layers` on.

    Raises:
        ModelUnsupported: kinds of layers that there is no code for.
    """
    window = default
    if "sliding_window" in file.values:
        given = file.get("sliding_window")
        window = None if given is None else file.integer("sliding_window", low=1, high=_MAX_WINDOW)
    if optional and not file.flag("use_sliding_window", default=False):
        window = None
    kinds = file.items("layer_types") or [_FULL if window is None else _SLIDING] * num_layers
    if optional and window is not None and file.get("layer_types") is None:
        full = file.integer("max_window_layers", low=0, high=_MAX_LAYERS)
        kinds = [_FULL if index < full else _SLIDING for index in range(num_layers)]
    strange = next((kind for kind in kinds if kind not in {_FULL, _SLIDING}), None)
    if strange is not None:
        file.refuse("layer_types", f"names {str(strange)[:40]!r}, which has no code here")
    if len(kinds) != num_layers:
        file.refuse("layer_types", f"has {len(kinds)} entries for {num_layers} layers")
    if window is None and _SLIDING in kinds:
        file.refuse("layer_types", "names sliding_attention, but no sliding_window is given")
    if window is None or window >= max_model_len:
        return (None,) * num_layers
    return tuple(window if kind == _SLIDING else None for kind in kinds)
