"""Saving a graph that rules have changed: names of the file, folded constants, provenance, captured values,
inexpressible operators.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from model_tools import BOOL, model, node_names, random, run, value
from onnx import helper, numpy_helper

from rlflow._core import Rule, RuleSet, State
from rlflow.errors import GraphError
from rlflow.frontends import baseline, expressible, load_model, save_model
from rlflow.frontends.imported import ImportedModel
from rlflow.graph import Graph

REASSOCIATE = Rule(
    "reassociate", ["(MatMul (MatMul ?x ?a) ?b)"], ["(MatMul ?x (MatMul ?a ?b))"], ["constant(?a)", "constant(?b)"]
)
RELU_TWICE = Rule("relu-twice", ["(Relu (Relu ?x))"], ["(Relu ?x)"])
NEG_TWICE = Rule("neg-twice", ["(Neg (Neg ?x))"], ["?x"])
COMMUTE = Rule("commute", ["(Exp (Relu ?x))"], ["(Max (Exp ?x) (Literal{value=1.0, like=?x}))"])
MERGE = Rule(
    "merge",
    ["(MatMul ?x ?a)", "(MatMul ?x ?b)"],
    ["(Split{axis=rank($0)-1, split=[dim(?a,1), dim(?b,1)]} (MatMul ?x (Concat{axis=1} ?a ?b))):*"],
    ["constant(?a)", "constant(?b)", "rank(?a) == 2", "rank(?b) == 2"],
)


def rewrite(imported: ImportedModel, rule: Rule) -> Graph:
    """The first graph that ``rule`` makes of the model's."""
    state = State(imported.graph, RuleSet([rule]))
    assert len(state.moves()), imported.graph.text()
    return state.child(0)


def saved(source: onnx.ModelProto, rule: Rule, **options: object) -> onnx.ModelProto:
    imported = load_model(source)
    built = save_model(imported, rewrite(imported, rule), **options)  # type: ignore[arg-type]
    onnx.checker.check_model(built, full_check=True)
    return built


def chain() -> onnx.ModelProto:
    nodes = [
        helper.make_node("MatMul", ["x", "a"], ["h"], name="first"),
        helper.make_node("MatMul", ["h", "b"], ["y"], name="second", doc_string="was the last"),
        helper.make_node("Relu", ["y"], ["z"], name="act"),
    ]
    weights = {"a": random(4, 5), "b": random(5, 3, seed=1)}
    built = model(nodes, [value("x", ["N", 4])], [value("z", ["N", 3])], weights, ir_version=10)
    built.graph.value_info.extend([value("h", ["N", 5]), value("y", ["N", 3])])
    return built


def test_constants_are_folded_in_double_precision_and_rounded_once() -> None:
    source = chain()
    built = saved(source, REASSOCIATE)
    assert [item.name for item in built.graph.initializer] == ["rlflow_folded_0"]
    exact = random(4, 5).astype(np.float64) @ random(5, 3, seed=1).astype(np.float64)
    np.testing.assert_array_equal(numpy_helper.to_array(built.graph.initializer[0]), exact.astype(np.float32))
    feeds = {"x": random(2, 4, seed=2)}
    np.testing.assert_allclose(run(built, feeds)[0], run(source, feeds)[0], rtol=1e-5, atol=1e-6)


def test_a_new_node_does_not_take_the_name_of_a_node_of_the_file() -> None:
    """A new node is named after its output; dtln_2 has a Conv of that name, and the runtime refused the result."""
    source = chain()
    source.graph.output[0].name = "y"
    source.graph.output.append(value("z", ["N", 3]))
    source.graph.node[2].name = "y"
    built = saved(source, REASSOCIATE)
    assert node_names(built) == ["rlflow_node_0", "y"]
    assert [list(node.output) for node in built.graph.node] == [["y"], ["z"]]


def test_a_folded_constant_asks_for_the_format_that_allows_it() -> None:
    """Before version 4 of the format every initialiser is listed among the inputs, and the runtime insists on it."""
    source = chain()
    source.ir_version, source.opset_import[0].version = 3, 8
    weights = [helper.make_node("Constant", [], [t.name], value=t) for t in source.graph.initializer]
    nodes = [*weights, *source.graph.node]
    del source.graph.initializer[:], source.graph.node[:]
    source.graph.node.extend(nodes)
    built = saved(source, REASSOCIATE)
    assert [item.name for item in built.graph.initializer] == ["rlflow_folded_0"]
    assert built.ir_version == 4


def test_namesakes_of_the_file_are_parted() -> None:
    source = chain()
    for node in source.graph.node:
        node.name = "layer"
    assert node_names(saved(source, REASSOCIATE)) == ["rlflow_MatMul_0", "layer"]
    assert node_names(baseline(load_model(source))) == ["layer", "rlflow_node_0", "rlflow_node_1"]


def test_untouched_nodes_keep_their_names_and_new_ones_get_theirs() -> None:
    built = saved(chain(), REASSOCIATE)
    assert node_names(built) == ["rlflow_MatMul_0", "act"]
    assert [info.name for info in built.graph.output] == ["z"]
    assert "h" not in {info.name for info in built.graph.value_info}, "a value that is gone has no type"
    inferred = {
        info.name: [dim.dim_param or dim.dim_value for dim in info.type.tensor_type.shape.dim]
        for info in built.graph.value_info
    }
    assert inferred["rlflow_MatMul_0"] == ["N", 3]


def test_the_rule_is_noted_on_its_nodes() -> None:
    imported = load_model(chain())
    graph = rewrite(imported, REASSOCIATE)
    new = {node: "reassociate" for node in graph.order() if node not in imported.graph.order()}
    built = save_model(imported, graph, rules=new)
    noted = {node.name: {entry.key: entry.value for entry in node.metadata_props} for node in built.graph.node}
    assert noted == {"rlflow_MatMul_0": {"rlflow.rule": "reassociate"}, "act": {}}
    imported.origin.model.ir_version = 8
    older = save_model(imported, graph, rules=new)
    assert [(entry.key, entry.value) for entry in older.metadata_props] == [("rlflow.rules", "reassociate")]


def test_saving_is_deterministic() -> None:
    first, second = (saved(chain(), REASSOCIATE).SerializeToString(deterministic=True) for _ in range(2))
    assert first == second


def test_an_output_keeps_its_name_when_its_producer_is_replaced() -> None:
    nodes = [helper.make_node("Relu", ["x"], ["h"], name="one"), helper.make_node("Relu", ["h"], ["y"], name="two")]
    built = saved(model(nodes, [value("x", [3])], [value("y", [3])]), RELU_TWICE)
    assert [list(node.output) for node in built.graph.node] == [["y"]]


def test_an_output_that_became_an_input_is_copied() -> None:
    nodes = [helper.make_node("Neg", ["x"], ["h"], name="one"), helper.make_node("Neg", ["h"], ["y"], name="two")]
    built = saved(model(nodes, [value("x", [3])], [value("y", [3])]), NEG_TWICE)
    assert [(node.op_type, list(node.input), list(node.output)) for node in built.graph.node] == [
        ("Identity", ["x"], ["y"])
    ]


def test_a_captured_value_is_renamed_inside_the_body() -> None:
    def body(output: str) -> onnx.GraphProto:
        inner = helper.make_graph([helper.make_node("Neg", ["h"], ["deep"])], "deep", [], [value("deep", None)])
        nodes = [helper.make_node("If", ["c"], [output], name="inner", then_branch=inner, else_branch=inner)]
        return helper.make_graph(nodes, "body", [], [value(output, None)])

    nodes = [
        helper.make_node("Relu", ["x"], ["g"], name="one"),
        helper.make_node("Relu", ["g"], ["h"], name="two"),
        helper.make_node("If", ["c"], ["y"], name="if", then_branch=body("t"), else_branch=body("e")),
    ]
    source = model(nodes, [value("x", [3]), value("c", [], BOOL)], [value("y", [3]), value("h", [3])])
    built = saved(source, RELU_TWICE)
    for choice in (True, False):
        feeds = {"x": random(3), "c": np.array(choice)}
        for found, expected in zip(run(built, feeds), run(source, feeds), strict=True):
            np.testing.assert_array_equal(found, expected)


def test_merged_products_and_split() -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "a"], ["p"], name="left"),
        helper.make_node("MatMul", ["x", "b"], ["q"], name="right"),
    ]
    weights = {"a": random(4, 5), "b": random(4, 3, seed=1)}
    source = model(nodes, [value("x", [2, 4])], [value("p", [2, 5]), value("q", [2, 3])], weights)
    built = saved(source, MERGE)
    assert [node.op_type for node in built.graph.node] == ["MatMul", "Split"]
    feeds = {"x": random(2, 4)}
    for found, expected in zip(run(built, feeds), run(source, feeds), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_literals_of_rules_are_written() -> None:
    nodes = [helper.make_node("Relu", ["x"], ["h"], name="relu"), helper.make_node("Exp", ["h"], ["y"], name="exp")]
    source = model(nodes, [value("x", [3])], [value("y", [3])])
    built = saved(source, COMMUTE)
    feeds = {"x": random(3)}
    np.testing.assert_allclose(run(built, feeds)[0], run(source, feeds)[0], rtol=1e-6)


def test_what_the_opset_cannot_say_is_an_error_that_names_the_node() -> None:
    nodes = [helper.make_node("Relu", ["x"], ["h"], name="relu"), helper.make_node("Exp", ["h"], ["y"], name="exp")]
    imported = load_model(model(nodes, [value("x", [3])], [value("y", [3])], opset=7, ir_version=4))
    graph = rewrite(imported, COMMUTE)
    reason = expressible(graph, 7)
    assert reason is not None
    assert "Max" in reason
    assert "opset 8" in reason
    assert expressible(graph, 8) is None
    with pytest.raises(GraphError, match=r"\(Max\) for opset 7"):
        save_model(imported, graph)


def test_folding_keeps_shared_constants_shared() -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "a"], ["h"], name="h"),
        helper.make_node("MatMul", ["h", "b"], ["p"], name="p"),
        helper.make_node("MatMul", ["u", "a"], ["g"], name="g"),
        helper.make_node("MatMul", ["g", "b"], ["q"], name="q"),
    ]
    weights = {"a": random(4, 5), "b": random(5, 3, seed=1)}
    inputs = [value("x", [2, 4]), value("u", [2, 4])]
    imported = load_model(model(nodes, inputs, [value("p", [2, 3]), value("q", [2, 3])], weights))
    once = rewrite(imported, REASSOCIATE)
    state = State(once, RuleSet([REASSOCIATE]))
    built = save_model(imported, state.child(0))
    assert len(built.graph.initializer) == 1


def test_half_precision_is_folded_through_double() -> None:
    source = chain()
    for item in source.graph.initializer:
        item.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(item).astype(np.float16), item.name))
    for info in (*source.graph.input, *source.graph.output, *source.graph.value_info):
        info.type.tensor_type.elem_type = onnx.TensorProto.FLOAT16
    built = saved(source, REASSOCIATE)
    found = numpy_helper.to_array(built.graph.initializer[0])
    exact = random(4, 5).astype(np.float16).astype(np.float64) @ random(5, 3, seed=1).astype(np.float16).astype(
        np.float64
    )
    assert found.dtype == np.float16
    np.testing.assert_array_equal(found, exact.astype(np.float16))


PRINT_DIGEST = """
import hashlib, sys
from rlflow import zoo
from rlflow._core import Rule, RuleSet, State
from rlflow.frontends import load_model, save_model
rule = Rule("swap", ["(Add ?x ?y)"], ["(Sub ?x (Neg ?y))"])
imported = load_model(zoo.build("nasrnn", hidden=16))
state = State(imported.graph, RuleSet([rule]))
built = save_model(imported, state.child(3), rules={node: "swap" for node in state.child(3).order()})
sys.stdout.write(hashlib.sha256(built.SerializeToString(deterministic=True)).hexdigest())
"""


def test_bytes_do_not_depend_on_the_process(repo_root: Path) -> None:
    found = set()
    for seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(repo_root)}
        result = subprocess.run(
            [sys.executable, "-c", PRINT_DIGEST],
            env=environment,
            cwd=repo_root,
            capture_output=True,
            text=True,
            check=True,
        )
        found.add(result.stdout)
    assert len(found) == 1


def test_a_second_pass_over_a_result_keeps_its_names() -> None:
    first = saved(chain(), REASSOCIATE)
    imported = load_model(first)
    again = save_model(imported, imported.graph)
    assert again.SerializeToString(deterministic=True) == first.SerializeToString(deterministic=True)


def test_inexpressible_looks_at_new_nodes_only() -> None:
    nodes = [helper.make_node("Relu", ["x"], ["h"], name="relu"), helper.make_node("Exp", ["h"], ["y"], name="exp")]
    imported = load_model(model(nodes, [value("x", [3])], [value("y", [3])], opset=7, ir_version=4))
    assert imported.inexpressible(imported.graph) is None
    assert "Max" in (imported.inexpressible(rewrite(imported, COMMUTE)) or "")


def test_a_new_node_of_onnx_itself_says_nothing_of_its_domain() -> None:
    """An empty field that is set is another file, byte by byte."""
    built = saved(chain(), REASSOCIATE)
    assert not any(node.HasField("domain") for node in built.graph.node)
