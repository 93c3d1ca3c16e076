"""``rlflow shrink`` from end to end, on a network whose first values are much larger than the rest."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from click.testing import CliRunner, Result
from onnx import TensorProto, helper, numpy_helper

import rlflow
from rlflow.cli import main
from rlflow.cli.shrink import parse_size
from rlflow.errors import CostError, UsageError
from rlflow.pipeline import shrinking
from rlflow.report.shrunk import shrink_text, size_text
from rlflow.runtime import unavailable_reason

pytestmark = pytest.mark.skipif(unavailable_reason() is not None, reason="ONNX Runtime is not installed")
FAST = ("--search", "none", "--search-seconds", "2", "--race-seconds", "1", "--slower", "3")


def call(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, list(map(str, arguments)))


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two convolutions on a large map, and a pool that leaves little of it."""
    draw = np.random.default_rng(0).standard_normal
    weights = [
        numpy_helper.from_array(draw(shape).astype(np.float32), name)
        for name, shape in (("u", (16, 3, 3, 3)), ("v", (16, 16, 3, 3)))
    ]
    nodes = [
        helper.make_node("Conv", ["image", "u"], ["a"], name="first", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["a"], ["b"], name="relu"),
        helper.make_node("Conv", ["b", "v"], ["c"], name="second", pads=[1, 1, 1, 1]),
        helper.make_node("MaxPool", ["c"], ["d"], name="pool", kernel_shape=[8, 8], strides=[8, 8]),
        helper.make_node("GlobalAveragePool", ["d"], ["scores"], name="mean"),
    ]
    start = helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 3, 128, 128])
    end = helper.make_tensor_value_info("scores", TensorProto.FLOAT, [1, 16, 1, 1])
    graph = helper.make_graph(nodes, "wide", [start], [end], weights)
    path = tmp_path_factory.mktemp("wide") / "wide.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10), path)
    return path


@pytest.fixture(scope="module")
def shrunk(wide: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, object], str]:
    folder = tmp_path_factory.mktemp("shrunk")
    out, told = folder / "small.onnx", folder / "report.json"
    done = call("shrink", wide, "-o", out, "--json", told, "--plot", folder / "front.svg", "--arena", *FAST)
    assert done.exit_code == 0, done.output
    assert (folder / "front.svg").stat().st_size > 1000
    return out, json.loads(told.read_text(encoding="utf-8")), done.output


def test_the_peak_is_lower_and_the_outputs_are_equal(wide: Path, shrunk: tuple[Path, dict[str, object], str]) -> None:
    out, report, _ = shrunk
    assert report["shrunk"] and report["exact"]
    assert report["ratio"] > 2.0  # type: ignore[operator]
    assert report["before"]["block"] >= 2 * 16 * 128 * 128 * 4  # type: ignore[index]
    assert rlflow.verify(wide, out).passed


def test_names_stay_and_new_nodes_say_what_made_them(shrunk: tuple[Path, dict[str, object], str]) -> None:
    model = onnx.load(shrunk[0])
    onnx.checker.check_model(model, full_check=True)
    assert [one.name for one in model.graph.input] == ["image"]
    assert [one.name for one in model.graph.output] == ["scores"]
    assert "mean" in [node.name for node in model.graph.node]
    bands = [node for node in model.graph.node if node.op_type == "Conv"]
    assert len(bands) > 2 and all(node.metadata_props[0].value == "row-bands" for node in bands)


def test_the_report_is_for_people_too(shrunk: tuple[Path, dict[str, object], str]) -> None:
    text = shrunk[2]
    assert "x less" in text and "the allocator counted the same at every node" in text
    assert "in bands: image to d" in text and "offset, bytes" in text


def test_a_limit_that_cannot_be_met_writes_nothing(wide: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.onnx"
    done = call("shrink", wide, "-o", out, "--memory", "10kB", *FAST)
    assert done.exit_code == 1 and not out.exists()
    assert "at best" in done.stderr and "10 kB" in done.stderr and done.stderr.count("error:") == 1


def test_what_gains_nothing_comes_back_as_it_was(tmp_path: Path) -> None:
    path, out = tmp_path / "in.onnx", tmp_path / "out.onnx"
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4, 8]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Tanh", ["x"], ["y"])], "g", ends[:1], ends[1:])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    done = call("shrink", path, "-o", out, *FAST)
    assert done.exit_code == 0, done.output
    assert out.read_bytes() == path.read_bytes() and "as it came" in done.output


@pytest.mark.parametrize(
    "arguments",
    [
        ("--slower", "0.5"),
        ("--memory", "0"),
        ("--memory", "much"),
        ("--freeze", "N"),
        ("--search", "greedily"),
        ("--budget", "soon"),
    ],
)
def test_mistakes_are_one_sentence(wide: Path, arguments: tuple[str, str]) -> None:
    done = call("shrink", wide, *arguments)
    assert done.exit_code == 2 and done.stderr.count("\n") == 1 and "error:" in done.stderr


@pytest.mark.parametrize(
    ("text", "size"),
    [("32MB", 32_000_000), ("1.5GiB", 1_610_612_736), ("500kB", 500_000), ("4096", 4096), ("2 M", 2_000_000)],
)
def test_sizes(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "MB", "1.2.3MB", "5 apples", "-4MB"])
def test_sizes_that_are_none(text: str) -> None:
    with pytest.raises(UsageError, match="32MB"):
        parse_size(text)


@pytest.mark.parametrize(
    ("size", "text"), [(999, "999 bytes"), (1500, "1.5 kB"), (32_000_000, "32 MB"), (2.5e9, "2.5 GB")]
)
def test_sizes_as_text(size: float, text: str) -> None:
    assert size_text(size) == text


def test_a_model_with_branches_comes_back_as_it_was(tmp_path: Path) -> None:
    def branch(operator: str) -> onnx.GraphProto:
        end = helper.make_tensor_value_info(operator, TensorProto.FLOAT, [3])
        return helper.make_graph([helper.make_node(operator, ["x"], [operator])], operator, [], [end])

    nodes = [
        helper.make_node("ReduceSum", ["x"], ["total"], keepdims=0),
        helper.make_node("Cast", ["total"], ["positive"], to=TensorProto.BOOL),
        helper.make_node("If", ["positive"], ["y"], then_branch=branch("Sin"), else_branch=branch("Cos")),
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [3]) for name in "xy"]
    graph = helper.make_graph(nodes, "branches", ends[:1], ends[1:])
    path, out = tmp_path / "branches.onnx", tmp_path / "out.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10), path)
    done = call("shrink", path, "-o", out, *FAST)
    assert done.exit_code == 0, done.output
    assert out.read_bytes() == path.read_bytes()
    assert "It does so where a model has branches or loops." in done.output
    limited = call("shrink", path, "--memory", "32MB", *FAST)
    assert limited.exit_code == 1, "nobody can say whether the limit is met"


def _idle(kind: str) -> onnx.ModelProto:
    """A model that computes nothing."""
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 3]) for name in "xy"]
    constant = numpy_helper.from_array(np.ones((2, 3), np.float32), "c")
    made = {
        "no nodes": helper.make_graph([], "g", ends[:1], ends[:1]),
        "a constant": helper.make_graph([helper.make_node("Relu", ["c"], ["y"])], "g", [], ends[1:], [constant]),
        "a copy": helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "g", ends[:1], ends[1:]),
    }
    return helper.make_model(made[kind], opset_imports=[helper.make_opsetid("", 17)], ir_version=10)


@pytest.mark.parametrize("kind", ["no nodes", "a constant", "a copy"])
def test_a_model_that_computes_nothing_comes_back_as_it_was(kind: str) -> None:
    given = _idle(kind)
    found = rlflow.shrink(given, memory=10_000, seconds=1, race_seconds=1, budget="1s")
    assert found.model == given
    assert not found.report.shrunk and "no smaller design was found" in found.report.reason
    assert any("nothing is computed" in note for note in found.report.notes) == (kind != "a copy")


def _twice(folder: Path) -> Path:
    """A network like ``wide``, with two convolutions of one value that are summed: one does the same."""
    draw = np.random.default_rng(0).standard_normal
    weights = [
        numpy_helper.from_array(draw(shape).astype(np.float32), name)
        for name, shape in (("u", (16, 3, 3, 3)), ("v", (16, 16, 3, 3)), ("w", (16, 16, 3, 3)))
    ]
    nodes = [
        helper.make_node("Conv", ["image", "u"], ["a"], pads=[1, 1, 1, 1]),
        helper.make_node("Conv", ["a", "v"], ["b"], pads=[1, 1, 1, 1]),
        helper.make_node("Conv", ["a", "w"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Add", ["b", "c"], ["d"]),
        helper.make_node("MaxPool", ["d"], ["scores"], kernel_shape=[8, 8], strides=[8, 8]),
    ]
    start = helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 3, 128, 128])
    end = helper.make_tensor_value_info("scores", TensorProto.FLOAT, [1, 16, 16, 16])
    graph = helper.make_graph(nodes, "twice", [start], [end], weights)
    path = folder / "twice.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10), path)
    return path


def test_a_model_is_rewritten_first_and_then_put_in_bands(tmp_path: Path) -> None:
    path, out = _twice(tmp_path), tmp_path / "small.onnx"
    found = rlflow.shrink(path, output=out, slower=1.1, seconds=4, race_seconds=4, search="greedy", budget="14s")
    report = found.report
    assert report.shrunk and report.rewritten is not None and report.rewritten > 1.2
    assert any(one.rewritten for one in report.front) and report.ratio > 2.0
    assert "rewritten first" in shrink_text(report)
    assert rlflow.verify(path, out).passed
    convolutions = [node for node in onnx.load(out).graph.node if node.op_type == "Conv"]
    first = {name for node in convolutions for name in node.input[1:]}
    assert "w" not in first or "v" not in first, "both convolutions are still there"


def test_where_rewriting_fails_the_bands_are_searched_for_all_the_same(
    wide: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise CostError("The clock is broken.")

    monkeypatch.setattr(shrinking, "run", fails)
    report = rlflow.shrink(wide, slower=3.0, seconds=2, race_seconds=1, budget="1s").report
    assert report.shrunk and report.rewritten is None
    assert "The model was not rewritten first: The clock is broken." in report.notes


def test_the_command_as_it_is_given_first_rewrites_and_shrinks(tmp_path: Path) -> None:
    """No option but the bounds of time: the default strategy."""
    path, out = _twice(tmp_path), tmp_path / "small.onnx"
    done = call("shrink", path, "-o", out, "--budget", "14s", "--search-seconds", "4", "--race-seconds", "4")
    assert done.exit_code == 0, done.output
    assert "rewritten first" in done.output and "in bands: " in done.output
    assert rlflow.verify(path, out).passed
