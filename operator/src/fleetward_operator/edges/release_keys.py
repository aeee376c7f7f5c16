"""The release's own keys: made once by the operator, never by the chart, never overwritten."""

from __future__ import annotations

import base64
import contextlib
import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from fleetward_api.conditions import format_time
from fleetward_api.errors import KeyMalformed
from fleetward_api.keys import SealingKey, SigningKey
from fleetward_kube import KubeClient, KubeError
from fleetward_operator.edges.kinds import object_path
from fleetward_operator.edges.writer import KEYS, Writer
from fleetward_operator.errors import KeysUnreadable
from fleetward_operator.manifests.desired import PublicKeys
from fleetward_operator.manifests.labels import release_labels

OPERATOR_KEYS = "fleetward-operator-keys"
GATEWAY_KEYS = "fleetward-gateway-keys"
EPOCH_SECRET = "fleetward-cache-epoch"  # noqa: S105 - a name
ROTATED_AT = "fleetward.io/rotated-at"
OVERLAP_ENTRY = "overlap.pem"
SECRET_BYTES = 32

Key = TypeVar("Key")
Entropy = Callable[[int], bytes]


@dataclass(frozen=True, slots=True, repr=False)
class ReleaseKeys:
    """The keys in memory.

    Attributes:
        digest: keys the digests by which scopes are named.
        gateway: gateways sign identities with it.
        gateway_overlap: signs nothing, and is trusted beside `gateway` while that one is rotated.
    """

    signing: SigningKey
    sealing: SealingKey
    digest: bytes
    gateway: SigningKey
    gateway_overlap: SigningKey | None = None

    @property
    def public(self) -> PublicKeys:
        """What engines, gateways and verifiers may know."""
        return PublicKeys(
            operator=self.signing.verify_key.to_b64(),
            sealing=self.sealing.public.to_b64(),
            gateway=self.gateway.verify_key.to_b64(),
            gateway_overlap=self.gateway_overlap.verify_key.to_b64()
            if self.gateway_overlap
            else "",
        )


@dataclass(frozen=True, slots=True, repr=False)
class Epoch:
    """The secret that keys all cache, its number, and the Secret's resource version.

    `rotated_at` is when it was made (an aware time), by the clock of whoever made it.
    """

    number: int
    secret: bytes
    version: str
    rotated_at: dt.datetime


class SecretStore:
    """Reads the release's Secrets by name, and makes those that are missing.

    Args:
        client: an open client.
        writer: fenced by the lease.
        namespace: the release's.
        entropy: the system's randomness.
        now: the system's clock; aware times.
    """

    def __init__(
        self,
        client: KubeClient,
        writer: Writer,
        *,
        namespace: str,
        entropy: Entropy,
        now: Callable[[], dt.datetime],
    ) -> None:
        self._client = client
        self._writer = writer
        self._namespace = namespace
        self._entropy = entropy
        self._now = now

    async def release_keys(self) -> ReleaseKeys:
        """The keys, made now where there are none.

        Raises:
            KeysUnreadable: a Secret holds something else; nothing is overwritten.
            KubeError: the API server refused.
        """
        operator = await self._ensure(OPERATOR_KEYS, self._new_operator_keys)
        digest = _field(operator, OPERATOR_KEYS, "digest.key")
        if len(digest) != SECRET_BYTES:
            raise KeysUnreadable(f"Secret {OPERATOR_KEYS}: digest.key must hold 32 bytes")
        gateway = await self._ensure(
            GATEWAY_KEYS, lambda: _gateway_data(SigningKey.generate(), digest=digest)
        )
        signing, overlap = _gateway_keys_of(gateway)
        return ReleaseKeys(
            signing=_key_of(operator, OPERATOR_KEYS, "signing.pem", read=SigningKey.from_pem),
            sealing=_key_of(operator, OPERATOR_KEYS, "sealing.pem", read=SealingKey.from_pem),
            digest=digest,
            gateway=signing,
            gateway_overlap=overlap,
        )

    async def follow_gateway_keys(self, known: ReleaseKeys) -> ReleaseKeys:
        """`known` with the gateways' keys as their Secret holds them now: people rotate them.

        A Secret that is gone is made again of the key in force, so that nobody is cut off.

        Raises:
            KeysUnreadable: the Secret holds something else.
            KubeError: the API server refused.
        """
        gateway = await self._ensure(
            GATEWAY_KEYS, lambda: _gateway_data(known.gateway, digest=known.digest)
        )
        signing, overlap = _gateway_keys_of(gateway)
        return replace(known, gateway=signing, gateway_overlap=overlap)

    async def find_epoch(self) -> Epoch | None:
        """The cache epoch; None where none was ever made, or its Secret is gone."""
        found = await self._get(EPOCH_SECRET)
        return None if found is None else _epoch_of(found)

    async def make_epoch(self, *, above: int = 0) -> Epoch:
        """The cache epoch, made as the number after `above` unless somebody made one meanwhile."""
        found = await self._get(EPOCH_SECRET)
        return _epoch_of(found or await self._make(self._epoch_manifest(above + 1)))

    async def rotate_epoch(self, epoch: Epoch) -> Epoch:
        """The next epoch. A 409 (`KubeError.conflict`) says that someone else rotated it."""
        return await self._replace_epoch(self._epoch_manifest(epoch.number + 1), over=epoch)

    async def date_epoch(self, epoch: Epoch) -> Epoch:
        """The same epoch as if it was made now. Conflicts as `rotate_epoch`."""
        manifest = self._epoch_manifest(epoch.number, secret=epoch.secret)
        return await self._replace_epoch(manifest, over=epoch)

    async def _replace_epoch(self, manifest: dict[str, Any], *, over: Epoch) -> Epoch:
        manifest["metadata"]["resourceVersion"] = over.version
        return _epoch_of(await self._writer.replace(manifest, manager=KEYS))

    async def _ensure(self, name: str, make: Callable[[], dict[str, bytes]]) -> dict[str, Any]:
        found = await self._get(name)
        return found or await self._make(self._manifest(name, make()))

    async def _make(self, manifest: dict[str, Any]) -> dict[str, Any]:
        """The object as it was made now, or meanwhile by somebody else."""
        try:
            return await self._writer.create(manifest, manager=KEYS)
        except KubeError as error:
            if not error.conflict:
                raise
        return await self._client.request("GET", self._path(manifest["metadata"]["name"]))

    async def _get(self, name: str) -> dict[str, Any] | None:
        try:
            return await self._client.request("GET", self._path(name))
        except KubeError as error:
            if error.not_found:
                return None
            raise

    def _path(self, name: str) -> str:
        return object_path("Secret", self._namespace, name)

    def _manifest(self, name: str, data: dict[str, bytes]) -> dict[str, Any]:
        return {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {
                "name": name,
                "namespace": self._namespace,
                "labels": release_labels(name),
            },
            "type": "Opaque",
            "data": {key: base64.b64encode(value).decode() for key, value in data.items()},
        }

    def _new_operator_keys(self) -> dict[str, bytes]:
        return {
            "signing.pem": SigningKey.generate().to_pem(),
            "sealing.pem": SealingKey.generate().to_pem(),
            "digest.key": self._entropy(SECRET_BYTES),
        }

    def _epoch_manifest(self, number: int, *, secret: bytes = b"") -> dict[str, Any]:
        """The Secret of an epoch made now, with bytes of its own unless they are given."""
        raw = secret or self._entropy(SECRET_BYTES)
        manifest = self._manifest(EPOCH_SECRET, {"epoch": str(number).encode(), "secret": raw})
        manifest["metadata"]["annotations"] = {ROTATED_AT: format_time(self._now())}
        return manifest


def _epoch_of(secret: dict[str, Any]) -> Epoch:
    try:
        number = int(_field(secret, EPOCH_SECRET, "epoch"))
    except ValueError as fault:
        raise KeysUnreadable(f"Secret {EPOCH_SECRET}: epoch is no number") from fault
    raw = _field(secret, EPOCH_SECRET, "secret")
    if len(raw) != SECRET_BYTES or number < 1:
        raise KeysUnreadable(f"Secret {EPOCH_SECRET}: needs an epoch from 1 and 32 secret bytes")
    metadata = secret["metadata"]
    return Epoch(
        number=number,
        secret=raw,
        version=metadata["resourceVersion"],
        rotated_at=_rotated_at(metadata),
    )


def _rotated_at(metadata: dict[str, Any]) -> dt.datetime:
    """As our annotation says; without one, or with another's words in it, as the API server."""
    noted = (metadata.get("annotations") or {}).get(ROTATED_AT, "")
    if noted.startswith("20"):
        with contextlib.suppress(ValueError):
            return dt.datetime.strptime(noted, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=dt.UTC)
    return dt.datetime.fromisoformat(metadata["creationTimestamp"])


def _gateway_data(signing: SigningKey, *, digest: bytes) -> dict[str, bytes]:
    return {"signing.pem": signing.to_pem(), "digest.key": digest}


def _gateway_keys_of(secret: dict[str, Any]) -> tuple[SigningKey, SigningKey | None]:
    def read(entry: str) -> SigningKey:
        return _key_of(secret, GATEWAY_KEYS, entry, read=SigningKey.from_pem)

    rotating = OVERLAP_ENTRY in (secret.get("data") or {})
    return read("signing.pem"), read(OVERLAP_ENTRY) if rotating else None


def _key_of(secret: dict[str, Any], name: str, entry: str, *, read: Callable[[bytes], Key]) -> Key:
    try:
        return read(_field(secret, name, entry))
    except KeyMalformed as fault:
        raise KeysUnreadable(
            f"Secret {name}: {entry} cannot be read ({fault}): restore the Secret, or delete it to "
            "have new keys made"
        ) from fault


def _field(secret: dict[str, Any], name: str, key: str) -> bytes:
    try:
        return base64.b64decode((secret.get("data") or {})[key], validate=True)
    except (KeyError, ValueError) as fault:
        raise KeysUnreadable(f"Secret {name} has no usable {key}") from fault
