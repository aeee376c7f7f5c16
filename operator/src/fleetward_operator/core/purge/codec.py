"""A purge's state as JSON and back: what a new leader goes on from."""

from __future__ import annotations

import dataclasses
import json

from fleetward_operator.core.purge.state import Member, Phase, PurgeState, Standing


def encode_state(state: PurgeState) -> str:
    """JSON with sorted keys, so that an equal state is an equal text."""
    return json.dumps(dataclasses.asdict(state), sort_keys=True)


def decode_state(text: str) -> PurgeState:
    """Read what `encode_state` wrote.

    Raises:
        ValueError: it is something else.
    """
    try:
        raw = json.loads(text)
        members = tuple(
            Member(**{**one, "standing": Standing(one["standing"])}) for one in raw["members"]
        )
        fields = {
            **raw,
            "phase": Phase(raw["phase"]),
            "members": members,
            "caveats": tuple(raw["caveats"]),
            "evidence_names": tuple(raw["evidence_names"]),
        }
        return PurgeState(**fields)
    except (KeyError, TypeError) as fault:
        raise ValueError(f"not the state of a purge: {fault!r}") from fault
