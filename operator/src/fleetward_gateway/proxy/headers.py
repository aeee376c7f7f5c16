"""Which headers cross the gateway: two allow-lists. Identity never comes from a client."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from fleetward_api.identity import IDENTITY_HEADER
from fleetward_gateway.proxy.asgi import Headers, RequestHead

_TO_ENGINE: Final = (b"content-type", b"accept")
_TO_CLIENT: Final = frozenset(
    {
        b"content-type",
        b"cache-control",
        b"openai-processing-ms",
        b"retry-after",
        b"retry-after-ms",
        b"x-should-retry",
    }
)
_TO_CLIENT_PREFIXES: Final = (b"x-ratelimit-", b"fleetward-")
_NEVER_TO_CLIENT: Final = frozenset({b"fleetward-identity", b"fleetward-admin"})


def engine_headers(head: RequestHead, *, token: str, length: int) -> dict[str, str]:
    """What an engine gets: a few of the client's headers, and what the gateway vouches for."""
    headers = {
        name.decode(): head.get(name).decode("latin-1") for name in _TO_ENGINE if head.get(name)
    }
    headers["x-request-id"] = head.request_id.decode()
    headers[IDENTITY_HEADER] = token
    # Named, so that the body goes out in one piece although it is handed over as a stream.
    headers["content-length"] = str(length)
    return headers


def client_headers(raw: Iterable[tuple[bytes, bytes]]) -> Headers:
    """What of an engine's headers the client gets; never length or framing, which are ours."""
    return [
        (name, value)
        for name, value in ((name.lower(), value) for name, value in raw)
        if name in _TO_CLIENT
        or (name.startswith(_TO_CLIENT_PREFIXES) and name not in _NEVER_TO_CLIENT)
    ]
