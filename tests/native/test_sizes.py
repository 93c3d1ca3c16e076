"""C++ and Cython stay small: files, functions and classes have bounds, and a counter of braces holds them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

CEXT = Path(__file__).resolve().parents[2] / "cext"
FILE_LINES, CLASS_LINES, FUNCTION_LINES = 500, 250, 60
SOURCES = sorted(path for path in CEXT.rglob("*") if path.suffix in {".cc", ".h", ".pyx", ".pxd", ".pxi", ".pyi"})
CPP = [path for path in SOURCES if path.suffix in {".cc", ".h"}]
CYTHON = [path for path in SOURCES if path.suffix in {".pyx", ".pxi"}]
# Files that may be longer than FILE_LINES, each with the reason.
LONGER: dict[str, str] = {}

_NO_CODE = re.compile(
    r'R"(?P<tag>\w*)\(.*?\)(?P=tag)"'  # a raw string
    r"|//[^\n]*|/\*.*?\*/"
    r'|"(?:\\.|[^"\\\n])*"'
    r"|(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])*'"  # a character; 1'000 holds a separator
    r"|^[ \t]*\#(?:\\\n|[^\n])*",  # a line for the preprocessor
    re.DOTALL | re.MULTILINE,
)
_TYPE = re.compile(r"(?:template\s*<.*>\s*)?(?:class|struct|enum|union)\b")
# What stands in front of a function's brace: its parameters, and what may follow them up to a list of initialisers.
_FUNCTION = re.compile(r"\)\s*(?:const|noexcept|override|final|mutable|->[^{}]*|:[^:{}].*|\s)*$", re.DOTALL)
_STATEMENT = re.compile(r"(?:if|for|while|switch|else|do|try|catch)\b")


class Block(NamedTuple):
    """What stands between two braces: its kind, its head, and its lines from the first of the head on."""

    kind: str
    head: str
    line: int
    lines: int


def blocks(text: str) -> Iterator[Block]:
    """Every pair of braces of a C++ text, inner ones first."""
    code = _NO_CODE.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), text)
    opened: list[tuple[int, str]] = []
    start = 0
    for at, letter in enumerate(code):
        if letter == "{":
            opened.append((start, " ".join(code[start:at].split())))
        elif letter == "}":
            begin, head = opened.pop()
            first = begin + len(code[begin:at]) - len(code[begin:at].lstrip())
            yield Block(kind_of(head), head, code.count("\n", 0, first) + 1, code.count("\n", first, at) + 1)
        if letter in "{};":
            start = at + 1
    assert not opened, "a brace is not closed"


def kind_of(head: str) -> str:
    if head.startswith(("namespace", "inline namespace", "extern")):
        return "namespace"
    head = re.sub(r"^(?:(?:public|private|protected)\s*:\s*)+", "", head)
    if _TYPE.match(head):
        return "class"
    return "function" if _FUNCTION.search(head) and not _STATEMENT.match(head) else "other"


def cython_blocks(text: str) -> Iterator[Block]:
    """Functions and classes of a Cython text, by indentation."""
    lines = text.splitlines()
    for number, line in enumerate(lines):
        found = re.match(r"( *)(?:(cdef |cpdef )?(class) |(?:def|cdef|cpdef) .*\(.*)", line)
        if not found or not (found[3] or re.match(r" *(?:def|cdef|cpdef)\b.*\(", line)):
            continue
        end = number + 1
        while end < len(lines) and (
            not lines[end].strip() or lines[end].startswith(found[1] + " ") or lines[end].startswith(found[1] + ")")
        ):
            end += 1
        while not lines[end - 1].strip():
            end -= 1
        yield Block("class" if found[3] else "function", line.strip(), number + 1, end - number)


def too_long(path: Path) -> list[str]:
    text = path.read_text(encoding="utf-8")
    found = cython_blocks(text) if path in CYTHON else blocks(text)
    bounds = {"function": FUNCTION_LINES, "class": CLASS_LINES}
    return [
        f"{path.name}:{one.line}: {one.lines} lines: {one.head[-100:]}"
        for one in found
        if one.lines > bounds.get(one.kind, one.lines)
    ]


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.relative_to(CEXT).as_posix())
def test_no_file_is_too_long(path: Path) -> None:
    lines = len(path.read_text(encoding="utf-8").splitlines())
    name = path.relative_to(CEXT).as_posix()
    assert (lines > FILE_LINES) == (name in LONGER), f"{name} has {lines} lines, the bound is {FILE_LINES}"


@pytest.mark.parametrize("path", [*CPP, *CYTHON], ids=lambda path: path.relative_to(CEXT).as_posix())
def test_no_function_or_class_is_too_long(path: Path) -> None:
    assert too_long(path) == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("int f(int x) {\n  return x;\n}\n", [("function", 1, 3)]),
        ("int f(int x)\n    const {\n}\n", [("function", 1, 3)]),
        ("auto g() -> int { return 1; }", [("function", 1, 1)]),
        ("A::A(int x)\n    : x_(x), y_(x) {\n}\n", [("function", 1, 3)]),
        ("class A : public B {\n public:\n  int f() { return 1; }\n};\n", [("function", 2, 2), ("class", 1, 4)]),
        (
            "namespace a {\nvoid f() {\n  if (x) {\n  }\n}\n}\n",
            [("other", 3, 2), ("function", 2, 4), ("namespace", 1, 6)],
        ),
        ("template <class T>\nstruct S {\n};\n", [("class", 1, 3)]),
        ("const int k[] = {1, 2};\nauto s = \"{\"; // {\nchar c = '{';\nint m = 1'000;\n", [("other", 1, 1)]),
        ('auto r = R"x({{ " )x";\n#define A {\nvoid f() {}\n', [("function", 3, 1)]),
    ],
)
def test_the_counter_of_braces(text: str, expected: list[tuple[str, int, int]]) -> None:
    assert [(one.kind, one.line, one.lines) for one in blocks(text)] == expected


def test_the_counter_of_indentation() -> None:
    text = (
        "cdef class A:\n    def f(self):\n        pass\n\n    cdef int g(\n        self,\n    ):\n        pass\n\nx = 1"
    )
    assert [(one.kind, one.line, one.lines) for one in cython_blocks(text)] == [
        ("class", 1, 8),
        ("function", 2, 2),
        ("function", 5, 4),
    ]


def test_a_function_over_the_bound_is_found() -> None:
    body = "  x();\n" * FUNCTION_LINES
    assert [one.lines for one in blocks(f"void f() {{\n{body}}}\n") if one.kind == "function"] == [FUNCTION_LINES + 2]
