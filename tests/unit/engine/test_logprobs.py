"""Log-probabilities come with the characters they belong to, in shapes that JSON can carry."""

from __future__ import annotations

import math

import orjson
from hypothesis import given
from hypothesis import strategies as st

from fleetward_engine.detokenizer import Detokenizer
from fleetward_engine.outputs import FinishReason, RequestOutput, TokenLogprobs
from fleetward_engine.server.logprobs import (
    LOWEST,
    PromptTrail,
    TokenEntry,
    TokenTrail,
    chat_logprobs,
    text_logprobs,
)
from fleetward_engine.tokenizer import ByteTokenizer

BYTES = ByteTokenizer()


def outputs(tokens: list[int], stop: tuple[str, ...]) -> list[RequestOutput]:
    """What the engine hands out for these tokens, one a step."""
    text = Detokenizer(BYTES, stop)
    made: list[RequestOutput] = []
    for number, token in enumerate(tokens, start=1):
        ended = token == BYTES.END
        delta = "" if ended else text.feed(token)
        reason: FinishReason | None = None
        if ended or text.stopped:
            reason = "stop"
        elif number == len(tokens):
            reason = "length"
        if reason is not None:
            delta += text.finish()
        made.append(
            RequestOutput(
                request_id="r", new_token_ids=(token,), text_delta=delta, finish_reason=reason,
                cached_tokens=0, prompt_tokens=1, completion_tokens=number,
                logprobs=(TokenLogprobs(token, -1.0, ()),),
            )
        )  # fmt: skip
        if reason is not None:
            break
    return made


texts = st.text(alphabet="ab€😀é", min_size=1, max_size=12)


@given(
    text=texts,
    cut=st.integers(0, 4),
    stop=st.lists(st.text(alphabet="ab€😀", min_size=1, max_size=3), max_size=2),
    end=st.booleans(),
)
def test_tokens_so_far_cover_the_text_so_far_and_no_more(
    text: str, cut: int, stop: list[str], end: bool
) -> None:
    data = text.encode()
    tokens = list(data[: max(1, len(data) - cut)]) + ([BYTES.END] if end else [])
    trail = TokenTrail(BYTES)
    shown, covered = "", b""
    entries: list[TokenEntry] = []
    for output in outputs(tokens, tuple(stop)):
        ready = trail.feed(output)
        shown += output.text_delta
        entries += ready
        covered += b"".join(BYTES.token_bytes(entry.logprobs.token_id) for entry in ready)
        assert covered.decode("utf-8", "replace") == shown
    for entry in entries:
        assert entry.offset < len(shown) or not BYTES.token_bytes(entry.logprobs.token_id)
    assert [e.offset for e in entries] == sorted(e.offset for e in entries)


def test_a_text_that_was_cut_ends_with_tokens_that_show_nothing() -> None:
    trail = TokenTrail(BYTES)
    made = outputs([97, BYTES.TURN], ())
    assert [len(trail.feed(output)) for output in made] == [1, 1]


def test_shapes_name_marks_and_bytes_and_say_no_infinity() -> None:
    top = ((0xE2, -0.5), (0x82, -1.5), (BYTES.END, -math.inf))
    entry = TokenEntry(3, TokenLogprobs(0xE2, -0.5, top))
    chat = chat_logprobs([entry], BYTES)
    assert orjson.loads(orjson.dumps(chat)) == {
        "content": [
            {
                "token": "�",
                "logprob": -0.5,
                "bytes": [0xE2],
                "top_logprobs": [
                    {"token": "�", "logprob": -0.5, "bytes": [0xE2]},
                    {"token": "�", "logprob": -1.5, "bytes": [0x82]},
                    {"token": "<|end|>", "logprob": LOWEST, "bytes": []},
                ],
            }
        ],
        "refusal": None,
    }
    assert text_logprobs([entry], BYTES, start=10) == {
        "tokens": ["bytes:\\xe2"],
        "token_logprobs": [-0.5],
        "top_logprobs": [{"bytes:\\xe2": -0.5, "bytes:\\x82": -1.5, "<|end|>": LOWEST}],
        "text_offset": [13],
    }


@given(texts, st.integers(0, 3))
def test_an_echoed_prompt_s_tokens_lie_in_its_text_and_before_the_answer(
    text: str, more: int
) -> None:
    tokens = [*text.encode(), *[BYTES.TURN] * more]
    told = [TokenLogprobs(token, -1.0, ((token, -1.0),)) for token in tokens[1:]]
    entries = PromptTrail(BYTES, tokens, text).entries(told)
    assert [entry.logprobs.token_id for entry in entries] == tokens
    assert all(-len(text) <= entry.offset <= 0 for entry in entries)
    shape = text_logprobs(entries, BYTES, start=len(text))
    spelled = zip(shape["tokens"], shape["text_offset"], strict=True)  # type: ignore[call-overload]
    for token, offset in spelled:
        assert token.startswith(("bytes:", "<|")) or text[offset:].startswith(token)
    assert shape["token_logprobs"] == [None, *[-1.0] * (len(tokens) - 1)]
    assert shape["top_logprobs"][0] is None  # type: ignore[index]
