"""Nothing that one tenant asked changes what another is answered, and nothing of it is reused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from e2e.chaos.scale import is_full, seed
from e2e.figures.record import record
from fleetward_api.owner import Owner
from tests.support import engine_core
from tests.support.engine_core import Bench
from tests.support.influence_pairs import ROUND, influence
from tests.support.tiny_llama import Shape, make_reference, make_torch_bench, write_gguf

PAIRS = 10_000 if is_full() else 20 * ROUND

pytestmark = pytest.mark.timeout(900)


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[[], Bench]]:
    """Engines around one tiny model in float64, whose pool one tenant's prompts soon fill."""
    write_gguf(make_reference(Shape()), tmp_path / "model.gguf")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # a second one costs more than it brings to matrices this small
    yield lambda: make_torch_bench(
        tmp_path / "model.gguf", num_blocks=800, max_num_batched_tokens=512
    )
    torch.set_num_threads(threads)


def test_no_answer_depends_on_what_another_tenant_asked(make: Callable[[], Bench]) -> None:
    found = influence(make, pairs=PAIRS, seed=seed())
    assert (found.changed, found.cross_hits) == (0, 0)
    assert found.own_hits == PAIRS // ROUND
    if is_full():
        detail = f"{PAIRS} pairs, {found.own_hits} own prompts asked again, all found"
        record("content-influence", found.changed + found.cross_hits, detail)


def test_reuse_across_tenants_would_be_found(
    make: Callable[[], Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    def shared(_owner: Owner, _epoch: int = 1) -> bytes:
        return b"one root for everybody".ljust(32)

    monkeypatch.setattr(engine_core, "root_of_owner", shared)
    found = influence(make, pairs=2 * ROUND, seed=seed())
    assert found.cross_hits > 0
    assert found.changed > 0
