"""Figures of isolation, lifetimes and deletion, on one engine."""

from e2e.figures.figure import Comparison, Figure

COMMAND = "make bench-isolation"


def _figure(name: str, promise: str, comparison: Comparison, target: float, unit: str) -> Figure:
    return Figure(name, promise, comparison, target, unit, COMMAND)


FIGURES: tuple[Figure, ...] = (
    *(
        figure
        for tier in ("device", "host")
        for figure in (
            _figure(
                f"timing-cross-auc-{tier}",
                f"a classifier on times to a first token, {tier}: another's prefix, or nobody's",
                "<=",
                0.55,
                "AUC",
            ),
            _figure(
                f"timing-own-auc-{tier}",
                f"the same of one's own prefix, cached in {tier} memory or not",
                ">=",
                0.95,
                "AUC",
            ),
        )
    ),
    _figure(
        "kv-outlives-ttl",
        "KV past its idle or max TTL: its bytes are gone, in an idle engine too, within",
        "<=",
        1,
        "s",
    ),
    _figure("kv-answers-late", "prompts asked again past their TTL: found", "==", 0, "prompts"),
    _figure(
        "purge-memory-residue",
        "after a purge: pieces of the tenant's KV and token ids in the whole process's memory",
        "==",
        0,
        "pieces",
    ),
    _figure("purge-p99", "10,000 blocks purged beside decodes, receipt included: p99", "<", 1, "s"),
    _figure(
        "content-influence",
        "10,000 paired prompts: answers that another tenant's prompts changed, or its cache served",
        "==",
        0,
        "pairs",
    ),
    _figure(
        "never-saw-differences",
        "random histories after a purge, beside an engine that never saw the tenant: differ",
        "==",
        0,
        "histories",
    ),
)
