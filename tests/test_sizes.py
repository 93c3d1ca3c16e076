"""No file, class or function of the package is longer than a reader can hold."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "rlflow"
FILE, CLASS, FUNCTION = 500, 250, 60
#: What is still too long, as ``file`` or ``file:name``, and who mends it. A debt that is paid has to go from here.
DEBTS: dict[str, str] = {}


def too_long(path: Path, place: str) -> Iterator[tuple[str, str]]:
    """Each part of a file that is too long: its name, and a sentence."""
    text = path.read_text(encoding="utf-8")
    if (lines := len(text.splitlines())) > FILE:
        yield place, f"rlflow/{place} has {lines} lines; expected at most {FILE}"
    for node in ast.walk(ast.parse(text, str(path))):
        if not isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        kind, most = ("class", CLASS) if isinstance(node, ast.ClassDef) else ("function", FUNCTION)
        assert node.end_lineno is not None
        lines = node.end_lineno - node.lineno + 1
        if lines > most:
            where = f"rlflow/{place}:{node.lineno}: the {kind} {node.name}"
            yield f"{place}:{node.name}", f"{where} has {lines} lines; expected at most {most}"


def test_nothing_is_too_long() -> None:
    files = sorted(PACKAGE.rglob("*.py"))
    assert len(files) > 100, "the package was not found"
    found = dict(one for path in files for one in too_long(path, path.relative_to(PACKAGE).as_posix()))
    fresh = [sentence for name, sentence in found.items() if name not in DEBTS]
    assert not fresh, "\n" + "\n".join(fresh)
    paid = sorted(set(DEBTS) - set(found))
    assert not paid, f"these are short enough now; take them out of DEBTS: {', '.join(paid)}"


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("x = 1\n" * FILE, []),
        ("x = 1\n" * (FILE + 1), ["a.py"]),
        ("def f():\n" + "    x = 1\n" * (FUNCTION - 1), []),
        ("def f():\n" + "    x = 1\n" * FUNCTION, ["a.py:f"]),
        ("class C:\n    async def f(self):\n" + "        x = 1\n" * FUNCTION, ["a.py:f"]),
        ("class C:\n" + "    x = 1\n" * CLASS, ["a.py:C"]),
    ],
)
def test_the_test_itself(text: str, names: list[str], tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    path.write_text(text, encoding="utf-8")
    assert [name for name, _ in too_long(path, "a.py")] == names
