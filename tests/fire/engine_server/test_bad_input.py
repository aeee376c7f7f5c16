"""Hostile and mistaken requests: a precise 4xx that names the field, and the engine untouched."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from fleetward_engine.server.body import field_path, parse
from fleetward_engine.server.errors import ApiError
from fleetward_engine.server.openai_models import ChatCompletionBody, CompletionBody
from fleetward_engine.server.refusals import check_supported
from fleetward_engine.server.sampling import Limits, sampling_params
from tests.support.bad_requests import refused
from tests.support.engine_server import MODEL, RunningEngine, running_engine

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningEngine]:
    async with running_engine(tmp_path_factory.mktemp("bad"), governed=False) as running:
        yield running


CASES: list[tuple[str, dict[str, Any], str | None, str]] = [
    (CHAT, {"messages": "hi"}, "messages", "invalid_value"),
    (CHAT, {"messages": []}, "messages", "invalid_value"),
    (CHAT, {"messages": None}, "messages", "invalid_value"),
    (CHAT, {"messages": [{"role": "king", "content": "x"}]}, "messages[0].role", "invalid_value"),
    (CHAT, {"messages": [{"content": "x"}]}, "messages[0].role", "missing_required_parameter"),
    (CHAT, {"messages": [{"role": "user"}]}, "messages[0].content", "invalid_value"),
    (CHAT, {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
     "messages[0].content[0]", "unsupported_parameter"),
    (CHAT, {"messages": [{"role": "tool", "content": "x"}]}, "messages[0].tool_call_id",
     "invalid_value"),
    (CHAT, {"messages": [{"role": "function", "content": "x"}]}, "messages[0]",
     "unsupported_parameter"),
    (CHAT, {"messages": [{"role": "user", "content": "x", "tool_calls": [
        {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]}]},
     "messages[0].tool_calls", "invalid_value"),
    (CHAT, {"max_tokens": -1}, "max_tokens", "invalid_value"),
    (CHAT, {"max_tokens": "5"}, "max_tokens", "invalid_value"),
    (CHAT, {"max_tokens": 1.5}, "max_tokens", "invalid_value"),
    (CHAT, {"max_tokens": 10**30}, "max_tokens", "invalid_value"),
    (CHAT, {"max_tokens": 5000}, "max_tokens", "context_length_exceeded"),
    (CHAT, {"max_completion_tokens": 5000}, "max_tokens", "context_length_exceeded"),
    (CHAT, {"max_tokens": 3, "min_tokens": 4}, "min_tokens", "invalid_value"),
    (TEXT, {"prompt": [1] * 2048}, "prompt", "context_length_exceeded"),
    (CHAT, {"n": 1_000_000}, "n", "invalid_value"),
    (TEXT, {"prompt": ["a", "b"], "n": 65}, "n", "invalid_value"),
    (TEXT, {"prompt": ["a"] * 129}, "prompt", "invalid_value"),
    (CHAT, {"n": 0}, "n", "invalid_value"),
    (CHAT, {"n": True}, "n", "invalid_value"),
    (CHAT, {"temperature": 3}, "temperature", "invalid_value"),
    (CHAT, {"temperature": "hot"}, "temperature", "invalid_value"),
    (CHAT, {"top_p": 0}, "top_p", "invalid_value"),
    (CHAT, {"seed": 2**63}, "seed", "invalid_value"),
    (CHAT, {"stop": ["a"] * 10_000}, "stop", "invalid_value"),
    (CHAT, {"stop": ""}, "stop", "invalid_value"),
    (CHAT, {"stop": [1]}, "stop[0]", "invalid_value"),
    (CHAT, {"stop_token_ids": [99_999]}, "stop_token_ids", "invalid_value"),
    (CHAT, {"logprobs": -1}, "logprobs", "invalid_value"),
    (CHAT, {"top_logprobs": 3}, "top_logprobs", "invalid_value"),
    (CHAT, {"logprobs": True, "top_logprobs": 21}, "top_logprobs", "invalid_value"),
    (CHAT, {"logit_bias": {"258": 1}}, "logit_bias", "invalid_value"),
    (CHAT, {"logit_bias": {"-1": 1}}, "logit_bias", "invalid_value"),
    (CHAT, {"logit_bias": {"1.5": 1}}, "logit_bias", "invalid_value"),
    (CHAT, {"logit_bias": {"9" * 5000: 1}}, "logit_bias", "invalid_value"),
    (CHAT, {"logit_bias": {"1": 101}}, "logit_bias", "invalid_value"),
    (CHAT, {"logit_bias": {"1": 10**30}}, "logit_bias", "invalid_value"),
    (CHAT, {"logit_bias": {"1": "5"}}, "logit_bias", "invalid_value"),
    (CHAT, {"logit_bias": {"1": True}}, "logit_bias", "invalid_value"),
    (CHAT, {"metadata": {"a": 1}}, "metadata", "invalid_value"),
    (CHAT, {"priority": 5}, "priority", "unsupported_parameter"),
    (CHAT, {"user": "u" * 1000}, "user", "invalid_value"),
    (CHAT, {"logit_bias": [1]}, "logit_bias", "invalid_value"),
    (CHAT, {"response_format": {"type": "xml"}}, "response_format.type", "invalid_value"),
    (CHAT, {"response_format": {"type": "json_schema"}}, "response_format.json_schema",
     "invalid_value"),
    (CHAT, {"response_format": {"type": "json_schema", "json_schema": {"name": "a b"}}},
     "response_format.json_schema.name", "invalid_value"),
    (CHAT, {"response_format": {"type": "json_schema", "json_schema": {
        "name": "x", "schema": {"type": "king"}}}}, "response_format", "invalid_value"),
    (CHAT, {"response_format": {"type": "json_schema", "json_schema": {
        "name": "x", "schema": {"enum": ["v" * 40_000]}}}}, "response_format", "invalid_value"),
    (CHAT, {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {
        "type": "object", "properties": {f"p{n}": {} for n in range(1200)}}}}}, None,
     "grammar_too_complex"),
    (CHAT, {"response_format": {"type": "json_object"}, "min_tokens": 2}, "min_tokens",
     "unsupported_parameter"),
    (CHAT, {"response_format": "json"}, "response_format", "invalid_value"),
    (CHAT, {"tools": [{"type": "function"}]}, "tools[0].function", "missing_required_parameter"),
    (CHAT, {"tools": [{"type": "custom", "function": {"name": "f"}}]}, "tools[0].type",
     "invalid_value"),
    (CHAT, {"tools": [{"type": "function", "function": {"name": 'f", "x'}}]},
     "tools[0].function.name", "invalid_value"),
    (CHAT, {"tools": [{"type": "function", "function": {"name": "f"}}] * 129}, "tools",
     "invalid_value"),
    (CHAT, {"tools": [{"type": "function", "function": {
        "name": "f", "strict": True, "parameters": {"not": {}}}}]}, "tools", "invalid_value"),
    (CHAT, {"tools": [{"type": "function", "function": {"name": "f"}}],
     "tool_choice": {"type": "function", "function": {"name": "g"}}}, "tool_choice",
     "invalid_value"),
    (CHAT, {"functions": [{}]}, "functions", "unsupported_parameter"),
    (CHAT, {"tool_choice": "required"}, "tool_choice", "invalid_value"),
    (CHAT, {"tool_choice": "king"}, "tool_choice", "invalid_value"),
    (CHAT, {"modalities": ["audio"]}, "modalities", "unsupported_parameter"),
    (CHAT, {"audio": {}}, "audio", "unsupported_parameter"),
    (CHAT, {"reasoning_effort": "high"}, "reasoning_effort", "unsupported_parameter"),
    (CHAT, {"store": True}, "store", "unsupported_parameter"),
    (CHAT, {"service_tier": "flex"}, "service_tier", "unsupported_parameter"),
    (CHAT, {"cache_salt": "pepper"}, "cache_salt", "unsupported_parameter"),
    (CHAT, {"stream_options": {"include_usage": True}}, "stream_options", "unsupported_parameter"),
    (CHAT, {"stream": "yes"}, "stream", "invalid_value"),
    (TEXT, {"prompt": ""}, "prompt", "invalid_value"),
    (TEXT, {"prompt": []}, "prompt", "invalid_value"),
    (TEXT, {"prompt": {"a": 1}}, "prompt", "invalid_value"),
    (TEXT, {"prompt": ["a", ""]}, "prompt", "invalid_value"),
    (TEXT, {"prompt": [[1], []]}, "prompt", "invalid_value"),
    (TEXT, {"prompt": [[1], [99_999]]}, "prompt", "invalid_value"),
    (TEXT, {"prompt": [1, 99_999]}, "prompt", "invalid_value"),
    (TEXT, {"prompt": [-1]}, "prompt[0]", "invalid_value"),
    (TEXT, {"prompt": "x", "prompt_logprobs": 0}, "prompt_logprobs", "unsupported_parameter"),
    (TEXT, {"prompt": "x", "suffix": "y"}, "suffix", "unsupported_parameter"),
    (TEXT, {"prompt": "x", "logprobs": 21}, "logprobs", "invalid_value"),
    (TEXT, {"prompt": "x", "best_of": 4}, "best_of", "unsupported_parameter"),
    (TEXT, {"prompt": "x" * 3000}, "prompt", "context_length_exceeded"),
    (TEXT, {"prompt": " " * 1_000_000}, "prompt", "context_length_exceeded"),
    (CHAT, {"messages": [{"role": "user", "content": " " * 1_000_000}]}, "messages",
     "context_length_exceeded"),
]  # fmt: skip


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(("path", "fields", "param", "code"), CASES)
async def test_a_bad_parameter_is_named(
    engine: RunningEngine, path: str, fields: dict[str, Any], param: str, code: str
) -> None:
    base: dict[str, Any] = {"model": MODEL}
    if path == CHAT:
        base["messages"] = [{"role": "user", "content": "hi"}]
    status, error = await refused(engine, path, json.dumps({**base, **fields}).encode())
    assert (status, error["param"], error["code"]) == (400, param, code)


DEEP = json.loads("[" * 300 + "]" * 300)


@pytest.mark.parametrize(
    ("kind", "field", "items"),
    [
        (CompletionBody, "prompt", [1, ""]),
        (CompletionBody, "prompt", [[""]]),
        (CompletionBody, "stop", [1]),
        (CompletionBody, "stop_token_ids", [""]),
        (ChatCompletionBody, "messages", [1]),
        (ChatCompletionBody, "modalities", [1]),
        (ChatCompletionBody, "tools", [DEEP]),
        (ChatCompletionBody, "audio", [DEEP]),
    ],
)
def test_many_mistakes_cost_no_more_than_a_few(
    kind: type[BaseModel], field: str, items: list[Any]
) -> None:
    said = {"role": "user", "content": "x"}
    body = {"model": MODEL, "prompt": "x", "messages": [said], field: items * 1000}
    assert mistakes(kind, body) <= 4
    assert (
        mistakes(ChatCompletionBody, {**body, "messages": [{**said, "content": [1] * 1000}]}) <= 8
    )


def mistakes(kind: type[BaseModel], body: dict[str, Any]) -> int:
    try:
        kind.model_validate(body)
    except ValidationError as fault:
        return fault.error_count()
    return 0


def test_a_bias_of_many_wrong_values_is_refused_by_its_name() -> None:
    body = ChatCompletionBody.model_validate(
        {
            "model": MODEL,
            "messages": [{"role": "user", "content": "x"}],
            "logit_bias": {str(number): DEEP for number in range(1000)},
        }
    )
    limits = Limits(context_tokens=100, vocab_size=2000)
    with pytest.raises(ApiError, match="the bias of token 0 is no number"):
        sampling_params(body, prompt_tokens=1, limits=limits)


@pytest.mark.asyncio(loop_scope="module")
async def test_defaults_spelled_out_and_unknown_fields_are_accepted(engine: RunningEngine) -> None:
    fields = {
        "n": 1, "logprobs": False, "logit_bias": {}, "response_format": {"type": "text"},
        "tools": [], "tool_choice": "none", "store": False, "service_tier": "auto",
        "user": "someone", "prompt_cache_key": "k", "stop": None, "seed": 7, "made_up": {"x": 1},
        "safety_identifier": "s", "metadata": {"app": "mail"}, "priority": 0, "best_of": 1,
        "messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}], "name": "n"}],
    }  # fmt: skip
    answer = await engine.chat(fields)
    assert answer.status_code == 200, answer.text


names = st.sampled_from(
    [*sorted({*ChatCompletionBody.model_fields, *CompletionBody.model_fields}), "other"]
)


scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=8),
    st.sampled_from(["user", "text", "auto", MODEL, 1, 0, -1, 10**6, 2**63]),
)


values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.sampled_from(["role", "content", "type", "text", "include_usage", "x"]), inner,
            max_size=3,
        ),
    ),
    max_leaves=6,
)  # fmt: skip


@settings(max_examples=200, deadline=None)
@given(
    fields=st.dictionaries(names, values, max_size=6),
    sane=st.booleans(),
    kind=st.sampled_from([ChatCompletionBody, CompletionBody]),
    prompt_tokens=st.integers(0, 300),
)
def test_every_body_is_either_refused_by_name_or_fits(
    fields: dict[str, Any],
    sane: bool,
    kind: type[ChatCompletionBody | CompletionBody],
    prompt_tokens: int,
) -> None:
    base: dict[str, Any] = {"model": MODEL, "messages": [{"role": "user", "content": "x"}]}
    whole = {**fields, **base, "prompt": "x"} if sane else fields
    content = json.dumps(whole).encode()
    error = refusal_of(kind, content, prompt_tokens)
    if error is not None:
        assert error.status == 400
        assert set(json.loads(error.body())["error"]) == {"message", "type", "param", "code"}


def refusal_of(
    kind: type[ChatCompletionBody | CompletionBody], content: bytes, prompt_tokens: int
) -> ApiError | None:
    try:
        body = parse(kind, content)
        check_supported(body)
        limits = Limits(context_tokens=256, vocab_size=258)
        params = sampling_params(body, prompt_tokens=prompt_tokens, limits=limits)
    except ApiError as error:
        return error
    assert prompt_tokens + params.max_tokens <= limits.context_tokens
    return None


@pytest.mark.parametrize(
    ("location", "path"),
    [
        (("messages", 3, "content", "list[ContentPart]", 0, "text"), "messages[3].content[0].text"),
        (("stop", "constrained-str"), "stop"),
        (("stop", "function-after[check(), str]"), "stop"),
        (("prompt", "list[int]", 0), "prompt[0]"),
        ((), ""),
    ],
)
def test_field_paths_read_as_people_write_them(location: tuple[int | str, ...], path: str) -> None:
    assert field_path(location) == path
