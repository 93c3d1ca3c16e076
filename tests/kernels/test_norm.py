"""LayerNormalization and its kin inside ONNX Runtime against the same in double precision, and in a model's company."""

from __future__ import annotations

import blocked_models as models
import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from rlflow.frontends.blocked import BlockedGraph
from rlflow.kernels import unavailable
from rlflow.runtime import inprocess

pytestmark = pytest.mark.skipif(unavailable() is not None, reason=str(unavailable()))

Values, Names = dict[str, np.ndarray], tuple[str, ...]
OPERATORS = {
    "LayerNormalization": ("", True, ("x", "scale", "shift")),
    "SimplifiedLayerNormalization": ("", False, ("x", "scale")),
    "SkipLayerNormalization": ("com.microsoft", True, ("x", "skip", "scale", "shift", "bias")),
    "SkipSimplifiedLayerNormalization": ("com.microsoft", False, ("x", "skip", "scale", "bias")),
}


def tensors(rows: tuple[int, ...], width: int, mean: float = 0.0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    found = {name: rng.standard_normal((*rows, width)) + mean for name in ("x", "skip")}
    found |= {name: rng.standard_normal(width) for name in ("shift", "bias")}
    found["scale"] = 1.0 + 0.2 * rng.standard_normal(width)
    return {name: value.astype(np.float32) for name, value in found.items()}


def normalised(operator: str, values: Values, names: Names, epsilon: float) -> tuple[np.ndarray, np.ndarray]:
    """The output and what was normalised, in double precision."""
    one = {name: values[name].astype(np.float64) if name in names else 0.0 for name in values}
    s = one["x"] + one["skip"] + one["bias"]
    centre = s.mean(-1, keepdims=True) if OPERATORS[operator][1] else 0.0
    root = np.sqrt(np.mean((s - centre) ** 2, -1, keepdims=True) + epsilon)
    return (s - centre) / root * one["scale"] + one["shift"], s


def model(operator: str, values: Values, names: Names, keeps_sum: bool, epsilon: float) -> bytes:
    """One node of ONNX Runtime's, with constant parameters."""
    domain, _, inputs = OPERATORS[operator]
    given_names = [name if name in names else "" for name in inputs]
    outputs = ["y", "", "", "s"] if keeps_sum else ["y"]
    node = helper.make_node(operator, given_names, outputs, name="norm", domain=domain, epsilon=epsilon)
    fed = [name for name in ("x", "skip") if name in names]
    graph = helper.make_graph(
        [node],
        "one",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, values[name].shape) for name in fed],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs if name],
        [numpy_helper.from_array(values[name], name) for name in names if name not in fed],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString()


def outputs_of(operator: str, values: Values, names: Names, **more) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """What the kernel gives, and the truth."""
    epsilon = more.get("epsilon", 1e-5)
    raw = model(operator, values, names, more.get("keeps_sum", False), epsilon)
    graph = BlockedGraph(raw, 0)
    (site,) = graph.sites()
    made = graph.with_kernels({site.name: more.get("tuning", {})})
    assert [node.op_type for node in onnx.ModelProto.FromString(made).graph.node] == ["RowNorm"]
    feeds = {name: values[name] for name in ("x", "skip") if name in names}
    found = models.opened(made, more.get("threads", 1)).run(None, feeds)
    return found, list(normalised(operator, values, names, epsilon))


def close(found: np.ndarray, truth: np.ndarray, bound: float) -> None:
    assert found.shape == truth.shape
    assert np.abs(found - truth).max(initial=0.0) <= bound * np.abs(truth).max(initial=1.0)


@pytest.mark.parametrize("width", [1, 7, 16, 65, 768, 1000])
@pytest.mark.parametrize("operator", list(OPERATORS))
def test_it_is_the_formula(operator: str, width: int) -> None:
    names = OPERATORS[operator][2]
    keeps = "skip" in names
    found, truth = outputs_of(operator, tensors((2, 5), width), names, keeps_sum=keeps, threads=2)
    close(found[0], truth[0], 1e-6)
    if keeps:
        close(found[1], truth[1], 2e-7)


@pytest.mark.parametrize("operator", list(OPERATORS))
def test_what_is_optional_may_be_missing(operator: str) -> None:
    names = tuple(name for name in OPERATORS[operator][2] if name not in ("shift", "bias"))
    found, truth = outputs_of(operator, tensors((3,), 96), names)
    close(found[0], truth[0], 1e-6)


@settings(max_examples=25, deadline=None)
@given(
    rows=st.lists(st.integers(0, 9), min_size=1, max_size=3),
    width=st.integers(1, 200),
    mean=st.sampled_from([0.0, 3.0, -50.0]),
    epsilon=st.sampled_from([1e-12, 1e-5, 1e-3]),
    task=st.sampled_from([0, 1, 2, 64]),
)
def test_any_rows_and_widths(rows: list[int], width: int, mean: float, epsilon: float, task: int) -> None:
    names = OPERATORS["LayerNormalization"][2]
    values = tensors(tuple(rows), width, mean)
    found, truth = outputs_of("LayerNormalization", values, names, epsilon=epsilon, threads=2, tuning={"rows": task})
    # A row of one value is all rounding error where epsilon is nothing, so its inputs' own error counts.
    if width > 1:
        close(found[0], truth[0], 2e-6 * (1 + abs(mean)) * (1 if width > 4 else 100))


def test_what_is_added_may_be_fewer_rows() -> None:
    values = tensors((4, 6), 32)
    values["skip"] = values["skip"][:1]
    names = OPERATORS["SkipLayerNormalization"][2]
    found, truth = outputs_of("SkipLayerNormalization", values, names)
    close(found[0], truth[0], 1e-6)


@pytest.mark.parametrize(
    "change",
    [
        {"axis": 1},
        {"outputs": ["y", "mean"]},
        {"scale": "an input"},
    ],
)
def test_what_the_kernel_cannot_do_is_no_site(change: dict) -> None:
    raw = model("LayerNormalization", tensors((2, 3), 8), ("x", "scale", "shift"), False, 1e-5)
    proto = onnx.ModelProto.FromString(raw)
    node = proto.graph.node[0]
    if "axis" in change:
        node.attribute.append(helper.make_attribute("axis", change["axis"]))
    if "outputs" in change:
        node.output.append("mean")
        proto.graph.output.append(helper.make_tensor_value_info("mean", TensorProto.FLOAT, None))
    if "scale" in change:
        proto.graph.input.append(helper.make_tensor_value_info("scale", TensorProto.FLOAT, [8]))
    assert BlockedGraph(proto.SerializeToString(), 0).sites() == []


def test_what_a_node_may_not_say_is_refused() -> None:
    graph = BlockedGraph(model("LayerNormalization", tensors((2, 3), 8), ("x", "scale", "shift"), False, 1e-5), 0)
    with pytest.raises(Exception, match="a task of -1 rows"):
        models.opened(graph.with_kernels({"norm": {"rows": -1}}))


def test_shapes_that_do_not_fit_are_refused() -> None:
    raw = model("SkipLayerNormalization", tensors((2, 3), 8), ("x", "skip", "scale", "shift"), False, 1e-5)
    proto = onnx.ModelProto.FromString(BlockedGraph(raw, 0).with_kernels({"norm": {}}))
    for value in proto.graph.input:
        value.type.tensor_type.ClearField("shape")
    session = models.opened(proto.SerializeToString())
    with pytest.raises(Exception, match="does not fill the last axes"):
        session.run(None, {"x": np.ones((2, 3, 7), np.float32), "skip": np.ones((2, 3, 7), np.float32)})
    with pytest.raises(Exception, match="another size than the rows"):
        session.run(None, {"x": np.ones((2, 3, 8), np.float32), "skip": np.ones((2, 2, 8), np.float32)})


def test_the_runtime_s_own_graph_has_such_sites() -> None:
    """x + y, normalised by a chain of plain operators, as exporters write it."""
    rng = np.random.default_rng(1)
    width = 64
    nodes = [
        helper.make_node("Add", ["x", "s"], ["a"]),
        helper.make_node("ReduceMean", ["a"], ["m"], axes=[-1]),
        helper.make_node("Sub", ["a", "m"], ["d"]),
        helper.make_node("Pow", ["d", "two"], ["p"]),
        helper.make_node("ReduceMean", ["p"], ["v"], axes=[-1]),
        helper.make_node("Add", ["v", "e"], ["ve"]),
        helper.make_node("Sqrt", ["ve"], ["r"]),
        helper.make_node("Div", ["d", "r"], ["n"]),
        helper.make_node("Mul", ["n", "g"], ["ng"]),
        helper.make_node("Add", ["ng", "b"], ["y"]),
    ]
    numbers = {"two": np.float32(2), "e": np.float32(1e-5)}
    numbers |= {name: rng.standard_normal(width).astype(np.float32) for name in "gb"}
    graph = helper.make_graph(
        nodes,
        "chain",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 5, width]) for name in "xs"],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 5, width])],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in numbers.items()],
    )
    raw = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8).SerializeToString()
    found = BlockedGraph(inprocess.optimised(raw), 0)
    (site,) = found.sites()
    assert (site.kind, site.sizes) == ("norm", (width, 1, 1))
    feeds = {name: rng.standard_normal((2, 5, width)).astype(np.float32) for name in "xs"}
    (expected,) = models.opened(raw).run(None, feeds)
    (with_kernel,) = models.opened(found.with_kernels({site.name: {}})).run(None, feeds)
    close(with_kernel, expected, 1e-6)
