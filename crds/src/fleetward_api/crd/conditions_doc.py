"""Prints ``docs/conditions.md`` from the definitions of conditions."""

from __future__ import annotations

from typing import Final, get_args

from fleetward_api.condition_types import condition_types
from fleetward_api.resources.condition import ConditionType, KindName, Reason

_INTRODUCTION: Final = """\
# Conditions

What the operator says about each resource, and why. Every condition is there from the first write
of a status; `lastTransitionTime` moves only when the status changes, and `observedGeneration` says
which version of the spec a condition speaks of. `kubectl get` shows the reason of `Ready`,
`status.message` the whole state in one sentence. `Reconciling` and `Stalled` follow kstatus, so
that GitOps tools tell "still at work" from "somebody must act".

This page is printed from `fleetward_api.condition_types`; change that, then run `make generate`.
"""


def print_conditions() -> str:
    """The page, as Markdown."""
    kinds: tuple[KindName, ...] = get_args(KindName)
    return "\n".join([_INTRODUCTION, *(_section(kind) for kind in kinds)])


def _section(kind: KindName) -> str:
    return "\n".join([f"## {kind}\n", *(_table(each) for each in condition_types(kind))])


def _table(each: ConditionType) -> str:
    rows = [
        *_rows("True", each.when_true),
        *_rows("False", each.when_false),
        *_rows("Unknown", each.when_unknown),
    ]
    head = f"### {each.type}\n\n{each.question}\n\n| status | reason | meaning |\n|---|---|---|\n"
    return head + "\n".join(rows) + "\n"


def _rows(status: str, reasons: tuple[Reason, ...]) -> list[str]:
    return [f"| {status} | `{each.name}` | {each.meaning} |" for each in reasons]
