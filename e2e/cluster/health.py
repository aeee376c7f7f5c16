"""Whether a program serves, asked once and answered at once."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
from dataclasses import dataclass
from pathlib import Path

ASK_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Client:
    """An HTTPS client on 127.0.0.1 with a certificate of one of the cluster's authorities."""

    port: int
    pki: Path
    authority: str = "ca"
    identity: str = "admin"

    def get(self, path: str) -> tuple[int, bytes]:
        """Status and body; ``OSError`` or ``HTTPException`` when nobody answers properly."""
        context = ssl.create_default_context(cafile=str(self.pki / f"{self.authority}.crt"))
        stem = self.pki / self.identity
        context.load_cert_chain(stem.with_suffix(".crt"), stem.with_suffix(".key"))
        connection = http.client.HTTPSConnection(
            "127.0.0.1", self.port, timeout=ASK_SECONDS, context=context
        )
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()

    def ok(self, path: str) -> bool:
        """Whether ``path`` answers 200."""
        try:
            return self.get(path)[0] == http.client.OK
        except (OSError, http.client.HTTPException):
            return False

    def read(self, path: str) -> dict[str, object] | None:
        """The JSON object at ``path``; None when it cannot be had."""
        try:
            status, body = self.get(path)
        except (OSError, http.client.HTTPException):
            return None
        document = json.loads(body) if status == http.client.OK else None
        return document if isinstance(document, dict) else None


def http_ok(port: int, path: str, *, host: str = "127.0.0.1") -> bool:
    """Whether a plain HTTP server on this machine answers 200."""
    connection = http.client.HTTPConnection(host, port, timeout=ASK_SECONDS)
    try:
        connection.request("GET", path)
        return connection.getresponse().status == http.client.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def https_ok_unverified(port: int, path: str) -> bool:
    """As :func:`http_ok` for a program that serves its health under a certificate it made up.

    Only a health word from 127.0.0.1 is read over it, and nothing is sent.
    """
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    connection = http.client.HTTPSConnection(
        "127.0.0.1", port, timeout=ASK_SECONDS, context=context
    )
    try:
        connection.request("GET", path)
        return connection.getresponse().status == http.client.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def socket_ok(path: Path) -> bool:
    """Whether somebody listens on a unix socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(ASK_SECONDS)
        try:
            probe.connect(str(path))
        except OSError:
            return False
    return True


def port_taken(port: int) -> bool:
    """Whether somebody listens on a TCP port of 127.0.0.1."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.settimeout(ASK_SECONDS)
        return probe.connect_ex(("127.0.0.1", port)) == 0
