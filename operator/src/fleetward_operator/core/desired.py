"""From an InferenceService's spec to what the builders need."""

from __future__ import annotations

from fleetward_api.quantity import parse_quantity
from fleetward_api.resources import InferenceService, InferenceServiceSpec, ResourcesSpec
from fleetward_operator.manifests.desired import (
    ClaimMount,
    DesiredService,
    Environment,
    PodShape,
    PublicKeys,
)
from fleetward_operator.manifests.names import MODELS_MOUNT

CLAIM_SCHEME = "pvc://"


def desired_service(
    service: InferenceService, *, image: str, environment: Environment, keys: PublicKeys
) -> DesiredService:
    """What the children of a service are made from. `image` is already allowed."""
    spec = service.spec
    claim, _ = split_claim(spec.model.source)
    return DesiredService(
        namespace=service.metadata.namespace,
        name=service.metadata.name,
        uid=service.metadata.uid,
        image=image,
        engine_args=engine_args(spec),
        replicas=wanted_replicas(spec),
        max_surge=spec.rollout.max_surge,
        max_unavailable=spec.rollout.max_unavailable,
        shape=pod_shape(spec.resources),
        claim=ClaimMount(claim=claim) if claim else None,
        environment=environment,
        keys=keys,
    )


def wanted_replicas(spec: InferenceServiceSpec) -> int:
    """Ours to say in Fleetward mode; in External mode, whoever writes the scale subresource's."""
    return spec.replicas if spec.scaling.mode == "External" else spec.scaling.min_replicas


def split_claim(source: str) -> tuple[str, str]:
    """(claim, path inside it) of a `pvc://` source; two empty strings for any other."""
    if not source.startswith(CLAIM_SCHEME):
        return "", ""
    claim, _, path = source.removeprefix(CLAIM_SCHEME).partition("/")
    return claim, path


def engine_args(spec: InferenceServiceSpec) -> tuple[str, ...]:
    """The engine's command line after `serve` (docs/contracts.md)."""
    claim, path = split_claim(spec.model.source)
    model = f"file://{MODELS_MOUNT}/{path}" if claim else spec.model.source
    engine = spec.engine
    args = ["--model", model]
    for name in (spec.model.name, *spec.model.aliases):
        args += ["--served-model-name", name]
    if spec.model.digest:
        args += ["--model-digest", spec.model.digest]
    args += ["--runner", engine.runner.lower(), "--dtype", engine.dtype.lower()]
    if engine.max_model_len is not None:
        args += ["--max-model-len", str(engine.max_model_len)]
    args += ["--max-num-seqs", str(engine.max_num_seqs)]
    args += ["--max-num-batched-tokens", str(engine.max_num_batched_tokens)]
    args += ["--block-size", str(engine.block_size)]
    if engine.quantization.kv_cache != "Auto":
        args += ["--kv-cache-dtype", engine.quantization.kv_cache.lower()]
    if engine.kv_memory is not None:
        args += ["--kv-cache-memory-bytes", str(parse_quantity(engine.kv_memory))]
    if engine.host_kv_memory is not None:
        args += ["--host-kv-cache-memory-bytes", str(parse_quantity(engine.host_kv_memory))]
    if not engine.prefix_caching:
        args.append("--no-enable-prefix-caching")
    if not engine.chunked_prefill:
        args.append("--no-enable-chunked-prefill")
    if engine.batch_invariant:
        args.append("--batch-invariant")
    if engine.verify_kv:
        args.append("--verify-kv")
    return tuple(args)


def pod_shape(resources: ResourcesSpec) -> PodShape:
    """Memory and accelerators: requests equal limits. CPU: no limit, throttling stalls streams."""
    bounded = {"memory": str(resources.memory)}
    if resources.accelerator is not None:
        bounded[resources.accelerator.resource] = str(resources.accelerator.count)
    return PodShape(
        requests={"cpu": str(resources.cpu), **bounded},
        limits=bounded,
        node_selector=dict(resources.node_selector),
        tolerations=tuple(one.to_manifest() for one in resources.tolerations),
        priority_class=resources.priority_class_name or "",
        accelerated=resources.accelerator is not None,
    )
