"""``rlflow verify A B`` and ``rlflow.verify``: equal, different, and what cannot be compared."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from click.testing import CliRunner, Result
from onnx import TensorProto, helper, numpy_helper

import rlflow

WEIGHT = np.random.default_rng(0).standard_normal((8, 4)).astype(np.float32)


def model(*, by: float = 1.0, bound: float | None = None, rows: int | str = 3, output: str = "y") -> onnx.ModelProto:
    """x · W, scaled by ``by``; with ``bound``, values above it are cut."""
    nodes = [helper.make_node("MatMul", ["x", "w"], ["p"]), helper.make_node("Mul", ["p", "by"], [output])]
    weights = [numpy_helper.from_array(WEIGHT, "w"), numpy_helper.from_array(np.float32([by]), "by")]
    if bound is not None:
        nodes[1] = helper.make_node("Mul", ["p", "by"], ["m"])
        nodes.append(helper.make_node("Min", ["m", "most"], [output]))
        weights.append(numpy_helper.from_array(np.float32([bound]), "most"))
    graph = helper.make_graph(
        nodes,
        "product",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [rows, 8])],
        [helper.make_tensor_value_info(output, TensorProto.FLOAT, [rows, 4])],
        weights,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.fixture
def at(tmp_path: Path) -> Callable[[str, onnx.ModelProto], Path]:
    def written(name: str, proto: onnx.ModelProto) -> Path:
        path = tmp_path / f"{name}.onnx"
        path.write_bytes(proto.SerializeToString())
        return path

    return written


def verify(*arguments: str | Path) -> Result:
    from rlflow.cli import main

    return CliRunner().invoke(main, ["verify", *map(str, arguments)])


def test_equal_models_end_with_0(at: Callable[[str, onnx.ModelProto], Path]) -> None:
    a, b = at("a", model()), at("b", model(by=1.0))
    done = verify(a, b)
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith(f"{b} computes what {a} computes, on usual (2), ")
    assert "The output 'y' is the same to the last bit." in done.stdout


def test_a_difference_ends_with_3_and_is_named_with_its_input(at: Callable[[str, onnx.ModelProto], Path]) -> None:
    a, b = at("a", model()), at("b", model(by=1.5))
    done = verify(a, b)
    assert done.exit_code == 3, done.output
    first, second, *_ = done.stdout.splitlines()
    assert first.startswith(f"{b} does not compute what {a} computes. The output 'y' differs by ")
    assert second.startswith("The output 'y' differs most on usual input ") and "allowed" in second


def test_a_difference_that_only_large_inputs_show_names_their_kind(
    at: Callable[[str, onnx.ModelProto], Path],
) -> None:
    done = verify(at("a", model()), at("b", model(bound=500.0)))
    assert done.exit_code == 3, done.output
    assert "On inputs of the kind 'scale" in done.stdout
    assert "differs most on scale" in done.stdout


def test_the_input_with_the_largest_difference_is_the_given_one(
    at: Callable[[str, onnx.ModelProto], Path], tmp_path: Path
) -> None:
    data = tmp_path / "x.npy"
    np.save(data, np.full((3, 8), 50.0, np.float32))
    plain = json.loads(verify(at("a", model()), at("b", model(by=1.5)), "--input-data", data, "--json").stdout)
    (output,) = plain["outputs"]
    assert (plain["passed"], output["name"], output["kind"], output["run"]) == (False, "y", "usual", 0)
    assert output["max_abs"] == pytest.approx(np.abs(50 * WEIGHT.sum(axis=0)).max() / 2, rel=1e-4)
    assert plain["failure"].startswith("The output 'y' differs by ")


def test_dimensions_and_seeds_are_taken(at: Callable[[str, onnx.ModelProto], Path]) -> None:
    a, b = at("a", model(rows="N")), at("b", model(rows="N", by=1.5))
    assert verify(a, a, "--dim", "N=5").exit_code == 0
    assert verify(a, a, "--dim", "N").exit_code == 2
    differences = [json.loads(verify(a, b, "--seed", seed, "--json").stdout)["outputs"][0]["max_abs"] for seed in "112"]
    assert differences[0] == differences[1] != differences[2]


def cut_above(rows: int) -> onnx.ModelProto:
    """x · W of any number of rows, of which all after the first `rows` are doubled."""
    most = numpy_helper.from_array(np.int64([rows]), "most")
    two = numpy_helper.from_array(np.float32([2.0]), "two")
    zero = numpy_helper.from_array(np.int64([0]), "zero")
    last = numpy_helper.from_array(np.int64([2**40]), "last")
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["p"]),
        helper.make_node("Slice", ["p", "zero", "most", "zero"], ["kept"]),
        helper.make_node("Slice", ["p", "most", "last", "zero"], ["rest"]),
        helper.make_node("Mul", ["rest", "two"], ["more"]),
        helper.make_node("Concat", ["kept", "more"], ["y"], axis=0),
    ]
    found = model(rows="N")
    del found.graph.node[:], found.graph.initializer[:]
    found.graph.node.extend(nodes)
    found.graph.initializer.extend([numpy_helper.from_array(WEIGHT, "w"), most, two, zero, last])
    return found


@pytest.mark.parametrize(
    ("sizes", "code", "says"),
    [
        (("--dim", "N=1..4..8"), 0, "note: The outputs were compared at the most sizes (N=8), too."),
        (("--shape", "x:1x8,4x8,8x8"), 0, "note: The outputs were compared at the least sizes (N=1), too."),
        (("--dim", "N=1..4..64"), 3, "note: They differ at the most sizes (N=64); at the usual sizes they agree."),
        (("--shape", "x:64x8"), 3, "The output 'y' differs most on usual input "),
        (("--shape", "x:4x8"), 0, "The output 'y' is the same to the last bit."),
    ],
)
def test_outputs_are_compared_at_the_least_and_the_most(
    sizes: tuple[str, str], code: int, says: str, at: Callable[[str, onnx.ModelProto], Path]
) -> None:
    done = verify(at("a", model(rows="N")), at("b", cut_above(16)), *sizes)
    assert (done.exit_code, says in done.stdout) == (code, True), done.output


@pytest.mark.parametrize(
    ("sizes", "says"),
    [
        (("--dim", "M=3"), "The model has no open dimension 'M'. There are: N."),
        (("--dim", "N=8..1..64"), "The size of the dimension 'N' is '8..1..64'; expected"),
        (("--shape", "x:4x5"), "Dimension 1 of the shape of 'x' is 5, where 8 is known."),
        (("--shape", "z:4x8"), "The model has no input 'z'; its inputs are x."),
        (("--shape", "x:4x8", "--dim", "N=5"), "one size by --dim and another by --shape"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(
    sizes: tuple[str, ...], says: str, at: Callable[[str, onnx.ModelProto], Path]
) -> None:
    a = at("a", model(rows="N"))
    done = verify(a, a, *sizes)
    assert done.exit_code == 2 and says in done.stderr, done.stderr


def test_outputs_of_another_name_or_number_are_a_difference(at: Callable[[str, onnx.ModelProto], Path]) -> None:
    done = verify(at("a", model()), at("b", model(output="z")))
    assert done.exit_code == 3
    assert "The output 'y' is missing." in done.stdout
    assert "The other model has the output 'z', which the original lacks." in done.stdout


@pytest.mark.parametrize(("first", "second"), [("good", "gone"), ("gone", "good"), ("good", "bad"), ("bad", "good")])
def test_what_is_no_model_ends_with_1(
    first: str, second: str, at: Callable[[str, onnx.ModelProto], Path], tmp_path: Path
) -> None:
    paths = {"good": at("good", model()), "gone": tmp_path / "gone.onnx", "bad": tmp_path / "bad.onnx"}
    paths["bad"].write_bytes(b"no model")
    done = verify(paths[first], paths[second])
    assert done.exit_code == 1
    wrong = next(name for name in (first, second) if name != "good")
    assert done.stderr.startswith("rlflow: error: ") and f"{wrong}.onnx" in done.stderr and done.stderr.count("\n") == 1


def test_the_facade_answers_the_same() -> None:
    assert rlflow.verify(model(), model()).passed
    found = rlflow.verify(model(), model(by=1.5))
    assert not found.passed
    (output,) = found.outputs
    assert (output.kind, output.passed) == ("usual", False) and output.run in (0, 1)


def test_the_facade_races_strategies_under_the_name_of_the_verb() -> None:
    from rlflow import comparison

    assert rlflow.compare is comparison.compare


def of_nodes(nodes: list[onnx.NodeProto], **inputs: tuple[int, list[int | str]]) -> onnx.ModelProto:
    ends = [helper.make_tensor_value_info(name, kind, shape) for name, (kind, shape) in inputs.items()]
    graph = helper.make_graph(nodes, "g", ends, [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_given_inputs_stand_beside_random_ones(at: Callable[[str, onnx.ModelProto], Path], tmp_path: Path) -> None:
    data = tmp_path / "nan.npz"
    np.savez(data, x=np.full((3, 8), np.nan, np.float32))
    a, b = at("a", model()), at("b", model(by=1.001))
    same, other = verify(a, a, "--input-data", data), verify(a, b, "--input-data", data)
    assert (same.exit_code, other.exit_code) == (0, 3), same.output + other.output
    assert " on usual (3), scale 1000, " in same.stdout


def test_where_no_output_can_show_a_mistake_nothing_is_said_to_be_equal(
    at: Callable[[str, onnx.ModelProto], Path],
) -> None:
    nodes = [helper.make_node(kind, [one], [two]) for kind, one, two in (("Abs", "x", "a"), ("Neg", "a", "n"))]
    never = at("never", of_nodes([*nodes, helper.make_node("Log", ["n"], ["y"])], x=(TensorProto.FLOAT, [3])))
    done = verify(never, never)
    assert done.exit_code == 1, done.output
    assert done.stdout.startswith(f"Whether {never} computes what {never} computes cannot be told. The output 'y' ")
    assert rlflow.verify(never, never).passed is False


def test_a_model_without_inputs_is_decided(at: Callable[[str, onnx.ModelProto], Path]) -> None:
    value = numpy_helper.from_array(np.float32([1, 1]), "v")
    one = at(
        "one", of_nodes([helper.make_node("Constant", [], ["c"], value=value), helper.make_node("Relu", ["c"], ["y"])])
    )
    done = verify(one, one)
    assert done.exit_code == 0, done.output


@pytest.mark.parametrize("given", [{}, {"x": np.arange(12, dtype=np.float32).reshape(2, 6)}], ids=["one", "both"])
def test_random_values_that_the_runtime_refuses_are_left_out(
    given: dict[str, np.ndarray], at: Callable[[str, onnx.ModelProto], Path], tmp_path: Path
) -> None:
    reshape = [helper.make_node("Reshape", ["x", "to"], ["y"])]
    a = at("a", of_nodes(reshape, x=(TensorProto.FLOAT, [2, 6]), to=(TensorProto.INT64, [2])))
    data = tmp_path / "to.npz"
    np.savez(data, to=np.int64([3, 4]), **given)
    done = json.loads(verify(a, a, "--input-data", data, "--json").stdout)
    assert any("compared alone, because the model does not run on random ones" in note for note in done["notes"])
    assert done["inputs"][0] == "usual (1)"


def test_data_that_make_outputs_finite_decide(at: Callable[[str, onnx.ModelProto], Path], tmp_path: Path) -> None:
    nodes = [helper.make_node("Sub", ["x", "h"], ["s"]), helper.make_node("Log", ["s"], ["y"])]
    model = of_nodes(nodes, x=(TensorProto.FLOAT, [64]))
    model.graph.initializer.append(numpy_helper.from_array(np.float32([1e6]), "h"))
    data = tmp_path / "x.npz"
    np.savez(data, x=np.linspace(2e6, 3e6, 64, dtype=np.float32))
    a = at("a", model)
    assert verify(a, a).exit_code == 1
    assert verify(a, a, "--input-data", data).exit_code == 0
