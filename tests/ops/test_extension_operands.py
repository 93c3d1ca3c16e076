"""Operators of several operands that another package adds by an entry point go through import, rules, proof, search,
pricing and export: pointwise ones of two and three operands, and one with a shape function. In fresh processes.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = '''
import numpy as np
from rlflow import ops


def gate(x, y):
    return x / (1 + np.exp(-y))


def blend(x, y, t, sharpness):
    return x + (y - x) / (1 + np.exp(-sharpness * t))


def product(x, y, alpha, transA, transB):
    return alpha * ((x.T if transA else x) @ (y.T if transB else y))


def product_shape(x, y, alpha, transA, transB):
    if len(x) != 2 or len(y) != 2:
        raise ValueError("the operands are matrices")
    rows, inner = x[::-1] if transA else x
    others, columns = y[::-1] if transB else y
    if isinstance(inner, int) and isinstance(others, int) and inner != others:
        raise ValueError(f"{inner} columns against {others} rows")
    return [rows, columns]


def product_meaning(call):
    d = call.domain
    x = call.arg(0).T if call.attrs["transA"] else call.arg(0)
    y = call.arg(1).T if call.attrs["transB"] else call.arg(1)
    return d.mul(d.constant(call.attrs["alpha"]), d.total(d.mul(x[:, :, None], y[None, :, :]), (1,)))


def draw_product(draw, term, op, want):
    from rlflow.synthesis.want import GiveUp, Want

    attrs = {name: draw.attr(term, op, name, lambda v=v: draw.rng.choice(v))
             for name, v in {"alpha": [1.0, 0.5], "transA": [0, 1], "transB": [0, 1]}.items()}
    rows, inner, columns = draw.extent(), draw.extent(), draw.extent()
    x = draw.child(term.children[0], Want(shape=(inner, rows) if attrs["transA"] else (rows, inner)))
    if len(draw.shape(x)) != 2:
        raise GiveUp
    inner = draw.shape(x)[0 if attrs["transA"] else 1]
    shape = (columns, inner) if attrs["transB"] else (inner, columns)
    return [x, draw.child(term.children[1], Want(shape=shape, dtype=draw.dtype_of(x)))], attrs


def add():
    ops.register("Gate", gate, domain="elsewhere", inputs=2, flops=10)
    ops.register("Hypot", np.hypot, domain="elsewhere", inputs=2, flags=["commutative"])
    ops.register("Blend", blend, domain="elsewhere", inputs=3, defaults={"sharpness": 1.0}, flops=12)
    ops.register(
        "FusedMatMul", product, domain="com.microsoft", inputs=2, shape=product_shape,
        examples=[[(2, 3), (3, 4)], [(1, 5), (5, 1)]], defaults={"alpha": 1.0, "transA": 0, "transB": 0}, flops=64,
        meaning=product_meaning, draw=draw_product,
        degree=lambda operands: tuple(sum(one[k] for one in operands) for k in (0, 1)),
    )
'''
ALWAYS = '''
import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper
from rlflow._core import RuleSet, State
from rlflow.errors import GraphError
from rlflow.frontends import evaluate, load_model, save_model
from rlflow.graph import Graph
from rlflow.ops import op_features, op_row
from rlflow.price.analytic import AnalyticCost
from rlflow.rewrite import Rule, load_rules
from rlflow.synthesis.prove import prove


def model(nodes, inputs, outputs):
    def values(table):
        return [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in table.items()]

    opsets = [helper.make_opsetid(*one) for one in (("", 17), ("elsewhere", 1), ("com.microsoft", 1))]
    graph = helper.make_graph(nodes, "g", values(inputs), values(outputs))
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def node(op, inputs, output, domain="", **attributes):
    return helper.make_node(op, inputs, [output], domain=domain, **attributes)


def work(graph):
    return [graph.op(n) for n in graph.order() if graph.op(n) != "Input"]


def says(rule):
    found = prove(rule)
    return found.status


def cheaper(before, after):
    cost = AnalyticCost()
    return 0 < cost.cost(after).total_ms < cost.cost(before).total_ms
'''
POINTWISE = '''
T = "(Transpose{perm=?p} %s)"
source = model(
    [
        node("Transpose", ["x"], "a", perm=[1, 0]), node("Transpose", ["y"], "b", perm=[1, 0]),
        node("Gate", ["a", "b"], "c", "elsewhere"),
        node("Transpose", ["c"], "d", perm=[1, 0]),
        node("Blend", ["d", "row", "y"], "z", "elsewhere", sharpness=2.0),
    ],
    {"x": ["N", 5], "y": ["N", 5], "row": [5]}, {"z": ["N", 5]},
)

# import: nodes of the table; extents broadcast, open ones too
imported = load_model(source)
graph = imported.graph
assert work(graph) == ["Transpose", "Transpose", "Gate", "Transpose", "Blend"], graph.text()
assert graph.shape(graph.outputs()[0]) == ["N", 5]
assert {"pure", "binary"} <= set(op_row("Gate")["flags"]) and "commutative" in op_row("Hypot")["flags"]
assert "pointwise" in op_row("Blend")["flags"]
assert op_features("Blend") == {"shape": "the operands, broadcast", "flops": "12 an output element"}
try:
    Graph.parse("x: f32[2,3] = input\\ny: f32[4,3] = input\\nz = Gate(x, y)\\nreturn z")
    raise SystemExit("operands that do not broadcast were taken")
except GraphError as error:
    assert "do not broadcast" in str(error), error

# rules: the library's rules about pointwise operators of two operands cover it, by records that are as they were
assert len(load_rules()) > 300

# proof: what holds of pointwise functions is proved, and what does not is refuted
same = ("rank(?x) == rank(?y)",)
gate = Rule("gate", "mine", (f"(Gate {T % '?x'} {T % '?y'})",), (T % "(Gate ?x ?y)",), same)
swapped = Rule("swapped", "mine", ("(Gate ?x ?y)",), ("(Gate ?y ?x)",))
blend = Rule("blend", "mine", ("(Blend{sharpness=?s} (Gate ?x ?y) (Gate ?x ?z) (Gate ?x ?y))",),
             ("(Blend{sharpness=?s} (Gate ?x ?y) (Gate ?x ?z) (Gate ?x ?z))",))
rows = Rule("rows", "mine", (f"(Blend{{sharpness=?s}} {T % '?x'} {T % '?y'} {T % '?z'})",),
            (T % "(Blend{sharpness=?s} ?x ?y ?z)",), (*same, "rank(?x) == rank(?z)"))
assert [says(rule) for rule in (gate, swapped, blend, rows)] == ["proved", "refuted", "refuted", "proved"]

# search: the proved rule fires, and an operator whose operands may change places matches either way
state = State(graph, RuleSet([gate.core]))
assert len(state.moves()) == 1
twice = "(Transpose{perm=[1,0]} (Transpose{perm=[1,0]} ?x))"
child = State(state.child(0), RuleSet([Rule("cancel", "mine", (twice,), ("?x",)).core])).child(0)
assert work(child) == ["Gate", "Blend"], child.text()
text = "x: f32[2,3] = input\\ny: f32[2,3] = input\\na = Relu(y)\\nz = Hypot(a, x)\\nreturn z"
either = Rule("either", "mine", ("(Hypot ?x (Relu ?y))",), ("(Hypot ?x ?y)",))
assert len(State(Graph.parse(text), RuleSet([either.core])).moves()) == 1

# pricing: it counts, and less is cheaper
def fixed(one):
    return one.bind({"N": 6})
assert cheaper(fixed(graph), fixed(child))

# export: the nodes of their domain, and the same values
made = save_model(imported, child)
onnx.checker.check_model(made)
assert [(one.domain, one.op_type) for one in made.graph.node] == [("elsewhere", "Gate"), ("elsewhere", "Blend")]
rng = np.random.default_rng(0)
x, y, row = (rng.standard_normal(shape).astype(np.float32) for shape in ((6, 5), (6, 5), (5,)))
gated = x / (1 + np.exp(-y))
expected = gated + (row - gated) / (1 + np.exp(-2 * y))
for one in (graph, child, load_model(made).graph):
    np.testing.assert_allclose(evaluate(one, {"x": x, "y": y, "row": row})[0], expected, rtol=1e-5)
print("the whole way")
'''
SHAPED = '''
source = model(
    [
        node("Neg", ["x"], "n"), node("FusedMatMul", ["n", "w"], "p", "com.microsoft", alpha=0.5, transB=1),
        node("Neg", ["p"], "q"), node("Relu", ["q"], "y"),
    ],
    {"x": ["N", 8], "w": [5, 8]}, {"y": ["N", 5]},
)

# import: the shape is what the function says, and what it refuses is refused in a sentence
imported = load_model(source)
graph = imported.graph
assert work(graph) == ["Neg", "FusedMatMul", "Neg", "Relu"], graph.text()
assert graph.shape(graph.outputs()[0]) == ["N", 5]
assert op_features("FusedMatMul")["shape"] == "given" and op_row("FusedMatMul")["flags"] == ["pure"]
try:
    Graph.parse("x: f32[2,3] = input\\ny: f32[4,3] = input\\nz = FusedMatMul(x, y)\\nreturn z")
    raise SystemExit("operands that do not fit were taken")
except GraphError as error:
    assert "FusedMatMul: its shape function raised ValueError: 3 columns against 4 rows" in str(error), error
unranked = Graph.parse("x: f32[*] = input\\ny: f32[4,3] = input\\nz = FusedMatMul(x, y)\\nreturn z")
assert unranked.shape(unranked.outputs()[0]) is None

# proof, by the meaning that the package gives
product = "(FusedMatMul{alpha=?a, transB=?b} %s ?y)"
outward = Rule("outward", "mine", (product % "(Neg ?x)",), ("(Neg %s)" % product % "?x",))
turned = Rule("turned", "mine", ("(FusedMatMul ?x ?y)",), ("(FusedMatMul ?y ?x)",))
inward = Rule("inward", "mine", ("(Relu %s)" % product % "?x",), (product % "(Relu ?x)",))
assert [says(rule) for rule in (outward, turned, inward)] == ["proved", "refuted", "refuted"]

# search and pricing
state = State(graph, RuleSet([outward.core]))
assert len(state.moves()) == 1
child = State(state.child(0), RuleSet([Rule("cancel", "mine", ("(Neg (Neg ?x))",), ("?x",)).core])).child(0)
assert work(child) == ["FusedMatMul", "Relu"], child.text()
assert cheaper(graph.bind({"N": 6}), child.bind({"N": 6}))

# export, and the runtime computes the same
made = save_model(imported, child)
onnx.checker.check_model(made)
assert [one.op_type for one in made.graph.node] == ["FusedMatMul", "Relu"]
rng = np.random.default_rng(0)
feeds = {"x": rng.standard_normal((6, 8)).astype(np.float32), "w": rng.standard_normal((5, 8)).astype(np.float32)}
expected = np.maximum(0.5 * feeds["x"] @ feeds["w"].T, 0)
for one in (graph, child):
    np.testing.assert_allclose(evaluate(one, feeds)[0], expected, rtol=1e-5, atol=1e-6)
for one in (source, made):
    session = onnxruntime.InferenceSession(one.SerializeToString(), providers=["CPUExecutionProvider"])
    np.testing.assert_allclose(session.run(None, feeds)[0], expected, rtol=1e-5, atol=1e-6)
print("the whole way")
'''


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A package that adds operators, as pip would install it."""
    folder = tmp_path_factory.mktemp("package")
    info = folder / "elsewhere_operators-1.0.dist-info"
    info.mkdir()
    (folder / "elsewhere_operators.py").write_text(PACKAGE)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: elsewhere-operators\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[rlflow.operators]\nmine = elsewhere_operators:add\n")
    return folder


def run(code: str, *folders: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (*folders, ROOT)))}
    command = [sys.executable, "-c", code]
    return subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=280)


@pytest.mark.parametrize("way", [POINTWISE, SHAPED], ids=["pointwise", "with a shape function"])
def test_an_operator_of_another_package_goes_the_whole_way(way: str, package: Path) -> None:
    result = run(ALWAYS + way, package)
    assert result.returncode == 0, result.stderr
    assert result.stdout == "the whole way\n"
    assert "rlflow" not in result.stderr  # no warning about the package


@pytest.mark.parametrize(
    ("claim", "expected"),
    [
        ('np.add, inputs=2, flags=["monotone"]', "cannot have the flag 'monotone'"),
        ('np.tanh, flags=["commutative"]', "cannot have the flag 'commutative'"),
        ('np.subtract, inputs=2, flags=["commutative"]', "its operands cannot change places"),
        ("np.add, inputs=0", "it has 0 operands; expected a number from 1 to 16"),
        ("lambda x, y: x + y, inputs=3", "its values for float64[165] and float64[165] and float64[165] raised"),
        ("lambda x, y: x + y[::-1], inputs=2", "it is not pointwise"),
        ("lambda x, y: x + y.mean(axis=-1, keepdims=True), inputs=2", "it is not pointwise"),
        ("lambda x, y: x + y.T, inputs=2", "raised ValueError"),
        ("np.add, inputs=2, examples=[[(2,), (2,)]]", "examples are for an operator with a shape function"),
        ("np.matmul, inputs=2, shape=lambda x, y: [x[0], y[1]]", "it needs examples: lists of 2 shapes"),
        (
            "np.matmul, inputs=2, shape=lambda x, y: x, examples=[[(2, 3), (3, 4)]]",
            "its values are float64[2, 4] for float64[2, 3] and float64[3, 4]; its shape function says [2, 3]",
        ),
        (
            'np.matmul, inputs=2, flags=["commutative"], shape=lambda x, y: [x[0], y[1]], examples=[[(2, 3), (3, 4)]]',
            "flags are for pointwise operators",
        ),
    ],
)
def test_what_does_not_hold_is_refused_in_a_sentence(claim: str, expected: str) -> None:
    result = run(f'import numpy as np\nfrom rlflow import ops\nops.register("Mine", {claim}, domain="mine")')
    assert result.returncode != 0
    assert expected in result.stderr.splitlines()[-1], result.stderr
    assert "UsageError" in result.stderr


def test_a_shape_function_is_asked_once_for_the_same_operands(package: Path) -> None:
    """And from threads that do not hold Python's lock, as the core's rewriting does."""
    code = """
import threading
from rlflow import ops

asked = []

def shape(x):
    asked.append(x)
    return [*x, 2]

ops.register("Twice", lambda x: np.stack([x, x], -1), domain="mine", shape=shape, examples=[[(3,)]])
from rlflow._core import RuleSet, State
from rlflow.graph import Graph
from rlflow.rewrite import Rule

rule = Rule("r", "mine", ("(Twice (Relu (Relu ?x)))",), ("(Twice (Relu ?x))",))
graph = Graph.parse("x: f32[4,N] = input\\ny = Relu(x)\\nz = Relu(y)\\nw = Twice(z)\\nreturn w")
def open_it():
    child = State(graph, RuleSet([rule.core])).child(0)
    assert child.shape(child.outputs()[0]) == [4, "N", 2]
threads = [threading.Thread(target=open_it) for _ in range(8)]
[one.start() for one in threads]
[one.join() for one in threads]
print(asked)
"""
    result = run("import numpy as np\n" + code, package)
    assert result.returncode == 0, result.stderr
    assert result.stdout == "[[3], [4, 'N']]\n"
