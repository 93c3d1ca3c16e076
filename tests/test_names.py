"""One name, one thing: no two public classes of the package share a name, but for those granted here."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1] / "rlflow"
#: Each is a debt, but for those of one interface.
GRANTED = {
    "Session": "one for each runtime, behind one interface",
    "Tensat": "the search, and the reader of its rules, each by its name in a registry",
    "Partition": "a graph in priced regions, and the search that works on parts",
    "Vocabulary": "what a network knows by name, and what the generator enumerates over",
    "Names": "names in a file, and names in a rule",
    "Pace": "of a run, and of pricing",
    "Limits": "of a search, and of an e-graph",
    "Term": "of our rules, and of others'",
    "Operator": "of TASO, and of the generator",
    "Options": "of an optimisation, and of the import of rules",
    "Outcome": "of a trial, and of the import of a rule",
    "Plan": "of what is drawn, of what is probed, and of kernels",
    "Archive": "the best of a search, and kept comparisons",
}


def test_public_classes_have_names_of_their_own() -> None:
    found: dict[str, list[str]] = defaultdict(list)
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].append(path.relative_to(PACKAGE).as_posix())
    doubled = {name: places for name, places in found.items() if len(places) > 1}
    assert doubled.keys() <= GRANTED.keys(), doubled
