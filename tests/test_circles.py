"""No circles among the files of the package: who imports whom, directly or from inside a function, has no way back.

Imports under ``if TYPE_CHECKING`` do not count: they open nothing when the program runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.test_layers import PACKAGE, imports_of

#: The lazy front opens what it offers by name, when it is asked.
FRONT = "rlflow"
#: Circles that are there still, by their files; each is a debt. Take out what is gone.
CIRCLES: set[tuple[str, ...]] = set()


def module_of(path: Path, root: Path) -> str:
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(("rlflow", *(parts[:-1] if parts[-1] == "__init__" else parts)))


def graph_of(root: Path) -> dict[str, set[str]]:
    """Module -> the modules of the package that it imports; a name from a module is an import of that module."""
    files = {module_of(path, root): path for path in sorted(root.rglob("*.py"))}
    graph: dict[str, set[str]] = {name: set() for name in files}
    for name, path in files.items():
        for found in imports_of(path, root):
            base, _, _ = found.module.rpartition(".")
            target = found.module if found.module in files else base
            if target in files and target not in (name, FRONT) and not found.only_types:
                graph[name].add(target)
    return graph


def circles(graph: Mapping[str, set[str]]) -> Iterator[tuple[str, ...]]:
    """The strongly connected components of more than one module (Kosaraju), each sorted."""
    backward: dict[str, set[str]] = {name: set() for name in graph}
    for name, targets in graph.items():
        for target in targets:
            backward[target].add(name)
    seen: set[str] = set()
    for root in reversed(finished(graph)):
        found = reached(backward, root, seen)
        seen |= found
        if len(found) > 1:
            yield tuple(sorted(found))


def finished(graph: Mapping[str, set[str]]) -> list[str]:
    """Modules in the order in which a depth-first walk leaves them."""
    order: list[str] = []
    seen: set[str] = set()
    for root in sorted(graph):
        pending = [(root, False)]
        while pending:
            name, leaving = pending.pop()
            if leaving:
                order.append(name)
            elif name not in seen:
                seen.add(name)
                pending.append((name, True))
                pending.extend((target, False) for target in sorted(graph[name]) if target not in seen)
    return order


def reached(graph: Mapping[str, set[str]], root: str, without: set[str]) -> set[str]:
    found: set[str] = set()
    pending = [root]
    while pending:
        name = pending.pop()
        if name not in found and name not in without:
            found.add(name)
            pending.extend(graph[name])
    return found


def test_there_are_no_circles_but_those_that_are_named() -> None:
    graph = graph_of(PACKAGE)
    assert len(graph) > 100, "the package was not found"
    assert set(circles(graph)) == CIRCLES


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"a": "from rlflow import b", "b": "import rlflow.a"}, ["a b"]),
        ({"a": "from rlflow.b import x", "b": "def f():\n    from rlflow.a import y"}, ["a b"]),
        ({"a": "from rlflow.b import x", "b": "if TYPE_CHECKING:\n    from rlflow.a import y"}, []),
        ({"a": "from rlflow.b import x", "b": "from rlflow.c import y", "c": ""}, []),
        ({"a": "from . import b", "b": "from .c import y", "c": "from rlflow import a", "d": "import rlflow.a"}, ["a b c"]),  # noqa: E501
    ],
)  # fmt: skip
def test_the_test_itself(files: dict[str, str], expected: list[str], tmp_path: Path) -> None:
    for name, text in files.items():
        (tmp_path / f"{name}.py").write_text(text, encoding="utf-8")
    found = [" ".join(module.removeprefix("rlflow.") for module in circle) for circle in circles(graph_of(tmp_path))]
    assert found == expected
