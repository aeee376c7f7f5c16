"""The demo model in float32: our logits and tokens against transformers on the same file."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor
from transformers import AutoTokenizer, PreTrainedModel

from e2e.figures.record import record
from fleetward_engine.config import EngineConfig
from fleetward_engine.engine import Engine
from fleetward_engine.gguf_file import GgufFile
from fleetward_engine.gguf_tokenizer import GgufTokenizer
from fleetward_engine.models.llama import Llama
from fleetward_engine.request import SamplingParams
from fleetward_engine.torch_runner import TorchRunner
from tests.support.demo_model import (
    BLOCK_SIZE,
    URI,
    load_ours,
    load_theirs,
    model_path,
    our_logits,
)
from tests.support.engine_core import Bench, Clock, make_request

TEXTS = [
    "The harbour of the old town lies behind a long wall of grey stone. " * 12,
    "def fibonacci(n: int) -> int:\n    return n if n < 2 else fibonacci(n - 1) + fib",
    "Q: What is 17 * 23?\nA: 391\n\nQ: ¿Dónde está la biblioteca? 図書館はどこですか 😀\nA:",
]
QUESTIONS = [
    "What is the capital of France?",
    "Write a short poem about rain on a tin roof.",
    "List three prime numbers and say why they are prime.",
    "Explain in one sentence what a lighthouse is for.",
    "Translate 'good morning' into Spanish, French and German.",
    "Why is the sky blue? " * 20,
]
COUNT = 48
DIFFERENCES: list[float] = []
"""Largest difference of a logit in each teacher-forced pass of this run."""


@pytest.fixture(scope="module")
def ours() -> Llama:
    return load_ours(torch.float32)


@pytest.fixture(scope="module")
def theirs() -> Iterator[PreTrainedModel]:
    yield load_theirs(torch.float32)
    if DIFFERENCES:
        detail = f"largest of {len(DIFFERENCES)} texts"
        record("demo-logit-difference", max(DIFFERENCES), detail)


@pytest.fixture(scope="module")
def tokenizer() -> GgufTokenizer:
    return GgufTokenizer(GgufFile(model_path()))


def reference(model: PreTrainedModel, tokens: list[int]) -> Tensor:
    with torch.inference_mode():
        logits: Tensor = model(torch.tensor([tokens]), use_cache=False).logits[0]
    return logits


@pytest.mark.parametrize("text", TEXTS, ids=["prose", "code", "mixed"])
def test_teacher_forced_logits_agree(
    ours: Llama, theirs: PreTrainedModel, tokenizer: GgufTokenizer, text: str
) -> None:
    tokens = tokenizer.encode(text)
    expected = reference(theirs, tokens)
    size = len(tokens)
    got = our_logits(ours, tokens, chunks=[size])
    DIFFERENCES.append(float((got - expected).abs().max()))
    assert DIFFERENCES[-1] < 1e-4
    # Products of one row and of many add up in another order: float32 alone, in transformers as
    # here, is up to 7e-5 away from float64 on these texts, and chunks differ from each other so.
    for chunks in ([1, 7, size - 8], [size - 3, 1, 1, 1]):
        got = our_logits(ours, tokens, chunks=chunks)
        assert float((got - expected).abs().max()) < 2e-4


def test_tokens_agree_wherever_the_choice_is_clear(
    ours: Llama, theirs: PreTrainedModel, tokenizer: GgufTokenizer
) -> None:
    config = EngineConfig(
        model_uri=URI, served_model_names=("m",), max_num_batched_tokens=100, block_size=BLOCK_SIZE
    )
    runner = TorchRunner(ours, num_blocks=200, block_size=BLOCK_SIZE)
    bench = Bench(Engine(config, runner, tokenizer, Clock()), runner, Clock())  # type: ignore[arg-type]
    params = SamplingParams(max_tokens=COUNT, temperature=0.0, ignore_eos=True)
    prompts = [tokenizer.encode_chat([{"role": "user", "content": q}]) for q in QUESTIONS]
    names = [str(number) for number in range(len(prompts))]
    requests = (
        make_request(n, p, sampling=params) for n, p in zip(names, prompts, strict=True)
    )  # fmt: skip
    bench.run(*requests)
    clear = wrong = 0
    for name, prompt in zip(names, prompts, strict=True):
        answer = torch.tensor(bench.tokens(name))
        logits = reference(theirs, prompt + bench.tokens(name))[len(prompt) - 1 : -1]
        top = logits.topk(2, dim=-1)
        certain = top.values[:, 0] - top.values[:, 1] > 1e-3
        clear += int(certain.sum())
        wrong += int((top.indices[certain, 0] != answer[certain]).sum())
    record("demo-token-mismatches", wrong, f"of {clear} clear choices")
    assert wrong == 0
    assert clear > 0.95 * COUNT * len(prompts)


def test_the_packed_bfloat16_weights_compute_what_the_plain_ones_do(
    ours: Llama, tokenizer: GgufTokenizer
) -> None:
    low = load_ours(torch.bfloat16)
    tokens = tokenizer.encode(TEXTS[0])
    exact = our_logits(ours, tokens, chunks=[len(tokens)]).log_softmax(-1)
    rough = our_logits(low, tokens, chunks=[len(tokens)]).float().log_softmax(-1)
    divergence = (exact.exp() * (exact - rough)).sum(-1).mean()
    assert 0 < float(divergence) < 5e-3


def test_text_becomes_the_same_tokens_as_in_transformers(tokenizer: GgufTokenizer) -> None:
    path = model_path()
    reference_tokenizer = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    for text in [*TEXTS, *QUESTIONS, "  two  spaces\t\ttabs\r\n", "<|im_start|>x<|im_end|>", ""]:
        assert tokenizer.encode(text) == reference_tokenizer(text)["input_ids"]
        messages = [{"role": "user", "content": text.replace("<|", "< |")}]
        ours = tokenizer.encode_chat(messages)
        theirs = reference_tokenizer.apply_chat_template(messages, add_generation_prompt=True)
        assert ours == list(theirs["input_ids"])
