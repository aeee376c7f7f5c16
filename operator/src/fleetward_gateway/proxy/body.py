"""The request body: its bounds, and the few fields that the gateway itself needs."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NoReturn

from fleetward_api.openai import (
    CODE_INVALID_JSON,
    CODE_INVALID_VALUE,
    CODE_OVERLOADED,
)
from fleetward_gateway.admission.subject import check_user
from fleetward_gateway.problem import Problem, too_large
from fleetward_gateway.proxy.asgi import ClientGone, Receive, RequestHead
from fleetward_gateway.proxy.json_shape import overfull

MAX_DEPTH: Final = 64
MAX_MODEL_CHARS: Final = 256
_SHOWN: Final = 64
_USER_FIELDS: Final = ("safety_identifier", "user")


class BodyBudget:
    """Bytes of bodies that may be held at once, over all requests; one for each direction."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.held = 0

    def has(self, size: int) -> bool:
        """Whether there is room for `size` bytes more."""
        return self.held + size <= self.limit

    def take(self, size: int) -> None:
        """Reserve `size` bytes; pair with `give`. Raises `Problem` (503) when there is no room."""
        if not self.has(size):
            raise Problem(
                503,
                CODE_OVERLOADED,
                "The gateway holds as many request bodies as it may; try again shortly.",
                retry_after_s=1,
                close=True,
            )
        self.held += size

    def give(self, size: int) -> None:
        """Return bytes."""
        self.held -= size


class HeldBody:
    """Bytes received so far, counted against the budget until `release`."""

    __slots__ = ("_budget", "_pieces", "size")

    def __init__(self, budget: BodyBudget) -> None:
        self._budget = budget
        self._pieces: list[bytes] = []
        self.size = 0

    def add(self, piece: bytes) -> None:
        """Count and keep a piece. Raises `Problem`."""
        self._budget.take(len(piece))
        self.size += len(piece)
        self._pieces.append(piece)

    def join(self) -> bytes:
        """The whole body."""
        if len(self._pieces) != 1:
            self._pieces = [b"".join(self._pieces)]
        return self._pieces[0]

    def release(self) -> None:
        """Forget the bytes; may be called twice."""
        self._budget.give(self.size)
        self._pieces.clear()
        self.size = 0


def check_head(head: RequestHead, *, limit: int) -> None:
    """Refuse by headers alone. Raises `Problem` 413 or 415."""
    media_type, _, parameters = head.get(b"content-type").partition(b";")
    if media_type.strip().lower() != b"application/json":
        raise Problem(415, CODE_INVALID_VALUE, "Send the body as Content-Type: application/json.")
    charset = parameters.replace(b" ", b"").replace(b'"', b"").lower()
    if charset.startswith(b"charset=") and charset not in {b"charset=utf-8", b"charset=utf8"}:
        raise Problem(415, CODE_INVALID_VALUE, "Send the body in UTF-8.")
    if head.get(b"content-encoding").lower() not in {b"", b"identity"}:
        raise Problem(
            415, CODE_INVALID_VALUE, "Compressed bodies are not accepted; send it uncompressed."
        )
    length = head.get(b"content-length")
    if length.isdigit() and int(length) > limit:
        raise too_large(limit)


async def receive_body(receive: Receive, held: HeldBody, *, limit: int, within_s: float) -> None:
    """Read the whole body into `held`.

    Raises:
        Problem: 413 beyond `limit`, 408 after `within_s`, 503 beyond the budget.
        ClientGone: the client left.
    """
    try:
        async with asyncio.timeout(within_s):
            more = True
            while more:
                message = await receive()
                if message["type"] != "http.request":
                    raise ClientGone
                piece = message.get("body", b"")
                if held.size + len(piece) > limit:
                    raise too_large(limit)
                if piece:
                    held.add(piece)
                more = message.get("more_body", False)
    except TimeoutError:
        raise Problem(
            408,
            CODE_INVALID_VALUE,
            f"The request body did not arrive within {within_s:g} seconds.",
            close=True,
        ) from None


@dataclass(frozen=True, slots=True)
class Asked:
    """What the gateway itself reads of a body: the served name, and the user (`""`: none named)."""

    model: str
    user: str = ""


def read_asked(body: bytes) -> Asked:
    """Model and user of a request body, which is checked to be one unambiguous JSON object.

    The user is named by `safety_identifier` or, as it was called before, `user`.

    Strict where two readers could differ: text that is not UTF-8, a key given twice, NaN. The
    values of other fields are the engine's to check.

    Raises:
        Problem: 400, saying what is wrong and where.
    """
    value = _parse(body)
    if not isinstance(value, dict):
        raise _invalid("The body must be a JSON object.")
    if "model" not in value:
        raise _invalid_model("Name the model to use in 'model'.")
    model = value["model"]
    if not isinstance(model, str) or not 0 < len(model) <= MAX_MODEL_CHARS:
        raise _invalid_model(f"'model' must be a string of 1 to {MAX_MODEL_CHARS} characters.")
    named = [check_user(value.get(param), param=param) for param in _USER_FIELDS]
    return Asked(model, next(filter(None, named), ""))


def _parse(body: bytes) -> object:
    if not body.strip():
        raise _invalid("The body is empty; send a JSON object.")
    if limit := overfull(body):
        raise _invalid(f"The body holds more than {limit}.")
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        raise _invalid(f"The body is not UTF-8: byte {error.start} is out of place.") from None
    try:
        value: object = json.loads(text, object_pairs_hook=_unique, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise _invalid(f"The body is not valid JSON: {error.msg} at {where}.") from None
    except RecursionError:
        raise _too_deep() from None
    except ValueError:
        # The interpreter refuses integers of thousands of digits, to bound the time they take.
        raise _invalid("The body holds a number with too many digits.") from None
    # Counting brackets is far cheaper than a walk and settles nearly every request.
    if body.count(b"[") + body.count(b"{") > MAX_DEPTH and _deeper_than(value, MAX_DEPTH):
        raise _too_deep()
    return value


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    value = dict(pairs)
    if len(value) != len(pairs):
        twice = _first_repeated(name for name, _ in pairs)
        raise _invalid(f"The key {twice[:_SHOWN]!r} stands twice in one object; keep one of them.")
    return value


def _first_repeated(names: Iterable[str]) -> str:
    # One pass: a hostile body may hold half a million names.
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return ""


def _refuse_constant(name: str) -> NoReturn:
    raise _invalid(f"{name} is not a JSON number.")


def _deeper_than(value: object, limit: int) -> bool:
    level: list[object] = [value]
    for _ in range(limit):
        below: list[object] = []
        for item in level:
            if isinstance(item, dict):
                below.extend(item.values())
            elif isinstance(item, list):
                below.extend(item)
        level = [item for item in below if isinstance(item, dict | list)]
        if not level:
            return False
    return True


def _too_deep() -> Problem:
    return _invalid(f"The body is nested deeper than {MAX_DEPTH} levels.")


def _invalid(message: str) -> Problem:
    return Problem(400, CODE_INVALID_JSON, message)


def _invalid_model(message: str) -> Problem:
    return Problem(400, CODE_INVALID_VALUE, message, param="model")
