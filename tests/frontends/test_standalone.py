"""Core graphs as models of their own, and ONNX's reference evaluator over them."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from model_tools import BOOL, model, random, run, value
from onnx import helper

from rlflow.errors import GraphError
from rlflow.frontends import ConstantStore, evaluate, graph_to_model, load_model
from rlflow.frontends.folding import Folder
from rlflow.frontends.reference import evaluate_node
from rlflow.graph import Graph


def parse(*lines: str) -> Graph:
    return Graph.parse("\n".join(lines))


def test_unknown_constants_are_seeded_by_digest() -> None:
    first = parse("x: f32[2,64] = input", "w: f32[64,90] = const", "y = MatMul(x, w)", "return y")
    second = parse(
        "x: f32[2,90] = input", "w: f32[64,90] = const", "t = Transpose{perm=[1,0]}(w)", "y = MatMul(x, t)", "return y"
    )
    one, two = (graph_to_model(graph).graph.initializer[0].raw_data for graph in (first, second))
    assert one == two, "the same constant has the same elements in every graph"
    assert graph_to_model(first, seed=1).graph.initializer[0].raw_data != one
    weights = np.frombuffer(one, np.float32)
    assert weights.std() == pytest.approx(1 / 8, rel=0.05), "scaled by fan-in"


def test_facts_and_variances_bound_random_constants() -> None:
    digest = "0123456789abcdef" * 2
    graph = parse(
        "x: f32[1,2000,2,2] = input",
        f"s: f32[2000] = const @{digest} min=2 max=3 finite",
        f"b: f32[2000] = const @{digest[::-1]} min=-1 max=1 uniform finite",
        "v: f32[2000] = const",
        "y = BatchNormalization(x, s, b, b, v)",
        "return y",
    )
    arrays = {item.name: onnx.numpy_helper.to_array(item) for item in graph_to_model(graph).graph.initializer}
    scale, bias, variance = arrays.values()
    assert scale.min() >= 2
    assert scale.max() <= 3
    assert set(bias.tolist()) == {-1.0}
    assert variance.min() > 0


def test_outputs_that_are_inputs_or_twice_the_same() -> None:
    graph = parse("x: f32[3] = input", "y = Relu(x)", "return x, y, y")
    built = graph_to_model(graph)
    onnx.checker.check_model(built, full_check=True)
    found = run(built, {"x": random(3)})
    np.testing.assert_array_equal(found[0], random(3))
    np.testing.assert_array_equal(found[1], found[2])


def test_names_of_inputs_never_clash() -> None:
    graph = parse(
        "output_0: f32[3] = input",
        "rlflow_Relu_0: f32[3] = input",
        "a = Relu(output_0)",
        "y = Add(a, rlflow_Relu_0)",
        "return y",
    )
    built = graph_to_model(graph)
    feeds = {"output_0": random(3), "rlflow_Relu_0": random(3, seed=1)}
    np.testing.assert_allclose(run(built, feeds)[0], np.maximum(feeds["output_0"], 0) + feeds["rlflow_Relu_0"])


def test_a_shape_over_two_symbols_is_computed() -> None:
    """Rules may ask for more than ONNX's 0 and -1 can say; then the dimensions come from the inputs."""
    from rlflow.frontends.emitter import Emitter, UniqueNames

    graph = parse("x: f32[N,S] = input", "y = Relu(x)", "return y")
    emitter = Emitter(graph, 17, UniqueNames())
    emitter.value_names = {graph.node_outputs(graph.inputs()[0])[0]: "x"}
    name = emitter.dims(["N*S+2", 7, "S"])
    body = helper.make_graph(
        emitter.nodes, "dims", [value("x", ["N", "S"])], [value(name, [3], 7)], emitter.initializers
    )
    built = helper.make_model(body, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    assert run(built, {"x": random(3, 5)})[0].tolist() == [17, 7, 5]


@pytest.mark.parametrize(
    ("batch", "operators", "constants"),
    [
        ("N", ["Shape", "Shape", "Mul", "Concat", "Reshape"], [[8], [4]]),  # [0, 8, -1] fails where N is 0
        ("2*N", ["Reshape"], [[0, 8, -1]]),  # N is no input's extent, so it cannot be computed
    ],
)
def test_a_folded_shape_is_computed_where_the_inputs_have_its_extents(
    batch: str, operators: list[str], constants: list[list[int]]
) -> None:
    graph = parse(f"x: f32[{batch},8,H,4] = input", f"y = Reshape{{shape=[{batch},8,H*4]}}(x)", "return y")
    written = graph_to_model(graph)
    assert [node.op_type for node in written.graph.node] == operators
    assert [onnx.numpy_helper.to_array(item).tolist() for item in written.graph.initializer] == constants
    assert run(written, {"x": random(2, 8, 3, 4)})[0].shape == (2, 8, 12)


def test_opaque_nodes_need_their_originals() -> None:
    branch = helper.make_graph([helper.make_node("Neg", ["x"], ["t"])], "branch", [], [value("t", None)])
    nodes = [helper.make_node("If", ["c"], ["y"], name="if", then_branch=branch, else_branch=branch)]
    imported = load_model(model(nodes, [value("x", [3]), value("c", [], BOOL)], [value("y", [3])]))
    built = graph_to_model(imported.graph, imported.constants)
    np.testing.assert_array_equal(run(built, {"x": random(3), "c": np.array(True)})[0], -random(3))
    with pytest.raises(GraphError, match=r"opaque node \d+ \(If\) is not known"):
        graph_to_model(imported.graph)


def test_double_precision() -> None:
    graph = parse("x: f32[1,3] = input", "w: f32[3,1] = const [1.0,1.0,-1.0]", "y = MatMul(x, w)", "return y")
    feeds = {"x": np.array([[1e8, 1.0, 1e8]], np.float32)}
    assert evaluate(graph, feeds, dtype=np.float64)[0].tolist() == [[1.0]]
    assert evaluate(graph, feeds)[0].dtype == np.float32
    with pytest.raises(GraphError, match="expected float64"):
        evaluate(graph, feeds, dtype=np.float16)


def test_double_precision_of_casts_and_generators() -> None:
    lines = ["x: f32[2] = input", "h = Cast{to=10}(x)", "s: i64[1] = const [2]", "z = ConstantOfShape{value=0.1}(s)"]
    graph = parse(*lines, "w = Cast{to=1}(h)", "y = Add(w, z)", "return y")
    (found,) = evaluate(graph, {"x": np.array([0.1, 1 / 3])}, dtype=np.float64)
    np.testing.assert_allclose(found, [0.1 + float(np.float32(0.1)), 1 / 3 + float(np.float32(0.1))], rtol=1e-12)


def test_what_the_evaluator_cannot_run_is_said() -> None:
    graph = parse("x: f32[2,3] = input", "w: f32[3,4] = input", "y = MatMul(x, w)", "return y")
    with pytest.raises(GraphError, match="reference evaluator"):
        evaluate(graph, {"x": random(2, 3), "w": random(4, 4)})


def test_what_is_only_moved_is_not_widened(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = parse(
        "a: f32[2,2] = const [0.1, 0.2, 0.3, 0.4]",
        "b: f32[2,2] = const [3.0, 5.0, 7.0, 9.0]",
        "t = Transpose{perm=[1,0]}(a)",
        "p = MatMul(t, b)",
        "y = Concat{axis=0}(t, p)",
        "return t, y",
    )
    folder, seen = Folder(graph, ConstantStore()), []

    def evaluated(graph: Any, node: int, operands: Any, constants: Any = None) -> Any:
        seen.append((graph.op(node), sorted(str(one.dtype) for one in operands.values())))
        return evaluate_node(graph, node, operands, constants)

    monkeypatch.setattr("rlflow.frontends.reference.evaluate_node", evaluated)
    moved, joined = (folder.folded(value) for value in graph.outputs())
    a, b = np.float32([[0.1, 0.2], [0.3, 0.4]]), np.float32([[3, 5], [7, 9]])
    np.testing.assert_array_equal(moved, a.T)
    exact = a.T.astype(np.float64) @ b
    np.testing.assert_array_equal(joined, np.concatenate([a.T, exact.astype(np.float32)]))
    assert moved.dtype == joined.dtype == np.float32
    assert dict(seen) == {
        "Transpose": ["float32"],
        "MatMul": ["float64", "float64"],
        "Concat": ["float32", "float64"],
    }


ODD = [0.0, -0.0, 1.0, -2.5, 1e300, -1e-310, np.inf, -np.inf, np.nan]


@pytest.mark.parametrize("op", ["Add", "Div", "Mul", "Neg", "Reciprocal", "Sqrt", "Sub"])
@pytest.mark.parametrize("shapes", [((9,), (9,)), ((9, 1), (9,)), ((), (9, 1))])
def test_plain_arithmetic_is_folded_as_onnx_evaluates_it(
    op: str, shapes: tuple[tuple[int, ...], ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ["a"] if op in ("Neg", "Reciprocal", "Sqrt") else ["a", "b"]
    lines = [f"{name}: f64{list(shape)} = input" for name, shape in zip(names, shapes, strict=False)]
    graph = parse(*lines, f"y = {op}({', '.join(names)})", "return y")
    arrays = [np.resize(ODD, shape) for shape in shapes]
    operands = {graph.node_outputs(node)[0]: array for node, array in zip(graph.inputs(), arrays, strict=False)}
    node = graph.producer(graph.outputs()[0])
    (wanted,) = evaluate_node(graph, node, operands)
    monkeypatch.delattr("rlflow.frontends.reference.evaluate_node")
    (found,) = Folder(graph, ConstantStore())._results(node, operands)
    assert (np.shape(found), np.asarray(found).tobytes()) == (wanted.shape, wanted.tobytes())


@pytest.mark.parametrize(
    ("line", "shape"),
    [("Reshape{shape=[2,-1]}(a)", (2, 3)), ("Unsqueeze{axes=[0,2]}(a)", (1, 6, 1)), ("Flatten{axis=0}(a)", (1, 6))],
)
def test_views_are_folded_without_onnx(line: str, shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("rlflow.frontends.reference.evaluate_node")
    graph = parse("a: f32[6] = const [1.0,2.0,3.0,4.0,5.0,6.0]", f"y = {line}", "return y")
    found = Folder(graph, ConstantStore()).folded(graph.outputs()[0])
    np.testing.assert_array_equal(found, np.arange(1, 7, dtype=np.float32).reshape(shape))


def test_folding_rounds_casts_and_the_end_only() -> None:
    graph = parse(
        "a: f32[1] = const [0.1]",
        "b: f32[1] = const [3.0]",
        "p = Mul(a, b)",
        "h = Cast{to=10}(p)",
        "y = Cast{to=1}(h)",
        "return p, y",
    )
    folder = Folder(graph, ConstantStore())
    product = float(np.float32(0.1)) * 3.0
    assert folder.folded(graph.outputs()[0])[0] == np.float32(product)
    assert folder.folded(graph.outputs()[1])[0] == np.float32(np.float16(product))
