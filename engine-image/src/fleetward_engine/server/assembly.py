"""Putting the process together: service, apps and, where governed, the member."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass

from starlette.types import ASGIApp

from fleetward_api.admin import ModelState
from fleetward_api.bundle import PolicyBundle, ServiceRef
from fleetward_api.floors import Floors
from fleetward_api.member import MemberKeys
from fleetward_engine.admin.app import AdminApi, SignedCalls, admin_app
from fleetward_engine.admin.fences import Fences
from fleetward_engine.admin.isolation import ProbeDesk
from fleetward_engine.admin.member import Member
from fleetward_engine.admin.policy import PolicyInForce
from fleetward_engine.admin.policy_desk import PolicyDesk
from fleetward_engine.admin.purge import PurgeDesk
from fleetward_engine.engine import Engine
from fleetward_engine.host_tier.rules import HostRules
from fleetward_engine.server.app import Probes, metrics_app, public_app
from fleetward_engine.server.identity import (
    Authenticator,
    GatewayAuthenticator,
    LocalAuthenticator,
)
from fleetward_engine.server.inference import Inference
from fleetward_engine.server.listeners import Server, server
from fleetward_engine.server.service import EngineService
from fleetward_engine.server.trust import TrustStore
from fleetward_engine.settings import Governance, ServeSettings


@dataclass(frozen=True, slots=True)
class World:
    """Clocks and randomness. ``clock``: monotonic s, ``wall``: epoch s."""

    clock: Callable[[], float]
    wall: Callable[[], float]
    new_id: Callable[[], str]


@dataclass(frozen=True, slots=True)
class Assembly:
    """The parts of a process that are ready to start; no admin server in a laptop's mode."""

    service: EngineService
    public: Server
    metrics: Server
    admin: Server | None
    member: Member | None


def assemble(
    settings: ServeSettings,
    build: Callable[[], tuple[Engine, ModelState]],
    world: World,
) -> Assembly:
    """Make everything; nothing runs or listens yet."""
    service = EngineService(build, clock=world.clock)
    authenticator: Authenticator = LocalAuthenticator()
    member, admin = None, None
    if settings.governance is None:
        service.policy = local_policy()
        # One tenant and no policy to ask: what a laptop gave is what is used.
        size = settings.engine.host_kv_cache_memory_bytes
        rules = HostRules(size=size, classes=frozenset({""}))
        service.loop.post(lambda engine: engine.governance.set_host_rules(rules))
    else:
        trust = TrustStore(settings.governance.trust_folder)
        authenticator = GatewayAuthenticator(
            trust,
            service_uid=settings.governance.service_uid,
            wall=world.wall,
            clock=world.clock,
        )
        member = _member(settings.governance, trust, world)
        app = _admin_app(settings.governance, service, member=member, world=world)
        admin = _tls_server(app, member.keys)
    inference = Inference(
        service=service,
        authenticator=authenticator,
        served_model_names=settings.engine.served_model_names,
        wall=world.wall,
        new_id=world.new_id,
    )
    probes = Probes(service, inference, started_at=int(world.wall()))
    public = server(public_app(probes, new_id=world.new_id))
    service.connections = lambda: len(public.server_state.connections)
    return Assembly(
        service=service,
        public=public,
        metrics=server(metrics_app(service)),
        admin=admin,
        member=member,
    )


def local_policy() -> PolicyInForce:
    """What governs a laptop's engine: one tenant, a secret that dies with the process."""
    bundle = PolicyBundle(
        service=ServiceRef(namespace="local", name="local", uid="local"),
        generation=0,
        epoch=0,
    )
    return PolicyInForce(bundle=bundle, secret=secrets.token_bytes(32), floors=Floors())


def _member(governance: Governance, trust: TrustStore, world: World) -> Member:
    pod = governance.pod
    member = Member(
        keys=MemberKeys.generate(pod_uid=pod.uid, pod_ip=pod.ip),
        pod_uid=pod.uid,
        token_path=governance.token_path,
        trust=trust,
        clock=world.clock,
    )
    member.started()
    return member


def _admin_app(
    governance: Governance, service: EngineService, *, member: Member, world: World
) -> ASGIApp:
    fences = Fences(service)
    policies = PolicyDesk(member, service, fences, service_uid=governance.service_uid)
    purges = PurgeDesk(member, service, fences=fences, policies=policies, wall=world.wall)
    probes = ProbeDesk(
        service,
        pod_uid=governance.pod.uid,
        new_id=world.new_id,
        random_below=secrets.randbelow,
    )
    api = AdminApi(member=member, service=service, policies=policies, purges=purges, probes=probes)
    return admin_app(api, SignedCalls(member, wall=world.wall), new_id=world.new_id)


def _tls_server(app: ASGIApp, keys: MemberKeys) -> Server:
    with keys.tls_files() as files:
        return server(app, tls=files)
