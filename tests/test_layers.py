"""The layers of the package: imports go down only, and each third party has its doors. A breach names file and line.

python tests/test_layers.py --write     renews the tables of docs/architecture.md, which are made from those below
"""

from __future__ import annotations

import ast
import functools
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "rlflow"

LAYERS: dict[str, int] = {
    "errors": 0, "plugins": 0, "protobuf_wire": 0,
    "ops": 1, "files": 1, "specs": 1, "processes": 1, "spawning": 1, "interrupts": 1, "forks": 1,
    "graph": 2, "registry": 2, "ledger": 2, "footprint": 2,
    "frontends": 3, "rewrite": 3, "nn": 3, "runtime": 3, "crew": 3,
    "zoo": 4, "synthesis": 4, "price": 4, "equivalence": 4, "kernels": 4,
    "search": 5, "race": 5, "rulesets": 5,
    "env": 6, "deployment": 6, "report": 6, "placement": 6,
    "agents": 7, "options": 7, "splitting": 7,
    "tuner": 6, "tuned": 8,
    "pipeline": 8, "optimizer": 8, "comparison": 8, "fidelity": 8, "benchmark": 8, "testing": 8,
    "cli": 9, "compat": 9, "torch": 9, "olive": 9,
    "__main__": 10,
}  # fmt: skip
#: Imports within one layer; each is a debt, and more than four are too many.
SIDEWAYS = {
    ("optimizer", "pipeline"),  # the façade, and the stages behind it
    ("runtime", "frontends"),  # runtimes that execute graphs, not files, read ONNX through the one door
}
#: What is said of a part whose name does not say it, in docs/architecture.md.
ABOUT = {
    "tuner": "tensor programs", "tuned": "models whose kernels are tuned",
    "ledger": "what one run keeps for the next", "plugins": "what is added by name",
    "forks": "work in a copy of the process", "spawning": "`multiprocessing` that is safe in any folder",
    "files": "writing without leaving halves", "specs": "options in a word", "registry": "what is known by name",
    "footprint": "how much memory a network needs while it runs, and bands of rows",
    "kernels": "what runs inside a stock ONNX Runtime",
    "rulesets": "which rules a caller means", "deployment": "what the runtime is handed",
    "placement": "decisions for all nodes at once", "splitting": "models in parts, and their workers",
    "race": "the final comparison", "crew": "who does tasks that do not depend on each other",
    "options": "what a user may choose", "pipeline": "the stages of an optimisation",
    "optimizer": "the façade", "comparison": "races of strategies", "fidelity": "prices against the clock",
    "benchmark": "models side by side by the clock",
    "compat": "the `taso` module", "torch": "PyTorch modules in, callables out", "olive": "a pass of Olive",
    "__main__": "`python -m rlflow`",
}  # fmt: skip
FREE = {"__init__", "_core", "_version"}  # the package's lazy front, and the extension, which has its own doors below

# Third party -> the places (package folders or files) that may import it.
DOORS: dict[str, set[str]] = {
    "rlflow._core": {
        "ops", "graph", "rewrite", "synthesis", "price", "search/eqsat", "runtime/cuda.py", "placement",
        "nn/native_policy.py", "footprint",
    },
    "onnx": {"frontends"},
    "onnx_ir": {"frontends"},
    "onnxscript": {"frontends"},
    "onnxslim": {"frontends"},
    "onnxruntime": {"runtime"},
    "openvino": {"runtime"},
    "torch": {
        "nn", "agents", "runtime/torch_cuda", "torch.py", "tuner/actor_critic.py", "placement/compiled_fusing.py",
        "placement/inductor_scheduling.py",
    },
    "torch_scatter": {"nn/segment.py"},
    "gymnasium": {"env"},
    "tvm": {"tuner/tvm_child.py", "tuner/tvm_sites.py"},
    "lightgbm": {"tuner/program_scores.py"},
    "z3": {"synthesis/axioms.py"},
    "highspy": {"search/eqsat", "placement"},
    "scipy": {"search/eqsat"},
    "matplotlib": {"report"},
    "click": {"cli"},
    "rich": {"cli", "report"},
    "ray": {"crew"},
    "olive": {"olive.py"},
}
#: Files that import by a name from a table of another place; each is a debt.
COMPUTED = {
    "ops/__init__.py",  # operators of other distributions
    "__init__.py",  # the lazy front: the names of _HOMES
    "registry.py",  # what the front and other distributions offer by name
}


class Import(NamedTuple):
    place: Path  # relative to the package
    line: int
    module: str  # dotted, absolute
    only_types: bool  # under `if TYPE_CHECKING:`, so it opens nothing when the program runs


def imports_of(path: Path, root: Path = PACKAGE) -> Iterator[Import]:
    """Every import of a file, wherever it stands (a lazy one inside a function is an import too)."""
    place = path.relative_to(root)
    package = ["rlflow", *place.parent.parts]
    tree = ast.parse(path.read_text(encoding="utf-8"), str(path))
    guarded = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")
        for statement in node.body
        for inner in ast.walk(statement)
    }
    for node in ast.walk(tree):
        for module in modules_of(node, package, tree):
            yield Import(place, node.lineno, module, id(node) in guarded)


def modules_of(node: ast.AST, package: list[str], tree: ast.Module) -> Iterator[str]:
    """The modules that one node opens, by whatever way: an import, an attribute of ``rlflow``, or a computed name."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        base = package[: len(package) - node.level + 1] if node.level else []
        module = ".".join([*base, *([node.module] if node.module else [])])
        for alias in node.names:  # `from rlflow import price` and `from rlflow.graph import Graph` alike
            yield "rlflow._core" if alias.name == "_core" else behind_the_front(f"{module}.{alias.name}")
    elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "rlflow":
        yield behind_the_front(f"rlflow.{node.attr}")
    elif (
        isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", "")) in DYNAMIC and node.args
    ):
        yield from (behind_the_front(name) for name in computed(node.args[0], tree))


DYNAMIC = {"import_module", "__import__"}
#: What :func:`computed` says of a name that cannot be read off the file.
UNKNOWN = "a computed name"


def computed(name: ast.expr, tree: ast.Module) -> Iterator[str]:
    """What a name may be: itself, the fixed beginning of an f-string, or the strings of the table that it is taken
    from, directly or by way of a variable.
    """
    if isinstance(name, (ast.Constant, ast.JoinedStr)):
        strings = (one.value for one in ast.walk(name) if isinstance(one, ast.Constant))
        yield str(next(strings, UNKNOWN)).rstrip(".")
        return
    assigned = [node for node in ast.walk(tree) if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value]
    names = names_in(name)
    names |= {one for node in assigned if names & targets(node) for one in names_in(node.value)}
    tables = [node.value for node in assigned if node in tree.body and targets(node) & names]
    yield from [one.value for table in tables for one in values_of(table)] or [UNKNOWN]


def names_in(expression: ast.AST) -> set[str]:
    return {one.id for one in ast.walk(expression) if isinstance(one, ast.Name)}


def targets(node: ast.Assign | ast.AnnAssign) -> set[str]:
    return {name for one in (node.targets if isinstance(node, ast.Assign) else [node.target]) for name in names_in(one)}


def values_of(table: ast.expr) -> Iterator[ast.Constant]:
    values = table.values if isinstance(table, ast.Dict) else [table]
    for value in values:
        yield from (one for one in ast.walk(value) if isinstance(one, ast.Constant) and isinstance(one.value, str))


def behind_the_front(module: str) -> str:
    """Where a name that ``rlflow/__init__.py`` offers really lives: rlflow.optimize is rlflow.optimizer.optimize."""
    homes = front()
    first, dot, rest = module.removeprefix("rlflow.").partition(".")
    return f"{homes[first]}{dot}{rest}" if module.startswith("rlflow.") and first in homes else module


@functools.cache
def front() -> dict[str, str]:
    tree = ast.parse((PACKAGE / "__init__.py").read_text(encoding="utf-8"))
    table = next(
        node.value for node in tree.body if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "_HOMES"
    )
    return {name: ".".join(home) for name, home in ast.literal_eval(table).items()}


def part(dotted_or_place: str | Path) -> str:
    if isinstance(dotted_or_place, Path):
        return dotted_or_place.parts[0].removesuffix(".py")
    return dotted_or_place.split(".")[1]


def breach(found: Import) -> str | None:
    """The sentence about an import that may not be, or None."""
    where = f"rlflow/{found.place.as_posix()}:{found.line}"
    if found.module == UNKNOWN and found.place.as_posix() not in COMPUTED:
        return f"{where}: imports a computed name; write the names into a table of this file, so that they can be read"
    for library, doors in DOORS.items():
        if found.module == library or found.module.startswith(library + "."):
            if found.only_types and not library.startswith("rlflow"):
                return None
            if any(f"{found.place.as_posix()}/".startswith(f"{door}/") for door in doors):
                return None
            return f"{where}: imports {library}, which only {', '.join(sorted(doors))} may"
    if not found.module.startswith("rlflow.") or part(found.place) in FREE or part(found.module) in FREE:
        return None
    source, target = part(found.place), part(found.module)
    is_module = target in LAYERS or (PACKAGE / target).exists() or (PACKAGE / f"{target}.py").exists()
    if source == target or not is_module:  # its own package, or a name that rlflow/__init__.py offers
        return None
    if target not in LAYERS or source not in LAYERS:
        return f"{where}: {source} or {target} has no layer; give it one in tests/test_layers.py"
    if LAYERS[target] < LAYERS[source] or (source, target) in SIDEWAYS:
        return None
    return f"{where}: {source} (layer {LAYERS[source]}) imports {target} (layer {LAYERS[target]}); imports go down only"


def layers_table() -> str:
    """The layers, highest first, in Markdown."""
    rows = []
    for layer in sorted(set(LAYERS.values()), reverse=True):
        parts = [name for name, its in LAYERS.items() if its == layer]
        rows.append(
            f"| {layer} | {', '.join(f'`{one}` ({ABOUT[one]})' if one in ABOUT else f'`{one}`' for one in parts)} |"
        )
    sideways = [f"`{source}` imports `{target}`" for source, target in sorted(SIDEWAYS)]
    return "\n".join(
        ["| Layer | Packages |", "|---|---|", *rows, "", f"Within one layer: {', '.join(sideways) or 'none'}."]
    )


def doors_table() -> str:
    """Who may import what is not ours, in Markdown."""
    rows = [f"| `{name}` | {', '.join(f'`{place}`' for place in sorted(places))} |" for name, places in DOORS.items()]
    return "\n".join(["| Library | Imported in |", "|---|---|", *rows])


TABLES = {"layers": layers_table, "doors": doors_table}
PAGE = ROOT / "docs" / "architecture.md"


def with_tables(page: str) -> str:
    """The page with its tables as they should be; each stands between two comments that name it."""
    for name, table in TABLES.items():
        start, end = f"<!-- {name}: written by make doc-tables -->\n", f"<!-- end of {name} -->"
        before, _, rest = page.partition(start)
        page = f"{before}{start}{table()}\n{end}{rest.partition(end)[2]}"
    return page


def test_the_page_on_architecture_has_these_tables() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert all(f"<!-- end of {name} -->" in page for name in TABLES)
    assert page == with_tables(page), "docs/architecture.md is out of date: run python tests/test_layers.py --write"


def test_few_imports_stay_within_a_layer() -> None:
    pairs = {
        (part(found.place), part(found.module))
        for path in PACKAGE.rglob("*.py")
        for found in imports_of(path)
        if found.module.startswith("rlflow.")
    }
    assert len(SIDEWAYS) <= 4
    assert pairs >= SIDEWAYS, f"no import needs these any more: {sorted(SIDEWAYS - pairs)}"


def test_imports_go_down_only() -> None:
    files = sorted(PACKAGE.rglob("*.py"))
    assert len(files) > 10, "the package was not found"
    breaches = [sentence for path in files for found in imports_of(path) if (sentence := breach(found))]
    assert not breaches, "\n" + "\n".join(breaches)


@pytest.mark.parametrize(
    ("place", "line", "expected"),
    [
        ("graph/text.py", "from rlflow.price import CostModel", "graph (layer 2) imports price (layer 4)"),
        ("graph/text.py", "from ..price import CostModel", "graph (layer 2) imports price (layer 4)"),
        ("price/a.py", "from rlflow import equivalence", "price (layer 4) imports equivalence (layer 4)"),
        ("price/a.py", "import onnx.helper", "imports onnx, which only frontends may"),
        ("frontends/a.py", "import onnx_ir", None),
        ("search/greedy.py", "from rlflow import _core", "imports rlflow._core"),
        ("search/eqsat/run.py", "from rlflow._core import Graph", None),
        ("cli/a.py", "import rlflow.search", None),
        ("runtime/a.py", "from rlflow.frontends import builder", None),
        ("price/a.py", "def f():\n    import torch", "imports torch"),
        ("zoo/a.py", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import onnx", None),
        ("graph/a.py", "if TYPE_CHECKING:\n    from rlflow import price", "graph (layer 2) imports price (layer 4)"),
        ("price/a.py", "from rlflow import optimize", "price (layer 4) imports optimizer (layer 8)"),
        ("price/a.py", "import rlflow\nrlflow.optimize('m.onnx')", "price (layer 4) imports optimizer (layer 8)"),
        ("price/a.py", "import rlflow\nrlflow.search", "price (layer 4) imports search (layer 5)"),
        ("price/a.py", "import importlib\nimportlib.import_module('rlflow.search')", "price (layer 4) imports search"),
        ("price/a.py", "__import__('torch')", "imports torch"),
        ("price/a.py", "T = {'a': 'rlflow.agents'}\nimport_module(T['a'])", "price (layer 4) imports agents (layer 7)"),
        ("price/a.py", "def f(name):\n    import_module(name)", "imports a computed name"),
        ("frontends/a.py", "import_module(f'rlflow.frontends.{name}')", None),
        ("search/a.py", "from rlflow.graph import _core", "imports rlflow._core"),
        ("race/a.py", "from rlflow.search import Problem", "race (layer 5) imports search (layer 5)"),
        ("search/a.py", "from rlflow.race import gate", "search (layer 5) imports race (layer 5)"),
        ("mystery/a.py", "from rlflow.price import x", "mystery or price has no layer"),
    ],
)
def test_the_test_itself(place: str, line: str, expected: str | None, tmp_path: Path) -> None:
    path = tmp_path / place
    path.parent.mkdir(parents=True)
    path.write_text(line, encoding="utf-8")
    sentences = [sentence for found in imports_of(path, tmp_path) if (sentence := breach(found))]
    if expected is None:
        assert not sentences
    else:
        assert len(sentences) == 1
        assert expected in sentences[0]


if __name__ == "__main__" and sys.argv[1:] == ["--write"]:
    PAGE.write_text(with_tables(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
