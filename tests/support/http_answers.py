"""A real HTTP server that gives fixed answers by path, in a thread of its own."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True, slots=True)
class Reply:
    """Status, body and headers of one answer."""

    status: int
    body: bytes
    headers: dict[str, str] = field(default_factory=dict)


def json_reply(value: object, status: int = 200, **headers: str) -> Reply:
    """An answer in JSON."""
    return Reply(
        status, json.dumps(value).encode(), {"Content-Type": "application/json", **headers}
    )


@dataclass(slots=True)
class HttpAnswers:
    """What is answered, by path and query; and what was asked."""

    replies: dict[str, Reply]
    url: str = ""
    bodies: list[Any] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)


@contextmanager
def serving(replies: dict[str, Reply]) -> Iterator[HttpAnswers]:
    """Serve on a free port of 127.0.0.1 while the block runs; an unknown path gets 404."""
    answers = HttpAnswers(replies)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer()

        def do_POST(self) -> None:
            length = int(self.headers.get("Content-Length", 0))
            answers.bodies.append(json.loads(self.rfile.read(length)))
            self._answer()

        def _answer(self) -> None:
            answers.headers.append(dict(self.headers))
            reply = answers.replies.get(self.path, Reply(404, b"404 page not found"))
            self.send_response(reply.status)
            for name, value in reply.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(reply.body)))
            self.end_headers()
            self.wfile.write(reply.body)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its own signature
            """Tests are silent."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    answers.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield answers
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
