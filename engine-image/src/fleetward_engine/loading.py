"""From resolved files to a model and its tokenizer, whatever their format."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

from fleetward_engine.errors import EngineError, ModelUnavailable, one_line
from fleetward_engine.gguf_file import GgufFile
from fleetward_engine.gguf_loader import load_llama
from fleetward_engine.gguf_tokenizer import GgufTokenizer, chat_template_digest, tokenizer_digest
from fleetward_engine.hf.checkpoint import Checkpoint
from fleetward_engine.hf.eos_tokens import read_eos_token_ids
from fleetward_engine.hf.llama_config import read_llama_config
from fleetward_engine.hf.llama_loader import load_checkpoint
from fleetward_engine.hf.tokenizer import HfTokenizer
from fleetward_engine.hf.tokenizer_files import read_tokenizer_files
from fleetward_engine.model_source import ResolvedModel
from fleetward_engine.models.llama import Llama
from fleetward_engine.tokenizer import Tokenizer

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model, its tokenizer, and the digests of what turns text into tokens."""

    model: Llama
    tokenizer: Tokenizer
    tokenizer_digest: str
    chat_template_digest: str


def load_model(resolved: ResolvedModel, *, dtype: torch.dtype, device: torch.device) -> LoadedModel:
    """Read a model from its files; says in the log how long that took.

    Raises:
        ModelUnsupported: what the files ask for has no code here.
        ModelUnavailable: one can't be read, or they don't fit together.
    """
    start = time.monotonic()
    with naming(resolved.path):
        if resolved.checkpoint is None:
            loaded = _load_gguf(resolved.path, dtype, device)
        else:
            loaded = _load_checkpoint(resolved.checkpoint, dtype, device)
    logger.info(
        "loaded %s as %s on %s in %.1f s", resolved.path, dtype, device, time.monotonic() - start
    )
    return loaded


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Have every fault of loading name the file, in one line.

    Raises:
        ModelUnsupported: what the file asks for has no code here.
        ModelUnavailable: it can't be read, or its parts don't fit together.
    """
    try:
        yield
    except EngineError as fault:
        if str(path) in str(fault):
            raise
        raise type(fault)(f"{path}: {fault}") from fault
    except MemoryError as fault:
        raise ModelUnavailable(f"{path} needs more memory than there is: give more") from fault
    # A damaged file may hold any number anywhere: what comes of it has no list.
    except Exception as fault:
        raise ModelUnavailable(
            f"{path} can't be loaded, fetch it again and pin its digest: {one_line(fault)}"
        ) from fault


def _load_gguf(path: Path, dtype: torch.dtype, device: torch.device) -> LoadedModel:
    file = GgufFile(path)
    tokenizer = GgufTokenizer(file)
    model = load_llama(file, dtype=dtype, device=device)
    return LoadedModel(model, tokenizer, tokenizer_digest(file), chat_template_digest(file))


def _load_checkpoint(
    checkpoint: Checkpoint, dtype: torch.dtype, device: torch.device
) -> LoadedModel:
    # Weights come last: what is wrong with the small files is found at once.
    spec = read_llama_config(checkpoint.config)
    files, vocab_size = read_tokenizer_files(checkpoint), spec.config.vocab_size
    tokenizer = HfTokenizer(
        files,
        vocab_size=vocab_size,
        eos_token_ids=read_eos_token_ids(checkpoint, vocab_size=vocab_size),
    )
    model = load_checkpoint(checkpoint, spec, dtype=dtype, device=device)
    return LoadedModel(model, tokenizer, files.tokenizer_digest, files.chat_template_digest)
