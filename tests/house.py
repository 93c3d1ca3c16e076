"""The house in figures, one column a commit: the longest parts, circles, exceptions, lines.

    python tests/house.py b2cde10 HEAD

A Markdown table. Each commit is read from git into a folder that goes again; the measures are those of the tests
(`test_sizes.py`, `native/test_sizes.py`, `test_circles.py`) as they are here, whatever the commit's own were.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, os.fspath(ROOT))

from tests.native.test_sizes import blocks  # noqa: E402
from tests.test_circles import circles, graph_of  # noqa: E402

Longest = tuple[int, str]


def python_parts(root: Path, kinds: tuple[type[ast.AST], ...]) -> Iterator[Longest]:
    """Lines and name of each class or function of the package."""
    for path in (root / "rlflow").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, kinds):
                yield node.end_lineno - node.lineno + 1, f"`{node.name}` in {path.name}"  # type: ignore[attr-defined]


def native_parts(root: Path, kind: str) -> Iterator[Longest]:
    for path in native(root):
        for one in blocks(path.read_text(encoding="utf-8")):
            if one.kind == kind:
                yield one.lines, path.name


def native(root: Path) -> list[Path]:
    """C++ that is not a test."""
    return [path for path in (root / "cext").rglob("*") if path.suffix in (".cc", ".h") and "tests" not in path.parts]


def files(paths: Iterable[Path]) -> Iterator[Longest]:
    for path in paths:
        yield len(path.read_text(encoding="utf-8").splitlines()), path.name


def longest(found: Iterable[Longest]) -> str:
    lines, name = max(found)
    return f"{lines} ({name})"


def lines(paths: Iterable[Path]) -> str:
    return f"{sum(count for count, _ in files(paths)):,}"


def sideways(root: Path) -> str:
    """Entries of the table that allows imports within a layer."""
    tree = ast.parse((root / "tests" / "test_layers.py").read_text(encoding="utf-8"))
    tables = [
        node.value
        for node in tree.body
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and "SIDEWAYS" in ast.unparse(node).split("=")[0]
    ]
    return str(len(ast.literal_eval(tables[0]))) if tables and tables[0] is not None else "no table"


def circles_of(root: Path) -> str:
    found = sorted(circles(graph_of(root / "rlflow")), key=len)
    return f"{len(found)} (the largest of {len(found[-1])} files)" if found else "0"


FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
ROWS: dict[str, Callable[[Path], str]] = {
    "longest file, Python": lambda root: longest(files((root / "rlflow").rglob("*.py"))),
    "longest class, Python": lambda root: longest(python_parts(root, (ast.ClassDef,))),
    "longest function, Python": lambda root: longest(python_parts(root, FUNCTIONS)),
    "longest file, C++": lambda root: longest(files(native(root))),
    "longest class, C++": lambda root: longest(native_parts(root, "class")),
    "longest function, C++": lambda root: longest(native_parts(root, "function")),
    "circles of files": circles_of,
    "exceptions to the layers": sideways,
    "files, Python": lambda root: str(len(list((root / "rlflow").rglob("*.py")))),
    "lines, Python": lambda root: lines((root / "rlflow").rglob("*.py")),
    "lines, C++": lambda root: lines(native(root)),
    "lines, Cython": lambda root: lines(path for end in ("pyx", "pxd", "pxi") for path in root.rglob(f"*.{end}")),
    "lines of tests, Python": lambda root: lines((root / "tests").rglob("*.py")),
    "lines of tests, C++": lambda root: lines((root / "cext" / "tests").rglob("*.*")),
}


def unpacked(commit: str, folder: Path) -> Path:
    """The files of a commit."""
    target = folder / commit.replace("/", "-")
    archive = folder / f"{target.name}.tar"
    subprocess.run(["git", "archive", "-o", os.fspath(archive), commit], cwd=ROOT, check=True)
    with tarfile.open(archive) as tar:
        tar.extractall(target, filter="data") if hasattr(tarfile, "data_filter") else tar.extractall(target)
    return target


def table(commits: list[str], folder: Path) -> Iterator[str]:
    roots = [unpacked(commit, folder) for commit in commits]
    yield "| | " + " | ".join(commits) + " |"
    yield "|---" * (len(commits) + 1) + "|"
    for name, measure in ROWS.items():
        yield f"| {name} | " + " | ".join(measure(root) for root in roots) + " |"


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="rlflow-house-") as scratch:
        print("\n".join(table(sys.argv[1:] or ["HEAD"], Path(scratch))))
