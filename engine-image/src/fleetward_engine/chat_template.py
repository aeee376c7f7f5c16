"""The model's own chat template, rendered in a sandbox: a model file is not to be trusted."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import NoReturn

from jinja2 import TemplateError
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from fleetward_engine.errors import ChatRefused, ModelUnsupported

MAX_RENDERED = 1 << 24
"""A template that writes more characters than this is refused."""


class ChatTemplate:
    """A compiled template.

    Args:
        source: Jinja text from the model file.
        special_tokens: what the template may name, such as `bos_token`.

    Raises:
        ModelUnsupported: the text is no template.
    """

    def __init__(self, source: str, special_tokens: Mapping[str, str]) -> None:
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols]
        )
        environment.globals["raise_exception"] = _raise_exception
        environment.filters["tojson"] = _to_json
        try:
            self._template = environment.from_string(source)
        except TemplateError as fault:
            raise ModelUnsupported(f"the model's chat template can't be read: {fault}") from fault
        self._special_tokens = dict(special_tokens)

    def render(self, messages: Sequence[Mapping[str, str]]) -> str:
        """The prompt text, up to where the assistant's answer starts.

        Raises:
            ChatRefused: the template refuses these messages; carries its words.
        """
        try:
            text = self._template.render(
                messages=[dict(message) for message in messages],
                add_generation_prompt=True,
                **self._special_tokens,
            )
        except (TemplateError, TypeError, OverflowError) as fault:
            raise ChatRefused(f"the chat template refuses these messages: {fault}") from fault
        if len(text) > MAX_RENDERED:
            raise ChatRefused(f"the chat template wrote more than {MAX_RENDERED} characters")
        return text


def _raise_exception(message: str) -> NoReturn:
    raise TemplateError(message)


def _to_json(value: object, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)
