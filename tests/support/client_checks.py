"""All that an official client does, to be checked against an engine and through the gateway."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

import openai
import pytest

from tests.support import client_responses, client_structure, client_surface

Check = Callable[[openai.AsyncOpenAI, str], Awaitable[None]]

CHECKS: Final[list[Check]] = [
    *client_surface.CHECKS,
    *client_structure.CHECKS,
    *client_responses.CHECKS,
]
each_check = pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
