"""Public prefixes: shared by all, made by the engine alone, and private from the first block on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from fleetward_api.cache_key import block_key, fold_root
from fleetward_api.scope import Scope
from fleetward_engine.errors import ChatRefused
from fleetward_engine.public_prefixes import PublicPlan, plan_public, public_forms
from fleetward_engine.public_tenant import PUBLIC_TENANT
from fleetward_engine.request import Request
from fleetward_engine.share_rules import ShareRules
from fleetward_engine.tokenizer import ByteTokenizer, ChatMessage
from tests.support.engine_core import ACME, BETA, Bench, expected_tokens, make_bench, make_request

ROOT = b"p" * 32
TEXT = list(range(1, 17))
"""Four blocks."""
PLAN = PublicPlan(forms=(tuple(TEXT),), blocks=5)


def public_bench(plan: PublicPlan = PLAN, **settings: object) -> Bench:
    bench = make_bench(**settings)  # type: ignore[arg-type]
    declare(bench, plan)
    run_out(bench)
    return bench


def declare(bench: Bench, plan: PublicPlan, root: bytes = ROOT) -> None:
    bench.engine.public.declare(root, plan)
    rules = bench.engine._kv_cache.pool.accounts.rules
    bench.engine.governance.set_share_rules(replace(rules, public_blocks=plan.blocks))
    bench.engine.governance.overwrite_dirty()
    bench.engine.check_integrity()


def run_out(bench: Bench) -> None:
    while bench.engine.has_work:
        assert all(not one.request_id.startswith("~") for one in bench.step())


def asking(name: str, prompt: Sequence[int], scope: Scope = ACME, **terms: object) -> Request:
    request = make_request(name, prompt, scope=scope, **terms)  # type: ignore[arg-type]
    return replace(request, cache=replace(request.cache, public_root=ROOT))


def cached(bench: Bench, name: str) -> int:
    return bench.outputs[name][-1].cached_tokens


def test_every_tenant_finds_it_at_its_first_request() -> None:
    bench = public_bench()
    for name, scope in (("a", ACME), ("b", BETA)):
        bench.run(asking(name, [*TEXT, 99, 98], scope))
        assert cached(bench, name) == 16
        assert bench.tokens(name) == expected_tokens([*TEXT, 99, 98], 4)
    assert bench.engine.stats().public_blocks.cached == 4


@given(st.integers(0, 20), st.integers(0, 6))
def test_a_prompt_uses_the_whole_blocks_that_it_begins_with(same: int, more: int) -> None:
    bench = public_bench()
    prompt = [*TEXT[:same], *([200] * (more + 1))]
    bench.run(asking("a", prompt))
    assert cached(bench, "a") == min(same, 16) // 4 * 4


def test_what_goes_on_from_it_is_found_by_its_own_tenant_alone() -> None:
    bench = public_bench()
    prompt = [*TEXT, *range(50, 58), 99]
    bench.run(asking("first", prompt))
    bench.run(asking("again", prompt), asking("other", prompt, BETA))
    assert (cached(bench, "again"), cached(bench, "other")) == (24, 16)


def test_the_first_private_block_is_chained_from_both() -> None:
    bench = public_bench()
    request = asking("a", [*TEXT, 60, 61, 62, 63, 99])
    bench.run(request)
    parent = ROOT
    for start in range(0, 16, 4):
        parent = block_key(parent, TEXT[start : start + 4])
    assert request.cache.root is not None
    key = block_key(fold_root(parent, request.cache.root), [60, 61, 62, 63])
    assert bench.engine.governance.probe([key]) == 1
    for wrong in (parent, request.cache.root):
        assert bench.engine.governance.probe([block_key(wrong, [60, 61, 62, 63])]) == 0


def test_nothing_that_a_client_sends_becomes_public() -> None:
    bench = make_bench()
    prompt = [*TEXT, 99]
    bench.run(asking("a", prompt))
    assert bench.engine.stats().public_blocks.cached == 0
    bench.run(asking("b", prompt, BETA))
    assert cached(bench, "b") == 0


def test_tenants_are_not_promised_blocks_of_public_prefixes_that_are_still_there() -> None:
    """Less is set apart at once; the blocks themselves leave a moment later."""
    bench = public_bench(num_blocks=12)
    rules = replace(bench.engine._kv_cache.pool.accounts.rules, public_blocks=0)
    bench.engine.governance.set_share_rules(rules)
    last = bench.run(*(make_request(f"{n}", [100 + n] * 20, max_tokens=8) for n in range(3)))
    assert [one.finish_reason for one in last] == ["length"] * 3
    assert bench.engine.stats().public_blocks.cached == 4


def test_a_withdrawn_prefix_that_requests_still_use_takes_no_others_room() -> None:
    other = tuple(range(30, 46))
    both = PublicPlan(forms=(tuple(TEXT), other), blocks=9)
    bench = public_bench(both, num_blocks=20)
    bench.engine.add_request(asking("uses", [*other, 99], max_tokens=26))
    bench.step()
    declare(bench, PLAN)
    assert cached(bench, "uses") == 16
    last = bench.run(*(make_request(f"{n}", [100 + n] * 16, max_tokens=12) for n in range(3)))
    assert [one.finish_reason for one in last] == ["length"] * 3
    assert bench.tokens("uses") == expected_tokens([*other, 99], 26)
    assert bench.engine.stats().public_blocks.cached == 4


def test_a_withdrawn_prefix_is_gone_with_all_that_went_on_from_it() -> None:
    bench = public_bench()
    bench.run(asking("a", [*TEXT, *range(50, 58), 99]))
    declare(bench, PublicPlan())
    stats = bench.engine.stats()
    assert (stats.cached_blocks, stats.public_blocks.cached) == (0, 0)
    assert not bench.runner._kv.any()
    bench.run(asking("b", [*TEXT, 99], BETA))
    assert cached(bench, "b") == 0


def test_a_request_that_runs_while_its_prefix_is_withdrawn_ends_as_ever_and_leaves_nothing() -> (
    None
):
    bench = public_bench()
    prompt = [*TEXT, 90, 91, 92, 93, 94]
    bench.engine.add_request(asking("a", prompt, max_tokens=8))
    bench.step()
    declare(bench, PublicPlan())
    run_out(bench)
    assert bench.tokens("a") == expected_tokens(prompt, 8)
    assert bench.engine.stats().cached_blocks == 0
    assert not bench.runner._kv.any()


def test_a_request_that_waits_while_its_prefix_is_withdrawn_makes_nothing_public() -> None:
    bench = public_bench(max_num_seqs=1)
    bench.engine.add_request(asking("runs", [9] * 8))
    bench.engine.add_request(asking("waits", [*TEXT, 99]))
    bench.step()
    declare(bench, PublicPlan())
    run_out(bench)
    assert (cached(bench, "waits"), bench.tokens("waits")) == (0, expected_tokens([*TEXT, 99], 4))
    bench.run(asking("other", [*TEXT, 99], BETA))
    assert cached(bench, "other") == 0


def test_another_epoch_computes_it_anew_and_drops_the_old() -> None:
    bench = public_bench()
    bench.run(asking("a", [*TEXT, 50, 51, 52, 53, 99]))
    declare(bench, PLAN, root=b"q" * 32)
    assert bench.engine.stats().cached_blocks == 0
    run_out(bench)
    assert bench.engine.stats().public_blocks.cached == 4
    bench.run(asking("b", [*TEXT, 99], BETA))
    assert cached(bench, "b") == 0


def test_it_outlives_floods_purges_and_stricter_lifetimes() -> None:
    bench = public_bench(num_blocks=16)
    for number in range(12):
        bench.run(asking(f"f{number}", [100 + number] * 40, BETA))
    bench.engine.governance.limit_ttls(idle_ttl_ms=0, max_ttl_ms=0)
    bench.engine.governance.expire(bench.clock.now)
    for scope in (ACME, BETA):
        bench.engine.governance.purge(scope, 1, scrub=True)
    bench.engine.check_integrity()
    bench.run(asking("a", [*TEXT, 99], floor=1))
    assert cached(bench, "a") == 16


def test_a_request_below_the_floor_or_without_cache_reads_it_no_more_than_anything_else() -> None:
    bench = public_bench()
    bench.engine.governance.fence(ACME, 1, "Finish")
    bench.run(asking("old", [*TEXT, 99]), asking("none", [*TEXT, 99], BETA, cached=False))
    assert (cached(bench, "old"), cached(bench, "none")) == (0, 0)


def test_its_blocks_are_in_no_tenants_share_and_tenants_have_the_rest() -> None:
    rules = ShareRules(max_percent=50, guaranteed_percent=25)
    bench = make_bench(num_blocks=25)
    bench.engine.governance.set_share_rules(rules)
    declare(bench, PLAN)
    run_out(bench)
    stats = bench.engine.stats()
    assert (stats.kv_blocks_max_share, stats.public_blocks.reserved) == (10, 5)
    # 16 public tokens, and 24 of its own: more than half of what tenants have, were it counted.
    bench.run(asking("a", [*TEXT, *range(50, 74)][:39], max_tokens=1))
    assert cached(bench, "a") == 16
    shares = bench.engine.stats().shares
    assert list(shares) == ["acme"]
    assert shares["acme"].cached == 5


def test_a_request_that_leaves_it_no_room_ends_when_it_is_declared() -> None:
    bench = make_bench(num_blocks=16)
    bench.engine.add_request(asking("big", [7] * 50, max_tokens=10))
    bench.step()
    declare(bench, PLAN)
    run_out(bench)
    assert bench.outputs["big"][-1].finish_reason == "error"
    assert bench.engine.stats().public_blocks.cached == 4


def test_it_is_computed_before_those_who_wait() -> None:
    bench = make_bench(max_num_seqs=1)
    bench.engine.add_request(asking("runs", [9] * 8, max_tokens=2))
    bench.step()
    bench.engine.add_request(asking("waits", [*TEXT, 99], BETA, max_tokens=1))
    declare(bench, PLAN)
    run_out(bench)
    # Its keys were made while nothing was public.
    assert cached(bench, "waits") == 0
    bench.run(asking("next", [*TEXT, 99], BETA))
    assert cached(bench, "next") == 16


def test_one_whose_logits_are_broken_is_given_up_after_three_tries() -> None:
    bench = make_bench()
    bench.engine.public.declare(ROOT, PLAN)
    tries = 0
    while bench.engine.has_work:
        (own,) = bench.engine._requests
        assert own.sequence.tenant == PUBLIC_TENANT
        bench.engine.abort_request(own.request_id)
        tries += 1
        bench.engine.public.tend()
    assert tries == 3


def test_without_prefix_caching_it_is_tried_and_left() -> None:
    bench = make_bench(enable_prefix_caching=False)
    declare(bench, PLAN)
    run_out(bench)
    assert bench.engine.stats().cached_blocks == 0


class NoSystem(ByteTokenizer):
    """A model whose template takes no system message."""

    def encode_chat(self, messages: Sequence[ChatMessage]) -> list[int]:
        raise ChatRefused("no system message")


def test_a_text_is_the_beginning_of_a_prompt_and_a_system_message() -> None:
    tokenizer = ByteTokenizer()
    plain, chat = public_forms(tokenizer, "Be brief.")
    assert plain == tuple(b"Be brief.")
    told = tokenizer.encode_chat(
        [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Why?"}]
    )
    assert told[: len(chat)] == list(chat)
    assert bytes(token for token in chat if token < 256) == b"system\nBe brief.user\n"
    assert public_forms(NoSystem(), "Be brief.") == [plain]


FORMS = st.lists(st.lists(st.integers(0, 1), max_size=30).map(tuple), max_size=6)


@given(FORMS, st.integers(1, 5), st.integers(1, 60), st.integers(1, 40))
def test_what_is_kept_is_whole_blocks_that_fit(
    forms: list[tuple[int, ...]], block_size: int, num_blocks: int, max_tokens: int
) -> None:
    plan = plan_public(forms, block_size=block_size, num_blocks=num_blocks, max_tokens=max_tokens)
    assert plan.blocks <= num_blocks // 4
    for kept in plan.forms:
        assert kept
        assert len(kept) % block_size == 0
        assert len(kept) <= max_tokens
        assert any(form[: len(kept)] == kept for form in forms)
    total = sum(len(form) for form in plan.forms) // block_size
    assert plan.blocks == (total + 1 if total else 0)
    if plan.left_out == 0:
        keys = {form[: len(form) // block_size * block_size] for form in forms}
        assert all(any(kept[: len(key)] == key for kept in plan.forms) for key in keys if key)


def test_a_public_block_that_changed_by_itself_is_computed_anew_by_the_engine_alone() -> None:
    bench = public_bench(verify_kv=True)
    entry = next(iter(bench.engine._kv_cache.index._entries.values()))
    bench.runner._kv[entry.block, 1] ^= 4
    prompt = [*TEXT, 99, 98]
    bench.run(asking("a", prompt))
    assert cached(bench, "a") == 0
    assert bench.tokens("a") == expected_tokens(prompt, 4)
    run_out(bench)
    assert bench.engine.stats().public_blocks.cached == 4
    bench.run(asking("b", prompt, BETA))
    assert cached(bench, "b") == 16
    assert bench.tokens("b") == expected_tokens(prompt, 4)
    assert bench.engine.stats().kv_corruptions == 1
