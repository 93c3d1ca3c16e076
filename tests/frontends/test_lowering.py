"""A model whose pools the runtime computes slowly is written for the last opset before that."""

from __future__ import annotations

from typing import Any

import model_tools as tools
import numpy as np
import onnx
import pytest
from onnx import helper

from rlflow.frontends import load_model, save_model
from rlflow.frontends.lowering import faster_opset
from rlflow.graph import Graph

FEEDS = {"x": tools.random(1, 6, 8, 8)}


def pool(channels: int = 6, opset: int = 20, size: int = 2, **attributes: Any) -> onnx.ModelProto:
    """A pool over ``size`` axes; the nodes before and behind it were changed by opset 19 or 20, too."""
    shape = [1, channels, *[8] * size]
    nodes = [
        helper.make_node("Cast", ["x"], ["c"], "cast", to=onnx.TensorProto.FLOAT),
        helper.make_node("Relu", ["c"], ["r"], "relu"),
        helper.make_node("AveragePool", ["r"], ["p"], "pool", **{"kernel_shape": [3] * size, **attributes}),
        helper.make_node("Reshape", ["p", "flat"], ["y"], "flatten"),
    ]
    return tools.model(
        nodes, [tools.value("x", shape)], [tools.value("y", [1, "n"])], {"flat": np.array([1, -1])}, opset, ir_version=9
    )


def with_node(op: str, opset: int = 20) -> onnx.ModelProto:
    built = pool(opset=opset)
    built.graph.node.append(helper.make_node(op, ["y"], ["z"], "last"))
    built.graph.output[0].name = "z"
    return built


def with_branch() -> onnx.ModelProto:
    built = pool()
    bodies = {
        name: helper.make_graph([helper.make_node("Neg", ["y"], [name])], name, [], [tools.value(name, None)])
        for name in ("then", "else")
    }
    branch = helper.make_node("If", ["b"], ["z"], "if", then_branch=bodies["then"], else_branch=bodies["else"])
    built.graph.node.append(branch)
    built.graph.input.append(tools.value("b", [], tools.BOOL))
    built.graph.output[0].name = "z"
    return built


def before_pool(op: str, extra: str, value: np.ndarray, **attributes: Any) -> onnx.ModelProto:
    """The pool of the result of an operator that takes one more operand, ``value``."""
    built = pool()
    node = helper.make_node(op, ["x", *(["", ""] if op == "Resize" else []), extra], ["c"], "first", **attributes)
    built.graph.node[0].CopyFrom(node)
    built.graph.initializer.append(tools.tensor(extra, value))
    return built


def with_padding(mode: str) -> onnx.ModelProto:
    return before_pool("Pad", "pads", np.array([0, 0, 1, 1, 0, 0, 1, 1]), mode=mode)


def with_resize(mode: str) -> onnx.ModelProto:
    sizes = np.array([1, 6, 12, 12])
    return before_pool("Resize", "sizes", sizes, mode="linear", coordinate_transformation_mode=mode)


@pytest.mark.parametrize(
    ("built", "expected"),
    [
        (pool(), 18),
        (pool(opset=22), 18),
        (pool(count_include_pad=1, pads=[1, 1, 1, 1], strides=[2, 2], ceil_mode=1), 18),
        (pool(size=1), 18),
        (pool(channels=32), None),  # it becomes part of the blocked layout
        (pool(opset=18), None),
        (pool(dilations=[2, 2]), None),  # which opset 18 has not
        (with_node("Gelu"), None),
        (with_node("HardSwish"), 18),
        (with_branch(), None),  # its bodies are carried as they are
        (with_padding("reflect"), 18),
        (with_padding("wrap"), None),
        (with_resize("half_pixel"), 18),
        (with_resize("half_pixel_symmetric"), None),
    ],
)
def test_the_opset_that_is_faster(built: onnx.ModelProto, expected: int | None) -> None:
    assert faster_opset(load_model(built)) == expected


@pytest.mark.parametrize("ceil_mode", [0, 1])
@pytest.mark.parametrize("pads", [[0, 0, 0, 0], [1, 1, 1, 1], [0, 1, 1, 0]])
@pytest.mark.parametrize("counted", [0, 1])
def test_it_computes_the_same(counted: int, pads: list[int], ceil_mode: int) -> None:
    built = pool(count_include_pad=counted, pads=pads, ceil_mode=ceil_mode, strides=[2, 3])
    imported = load_model(built)
    written = save_model(imported, imported.graph, opset=faster_opset(imported))
    onnx.checker.check_model(written, full_check=True)
    assert [entry.version for entry in written.opset_import] == [18]
    assert tools.node_names(written) == tools.node_names(built)
    for ours, theirs in zip(tools.run(written, FEEDS), tools.run(built, FEEDS), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-6)


def test_a_rewrite_that_needs_the_newer_opset_keeps_it() -> None:
    imported = load_model(pool())
    text = imported.graph.text()
    pooled = next(line.split(" = ")[0].split(":")[0] for line in text.splitlines() if "= Reshape" in line)
    rewritten = Graph.parse(text.replace(f"return {pooled}", f"g = Gelu({pooled})\nreturn g"))
    written = save_model(imported, rewritten, opset=faster_opset(imported))
    assert [entry.version for entry in written.opset_import] == [20]
    assert "Gelu" in [node.op_type for node in written.graph.node]
