"""`POST /tokenize` and `POST /detokenize`: the model's tokenizer, in the shapes vLLM made usual.

What is counted here is what a request of the same content is charged.
"""

from __future__ import annotations

from dataclasses import dataclass

from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response

from fleetward_api.identity import IDENTITY_HEADER
from fleetward_api.openai import CODE_INVALID_VALUE
from fleetward_engine.server.body import parse, read_body
from fleetward_engine.server.errors import refused
from fleetward_engine.server.inference import Inference
from fleetward_engine.server.openai_models import (
    ChatCompletionBody,
    CompletionBody,
    DetokenizeBody,
    TokenizeBody,
)
from fleetward_engine.server.prompt import Prompt
from fleetward_engine.server.refusals import check_supported
from fleetward_engine.server.served_model import ServedModel


@dataclass(frozen=True, slots=True)
class Tokenization:
    """Both routes; authenticated and bounded like inference."""

    inference: Inference

    async def tokenize(self, request: HttpRequest) -> Response:
        """Text, or a conversation through the chat template, to token ids."""
        self._authenticate(request)
        body = parse(TokenizeBody, await read_body(request))
        self.inference.check_model(body.model)
        model, _ = self.inference.service.ready_parts()
        tokens = (await _encoded(body, model)).token_ids
        answer: dict[str, object] = {
            "count": len(tokens),
            "max_model_len": model.limits.context_tokens,
            "tokens": tokens,
        }
        if body.return_token_strs:
            answer["token_strs"] = [
                _shown(model, token).decode("utf-8", "replace") for token in tokens
            ]
        return JSONResponse(answer)

    async def detokenize(self, request: HttpRequest) -> Response:
        """Token ids to text; control tokens are spelled out."""
        self._authenticate(request)
        body = parse(DetokenizeBody, await read_body(request))
        self.inference.check_model(body.model)
        model, _ = self.inference.service.ready_parts()
        size = model.limits.vocab_size
        if any(token >= size for token in body.tokens):
            message = f"tokens: this model's token ids are below {size}."
            raise refused("tokens", message, code=CODE_INVALID_VALUE)
        data = b"".join(_shown(model, token) for token in body.tokens)
        return JSONResponse({"prompt": data.decode("utf-8", "replace")})

    def _authenticate(self, request: HttpRequest) -> None:
        self.inference.authenticator.authenticate(request.headers.get(IDENTITY_HEADER))


async def _encoded(body: TokenizeBody, model: ServedModel) -> Prompt:
    if (body.prompt is None) == (body.messages is None):
        message = "Give either prompt or messages."
        raise refused("prompt", message, code=CODE_INVALID_VALUE)
    if body.add_special_tokens is False:
        raise refused("add_special_tokens", "Only add_special_tokens=true is supported.")
    if body.add_generation_prompt is False:
        raise refused("add_generation_prompt", "Only add_generation_prompt=true is supported.")
    if body.messages is None:
        whole = CompletionBody(model=body.model, prompt=body.prompt or "")
        return (await model.encoder.completion(whole))[0]
    chat = ChatCompletionBody(model=body.model, messages=body.messages, tools=body.tools)
    check_supported(chat)
    return await model.encoder.chat(chat)


def _shown(model: ServedModel, token: int) -> bytes:
    tokenizer = model.tokenizer
    return tokenizer.token_bytes(token) or tokenizer.token_name(token).encode()
