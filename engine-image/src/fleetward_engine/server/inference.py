"""The two inference routes: authenticate, read, check, encode, submit, answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from fleetward_api.identity import IDENTITY_HEADER
from fleetward_api.openai import CODE_MODEL_NOT_FOUND
from fleetward_engine.request import Request
from fleetward_engine.server.body import parse, read_body
from fleetward_engine.server.cache_context import cache_context
from fleetward_engine.server.errors import ApiError
from fleetward_engine.server.identity import Authenticator, Caller
from fleetward_engine.server.openai_models import ChatCompletionBody, CompletionBody
from fleetward_engine.server.refusals import check_supported
from fleetward_engine.server.responses import Answer, Kind
from fleetward_engine.server.sampling import sampling_params
from fleetward_engine.server.service import EngineService, LoadedModel
from fleetward_engine.server.streaming import GenerationResponse

Body = TypeVar("Body", ChatCompletionBody, CompletionBody)
Encode = Callable[[LoadedModel, Body], Awaitable[tuple[int, ...]]]


@dataclass(frozen=True, slots=True)
class Inference:
    """``POST /v1/chat/completions`` and ``POST /v1/completions``.

    ``wall`` is epoch seconds, ``new_id`` makes ids of requests.
    """

    service: EngineService
    authenticator: Authenticator
    served_model_names: tuple[str, ...]
    wall: Callable[[], float]
    new_id: Callable[[], str]

    async def chat_completions(self, request: HttpRequest) -> Response:
        """One conversation turn."""

        async def encode(model: LoadedModel, body: ChatCompletionBody) -> tuple[int, ...]:
            return await model.encoder.chat(body)

        return await self._counted(request, ChatCompletionBody, encode)

    async def completions(self, request: HttpRequest) -> Response:
        """One plain completion."""

        async def encode(model: LoadedModel, body: CompletionBody) -> tuple[int, ...]:
            return await model.encoder.completion(body)

        return await self._counted(request, CompletionBody, encode)

    async def _counted(
        self, request: HttpRequest, kind: type[Body], encode: Encode[Body]
    ) -> Response:
        try:
            return await self._answer(request, kind, encode)
        except ApiError as error:
            self.service.metrics.refused(error.code or str(error.status))
            raise

    async def _answer(
        self, request: HttpRequest, kind: type[Body], encode: Encode[Body]
    ) -> Response:
        arrival = self.service.clock()
        caller = self.authenticator.authenticate(request.headers.get(IDENTITY_HEADER))
        body = parse(kind, await read_body(request))
        self.check_model(body.model)
        check_supported(body)
        model, _ = self.service.ready_parts()
        prompt = await encode(model, body)
        inner = self._request(body, prompt, caller=caller, arrival=arrival)
        generation = self.service.submit(inner)
        return GenerationResponse(
            generation,
            self._shape(body, inner.request_id),
            stream=bool(body.stream),
            service=self.service,
        )

    def check_model(self, name: str) -> None:
        """Raise a 404 `ApiError` for a model that is not served here."""
        if name not in self.served_model_names:
            message = f"The model {name[:128]!r} does not exist here."
            raise ApiError(404, message, param="model", code=CODE_MODEL_NOT_FOUND)

    def _request(
        self,
        body: ChatCompletionBody | CompletionBody,
        prompt: tuple[int, ...],
        *,
        caller: Caller,
        arrival: float,
    ) -> Request:
        # Asked again: encoding may have taken a while, and a fence may have come in between.
        model, policy = self.service.ready_parts()
        return Request(
            request_id=self.new_id(),
            prompt_token_ids=prompt,
            sampling=sampling_params(body, prompt_tokens=len(prompt), limits=model.limits),
            cache=cache_context(caller, policy, model=model.fingerprint),
            arrival=arrival,
        )

    def _shape(self, body: ChatCompletionBody | CompletionBody, request_id: str) -> Answer:
        kind: Kind = "chat" if isinstance(body, ChatCompletionBody) else "text"
        options = body.stream_options
        return Answer(
            kind=kind,
            request_id=request_id,
            created=int(self.wall()),
            model=body.model,
            include_usage=bool(options is not None and options.include_usage),
        )
