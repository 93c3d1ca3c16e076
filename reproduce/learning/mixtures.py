"""The default search as the bench has it, and with a learned member; names only, so that no agent is read for them."""

from __future__ import annotations

from pathlib import Path

#: The members of the default search.
DEFAULT = "backtracking+eqsat(rounds=2;extraction=greedy-dag)+mcts"
#: Graphs of a first turn: as the default has it, and long enough for a chain to be found.
SHORT, LONG = 60, 300


def with_chains(file: Path | None = None) -> str:
    """The default search with the policy of chains as its first member (default: the one that ships)."""
    told = "" if file is None else f";checkpoint={file}"
    return f"mixed:slice={LONG},members=levin(lead=1{told})+{DEFAULT}"
