"""How a request is framed and addressed: one way, or it is refused (RFC 9112, 3.2, 6.1, 11.2).

The parser is strict about bytes. Here is what it lets through and another reader in front of us
could still take differently, and so cut the stream of requests elsewhere than we do.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

RawHeaders = Sequence[tuple[bytes, bytes]]

_VERSIONS: Final = frozenset({"1.0", "1.1"})
_HOST: Final = re.compile(rb"[A-Za-z0-9._~%!$&'()*+;=:\[\]-]*")
_LENGTH: Final = b"content-length"
_CODING: Final = b"transfer-encoding"


def fault_of_head(headers: RawHeaders, *, target: bytes, version: str) -> str:
    """Why a request cannot be taken, "" when it can.

    Args:
        headers: names in lower case.
        target: the request's target as it came.
        version: of HTTP, such as `1.1`.
    """
    if version not in _VERSIONS:
        return "This is not an HTTP/1.1 request."
    codings = [value for name, value in headers if name == _CODING]
    if codings and (version == "1.0" or [c.strip().lower() for c in codings] != [b"chunked"]):
        return "The only transfer encoding taken is 'chunked', in HTTP/1.1."
    if codings and any(name == _LENGTH for name, _ in headers):
        return "A request is framed by its length or in chunks, not both."
    hosts = [value for name, value in headers if name == b"host"]
    if len(hosts) > 1 or (not hosts and version == "1.1"):
        return "A request must have exactly one Host header."
    if hosts and not _HOST.fullmatch(hosts[0]):
        return "The Host header names no host."
    if (not target.startswith(b"/") and target != b"*") or b"#" in target:
        return "The request's target must be a path."
    return ""


def declared_length(headers: RawHeaders) -> int:
    """The length that a checked head declares for its body, 0 when it declares none."""
    return next((int(value) for name, value in headers if name == _LENGTH), 0)


def framing_header(headers: RawHeaders) -> bytes:
    """The header that frames the body of a request, empty when there is no body."""
    for name, value in headers:
        if name == _CODING or (name == _LENGTH and int(value)):
            return name + b": " + value
    return b""
