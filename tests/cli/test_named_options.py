"""A sentence that names an option is shown by verbs that have it: nobody is sent to one that is refused."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from rlflow.cli import main
from tests.cli.commands import commands_of
from tests.test_doc_commands import fault

ROOT = Path(__file__).resolve().parents[2]
_OPTION = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]*")
#: A whole command, which may be of another verb; its options are that verb's.
_COMMAND = re.compile(r"rlflow ((?:[a-z]+ )[^`;,.]*--[^`;,.]*)")
COMMANDS = dict(commands_of(main))
FILES = sorted(path for path in (ROOT / "rlflow").rglob("*.py") if _OPTION.search(path.read_text(encoding="utf-8")))
#: Who shows the sentences of a file outside the command line, by option where they differ. A new sentence that names an
#: option is put here after a look at who calls it.
SHOWN_BY: dict[str, dict[str, str]] = {
    "agents/rlflow/config.py": {"": "train worldmodel"},
    "cli/__init__.py": {"--help": "optimize"},
    "cli/common.py": {
        "--dim": "optimize, shrink, verify",
        "--shape": "optimize, verify",
        "--egraph-out": "optimize, search run",
        "--search": "optimize, search run",
        "--help": "optimize",
    },
    "cli/json_option.py": {"": "inspect, optimize, verify, rules prove"},
    "cli/rules/shared.py": {"": "rules prove"},
    "comparison/comparing.py": {"": "compare"},
    "crew/workers.py": {"": "compare, tune, train xrlflow, rules generate"},
    "equivalence/feeds.py": {
        "--dim": "bench, compare, cost calibrate, optimize, place, run, search run, shrink, simplify, split, tune, "
        "verify",
        "--input-data": "bench, optimize, place, run, shrink, simplify, split, tune, verify",
    },
    "equivalence/sizes.py": {
        "--dim": "bench, optimize, place, run, shrink, simplify, split, tune, verify",
        "--input-data": "bench, optimize, place, run, shrink, simplify, split, tune, verify",
        "--shape": "optimize, verify",
    },
    "options.py": {"": "optimize"},
    "pipeline/allowances.py": {"": "optimize"},
    "pipeline/checking.py": {"": "optimize"},
    "pipeline/ends.py": {"": "optimize"},
    "pipeline/kernel_planning.py": {"": "optimize"},
    "pipeline/kernel_wishes.py": {"": "optimize"},
    "pipeline/searching.py": {"": "optimize"},
    "pipeline/shrinking.py": {"": "shrink"},
    "price/whole.py": {"": "compare, optimize, search run"},
    "race/verdicts.py": {"--gate-seconds": "optimize, tune", "--budget": "optimize, tune", "--fresh": "optimize"},
    "report/page.py": {"": "optimize"},
    "report/shrunk.py": {"": "shrink"},
    "report/tables.py": {"": "optimize"},
    "rulesets.py": {"": "optimize"},
    "search/earlier.py": {"": "optimize"},
    "splitting/serving.py": {"": "run"},
    "synthesis/generate/generator.py": {"": "rules generate"},
    "synthesis/generate/work_folder.py": {"": "rules generate"},
    "synthesis/pool.py": {"": "rules generate, rules prove, rules repair"},
    "tuned.py": {"": "tune"},
}
#: Whose options are another program's.
OTHERS = {"crew/ray_node.py"}


def name_of(path: Path) -> str:
    return path.relative_to(ROOT / "rlflow").as_posix()


def texts(path: Path) -> Iterator[str]:
    """The texts of a file, values in them as ``{}``, without the docstrings of modules and classes, and of functions
    that are no verbs: these nobody is shown.
    """
    tree = ast.parse(path.read_text(encoding="utf-8"))
    hidden = set()
    for node in ast.walk(tree):
        verb = isinstance(node, ast.FunctionDef) and node.decorator_list
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and not verb:
            first = node.body[0] if node.body else None
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                hidden.add(first.value)
        if isinstance(node, ast.JoinedStr):
            hidden.update(one for one in ast.walk(node) if isinstance(one, ast.Constant))
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(one.value if isinstance(one, ast.Constant) else "{}" for one in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in hidden:
            yield " ".join(node.value.split())


def options_of(names: str) -> list[tuple[str, set[str]]]:
    """The options of verbs whose names are separated by commas."""
    found = []
    for name in names.split(", "):
        known = {flag for one in COMMANDS[name].params for flag in (*one.opts, *one.secondary_opts)}
        found.append((name, {*known, "--help"}))
    return found


def faults_of(path: Path) -> list[str]:
    """What a file's sentences promise, and a verb that shows them lacks."""
    found, place = [], name_of(path)
    own = [name for name, one in COMMANDS.items() if one.callback and one.callback.__module__ == module_of(path)]
    for text in texts(path):
        if not own and _OPTION.fullmatch(text):  # it is made, or asked for, here
            continue
        for command in _COMMAND.findall(text):
            if (why := fault(command)) is not None:
                found.append(f"{place}: rlflow {command}: {why}")
        for option in _OPTION.findall(_COMMAND.sub("", text)):
            shown = SHOWN_BY.get(place, {})
            verbs = ", ".join(own) if own else shown.get(option, shown.get("", ""))
            if not verbs:
                found.append(f"{place}: nobody is known to show {option} ({text})")
            lacking = [name for name, known in options_of(verbs) if option not in known] if verbs else []
            if lacking and len(lacking) == len(own or lacking):
                found.append(f"{place}: {', '.join(lacking)} has no {option} ({text})")
    return found


def module_of(path: Path) -> str:
    return ".".join(("rlflow", *path.relative_to(ROOT / "rlflow").with_suffix("").parts))


@pytest.mark.parametrize("path", [one for one in FILES if name_of(one) not in OTHERS], ids=name_of)
def test_who_names_an_option_has_it(path: Path) -> None:
    assert not faults_of(path)


def test_the_table_has_no_idle_row() -> None:
    assert {name_of(path) for path in FILES} >= {*SHOWN_BY, *OTHERS}
    for place, rows in SHOWN_BY.items():
        plain = [_COMMAND.sub("", text) for text in texts(ROOT / "rlflow" / place)]
        named = {option for text in plain for option in _OPTION.findall(text)}
        assert named and {*rows} <= {*named, ""}, place
