"""One request's output side: from a sampled token to text, and to the reason it ends."""

from __future__ import annotations

import hashlib

from fleetward_engine.detokenizer import Detokenizer
from fleetward_engine.errors import GrammarFailed
from fleetward_engine.model_runner import Sampled, SampleRow, ScoreRow
from fleetward_engine.outputs import FinishReason, RequestOutput, TokenLogprobs
from fleetward_engine.sequence import Sequence
from fleetward_engine.tokenizer import Tokenizer

NAN_LOGITS = "the model's logits for this request are not finite; nothing of it was cached"


class Generation:
    """A sequence with its text so far."""

    def __init__(self, sequence: Sequence, tokenizer: Tokenizer) -> None:
        self.sequence = sequence
        params = sequence.request.sampling
        self._text = Detokenizer(tokenizer, params.stop)
        self._stop_ids = frozenset(params.stop_token_ids)
        if not params.ignore_eos:
            self._stop_ids |= tokenizer.eos_token_ids
        grammar = sequence.request.grammar
        self._grammar = None if grammar is None else grammar.start()
        self._fault: str | None = None
        self._scores: list[TokenLogprobs] = []
        self._seed = params.seed if params.seed is not None else _seed_of(self.request_id)

    @property
    def request_id(self) -> str:
        """The request's id."""
        return self.sequence.request.request_id

    def sample_row(self, row: int) -> SampleRow:
        """What the runner needs to choose the next token of the step's row."""
        request = self.sequence.request
        params = request.sampling
        index = self.sequence.num_output_tokens
        return SampleRow(
            row=row,
            params=params,
            seed=self._seed,
            choice=request.choice,
            index=index,
            prompt_token_ids=request.prompt_token_ids if params.has_penalties else (),
            output_token_ids=self.sequence.output_token_ids if params.has_penalties else (),
            banned_token_ids=self._stop_ids if index < params.min_tokens else frozenset(),
            allowed=self._allowed(),
        )

    def score_row(self, row: int, *, num_tokens: int) -> ScoreRow | None:
        """What the runner needs to tell how likely the prompt is, of this step's tokens of the row.

        None where nothing is asked for or left: what a preempted request recomputes was told.
        """
        request = self.sequence.request
        top, prompt = request.sampling.prompt_logprobs, request.prompt_token_ids
        start, first = self.sequence.num_computed, len(self._scores)
        end = min(start + num_tokens, len(prompt) - 1)
        if top is None or first >= end:
            return None
        return ScoreRow(row, skip=first - start, targets=prompt[first + 1 : end + 1], top=top)

    def take_scores(self, scores: tuple[TokenLogprobs, ...]) -> None:
        """Keep what the runner found of a `score_row`."""
        self._scores.extend(scores)

    def advance(self, sampled: Sampled) -> RequestOutput:
        """Append the sampled token; a missing one ends the request as failed."""
        if sampled.token_id is None:
            return self.close("error", error=NAN_LOGITS)
        token_id = sampled.token_id
        self.sequence.token_ids.append(token_id)
        ended = token_id in self._stop_ids
        whole = not ended and self._follow(token_id)
        if self._fault is not None:
            return self.close("error", error=self._fault, refused=True)
        text = "" if ended else self._text.feed(token_id)
        reason: FinishReason | None = None
        if ended or whole or self._text.stopped:
            reason = "stop"
        elif self.sequence.num_output_tokens >= self.sequence.request.sampling.max_tokens:
            reason = "length"
        if reason is not None:
            text += self._text.finish()
        logprobs = () if sampled.logprobs is None else (sampled.logprobs,)
        first = self.sequence.num_output_tokens == 1
        scores = tuple(self._scores) if first else ()
        return self._output((token_id,), text, reason, logprobs=logprobs, scores=scores)

    def close(
        self, reason: FinishReason, *, error: str | None = None, refused: bool = False
    ) -> RequestOutput:
        """End without another token; text still held back is shown."""
        return self._output((), self._text.finish(), reason, error=error, refused=refused)

    def _allowed(self) -> bytes | None:
        """What the grammar allows next; its failure is told once the step is over."""
        if self._grammar is None or self._fault is not None:
            return None
        try:
            return self._grammar.allowed()
        except GrammarFailed as fault:
            self._fault = str(fault)
            return None

    def _follow(self, token_id: int) -> bool:
        """Take the token; True when it makes the text whole."""
        if self._grammar is None or self._fault is not None:
            return False
        try:
            self._grammar.advance(token_id)
        except GrammarFailed as fault:
            self._fault = str(fault)
        return self._grammar.finished

    def _output(
        self,
        token_ids: tuple[int, ...],
        text: str,
        reason: FinishReason | None,
        *,
        error: str | None = None,
        refused: bool = False,
        logprobs: tuple[TokenLogprobs, ...] = (),
        scores: tuple[TokenLogprobs, ...] = (),
    ) -> RequestOutput:
        return RequestOutput(
            request_id=self.request_id,
            new_token_ids=token_ids,
            text_delta=text,
            finish_reason=reason,
            cached_tokens=self.sequence.cached_tokens or 0,
            prompt_tokens=self.sequence.num_prompt_tokens,
            completion_tokens=self.sequence.num_output_tokens,
            queue_seconds=self.sequence.queue_seconds,
            error=error,
            refused=refused,
            logprobs=logprobs,
            prompt_logprobs=scores,
        )


def _seed_of(request_id: str) -> int:
    # Ids are unique, so unseeded requests draw different numbers without a source of randomness.
    digest = hashlib.sha256(request_id.encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:8], "little")
