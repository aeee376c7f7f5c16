"""Signed admin calls: one call, one pod, one time."""

from __future__ import annotations

import base64
import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from fleetward_api.admin import (
    ADMIN_WINDOW_S,
    AdminErrorBody,
    MemberState,
    PurgeOrder,
    check_wire_version,
    sign_admin_call,
    verify_admin_call,
)
from fleetward_api.canonical import canonical_bytes, parse_model
from fleetward_api.errors import AdminError
from fleetward_api.keys import SigningKey
from fleetward_api.replay import ReplayGuard
from fleetward_api.scope import Scope, scope_digest

KEY = SigningKey.generate()
NOW = 1_700_000_000.75
CALL: dict[str, Any] = {"method": "POST", "path": "/purge", "body": b'{"a":1}', "pod_uid": "p1"}
HEADER = sign_admin_call(**CALL, key=KEY, now=NOW, request_id="r1")


def _verify(header: str | None, *, guard: ReplayGuard | None = None, **changes: Any) -> Any:
    facts: dict[str, Any] = {**CALL, "key": KEY.verify_key, "now": NOW, **changes}
    return verify_admin_call(header, guard=guard or ReplayGuard(ADMIN_WINDOW_S), **facts)


def _code(header: str | None, **changes: Any) -> str:
    with pytest.raises(AdminError) as caught:
        _verify(header, **changes)
    assert caught.value.status == 401
    return caught.value.code


def test_the_signed_call_is_taken_once() -> None:
    guard = ReplayGuard(ADMIN_WINDOW_S)
    assert _verify(HEADER, guard=guard).request_id == "r1"
    assert _code(HEADER, guard=guard) == "replayed"


def test_a_refused_call_does_not_use_up_its_id() -> None:
    guard = ReplayGuard(ADMIN_WINDOW_S)
    assert _code(HEADER, guard=guard, body=b"other") == "wrong_call"
    assert _verify(HEADER, guard=guard).path == "/purge"


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"method": "PUT"}, "wrong_call"),
        ({"path": "/purge?x=1"}, "wrong_call"),
        ({"body": b""}, "wrong_call"),
        ({"pod_uid": "p2"}, "wrong_pod"),
        ({"key": SigningKey.generate().verify_key}, "forged"),
        ({"now": NOW + 901}, "stale"),
        ({"now": NOW - 902}, "stale"),
        ({"now": math.nan}, "stale"),
        ({"now": math.inf}, "stale"),
    ],
)
def test_a_signature_is_for_one_call_to_one_pod_now(changes: dict[str, Any], code: str) -> None:
    assert _code(HEADER, **changes) == code


@pytest.mark.parametrize("skew", [-899, 0, 899])
def test_clocks_may_differ_by_fifteen_minutes(skew: int) -> None:
    assert _verify(HEADER, now=NOW + skew).method == "POST"


@pytest.mark.parametrize("header", [None, ""])
def test_no_header_is_missing(header: str | None) -> None:
    assert _code(header) == "missing"


@pytest.mark.parametrize(
    "header", [HEADER + "=", HEADER + "\n", " " + HEADER, "é", "AAAA", "A" * 9000, HEADER[:-1]]
)
def test_another_spelling_is_malformed(header: str) -> None:
    assert _code(header) == "malformed"


def test_every_changed_character_is_refused() -> None:
    for at, old in enumerate(HEADER):
        new = "A" if old != "A" else "B"
        assert _code(HEADER[:at] + new + HEADER[at + 1 :]) in {"malformed", "forged"}


def test_a_header_that_is_too_long_is_not_even_decoded() -> None:
    with pytest.raises(AdminError, match="too long"):
        _verify("é" * 9000)


def test_an_envelope_with_a_field_more_is_malformed() -> None:
    value = json.loads(base64.urlsafe_b64decode(HEADER + "=" * (-len(HEADER) % 4)))
    longer = canonical_bytes({**value, "note": "x"})
    assert _code(base64.urlsafe_b64encode(longer).rstrip(b"=").decode()) == "malformed"


def test_a_flood_of_calls_keeps_memory_bounded_and_the_newest_taken() -> None:
    guard = ReplayGuard(ADMIN_WINDOW_S, capacity=8)
    for n in range(40):
        header = sign_admin_call(**CALL, key=KEY, now=NOW + n, request_id=f"r{n}")
        assert _verify(header, guard=guard, now=NOW + n).request_id == f"r{n}"
        assert _code(header, guard=guard, now=NOW + n) == "replayed"
    assert guard.remembered <= 8


@given(st.text(max_size=8))
def test_only_known_wire_versions_are_spoken(text: str) -> None:
    if text == "1":
        assert check_wire_version(text) == 1
        return
    with pytest.raises(AdminError) as caught:
        check_wire_version(text)
    assert (caught.value.status, caught.value.code) == (400, "unknown_wire_version")
    assert caught.value.message.endswith("spoken: 1")


def test_a_caller_that_names_no_version_speaks_the_oldest() -> None:
    assert check_wire_version(None) == 1


def test_an_error_body() -> None:
    body = AdminErrorBody.of(AdminError(409, "stale_generation", "generation 4 is in force"))
    assert canonical_bytes(body) == (
        b'{"error":{"code":"stale_generation","message":"generation 4 is in force"}}'
    )


def test_an_order_survives_the_wire() -> None:
    scope = Scope("acme", user="u")
    order = PurgeOrder(
        purge_uid="u1",
        scope=scope.to_wire(),
        scope_digest=scope_digest(b"k" * 32, scope),
        floor=3,
        deadline_ms=60_000,
    )
    again = parse_model(PurgeOrder, canonical_bytes(order))
    assert Scope.from_wire(again.scope) == scope
    assert again == order


def test_an_order_with_an_unknown_field_is_refused_not_widened() -> None:
    # Dropping a field that narrows a purge would delete more than was asked.
    with pytest.raises(ValidationError, match="session"):
        PurgeOrder.model_validate(
            {
                "purgeUid": "u1",
                "scope": {"tenant": "acme", "session": "s"},
                "scopeDigest": "0" * 64,
                "floor": 1,
                "deadlineMs": 1,
            }
        )


def test_the_state_of_a_newer_member_can_be_read() -> None:
    state = MemberState.model_validate_json(b'{"kind":"gateway","podUid":"p","newField":[1]}')
    assert state == MemberState(kind="gateway", pod_uid="p")
