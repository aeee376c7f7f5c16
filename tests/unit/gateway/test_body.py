"""Request bodies: one unambiguous JSON object with a model, in bounded time and memory."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetward_gateway.problem import Problem
from fleetward_gateway.proxy.asgi import ClientGone, RequestHead
from fleetward_gateway.proxy.body import (
    MAX_DEPTH,
    BodyBudget,
    HeldBody,
    check_head,
    read_asked,
    receive_body,
)

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4)
    ),
    max_leaves=20,
)


@given(
    st.dictionaries(st.text(max_size=6), json_values, max_size=5), st.text(min_size=1, max_size=256)
)
def test_any_object_with_a_model_is_read(value: dict[str, Any], model: str) -> None:
    assert read_asked(json.dumps({**value, "model": model}).encode()).model == model


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused_with_400(body: bytes) -> None:
    try:
        answer = read_asked(body).model
    except Problem as problem:
        answer = str(json.loads(problem.encoded())["error"]["code"])
        status = problem.status
    else:
        status = 200
    assert (status, bool(answer)) in {(200, True), (400, True)}


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"", "empty"),
        (b" " * 1_000_000, "empty"),
        (b"[]", "JSON object"),
        (b'"model"', "JSON object"),
        (b"{}", "Name the model"),
        (b'{"model":null}', "must be a string"),
        (b'{"model":""}', "must be a string"),
        (b'{"model":["m"]}', "must be a string"),
        (b'{"model":"' + b"m" * 257 + b'"}', "must be a string"),
        (b'{"model":"m"', "not valid JSON"),
        (b'{"model":"m"} {}', "not valid JSON"),
        (b'\xef\xbb\xbf{"model":"m"}', "not valid JSON"),
        (b'{"model":"m","model":"n"}', "'model' stands twice"),
        (b'{"model":"m","a":{"x":1,"x":1}}', "'x' stands twice"),
        (
            b"{" + b",".join(b'"%x":0' % n for n in range(60_000)) + b',"ea5f":0}',
            "'ea5f' stands",
        ),
        (b'{"model":"m","x":NaN}', "NaN is not"),
        (b'{"model":"m","x":-Infinity}', "-Infinity is not"),
        (b'{"model":"\xff"}', "not UTF-8: byte 10"),
        ('{"model":"m"}'.encode("utf-16"), "not UTF-8"),
        (b'{"model":"m","x":' + b"9" * 5000 + b"}", "too many digits"),
        (b'{"model":"m","x":' + b"[" * 50_000 + b"]" * 50_000 + b"}", "nested deeper"),
        (b'{"model":"m","x":' + b"[" * MAX_DEPTH + b"]" * MAX_DEPTH + b"}", "nested deeper"),
        (b'{"model":"m","x":' + b'{"a":' * 70 + b"1" + b"}" * 70 + b"}", "nested deeper"),
    ],
)
def test_what_two_readers_could_take_differently_is_refused(body: bytes, says: str) -> None:
    with pytest.raises(Problem, match=says) as caught:
        read_asked(body)
    assert caught.value.status == 400


def test_nesting_up_to_the_limit_and_many_flat_brackets_pass() -> None:
    inner = MAX_DEPTH - 1
    assert read_asked(b'{"model":"m","x":' + b"[" * inner + b"]" * inner + b"}").model == "m"
    assert read_asked(b'{"model":"m","x":[' + b"[],{}," * 1000 + b"[]]}").model == "m"


def head(**headers: str) -> RequestHead:
    raw = [(k.replace("_", "-").encode(), v.encode()) for k, v in headers.items()]
    return RequestHead({"headers": raw, "path": "/"})


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"content_type": "application/json"}, None),
        ({"content_type": "Application/JSON; charset=UTF-8"}, None),
        ({"content_type": 'application/json; charset="utf-8"'}, None),
        ({"content_type": "application/json", "content_encoding": "identity"}, None),
        ({"content_type": "application/json", "content_length": "100"}, None),
        ({}, 415),
        ({"content_type": "text/plain"}, 415),
        ({"content_type": "application/json; charset=latin-1"}, 415),
        ({"content_type": "application/json", "content_encoding": "gzip"}, 415),
        ({"content_type": "application/json", "content_length": "101"}, 413),
        ({"content_type": "application/json", "content_length": "9" * 40}, 413),
    ],
)
def test_heads_are_judged_before_bodies(headers: dict[str, str], status: int | None) -> None:
    if status is None:
        check_head(head(**headers), limit=100)
        return
    with pytest.raises(Problem) as caught:
        check_head(head(**headers), limit=100)
    assert caught.value.status == status


async def receiving(pieces: list[bytes], held: HeldBody, *, gone: bool = False) -> None:
    messages: list[dict[str, Any]] = [
        {"type": "http.request", "body": piece, "more_body": True} for piece in pieces
    ]
    last = {"type": "http.disconnect"} if gone else {"type": "http.request", "body": b""}
    queue = iter([*messages, last])

    async def receive() -> Any:
        return next(queue)

    await receive_body(receive, held, limit=10, within_s=5)


async def test_bodies_are_counted_against_the_budget_until_released() -> None:
    budget = BodyBudget(15)
    first, second = HeldBody(budget), HeldBody(budget)
    await receiving([b"abc", b"defgh"], first)
    assert first.join() == b"abcdefgh"
    with pytest.raises(Problem) as caught:
        await receiving([b"12345", b"678"], second)
    assert (caught.value.status, caught.value.retry_after_s) == (503, 1)
    second.release()
    assert budget.held == 8
    first.release()
    first.release()
    assert budget.held == 0


async def test_a_body_beyond_the_limit_is_413_and_a_lost_client_is_gone() -> None:
    held = HeldBody(BodyBudget(1000))
    with pytest.raises(Problem) as caught:
        await receiving([b"123456", b"78901"], held)
    assert caught.value.status == 413
    with pytest.raises(ClientGone):
        await receiving([b"1"], HeldBody(BodyBudget(1000)), gone=True)


async def test_a_body_that_does_not_come_is_408() -> None:
    async def receive() -> Any:
        await asyncio.sleep(60)

    with pytest.raises(Problem) as caught:
        await receive_body(receive, HeldBody(BodyBudget(10)), limit=10, within_s=0.01)
    assert caught.value.status == 408


def test_a_doubled_header_matches_nothing() -> None:
    raw = [(b"content-type", b"application/json")] * 2
    with pytest.raises(Problem):
        check_head(RequestHead({"headers": raw, "path": "/"}), limit=10)
