"""The shipped suite over every registered cost model, and over models with one fault each."""

from __future__ import annotations

import ast
import importlib.util
import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rlflow import price
from rlflow.graph import Graph
from rlflow.price import CostModel, CostReport, FillReport
from rlflow.price.analytic import AnalyticCost
from rlflow.runtime import unavailable_reason
from rlflow.testing import check_cost_model
from rlflow.testing.cost_models import CHECKS, Make
from tests.learnt import learnt

PACKAGE = Path(price.__file__).parents[1]
_SPEC = importlib.util.spec_from_file_location("gpu_conftest", Path(__file__).parents[1] / "gpu" / "conftest.py")
assert _SPEC is not None
assert _SPEC.loader is not None
_GPU = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(_GPU)
fake_folder, fake_gpu = _GPU.fake_folder, _GPU.fake_gpu


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Make]]:
    """Makes models by name; those of one runtime share a worker, and a database of this test's own."""
    from rlflow.runtime import RUNTIMES, RuntimeOptions, Worker

    database = learnt(tmp_path_factory.mktemp("prices") / "prices.sqlite")
    with Worker(RuntimeOptions()) as worker:
        short = {"seconds": 0.2, "tolerance": 0.5, "max_noise": math.inf}
        options: dict[str, dict[str, Any]] = {
            "analytic": {},
            "onnxruntime": {"worker": worker, "database": database},
            "openvino": {"database": database},
            "cudnn": {"database": database},
            "end-to-end": {"worker": worker, **short},
        }
        of_a_runtime = {"database": database}  # another distribution's, where one is installed
        others = dict.fromkeys(RUNTIMES.names(), of_a_runtime)
        yield lambda name: lambda: price.make(name, **{**others, **options}.get(name, {}))


def registered() -> list[Any]:
    """All names, each for one worker, which learns about the machine once. OpenVINO is skipped where it is not
    installed, with its reason; cuDNN runs on the stand-in GPU."""
    reason = unavailable_reason("openvino")
    skip = {"openvino": [pytest.mark.skipif(reason is not None, reason=str(reason))]}
    return [
        pytest.param(name, marks=[pytest.mark.xdist_group(f"price-{name}"), *skip.get(name, [])])
        for name in price.names()
    ]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", registered())
def test_every_cost_model_conforms(
    name: str, check: Callable[[Make], None], made: Callable[[str], Make], request: pytest.FixtureRequest
) -> None:
    if name == "cudnn":
        request.getfixturevalue("fake_gpu")
    else:
        pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")
    check(made(name))


class Faulty(AnalyticCost):
    """A sound model, with one fault."""

    def __init__(self, fault: str) -> None:
        super().__init__()
        self.fault = fault
        self.asked = 0

    def cost(self, graph: Graph) -> CostReport:
        found = super().cost(graph)
        self.asked += 1
        if self.fault == "sum":
            return replace(found, total_ms=2 * found.total_ms)
        if self.fault == "negative":
            return replace(found, per_region=tuple(replace(row, ms=-1.0) for row in found.per_region))
        return found

    def fill(self, graphs: Any, **how: Any) -> FillReport:
        return FillReport(measured=1) if self.fault == "measures" else FillReport()

    @property
    def pricer(self) -> Any:
        return AnalyticCost().pricer if self.fault == "pricers" else super().pricer

    def bind(self, dims: Any) -> None:
        if self.fault != "sizes":
            super().bind(dims)

    def used(self) -> Any:
        return {"a": 1.0} if self.fault == "nowhere" else None

    def still_holds(self, used: Any) -> bool:
        return self.fault == "holds all"

    def notes(self) -> list[str]:
        return ["a note"] if self.fault == "notes" else []

    def available(self) -> str | None:
        return "it is not for this machine" if self.fault == "not here" else None

    def timed_regions(self) -> Any:
        return [1.0] if self.fault == "regions" else []

    def graph_time(self, digest: str) -> Any:
        return 1.0 if self.fault == "times" else None


def test_a_sound_model_passes() -> None:
    check_cost_model(lambda: Faulty("none"))


@pytest.mark.parametrize(
    ("fault", "sentence"),
    [
        ("sum", "rows make"), ("negative", "below zero"), ("measures", "a second call says"),
        ("pricers", "another pricer"), ("sizes", "was told that N is 8"), ("nowhere", "no database"),
        ("holds all", "nobody measured"), ("notes", "has notes before"), ("not here", "it is not for this machine"),
        ("regions", "timed_regions are Prices"),
        ("times", "has a time of a whole graph"),
    ],
)  # fmt: skip
def test_a_fault_is_noticed(fault: str, sentence: str) -> None:
    with pytest.raises(AssertionError, match=sentence):
        check_cost_model(lambda: Faulty(fault))


def test_a_model_without_a_price_cannot_be_made() -> None:
    class Half(CostModel):
        name = "half"

    with pytest.raises(TypeError, match="abstract"):
        Half()  # type: ignore[abstract]


# --- nobody goes round the protocol ----------------------------------------------------------------------------------


def calls(place: Path) -> Iterator[ast.Call]:
    tree = ast.parse(place.read_text(encoding="utf-8"))
    return (node for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name))


def test_no_cost_model_is_asked_by_getattr() -> None:
    """What a caller needs is a member of the protocol; a probe turns a misspelt name into a silent no."""
    probes = [
        f"{place.relative_to(PACKAGE)}:{call.lineno}"
        for place in sorted(PACKAGE.rglob("*.py"))
        if place.parent.name != "testing"
        for call in calls(place)
        if ast.unparse(call.func) in ("getattr", "hasattr") and "cost_model" in ast.unparse(call.args[0])
    ]
    assert not probes


def test_the_search_knows_the_protocol_only() -> None:
    """Of the prices it imports what the package's front has: the protocol and ``make``."""
    imported = [
        f"{place.relative_to(PACKAGE)}:{node.lineno}"
        for place in sorted((PACKAGE / "search").rglob("*.py"))
        for node in ast.walk(ast.parse(place.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(("rlflow.price.", "rlflow.race"))
    ]
    assert not imported
