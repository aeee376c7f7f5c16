"""The error body that OpenAI clients read."""

from __future__ import annotations

import pytest

from fleetward_api.openai import CODE_MODEL_NOT_FOUND, NOT_FOUND, error_body, error_type


def test_all_four_keys_are_always_there() -> None:
    assert error_body("no such model", NOT_FOUND, "model", CODE_MODEL_NOT_FOUND) == {
        "error": {
            "message": "no such model",
            "type": "not_found_error",
            "param": "model",
            "code": "model_not_found",
        }
    }
    assert error_body("m", "t")["error"] == {
        "message": "m",
        "type": "t",
        "param": None,
        "code": None,
    }


@pytest.mark.parametrize(
    ("status", "name"),
    [
        (400, "invalid_request_error"),
        (401, "authentication_error"),
        (403, "permission_error"),
        (404, "not_found_error"),
        (422, "invalid_request_error"),
        (429, "rate_limit_error"),
        (500, "server_error"),
        (502, "server_error"),
        (503, "overloaded_error"),
    ],
)
def test_each_status_has_its_type(status: int, name: str) -> None:
    assert error_type(status) == name
