"""The demo model as a checkpoint: the same logits, tokens and chats as from its GGUF file."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

from fleetward_engine.gguf_file import GgufFile
from fleetward_engine.gguf_tokenizer import GgufTokenizer
from fleetward_engine.loading import LoadedModel, load_model
from fleetward_engine.model_source import resolve
from tests.support.demo_model import load_ours, load_theirs, model_path, our_logits

TEXTS = [
    "The harbour of the old town lies behind a long wall of grey stone. " * 6,
    "Q: ¿Dónde está la biblioteca? 図書館はどこですか 😀 17*23\r\n\t  A:",
    "<|im_start|>x<|im_end|> <repo_name>",
    "",
]


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    """Written by transformers, dequantised to float32, in shards."""
    folder: Path = tmp_path_factory.mktemp("demo")
    theirs = load_theirs(torch.float32)
    # It refuses to write what it read from GGUF, so a model of the same numbers is written.
    fields = theirs.config.to_dict()
    del fields["quantization_config"]
    plain = LlamaForCausalLM(LlamaConfig.from_dict(fields))
    plain.load_state_dict(theirs.state_dict())
    plain.save_pretrained(folder, max_shard_size="200MB")
    path = model_path()
    AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name).save_pretrained(folder)
    assert len(list(folder.glob("*.safetensors"))) > 1
    resolved = resolve(f"file://{folder}")
    return load_model(resolved, dtype=torch.float32, device=torch.device("cpu"))


def test_logits_are_the_same(exported: LoadedModel) -> None:
    tokens = exported.tokenizer.encode(TEXTS[0])
    expected = our_logits(load_ours(torch.float32), tokens, chunks=[40, len(tokens) - 40])
    assert torch.equal(our_logits(exported.model, tokens, chunks=[40, len(tokens) - 40]), expected)


def test_tokens_chats_and_ends_are_the_same(exported: LoadedModel) -> None:
    ours, original = exported.tokenizer, GgufTokenizer(GgufFile(model_path()))
    for text in TEXTS:
        assert ours.encode(text) == original.encode(text)
        messages = [{"role": "user", "content": text}]
        assert ours.encode_chat(messages) == original.encode_chat(messages)
    assert ours.eos_token_ids == original.eos_token_ids
    assert ours.vocab_size == original.vocab_size
    differing = [
        i for i in range(ours.vocab_size) if ours.token_bytes(i) != original.token_bytes(i)
    ]
    assert differing == []
