"""One name, one thing: no two modules and no two public classes of the package share a name, but for those granted."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1] / "rlflow"
#: Classes that share a name.
CLASSES = {
    "Session": "one for each runtime, behind one interface",
}
#: Modules that share a name.
MODULES = {
    "config": "each agent has its files",
    "strategy": "each agent has its files",
    "trained": "each agent has its files",
    "rlflow": "the package, and the agent of the paper that it is named after",
}
#: Folders whose files are named after what they open: a verb after the work that it starts.
MIRRORS = {"cli"}


def shared(names: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """The names of several things, each with the places of these; given are names with their places."""
    found: dict[str, list[str]] = defaultdict(list)
    for name, place in names:
        found[name].append(place)
    return {name: places for name, places in found.items() if len(places) > 1}


def modules() -> Iterable[tuple[str, str]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        place = path.relative_to(PACKAGE.parent)
        if place.parts[1] not in MIRRORS and path.name != "__main__.py":
            yield (path.parent.name if path.name == "__init__.py" else path.stem), place.as_posix()


def classes() -> Iterable[tuple[str, str]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                yield node.name, path.relative_to(PACKAGE.parent).as_posix()


def test_a_public_class_has_a_name_of_its_own() -> None:
    doubled = shared(classes())
    assert doubled.keys() - CLASSES.keys() == set(), doubled
    assert CLASSES.keys() - doubled.keys() == set(), "these are single now; take them out of CLASSES"


def test_a_module_has_a_name_of_its_own() -> None:
    doubled = shared(modules())
    assert doubled.keys() - MODULES.keys() == set(), doubled
    assert MODULES.keys() - doubled.keys() == set(), "these are single now; take them out of MODULES"


def test_the_test_itself() -> None:
    assert shared([("a", "x"), ("b", "x"), ("a", "y")]) == {"a": ["x", "y"]}
