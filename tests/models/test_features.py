"""What real models have and zoo models lack, one small model a feature: the default command ends well on each.

With these a clone alone catches what test_real_models.py catches beside the models themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import rlflow
from rlflow import errors

ort = pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")

FLOAT, HALF, INT64 = TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.INT64
RNG = np.random.default_rng(0)


def value(name: str, shape: Sequence[int | str | None] | None, dtype: int = FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, dtype, shape)


def weight(name: str, *shape: int, dtype: Any = np.float32) -> onnx.TensorProto:
    return numpy_helper.from_array((RNG.standard_normal(shape) / 4).astype(dtype), name)


def ints(name: str, *numbers: int) -> onnx.TensorProto:
    return numpy_helper.from_array(np.array(numbers, np.int64), name)


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[onnx.ValueInfoProto],
    outputs: Sequence[onnx.ValueInfoProto],
    weights: Sequence[onnx.TensorProto] = (),
    opset: int = 17,
    **domains: int,
) -> onnx.ModelProto:
    graph = helper.make_graph(list(nodes), "feature", list(inputs), list(outputs), list(weights))
    imports = [helper.make_opsetid("", opset)]
    imports += [helper.make_opsetid(name.replace("_", "."), version) for name, version in domains.items()]
    return helper.make_model(graph, opset_imports=imports, ir_version=8)


def node(op: str, inputs: Sequence[str], outputs: Sequence[str], **attrs: Any) -> onnx.NodeProto:
    return helper.make_node(op, list(inputs), list(outputs), **attrs)


# --- the features


def unnamed_dimensions() -> onnx.ModelProto:
    nodes = [node("MatMul", ["x", "w"], ["h"]), node("MatMul", ["h", "v"], ["g"]), node("Relu", ["g"], ["y"])]
    return model(nodes, [value("x", [None, 8])], [value("y", [None, 4])], [weight("w", 8, 32), weight("v", 32, 4)])


def extents_known_when_it_runs() -> onnx.ModelProto:
    """Behind NonZero nobody knows how many rows there are, so most regions have no price."""
    nodes = [
        node("NonZero", ["x"], ["found"]),
        node("Cast", ["found"], ["rows"], to=FLOAT),
        node("Exp", ["rows"], ["e"]),
        node("Softmax", ["e"], ["s"], axis=0),
        node("ReduceSum", ["s", "axis"], ["y"]),
    ]
    return model(nodes, [value("x", [4, 6])], [value("y", [2, None])], [ints("axis", 1)])


def a_pad_that_reflects() -> onnx.ModelProto:
    """Refuses one row and one column, the first guess."""
    nodes = [node("Pad", ["x", "pads"], ["p"], mode="reflect"), node("Relu", ["p"], ["y"])]
    image, out = value("x", [None, 3, None, None]), value("y", [None, 3, None, None])
    return model(nodes, [image], [out], [ints("pads", 0, 0, 3, 3, 0, 0, 3, 3)])


def initialisers_that_are_inputs() -> onnx.ModelProto:
    built = model([node("MatMul", ["x", "w"], ["y"])], [value("x", [2, 8])], [value("y", [2, 4])], [weight("w", 8, 4)])
    built.graph.input.append(value("w", [8, 4]))
    built.ir_version = 3
    return built


def branches() -> onnx.ModelProto:
    """An If whose condition is an input, and whose bodies read a value from outside."""
    then = helper.make_graph([node("Relu", ["h"], ["a"])], "then", [], [value("a", [2, 8])])
    other = helper.make_graph([node("Neg", ["h"], ["b"])], "else", [], [value("b", [2, 8])])
    nodes = [
        node("Equal", ["rate", "sixteen"], ["c"]),
        node("MatMul", ["x", "w"], ["h"]),
        node("If", ["c"], ["f"], then_branch=then, else_branch=other),
        node("Exp", ["f"], ["y"]),
    ]
    rate = numpy_helper.from_array(np.array(1, np.int64), "sixteen")
    return model(nodes, [value("x", [2, 8]), value("rate", [], INT64)], [value("y", [2, 8])], [weight("w", 8, 8), rate])


def a_loop() -> onnx.ModelProto:
    body = helper.make_graph(
        [node("Tanh", ["state"], ["next"]), node("Identity", ["go"], ["go_on"])],
        "body",
        [value("i", [], INT64), value("go", [], TensorProto.BOOL), value("state", [2, 8])],
        [value("go_on", [], TensorProto.BOOL), value("next", [2, 8])],
    )
    nodes = [node("Loop", ["times", "", "x"], ["f"], body=body), node("Exp", ["f"], ["y"])]
    times = numpy_helper.from_array(np.array(3, np.int64), "times")
    return model(nodes, [value("x", [2, 8])], [value("y", [2, 8])], [times])


def quantised() -> onnx.ModelProto:
    scale = numpy_helper.from_array(np.array(0.05, np.float32), "scale")
    zero = numpy_helper.from_array(np.array(0, np.int8), "zero")
    weights = numpy_helper.from_array(RNG.integers(-100, 100, (8, 4)).astype(np.int8), "q")
    nodes = [
        node("QuantizeLinear", ["x", "scale", "zero"], ["xq"]),
        node("DequantizeLinear", ["xq", "scale", "zero"], ["xd"]),
        node("DequantizeLinear", ["q", "scale", "zero"], ["wd"]),
        node("MatMul", ["xd", "wd"], ["h"]),
        node("QuantizeLinear", ["h", "scale", "zero"], ["hq"]),
        node("DequantizeLinear", ["hq", "scale", "zero"], ["y"]),
    ]
    return model(nodes, [value("x", [2, 8])], [value("y", [2, 4])], [scale, zero, weights])


def half_precision() -> onnx.ModelProto:
    nodes = [
        node("Conv", ["x", "w"], ["h"], kernel_shape=[1, 1]),
        node("Relu", ["h"], ["r"]),
        node("Softmax", ["r"], ["y"], axis=1),
    ]
    weights = [weight("w", 4, 3, 1, 1, dtype=np.float16)]
    return model(nodes, [value("x", [1, 3, 8, 8], HALF)], [value("y", [1, 4, 8, 8], HALF)], weights, opset=13)


def a_tree_ensemble() -> onnx.ModelProto:
    """Operators of ai.onnx.ml only, and no opset of ONNX's own domain."""
    tree = helper.make_node(
        "TreeEnsembleRegressor",
        ["x"],
        ["y"],
        domain="ai.onnx.ml",
        nodes_treeids=[0, 0, 0],
        nodes_nodeids=[0, 1, 2],
        nodes_featureids=[0, 0, 0],
        nodes_values=[0.5, 0.0, 0.0],
        nodes_modes=["BRANCH_LEQ", "LEAF", "LEAF"],
        nodes_truenodeids=[1, 0, 0],
        nodes_falsenodeids=[2, 0, 0],
        target_treeids=[0, 0],
        target_nodeids=[1, 2],
        target_ids=[0, 0],
        target_weights=[1.0, -1.0],
        n_targets=1,
    )
    built = model([tree], [value("x", [2, 3])], [value("y", [2, 1])])
    del built.opset_import[:]
    built.opset_import.append(helper.make_opsetid("ai.onnx.ml", 1))
    return built


def fused_convolutions() -> onnx.ModelProto:
    """What ONNX Runtime itself writes; what is behind has extents that ONNX cannot infer."""
    fused = {"domain": "com.microsoft", "activation": "Relu", "kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
    nodes = [
        node("FusedConv", ["x", "w"], ["h"], **fused),
        node("Exp", ["h"], ["e"]),
        node("FusedConv", ["e", "v"], ["g"], **fused),
        node("Tanh", ["g"], ["y"]),
    ]
    weights = [weight("w", 4, 3, 3, 3), weight("v", 4, 4, 3, 3)]
    return model(nodes, [value("x", ["N", 3, 8, 8])], [value("y", ["N", 4, 8, 8])], weights, 11, com_microsoft=1)


def an_experimental_operator() -> onnx.ModelProto:
    nodes = [
        node("ImageScaler", ["x"], ["s"], scale=2.0, bias=[0.1, 0.2, 0.3]),
        node("Relu", ["s"], ["r"]),
        node("Crop", ["r"], ["y"], border=[1, 1, 1, 1]),
    ]
    return model(nodes, [value("x", [1, 3, 8, 8])], [value("y", [1, 3, 6, 6])], opset=7)


def a_recurrent_cell() -> onnx.ModelProto:
    nodes = [
        node("LSTM", ["x", "w", "r"], ["h", "last"], hidden_size=4, direction="bidirectional"),
        node("Transpose", ["h"], ["t"], perm=[0, 2, 1, 3]),
        node("Reshape", ["t", "shape"], ["y"]),
    ]
    weights = [weight("w", 2, 16, 3), weight("r", 2, 16, 4), ints("shape", 0, 0, -1)]
    return model(nodes, [value("x", ["T", 1, 3])], [value("y", ["T", 1, 8])], weights)


def a_namesake_of_an_output() -> onnx.ModelProto:
    """A node with the name of the output that a rewrite makes anew."""
    nodes = [
        node("MatMul", ["x", "w"], ["h"], name="first"),
        node("MatMul", ["h", "v"], ["y"], name="second"),
        node("Relu", ["y"], ["z"], name="y"),
    ]
    outputs = [value("y", [64, 4]), value("z", [64, 4])]
    return model(nodes, [value("x", [64, 16])], outputs, [weight("w", 16, 64), weight("v", 64, 4)])


def no_inputs() -> onnx.ModelProto:
    """Tables that a program reads from a model, and generators: there is nothing to feed."""
    nodes = [node("Cast", ["n"], ["h"], to=FLOAT), node("Mul", ["h", "w"], ["g"]), node("Relu", ["g"], ["y"])]
    return model(nodes, [], [value("y", [4])], [ints("n", 1, 2, 3, 4), weight("w", 4)])


def a_scalar_input() -> onnx.ModelProto:
    """An input of rank 0, which takes an axis away: of rank 1 it would leave one."""
    nodes = [node("Gather", ["x", "n"], ["h"], axis=1), node("MatMul", ["h", "w"], ["y"])]
    inputs = [value("x", [2, 3, 4]), value("n", [], INT64)]
    return model(nodes, inputs, [value("y", [2, 5])], [weight("w", 4, 5)])


FEATURES: list[Callable[[], onnx.ModelProto]] = [
    unnamed_dimensions, extents_known_when_it_runs, a_pad_that_reflects, initialisers_that_are_inputs, branches, a_loop,
    quantised, half_precision, a_tree_ensemble, fused_convolutions, an_experimental_operator, a_recurrent_cell,
    a_namesake_of_an_output, no_inputs, a_scalar_input,
]  # fmt: skip


def interface(built: onnx.ModelProto) -> list[bytes]:
    weights = {tensor.name for tensor in built.graph.initializer}
    infos = [*(info for info in built.graph.input if info.name not in weights), *built.graph.output]
    return [info.SerializeToString(deterministic=True) for info in infos]


def run(built: onnx.ModelProto) -> list[Any]:
    """Outputs on inputs of four for every open dimension, without the runtime's optimisations."""
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(built.SerializeToString(), options, providers=["CPUExecutionProvider"])
    rng = np.random.default_rng(1)
    feeds = {}
    for info in session.get_inputs():
        shape = [dim if isinstance(dim, int) else 4 for dim in info.shape]
        kind = {"tensor(float)": np.float32, "tensor(float16)": np.float16, "tensor(int64)": np.int64}[info.type]
        feeds[info.name] = np.asarray(rng.standard_normal(shape)).astype(kind)
    return list(session.run(None, feeds))


@pytest.mark.xdist_group("real-model-features")
@pytest.mark.parametrize("feature", FEATURES, ids=lambda feature: feature.__name__)
def test_the_default_command(feature: Callable[[], onnx.ModelProto], tmp_path: Path) -> None:
    source, target = feature(), tmp_path / "out.onnx"
    path = tmp_path / "in.onnx"
    onnx.save(source, path)
    rlflow.optimize(path, output=target, budget="1s", gate_seconds=0.5)
    written = onnx.load(target)
    onnx.checker.check_model(written)
    assert interface(written) == interface(source)
    for one, other in zip(run(source), run(written), strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-2 if one.dtype == np.float16 else 1e-4, atol=1e-5)


def test_an_operator_that_the_runtime_lacks_is_named(tmp_path: Path) -> None:
    quant = node("Quant", ["x"], ["h"], domain="onnx.brevitas")
    source = model([quant, node("Relu", ["h"], ["y"])], [value("x", [2])], [value("y", [2])], onnx_brevitas=1)
    with pytest.raises(errors.RuntimeRefused, match=r"the operator Quant of the domain onnx\.brevitas"):
        rlflow.optimize(source, output=tmp_path / "out.onnx", budget="1s")
    assert not (tmp_path / "out.onnx").exists()


def test_where_most_regions_have_no_price_whole_graphs_are_timed() -> None:
    report = rlflow.optimize(extents_known_when_it_runs(), budget="1s", gate_seconds=0.5).report
    assert report.cost_model == "end-to-end"
    assert any("regions have no price" in note and "whole graphs were timed" in note for note in report.notes)


def test_few_regions_without_a_price_are_counted() -> None:
    """One region of many: prices go on, and the report says how many there are none for."""
    nodes = [node("MatMul", [f"x{k}", "w"], [f"x{k + 1}"]) for k in range(8)]
    nodes += [node("NonZero", ["x8"], ["found"]), node("Cast", ["found"], ["y"], to=FLOAT)]
    built = model(nodes, [value("x0", [2, 8])], [value("y", [2, None])], [weight("w", 8, 8)])
    report = rlflow.optimize(built, budget="1s", gate_seconds=0.5).report
    assert report.cost_model == "onnxruntime"
    assert any("of 10 regions have no price" in note for note in report.notes), report.notes
