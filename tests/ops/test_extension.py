"""An operator that one call adds goes through import, rules, proof, pricing and export; in fresh processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

REGISTER = """
import numpy as np
from rlflow import ops

ops.register(
    "QuickGelu", lambda x, alpha: x / (1 + np.exp(-alpha * x)),
    domain="com.microsoft", flags=["zero_preserving"], defaults={"alpha": 1.702}, flops=10,
)
"""

WHOLE_WAY = """
import onnx
import onnxruntime
from onnx import TensorProto, helper
from rlflow._core import RuleSet, State
from rlflow.frontends import evaluate, load_model, save_model
from rlflow.price.analytic import AnalyticCost
from rlflow.rewrite import Rule, load_rules
from rlflow.synthesis.prove import prove


def value(name, *shape):
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


nodes = [
    helper.make_node("Transpose", ["x"], ["t"], perm=[1, 0]),
    helper.make_node("QuickGelu", ["t"], ["q"], domain="com.microsoft", alpha=1.5),
    helper.make_node("Transpose", ["q"], ["y"], perm=[1, 0]),
]
opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
body = helper.make_graph(nodes, "g", [value("x", 8, 5)], [value("y", 8, 5)])
source = helper.make_model(body, opset_imports=opsets, ir_version=8)

# import: a node of the table, with its shape, and not an opaque one
imported = load_model(source)
graph = imported.graph
assert [graph.op(n) for n in graph.order()] == ["Input", "Transpose", "QuickGelu", "Transpose"], graph.text()
assert graph.shape(graph.outputs()[0]) == [8, 5]

# rules: the library's rules about pointwise operators cover it, by records that are as they were
assert len(load_rules()) > 300

# proof: what holds of pointwise functions is proved, and what does not is refuted
gelu = "(QuickGelu{alpha=?a} %s)"
turn = "(Transpose{perm=?p} %s)"
true = Rule("swap", "mine", (gelu % turn % "?x",), (turn % gelu % "?x",))
odd = Rule("odd", "mine", (gelu % "(Neg ?x)",), ("(Neg %s)" % gelu % "?x",))
assert prove(true).status == "proved", prove(true).reason
assert prove(odd).status == "refuted"

# search: the proved rule fires
state = State(graph, RuleSet([true.core]))
assert len(state.moves()) == 1
twice = "(Transpose{perm=[1,0]} (Transpose{perm=[1,0]} ?x))"
child = State(state.child(0), RuleSet([Rule("cancel", "mine", (twice,), ("?x",)).core])).child(0)
assert [child.op(n) for n in child.order()] == ["Input", "QuickGelu"], child.text()

# pricing: it counts, and less is cheaper
cost = AnalyticCost()
before, after = cost.cost(graph).total_ms, cost.cost(child).total_ms
assert 0 < after < before

# export: the node of its domain, and the same values
made = save_model(imported, child)
onnx.checker.check_model(made)
assert [(node.domain, node.op_type) for node in made.graph.node] == [("com.microsoft", "QuickGelu")]
assert [helper.get_attribute_value(a) for a in made.graph.node[0].attribute] == [1.5]
x = np.linspace(-4, 4, 40, dtype=np.float32).reshape(8, 5)
for one in (graph, child):
    np.testing.assert_allclose(evaluate(one, {"x": x})[0], x / (1 + np.exp(-1.5 * x)), rtol=1e-5)

# and the runtime computes the same
outputs = [
    onnxruntime.InferenceSession(one.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]
    for one in (source, made)
]
np.testing.assert_allclose(*outputs, rtol=1e-5)
print("the whole way")
"""


def run(code: str, root: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(root)}
    return subprocess.run(
        [sys.executable, "-c", code], env=environment, cwd=root, capture_output=True, text=True, timeout=280
    )


@pytest.fixture(scope="module")
def root() -> Path:
    return Path(__file__).resolve().parents[2]


def test_one_call_is_enough_for_every_layer(root: Path) -> None:
    result = run(REGISTER + WHOLE_WAY, root)
    assert result.returncode == 0, result.stderr
    assert result.stdout == "the whole way\n"


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ('ops.register("Late", np.tanh, domain="mine")', "the operator table was read already"),
        ('ops.register("Relu", np.abs, domain="mine")', "the table has an operator of this name"),
        ('ops.register("Mine", np.cos, domain="mine", flags=["zero_preserving"])', "does not map 0 to 0"),
        ('ops.register("Mine", np.sin, domain="mine", flags=["monotone"])', "it claims monotone, and decreases"),
        ('ops.register("Mine", np.sin, domain="mine", flags=["commutative"])', "cannot have the flag 'commutative'"),
        ('ops.register("Mine", np.cumsum, domain="mine")', "it is not pointwise"),
        ('ops.register("Mine", np.sum, domain="mine")', "its values are float64[]"),
        ('ops.register("Mine", np.tanh, domain="")', "it needs a domain"),
        ('ops.register("my op", np.tanh, domain="mine")', "a name is a letter"),
    ],
)
def test_what_cannot_be_added_is_refused_in_a_sentence(code: str, expected: str, root: Path) -> None:
    read = "ops.op_names()\n" if "Late" in code else ""
    result = run(f"import numpy as np\nfrom rlflow import ops\n{read}{code}", root)
    assert result.returncode != 0
    assert expected in result.stderr.splitlines()[-1]
    assert "UsageError" in result.stderr


def test_nothing_reads_the_table_before_it_is_asked_to(root: Path) -> None:
    """Importing the layers does not close the door."""
    modules = "rlflow, rlflow.frontends.importer, rlflow.frontends.exporter, rlflow.rewrite, rlflow.synthesis.prove"
    result = run(f"import {modules}, rlflow.price, rlflow.search, rlflow.synthesis.generate.graphs\n{REGISTER}", root)
    assert result.returncode == 0, result.stderr
