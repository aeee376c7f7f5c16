"""What this process is told by its command line and its environment, read once, here.

Flags are the engine's; the environment says which pod and which service this is.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import get_args

from fleetward_engine.admission.limits import AdmissionLimits
from fleetward_engine.config import EngineConfig, KvCacheDtype
from fleetward_engine.errors import ConfigInvalid
from fleetward_engine.scheduling.policy import PolicyName, SchedulingPolicy

TRUST_FOLDER = Path("/etc/fleetward/trust")
TOKEN_PATH = Path("/var/run/secrets/fleetward/token")
TERMINATION_LOG = Path("/dev/termination-log")
PID_FILE = Path("/tmp/fleetward-engine.pid")  # noqa: S108 - the pod's own emptyDir
POD_VARIABLES = ("POD_NAME", "POD_NAMESPACE", "POD_UID", "POD_IP")


@dataclass(frozen=True, slots=True)
class Pod:
    """Which pod this is (downward API)."""

    name: str
    namespace: str
    uid: str
    ip: str


@dataclass(frozen=True, slots=True)
class Governance:
    """What a governed engine (not ``--insecure-local``) needs to know.

    ``service`` is ``namespace/name``; tokens and bundles must name ``service_uid``.
    """

    pod: Pod
    service: str
    service_uid: str
    trust_folder: Path
    token_path: Path


@dataclass(frozen=True, slots=True)
class Ports:
    """Where the three servers listen; 0 lets the system choose."""

    host: str = "0.0.0.0"
    public: int = 8000
    admin: int = 8001
    metrics: int = 9090


@dataclass(frozen=True, slots=True)
class ServeSettings:
    """Everything ``serve`` needs. ``governance`` is None with ``--insecure-local``.

    ``drain_timeout_s``: how long a stopping engine waits for running streams; the pod's grace
    period must be longer. ``termination_log``: where the kubelet reads a fatal fault's words.
    """

    engine: EngineConfig
    governance: Governance | None
    ports: Ports
    drain_timeout_s: float
    termination_log: Path
    pid_file: Path


def argument_parser() -> argparse.ArgumentParser:
    """The command line of ``fleetward-engine``."""
    parser = argparse.ArgumentParser(prog="fleetward-engine", allow_abbrev=False)
    commands = parser.add_subparsers(dest="command", required=True)
    serve = commands.add_parser("serve", help="load a model and serve it", allow_abbrev=False)
    _add_model(serve)
    _add_engine(serve)
    _add_admission(serve)
    _add_process(serve)
    drain = commands.add_parser(
        "drain", help="turn a running engine's readiness off and wait for its streams"
    )
    drain.add_argument("--pid-file", type=Path, default=PID_FILE)
    drain.add_argument("--port", type=int, default=8000, help="the engine's public port")
    drain.add_argument("--timeout-seconds", type=float, default=120.0)
    return parser


def _add_model(serve: argparse.ArgumentParser) -> None:
    serve.add_argument("--model", required=True, help="package://DIST or file:///path")
    serve.add_argument(
        "--served-model-name",
        action="append",
        default=[],
        help="id clients use; repeat for aliases (default: the model URI)",
    )
    serve.add_argument("--model-digest", help="refuse a model whose digest is not sha256:…")
    serve.add_argument("--runner", choices=["torch", "simulated"], default="torch")
    serve.add_argument("--dtype", choices=["auto", "bfloat16", "float32"], default="auto")
    serve.add_argument("--simulation-profile", type=Path, help="JSON file; --runner simulated only")


def _add_engine(serve: argparse.ArgumentParser) -> None:
    serve.add_argument("--max-model-len", type=int, help="tokens of prompt and completion together")
    serve.add_argument("--max-num-seqs", type=int, default=64)
    serve.add_argument("--max-num-batched-tokens", type=int, default=1024)
    serve.add_argument("--block-size", type=int, default=32)
    serve.add_argument("--kv-cache-memory-bytes", type=int)
    serve.add_argument(
        "--host-kv-cache-memory-bytes",
        type=int,
        default=0,
        help="host memory for KV blocks that leave the device; a policy bundle may use less of it",
    )
    serve.add_argument("--kv-cache-dtype", choices=get_args(KvCacheDtype), default="auto")
    serve.add_argument(
        "--enable-prefix-caching", action=argparse.BooleanOptionalAction, default=True
    )
    serve.add_argument(
        "--enable-chunked-prefill", action=argparse.BooleanOptionalAction, default=True
    )
    serve.add_argument(
        "--batch-invariant",
        action="store_true",
        help="compute each token the same, to the bit, whatever else is in its batch",
    )
    serve.add_argument(
        "--verify-kv",
        action="store_true",
        help="fingerprint cached KV, compare it at each use, and compute anew what has changed",
    )
    serve.add_argument(
        "--scheduling-policy",
        choices=get_args(PolicyName),
        default="fcfs",
        help="who goes first; in a governed engine until its policy bundle says so",
    )
    serve.add_argument(
        "--scheduling-aging-after-seconds",
        type=float,
        help="wait that counts as one level; with --scheduling-policy priority",
    )


def _add_admission(serve: argparse.ArgumentParser) -> None:
    serve.add_argument(
        "--admission-max-predicted-wait-seconds",
        type=float,
        default=math.inf,
        help="refuse who would wait longer; in a governed engine until its policy bundle says so",
    )
    serve.add_argument(
        "--admission-kv-headroom-percent",
        type=int,
        help="part of the KV blocks that requests taken in must not come to need; the same",
    )


def _add_process(serve: argparse.ArgumentParser) -> None:
    ports = Ports()
    serve.add_argument(
        "--insecure-local",
        action="store_true",
        help="a laptop's mode: no identity is asked for and there is no admin API",
    )
    serve.add_argument("--host", default=ports.host)
    serve.add_argument("--port", type=int, default=ports.public)
    serve.add_argument("--admin-port", type=int, default=ports.admin)
    serve.add_argument("--metrics-port", type=int, default=ports.metrics)
    serve.add_argument("--drain-timeout-seconds", type=float, default=120.0)
    serve.add_argument("--trust-folder", type=Path, default=TRUST_FOLDER)
    serve.add_argument("--token-path", type=Path, default=TOKEN_PATH)
    serve.add_argument("--termination-log", type=Path, default=TERMINATION_LOG)
    serve.add_argument("--pid-file", type=Path, default=PID_FILE)


def serve_settings(arguments: argparse.Namespace, environment: Mapping[str, str]) -> ServeSettings:
    """Check flags and environment against each other.

    Raises:
        ConfigInvalid: a value is out of range or missing; the message says what to set.
    """
    engine = EngineConfig(
        model_uri=arguments.model,
        served_model_names=tuple(arguments.served_model_name) or (arguments.model,),
        model_digest=arguments.model_digest,
        runner=arguments.runner,
        dtype=arguments.dtype,
        kv_cache_dtype=arguments.kv_cache_dtype,
        max_model_len=arguments.max_model_len,
        max_num_seqs=arguments.max_num_seqs,
        max_num_batched_tokens=arguments.max_num_batched_tokens,
        block_size=arguments.block_size,
        kv_cache_memory_bytes=arguments.kv_cache_memory_bytes,
        host_kv_cache_memory_bytes=arguments.host_kv_cache_memory_bytes,
        enable_prefix_caching=arguments.enable_prefix_caching,
        enable_chunked_prefill=arguments.enable_chunked_prefill,
        verify_kv=arguments.verify_kv,
        batch_invariant=arguments.batch_invariant,
        scheduling=SchedulingPolicy(
            arguments.scheduling_policy, arguments.scheduling_aging_after_seconds
        ),
        admission=AdmissionLimits(
            max_predicted_wait_s=arguments.admission_max_predicted_wait_seconds,
            kv_headroom_percent=arguments.admission_kv_headroom_percent,
        ),
        simulation_profile=arguments.simulation_profile,
    )
    governance = _governance(arguments, environment)
    if not arguments.drain_timeout_seconds >= 0:
        raise ConfigInvalid("--drain-timeout-seconds must be 0 or more")
    return ServeSettings(
        # A pod's container is its engine's alone; on a laptop others want memory too.
        engine=replace(engine, owns_container=governance is not None),
        governance=governance,
        ports=Ports(
            host=arguments.host,
            public=arguments.port,
            admin=arguments.admin_port,
            metrics=arguments.metrics_port,
        ),
        drain_timeout_s=arguments.drain_timeout_seconds,
        termination_log=arguments.termination_log,
        pid_file=arguments.pid_file,
    )


def _governance(arguments: argparse.Namespace, environment: Mapping[str, str]) -> Governance | None:
    service_uid = environment.get("FLEETWARD_SERVICE_UID", "")
    if arguments.insecure_local:
        if service_uid:
            raise ConfigInvalid(
                "--insecure-local is refused where FLEETWARD_SERVICE_UID is set: "
                "an engine of a service answers authenticated requests only"
            )
        return None
    wanted = (*POD_VARIABLES, "FLEETWARD_SERVICE", "FLEETWARD_SERVICE_UID")
    missing = [name for name in wanted if not environment.get(name)]
    if missing:
        raise ConfigInvalid(
            f"not set: {', '.join(missing)}. The operator sets these in a pod; "
            "on a laptop start with --insecure-local"
        )
    return Governance(
        pod=Pod(*(environment[name] for name in POD_VARIABLES)),
        service=environment["FLEETWARD_SERVICE"],
        service_uid=service_uid,
        trust_folder=arguments.trust_folder,
        token_path=arguments.token_path,
    )


def parse_arguments(argv: Sequence[str]) -> argparse.Namespace:
    """Parse the command line; exits with code 2 and a usage message when it is wrong."""
    return argument_parser().parse_args(argv)
