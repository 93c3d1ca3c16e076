"""The default search with and without its learned member; names only, so that no agent is read for them."""

from __future__ import annotations

from pathlib import Path

_FIRST, _OTHERS = "backtracking", "eqsat(rounds=2;extraction=greedy-dag)+mcts"
#: The members of the default search without the one that learned.
DEFAULT = f"{_FIRST}+{_OTHERS}"
#: Graphs of a first turn: as the default has it, and long ones.
SHORT, LONG = 60, 300


def with_chains(file: Path | None = None) -> str:
    """The default search; ``file``: by that policy of chains instead of the one that ships."""
    told = "" if file is None else f";checkpoint={file}"
    return f"mixed:slice={SHORT},members={_FIRST}+levin(lead=1{told})+{_OTHERS}"
