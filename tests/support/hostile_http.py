"""Requests that two HTTP readers could cut or address differently, as bytes, and a raw client."""

from __future__ import annotations

import asyncio
import contextlib
import re
import ssl
from dataclasses import dataclass

SMUGGLED = b"GET /v1/models?smuggled HTTP/1.1\r\nhost: g\r\n\r\n"
"""What the second reader would take for a request of its own."""

_BODY = b'{"model":"m"}'
_CHUNK = b"d\r\n" + _BODY + b"\r\n"
_LAST = b"0\r\n\r\n"
_EMPTY = _LAST + SMUGGLED
_CHUNKED = b"transfer-encoding: chunked\r\n"

_CODINGS = (
    *(b"xchunked", b"identity", b"chunked, identity", b"identity, chunked", b"gzip, chunked"),
    *(b"chunked, chunked", b"chunked;q=1", b'"chunked"', b"\x0bchunked", b",chunked", b"chunked,"),
    *(b"", b"chunked\x00", b"\xa0chunked", b"deflate", b"trailers"),
)
_LENGTHS = (b"+13", b"-1", b"0xd", b"1 3", b"1_3", b"13, 13", b"13,0", b"", b"1e1", b"13\x00")
_LENGTHS_TOO = (b"\x0b13", b"99999999999999999999999", b"\xb213", b'"13"', b"13;a=b")
_CHUNKS = {
    "bare LF after the size": b"d\n" + _BODY + b"\r\n" + _LAST,
    "bare LF after the data": b"d\r\n" + _BODY + b"\n" + _LAST,
    "bare LF at the last chunk": _CHUNK + b"0\n\n",
    "bare LF at the very end": _CHUNK + b"0\r\n\n",
    "bare CR after the size": b"d\r" + _BODY + b"\r\n" + _LAST,
    "LF in an extension": b"d;a\nb\r\n" + _BODY + b"\r\n" + _LAST,
    "CR in an extension": b"d;a\rb\r\n" + _BODY + b"\r\n" + _LAST,
    "space before the size": b" " + _CHUNK + _LAST,
    "space after the size": b"d \r\n" + _BODY + b"\r\n" + _LAST,
    "prefix of the size": b"0x" + _CHUNK + _LAST,
    "sign of the size": b"+" + _CHUNK + _LAST,
    "negative size": b"-" + _CHUNK + _LAST,
    "overflowing size": b"1000000000000000" + _CHUNK + _LAST,
    "size too small": b"5\r\n" + _BODY + b"\r\n" + _LAST,
    "no end of the data": b"d\r\n" + _BODY + _LAST,
    "no size": b"\r\n" + _BODY + b"\r\n" + _LAST,
    "a length as a trailer": _CHUNK + b"0\r\ncontent-length: 50\r\n\r\n" + SMUGGLED,
    "a coding as a trailer": _CHUNK + b"0\r\n" + _CHUNKED + b"\r\n" + SMUGGLED,
}
_HEADERS = {
    "length and coding": b"content-length: 13\r\n" + _CHUNKED,
    "coding and length": _CHUNKED + b"content-length: 13\r\n",
    "coding twice": _CHUNKED + _CHUNKED,
    "coding twice, one other": _CHUNKED + b"transfer-encoding: identity\r\n",
    "space before the colon of a coding": b"transfer-encoding : chunked\r\n",
    "space before the colon of a length": b"content-length : 0\r\n",
    "folded coding": b"transfer-encoding:\r\n chunked\r\n",
    "folded header": b"x: a\r\n b\r\n",
    "folded header, tab": b"x: a\r\n\tb\r\n",
    "folded first header": b" x: a\r\n",
    "bare LF between headers": b"x: a\ncontent-length: 0\r\n",
    "bare CR between headers": b"x: a\rcontent-length: 0\r\n",
    "lengths that differ": b"content-length: 0\r\ncontent-length: 44\r\n",
    "length twice": b"content-length: 0\r\ncontent-length: 0\r\n",
    "NUL in a header": b"x: a\x00b\r\n",
    "NUL in a name": b"x\x00y: a\r\n",
    "control character in a header": b"x: a\x01b\r\n",
    "no name": b": x\r\n",
    "no colon": b"garbage\r\n",
    "second host": b"host: h\r\n",
    "upgrade with another coding": b"connection: upgrade\r\nupgrade: h2c\r\n"
    b"transfer-encoding: xchunked\r\n",
    "upgrade with length and coding": b"connection: upgrade\r\nupgrade: websocket\r\n"
    b"content-length: 0\r\n" + _CHUNKED,
}
_STARTS = {
    "bare LF after the first line": b"%s HTTP/1.1\nhost: g\r\n\r\n",
    "coding in HTTP/1.0": b"%s HTTP/1.0\r\nhost: g\r\n" + _CHUNKED + b"\r\n" + _LAST,
    "HTTP/0.9": b"%s\r\n\r\n",
    "HTTP/2": b"%s HTTP/2.0\r\nhost: g\r\n\r\n",
    "two versions": b"%s HTTP/1.1 HTTP/1.1\r\nhost: g\r\n\r\n",
    "no host": b"%s HTTP/1.1\r\nx: y\r\n\r\n",
    "list of hosts": b"%s HTTP/1.1\r\nhost: g, h\r\n\r\n",
    "path in the host": b"%s HTTP/1.1\r\nhost: g/state?\r\n\r\n",
    "user in the host": b"%s HTTP/1.1\r\nhost: a@g\r\n\r\n",
    "space in the target": b"%s /x HTTP/1.1\r\nhost: g\r\n\r\n",
    "NUL in the target": b"%s\x00 HTTP/1.1\r\nhost: g\r\n\r\n",
    "eight bits in the target": b"%s\xff HTTP/1.1\r\nhost: g\r\n\r\n",
    "fragment": b"%s#x HTTP/1.1\r\nhost: g\r\n\r\n",
}
_WHOLE = {
    "another authority": b"GET http://evil/healthz HTTP/1.1\r\nhost: g\r\n\r\n",
    "tunnel": b"CONNECT evil:80 HTTP/1.1\r\nhost: g\r\n\r\n",
    "preface of HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "method in small letters": b"get / HTTP/1.1\r\nhost: g\r\n\r\n",
    "tabs": b"GET\t/\tHTTP/1.1\r\nhost: g\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
}


BROKEN_IN_THE_BODY = frozenset(_CHUNKS)
"""Names of the cases whose head is fine."""


def smuggling_set(route: str) -> dict[str, bytes]:
    """Everything that must be refused on a route such as `POST /v1/completions`, by name."""
    start = f"{route} HTTP/1.1\r\nhost: g\r\ncontent-type: application/json\r\n".encode()
    cases = {f"coding {coding!r}": _coded(start, coding) for coding in _CODINGS}
    for length in _LENGTHS + _LENGTHS_TOO:
        head = start + b"content-length: " + length + b"\r\n\r\n"
        cases[f"length {length!r}"] = head + _BODY + SMUGGLED
    for name, headers in _HEADERS.items():
        cases[name] = start + headers + b"\r\n" + _EMPTY
    for name, chunks in _CHUNKS.items():
        cases[name] = start + _CHUNKED + b"\r\n" + chunks + SMUGGLED
    for name, form in _STARTS.items():
        cases[name] = form % route.encode() + SMUGGLED
    return cases | {name: request + SMUGGLED for name, request in _WHOLE.items()}


def _coded(start: bytes, coding: bytes) -> bytes:
    return start + b"transfer-encoding: " + coding + b"\r\n\r\n" + _EMPTY


@dataclass(frozen=True, slots=True)
class Said:
    """All that a server said on one connection, and whether it ended the connection."""

    data: bytes
    closed: bool

    @property
    def statuses(self) -> list[int]:
        """Of each answer, in order."""
        return [int(status) for status in re.findall(rb"HTTP/1\.[01] (\d{3}) ", self.data)]


async def say(
    port: int, *pieces: bytes, tls: ssl.SSLContext | None = None, within_s: float = 20.0
) -> Said:
    """Send bytes piece by piece and listen until the server closes, or for `within_s` seconds."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls)
    data, closed = b"", False
    try:
        with contextlib.suppress(ConnectionError):
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
                if len(pieces) > 1:
                    # So that the server reads them apart.
                    await asyncio.sleep(0.001)
        async with asyncio.timeout(within_s):
            while piece := await reader.read(1 << 16):
                data += piece
        closed = True
    except TimeoutError:
        pass
    except (ConnectionError, ssl.SSLError):
        closed = True
    finally:
        writer.transport.abort()
    return Said(data, closed)
