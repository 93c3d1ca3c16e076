"""The default search with and without its learned member; names only, so that no agent is read for them."""

from __future__ import annotations

from pathlib import Path

_FIRST, _LAST = "backtracking", "eqsat(rounds=2;extraction=greedy-dag)"
#: The default search without the member that learned; in that one's place is what the default had before.
DEFAULT = f"{_FIRST}+{_LAST}+mcts"
#: Graphs of a first turn: as the default has it, and long ones.
SHORT, LONG = 60, 300


def with_chains(file: Path | None = None) -> str:
    """The default search; ``file``: by that policy of chains instead of the one that ships."""
    told = "" if file is None else f";checkpoint={file}"
    return f"mixed:slice={SHORT},members={_FIRST}+levin(lead=1{told})+{_LAST}"
