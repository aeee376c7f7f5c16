"""Reading a GGUF file through the `gguf` package: typed metadata, tensors as float arrays."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
import numpy.typing as npt
from gguf import GGMLQuantizationType, GGUFReader
from gguf.quants import dequantize

from fleetward_engine.errors import ModelUnavailable, ModelUnsupported, one_line

T = TypeVar("T")
FloatArray = npt.NDArray[np.floating[Any]]


class _Reader(GGUFReader):  # type: ignore[misc]  # the package is untyped
    """A reader that never goes past the end of the file.

    The package takes what is missing there for empty values: a length that a damaged file claims
    would then be counted down one by one, for hours.
    """

    def _get(
        self,
        offset: int,
        dtype: npt.DTypeLike,
        count: int = 1,
        override_order: Literal["I", "S", "<"] | None = None,
    ) -> npt.NDArray[Any]:
        wanted, size = int(count) * np.dtype(dtype).itemsize, len(self.data)
        if offset + wanted > size:
            raise ValueError(f"{wanted} bytes are missing at {offset}: the file ends at {size}")
        found: npt.NDArray[Any] = super()._get(offset, dtype, count, override_order)
        return found


class GgufFile:
    """One model file. Metadata is read when asked for: vocabularies are large.

    Raises:
        ModelUnavailable: the file can't be read as GGUF.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._reader = _Reader(path)
        # Whatever a damaged file makes of the package's code.
        except Exception as fault:
            raise ModelUnavailable(
                f"{path} can't be read as GGUF, fetch it again: {one_line(fault)}"
            ) from fault
        self._tensors = {tensor.name: tensor for tensor in self._reader.tensors}

    @property
    def tensor_names(self) -> frozenset[str]:
        """Names of all tensors."""
        return frozenset(self._tensors)

    @property
    def keys(self) -> frozenset[str]:
        """Names of all metadata fields."""
        return frozenset(self._reader.fields)

    def get(self, key: str) -> object | None:
        """A metadata value as Python's own types, or None where the file has none."""
        field = self._reader.get_field(key)
        return None if field is None else field.contents()

    def text(self, key: str, default: str | None = None) -> str:
        """A metadata text."""
        return self._typed(key, str, default)

    def integer(self, key: str, default: int | None = None) -> int:
        """A metadata whole number."""
        return self._typed(key, int, default)

    def number(self, key: str, default: float | None = None) -> float:
        """A metadata number."""
        return self._typed(key, float, default)

    def flag(self, key: str, *, default: bool) -> bool:
        """A metadata truth value."""
        return self._typed(key, bool, default)

    def strings(self, key: str) -> list[str]:
        """A metadata list of texts."""
        return [str(item) for item in self._typed(key, list, None)]

    def integers(self, key: str) -> list[int]:
        """A metadata list of whole numbers."""
        return [int(item) for item in self._typed(key, list, None)]

    def shape(self, name: str) -> tuple[int, ...]:
        """A tensor's row-major shape. Raises `ModelUnsupported` where there is none."""
        tensor = self._tensors.get(name)
        if tensor is None:
            raise ModelUnsupported(f"{self.path.name} has no tensor {name!r}")
        return tuple(int(size) for size in reversed(tensor.shape))

    def tensor(self, name: str) -> FloatArray:
        """A tensor, dequantised, in the row-major shape that torch uses.

        Raises:
            ModelUnsupported: the file has no such tensor, or holds it in an unknown format.
        """
        shape = self.shape(name)
        tensor = self._tensors[name]
        if tensor.tensor_type == GGMLQuantizationType.F64:
            return np.asarray(tensor.data, dtype=np.float64).reshape(shape)
        try:
            values = dequantize(tensor.data, tensor.tensor_type)
        except NotImplementedError as fault:
            raise ModelUnsupported(f"tensor {name!r}: {fault}") from fault
        return np.asarray(values, dtype=np.float32).reshape(shape)

    def _typed(self, key: str, kind: type[T], default: T | None) -> T:
        value = self.get(key)
        if value is None:
            value = default
        if not isinstance(value, kind):
            raise ModelUnsupported(f"{self.path.name}: metadata {key!r} must be a {kind.__name__}")
        return value
