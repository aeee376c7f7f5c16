"""The isolation probe: real requests of made-up identities, through the path of everybody's.

Each identity asks the same random prompt. The identities' cache roots come from the same function,
and the requests take the same queue, lookup, step and commit, as those of the public port; nothing
is asked of the engine that a request could not do. Afterwards both probe tenants are purged.

A probe never makes anybody wait: it enters only while nobody waits and there is room, a few tokens
at a time, and says so where its time ends before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from fleetward_api.isolation_probe import NotRun, ProbeLook, ProbeOrder, ProbeReport
from fleetward_api.scope import Scope
from fleetward_engine.admin.policy import PolicyInForce
from fleetward_engine.admin.probe_identities import (
    FLOORS_USED,
    LOWEST_PRIORITY,
    ProbeIdentity,
    probe_identities,
)
from fleetward_engine.engine import Engine
from fleetward_engine.outputs import RequestOutput
from fleetward_engine.probe_tenants import PROBE_TENANTS
from fleetward_engine.request import Request, SamplingParams
from fleetward_engine.server.cache_context import cache_context
from fleetward_engine.server.errors import ApiError
from fleetward_engine.server.served_model import ServedModel
from fleetward_engine.server.service import EngineService

BLOCKS = 2
POLL_S = 0.02
_SAMPLING = SamplingParams(max_tokens=1, temperature=0.0)
_WHY: dict[int, NotRun] = {400: "TooSmall", 429: "Busy", 503: "Busy"}


class ProbeStopped(Exception):
    """The probe cannot go on; `why` is for its report."""

    def __init__(self, why: NotRun) -> None:
        super().__init__(why)
        self.why: NotRun = why


@dataclass(frozen=True, slots=True)
class Plan:
    """One probe: under which bundle, what is asked, until when (on the engine's clock)."""

    bundle_digest: str
    prompt: tuple[int, ...]
    until: float


class ProbeDesk:
    """One probe at a time.

    Args:
        new_id: makes ids of requests.
        random_below: a random whole number from 0 and below its argument.
    """

    def __init__(
        self,
        service: EngineService,
        *,
        pod_uid: str,
        new_id: Callable[[], str],
        random_below: Callable[[int], int],
    ) -> None:
        self._service = service
        self._pod_uid = pod_uid
        self._new_id = new_id
        self._random_below = random_below
        self._turn = asyncio.Lock()
        self._floor = 0

    async def probe(self, order: ProbeOrder) -> ProbeReport:
        """Ask as every identity, purge what that left, and tell what was seen.

        Raises:
            ApiError: 503, there is no model or no bundle yet, or the engine drains.
            EngineStopped: it has failed.
        """
        until = self._service.clock() + order.deadline_ms / 1000
        async with self._turn:
            model, policy = self._service.ready_parts()
            plan = Plan(policy.bundle.digest, self._prompt(model, policy), until)
            floor, self._floor = self._floor, self._floor + FLOORS_USED
            looks: list[ProbeLook] = []
            why: NotRun | None = None
            try:
                for identity in probe_identities(policy.bundle, floor=floor):
                    # One by one: what was seen before a stop counts.
                    looks.append(await self._look(plan, identity))  # noqa: PERF401
            except ProbeStopped as stopped:
                why = stopped.why
            finally:
                # Whatever ended it: what it left must not wait for its time to live.
                left = await self._purge()
        return ProbeReport(
            pod_uid=self._pod_uid,
            bundle_digest=plan.bundle_digest,
            caching=model.config.enable_prefix_caching,
            not_run=why or "",
            prompt_tokens=len(plan.prompt),
            looks=tuple(looks),
            left=left,
        )

    def _prompt(self, model: ServedModel, policy: PolicyInForce) -> tuple[int, ...]:
        """Random tokens: as many full blocks as fit, at most two, and one more; or none."""
        limits = model.limits_under(policy)
        blocks = min(BLOCKS, (limits.context_tokens - 2) // model.block_size)
        count = blocks * model.block_size + 1 if blocks > 0 else 0
        return tuple(self._random_below(limits.vocab_size) for _ in range(count))

    async def _look(self, plan: Plan, identity: ProbeIdentity) -> ProbeLook:
        output = await self._ask(plan, identity)
        return ProbeLook(
            identity=identity.words,
            may_reuse=identity.may_reuse,
            cached_tokens=output.cached_tokens,
        )

    async def _ask(self, plan: Plan, identity: ProbeIdentity) -> RequestOutput:
        """The end of one request. Raises `ProbeStopped`."""
        if not plan.prompt:
            raise ProbeStopped("TooSmall")
        while not self._has_room(plan):
            if self._service.clock() >= plan.until:
                raise ProbeStopped("Busy")
            await asyncio.sleep(POLL_S)
        model, policy = self._service.ready_parts()
        if policy.bundle.digest != plan.bundle_digest:
            raise ProbeStopped("PolicyChanged")
        request = Request(
            request_id=f"probe-{self._new_id()}",
            prompt_token_ids=plan.prompt,
            sampling=_SAMPLING,
            cache=cache_context(identity.caller, policy, model=model.fingerprint),
            arrival=self._service.clock(),
            priority=LOWEST_PRIORITY,
            deadline=plan.until,
        )
        output = await self._run(request)
        if output.finish_reason not in ("stop", "length"):
            raise ProbeStopped("RequestFailed" if output.finish_reason == "error" else "Busy")
        if policy.bundle.digest != self._digest_in_force():
            raise ProbeStopped("PolicyChanged")
        return output

    async def _run(self, request: Request) -> RequestOutput:
        generation = self._service.submit([request], measured=False)
        last: RequestOutput | None = None
        try:
            while outputs := await generation.next_outputs():
                last = outputs[-1]
        except ApiError as error:
            raise ProbeStopped(_WHY.get(error.status, "RequestFailed")) from error
        finally:
            self._service.abort(request.request_id)
        if last is None:
            raise ProbeStopped("RequestFailed")
        return last

    def _has_room(self, plan: Plan) -> bool:
        """Whether a request would run at once, by the numbers last published."""
        stats, model = self._service.stats(), self._service.model
        if stats is None or model is None:
            return False
        needed = len(plan.prompt) // model.block_size + 1
        free = stats.kv_blocks_total - stats.kv_blocks_used
        slots = model.config.max_num_seqs - stats.running
        return stats.waiting == 0 and slots > 0 and free >= needed

    def _digest_in_force(self) -> str:
        policy = self._service.policy
        return "" if policy is None else policy.bundle.digest

    async def _purge(self) -> int:
        """Purge the probes' tenants; how many keys, entries and blocks can still be found.

        Call by call, so that a step comes between two looks at all blocks.
        """
        call, floor = self._service.loop.call, self._floor
        left = 0
        for scope in map(Scope, PROBE_TENANTS):
            for look in (_purged, _entries_left, _blocks_left):
                left += await call(partial(look, scope=scope, floor=floor))
        return left


def _purged(engine: Engine, scope: Scope, floor: int) -> int:
    """How many keys of what was purged a lookup still finds."""
    purged = engine.governance.purge(scope, floor, scrub=True)
    return engine.governance.probe(purged.removed_keys)


def _entries_left(engine: Engine, scope: Scope, floor: int) -> int:
    return engine.governance.recount(scope, floor)


def _blocks_left(engine: Engine, scope: Scope, floor: int) -> int:
    return engine.governance.residue(scope, floor)
