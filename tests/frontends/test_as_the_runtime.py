"""Where ONNX's text, its shape inference and the runtime disagree, what is written does what the runtime did."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from model_tools import BOOL, INT64, model, random, run, tensor, value
from onnx import helper

from rlflow import simplify
from rlflow.frontends.exporter import save_model
from rlflow.frontends.importer import load_model

node = helper.make_node
LARGEST = 2**63 - 1


def shape_of(made: onnx.NodeProto, *dims: int, opset: int = 17, rank: int = 0, **constants: Any) -> onnx.ModelProto:
    """A model whose output is the shape of what a node makes of ``x``, so that shape arithmetic folds it."""
    nodes = [made, node("Shape", ["t"], ["y"])]
    return model(nodes, [value("x", dims)], [value("y", [rank or len(dims)], INT64)], constants, opset=opset)


def squeeze_of_none() -> onnx.NodeProto:
    made = node("Squeeze", ["x"], ["t"])
    made.attribute.append(helper.make_attribute("axes", [], attr_type=onnx.AttributeProto.INTS))
    return made


WINDOWED = {"kernel_shape": [3], "dilations": [2], "auto_pad": "SAME_UPPER"}
SHAPES = {
    "no axes to squeeze are all": shape_of(
        node("Squeeze", ["x", "a"], ["t"]), 2, 1, 3, rank=2, a=np.array([], np.int64)
    ),
    "no axes to squeeze are all, opset 11": shape_of(squeeze_of_none(), 2, 1, 3, rank=2, opset=11),
    "a spectrum has one side": shape_of(
        node("STFT", ["x", "step", "", "length"], ["t"]), 1, 33, 1, rank=4, step=np.int64(4), length=np.int64(8)
    ),
    "a transposed window below its stride": shape_of(
        node("ConvTranspose", ["x", "w"], ["t"], strides=[2], auto_pad="SAME_UPPER"), 1, 2, 5, w=random(2, 2, 1)
    ),
}


@pytest.mark.parametrize("name", SHAPES)
def test_shapes_are_folded_to_what_the_runtime_computes(name: str) -> None:
    source = SHAPES[name]
    feeds = {"x": random(*(dim.dim_value for dim in source.graph.input[0].type.tensor_type.shape.dim))}
    [expected], [found] = run(source, feeds), run(simplify(source, verify=False), feeds)
    assert found.tolist() == expected.tolist()


@pytest.mark.parametrize(
    ("made", "dims", "opset", "constants"),
    [
        (node("MaxPool", ["x"], ["t"], **WINDOWED), (1, 2, 9), 17, {}),
        (node("LpPool", ["x"], ["t"], **WINDOWED), (1, 2, 9), 18, {}),
        (node("AveragePool", ["x"], ["t"], kernel_shape=[4, 1], strides=[4, 3], ceil_mode=1), (1, 2, 2, 2), 12, {}),
    ],
)
def test_windows_that_runtimes_disagree_about_are_carried_as_they_are(
    made: onnx.NodeProto, dims: Sequence[int], opset: int, constants: dict[str, Any]
) -> None:
    """The runtime's own shape inference and its kernels give two extents: none is believed."""
    imported = load_model(shape_of(made, *dims, opset=opset, **constants))
    graph = imported.graph
    [carried] = [one for one in graph.order() if graph.op(one) == "Opaque"]
    assert graph.shape(graph.node_outputs(carried)[0]) == [None] * len(dims)
    assert [one.op_type for one in save_model(imported, graph).graph.node] == [made.op_type, "Shape"]


def test_backwards_to_the_largest_integer_is_to_the_beginning() -> None:
    """ONNX clips that end to the last element, which leaves nothing; the runtime takes all."""
    bounds = {name: np.array([number]) for name, number in (("s", -1), ("e", LARGEST), ("a", 0), ("p", -1))}
    nodes = [node("Shape", ["x"], ["shape"]), node("Slice", ["shape", *bounds], ["y"])]
    source = model(nodes, [value("x", [2, 3])], [value("y", [None], INT64)], bounds)
    assert run(source, {"x": random(2, 3)})[0].tolist() == [3, 2]
    assert run(simplify(source, verify=False), {"x": random(2, 3)})[0].tolist() == [3, 2]


def flattened(*parts: str | int) -> onnx.ModelProto:
    """``x[N,8,H,W]`` as the shape that the parts say: a product of its own extents by their letters, or a number."""
    nodes, names = [node("Shape", ["x"], ["s"])], []
    constants: dict[str, Any] = {f"i{place}": np.array([place]) for place in range(4)}
    for part in parts:
        if isinstance(part, int):
            constants[f"k{part}"] = np.array([part])
            names.append(f"k{part}")
            continue
        nodes += [node("Gather", ["s", f"i{'NCHW'.index(letter)}"], [f"{part}_{letter}"]) for letter in part]
        names.append(f"{part}_{part[0]}")
        for letter in part[1:]:
            nodes.append(node("Mul", [names[-1], f"{part}_{letter}"], [f"{part}_up_to_{letter}"]))
            names[-1] = f"{part}_up_to_{letter}"
    nodes += [node("Concat", names, ["to"], axis=0), node("Reshape", ["x", "to"], ["y"])]
    return model(nodes, [value("x", ["N", 8, "H", "W"])], [value("y", [None] * len(parts))], constants)


@pytest.mark.parametrize("opset", [13, 17])
@pytest.mark.parametrize("parts", [("N", 8, "HW"), ("N", "CH", "W"), ("N", "C", "HW"), ("NC", "H", "W"), ("NCHW",)])
def test_an_empty_batch_is_still_reshaped(parts: tuple[str | int, ...], opset: int) -> None:
    """``[0, 8, -1]`` says the same but for N = 0, which the runtime refuses."""
    source = flattened(*parts)
    source.opset_import[0].version = opset
    simplified = simplify(source, verify=False)
    assert len(simplified.graph.node) <= len(source.graph.node)
    for batch in (2, 0):
        [expected], [found] = (run(one, {"x": random(batch, 8, 3, 4)}) for one in (source, simplified))
        assert found.shape == expected.shape


def test_of_two_initialisers_with_one_name_the_first_is_written() -> None:
    first, second = tensor("w", random(3, 2, 3, 3)), tensor("w", random(3, 2, 3, 3, seed=1))
    source = model([node("Conv", ["x", "w"], ["y"])], [value("x", [1, 2, 5, 5])], [value("y", [1, 3, 3, 3])])
    source.graph.initializer.extend([first, second])
    imported = load_model(source)
    assert [one.raw_data for one in save_model(imported, imported.graph).graph.initializer] == [first.raw_data]


# -- names of bodies


def loop(captured: Sequence[str], own: str = "") -> onnx.NodeProto:
    """A loop that carries ``x`` and adds up what it captures; ``own``: how its state is called inside."""
    state = own or "state"
    nodes = [node("Add", [state, captured[0]], ["sum0"])]
    nodes += [node("Add", [f"sum{k}", name], [f"sum{k + 1}"]) for k, name in enumerate(captured[1:])]
    nodes.append(node("Identity", ["go"], ["on"]))
    inputs = [value("step", [], INT64), value("go", [], BOOL), value(state, [2, 3])]
    outputs = [value("on", [], BOOL), value(f"sum{len(captured) - 1}", [2, 3])]
    return node("Loop", ["times", "", "x"], ["y"], body=helper.make_graph(nodes, "body", inputs, outputs))


THRICE = {"times": np.int64(3)}
A_B = [node("Abs", ["x"], ["A"]), node("Identity", ["A"], ["B"])]
TWO_ABS = [node("Abs", ["x"], ["A"]), node("Abs", ["x"], ["B"]), node("Neg", ["A"], ["n"])]


@pytest.mark.parametrize(
    ("before", "outputs", "constants"),
    [
        pytest.param(A_B, {"y": [2, 3]}, THRICE, id="behind an Identity"),
        pytest.param(TWO_ABS, {"y": [2, 3], "n": [2, 3]}, THRICE, id="of two equal nodes"),
        pytest.param(A_B, {"y": [2, 3], "A": [2, 3]}, THRICE, id="of an output"),
        pytest.param(
            [node("Add", ["x", "A"], ["n"])],
            {"y": [2, 3], "n": [2, 3]},
            {**THRICE, "A": random(2, 3), "B": random(2, 3)},
            id="of two equal initialisers",
        ),
    ],
)
def test_a_captured_value_is_not_renamed_to_what_a_body_owns(
    before: Sequence[onnx.NodeProto], outputs: dict[str, list[int]], constants: dict[str, Any]
) -> None:
    """The body has a state ``A`` and captures ``B``, which is the outer ``A`` under another name."""
    listed = [value(name, shape) for name, shape in outputs.items()]
    source = model([*before, loop(["B"], own="A")], [value("x", [2, 3])], listed, constants)
    feeds = {"x": random(2, 3)}
    written = simplify(source, verify=False)
    onnx.checker.check_model(written, full_check=True)
    for expected, found in zip(run(source, feeds), run(written, feeds), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_a_body_within_a_body_owns_names_too() -> None:
    branches = {
        "then_branch": helper.make_graph([loop(["B"], own="A")], "then", [], [value("y", [2, 3])]),
        "else_branch": helper.make_graph([node("Neg", ["B"], ["z"])], "else", [], [value("z", [2, 3])]),
    }
    nodes = [*A_B, node("ReduceMax", ["x"], ["most"], keepdims=0), node("Greater", ["most", "limit"], ["large"])]
    nodes.append(node("If", ["large"], ["out"], **branches))
    constants = {**THRICE, "limit": np.float32(10)}
    source = model(nodes, [value("x", [2, 3])], [value("out", [2, 3])], constants)
    written = simplify(source, verify=False)
    for factor in (1, 100):
        feeds = {"x": np.abs(random(2, 3)) * np.float32(factor) + np.float32(factor / 5)}
        [expected], [found] = run(source, feeds), run(written, feeds)
        np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_a_file_without_the_default_domain_gets_it_with_the_first_node_of_it() -> None:
    """Two equal nodes of another domain are merged, and one of their outputs is copied by an Identity."""
    nodes = [node("Normalizer", ["x"], [name], domain="ai.onnx.ml", norm="L2") for name in ("y", "z")]
    outputs = [value("y", [2, 3]), value("z", [2, 3])]
    source = model(nodes, [value("x", [2, 3])], outputs, more_opsets=[helper.make_opsetid("ai.onnx.ml", 3)])
    del source.opset_import[0]
    written = simplify(source, verify=False)
    onnx.checker.check_model(written)
    assert {one.domain: one.version for one in written.opset_import} == {"ai.onnx.ml": 3, "": 15}
    for expected, found in zip(run(source, {"x": random(2, 3)}), run(written, {"x": random(2, 3)}), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-6)


def constant_of_wrong_kind() -> onnx.NodeProto:
    made = node("Constant", [], ["k"])
    made.attribute.append(helper.make_attribute("value_ints", tensor("v", np.float32(1))))
    return made


@pytest.mark.parametrize(
    ("made", "opset"),
    [
        (node("Pad", ["x"], ["k"]), 10),
        (node("TopK", ["x"], ["k", "places"]), 9),
        (node("Dropout", ["x", "", "nothing"], ["k"]), 17),
        (node("Resize", ["x", "", "texts"], ["k"]), 13),
        (constant_of_wrong_kind(), 17),
    ],
)
def test_a_node_without_what_its_operator_needs_is_carried_as_it_is(made: onnx.NodeProto, opset: int) -> None:
    """The runtime says what it thinks of it, and a note that the importer did not understand it."""
    constants = {"nothing": np.zeros(0, bool), "texts": np.array(["a", "b"], dtype=object)}
    used = {name: array for name, array in constants.items() if name in made.input}
    imported = load_model(model([made], [value("x", [2, 3])], [value("k", None)], used, opset=opset))
    assert save_model(imported, imported.graph).graph.node[0] == made
    assert made.op_type == "Constant" or any("are not those of its operator" in note for note in imported.notes)
