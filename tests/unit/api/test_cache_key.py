"""The cache root and block keys: equal only when every input is."""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetward_api.cache_key import (
    ModelFingerprint,
    RootInputs,
    block_key,
    cache_root,
    document_tags_digest,
    fold_root,
    public_root,
)
from fleetward_api.errors import CacheKeyInvalid

SECRET = b"s" * 32
SHORT = st.text("ab1_", max_size=3)
MODEL = ModelFingerprint("sha256:m", "", "sha256:t", "bfloat16/16/kv/rope=10000")
INPUTS = RootInputs("org_1", "uid-1", "2345", "", "", (0, 0, 0, 0), MODEL)
VECTORS = [
    "542f597b985299b1fd5316eac4a5f7d0311dae01b04a499e78a3916b8f4eaf4e",
    "cb4fb2846b2beca9bc7da63a6be82a974c25f498defb3cba6b3650c9380e87cb",
    "1a1b73e033754f06feaf4ac746fd548ebcd1c8adcc3a6ec99536f27377580469",
    "558b6ff6426deca101a74e771d5c51ab4fec52f59e87e48d99c643c856aac11f",
]
"""A root, the public root, its first block, and the private block after that."""
ANY_INPUTS = st.builds(
    RootInputs,
    SHORT,
    SHORT,
    SHORT,
    SHORT,
    SHORT,
    st.tuples(*[st.integers(0, 2)] * 4),
    st.builds(ModelFingerprint, SHORT, SHORT, SHORT, SHORT),
)


@given(ANY_INPUTS, ANY_INPUTS)
def test_roots_are_equal_only_when_every_input_is(a: RootInputs, b: RootInputs) -> None:
    assert (cache_root(SECRET, a) == cache_root(SECRET, b)) == (a == b)


def test_moving_a_character_between_two_fields_changes_the_root() -> None:
    moved = replace(INPUTS, tenant="org_1u", tenant_uid="id-1")
    assert cache_root(SECRET, INPUTS) != cache_root(SECRET, moved)


@pytest.mark.parametrize("name", [field.name for field in fields(RootInputs)])
def test_every_input_counts(name: str) -> None:
    other: dict[str, Any] = {
        "floors": (0, 0, 1, 0),
        "model": replace(MODEL, kv_layout="float32/16/kv/rope=10000"),
    }
    changed = replace(INPUTS, **{name: other.get(name, "another")})
    assert cache_root(SECRET, changed) != cache_root(SECRET, INPUTS)


@pytest.mark.parametrize("name", [field.name for field in fields(ModelFingerprint)])
def test_every_part_of_the_model_counts(name: str) -> None:
    changed = replace(INPUTS, model=replace(MODEL, **{name: "another"}))
    assert cache_root(SECRET, changed) != cache_root(SECRET, INPUTS)


def test_each_floor_counts_in_its_place() -> None:
    places = [(1, 0, 0, 0), (0, 1, 0, 0), (0, 0, 1, 0), (0, 0, 0, 1)]
    roots = {cache_root(SECRET, replace(INPUTS, floors=place)) for place in places}
    assert len(roots) == 4


def test_another_epoch_reaches_nothing() -> None:
    assert cache_root(b"t" * 32, INPUTS) != cache_root(SECRET, INPUTS)


def test_the_root_is_the_formula_as_written() -> None:
    def lp(data: bytes) -> bytes:
        return len(data).to_bytes(8, "big") + data

    floors = b"".join(floor.to_bytes(8, "big") for floor in (1, 2, 3, 4))
    parts = [b"fleetward/kv/v1", b"org_1", b"uid-1", b"2345", b"", b"", floors]
    parts += [b"sha256:m", b"", b"sha256:t", b"bfloat16/16/kv/rope=10000"]
    message = b"".join(map(lp, parts))
    want = hmac.new(SECRET, message, hashlib.sha256).digest()
    assert cache_root(SECRET, replace(INPUTS, floors=(1, 2, 3, 4))) == want


def test_a_block_key_is_the_formula_as_written() -> None:
    tokens = (2).to_bytes(4, "little") + (5).to_bytes(4, "little") + (258).to_bytes(4, "little")
    assert block_key(SECRET, [5, 258]) == hashlib.sha256(SECRET + tokens).digest()


TOKENS = st.lists(st.integers(0, 2**32 - 1), max_size=20)


@given(TOKENS, TOKENS)
def test_block_keys_are_equal_only_for_equal_tokens(a: list[int], b: list[int]) -> None:
    assert (block_key(SECRET, a) == block_key(SECRET, b)) == (a == b)


@given(TOKENS, st.integers(0, 20))
def test_where_a_prompt_is_cut_into_blocks_counts(tokens: list[int], cut: int) -> None:
    cut = min(cut, len(tokens))
    chained = block_key(block_key(SECRET, tokens[:cut]), tokens[cut:])
    assert chained != block_key(SECRET, tokens)


def test_the_same_tokens_after_another_prefix_are_another_block() -> None:
    parents = [block_key(SECRET, [token]) for token in (1, 2)]
    assert block_key(parents[0], [7]) != block_key(parents[1], [7])


def test_tokens_may_come_in_any_sequence() -> None:
    assert block_key(SECRET, (1, 2)) == block_key(SECRET, [1, 2]) == block_key(SECRET, range(1, 3))


@pytest.mark.parametrize("token", [-1, 2**32, 1.5, "a"])
def test_a_token_that_is_no_id_is_refused(token: Any) -> None:
    with pytest.raises(CacheKeyInvalid, match="token id"):
        block_key(SECRET, [token])


@pytest.mark.parametrize("size", [0, 31, 33])
def test_secrets_and_parents_have_one_size(size: int) -> None:
    with pytest.raises(CacheKeyInvalid):
        cache_root(b"s" * size, INPUTS)
    with pytest.raises(CacheKeyInvalid):
        block_key(b"s" * size, [1])


@pytest.mark.parametrize("floors", [(-1, 0, 0, 0), (0, 0, 0, 2**64), (0, 0, 0)])
def test_floors_are_four_64_bit_numbers(floors: Any) -> None:
    with pytest.raises(CacheKeyInvalid):
        cache_root(SECRET, replace(INPUTS, floors=floors))


def test_huge_and_foreign_text_is_taken_and_broken_text_refused() -> None:
    long = replace(INPUTS, tenant="é" * 100_000, isolation_subject="\U0001f600\0")
    assert len(cache_root(SECRET, long)) == 32
    with pytest.raises(CacheKeyInvalid):
        cache_root(SECRET, replace(INPUTS, tenant="\ud800"))


def test_document_tags_are_a_set() -> None:
    assert document_tags_digest([]) == ""
    assert document_tags_digest(["b", "a", "a"]) == document_tags_digest(["a", "b"])
    assert document_tags_digest(["ab"]) != document_tags_digest(["a", "b"])


def test_the_public_root_and_the_fold_are_the_formulas_as_written() -> None:
    def lp(data: bytes) -> bytes:
        return len(data).to_bytes(8, "big") + data

    facts = [b"sha256:m", b"", b"sha256:t", b"bfloat16/16/kv/rope=10000"]
    message = b"".join(map(lp, [b"fleetward/kv/public/v1", *facts]))
    assert public_root(SECRET, MODEL) == hmac.new(SECRET, message, hashlib.sha256).digest()
    parent, root = b"p" * 32, b"r" * 32
    want = hashlib.sha256(b"".join(map(lp, [b"fleetward/kv/fold/v1", parent, root]))).digest()
    assert fold_root(parent, root) == want


def test_the_formulas_give_these_bytes() -> None:
    root = cache_root(SECRET, replace(INPUTS, floors=(1, 2, 3, 4)))
    public = public_root(SECRET, MODEL)
    last_public = block_key(public, range(16))
    private = block_key(fold_root(last_public, root), range(16, 32))
    assert [key.hex() for key in (root, public, last_public, private)] == VECTORS


@given(ANY_INPUTS)
def test_no_tenant_has_the_public_root(inputs: RootInputs) -> None:
    assert cache_root(SECRET, inputs) != public_root(SECRET, inputs.model)


@pytest.mark.parametrize("name", [field.name for field in fields(ModelFingerprint)])
def test_every_part_of_the_model_counts_in_the_public_root_too(name: str) -> None:
    changed = replace(MODEL, **{name: "another"})
    assert public_root(SECRET, changed) != public_root(SECRET, MODEL)


@given(*[st.sampled_from([b"a" * 32, b"b" * 32])] * 4)
def test_a_fold_is_equal_only_for_equal_parents_and_roots(
    parent: bytes, root: bytes, other_parent: bytes, other_root: bytes
) -> None:
    same = (parent, root) == (other_parent, other_root)
    assert (fold_root(parent, root) == fold_root(other_parent, other_root)) == same
    assert fold_root(parent, root) not in (parent, root)


def test_public_inputs_have_one_size_and_valid_text() -> None:
    with pytest.raises(CacheKeyInvalid):
        public_root(b"s", MODEL)
    with pytest.raises(CacheKeyInvalid):
        public_root(SECRET, replace(MODEL, model_digest="\ud800"))
    for parent, root in ((31, 32), (32, 33)):
        with pytest.raises(CacheKeyInvalid):
            fold_root(b"p" * parent, b"r" * root)
