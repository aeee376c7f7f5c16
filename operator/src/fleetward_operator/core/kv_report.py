"""Who has how much cached in a service's engines, told seldom: live numbers are not for a status.

A report is written when a tenant comes or goes, or its part of the pool moves by ten points, and
never twice within 30 s. While nothing moves, the last one stands, so an idle service is not
written. So it does while an engine that serves has not said what it holds, as after a restart of
the operator. Where no engine runs, nothing is cached, and nothing is told.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fleetward_api.admin import KvHolding as MemberHolding
from fleetward_api.admin import MemberState
from fleetward_api.resources import KvCacheStatus, KvHolding

EVERY_S = 30
POINTS = 10
MAX_HOLDINGS = 64
_MOMENT = "%Y-%m-%dT%H:%M:%SZ"


@dataclass(frozen=True, slots=True)
class _Part:
    """What one replica told of one tier."""

    holding: MemberHolding
    bytes: int
    on_host: bool


def report_kv(
    states: Iterable[MemberState],
    *,
    unread: bool,
    before: KvCacheStatus | None,
    now: dt.datetime,
) -> KvCacheStatus | None:
    """The report to have in the status; None while nothing is cached.

    Args:
        states: what the running engines last said.
        unread: whether one that serves has said nothing yet.
        before: the report as it stands in the status.
        now: in UTC.
    """
    if unread:
        return before
    known = list(states)
    if not known:
        return None
    fresh = _report(known, now)
    if before is None:
        return fresh if fresh.holdings else None
    # The clock of a leader before us may have been ahead.
    too_soon = dt.timedelta(0) <= now - _moment(before.observed_at) < _PAUSE
    if too_soon or not _has_moved(before, fresh):
        return before
    return fresh if fresh.holdings else None


_PAUSE = dt.timedelta(seconds=EVERY_S)


def _report(states: Sequence[MemberState], now: dt.datetime) -> KvCacheStatus:
    together: dict[tuple[str, str], list[_Part]] = defaultdict(list)
    for state in states:
        tiers = (
            (state.kv_holdings, state.kv_block_bytes, False),
            (state.host_kv_holdings, state.host_kv_block_bytes, True),
        )
        for holdings, size, on_host in tiers:
            for one in holdings:
                if one.blocks:
                    part = _Part(one, bytes=one.blocks * size, on_host=on_host)
                    together[one.tenant, one.retention_class].append(part)
    told = [_sum(key, parts, now) for key, parts in together.items()]
    told.sort(key=lambda one: (-_blocks(one), one.tenant, one.retention_class))
    return KvCacheStatus(
        observed_at=now.strftime(_MOMENT),
        total_blocks=sum(state.kv_blocks_total for state in states),
        total_host_blocks=sum(state.host_kv_blocks_total for state in states) or None,
        holdings=tuple(told[:MAX_HOLDINGS]),
        other_blocks=sum(map(_blocks, told[MAX_HOLDINGS:])),
    )


def _sum(key: tuple[str, str], parts: Sequence[_Part], now: dt.datetime) -> KvHolding:
    oldest = now - dt.timedelta(milliseconds=max(one.holding.oldest_age_ms for one in parts))
    device = [one for one in parts if not one.on_host]
    host = [one for one in parts if one.on_host]
    return KvHolding(
        tenant=key[0],
        retention_class=key[1],
        blocks=sum(one.holding.blocks for one in device),
        bytes=sum(one.bytes for one in device),
        host_blocks=sum(one.holding.blocks for one in host) or None,
        host_bytes=sum(one.bytes for one in host) or None,
        hits=sum(one.holding.hits for one in parts),
        oldest=oldest.strftime(_MOMENT),
    )


def _blocks(holding: KvHolding) -> int:
    return holding.blocks + (holding.host_blocks or 0)


def _has_moved(before: KvCacheStatus, after: KvCacheStatus) -> bool:
    names = [{(one.tenant, one.retention_class) for one in r.holdings} for r in (before, after)]
    if names[0] != names[1]:
        return True
    parts = [_percents(report) for report in (before, after)]
    return any(abs(parts[0][name] - parts[1][name]) >= POINTS for name in parts[0] | parts[1])


def _percents(report: KvCacheStatus) -> Counter[tuple[str, str]]:
    """Each tenant's part of each tier, in percent."""
    parts: Counter[tuple[str, str]] = Counter()
    for one in report.holdings:
        parts["device", one.tenant] += one.blocks
        parts["host", one.tenant] += one.host_blocks or 0
    wholes = {"device": report.total_blocks, "host": report.total_host_blocks or 0}
    return Counter(
        {name: blocks * 100 // max(1, wholes[name[0]]) for name, blocks in parts.items()}
    )


def _moment(text: str) -> dt.datetime:
    return dt.datetime.strptime(text, _MOMENT).replace(tzinfo=dt.UTC)
