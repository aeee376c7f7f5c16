"""From a request body to the prompt's token ids, without holding up the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from fleetward_engine.errors import ChatRefused
from fleetward_engine.server.conversation import plain_messages
from fleetward_engine.server.errors import ApiError
from fleetward_engine.server.openai_models import ChatCompletionBody, CompletionBody
from fleetward_engine.tokenizer import Tokenizer

INLINE_CHARACTERS = 4096
"""Longer texts are encoded on a worker thread: a millisecond here delays every stream."""


@dataclass(frozen=True, slots=True)
class PromptLimits:
    """Bounds that can be checked before encoding: tokens allowed, bytes of the longest token."""

    context_tokens: int
    longest_token_bytes: int


@dataclass(frozen=True, slots=True)
class Prompt:
    """Token ids, and the text they stand for where an answer can repeat it."""

    token_ids: tuple[int, ...]
    text: str = ""


class PromptEncoder:
    """Encodes prompts; long ones one after another on its own thread."""

    def __init__(self, tokenizer: Tokenizer, limits: PromptLimits) -> None:
        self._tokenizer = tokenizer
        self._limits = limits
        self._worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="encode")

    async def prompts(self, body: ChatCompletionBody | CompletionBody) -> list[Prompt]:
        """A chat's one prompt, or those of a plain completion."""
        if isinstance(body, ChatCompletionBody):
            return [await self.chat(body)]
        return await self.completion(body)

    async def chat(self, body: ChatCompletionBody) -> Prompt:
        """The conversation through the model's chat template."""
        messages = plain_messages(body)
        size = self._check_size([message["content"] for message in messages], "messages")
        try:
            return Prompt(await self._encode(size, lambda: self._tokenizer.encode_chat(messages)))
        except ChatRefused as fault:
            raise ApiError(400, str(fault), param="messages", code="invalid_value") from fault

    async def completion(self, body: CompletionBody) -> list[Prompt]:
        """The prompts of a plain completion: texts, or token ids as they are."""
        return [await self._prompt(prompt) for prompt in body.prompts()]

    def close(self) -> None:
        """Stop the worker thread."""
        self._worker.shutdown(wait=False, cancel_futures=True)

    async def _prompt(self, prompt: str | list[int]) -> Prompt:
        if isinstance(prompt, list):
            tokens = self._check_tokens(tuple(prompt))
            data = b"".join(self._tokenizer.token_bytes(token) for token in tokens)
            return Prompt(tokens, data.decode("utf-8", "replace"))
        size = self._check_size([prompt], "prompt")
        tokens = await self._encode(size, lambda: self._tokenizer.encode(prompt))
        return Prompt(self._check_tokens(tokens), prompt)

    async def _encode(self, size: int, encode: Callable[[], list[int]]) -> tuple[int, ...]:
        if size <= INLINE_CHARACTERS:
            return tuple(encode())
        loop = asyncio.get_running_loop()
        return tuple(await loop.run_in_executor(self._worker, encode))

    def _check_size(self, texts: list[str], param: str) -> int:
        size = sum(map(len, texts))
        at_least = size // self._limits.longest_token_bytes
        if at_least > self._limits.context_tokens:
            message = (
                f"This model's maximum context length is {self._limits.context_tokens} tokens, "
                f"but {param} has at least {at_least}. Shorten it."
            )
            raise ApiError(400, message, param=param, code="context_length_exceeded")
        return size

    def _check_tokens(self, tokens: tuple[int, ...]) -> tuple[int, ...]:
        if not tokens:
            raise ApiError(400, "prompt is empty.", param="prompt", code="invalid_value")
        size = self._tokenizer.vocab_size
        if any(token >= size for token in tokens):
            message = f"prompt: this model's token ids are below {size}."
            raise ApiError(400, message, param="prompt", code="invalid_value")
        return tokens


def longest_token_bytes(tokenizer: Tokenizer) -> int:
    """Bytes of the longest token: a text of n characters has at least n / that many tokens."""
    return max(1, *(len(tokenizer.token_bytes(token)) for token in range(tokenizer.vocab_size)))
