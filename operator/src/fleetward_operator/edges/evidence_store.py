"""Keeps evidence: immutable ConfigMaps, chained through one head, outliving every purge object."""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from fleetward_api.canonical import canonical_bytes, digest
from fleetward_api.chain_log import ChainHead
from fleetward_api.evidence import chunk_evidence, evidence_head
from fleetward_kube import KubeClient, KubeError
from fleetward_kube.watch import list_all
from fleetward_operator.core.purge.retention import KeptEvidence, Removal
from fleetward_operator.edges.kinds import collection_path, object_path
from fleetward_operator.edges.writer import PURGE, Writer
from fleetward_operator.errors import StateLost
from fleetward_operator.manifests.labels import release_labels
from fleetward_operator.manifests.names import PURGE_LABEL

HEAD = "fleetward-evidence-head"
HEAD_KEY = "head.json"
REMOVED_KEY = "removed.json"
"""Number and digest of the last evidence that is past its retention: the chain begins after it."""
CHUNK_KEY = "evidence.jsonl"
UID_LABEL = "fleetward.io/purge-uid"
EVIDENCE = "fleetward-evidence"
PAGE_SIZE = 20
"""ConfigMaps a page when all evidence is looked through: each holds up to 900 kB."""

Build = Callable[[ChainHead], bytes]
"""Makes the evidence that follows a head."""


StoredItem = Mapping[str, Any]
"""A ConfigMap with a chunk of evidence."""
Plan = Callable[[ChainHead], Removal | None]
"""What may go, given where the chain stands."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredEvidence:
    """Where the evidence lies, and its digest."""

    digest: str
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Head:
    head: ChainHead
    removed: str
    version: str


class EvidenceStore:
    """Stores one evidence at a time; each step may be repeated after a crash.

    The ConfigMaps come first, then the head moves on condition that nobody moved it. What an
    earlier attempt left is taken over when it follows the head, and made anew when it was never
    chained. Chained evidence is never touched again, until it is past its retention.
    """

    def __init__(self, client: KubeClient, writer: Writer, *, namespace: str) -> None:
        self._client = client
        self._writer = writer
        self._namespace = namespace
        self._lock = asyncio.Lock()

    async def store(self, purge_uid: str, purge_name: str, build: Build) -> StoredEvidence:
        """Store the evidence of a purge and chain it.

        Raises:
            KubeError: the API server refused; a conflict says that another leader is at it.
            EvidenceError: no honest evidence can be built.
            StateLost: the head cannot be read.
        """
        async with self._lock:
            at = await self._read_head()
            found = await self._found(purge_uid)
            if found is not None and await self._is_chained(found, at.head):
                return self._stored(purge_uid, found)
            if found is None or _previous(found) != at.head:
                if found is not None:
                    await self._discard(purge_uid)
                found = build(at.head)
                await self._write_anew(purge_uid, purge_name, found)
            head = evidence_head(found, sequence=at.head.sequence + 1)
            await self._move_head(at, head, removed=at.removed)
            return self._stored(purge_uid, found)

    async def expire(self, stored: Iterable[StoredItem], plan: Plan) -> Removal | None:
        """Remove what the plan names, and return it. May be repeated after a crash.

        Where the chain begins from now on is written first. Of each evidence the first chunk goes
        last: as long as it is there, the next leader knows what the others are.

        Raises:
            KubeError: the API server refused; a conflict says that something is not as it was seen.
            StateLost: the head cannot be read.
        """
        chunks: dict[str, list[StoredItem]] = defaultdict(list)
        for item in stored:
            chunks[str((item["metadata"].get("labels") or {}).get(UID_LABEL, ""))].append(item)
        async with self._lock:
            at = await self._read_head()
            removal = plan(at.head)
            if removal is None:
                return None
            await self._move_head(at, at.head, removed=_head_text(removal.anchor))
            for uid in removal.purge_uids:
                for item in sorted(chunks[uid], key=_chunk_number, reverse=True):
                    await self._remove(item)
            return removal

    async def _remove(self, item: StoredItem) -> None:
        try:
            name = item["metadata"]["name"]
            await self._writer.delete("ConfigMap", self._namespace, name, seen=item)
        except KubeError as error:
            if not error.not_found:
                raise

    async def _is_chained(self, data: bytes, head: ChainHead) -> bool:
        """Whether the head has come to this evidence, and perhaps gone on from it.

        Evidence is built on a head that was in force: so what any other names as the one before
        it was chained, also where the purge that it is of never learned so.
        """
        if evidence_head(data, sequence=head.sequence) == head:
            return True
        mine = digest(data)
        if _previous(data) == head:
            return False
        query = {"labelSelector": f"app.kubernetes.io/name={EVIDENCE}"}
        path = collection_path("ConfigMap", self._namespace)
        listing = await list_all(self._client, path, query=query, page_size=PAGE_SIZE)
        texts = ((item.get("data") or {}).get(CHUNK_KEY, "") for item in listing.items)
        found = (_previous(text.encode()) for text in texts)
        return any(one is not None and one.digest == mine for one in found)

    async def _read_head(self) -> _Head:
        found = await self._get(HEAD)
        if found is None:
            manifest = self._manifest(HEAD, {HEAD_KEY: _head_text(ChainHead())})
            found = await self._writer.create(manifest, manager=PURGE)
        try:
            head = ChainHead.model_validate_json((found.get("data") or {})[HEAD_KEY])
        except (KeyError, ValueError) as fault:
            raise StateLost(f"ConfigMap {HEAD} cannot be read: restore its {HEAD_KEY}") from fault
        removed = found["data"].get(REMOVED_KEY, "")
        return _Head(head, removed, found["metadata"]["resourceVersion"])

    async def _move_head(self, at: _Head, head: ChainHead, *, removed: str) -> None:
        data = {HEAD_KEY: _head_text(head)}
        if removed:
            data[REMOVED_KEY] = removed
        manifest = self._manifest(HEAD, data)
        manifest["metadata"]["resourceVersion"] = at.version
        await self._writer.replace(manifest, manager=PURGE)

    async def _found(self, purge_uid: str) -> bytes | None:
        """What an earlier attempt stored, all its chunks joined; None when the first is missing."""
        chunks: list[bytes] = []
        while True:
            item = await self._get(_chunk_name(purge_uid, len(chunks)))
            if item is None:
                return b"".join(chunks) if chunks else None
            chunks.append((item.get("data") or {}).get(CHUNK_KEY, "").encode())

    async def _write_anew(self, purge_uid: str, purge_name: str, data: bytes) -> None:
        try:
            await self._write_chunks(purge_uid, purge_name, data)
        except KubeError as error:
            if not error.conflict:
                raise
            # A crashed attempt left some chunks and not the first.
            await self._discard(purge_uid)
            await self._write_chunks(purge_uid, purge_name, data)

    async def _write_chunks(self, purge_uid: str, purge_name: str, data: bytes) -> None:
        # The last chunk is written first: as long as number 0 is missing, nothing counts as there.
        for number, chunk in reversed(list(enumerate(chunk_evidence(data)))):
            name = _chunk_name(purge_uid, number)
            manifest = self._manifest(name, {CHUNK_KEY: chunk.decode()})
            labels = manifest["metadata"]["labels"]
            labels |= {PURGE_LABEL: purge_name, UID_LABEL: purge_uid}
            manifest["immutable"] = True
            await self._writer.create(manifest, manager=PURGE)

    async def _discard(self, purge_uid: str) -> None:
        """Remove what a crashed attempt left: it was never chained, so it is no evidence yet."""
        query = {"labelSelector": f"{UID_LABEL}={purge_uid}"}
        path = collection_path("ConfigMap", self._namespace)
        listing = await self._client.request("GET", path, query=query)
        for item in listing.get("items") or ():
            name = item["metadata"]["name"]
            await self._writer.delete("ConfigMap", self._namespace, name, seen=item)

    async def _get(self, name: str) -> dict[str, Any] | None:
        try:
            return await self._client.request(
                "GET", object_path("ConfigMap", self._namespace, name)
            )
        except KubeError as error:
            if error.not_found:
                return None
            raise

    def _stored(self, purge_uid: str, data: bytes) -> StoredEvidence:
        count = len(chunk_evidence(data))
        names = tuple(_chunk_name(purge_uid, number) for number in range(count))
        return StoredEvidence(digest=digest(data), names=names)

    def _manifest(self, name: str, data: dict[str, str]) -> dict[str, Any]:
        return {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": name,
                "namespace": self._namespace,
                "labels": release_labels(EVIDENCE),
            },
            "data": data,
        }


def observe_evidence(item: StoredItem) -> KeptEvidence | None:
    """What the ConfigMap of an evidence's first chunk says of it; None for any other."""
    metadata = item["metadata"]
    uid = (metadata.get("labels") or {}).get(UID_LABEL, "")
    if not uid or metadata["name"] != _chunk_name(uid, 0):
        return None
    previous = _previous((item.get("data") or {}).get(CHUNK_KEY, "").encode())
    if previous is None:
        return None
    # By the clock of the API server, which no operator's own can disagree with later.
    stored_at = datetime.fromisoformat(metadata["creationTimestamp"]).timestamp()
    return KeptEvidence(purge_uid=uid, previous=previous, stored_at=stored_at)


def _chunk_number(item: StoredItem) -> int:
    return int(str(item["metadata"]["name"]).rpartition("-")[2])


def _chunk_name(purge_uid: str, number: int) -> str:
    return f"fleetward-evidence-{purge_uid}-{number}"


def _head_text(head: ChainHead) -> str:
    return canonical_bytes(head).decode()


def _previous(data: bytes) -> ChainHead | None:
    """The head that evidence names as the one before it; None when it names none."""
    try:
        first = json.loads(data.split(b"\n", 1)[0])
        return ChainHead.model_validate(first["payload"]["body"]["previous"])
    except (ValueError, KeyError, TypeError):
        return None
