"""The memory budget: what there is, what each part takes, and what can't fit."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetward_engine.errors import ConfigInvalid
from fleetward_engine.memory import available
from fleetward_engine.memory.activations import StepSizes, activation_bytes
from fleetward_engine.memory.available import HostMemory, host_memory, limit_of
from fleetward_engine.memory.budget import Needs, check_host_kv, count_blocks, table
from fleetward_engine.server.metrics import EngineMetrics

MIB = 1 << 20
NEEDS = Needs(
    available=1000 * MIB, weights=200 * MIB, activations=100 * MIB, runtime=50 * MIB,
    host_kv=100 * MIB,
)  # fmt: skip

sizes = st.integers(0, 1 << 40)


def test_kv_has_what_is_left_or_what_is_wanted() -> None:
    assert NEEDS.left_for_kv == 500 * MIB
    assert count_blocks(NEEDS, wanted=None, block_bytes=MIB, most=10_000) == 499
    assert count_blocks(NEEDS, wanted=30 * MIB, block_bytes=MIB, most=10_000) == 30
    assert count_blocks(NEEDS, wanted=None, block_bytes=MIB, most=7) == 7


def test_what_can_not_fit_is_refused_with_the_sum() -> None:
    with pytest.raises(ConfigInvalid) as caught:
        count_blocks(NEEDS, wanted=600 * MIB, block_bytes=MIB, most=10_000)
    assert str(caught.value) == (
        "the engine needs 101 MiB more memory than there is: weights 200 MiB + activations 100 MiB "
        "+ kv 601 MiB + host_kv 100 MiB + runtime 50 MiB + margin 50 MiB of 1,000 MiB available. "
        "Give it more, or lower kvMemory, maxNumBatchedTokens, maxModelLen or maxNumSeqs"
    )


def test_host_memory_that_is_not_there_is_refused_beside_an_accelerator() -> None:
    check_host_kv(0, limit=100 * MIB, runtime=200 * MIB)
    check_host_kv(850 * MIB, limit=1000 * MIB, runtime=100 * MIB)
    with pytest.raises(ConfigInvalid, match="hostKvMemory is 50 MiB more"):
        check_host_kv(900 * MIB, limit=1000 * MIB, runtime=100 * MIB)


@given(sizes, sizes, sizes, sizes, st.one_of(st.none(), sizes), st.integers(1, 1 << 30))
def test_whatever_is_asked_for_the_parts_fit_or_it_is_refused(
    total: int, weights: int, activations: int, runtime: int, wanted: int | None, block: int
) -> None:
    needs = Needs(available=total, weights=weights, activations=activations, runtime=runtime)
    try:
        blocks = count_blocks(needs, wanted=wanted, block_bytes=block, most=1 << 20)
    except ConfigInvalid:
        smallest = needs.with_kv(2 * block)
        fits = sum(size for _, size in smallest.parts) <= total
        assert not fits or (wanted is not None and not block <= wanted < 2 * block)
        return
    budget = needs.with_kv((blocks + 1) * block)
    assert blocks >= 1
    assert sum(size for _, size in budget.parts) <= budget.available_bytes


def test_the_table_tells_every_part_and_adds_up() -> None:
    assert table(NEEDS.with_kv(30 * MIB)).splitlines() == [
        "  weights          200 MiB",
        "  activations      100 MiB",
        "  kv                30 MiB",
        "  host_kv          100 MiB",
        "  runtime           50 MiB",
        "  margin            50 MiB",
        "  not used         470 MiB",
        "  available      1,000 MiB",
    ]


def test_the_smallest_limit_counts() -> None:
    assert limit_of([], machine=100) == 100
    assert limit_of(["max\n"], machine=100) == 100
    assert limit_of(["64\n"], machine=100) == 64
    # How version 1 writes that there is none.
    assert limit_of(["9223372036854771712\n"], machine=100) == 100


def test_the_kernel_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in (
        ("CGROUP_LIMITS", "209715200\n"),
        ("MEMINFO", "MemTotal:        1024000 kB\nMemFree:    1 kB\n"),
        ("OWN_STATUS", "Name:\tx\nRssAnon:\t    2048 kB\n"),
    ):
        path = tmp_path / name
        path.write_text(text)
        monkeypatch.setattr(available, name, (path,) if name == "CGROUP_LIMITS" else path)
    assert host_memory() == HostMemory(limit=200 * MIB, in_use=2 * MIB)
    (tmp_path / "MEMINFO").write_text("")
    with pytest.raises(OSError, match="MemTotal"):
        host_memory()


def test_this_machine_has_memory() -> None:
    memory = host_memory()
    assert memory.limit > memory.in_use > 0


@given(st.integers(1, 512), st.integers(1, 64), st.integers(1, 4096))
def test_a_larger_step_never_needs_less(tokens: int, rows: int, context: int) -> None:
    def need(tokens: int, rows: int, context: int, *, packed: bool = False) -> int:
        return activation_bytes(
            StepSizes(
                hidden=64, ffn=128, vocab=1000, query_width=64, kv_width=32, windows=1,
                number_bytes=2, kv_is_packed=packed, tokens=tokens, rows=rows, context=context,
                read_bytes=1 << 16,
            )
        )  # fmt: skip

    one = need(tokens, rows, context)
    assert 0 < one <= need(tokens + 1, rows + 1, context + 1)
    assert one <= need(tokens, rows, context, packed=True)


def test_the_budget_is_exported() -> None:
    registry = EngineMetrics(lambda: None, memory=lambda: NEEDS.with_kv(30 * MIB)).registry
    name = "fleetward_engine_memory_budget_bytes"
    told = {part: registry.get_sample_value(name, {"part": part}) for part in ("weights", "kv")}
    assert told == {"weights": 200 * MIB, "kv": 30 * MIB}
    assert registry.get_sample_value("fleetward_engine_memory_available_bytes") == 1000 * MIB
    silent = EngineMetrics(lambda: None).registry
    assert silent.get_sample_value("fleetward_engine_memory_available_bytes") is None
