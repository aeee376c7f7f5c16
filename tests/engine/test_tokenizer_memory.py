"""The tokenizer keeps no word of what it has encoded."""

from __future__ import annotations

from tokenizers import Tokenizer, models, pre_tokenizers

from fleetward_engine.model_tokenizer import ModelTokenizer, byte_level_bytes
from tests.support.own_memory import Words

WORDS = Words("qzx", 500)


def tokenizer() -> ModelTokenizer:
    """One token a byte, and no merges: a word is what the package may keep."""
    vocab = {letter: number for number, letter in enumerate(pre_tokenizers.ByteLevel.alphabet())}

    def plain() -> Tokenizer:
        made = Tokenizer(models.BPE(vocab=vocab, merges=[]))
        made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
        return made

    return ModelTokenizer(
        special=plain(),
        plain=plain(),
        guarded=(),
        token_bytes=[byte_level_bytes(letter) for letter in vocab],
        prefix=(),
        eos_token_ids=frozenset(),
        template=None,
    )


def test_no_word_outlives_its_prompt() -> None:
    encoder = tokenizer()
    for number in range(WORDS.count):
        assert len(encoder.encode(WORDS[number])) == len(WORDS[number])
    for _ in range(200):
        encoder.encode("other words " * 50)
    # A few lie in memory that was freed and not used again: those are transient text.
    assert WORDS.still_held() < WORDS.count // 4
