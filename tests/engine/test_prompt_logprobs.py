"""How likely a prompt was, beside transformers: in whatever chunks it is computed."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import LlamaForCausalLM

from fleetward_engine import torch_runner
from fleetward_engine.request import SamplingParams
from tests.support.engine_core import make_request
from tests.support.tiny_llama import Shape, make_reference, make_torch_bench, write_gguf

PROMPT = [(7 * number) % 251 for number in range(37)]


@pytest.fixture(scope="module")
def reference() -> LlamaForCausalLM:
    return make_reference(Shape(), seed=3)


@pytest.fixture(scope="module")
def path(reference: LlamaForCausalLM, tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("model") / "tiny.gguf"
    write_gguf(reference, file)
    return file


@pytest.mark.parametrize(("budget", "at_once"), [(64, 64), (64, 5), (9, 64), (8, 3)])
def test_each_token_is_as_likely_as_in_one_pass_without_cache(
    reference: LlamaForCausalLM,
    path: Path,
    monkeypatch: pytest.MonkeyPatch,
    budget: int,
    at_once: int,
) -> None:
    monkeypatch.setattr(torch_runner, "SCORED_AT_ONCE", at_once)
    with torch.inference_mode():
        logits = reference(torch.tensor([PROMPT]), use_cache=False).logits[0]
    expected = torch.log_softmax(logits, dim=-1)
    bench = make_torch_bench(path, max_num_batched_tokens=budget, max_num_seqs=4)
    params = SamplingParams(max_tokens=2, temperature=0.0, prompt_logprobs=3, ignore_eos=True)
    others = [make_request(f"other {number}", PROMPT[number:], max_tokens=6) for number in range(2)]
    bench.run(make_request("told", PROMPT, sampling=params), *others)
    found = [one for output in bench.outputs["told"] for one in output.prompt_logprobs]
    assert [one.token_id for one in found] == PROMPT[1:]
    for position, one in enumerate(found):
        row = expected[position]
        assert one.logprob == pytest.approx(float(row[one.token_id]), abs=1e-5)
        values, ids = row.topk(3)
        assert [token for token, _ in one.top] == ids.tolist()
        assert [value for _, value in one.top] == pytest.approx(values.tolist(), abs=1e-5)
