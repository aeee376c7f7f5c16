"""`fleetward chat`."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetward_cli.gateway import AnswerReader, read_events
from tests.support.http_answers import HttpAnswers, Reply, json_reply, serving
from tests.unit.cli.conftest import Run

PATH = "/v1/chat/completions"
USAGE = {
    "prompt_tokens": 40,
    "completion_tokens": 3,
    "total_tokens": 43,
    "prompt_tokens_details": {"cached_tokens": 32},
}


def chunk(text: str | None = None, finish: str | None = None) -> dict[str, object]:
    delta = {} if text is None else {"content": text}
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}], "usage": None}


def stream(*events: object, done: bool = True) -> Reply:
    lines = [f"data: {json.dumps(event)}\n\n" for event in events]
    lines += ["data: [DONE]\n\n"] if done else []
    headers = {"Content-Type": "text/event-stream", "x-request-id": "r-1"}
    return Reply(200, "".join(lines).encode(), headers)


WHOLE = stream(
    chunk(""),
    chunk("Tides "),
    chunk("rise."),
    chunk(finish="stop"),
    {"choices": [], "usage": USAGE},
)


@pytest.fixture
def gateway() -> Iterator[HttpAnswers]:
    with serving({PATH: WHOLE}) as answers:
        yield answers


def words(gateway: HttpAnswers, *more: str) -> list[str]:
    return ["chat", "hi", "--url", gateway.url, "--key", "k1", "--model", "m", *more]


def test_the_answer_goes_to_stdout_and_the_counts_to_stderr(run: Run, gateway: HttpAnswers) -> None:
    ended = run(*words(gateway))
    assert ended.code == 0
    assert ended.out == "Tides rise.\n"
    assert "40 prompt tokens, 32 of them cached · 3 tokens answered" in ended.err
    assert "stop" in ended.err


def test_the_request_says_what_was_asked(run: Run, gateway: HttpAnswers) -> None:
    run(*words(gateway, "--system", "be brief", "--max-tokens", "7", "--temperature", "0"))
    (body,) = gateway.bodies
    assert body["messages"] == [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "hi"},
    ]
    assert (body["model"], body["max_tokens"], body["temperature"]) == ("m", 7, 0.0)
    assert body["stream_options"] == {"include_usage": True}
    assert gateway.headers[0]["Authorization"] == "Bearer k1"


def test_without_a_temperature_the_server_decides(run: Run, gateway: HttpAnswers) -> None:
    run(*words(gateway))
    assert "temperature" not in gateway.bodies[0]


def test_json_holds_text_usage_and_request_id(run: Run, gateway: HttpAnswers) -> None:
    ended = run(*words(gateway, "-o", "json"))
    answer = json.loads(ended.out)
    assert answer["text"] == "Tides rise."
    assert answer["cached_tokens"] == 32
    assert answer["request_id"] == "r-1"
    assert ended.err == ""


def test_the_environment_is_enough(
    run: Run, gateway: HttpAnswers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLEETWARD_URL", gateway.url)
    monkeypatch.setenv("FLEETWARD_KEY_A", "key-of-a")
    monkeypatch.setenv("FLEETWARD_MODEL", "m")
    assert run("chat", "hi").code == 0
    assert gateway.headers[0]["Authorization"] == "Bearer key-of-a"


@pytest.mark.parametrize("missing", ["--url", "--key", "--model"])
def test_what_is_missing_is_named(run: Run, gateway: HttpAnswers, missing: str) -> None:
    given_words = words(gateway)
    at = given_words.index(missing)
    ended = run(*given_words[:at], *given_words[at + 2 :])
    assert ended.code == 1
    assert f"{missing} is missing" in ended.err
    assert gateway.headers == []


def test_an_empty_message_is_not_sent(run: Run, gateway: HttpAnswers) -> None:
    ended = run("chat", "  ", *words(gateway)[2:])
    assert ended.code == 1
    assert "the message is empty" in ended.err
    assert gateway.headers == []


@pytest.mark.parametrize(
    ("status", "hint"),
    [(401, "check --key"), (404, "check --model"), (503, "refused with status 503")],
)
def test_a_refusal_is_told_in_the_gateways_words(
    run: Run, gateway: HttpAnswers, status: int, hint: str
) -> None:
    error = {"message": "not for you", "type": "t", "param": None, "code": "some_code"}
    gateway.replies[PATH] = json_reply({"error": error}, status)
    ended = run(*words(gateway))
    assert ended.code == 1
    assert "not for you [some_code]" in ended.err
    assert hint in ended.err


def test_a_refusal_that_is_not_json_is_told_too(run: Run, gateway: HttpAnswers) -> None:
    gateway.replies[PATH] = Reply(502, b"<html>bad gateway</html>")
    ended = run(*words(gateway))
    assert ended.code == 1
    assert "502" in ended.err


def test_an_error_inside_the_stream_fails(run: Run, gateway: HttpAnswers) -> None:
    broken = {"error": {"message": "the engine went away", "code": "upstream_failed"}}
    gateway.replies[PATH] = stream(chunk("Tides "), broken, done=False)
    ended = run(*words(gateway))
    assert ended.code == 1
    assert "the engine went away [upstream_failed]" in ended.err


def test_a_stream_that_just_ends_is_no_answer(run: Run, gateway: HttpAnswers) -> None:
    gateway.replies[PATH] = stream(chunk("Tides "), done=False)
    ended = run(*words(gateway))
    assert ended.code == 1
    assert "without a finish reason" in ended.err


def test_a_gateway_that_is_not_there_is_named(run: Run) -> None:
    ended = run("chat", "hi", "--url", "http://127.0.0.1:1", "--key", "k", "--model", "m")
    assert ended.code == 1
    assert "http://127.0.0.1:1 does not answer" in ended.err


@given(st.lists(st.text(min_size=1), min_size=1))
def test_pieces_join_to_the_text(pieces: list[str]) -> None:
    heard: list[str] = []
    reader = AnswerReader(on_text=heard.append, clock=lambda: 2.0, begin=1.0)
    for piece in pieces:
        reader.take(chunk(piece))
    reader.take(chunk(finish="length"))
    answer = reader.finish(request_id="r")
    assert answer.text == "".join(pieces) == "".join(heard)
    assert answer.first_token_seconds == 1.0


@given(st.lists(st.text(alphabet=st.characters(exclude_characters="\r\n"))))
def test_lines_that_are_no_data_are_passed_over(lines: list[str]) -> None:
    others = [line for line in lines if not line.startswith("data:")]
    framed = [*others, 'data: {"a": 1}', *others, "data: [DONE]", 'data: {"b": 2}']
    assert list(read_events(framed)) == [{"a": 1}]


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        (("--url", "http://[::1"), "is not a URL"),
        (("--url", "http://host:abc"), "is not a URL"),
        (("--key", "\u043a\u043b\u044e\u0447"), "check --key"),
        (("--key", "k\nx-other: 1"), "check --key"),
        (("--system", "\udcff"), "not UTF-8"),
    ],
)
def test_words_that_cannot_be_sent_are_refused_in_one_sentence(
    run: Run, gateway: HttpAnswers, changed: tuple[str, str], says: str
) -> None:
    ended = run(*words(gateway), *changed)
    assert ended.code == 1
    assert ended.err.startswith("error: ")
    assert says in ended.err
    assert gateway.bodies == []
