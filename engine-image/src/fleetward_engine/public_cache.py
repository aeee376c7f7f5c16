"""The cache of declared public prefixes: computed by the engine itself, read by every tenant.

Only a request of the engine's own, whose prompt is a declared form, leaves blocks under the public
root. So nothing that a client sent can become public, and that a prefix is cached tells nothing of
who used it. The blocks stay for as long as they are declared, in a part of the pool that is set
apart for them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from fleetward_api.cache_key import block_key
from fleetward_api.owner import Owner
from fleetward_engine.generation import Generation
from fleetward_engine.kv_cache import KvCache
from fleetward_engine.live_requests import LiveRequests
from fleetward_engine.outputs import RequestOutput
from fleetward_engine.public_prefixes import Form, PublicPlan
from fleetward_engine.public_tenant import PUBLIC_TENANT
from fleetward_engine.request import CacheContext, Request, SamplingParams
from fleetward_engine.sequence import Sequence as EngineSequence
from fleetward_engine.tokenizer import Tokenizer

TRIES = 3
"""How often a form is computed before the engine leaves it: one whose logits are not finite."""


class PublicCache:
    """Keeps the blocks of the declared forms in the cache, and no other public ones.

    Args:
        clock: monotonic seconds.
    """

    def __init__(
        self,
        kv_cache: KvCache,
        requests: LiveRequests,
        tokenizer: Tokenizer,
        clock: Callable[[], float],
    ) -> None:
        self._kv_cache = kv_cache
        self._requests = requests
        self._tokenizer = tokenizer
        self._clock = clock
        # Below all orders of arrival: who waits beside it already uses it.
        self._order = -(1 << 40)
        self._root: bytes | None = None
        self._keys: dict[Form, tuple[bytes, ...]] = {}
        self._tries: dict[str, int] = {}
        self._forms: dict[str, Form] = {}
        self.plan = PublicPlan()

    @property
    def num_cached(self) -> int:
        """Blocks that every tenant finds now."""
        return self._kv_cache.index.num_public

    def declare(self, root: bytes | None, plan: PublicPlan) -> None:
        """Let exactly these forms be public from now on, under this root (32 bytes).

        Blocks of others leave, with all that goes on from them, and are overwritten (the caller
        does so, as after every removal). The forms that are missing are computed in the next steps.
        """
        if (root, plan) == (self._root, self.plan):
            return
        self._root, self.plan = root, plan
        forms = plan.forms if root is not None else ()
        block_size = self._kv_cache.block_size
        self._keys = {form: _keys(root or b"", form, block_size) for form in forms}
        for request_id in self._forms:
            self._requests.drop(request_id)
        self._forms = {f"{PUBLIC_TENANT}-{number}": form for number, form in enumerate(forms)}
        self._tries = dict.fromkeys(self._forms, 0)
        self._kv_cache.keep_public({key for keys in self._keys.values() for key in keys})
        self.tend()

    def tend(self) -> None:
        """Have what is missing computed; costs little when nothing is."""
        for request_id, form in self._forms.items():
            if self._tries[request_id] == TRIES or self._requests.get(request_id) is not None:
                continue
            if any(key not in self._kv_cache.index for key in self._keys[form]):
                self._tries[request_id] += 1
                self._requests.add(self._request(request_id, form))

    def without_own(self, outputs: Iterable[RequestOutput]) -> list[RequestOutput]:
        """The outputs that somebody waits for."""
        return [output for output in outputs if output.request_id not in self._forms]

    def _request(self, request_id: str, form: Form) -> Generation:
        request = Request(
            request_id=request_id,
            prompt_token_ids=form,
            sampling=SamplingParams(max_tokens=1, temperature=0.0),
            cache=CacheContext(root=self._root, owner=Owner.of(PUBLIC_TENANT)),
            arrival=self._clock(),
        )
        self._order += 1
        return Generation(EngineSequence(request, order=self._order), self._tokenizer)


def _keys(root: bytes, form: Sequence[int], block_size: int) -> tuple[bytes, ...]:
    keys: list[bytes] = []
    for start in range(0, len(form), block_size):
        keys.append(block_key(keys[-1] if keys else root, form[start : start + block_size]))
    return tuple(keys)
