"""The clean-up alone, and as a candidate of the final comparison."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from onnx import ModelProto, TensorProto, helper, numpy_helper

import rlflow
from rlflow import equivalence
from rlflow.cli import main
from rlflow.pipeline import simplifying
from rlflow.pipeline.parts import CHECK_LEAST
from rlflow.pipeline.simplifying import CHECK_SECONDS
from rlflow.race import gate


def layers(count: int = 4) -> ModelProto:
    """A perceptron of ``count`` layers: Identity, MatMul, Add, Relu."""
    rng = np.random.default_rng(0)
    nodes, weights, value = [], [], "x"
    for n in range(count):
        weights += [numpy_helper.from_array(rng.standard_normal((16, 16)).astype(np.float32), f"w{n}")]
        weights += [numpy_helper.from_array(rng.standard_normal(16).astype(np.float32), f"b{n}")]
        last = "y" if n == count - 1 else f"r{n}"
        nodes += [
            helper.make_node("Identity", [value], [f"i{n}"]),
            helper.make_node("MatMul", [f"i{n}", f"w{n}"], [f"m{n}"]),
            helper.make_node("Add", [f"m{n}", f"b{n}"], [f"a{n}"]),
            helper.make_node("Relu", [f"a{n}"], [last]),
        ]
        value = last
    graph = helper.make_graph(
        nodes,
        "layers",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 16])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 16])],
        weights,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    helper.set_model_props(model, {"author": "someone"})
    return model


def test_identities_go_and_the_interface_stays(tmp_path: Path) -> None:
    source, target = tmp_path / "in.onnx", tmp_path / "out.onnx"
    onnx.save(layers(), source)
    done = CliRunner().invoke(main, ["simplify", str(source), "-o", str(target)])
    assert done.exit_code == 0, done.output
    assert "outputs equal" in done.output
    found = onnx.load(target)
    onnx.checker.check_model(found, full_check=True)
    assert len(found.graph.node) == 8  # a Gemm and a Relu for each layer
    assert not any(node.op_type == "Identity" for node in found.graph.node)
    assert ([one.name for one in found.graph.input], [one.name for one in found.graph.output]) == (["x"], ["y"])
    assert ("author", "someone") in [(one.key, one.value) for one in found.metadata_props]


@pytest.mark.parametrize("also", [False, True])
def test_a_race_without_a_block_is_reported(also: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def choose(clock: Any, baseline: Any, candidates: Any, feeds: Any, **options: Any) -> Any:
        timed = also and "clean-up" in candidates
        assert options.get("only", False) == ("clean-up" in candidates)
        one = {name: SimpleNamespace(ms=ms, low=ms, high=ms) for name, ms in (("baseline", 2.0), ("clean-up", 1.0))}
        return gate.GateDecision(
            "clean-up" if timed else None, "no time", "wall", "baseline", None, 2.0 if timed else None,
            (1.9, 2.1) if timed else None, None, one if timed else {}, {}, {}, 0, 0, 1.0, None, False, None,
        )  # fmt: skip

    monkeypatch.setattr(gate, "choose", choose)
    monkeypatch.setattr(gate.GateDecision, "to_dict", lambda self: {})
    report = rlflow.optimize(layers(), budget="1x", search="greedy", rules=["parallel"]).report
    assert report.improved == also
    assert (report.original_ms, report.baseline_ms) == ((2.0, 1.0) if also else (None, None))


NEEDLESS = [
    "sympy.core",
    "torch",
    "rlflow.race.gate",
    "rlflow.price.measured",
    "rlflow.synthesis.prove",
    "onnx.reference",
    "onnxruntime",
]


def normalised() -> ModelProto:
    """A normalisation that is written as arithmetic on constants, as exporters do: all of it can be folded."""
    constants = {"mean": [1.0, 2.0], "variance": [4.0, 9.0], "scale": [2.0, 3.0]}
    nodes = [
        helper.make_node("Sqrt", ["variance"], ["deviation"]),
        helper.make_node("Div", ["scale", "deviation"], ["factor"]),
        helper.make_node("Mul", ["mean", "factor"], ["shift"]),
        helper.make_node("Unsqueeze", ["factor"], ["factors"], axes=[1]),
        helper.make_node("Unsqueeze", ["shift"], ["shifts"], axes=[1]),
        helper.make_node("Mul", ["x", "factors"], ["scaled"]),
        helper.make_node("Sub", ["scaled", "shifts"], ["y"]),
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 3]) for name in ("x", "y")]
    weights = [numpy_helper.from_array(np.float32(one), name) for name, one in constants.items()]
    graph = helper.make_graph(nodes, "normalised", ends[:1], ends[1:], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 12)], ir_version=8)


@pytest.mark.parametrize("make", [layers, normalised])
def test_nothing_is_opened_that_the_clean_up_does_not_need(make: Callable[[], ModelProto], tmp_path: Path) -> None:
    source = tmp_path / "in.onnx"
    onnx.save(make(), source)
    code = (
        "import sys; from rlflow.cli import main; from rlflow.runtime import process\n"
        "if sys.platform == 'linux': process._spawned = None  # a copy of this process is enough\n"
        "main(sys.argv[1:3] + ['-o', sys.argv[3]], standalone_mode=False)\n"
        f"print('needless', [name for name in {NEEDLESS} if name in sys.modules])"
    )
    command = [sys.executable, "-c", code, "simplify", str(source), str(tmp_path / "out.onnx")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert "outputs equal" in done.stdout
    assert "needless []" in done.stdout


def test_the_check_of_a_clean_up_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = _asked_seconds(monkeypatch)
    rlflow.simplify(layers())
    assert asked == [CHECK_SECONDS / 2, CHECK_SECONDS / 2]


@pytest.mark.parametrize(
    ("budget", "least", "most"),
    [("1x", None, None), ("1s", CHECK_LEAST / 2, CHECK_LEAST / 2), ("30s", 5.0, equivalence.SECONDS)],
)
def test_the_check_has_its_part_of_the_budget(
    budget: str, least: float | None, most: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = _asked_seconds(monkeypatch)
    monkeypatch.setattr(simplifying, "BUDGET", budget)  # a run that always has something to check
    monkeypatch.setattr(simplifying, "CHECK_SECONDS", None)
    rlflow.simplify(layers())
    assert len(asked) == 2
    for seconds in asked:
        assert seconds is None if least is None else least <= seconds <= most


def _asked_seconds(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The seconds that the two halves of the check are given, as they come."""
    asked: list[Any] = []
    calibrate, compare = equivalence.calibrate, equivalence.verify

    def calibrated(*args: Any, **options: Any) -> Any:
        asked.append(options["seconds"])
        return calibrate(*args, **options)

    def compared(*args: Any, **options: Any) -> Any:
        asked.append(options["seconds"])
        return compare(*args, **options)

    monkeypatch.setattr(equivalence, "calibrate", calibrated)
    monkeypatch.setattr(equivalence, "verify", compared)
    return asked


def test_a_model_in_memory_is_simplified_and_left_alone() -> None:
    model = layers()
    before = model.SerializeToString()
    assert len(rlflow.simplify(model).graph.node) < len(model.graph.node)
    assert model.SerializeToString() == before


@pytest.mark.parametrize(("wins", "improved"), [(True, True), (False, False)])
def test_the_clean_up_is_written_where_it_is_faster(
    wins: bool, improved: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def timing(ms: float) -> Any:
        return SimpleNamespace(ms=ms, low=0.99 * ms, high=1.01 * ms)

    raced = []

    def choose(clock: Any, baseline: Any, candidates: Any, feeds: Any, **options: Any) -> Any:
        raced.append(list(candidates))
        by_itself = "clean-up" in candidates
        times = {"baseline": 2.0, "clean-up": 1.0} if by_itself else {"baseline": 1.0, "original": 2.0}
        return gate.GateDecision(
            "clean-up" if by_itself and wins else None,
            "as the test says", "wall", "baseline", None, 2.0 if by_itself else None, (1.9, 2.1) if by_itself else None,
            0.001, {name: timing(ms) for name, ms in times.items()}, {}, {}, 7, 21, 1.0, None, False, None,
        )  # fmt: skip

    monkeypatch.setattr(gate, "choose", choose)
    monkeypatch.setattr(gate.GateDecision, "to_dict", lambda self: {})
    out = tmp_path / "out.onnx"
    report = rlflow.optimize(layers(), output=out, budget="1x", search="greedy", rules=["parallel"]).report
    assert raced[-1] == ["clean-up"]
    assert report.improved == improved
    assert any(node.op_type == "Identity" for node in onnx.load(out).graph.node) != improved
    if improved:
        assert (report.cleanup_speedup, report.speedup) == (2.0, 1.0)
        assert (report.original_ms, report.baseline_ms, report.optimized_ms) == (2.0, 1.0, 1.0)
        assert report.verified is not None
        assert report.verified.passed


def test_the_output_is_an_argument_or_an_option(tmp_path: Path) -> None:
    source, target = tmp_path / "in.onnx", tmp_path / "out.onnx"
    onnx.save(layers(), source)
    done = CliRunner().invoke(main, ["simplify", str(source), str(target)])
    assert done.exit_code == 0, done.output
    assert target.exists()
    nowhere = CliRunner().invoke(main, ["simplify", str(source)])
    assert nowhere.exit_code == 2
    assert "rlflow simplify IN OUT" in nowhere.stderr


def test_what_the_note_on_open_dimensions_advises_is_an_option(tmp_path: Path) -> None:
    source = tmp_path / "in.onnx"
    model = layers()
    for info in (model.graph.input[0], model.graph.output[0]):
        info.type.tensor_type.shape.dim[0].dim_param = "N"
    onnx.save(model, source)
    guessed = CliRunner().invoke(main, ["simplify", str(source), str(tmp_path / "a.onnx")])
    assert "give --dim N=" in guessed.output
    told = CliRunner().invoke(main, ["simplify", str(source), str(tmp_path / "b.onnx"), "--dim", "N=3"])
    assert (told.exit_code, "give --dim" in told.output) == (0, False)
