"""Weights in safetensors files: every header is checked first, then one tensor at a time is read.

Files are mapped into memory by the `safetensors` package, and a tensor is converted on its way into
the place it is for. So beside the model itself loading takes the pages of one tensor, and nothing
of the mapping is left afterwards.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from fleetward_engine.errors import ModelUnavailable, ModelUnsupported, one_line
from fleetward_engine.hf.checkpoint import Checkpoint
from fleetward_engine.hf.tensors import Shapes

_MAX_HEADER_BYTES = 16 << 20
_LENGTH_BYTES = 8
_DTYPES = ("F64", "F32", "F16", "BF16")
_SHOWN = 3
"""Tensors that a fault names."""


class SafetensorsWeights:
    """The tensors of a checkpoint, read into `dtype` on `device`. A context: it holds files open.

    Args:
        expected: every tensor that will be read. `skippable` says which others may lie there.

    Raises:
        ModelUnavailable: a file is damaged, or files don't belong together.
        ModelUnsupported: tensors that there is no code for, or that are missing.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        expected: Shapes,
        *,
        skippable: Callable[[str], bool],
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        self._dtype = dtype
        self._device = device
        self._stack = ExitStack()
        try:
            opened = {path: self._stack.enter_context(_open(path)) for path in checkpoint.shards}
            self._places = _places(checkpoint, opened)
            self._check(checkpoint.folder, expected, skippable)
        except BaseException:
            self._stack.close()
            raise
        self._shapes = expected

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        fault: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    def read(self, name: str) -> Tensor:
        """One tensor."""
        return self.stack(name)

    def stack(self, *names: str) -> Tensor:
        """Tensors one under the other, in one piece of memory."""
        shapes = [self._shapes[name] for name in names]
        rows = sum(shape[0] for shape in shapes)
        whole = torch.empty((rows, *shapes[0][1:]), dtype=self._dtype, device=self._device)
        parts = torch.split(whole, [shape[0] for shape in shapes])
        for name, part in zip(names, parts, strict=True):
            path, file = self._places[name]
            part.copy_(file.get_tensor(name))
            if not _is_finite(part):
                raise ModelUnavailable(
                    f"{path}: tensor {name!r} holds numbers that are not finite in "
                    f"{str(self._dtype).removeprefix('torch.')}: fetch it again"
                )
        return whole

    def _check(self, folder: Path, expected: Shapes, skippable: Callable[[str], bool]) -> None:
        missing = [name for name in expected if name not in self._places]
        if missing:
            raise ModelUnsupported(f"{folder} has no tensor {_some(missing)}: fetch it again")
        strange = [n for n in self._places if n not in expected and not skippable(n)]
        if strange:
            raise ModelUnsupported(f"{folder}: no code for tensors {_some(strange)}")
        for name, shape in expected.items():
            path, file = self._places[name]
            part = file.get_slice(name)
            if part.get_dtype() not in _DTYPES:
                raise ModelUnsupported(
                    f"{path}: tensor {name!r} is {part.get_dtype()}, "
                    f"but only {', '.join(_DTYPES)} have code here"
                )
            if tuple(part.get_shape()) != shape:
                raise ModelUnsupported(
                    f"{path}: tensor {name!r} has shape {part.get_shape()}, "
                    f"but config.json asks for {list(shape)}"
                )


def _open(path: Path) -> Any:
    with path.open("rb") as file:
        length = int.from_bytes(file.read(_LENGTH_BYTES), "little")
    # The package takes up to 100 MB: parsed, that is gigabytes.
    if length > _MAX_HEADER_BYTES:
        raise ModelUnavailable(
            f"{path} claims a header of {length} bytes, more than the {_MAX_HEADER_BYTES} "
            "of any checkpoint: fetch it again"
        )
    try:
        return safe_open(path, framework="pt")
    except SafetensorError as fault:
        raise ModelUnavailable(
            f"{path} can't be read as safetensors, fetch it again: {one_line(fault)}"
        ) from fault


def _places(checkpoint: Checkpoint, opened: dict[Path, Any]) -> dict[str, tuple[Path, Any]]:
    """File of each tensor; the index and the files' own headers must say the same."""
    found = {path: frozenset(file.keys()) for path, file in opened.items()}
    places = {name: (path, opened[path]) for path, names in found.items() for name in names}
    if checkpoint.weight_map is None:
        return places
    for path, names in found.items():
        said = {name for name, at in checkpoint.weight_map.items() if at == path}
        differing = sorted(said ^ names)
        if differing:
            raise ModelUnavailable(
                f"{path} and the index of shards disagree on tensor {_some(differing)}: "
                "fetch all files again, of one revision"
            )
    return places


def _is_finite(values: Tensor) -> bool:
    """Whether no number is NaN or infinite; a sum says so in one pass unless it overflows."""
    total = values.sum(dtype=torch.promote_types(values.dtype, torch.float32))
    return bool(total.isfinite()) or bool(values.isfinite().all())


def _some(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(repr(name[:80]) for name in names[:_SHOWN]) + more
