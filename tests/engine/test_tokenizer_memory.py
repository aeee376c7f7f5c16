"""The tokenizer keeps no word of what it has encoded."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from tokenizers import Tokenizer, models, pre_tokenizers

from fleetward_engine.model_tokenizer import ModelTokenizer, byte_level_bytes

WORDS = 500
_MARK = "qzx"
_CHUNK = 1 << 24


def word(number: int) -> str:
    """A word that stands nowhere else, also not in this file."""
    return _MARK + hashlib.sha256(str(number).encode()).hexdigest()


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


def held(count: int) -> int:
    """How many of the first words are anywhere in this process's writable memory."""
    found: set[bytes] = set()
    pattern = re.compile(_MARK.encode() + rb"[0-9a-f]{64}")
    with Path("/proc/self/mem").open("rb", buffering=0) as memory:
        for line in Path("/proc/self/maps").read_text().splitlines():
            span, rights, *_ = line.split()
            start, end = (int(each, 16) for each in span.split("-"))
            if not rights.startswith("rw") or "[v" in line:
                continue
            for at in range(start, end, _CHUNK):
                memory.seek(at)
                try:
                    found |= set(pattern.findall(memory.read(min(_CHUNK, end - at))))
                except OSError:
                    break
    return len(found & {word(number).encode() for number in range(count)})


def test_no_word_outlives_its_prompt() -> None:
    encoder = tokenizer()
    for number in range(WORDS):
        assert len(encoder.encode(word(number))) == len(word(number))
    for _ in range(200):
        encoder.encode("other words " * 50)
    # A few lie in memory that was freed and not used again: those are transient text.
    assert held(WORDS) < WORDS // 4
