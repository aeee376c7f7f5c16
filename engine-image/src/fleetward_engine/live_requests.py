"""The requests that are here: each in one queue, or held beside its first choice, until it leaves.

Whatever leaves without a step's own output (late, aborted by a fence, too big by now) says why
through `take_closing`.
"""

from __future__ import annotations

from collections.abc import Iterator, KeysView

from fleetward_api.scope import Scope
from fleetward_engine.forks import Forks
from fleetward_engine.generation import Generation
from fleetward_engine.outputs import FinishReason, RequestOutput
from fleetward_engine.request import Request
from fleetward_engine.scheduler import Scheduler
from fleetward_engine.scheduling.deadlines import Deadlines
from fleetward_engine.sequence import Sequence


class LiveRequests:
    """Every request between `add` and its last output."""

    def __init__(self, scheduler: Scheduler, deadlines: Deadlines) -> None:
        self._scheduler = scheduler
        self._deadlines = deadlines
        self._forks = Forks()
        self._generations: dict[str, Generation] = {}
        self._closing: list[RequestOutput] = []
        self._undivided: set[str] = set()

    def __bool__(self) -> bool:
        return bool(self._generations or self._closing)

    def __len__(self) -> int:
        return len(self._generations) + len(self._closing)

    def __iter__(self) -> Iterator[Generation]:
        """Those that still run, wait or are held; safe to end them while going through."""
        return iter(list(self._generations.values()))

    @property
    def ids(self) -> KeysView[str]:
        """Ids that are taken."""
        return self._generations.keys()

    @property
    def sequences(self) -> Iterator[Sequence]:
        """The sequence of each, in any queue or held."""
        yield from self._scheduler
        yield from self._forks

    def get(self, request_id: str) -> Generation | None:
        """The request of this id, if it is (still) here."""
        return self._generations.get(request_id)

    def of(self, sequence: Sequence) -> Generation:
        """The request that a queued sequence belongs to."""
        return self._generations[sequence.request.request_id]

    def below(self, scope: Scope, floor: int) -> list[Generation]:
        """Those of the scope that were authorised below the floor, or that may be of it.

        Those that rules of before did not tell apart may be of each user and permission scope of
        their tenant: so may their bytes, for as long as they are here.
        """
        return [each for each in self if self._is_below(each, scope, floor)]

    def forget_divisions(self) -> None:
        """Take note that the rules by which those who are here know whose they are have changed."""
        self._undivided.update(self._generations)

    def waits_for_prompt(self, request: Request) -> bool:
        """Whether a choice's prompt is being computed by the first choice right now."""
        first = self.get(request.fork_of)
        cache = request.cache
        shares = request.reads_cache and cache.root is not None and cache.store
        return shares and first is not None and first.sequence.num_output_tokens == 0

    def add(self, generation: Generation) -> None:
        """Queue a request, or hold it while its first choice computes their prompt."""
        sequence = generation.sequence
        self._deadlines.watch(sequence)
        held = self.waits_for_prompt(sequence.request)
        self._generations[generation.request_id] = generation
        if held:
            self._forks.hold(sequence)
        else:
            self._scheduler.add(sequence)

    def drop(self, request_id: str) -> bool:
        """Forget a request and take its blocks back, with no output; False if it is not here."""
        generation = self._generations.pop(request_id, None)
        if generation is None:
            return False
        self._undivided.discard(request_id)
        self._deadlines.forget(generation.sequence)
        if not self._forks.drop(generation.sequence):
            self._scheduler.remove(generation.sequence)
        self.release_forks(generation)
        return True

    def close(
        self, generation: Generation, reason: FinishReason, *, error: str | None = None
    ) -> None:
        """Drop a request; why is told by the next `take_closing`."""
        self.drop(generation.request_id)
        self._closing.append(generation.close(reason, error=error))

    def close_late(self, now: float) -> None:
        """Close every request whose deadline has passed."""
        for sequence in self._deadlines.passed(now):
            if sequence not in self._scheduler.running:
                sequence.stop_waiting(now)
            self.close(self.of(sequence), "deadline")

    def take_closing(self) -> list[RequestOutput]:
        """The last outputs of what was closed since the last call."""
        closing, self._closing = self._closing, []
        return closing

    def release_forks(self, generation: Generation) -> None:
        """Let the choices that waited for this one's prompt stand in line."""
        for sequence in self._forks.release(generation.request_id):
            self._scheduler.add(sequence)

    def check_integrity(self) -> None:
        """Raise AssertionError when a request is in no queue, or in two."""
        if len(list(self.sequences)) != len(self._generations):
            raise AssertionError("a request is in no queue, or in two")
        if not self._undivided <= self._generations.keys():
            raise AssertionError("something is kept of a request that has left")
        self._scheduler.check_integrity()

    def _is_below(self, generation: Generation, scope: Scope, floor: int) -> bool:
        owner = generation.sequence.owner
        if owner.is_below(scope, floor):
            return True
        finer = scope.kind in ("user", "permissionScope")
        return finer and owner.tenant == scope.tenant and generation.request_id in self._undivided
