"""Admin calls that are cut off, dribble, come late or in another version: done whole, or not."""

from __future__ import annotations

import asyncio
import json
import random
import time
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from e2e.chaos.scale import is_full, seed
from e2e.figures.record import record
from fleetward_api.admin import ADMIN_HEADER, WIRE_VERSION_HEADER, sign_admin_call
from fleetward_api.canonical import canonical_bytes
from fleetward_api.floors import Floors
from tests.support.engine_server import POD_UID, RunningEngine, pinned, push, running_engine
from tests.support.purge_orders import PROMPT, code_of, order, receipt_of

NEWER = push(7, floors=Floors(version=4, tenants={"a": 2}))
ORDER = order("a", 3)


@pytest_asyncio.fixture
async def engine(tmp_path: Path) -> AsyncIterator[RunningEngine]:
    async with running_engine(tmp_path) as running:
        yield running


def call_bytes(engine: RunningEngine, method: str, path: str, body: object) -> bytes:
    """A signed call as it goes over the wire."""
    content = canonical_bytes(body)
    header = sign_admin_call(
        method=method,
        path=path,
        body=content,
        pod_uid=POD_UID,
        key=engine.keys.operator,
        now=time.time(),
        request_id=uuid.uuid4().hex,
    )
    head = (
        f"{method} {path} HTTP/1.1\r\nhost: x\r\n{ADMIN_HEADER}: {header}\r\n"
        f"content-length: {len(content)}\r\nconnection: close\r\n\r\n"
    )
    return head.encode() + content


async def connect(engine: RunningEngine) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    assert engine.assembly.member is not None
    context = pinned(engine.assembly.member.keys.certificate_pem)
    return await asyncio.open_connection("127.0.0.1", engine.admin_port, ssl=context)


async def cut_off(engine: RunningEngine, sent: bytes) -> None:
    """Send that much and leave without a word."""
    _, writer = await connect(engine)
    writer.write(sent)
    await writer.drain()
    writer.transport.abort()
    await asyncio.gather(writer.wait_closed(), return_exceptions=True)


def in_force(engine: RunningEngine) -> dict[str, Any]:
    """Everything that a push or an order changes, with the log of what was done."""
    member = engine.assembly.member
    assert member is not None
    state: dict[str, Any] = json.loads(canonical_bytes(member.state(engine.assembly.service)))
    keys = ("bundleGeneration", "bundleDigest", "floorsVersion", "epoch", "evidenceHead")
    policy = engine.assembly.service.policy
    assert policy is not None
    return {**{key: state[key] for key in keys}, "floors": policy.floors}


CALLS = (("PUT", "/policy", NEWER), ("POST", "/purge", ORDER))


async def test_a_call_cut_off_anywhere_changes_nothing(engine: RunningEngine) -> None:
    before, changed = in_force(engine), 0
    rng = random.Random(seed())  # noqa: S311
    cuts = 0
    for method, path, body in CALLS:
        size = len(call_bytes(engine, method, path, body))
        places = range(0, size, 9) if is_full() else rng.sample(range(size), 5)
        for place in [*places, size - 1]:
            await cut_off(engine, call_bytes(engine, method, path, body)[:place])
            changed += in_force(engine) != before
            cuts += 1
    assert changed == 0
    # What was cut off is done by the same call again.
    assert (await engine.admin("PUT", "/policy", NEWER)).json()["generation"] == 7
    receipt_of(engine, await engine.admin("POST", "/purge", ORDER))
    if is_full():
        record("admin-half-applied", changed, f"{cuts} bundle pushes and purge orders cut off")


async def test_a_call_whose_answer_nobody_waits_for_is_done_and_done_once(
    engine: RunningEngine,
) -> None:
    await engine.cached_tokens(PROMPT)
    for method, path, body in CALLS:
        reader, writer = await connect(engine)
        writer.write(call_bytes(engine, method, path, body))
        await writer.drain()
        writer.close()
        await asyncio.gather(writer.wait_closed(), reader.read(), return_exceptions=True)
    acks = [(await engine.admin("PUT", "/policy", NEWER)).content for _ in range(2)]
    receipts = [(await engine.admin("POST", "/purge", ORDER)).content for _ in range(2)]
    assert acks[0] == acks[1]
    assert receipts[0] == receipts[1]
    page = (await engine.admin("GET", "/evidence?since=0")).json()
    done = [json.dumps(entry) for entry in page["records"]]
    assert sum(f'"{ORDER.purge_uid}"' in entry for entry in done) == 1
    assert sum(NEWER.bundle.digest in entry for entry in done) == 1


async def test_a_body_that_dribbles_is_taken_when_it_is_whole(engine: RunningEngine) -> None:
    before = in_force(engine)
    reader, writer = await connect(engine)
    sent = call_bytes(engine, "PUT", "/policy", NEWER)
    for start in range(0, len(sent), 64):
        assert in_force(engine) == before or start + 64 >= len(sent)
        writer.write(sent[start : start + 64])
        await writer.drain()
    answer = await reader.read()
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert in_force(engine)["bundleGeneration"] == 7
    writer.close()
    await writer.wait_closed()


async def test_an_older_bundle_is_refused_and_the_newer_one_stays(engine: RunningEngine) -> None:
    assert (await engine.admin("PUT", "/policy", NEWER)).status_code == 200
    held = in_force(engine)
    for generation in (0, 1, 6):
        older = push(generation, floors=Floors(version=9, tenants={"a": 9}))
        assert code_of(await engine.admin("PUT", "/policy", older)) == (409, "stale_generation")
        assert in_force(engine) == held
    again = await engine.admin("PUT", "/policy", NEWER)
    assert (again.status_code, again.json()["generation"]) == (200, 7)


@pytest.mark.parametrize("version", ["0", "2", "01", "one", ""])
async def test_another_wire_version_is_refused_by_header_and_told_those_spoken(
    engine: RunningEngine, version: str
) -> None:
    before = in_force(engine)
    for method, path, body in (*CALLS, ("GET", "/state", None)):
        content = b"" if body is None else canonical_bytes(body)
        headers = {WIRE_VERSION_HEADER: version}
        answer = await engine.raw_admin(method, path, content, headers)
        assert code_of(answer) == (400, "unknown_wire_version")
        assert "spoken: 1" in answer.json()["error"]["message"]
    assert in_force(engine) == before


@pytest.mark.parametrize("version", [0, 2, "1", None])
async def test_a_bundle_of_another_wire_version_is_refused(
    engine: RunningEngine, version: object
) -> None:
    before = in_force(engine)
    body = json.loads(canonical_bytes(NEWER))
    assert body["bundle"]["wireVersion"] == 1
    body["bundle"]["wireVersion"] = version
    answer = await engine.admin("PUT", "/policy", body)
    code = "unknown_wire_version" if version == 2 else "invalid_body"
    assert code_of(answer) == (400, code)
    assert "wireVersion" in answer.json()["error"]["message"]
    assert in_force(engine) == before
