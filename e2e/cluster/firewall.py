"""The rules that the cluster's programs add to iptables, told from those that were there before.

Works on the text that ``iptables-save`` prints. Kubernetes keeps its rules in chains named
``KUBE-…``, the network plugins theirs in ``CNI-…``; other chains get jumps into those, no more.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

OWN_PREFIXES = ("KUBE-", "CNI-")
FAMILIES = {"IPv4": "iptables", "IPv6": "ip6tables"}
"""Address family to the name of its command (and the start of its save and restore commands)."""


@dataclass(frozen=True, slots=True)
class Table:
    """One table of a saved rule set: its chains, and its rules as ``-A CHAIN …`` lines."""

    chains: tuple[str, ...]
    rules: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Additions:
    """What was added to one table: whole chains, and jumps into them from other chains."""

    table: str
    chains: tuple[str, ...]
    jumps: tuple[str, ...]


def parse_rules(saved: str) -> dict[str, Table]:
    """Tables by name."""
    tables: dict[str, Table] = {}
    name, chains, rules = "", [], []  # type: str, list[str], list[str]
    for line in saved.splitlines():
        if line.startswith("*"):
            name, chains, rules = line[1:].strip(), [], []
        elif line.startswith(":"):
            chains.append(line[1:].split()[0])
        elif line.startswith("-A "):
            rules.append(line)
        elif line.startswith("COMMIT"):
            tables[name] = Table(tuple(chains), tuple(rules))
    return tables


def find_additions(now: str, *, before: str) -> list[Additions]:
    """Own chains (by prefix) that ``before`` lacks, and the jumps into them."""
    earlier = parse_rules(before)
    found = []
    for name, table in parse_rules(now).items():
        known = earlier.get(name, Table((), ()))
        chains = tuple(
            chain
            for chain in table.chains
            if chain.startswith(OWN_PREFIXES) and chain not in known.chains
        )
        own = frozenset(chains)
        jumps = tuple(
            rule for rule in table.rules if jump_target(rule) in own and rule.split()[1] not in own
        )
        if chains or jumps:
            found.append(Additions(name, chains, jumps))
    return found


def jump_target(rule: str) -> str | None:
    """The chain that a rule jumps or goes to (never one named inside a quoted comment)."""
    unquoted = re.sub(r'"(?:[^"\\]|\\.)*"', '""', rule)
    found = re.search(r" (?:-j|-g) (\S+)", unquoted)
    return found[1] if found else None


def build_undo(additions: list[Additions]) -> str:
    """Input for ``iptables-restore --noflush`` that removes the additions and nothing else."""
    lines = []
    for each in additions:
        lines.append(f"*{each.table}")
        lines += [f"-D {rule.removeprefix('-A ')}" for rule in each.jumps]
        lines += [f"-F {chain}" for chain in each.chains]
        lines += [f"-X {chain}" for chain in each.chains]
        lines.append("COMMIT")
    return "\n".join([*lines, ""]) if lines else ""


def describe(family: str, additions: list[Additions]) -> list[str]:
    """One line per addition, for people."""
    return [
        f"{family} rule: table {each.table}, {what}"
        for each in additions
        for what in (*(f"chain {chain}" for chain in each.chains), *each.jumps)
    ]
