"""The operator's environment, read once at start (docs/contracts.md names the variables)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

from fleetward_api.errors import FleetwardError
from fleetward_api.quantity import parse_duration

MAX_PORT = 1 << 16
DEFAULT_HEALTH = 8081
DEFAULT_METRICS = 9090
DEFAULT_MEMBER_ADMIN = 8001
SHORTEST_INTERVAL_S = 60.0


class SettingsError(FleetwardError):
    """An environment variable is missing or makes no sense."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Who this process is: the pod's name (the lease's holder), namespace and uid."""

    pod_name: str
    namespace: str
    pod_uid: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineRules:
    """What the administrator allows services to run, and where.

    `images` are glob patterns; empty means the default image only. `namespaces` are names; `*` is
    any namespace. `pull_secrets` are Secrets that each service's namespace holds itself;
    `accelerator_runtime_class` is the RuntimeClass of pods that ask for an accelerator ("": none).
    """

    default_image: str
    images: tuple[str, ...]
    namespaces: tuple[str, ...]
    pull_policy: str
    scraper_namespaces: tuple[str, ...]
    pull_secrets: tuple[str, ...] = ()
    accelerator_runtime_class: str = ""

    def image_allowed(self, image: str) -> bool:
        """Whether a service may run this image."""
        allowed = self.images or (self.default_image,)
        return any(fnmatchcase(image, pattern) for pattern in allowed)

    def namespace_allowed(self, namespace: str) -> bool:
        """Whether this namespace may hold services."""
        return "*" in self.namespaces or namespace in self.namespaces


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """Where we listen, and where members answer.

    In a pod the defaults are right; on a machine where other processes listen too, the variables
    FLEETWARD_HEALTH_PORT, FLEETWARD_METRICS_PORT and FLEETWARD_MEMBER_ADMIN_PORT move them.
    """

    health: int = DEFAULT_HEALTH
    metrics: int = DEFAULT_METRICS
    member_admin: int = DEFAULT_MEMBER_ADMIN


@dataclass(frozen=True, slots=True, kw_only=True)
class Timings:
    """Seconds. The lease's three are those of docs/contracts.md.

    `tenant_purge` is the deadline of the purge that a Tenant's deletion makes: long enough for a
    member that restarts, short enough for whoever waits for `kubectl delete`. `isolation_probe` is
    what an engine gets to find room for a probe and to make it.
    """

    lease_duration: float = 15.0
    lease_renew_deadline: float = 10.0
    lease_retry: float = 2.0
    request_timeout: float = 15.0
    member_timeout: float = 10.0
    isolation_probe: float = 5.0
    watch_quiet_limit: float = 150.0
    tenant_purge: float = 300.0

    @property
    def write_timeout(self) -> float:
        """Longest write: one sent at the last allowed moment ends before another may lead."""
        return min(self.request_timeout, self.lease_duration - self.lease_renew_deadline)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Everything the operator reads from outside.

    `isolation_probe_interval_s`: between a proof that an engine separates scopes and the next probe
    of it; 0 probes only when rules, floors or engines change.
    """

    identity: Identity
    key_namespace: str
    engine: EngineRules
    gateway_url: str
    isolation_probe_interval_s: float = 600.0
    ports: Ports = Ports()
    timings: Timings = Timings()


def read_settings(env: Mapping[str, str]) -> Settings:
    """Settings from an environment.

    Raises:
        SettingsError: a variable is missing; the message names it.
    """
    return Settings(
        identity=Identity(
            pod_name=_required(env, "POD_NAME"),
            namespace=_required(env, "POD_NAMESPACE"),
            pod_uid=env.get("POD_UID", ""),
        ),
        key_namespace=env.get("FLEETWARD_KEY_NAMESPACE", "fleetward-keys"),
        engine=EngineRules(
            default_image=_required(env, "FLEETWARD_ENGINE_IMAGE"),
            images=_words(env.get("FLEETWARD_ENGINE_IMAGE_ALLOW", "")),
            namespaces=_words(env.get("FLEETWARD_SERVICE_NAMESPACES", "*")),
            pull_policy=_pull_policy(env.get("FLEETWARD_IMAGE_PULL_POLICY", "IfNotPresent")),
            scraper_namespaces=_words(env.get("FLEETWARD_SCRAPER_NAMESPACES", "")),
            pull_secrets=_words(env.get("FLEETWARD_ENGINE_IMAGE_PULL_SECRETS", "")),
            accelerator_runtime_class=env.get("FLEETWARD_ACCELERATOR_RUNTIME_CLASS", "").strip(),
        ),
        gateway_url=env.get("FLEETWARD_GATEWAY_URL", ""),
        isolation_probe_interval_s=_interval(env, "FLEETWARD_ISOLATION_PROBE_INTERVAL", "10m"),
        ports=Ports(
            health=_port(env, "FLEETWARD_HEALTH_PORT", DEFAULT_HEALTH),
            metrics=_port(env, "FLEETWARD_METRICS_PORT", DEFAULT_METRICS),
            member_admin=_port(env, "FLEETWARD_MEMBER_ADMIN_PORT", DEFAULT_MEMBER_ADMIN),
        ),
    )


def _required(env: Mapping[str, str], name: str) -> str:
    value = env.get(name, "").strip()
    if not value:
        raise SettingsError(
            f"The environment variable {name} is missing; the chart sets it (docs/contracts.md)."
        )
    return value


def _port(env: Mapping[str, str], name: str, default: int) -> int:
    text = env.get(name, "") or str(default)
    if not text.isdecimal() or not 0 < int(text) < MAX_PORT:
        raise SettingsError(f"{name} is {text!r}; it must be a port from 1 to {MAX_PORT - 1}.")
    return int(text)


def _interval(env: Mapping[str, str], name: str, default: str) -> float:
    """Seconds of a duration such as `10m`; `0` for never."""
    text = env.get(name, "").strip() or default
    try:
        seconds = 0.0 if text == "0" else parse_duration(text) / 1000
    except ValueError as fault:
        raise SettingsError(f"{name}: {fault}; 0 for never.") from fault
    if 0 < seconds < SHORTEST_INTERVAL_S:
        raise SettingsError(f"{name} is {text!r}; it must be at least 1m, or 0 for never.")
    return seconds


def _words(text: str) -> tuple[str, ...]:
    return tuple(word for word in (part.strip() for part in text.split(",")) if word)


def _pull_policy(text: str) -> str:
    allowed = ("Always", "IfNotPresent", "Never")
    if text not in allowed:
        raise SettingsError(
            f"FLEETWARD_IMAGE_PULL_POLICY is {text!r}; it must be one of {', '.join(allowed)}."
        )
    return text
