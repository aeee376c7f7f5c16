"""Canonical JSON: one byte string per value, so that what is signed is what is read.

Keys sorted by code point, no spaces, UTF-8 without escapes that JSON does not need, integers within
signed 64 bits, no floats. Close to RFC 8785 (JCS), which sorts by UTF-16 unit and allows floats.
Text is never normalised: two spellings of one character are two values.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Mapping
from typing import Annotated, Any, NoReturn, TypeVar

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError
from pydantic.alias_generators import to_camel

from fleetward_api.errors import CanonicalError

MAX_DEPTH = 32
MAX_INTEGER = 2**63 - 1

Count = Annotated[int, Field(ge=0, le=MAX_INTEGER, strict=True)]
"""A number of things, a version, or a time: 0 ≤ n < 2^63."""
Name = Annotated[str, Field(min_length=1, max_length=253)]
"""A required name, bounded like a Kubernetes object name."""
OptionalName = Annotated[str, Field(max_length=253)]
"""A name, or `""` for none."""
Text = Annotated[str, Field(max_length=4096)]
"""A sentence for people."""
Digest = Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$")]
"""A SHA-256 digest as `digest` spells it."""
HexDigest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
"""A keyed digest (HMAC-SHA256), lowercase hex."""

M = TypeVar("M", bound=BaseModel)


class WireModel(BaseModel):
    """Base of everything that crosses a process: camelCase outside, snake_case inside, frozen."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        serialize_by_alias=True,
        protected_namespaces=(),
    )


class AnswerModel(WireModel):
    """An unsigned answer of a member: fields that a newer member adds are ignored."""

    model_config = ConfigDict(extra="ignore")


def canonical_bytes(value: object) -> bytes:
    """Return the canonical JSON of a JSON value or pydantic model.

    Raises:
        CanonicalError: a float, an integer beyond 64 bits, a key that is no string, text that is
            not valid Unicode, nesting deeper than `MAX_DEPTH`, or a type that JSON lacks.
    """
    if isinstance(value, BaseModel):
        value = value.model_dump(mode="json", by_alias=True)
    _check(value, depth=0)
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
    try:
        return text.encode()
    except UnicodeEncodeError as fault:
        raise CanonicalError(f"text holds a lone surrogate, which UTF-8 lacks: {fault}") from fault


def parse_canonical(data: bytes) -> JsonValue:
    """Parse canonical JSON, refusing every other spelling of the same value.

    Raises:
        CanonicalError: not UTF-8, not JSON, a duplicate key, a float, or any byte that the
            canonical form of the value would not have.
    """
    try:
        value: JsonValue = json.loads(
            data.decode(),
            object_pairs_hook=_object,
            parse_float=_refuse_number,
            parse_constant=_refuse_number,
        )
    except (ValueError, RecursionError) as fault:
        raise CanonicalError(f"not canonical JSON: {fault}") from fault
    if canonical_bytes(value) != data:
        raise CanonicalError("not canonical JSON: keys unsorted, spaces, or needless escapes")
    return value


def parse_model(model: type[M], data: bytes) -> M:
    """Parse canonical JSON into `model`, refusing bytes that the model would not write itself.

    A coerced value, a missing default and an unknown field all change the bytes, so what a reader
    holds is exactly what was written.

    Raises:
        CanonicalError: naming what is wrong.
    """
    try:
        parsed = model.model_validate(_json_model(model, data))
    except ValidationError as fault:
        raise CanonicalError(f"not a {model.__name__}: {first_error(fault)}") from fault
    if canonical_bytes(parsed) != data:
        raise CanonicalError(f"not the canonical form of a {model.__name__}")
    return parsed


def _json_model(model: type[M], data: bytes) -> M:
    parse_canonical(data)
    return model.model_validate_json(data)


def first_error(fault: ValidationError) -> str:
    """Return the first error of a pydantic fault as one line: `field.path: message`."""
    error = fault.errors(include_url=False, include_context=False, include_input=False)[0]
    path = ".".join(str(part) for part in error["loc"])
    return f"{path}: {error['msg']}" if path else error["msg"]


def digest(data: bytes) -> str:
    """Return `sha256:` and the 64 hex digits of the SHA-256 of `data` (FIPS 180-4)."""
    return "sha256:" + hashlib.sha256(data).hexdigest()


def length_prefixed(*parts: bytes) -> bytes:
    """Join parts, each after its length as a 64-bit big-endian number.

    Injective: no two different sequences of parts give the same bytes.
    """
    return b"".join(struct.pack(">Q", len(part)) + part for part in parts)


def _check(value: object, *, depth: int) -> None:
    if depth > MAX_DEPTH:
        raise CanonicalError(f"nested deeper than {MAX_DEPTH} levels")
    if value is None or isinstance(value, bool | str):
        return
    if isinstance(value, int):
        if not -MAX_INTEGER - 1 <= value <= MAX_INTEGER:
            raise CanonicalError("an integer is outside 64 bits")
    elif isinstance(value, list | tuple):
        for item in value:
            _check(item, depth=depth + 1)
    elif isinstance(value, Mapping):
        _check_mapping(value, depth=depth)
    else:
        raise CanonicalError(f"{type(value).__name__} has no canonical JSON; use an integer or str")


def _check_mapping(value: Mapping[Any, Any], *, depth: int) -> None:
    if not isinstance(value, dict):
        raise CanonicalError(f"{type(value).__name__} has no canonical JSON; use a dict")
    for key, item in value.items():
        if not isinstance(key, str):
            raise CanonicalError(f"a key is {type(key).__name__}, not a string")
        _check(item, depth=depth + 1)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError("an object names a key twice")
    return value


def _refuse_number(text: str) -> NoReturn:
    raise ValueError(f"{text[:40]} is a float; only integers are allowed")
