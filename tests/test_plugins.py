"""What other packages add by entry points: operators, a strategy, a cost model and a runtime, each in fresh processes,
through the command line and the conformance suites that ship; and what is broken, which stops nothing else.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import TensorProto, helper

from rlflow import registry, search
from rlflow.errors import UsageError

ROOT = Path(__file__).resolve().parents[1]
MODULE = '''
import time
from dataclasses import dataclass
from typing import ClassVar

from rlflow.frontends import evaluate
from rlflow.price.analytic import AnalyticCost
from rlflow.runtime import LoadedModel, Runtime
from rlflow.search import StopReason, StrategyBase


@dataclass(frozen=True)
class Lazy(StrategyBase):
    """Takes the first rewrite that gains, a few times. ``steps``: how often."""

    steps: int = 100
    name: ClassVar[str] = "lazy-of-elsewhere"

    def search(self, problem, rng):
        node = problem.root()
        for _ in range(self.steps):
            table = problem.moves(node)
            better = [k for k in range(len(table)) if table.cost[k] < node.cost]
            if not better:
                return StopReason.CONVERGED
            node = problem.open(node, table.index[better[0]])
        return StopReason.EXHAUSTED


class Doubled(AnalyticCost):
    """A roofline with twice the overhead a region. ``dims``: values of symbolic dimensions."""

    name = "doubled-of-elsewhere"

    def __init__(self, *, overhead_us: float = 10.0, **options) -> None:
        super().__init__(overhead_us=overhead_us, **options)


class Fixed(Runtime):
    """Computes with the reference, and takes two milliseconds an operator."""

    name = "fixed"
    title = "The runtime of fixed latency"
    on_processor = False  # it sleeps, which takes no processor time
    sets_threads = False

    def open(self, source, options):
        return Session(source, options)

    def describe(self, provider):
        return self.identity("1.0", provider, device="a stop-watch", clock_state="")


class Session:
    load_seconds = 0.0

    def __init__(self, source, options):
        self.options, self.model = options, LoadedModel(source, "fixed")
        self.io = self.model.io
        graph = self.model.graph
        self.seconds = 0.002 * sum(
            graph.op(node) != "Input" and not graph.is_const(node) for node in graph.order()
        )

    def run(self, feeds, outputs=None):
        found = dict(zip(self.model.output_names, evaluate(self.model.graph, self.model.feeds(feeds),
                                                           self.model.constants), strict=True))
        return found if outputs is None else {name: found[name] for name in outputs}

    def runner(self, feeds):
        self.model.feeds(feeds)
        return lambda: time.sleep(self.seconds)
'''
POINTS = {
    "rlflow.strategies": {"lazy-of-elsewhere": "elsewhere_rlflow_test:Lazy"},
    "rlflow.costs": {"doubled-of-elsewhere": "elsewhere_rlflow_test:Doubled"},
    "rlflow.runtimes": {"fixed": "elsewhere_rlflow_test:Fixed"},
}


def distribution(folder: Path, points: dict[str, dict[str, str]] | str, name: str = "elsewhere") -> Path:
    """A distribution that offers something, as pip would install it."""
    (folder / "elsewhere_rlflow_test.py").write_text(MODULE)
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    if not isinstance(points, str):
        groups = [f"[{group}]\n" + "".join(f"{k} = {v}\n" for k, v in ones.items()) for group, ones in points.items()]
        points = "\n".join(groups)
    (info / "entry_points.txt").write_text(points)
    return folder


def started(folder: Path, *arguments: str | os.PathLike[str], code: str | None = None) -> subprocess.CompletedProcess:
    """``rlflow ARGUMENTS``, or a program, in a fresh process that finds the distribution."""
    path = os.pathsep.join([str(folder), str(ROOT)])
    environment = {**os.environ, "PYTHONPATH": path, "RLFLOW_CACHE": str(folder / "cache"), "COLUMNS": "200"}
    command = [sys.executable, "-c", code or "from rlflow.cli import main; main()", *map(str, arguments)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=250, check=False)


def model(folder: Path) -> Path:
    """Two transposes that undo each other, and a relu: two operators too many."""
    nodes = [
        helper.make_node("Transpose", ["x"], ["a"], perm=[1, 0]),
        helper.make_node("Transpose", ["a"], ["b"], perm=[1, 0]),
        helper.make_node("Relu", ["b"], ["y"]),
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4, 8]) for name in ("x", "y")]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:])
    path = folder / "m.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


class TestWhatIsAdded:
    def test_a_strategy_runs_from_the_command_line(self, tmp_path: Path) -> None:
        done = started(distribution(tmp_path, POINTS), "search", "run", model(tmp_path), "--search",
                       "lazy-of-elsewhere:steps=5", "--budget", "50x", "--json", tmp_path / "r.json")  # fmt: skip
        assert done.returncode == 0, done.stderr
        found = json.loads((tmp_path / "r.json").read_text())
        assert found["strategy"] == "lazy-of-elsewhere:steps=5"
        assert found["cost_after_ms"] < found["cost_before_ms"]

    def test_a_strategy_passes_the_suite_that_ships(self, tmp_path: Path) -> None:
        code = "from rlflow.testing import TINY, check_strategy; check_strategy('lazy-of-elsewhere', TINY[:2])"
        done = started(distribution(tmp_path, POINTS), code=code)
        assert done.returncode == 0, done.stderr

    def test_a_cost_model_runs_from_the_command_line(self, tmp_path: Path) -> None:
        distribution(tmp_path, POINTS)
        costs = []
        for spec in ("doubled-of-elsewhere", "doubled-of-elsewhere:overhead_us=40"):
            done = started(tmp_path, "search", "run", model(tmp_path), "--cost", spec, "--budget", "9x", "--json",
                           tmp_path / "r.json")  # fmt: skip
            assert done.returncode == 0, done.stderr
            costs.append(json.loads((tmp_path / "r.json").read_text())["cost_before_ms"])
        assert costs[1] > costs[0]

    def test_a_cost_model_passes_the_suite_that_ships(self, tmp_path: Path) -> None:
        code = (
            "from rlflow.price import make; from rlflow.testing import check_cost_model; "
            "check_cost_model(lambda: make('doubled-of-elsewhere'))"
        )
        done = started(distribution(tmp_path, POINTS), code=code)
        assert done.returncode == 0, done.stderr

    def test_a_runtime_is_one_file_and_one_entry(self, tmp_path: Path) -> None:
        """The result is checked where the plug-in runs it; no clock is asked."""
        found = self.optimized(tmp_path, "--cost", "analytic", "--budget", "20s")
        assert found["improved"], found
        assert [node.op_type for node in onnx.load(tmp_path / "o.onnx").graph.node] == ["Relu"]

    @pytest.mark.slow
    @pytest.mark.clock
    def test_a_runtime_decides_by_its_clock(self, tmp_path: Path) -> None:
        """Three operators take six milliseconds there, and one takes two."""
        how = ("--cost", "end-to-end:seconds=0.3", "--budget", "60s", "--gate-seconds", "40")
        found = self.optimized(tmp_path, *how)
        assert found["speedup"] * (found["cleanup_speedup"] or 1.0) > 1.8, found

    @pytest.mark.slow
    @pytest.mark.clock
    def test_a_runtime_is_a_cost_model_by_its_own_name(self, tmp_path: Path) -> None:
        """Its regions are timed there: three operators of two milliseconds each, then one."""
        path = model(distribution(tmp_path, POINTS))
        done = started(tmp_path, "search", "run", path, "--cost", "fixed", "--json", tmp_path / "r.json")
        assert done.returncode == 0, done.stderr
        found = json.loads((tmp_path / "r.json").read_text())
        assert found["cost_after_ms"] > 1.9  # a sleep may take longer, and on a busy machine does
        assert found["cost_before_ms"] > 2 * found["cost_after_ms"]

    def test_a_runtime_passes_the_suite_that_ships(self, tmp_path: Path) -> None:
        code = "from rlflow.testing import check_runtime; check_runtime('fixed')"
        done = started(distribution(tmp_path, POINTS), code=code)
        assert done.returncode == 0, done.stderr

    def test_all_are_listed_and_none_is_opened_for_its_name(self, tmp_path: Path) -> None:
        code = (
            "import sys; from rlflow import price, search; from rlflow.runtime import RUNTIMES; "
            "names = [*search.names(), *RUNTIMES.names()]; opened = 'elsewhere_rlflow_test' in sys.modules; "
            "print(*names, *price.names()); sys.exit(opened)"  # a runtime says whether it is a cost model, too
        )
        done = started(distribution(tmp_path, POINTS), code=code)
        assert done.returncode == 0, done.stderr
        assert all(name in done.stdout for ones in POINTS.values() for name in ones)
        listed = started(tmp_path, "info")
        assert listed.returncode == 0, listed.stderr
        for line in ("search lazy-of-elsewhere", "cost model doubled-of-elsewhere", "runtime fixed"):
            assert line in listed.stdout

    def optimized(self, folder: Path, *how: str) -> dict[str, Any]:
        """The report of ``rlflow optimize`` with the runtime of fixed latency."""
        report = folder / "r.json"
        where = (model(distribution(folder, POINTS)), folder / "o.onnx", "--json", report)
        done = started(folder, "optimize", *where, "--runtime", "fixed", *how)
        assert done.returncode == 0, done.stderr
        found = json.loads(report.read_text())
        assert (found["runtime"]["name"], found["runtime"]["version"]) == ("fixed", "1.0")
        return found


BROKEN = {
    "rlflow.strategies": {"absent": "no_such_module_anywhere:X", "other": "elsewhere_rlflow_test:Lazy",
                          "lazy-of-elsewhere": "elsewhere_rlflow_test:Lazy"},
    "rlflow.costs": {"lost": "elsewhere_rlflow_test:Missing"},
    "rlflow.runtimes": {"none": "elsewhere_rlflow_test:Session", "fixed": "elsewhere_rlflow_test:Fixed"},
}  # fmt: skip


OPERATORS = '''
import numpy as np
from rlflow import ops

def add():
    ops.register("Softcap", lambda x: np.tanh(x), domain="elsewhere", flags=["zero_preserving", "monotone"])

def fail():
    raise OSError("no such table")
'''


class TestOperators:
    CODE = (
        "from rlflow.graph import Graph; graph = Graph.parse('x: f32[2,3] = input\\ny = Softcap(x)\\nreturn y'); "
        "from rlflow.ops import op_row; print(graph.dtype(graph.outputs()[0]), op_row('Softcap')['flags'])"
    )

    def test_they_are_in_the_table_before_anything_reads_it(self, tmp_path: Path) -> None:
        points = {"rlflow.operators": {"mine": "my_operators:add"}}
        (distribution(tmp_path, points) / "my_operators.py").write_text(OPERATORS)
        done = started(tmp_path, code=self.CODE)
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith("1 [")
        assert "zero_preserving" in done.stdout
        assert done.stderr == ""

    def test_what_is_broken_stops_nothing_else(self, tmp_path: Path) -> None:
        points = {"rlflow.operators": {"bad": "my_operators:fail", "mine": "my_operators:add"}}
        (distribution(tmp_path, points) / "my_operators.py").write_text(OPERATORS)
        done = started(tmp_path, code=self.CODE)
        assert done.returncode == 0, done.stderr
        assert done.stderr.count("\n") == 1
        assert "'bad' are at my_operators:fail, and cannot be registered (OSError: no such table)" in done.stderr


class TestWhatIsBroken:
    @pytest.mark.parametrize(
        ("arguments", "says"),
        [
            (["search", "run", "m.onnx", "--search", "absent"], "'absent' is at no_such_module_anywhere:X, and cannot"),
            (["search", "run", "m.onnx", "--search", "other"], "calls itself 'lazy-of-elsewhere'"),
            (["search", "run", "m.onnx", "--search", "lazy-of-elsewher"], "Did you mean lazy-of-elsewhere?"),
            (["search", "run", "m.onnx", "--cost", "lost"], "'lost' is at elsewhere_rlflow_test:Missing, and cannot"),
            (["optimize", "m.onnx", "--runtime", "none"], "is not a class of runtimes"),
            (["optimize", "m.onnx", "--runtime", "fixd"], "There is no runtime 'fixd'. Did you mean fixed?"),
            (["optimize", "m.onnx", "--runtime", "fixed", "--provider", "cuda"], "has no execution providers"),
        ],
    )
    def test_who_asks_for_it_gets_a_sentence(self, tmp_path: Path, arguments: list[str], says: str) -> None:
        path = model(distribution(tmp_path, BROKEN))
        done = started(tmp_path, *(str(path) if word == "m.onnx" else word for word in arguments))
        assert done.returncode in (1, 2)
        assert done.stderr.startswith("rlflow: error: ")
        assert says in done.stderr
        assert done.stderr.count("\n") == 1

    def test_the_others_are_listed_with_one_warning_each(self, tmp_path: Path) -> None:
        done = started(distribution(tmp_path, BROKEN), "info")
        assert done.returncode == 0, done.stderr
        assert "search lazy-of-elsewhere" in done.stdout
        assert "runtime fixed" in done.stdout
        warnings = done.stderr.strip().splitlines()
        assert sorted(name for name in ("'absent'", "'other'", "'lost'", "'none'") for line in warnings if name in line
                      and "is left out" in line) == ["'absent'", "'lost'", "'none'", "'other'"]  # fmt: skip
        assert len(warnings) == 4

    @pytest.mark.parametrize("damage", ["[rlflow.strategies]\nno sign of equality\n", "[rlflow.strategies]\nx = :\n"])
    def test_a_damaged_file_hides_nothing_else(self, tmp_path: Path, damage: str) -> None:
        distribution(tmp_path, POINTS)
        distribution(tmp_path, damage, name="damaged")
        done = started(tmp_path, "search", "list")
        assert done.returncode == 0, done.stderr
        assert "lazy-of-elsewhere: Takes the first rewrite" in done.stdout
        assert "greedy: " in done.stdout
        assert len(done.stderr.strip().splitlines()) == 1, done.stderr


def test_our_own_entries_win(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    distribution(tmp_path, {"rlflow.strategies": {"xrlflow": "elsewhere_rlflow_test:Lazy"}})
    monkeypatch.syspath_prepend(str(tmp_path))
    assert registry.entry_points("rlflow.strategies") == {"xrlflow": "elsewhere_rlflow_test:Lazy"}
    assert search.strategy_class("xrlflow").__module__ == "rlflow.agents.xrlflow.strategy"


def test_the_agents_are_offered_without_being_opened() -> None:
    code = (
        "import sys; from rlflow import search; names = search.names(); "
        "sys.exit(not {'rlflow', 'xrlflow', 'xrlflow-mcts'} <= set(names) or 'rlflow.agents' in sys.modules)"
    )
    assert started(ROOT, code=code).returncode == 0


class TestRegistry:
    def test_an_unknown_name_is_answered_with_what_is_near_or_with_all(self) -> None:
        things: registry.Registry[type] = registry.Registry("thing", places={"alpha": "a:b", "beta": "a:c"})
        with pytest.raises(UsageError, match=r"There is no thing 'alpa'\. Did you mean alpha\?"):
            things.get("alpa")
        with pytest.raises(UsageError, match=r"There is no thing 'zzz'\. There are: alpha, beta\."):
            things.get("zzz")

    def test_a_name_is_given_once(self) -> None:
        things: registry.Registry[type] = registry.Registry("thing", places={"alpha": "builtins:int"})
        things.register("beta", str)
        things.register("beta", str)
        for name in ("alpha", "beta"):
            with pytest.raises(UsageError, match=f"a thing called '{name}' already"):
                things.register(name, float)

    def test_what_is_declared_has_defaults(self) -> None:
        things: registry.Registry[type] = registry.Registry("thing", capabilities={"real": False, "denominator": None})
        things.register("int", int)
        things.register("str", str)
        assert things.declared("int") == {"real": int.real, "denominator": int.denominator}
        assert things.declared("str") == {"real": False, "denominator": None}

    @pytest.mark.parametrize(
        ("module", "install", "says"),
        [
            ("json", "[eqsat]", None),
            ("no_such_module", "[eqsat]", "HiGHS is not installed: pip install 'rlflow[eqsat]'"),
            ("no_such_module", "highspy", "HiGHS is not installed: pip install highspy"),
        ],
    )
    def test_what_is_not_installed_is_a_sentence(self, module: str, install: str, says: str | None) -> None:
        assert registry.not_installed("HiGHS", module, install) == says
