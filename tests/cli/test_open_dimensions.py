"""Models whose inputs have open dimensions: names for the unnamed ones, and sizes that the runtime accepts."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace as replaced
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import rlflow
from rlflow import errors
from rlflow.frontends import load_model
from tests.cli.commands import rlflow as command

pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")

ANALYTIC: dict[str, Any] = {"cost": "analytic", "budget": "20c"}


def model(nodes: Sequence[onnx.NodeProto], shape: Sequence[int | str | None], **constants: Any) -> onnx.ModelProto:
    """A model of one float input ``x`` and one output ``y`` of unknown extents."""
    graph = helper.make_graph(
        list(nodes),
        "open",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [None] * len(shape))],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def twice(shape: Sequence[int | str | None]) -> onnx.ModelProto:
    """Turned round twice, of which nothing stays."""
    return model([*turned("x", "h", len(shape)), helper.make_node("Relu", ["h"], ["y"])], shape)


def turned(source: str, target: str, rank: int) -> list[onnx.NodeProto]:
    perm = list(range(rank))[::-1]
    return [
        helper.make_node("Transpose", [source], ["turned"], perm=perm),
        helper.make_node("Transpose", ["turned"], [target], perm=perm),
    ]


def mirrored(pads: int, shape: Sequence[int | str | None]) -> onnx.ModelProto:
    """A reflecting Pad, which needs more rows and columns than it adds."""
    pad = helper.make_node("Pad", ["h", "pads"], ["y"], mode="reflect")
    amounts = np.array([0, 0, pads, pads] * 2, np.int64)
    return model([*turned("x", "h", 4), pad], shape, pads=amounts)


def test_what_the_note_advises_is_accepted() -> None:
    source = twice([None, 3])
    notes = rlflow.optimize(source, **ANALYTIC).report.notes
    assert any("Measured with x.0=1" in note and "--dim x.0=…" in note for note in notes), notes
    report = rlflow.optimize(source, dims={"x.0": 4}, **ANALYTIC).report
    assert report.improved
    assert not any("Measured with" in note for note in report.notes)


def test_freezing_keeps_rank_and_known_extents() -> None:
    frozen = rlflow.optimize(twice([None, 3, None]), freeze={"x.0": 4}, **ANALYTIC).model
    dims = frozen.graph.input[0].type.tensor_type.shape.dim
    assert [dim.dim_value for dim in dims] == [4, 3, 0]


@pytest.mark.parametrize(("pads", "expected"), [(224, 256), (300, 512)])
def test_a_guess_that_the_runtime_refuses_is_followed_by_others(pads: int, expected: int) -> None:
    report = rlflow.optimize(mirrored(pads, [None, 1, None, None]), **ANALYTIC).report
    assert report.improved
    assert any(f"Measured with x.0=1, x.2={expected}, x.3={expected}, the first of" in n for n in report.notes)


def test_where_no_guess_runs_the_guess_and_the_ways_out_are_named() -> None:
    source = model([helper.make_node("Reshape", ["x", "to"], ["y"])], [None, None], to=np.array([7, 11, 13]))
    source.graph.output[0].type.tensor_type.shape.dim.add()
    with pytest.raises(
        errors.RuntimeRefused, match=r"guesses .* x\.0=1, x\.1=1 are a guess.*--dim x\.0=….*--input-data"
    ):
        rlflow.optimize(source, cost="onnxruntime", budget="20c")


def test_an_unnamed_dimension_is_followed_through_operators_that_are_carried() -> None:
    """Behind an operator that the table lacks, shape inference still knows which dimension it is."""
    source = model(
        [helper.make_node("Hardmax", ["x"], ["h"], axis=-1), helper.make_node("Relu", ["h"], ["y"])], [None, 3]
    )
    graph = load_model(source).graph
    assert graph.type_text(graph.outputs()[0]) == "f32[x.0,3]"


def always_faster(clock: Any, baseline: Any, candidates: Any, feeds: Any, **_: Any) -> Any:
    """A comparison that is always won: by the candidate at the usual sizes, by the original at the others."""
    from rlflow.race.decision import GateDecision, ModelTiming

    name = next(iter(candidates))
    timing = ModelTiming(1.0, 0.9, 1.1, 9, 9)
    timings = {"baseline": timing, "original": timing, name: timing}
    return GateDecision(name, "it is faster", "fake", "baseline", name, 2.0, (1.9, 2.1), 0.001, timings)


@pytest.fixture
def won(monkeypatch: pytest.MonkeyPatch) -> None:
    from rlflow.race import gate

    monkeypatch.setattr(gate, "choose", always_faster)


@pytest.mark.parametrize(
    "sizes", [{"dims": {"N": "1..4..8"}}, {"dims": {"N": (1, 4, 8)}}, {"shapes": {"x": "1x3,4x3,8x3"}}]
)
def test_outputs_are_compared_at_the_least_and_the_most(sizes: dict[str, Any], won: None) -> None:
    result = rlflow.optimize(twice(["N", 3]), budget="20c", only_usual=True, **sizes)
    assert result.improved
    assert [note for note in result.report.notes if "compared at" in note] == [
        "The outputs were compared at the least sizes (N=1), too.",
        "The outputs were compared at the most sizes (N=8), too.",
    ]


def test_where_roundings_show_at_an_end_only_the_original_stays(won: None, monkeypatch: pytest.MonkeyPatch) -> None:
    from rlflow.pipeline import ends

    compare = ends.verified
    monkeypatch.setattr(ends, "verified", lambda *how: replaced(compare(*how), passed=False))
    source = twice(["N", 3])
    result = rlflow.optimize(source, budget="20c", only_usual=True, dims={"N": "1..4..8"})
    assert not result.improved
    assert result.report.reason.startswith("at the least sizes (N=1) the candidate's roundings show")
    assert result.report.verified is None
    assert result.model == source


def test_what_is_slower_at_an_end_is_not_written(won: None) -> None:
    source = twice(["N", 3])
    result = rlflow.optimize(source, budget="20c", dims={"N": "4..4..8"})
    assert not result.improved
    assert "at the most sizes (N=8) the original is 2.000 times as fast as it; --only-usual" in result.report.reason
    assert result.model == source
    assert result.report.speedup == 1.0


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"dims": {"M": 3}}, "no open dimension 'M'"),
        ({"dims": {"N": "8..1..64"}}, "The size of the dimension 'N' is '8..1..64'; expected"),
        ({"shapes": {"x": "4x5"}}, "Dimension 1 of the shape of 'x' is 5, where 3 is known"),
        ({"shapes": {"x": "4x3"}, "dims": {"N": 5}}, "one size by --dim and another by --shape"),
    ],
)
def test_sizes_that_make_no_sense_are_refused(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(errors.UsageError, match=sentence):
        rlflow.optimize(twice(["N", 3]), **ANALYTIC, **options)


@pytest.mark.parametrize("options", [{"provider": "nope"}, {"runtime": "openvino"}])
def test_no_size_is_blamed_for_what_is_not_installed(options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openvino", None)
    with pytest.raises(errors.RuntimeUnavailable) as found:
        rlflow.optimize(twice(["N", 3]), **ANALYTIC, **options)
    assert "--dim" not in str(found.value)


def test_prices_are_those_at_the_sizes_of_the_data() -> None:
    """What is priced is what is timed: the sizes that the given inputs show."""
    from rlflow.price.measured import OnnxRuntimeCost

    seen: list[dict[str, int]] = []
    with pytest.MonkeyPatch.context() as patch:
        bind = OnnxRuntimeCost.bind
        patch.setattr(OnnxRuntimeCost, "bind", lambda self, dims: (seen.append(dict(dims)), bind(self, dims)))
        rlflow.optimize(twice(["N", 3]), budget="1c", gate_seconds=0.2, input_data={"x": np.ones((5, 3), np.float32)})
    assert seen == [{"N": 5}]


def test_what_does_not_run_is_never_blamed_on_a_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that the runtime refuses to load has no outputs, so none can be wrong."""
    from rlflow.frontends import assembly, exporter

    monkeypatch.setattr(assembly, "_part_namesakes", lambda graph, names: None)
    monkeypatch.setattr(exporter._Writer, "_label", lambda self, name: "kept")
    nodes = [
        helper.make_node("MatMul", ["x", "a"], ["h"]),
        helper.make_node("MatMul", ["h", "b"], ["g"]),
        helper.make_node("Relu", ["g"], ["y"], name="kept"),
    ]
    weights = {"a": np.ones((3, 16), np.float32), "b": np.ones((16, 3), np.float32)}
    with pytest.raises(errors.VerificationFailed, match=r"does not run, which is a fault of the export") as found:
        rlflow.optimize(model(nodes, ["N", 3], **weights), **ANALYTIC)
    assert "smallest prefix" not in str(found.value)


@pytest.mark.parametrize(
    "verb",
    [
        ["bench"],
        ["split", "-o", "parts", "--cost", "analytic", "--no-verify"],
        ["place", "-o", "placed.onnx", "--devices", "devices.json", "--cost", "analytic"],
        ["search", "run", "--budget", "5c"],
        ["compare", "--search", "greedy,beam", "--cost", "analytic", "--budget", "5c"],
        ["tune", "-o", "tuned", "--method", "random"],
        ["cost", "calibrate"],
    ],
    ids=lambda verb: verb[0],
)
def test_every_verb_refuses_a_dimension_that_is_not_there(
    verb: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("devices.json").write_text('{"devices": [{"name": "a"}]}')
    Path("m.onnx").write_bytes(twice(["height", 3]).SerializeToString())
    done = command(*verb, "m.onnx", "--dim", "hight=3")
    assert done.exit_code == 2, done.output
    assert "The model has no open dimension 'hight'. Did you mean height?" in done.stderr


def test_one_of_several_models_must_have_the_dimension(tmp_path: Path) -> None:
    for name in ("height", "width"):
        (tmp_path / f"{name}.onnx").write_bytes(twice([name, 3]).SerializeToString())
    both = ("bench", tmp_path / "height.onnx", tmp_path / "width.onnx", "--seconds", "0.1", "--blocks", "1", "--dim")
    none, one = command(*both, "level=3"), command(*both, "height=3")
    assert (none.exit_code, one.exit_code) == (2, 0), none.output + one.output
    assert "None of the models has an open dimension 'level'. There are: height, width." in none.stderr
