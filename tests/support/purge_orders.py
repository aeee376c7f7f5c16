"""Orders of purges to an engine under test, and the receipts it gives."""

from __future__ import annotations

from typing import Any

import httpx

from fleetward_api.admin import PurgeOrder
from fleetward_api.receipt import RECEIPT_DOMAIN, Receipt
from fleetward_api.scope import Scope
from fleetward_api.signed import Signed, verify
from tests.support.engine_server import RunningEngine

PROMPT = "words enough to fill several blocks of sixteen tokens, and then a few more of them"


def order(tenant: str, floor: int, *, uid: str = "purge-1", **fields: Any) -> PurgeOrder:
    base: dict[str, Any] = {
        "purge_uid": uid,
        "scope": Scope(tenant=tenant).to_wire(),
        "scope_digest": "d" * 64,
        "floor": floor,
        "deadline_ms": 20_000,
    }
    return PurgeOrder(**{**base, **fields})


def receipt_of(engine: RunningEngine, answer: httpx.Response) -> Receipt:
    assert answer.status_code == 200, answer.text
    signed = Signed[Receipt].model_validate_json(answer.content)
    assert engine.assembly.member is not None
    key = engine.assembly.member.keys.receipt_key.verify_key
    return verify(signed, key, domain=RECEIPT_DOMAIN)


def code_of(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"]
