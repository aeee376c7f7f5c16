"""`fleetward chat`: one question, its answer as it comes, and what of the prompt was cached."""

from __future__ import annotations

import dataclasses
import sys
from typing import Annotated

import typer

from fleetward_cli.errors import CliError
from fleetward_cli.gateway import ChatAnswer, ChatRequest, Endpoint, stream_chat
from fleetward_cli.output import Format, FormatOption, print_json


def chat(
    message: Annotated[str, typer.Argument(help="what to ask; - reads it from stdin")],
    *,
    url: Annotated[
        str, typer.Option("--url", envvar="FLEETWARD_URL", help="the gateway's base URL")
    ] = "",
    key: Annotated[
        str,
        typer.Option(
            "--key",
            envvar=["FLEETWARD_KEY", "FLEETWARD_KEY_A"],
            help="an API key of a tenant",
            show_envvar=True,
        ),
    ] = "",
    model: Annotated[
        str, typer.Option("--model", envvar="FLEETWARD_MODEL", help="the served model's name")
    ] = "",
    system: Annotated[str, typer.Option("--system", help="a system message before it")] = "",
    max_tokens: Annotated[
        int, typer.Option("--max-tokens", min=1, help="longest answer in tokens")
    ] = 256,
    temperature: Annotated[
        float | None,
        typer.Option("--temperature", min=0.0, max=2.0, help="0: always the likeliest"),
    ] = None,
    output: FormatOption = Format.TEXT,
) -> None:
    """Ask a served model through the gateway, and see how much of the prompt was cached."""
    endpoint = Endpoint(
        url=required(url, "--url", "FLEETWARD_URL"), key=required(key, "--key", "FLEETWARD_KEY")
    )
    if not (endpoint.key.isascii() and endpoint.key.isprintable()):
        raise CliError("the API key holds characters that no header can carry: check --key")
    request = ChatRequest(
        model=required(model, "--model", "FLEETWARD_MODEL"),
        messages=build_messages(sys.stdin.read() if message == "-" else message, system=system),
        max_tokens=max_tokens,
        temperature=temperature,
    )
    show = output is Format.TEXT
    answer = stream_chat(endpoint, request, on_text=write_now if show else discard)
    if show:
        typer.echo()
        typer.echo(describe(answer), err=True)
    else:
        print_json(dataclasses.asdict(answer))


def required(value: str, option: str, variable: str) -> str:
    """The value, or a refusal that says how to give it."""
    if not value:
        raise CliError(
            f"{option} is missing: give it, or set {variable} "
            "(after `make up`, `source .local/env` sets all of them)"
        )
    return value


def build_messages(message: str, *, system: str) -> list[dict[str, str]]:
    """The conversation so far."""
    if not message.strip():
        raise CliError("the message is empty: say what to ask")
    try:
        f"{message}{system}".encode()
    except UnicodeEncodeError as error:
        raise CliError("the message is not UTF-8 text: convert it first") from error
    first = [{"role": "system", "content": system}] if system else []
    return [*first, {"role": "user", "content": message}]


def write_now(text: str) -> None:
    """Show a piece of the answer at once."""
    typer.echo(text, nl=False)


def discard(_: str) -> None:
    """The pieces stand together in the JSON."""


def describe(answer: ChatAnswer) -> str:
    """The line below an answer."""
    return (
        f"[{answer.prompt_tokens} prompt tokens, {answer.cached_tokens} of them cached · "
        f"{answer.completion_tokens} tokens answered · first after "
        f"{answer.first_token_seconds:.2f} s, all after {answer.total_seconds:.2f} s · "
        f"{answer.finish_reason}]"
    )
