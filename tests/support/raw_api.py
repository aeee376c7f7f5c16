"""A plain HTTP client for an API server: sends any JSON, also what typed clients would not."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import ssl
import tempfile
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any

import aiohttp
import yaml

_PUT_OFF_TIMES = 30


@dataclass(frozen=True, slots=True)
class Answer:
    """What the API server said to one request."""

    status: int
    body: dict[str, Any]

    @property
    def accepted(self) -> bool:
        """Whether it did what was asked."""
        return self.status < 300

    @property
    def message(self) -> str:
        """Its words when it refused."""
        return str(self.body.get("message", ""))


class RawApi:
    """One API server, as a user whose kubeconfig holds a client certificate."""

    def __init__(self, server: str, session: aiohttp.ClientSession) -> None:
        self._server = server
        self._session = session

    @staticmethod
    @asynccontextmanager
    async def connect(kubeconfig: Path) -> AsyncIterator[RawApi]:
        """Opens a connection pool and closes it at the end."""
        (config,) = read_manifests([kubeconfig])
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        connector = aiohttp.TCPConnector(ssl=_tls(cluster, user), limit=16)
        async with aiohttp.ClientSession(connector=connector) as session:
            yield RawApi(cluster["server"], session)

    async def send(self, method: str, path: str, body: object = None, **query: str) -> Answer:
        """One request; `body` goes out as JSON, whatever it is.

        What the server puts off (429: it is making a kind's storage, say) is sent again, as
        kubectl does: not a verdict on the request.
        """
        for _ in range(_PUT_OFF_TIMES):
            answer = await self._send(method, path, body, query)
            if answer.status != HTTPStatus.TOO_MANY_REQUESTS:
                break
            await asyncio.sleep(1.0)
        return answer

    async def _send(self, method: str, path: str, body: object, query: dict[str, str]) -> Answer:
        async with self._session.request(
            method,
            self._server + path,
            params=query,
            data=None if body is None else io.BytesIO(json.dumps(body).encode()),
            headers={"Content-Type": _content_type(method)},
        ) as reply:
            text = await reply.text()
            # A group that is not served yet is answered in plain text.
            is_json = reply.content_type == "application/json"
            return Answer(reply.status, json.loads(text) if is_json else {"message": text})

    async def judge(self, path: str, manifests: Sequence[object]) -> list[Answer]:
        """What the API server says to creating each, with strict field validation, as a dry run."""
        gate = asyncio.Semaphore(16)

        async def one(manifest: object) -> Answer:
            async with gate:
                return await self.send(
                    "POST", path, manifest, dryRun="All", fieldValidation="Strict"
                )

        return list(await asyncio.gather(*(one(manifest) for manifest in manifests)))

    async def apply(self, path: str, manifest: object) -> Answer:
        """Server-side apply as a field manager of the tests."""
        return await self.send("PATCH", path, manifest, fieldManager="tests", force="true")


def _content_type(method: str) -> str:
    # The API server reads JSON as YAML too.
    return "application/apply-patch+yaml" if method == "PATCH" else "application/json"


def _tls(cluster: dict[str, str], user: dict[str, str]) -> ssl.SSLContext:
    authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
    context = ssl.create_default_context(cadata=authority)
    # The standard library loads client certificates from files only.
    with tempfile.TemporaryDirectory() as folder:
        certificate, key = Path(folder, "tls.crt"), Path(folder, "tls.key")
        certificate.write_bytes(base64.b64decode(user["client-certificate-data"]))
        key.write_bytes(base64.b64decode(user["client-key-data"]))
        context.load_cert_chain(certificate, key)
    return context


def read_manifests(files: Iterable[Path]) -> list[dict[str, Any]]:
    """The manifests in YAML files, in order."""
    return [
        manifest
        for file in files
        for manifest in yaml.safe_load_all(file.read_text(encoding="utf-8"))
    ]
