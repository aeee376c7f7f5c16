"""Figures of keys and values in eight bits."""

from e2e.figures.figure import Figure

_COMMAND = "make bench-kv-quant"

FIGURES: tuple[Figure, ...] = (
    Figure(
        name="kv-int8-divergence",
        promise="int8 KV on the demo model in fp32: mean KL divergence from fp32 KV",
        comparison="<=",
        target=0.0015,
        unit="nats",
        command=_COMMAND,
    ),
    Figure(
        name="kv-int8-top1",
        promise="int8 KV on the demo model in fp32: share of equal likeliest tokens",
        comparison=">=",
        target=0.975,
        unit="",
        command=_COMMAND,
    ),
    Figure(
        name="kv-int8-capacity",
        promise="tokens that a byte of int8 KV holds over those of bf16 KV",
        comparison=">=",
        target=1.8,
        unit="x",
        command=_COMMAND,
    ),
)
