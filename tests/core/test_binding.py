"""The Python face of the core: conversions, errors, what the builder does."""

from __future__ import annotations

import pickle

import pytest

from rlflow import errors
from rlflow._core import Graph, GraphBuilder, Rule, RuleSet, State, StopToken, explain, op_names, op_row

F32, I64 = 1, 7


def test_builder_infers_shares_and_forwards() -> None:
    b = GraphBuilder()
    x = b.input("x", F32, ["N", 4])
    w = b.constant(F32, [4, 3], "1" * 32, facts=(-1.0, 1.0, False, True))
    y = b.add("MatMul", {}, [x, w])
    assert b.shape(y) == ["N", 3]
    assert b.add("MatMul", {}, [x, w]) == y
    assert b.add("Identity", {}, [y]) == y
    graph = b.finish([y])
    assert [graph.op(n) for n in graph.order()] == ["Input", "Constant", "MatMul"]
    assert graph.attrs(graph.order()[1])["value"]["facts"] == (-1.0, 1.0, False, True)
    assert graph.bind({"N": 8}).shape(graph.bind({"N": 8}).outputs()[0]) == [8, 3]


def test_graphs_are_values() -> None:
    text = "x: f32[2] = input\ny = Relu(x)\nreturn y\n"
    a, b = Graph.parse(text), Graph.parse(text)
    assert a == b and hash(a) == hash(b) and a != Graph.parse(text.replace("Relu", "Tanh"))
    assert pickle.loads(pickle.dumps(a)) == a


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: Graph.parse("x = Relu(y)\nreturn x\n"), errors.GraphError, "line 1"),
        (lambda: Graph.parse("x: f32[2] = input\nreturn x\n").op(99), errors.GraphError, "node 99"),
        (lambda: GraphBuilder().add("Nope", {}, []), errors.GraphError, "Nope"),
        (lambda: GraphBuilder().add("Relu", {}, [5]), errors.GraphError, "input 0"),
        (lambda: GraphBuilder().add("Relu", {"a": object()}, []), errors.GraphError, "'a'"),
        (lambda: Rule("r", ["(Relu ?x)"], ["?y"]), errors.RuleError, "?y"),
        (lambda: Graph(), errors.UsageError, "GraphBuilder"),
        (lambda: op_row("Nope"), errors.GraphError, "Nope"),
    ],
)
def test_errors_are_sentences(call, error: type[Exception], words: str) -> None:
    with pytest.raises(error) as caught:
        call()
    assert words in str(caught.value)


def test_a_type_contradiction_names_operator_and_shapes() -> None:
    b = GraphBuilder()
    x = b.input("x", F32, [2, 3])
    with pytest.raises(errors.GraphError, match=r"MatMul.*f32\[2,3\]"):
        b.add("MatMul", {}, [x, x])


def test_the_table_lists_every_operator_once() -> None:
    names = op_names()
    assert len(names) == len(set(names)) > 130
    assert op_row("Add")["flags"] == ["pure", "binary", "commutative"]


def test_explain_says_why_not() -> None:
    graph = Graph.parse("x: f32[2] = input\na = Relu(x)\nb = Tanh(a)\nreturn b\n")
    rule = Rule("r", ["(Tanh (Sigmoid ?x))"], ["?x"])
    assert explain(graph, rule) == ["Tanh at position 2: found Relu where the rule wants Sigmoid"]


def test_a_stop_token_ends_the_evaluation_of_moves() -> None:
    graph = Graph.parse("x: f32[2] = input\na = Relu(x)\nb = Relu(a)\nreturn b\n")
    stop = StopToken()
    state = State(graph, RuleSet([Rule("r", ["(Relu (Relu ?x))"], ["(Relu ?x)"])]), stop=stop)
    stop.set()
    assert len(state.moves()) == 0
    stop.clear()
    assert len(state.moves()) == 1
