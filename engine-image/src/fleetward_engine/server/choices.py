"""One choice of an answer: what the engine's outputs have made of it so far."""

from __future__ import annotations

from dataclasses import dataclass

from fleetward_api.openai import CODE_GRAMMAR_LIMIT, CODE_PURGED
from fleetward_engine.outputs import RequestOutput
from fleetward_engine.server.errors import ApiError, late, server_fault, unavailable
from fleetward_engine.server.logprobs import PromptTrail, TokenEntry, TokenTrail
from fleetward_engine.tool_dialect import ToolCall, ToolCallReader


@dataclass(frozen=True, slots=True)
class Delta:
    """What one output added: text, the tokens whose text that made final, tool calls."""

    text: str
    calls: tuple[ToolCall, ...]
    entries: tuple[TokenEntry, ...]

    def __bool__(self) -> bool:
        return bool(self.text or self.entries or self.calls)


class Choice:
    """Grows by `feed`.

    Args:
        index: its number among the choices of the call.
        counts_prompt: whether it is the one of its prompt's choices whose usage counts the prompt.
        echo: the prompt's text where the answer repeats it.
        scored: set where the echoed prompt's own log-probabilities were asked for: it is then told
            with the first token, in place of at once.
        trail: set where log-probabilities were asked for.
        reader: set where tools may be called.
    """

    def __init__(
        self,
        index: int,
        *,
        counts_prompt: bool,
        echo: str = "",
        scored: PromptTrail | None = None,
        trail: TokenTrail | None = None,
        reader: ToolCallReader | None = None,
    ) -> None:
        self.index = index
        self.counts_prompt = counts_prompt
        self.echo = echo
        self.entries: list[TokenEntry] = []
        self.finish_reason: str | None = None
        self.prompt_tokens = self.cached_tokens = self.completion_tokens = 0
        self.calls: tuple[ToolCall, ...] = ()
        self.tells_echo_late = scored is not None
        self._scored = scored
        self._trail = trail
        self._reader = reader
        self._pieces: list[str] = []

    @property
    def text(self) -> str:
        """The whole text so far, without the echoed prompt."""
        return "".join(self._pieces)

    def feed(self, output: RequestOutput) -> Delta:
        """Take one output.

        Raises:
            ApiError: the request failed or was aborted.
        """
        check_output(output)
        entries = self._trail.feed(output) if self._trail else ()
        delta = Delta(*self._read(output), entries=entries)
        self._pieces.append(delta.text)
        if self._scored is not None and output.new_token_ids:
            prompt = self._scored.entries(output.prompt_logprobs)
            delta = Delta(self.echo + delta.text, delta.calls, (*prompt, *delta.entries))
            self._scored = None
        self.entries += delta.entries
        self.calls += delta.calls
        self.finish_reason = "tool_calls" if self.calls else output.finish_reason
        self.prompt_tokens, self.cached_tokens = output.prompt_tokens, output.cached_tokens
        self.completion_tokens = output.completion_tokens
        return delta

    def _read(self, output: RequestOutput) -> tuple[str, tuple[ToolCall, ...]]:
        if self._reader is None:
            return output.text_delta, ()
        text = self._reader.feed(output.text_delta)
        if output.finish_reason is None:
            return text, ()
        rest, calls = self._reader.finish()
        return text + rest, calls


def check_output(output: RequestOutput) -> None:
    """An aborted or failed request is an error for its client, never a fake ``stop``.

    Raises:
        ApiError: 400 for a schema that explodes, 500 for a failed request, 503 for an aborted one,
            504 for a late one.
    """
    if output.finish_reason == "error" and output.refused:
        message = f"The schema came to its limits within this text: {output.error}. Simplify it."
        raise ApiError(400, message, code=CODE_GRAMMAR_LIMIT)
    if output.finish_reason == "error":
        raise server_fault(output.error or "The engine failed this request.", code="engine_error")
    if output.finish_reason == "deadline":
        raise late("The request's deadline passed before its answer was complete.")
    if output.finish_reason == "abort":
        message = "The request was aborted: the cache of its scope is being deleted."
        raise unavailable(message, code=CODE_PURGED)
