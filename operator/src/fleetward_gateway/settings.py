"""Everything the gateway takes from its environment, read once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fleetward_api.errors import FleetwardError


class SettingsInvalid(FleetwardError):
    """The environment lacks something, or holds something that cannot be meant."""

    default_reason = "SettingsInvalid"


@dataclass(frozen=True, slots=True)
class Pod:
    """Which pod this is, from the downward API."""

    name: str
    namespace: str
    uid: str
    ip: str


@dataclass(frozen=True, slots=True)
class Ports:
    """Where to listen; fixed in the chart, free in tests."""

    host: str = "0.0.0.0"
    public: int = 8080
    admin: int = 8001
    metrics: int = 9090


@dataclass(frozen=True, slots=True)
class Bounds:
    """Limits on what requests may take.

    Attributes:
        body_bytes: largest request body; 2 MiB hold about half a million tokens of text. Checking
            the worst body of that size takes a tenth of a second, in which nothing else runs.
        held_bytes: bodies held at once over all requests: it bounds our memory.
        body_s: seconds for a body to arrive; a slow sender must not hold memory for ever.
        first_byte_s: seconds for an engine's answer to begin; a non-streamed answer begins only
            when all of it is there, so this is also its longest duration.
        upstream_stall_s: seconds of silence inside a streamed answer.
        client_stall_s: seconds for which a client may take nothing of its answer.
    """

    body_bytes: int = 2 << 20
    held_bytes: int = 256 << 20
    body_s: float = 60.0
    first_byte_s: float = 600.0
    upstream_stall_s: float = 120.0
    client_stall_s: float = 60.0


@dataclass(frozen=True, slots=True)
class Draining:
    """How the process ends after SIGTERM.

    Attributes:
        delay_s: seconds of not being ready while requests are still taken, so that everybody who
            routes to us has noticed.
        grace_s: seconds for running requests; those left get an error. Keep the pod's
            terminationGracePeriodSeconds above the sum.
    """

    delay_s: float = 5.0
    grace_s: float = 120.0


@dataclass(frozen=True, slots=True)
class Settings:
    """The whole configuration."""

    pod: Pod
    key_namespace: str
    service_namespaces: tuple[str, ...] = ("*",)
    ports: Ports = Ports()
    bounds: Bounds = Bounds()
    draining: Draining = Draining()
    token_file: Path = Path("/var/run/secrets/fleetward/token")
    log_level: str = "INFO"


def read_settings(environ: Mapping[str, str]) -> Settings:
    """Read the environment.

    Raises:
        SettingsInvalid: naming the variable and what to do.
    """
    read = _Reader(environ)
    return Settings(
        pod=Pod(
            name=read.required("POD_NAME"),
            namespace=read.required("POD_NAMESPACE"),
            uid=read.required("POD_UID"),
            ip=read.required("POD_IP"),
        ),
        key_namespace=read.required("FLEETWARD_KEY_NAMESPACE"),
        service_namespaces=read.words("FLEETWARD_SERVICE_NAMESPACES", "*"),
        ports=Ports(
            host=read.text("FLEETWARD_GATEWAY_HOST", Ports().host),
            public=read.port("FLEETWARD_GATEWAY_PORT", Ports().public),
            admin=read.port("FLEETWARD_GATEWAY_ADMIN_PORT", Ports().admin),
            metrics=read.port("FLEETWARD_GATEWAY_METRICS_PORT", Ports().metrics),
        ),
        bounds=Bounds(
            body_bytes=read.count("FLEETWARD_GATEWAY_MAX_BODY_BYTES", Bounds().body_bytes),
            held_bytes=read.count("FLEETWARD_GATEWAY_MAX_HELD_BYTES", Bounds().held_bytes),
            body_s=read.seconds("FLEETWARD_GATEWAY_BODY_SECONDS", Bounds().body_s),
            first_byte_s=read.seconds(
                "FLEETWARD_GATEWAY_FIRST_BYTE_SECONDS", Bounds().first_byte_s
            ),
            upstream_stall_s=read.seconds(
                "FLEETWARD_GATEWAY_UPSTREAM_STALL_SECONDS", Bounds().upstream_stall_s
            ),
            client_stall_s=read.seconds(
                "FLEETWARD_GATEWAY_CLIENT_STALL_SECONDS", Bounds().client_stall_s
            ),
        ),
        draining=Draining(
            delay_s=read.seconds("FLEETWARD_GATEWAY_DRAIN_DELAY_SECONDS", Draining().delay_s),
            grace_s=read.seconds("FLEETWARD_GATEWAY_DRAIN_GRACE_SECONDS", Draining().grace_s),
        ),
        token_file=Path(read.text("FLEETWARD_TOKEN_FILE", "/var/run/secrets/fleetward/token")),
        log_level=read.text("FLEETWARD_LOG_LEVEL", "INFO").upper(),
    )


class _Reader:
    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ

    def text(self, name: str, default: str) -> str:
        return self._environ.get(name) or default

    def words(self, name: str, default: str) -> tuple[str, ...]:
        parts = (part.strip() for part in self.text(name, default).split(","))
        return tuple(part for part in parts if part)

    def required(self, name: str) -> str:
        value = self._environ.get(name, "")
        if not value:
            raise SettingsInvalid(f"the environment variable {name} is not set; the chart sets it")
        return value

    def count(self, name: str, default: int) -> int:
        text = self.text(name, str(default))
        if not (text.isascii() and text.isdecimal()) or int(text) < 1:
            raise SettingsInvalid(f"{name}={text!r} must be a whole number above 0")
        return int(text)

    def port(self, name: str, default: int) -> int:
        text = self.text(name, str(default))
        if not (text.isascii() and text.isdecimal()) or int(text) > 65535:  # noqa: PLR2004
            raise SettingsInvalid(f"{name}={text!r} must be a port from 0 (any free one) to 65535")
        return int(text)

    def seconds(self, name: str, default: float) -> float:
        text = self.text(name, str(default))
        try:
            value = float(text)
        except ValueError:
            value = -1.0
        # Written so that NaN is refused too.
        if not 0 <= value <= 86_400:  # noqa: PLR2004
            raise SettingsInvalid(f"{name}={text!r} must be seconds from 0 to 86400")
        return value
