"""The inference routes: authenticate, read, check, encode, submit, answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from fleetward_api.identity import IDENTITY_HEADER
from fleetward_api.openai import CODE_MODEL_NOT_FOUND
from fleetward_engine.admin.tiers import host_rules
from fleetward_engine.grammar import Grammar
from fleetward_engine.request import Request
from fleetward_engine.server.body import parse, read_body
from fleetward_engine.server.cache_context import cache_context
from fleetward_engine.server.choices import Choice
from fleetward_engine.server.conversation import offered_tools
from fleetward_engine.server.errors import ApiError
from fleetward_engine.server.identity import Authenticator, Caller
from fleetward_engine.server.logprobs import PromptTrail, TokenTrail
from fleetward_engine.server.openai_models import ChatCompletionBody, CompletionBody
from fleetward_engine.server.prompt import Prompt
from fleetward_engine.server.refusals import check_supported
from fleetward_engine.server.responses import Answer, Kind, Shape
from fleetward_engine.server.responses_api.body import ResponsesBody
from fleetward_engine.server.responses_api.shape import ResponseShape
from fleetward_engine.server.responses_api.translate import as_chat, renamed
from fleetward_engine.server.retention_header import (
    RETENTION_HEADER,
    asked_ttl_ms,
    retention_header,
)
from fleetward_engine.server.sampling import sampling_params
from fleetward_engine.server.served_model import ServedModel
from fleetward_engine.server.service import EngineService
from fleetward_engine.server.streaming import GenerationResponse
from fleetward_engine.tokenizer import Tokenizer
from fleetward_engine.tool_dialect import ToolCallReader


@dataclass(frozen=True, slots=True)
class Call:
    """What was asked, and the shape of its answer, once its id and the model are known."""

    body: ChatCompletionBody | CompletionBody
    shape: Callable[[str, ServedModel], Shape]


@dataclass(frozen=True, slots=True)
class Inference:
    """``POST /v1/chat/completions``, ``/v1/completions`` and ``/v1/responses``.

    ``wall`` is epoch seconds, ``new_id`` makes ids of requests.
    """

    service: EngineService
    authenticator: Authenticator
    served_model_names: tuple[str, ...]
    wall: Callable[[], float]
    new_id: Callable[[], str]

    async def chat_completions(self, request: HttpRequest) -> Response:
        """One conversation turn."""
        return await self._counted(
            request, lambda data: self._call(parse(ChatCompletionBody, data))
        )

    async def completions(self, request: HttpRequest) -> Response:
        """Plain completions of one prompt or several."""
        return await self._counted(request, lambda data: self._call(parse(CompletionBody, data)))

    async def responses(self, request: HttpRequest) -> Response:
        """One conversation turn in the newer shape; nothing is stored."""

        def read(data: bytes) -> Call:
            body = parse(ResponsesBody, data)

            def shape(request_id: str, _model: ServedModel) -> Shape:
                return ResponseShape(body, request_id=request_id, created=int(self.wall()))

            return Call(as_chat(body), shape)

        try:
            return await self._counted(request, read)
        except ApiError as error:
            raise renamed(error) from error

    async def _counted(self, request: HttpRequest, read: Callable[[bytes], Call]) -> Response:
        try:
            return await self._answer(request, read)
        except ApiError as error:
            self.service.metrics.refused(error.code or str(error.status))
            raise

    async def _answer(self, request: HttpRequest, read: Callable[[bytes], Call]) -> Response:
        arrival = self.service.clock()
        caller = self.authenticator.authenticate(request.headers.get(IDENTITY_HEADER))
        call = read(await read_body(request))
        body = call.body
        self.check_model(body.model)
        check_supported(body)
        asked_ms = asked_ttl_ms(body)
        model, policy = self.service.ready_parts()
        prompts = await model.encoder.prompts(body)
        grammar = await model.grammars.grammar_of(body, tenant=caller.tenant)
        requests = self._requests(body, prompts, grammar, caller=caller, arrival=arrival)
        told = retention_header(
            requests[0].cache,
            caching=model.config.enable_prefix_caching,
            on_host=model.config.host_kv_cache_memory_bytes > 0
            and caller.retention_class in host_rules(policy.bundle).classes,
            asked_ms=asked_ms,
        )
        generation = self.service.submit(requests)
        return GenerationResponse(
            generation,
            call.shape(requests[0].request_id, model),
            self._choices(body, prompts, requests, model),
            stream=bool(body.stream),
            service=self.service,
            headers={RETENTION_HEADER: told},
        )

    def check_model(self, name: str) -> None:
        """Raise a 404 `ApiError` for a model that is not served here."""
        if name not in self.served_model_names:
            message = f"The model {name[:128]!r} does not exist here."
            raise ApiError(404, message, param="model", code=CODE_MODEL_NOT_FOUND)

    def _requests(
        self,
        body: ChatCompletionBody | CompletionBody,
        prompts: list[Prompt],
        grammar: Grammar | None,
        *,
        caller: Caller,
        arrival: float,
    ) -> list[Request]:
        """`n` requests a prompt; all but a prompt's first wait for that one to compute it."""
        # Asked again: encoding may have taken a while, and a fence may have come in between.
        model, policy = self.service.ready_parts()
        cache = cache_context(caller, policy, model=model.fingerprint)
        base, count = self.new_id(), body.n or 1
        requests: list[Request] = []
        for prompt in prompts:
            first = ""
            sampling = sampling_params(
                body, prompt_tokens=len(prompt.token_ids), limits=model.limits_under(policy)
            )
            for _ in range(count):
                request = Request(
                    request_id=f"{base}-{len(requests)}" if requests else base,
                    prompt_token_ids=prompt.token_ids,
                    sampling=sampling,
                    cache=cache,
                    arrival=arrival,
                    choice=len(requests),
                    fork_of=first,
                    grammar=grammar,
                    priority=caller.priority,
                    weight=caller.weight,
                    deadline=caller.deadline(arrival),
                )
                first = first or request.request_id
                requests.append(request)
        return requests

    def _choices(
        self,
        body: ChatCompletionBody | CompletionBody,
        prompts: list[Prompt],
        requests: list[Request],
        model: ServedModel,
    ) -> dict[str, Choice]:
        calls = isinstance(body, ChatCompletionBody) and bool(offered_tools(body))
        return {
            request.request_id: _choice(
                request,
                echo=_echo(body, prompts[request.choice // (body.n or 1)]),
                tokenizer=model.tokenizer,
                calls=calls,
            )
            for request in requests
        }

    def _call(self, body: ChatCompletionBody | CompletionBody) -> Call:
        kind: Kind = "chat" if isinstance(body, ChatCompletionBody) else "text"
        options = body.stream_options

        def shape(request_id: str, model: ServedModel) -> Shape:
            return Answer(
                kind=kind,
                request_id=request_id,
                created=int(self.wall()),
                model=body.model,
                tokenizer=model.tokenizer,
                include_usage=bool(options is not None and options.include_usage),
                logprobs=body.logprobs is not None and body.logprobs is not False,
                service_tier=body.service_tier,
            )

        return Call(body, shape)


def _echo(body: ChatCompletionBody | CompletionBody, prompt: Prompt) -> str:
    return prompt.text if isinstance(body, CompletionBody) and body.echo else ""


def _choice(request: Request, *, echo: str, tokenizer: Tokenizer, calls: bool) -> Choice:
    """What answers a request; `calls` whether it may call tools."""
    sampling = request.sampling
    return Choice(
        request.choice,
        counts_prompt=not request.fork_of,
        echo=echo,
        scored=None
        if sampling.prompt_logprobs is None
        else PromptTrail(tokenizer, request.prompt_token_ids, echo),
        trail=None if sampling.logprobs is None else TokenTrail(tokenizer),
        reader=ToolCallReader() if calls else None,
    )
