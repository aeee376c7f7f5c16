"""After a purge, nothing of the scope's KV and token ids is anywhere in the engine's memory.

Looked for, by hashes alone: every 64 bytes of KV that its blocks held, and its token ids as arrays
of 16, 32 and 64 bits and as Python's lists and tuples lie in memory. What is found in this whole
process is counted: pool, index, staging, books, and whatever torch and Python have freed. Of lists,
65 ids in a row are looked for: shorter pieces fit into Python's own pools of small objects, which
no purge covers.
"""

from __future__ import annotations

import asyncio
import ctypes
import hashlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from e2e.chaos.scale import is_full
from e2e.figures.record import record
from fleetward_api.memory_guard import overwrite_freed_memory, rinse_small_chunks
from fleetward_api.receipt import receipt_faults
from fleetward_engine.engine import Engine
from tests.support.engine_server import MODEL, RunningEngine
from tests.support.memory_needles import Needles, pointers, windows
from tests.support.purge_orders import order, receipt_of
from tests.support.tiny_server import blocks_of, kv_of, tiny_server

WIDTH = 8
LIST_WIDTH = 65
PROMPTS = 64 if is_full() else 24
AT_ONCE = 8
EVERY = 4 if is_full() else 8
LENGTH = 150
_M_PERTURB = -6

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(autouse=True)
def _as_served() -> Iterator[None]:
    """What `serve` asks of the allocator, for the length of a test."""
    overwrite_freed_memory()
    yield
    ctypes.CDLL(None).mallopt(_M_PERTURB, 0)


def text_of(number: int) -> str:
    """A prompt that is kept nowhere, since it can be made again."""
    parts = [hashlib.sha256(f"{number}/{part}".encode()).hexdigest() for part in range(3)]
    return "".join(parts)[:LENGTH]


def add_token_ids(needles: Needles, lists: Needles, number: int) -> None:
    """The token ids of a prompt in every form that they may have had."""
    ids = np.frombuffer(text_of(number).encode(), dtype=np.uint8)
    for kind in (np.uint16, np.int32, np.int64):
        wide = ids.astype(kind)
        a_word = 8 // wide.itemsize
        for shift in range(a_word):
            count = (len(wide) - shift) // a_word * a_word
            aligned = wide[shift : shift + count].copy()
            needles.add(windows(aligned.view(np.uint64), WIDTH), "token ids")
            aligned.fill(0)
        wide.fill(0)
    lists.add(pointers(ids, LIST_WIDTH), "token ids")


def add_kv(needles: Needles, engine: Engine, tenant: str) -> None:
    """What the tenant's blocks hold in the last layer, but the first of each prompt.

    There a token's KV depends on all tokens before it; another tenant's may have begun alike.
    """
    kv, index = kv_of(engine), engine._kv_cache.index
    for block in blocks_of(engine, tenant):
        entry = index.entry_of(block)
        if entry is not None and entry.parent is not None:
            rows = kv[-1, block].reshape(-1, WIDTH).copy()
            needles.add(rows[(rows != 0).all(axis=1)], "kv")
            rows.fill(0)


async def ask(server: RunningEngine, tenant: str, number: int, *, tokens: int = 6) -> None:
    body = {"model": MODEL, "prompt": text_of(number), "max_tokens": tokens, "ignore_eos": True}
    headers = server.identity(tenant)
    answer = await server.http.post(server.url + "/v1/completions", json=body, headers=headers)
    assert answer.status_code == 200, answer.text


async def test_nothing_of_a_purged_tenant_is_in_memory(tmp_path: Path) -> None:
    needles, lists = Needles(WIDTH), Needles(LIST_WIDTH)
    async with tiny_server(tmp_path, num_blocks=12 * PROMPTS) as (server, _):
        call = server.assembly.service.loop.call
        for first in range(0, PROMPTS, AT_ONCE):
            other = ask(server, "b", 10_000 + first)
            await asyncio.gather(other, *(ask(server, "a", first + n) for n in range(AT_ONCE)))
        await call(lambda one: add_kv(needles, one, "a"))
        in_blocks = len(needles)
        for number in range(PROMPTS):
            add_token_ids(needles, lists, number)
        held = needles.found(every=EVERY)
        receipt = receipt_of(server, await server.admin("POST", "/purge", order("a", 1)))
        left = needles.found(every=EVERY) + lists.found(every=EVERY)
        assert receipt_faults(receipt) == []
        # The look finds what is there: all of it before the purge, and none after.
        assert held["kv"] == in_blocks > 50 * PROMPTS
        assert dict(left) == {}
        assert await call(lambda one: blocks_of(one, "a")) == []
    if is_full():
        pieces = len(needles) + len(lists)
        detail = f"{pieces} pieces of {PROMPTS} prompts, {in_blocks} of KV, all held before"
        record("purge-memory-residue", sum(left.values()), detail)


def test_token_ids_are_found_in_each_form() -> None:
    for make in (tuple, list, *(_array_of(kind) for kind in (np.uint16, np.int32, np.int64))):
        needles, lists = Needles(WIDTH), Needles(LIST_WIDTH)
        add_token_ids(needles, lists, 0)
        held = make(text_of(0).encode())
        assert (lists if make in {tuple, list} else needles).found(every=EVERY)["token ids"] > 0
        del held


def _array_of(kind: type[np.generic]):  # type: ignore[no-untyped-def]
    return lambda ids: np.frombuffer(ids, dtype=np.uint8).astype(kind)


def test_what_is_freed_is_overwritten() -> None:
    needles = Needles(WIDTH)
    for number, size in enumerate((64, 512, 1024, 4096, 1 << 20)):
        rng = np.random.default_rng(number)
        words = rng.integers(1, 1 << 62, size // 8, dtype=np.uint64)
        needles.add(words.reshape(-1, WIDTH).copy(), "words")
        del words
    rinse_small_chunks()
    assert not needles.found(every=EVERY)
