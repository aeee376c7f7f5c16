"""How long a request's cache may live, as its answer tells; and what the client had asked for.

A client asks for a minimum (`prompt_cache_options.ttl`, `prompt_cache_retention`), and every number
of a policy is a maximum. So the policy's holds, and the header says so where it is the shorter.
"""

from __future__ import annotations

from typing import Final

from fleetward_api.openai import CODE_INVALID_VALUE
from fleetward_api.quantity import parse_duration
from fleetward_engine.request import CacheContext
from fleetward_engine.server.errors import ApiError, refused
from fleetward_engine.server.openai_models import GenerationBody

RETENTION_HEADER: Final = "Fleetward-Retention"
_DAY_MS: Final = 86_400_000
_NAMED: Final = {"in_memory": None, "in-memory": None, "24h": _DAY_MS}
"""OpenAI's words for `prompt_cache_retention`; the first two ask for no time."""


def asked_ttl_ms(body: GenerationBody) -> int | None:
    """The longest time that a client would like its prompt to stay cached, milliseconds.

    Raises:
        ApiError: 400 that names the field whose value is no time.
    """
    asked: list[int] = []
    options = body.prompt_cache_options
    if options is not None and options.ttl is not None:
        try:
            asked.append(parse_duration(options.ttl))
        except ValueError as fault:
            raise _invalid("prompt_cache_options.ttl", f"{fault}.") from fault
    if body.prompt_cache_retention is not None:
        if body.prompt_cache_retention not in _NAMED:
            words = 'prompt_cache_retention must be "in_memory" or "24h".'
            raise _invalid("prompt_cache_retention", words)
        named = _NAMED[body.prompt_cache_retention]
        asked += [] if named is None else [named]
    return max(asked, default=None)


def retention_header(
    cache: CacheContext, *, caching: bool, on_host: bool, asked_ms: int | None
) -> str:
    """What the answer says of the request's cache: a dictionary of RFC 9651.

    Args:
        cache: what the request may leave, as it was submitted.
        caching: whether the engine keeps anything at all.
        on_host: whether what is kept may also go to host memory.
        asked_ms: `asked_ttl_ms` of its body.

    Returns:
        For example `store=device, class="short", idle-ttl-ms=600000, max-ttl-ms=3600000`, with
        `asked-ttl-ms=86400000, bounded` where the client asked for more than it gets; and
        `store=none;why=no-user` where rules leave it without a cache.
    """
    kept = caching and cache.root is not None and cache.store
    where = "device-and-host" if on_host else "device"
    parts = [f"store={where if kept else 'none'}"]
    if cache.uncached is not None:
        parts[0] += f";why={cache.uncached}"
    if cache.retention_class:
        parts.append(f'class="{cache.retention_class}"')
    limits = {"idle-ttl-ms": cache.idle_ttl_ms, "max-ttl-ms": cache.max_ttl_ms} if kept else {}
    parts += [f"{name}={limit}" for name, limit in limits.items() if limit is not None]
    if asked_ms is not None:
        parts.append(f"asked-ttl-ms={asked_ms}")
        longest = min((limit for limit in limits.values() if limit is not None), default=asked_ms)
        if not kept or longest < asked_ms:
            parts.append("bounded")
    return ", ".join(parts)


def _invalid(param: str, message: str) -> ApiError:
    return refused(param, message, code=CODE_INVALID_VALUE)
