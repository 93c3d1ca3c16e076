"""What a result may need beyond the model: a newer opset, operators of another domain. By default, nothing."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import rlflow
from rlflow import price
from rlflow.errors import UsageError
from rlflow.frontends import load_model, save_model
from rlflow.options import Options
from rlflow.pipeline import allowances
from rlflow.pipeline.loading import load
from rlflow.rewrite import State, compiled, load_rules
from rlflow.rulesets import Allowed, load_library, with_algorithms, writable
from rlflow.search import StopToken

MICROSOFT = "com.microsoft"
TARGETS = load_rules(families=["targets"])
TIDY = ["targets", "shape", "layout"]
HEADS, SIZE, LENGTH = 2, 4, 5


def floats(name: str, *shape: int) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


def model_of(
    nodes: list[onnx.NodeProto], shape: tuple[int, ...], out: tuple[int, ...], opset: int, **weights: Any
) -> onnx.ModelProto:
    initializers = [numpy_helper.from_array(np.asarray(value), name) for name, value in weights.items()]
    graph = helper.make_graph(nodes, "g", [floats("x", *shape)], [floats("y", *out)], initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def attention(opset: int = 17) -> onnx.ModelProto:
    """Self-attention as transformers' exporters write it: queries and keys scaled, keys turned flat."""
    node, width = helper.make_node, HEADS * SIZE
    nodes = []
    for name in "qkv":
        nodes.append(node("MatMul", ["x", f"w{name}"], [f"{name}0"]))
        nodes.append(node("Reshape", [f"{name}0", "split"], [f"{name}1"]))
        nodes.append(node("Transpose", [f"{name}1"], [f"{name}2"], perm=[0, 2, 1, 3]))
    nodes += [
        node("Reshape", ["k2", "flat"], ["k3"]),
        node("Transpose", ["k3"], ["k4"], perm=[0, 2, 1]),
        node("Reshape", ["k4", "turned"], ["k5"]),
        node("Mul", ["q2", "s"], ["q6"]),
        node("Mul", ["k5", "s"], ["k6"]),
        node("MatMul", ["q6", "k6"], ["scores"]),
        node("Softmax", ["scores"], ["p"], axis=-1),
        node("MatMul", ["p", "v2"], ["c0"]),
        node("Transpose", ["c0"], ["c1"], perm=[0, 2, 1, 3]),
        node("Reshape", ["c1", "rows"], ["y"]),
    ]
    rng = np.random.default_rng(0)
    weights = {f"w{name}": rng.standard_normal((width, width)).astype(np.float32) / 3 for name in "qkv"}
    shapes = {
        "split": [1, LENGTH, HEADS, SIZE],
        "flat": [HEADS, LENGTH, SIZE],
        "turned": [1, HEADS, SIZE, LENGTH],
        "rows": [1, LENGTH, width],
    }
    weights |= {name: np.asarray(value, np.int64) for name, value in shapes.items()}
    return model_of(nodes, (1, LENGTH, width), (1, LENGTH, width), opset, s=np.float32(0.70710678), **weights)


def optimized(model: onnx.ModelProto, **options: Any) -> Any:
    options = {"cost": "analytic", "budget": "800c", "rules": TIDY, **options}
    return rlflow.optimize(model, quiet=True, **options)


def operators(model: onnx.ModelProto) -> set[str]:
    return {node.op_type for node in model.graph.node}


def opsets(model: onnx.ModelProto) -> dict[str, int]:
    return {entry.domain: entry.version for entry in model.opset_import}


@pytest.mark.parametrize("name", list(TARGETS))
def test_no_rule_of_the_family_is_used_unless_its_operator_is_allowed(name: str) -> None:
    rule = TARGETS[name]
    newer, domain = Allowed(17).needs(rule)
    assert bool(newer) != bool(domain), "it needs one of both, as every other target is for everybody"
    assert name not in writable(TARGETS, Allowed(17)).library
    enough = Allowed(newer or 17, frozenset([domain]))
    assert name in writable(TARGETS, enough).library
    assert name not in writable(TARGETS, Allowed(enough.opset - 1)).library


@pytest.mark.parametrize(
    ("opset", "domains", "some", "none"),
    [
        (17, (), [], ["gelu-by-tanh", "attention-of-heads", "fast-gelu-by-tanh", "multi-head-attention"]),
        (20, (), ["gelu-by-tanh"], ["attention-of-heads", "fast-gelu-by-tanh"]),
        (23, (), ["gelu-by-tanh", "attention-of-rows"], ["multi-head-attention"]),
        (17, (MICROSOFT,), ["fast-gelu-by-tanh", "multi-head-attention"], ["gelu-by-tanh"]),
    ],
)
def test_what_is_allowed_decides(opset: int, domains: tuple[str, ...], some: list[str], none: list[str]) -> None:
    found = writable(with_algorithms(), Allowed(opset, frozenset(domains)))
    assert set(some) <= set(found.library) and not set(none) & set(found.library)
    assert set(none) <= {rule.name for rule in found.others}


def test_what_does_not_need_more_is_left_as_it_is() -> None:
    library = load_library(["fold"])
    found = writable(library, Allowed(23))
    assert found.library is library and not found.others and not found.notes


@pytest.mark.parametrize(
    ("options", "expected"),
    [({}, True), ({"tolerance": "strict"}, True), ({"cost": "analytic"}, False), ({"rules": ["fold"]}, False)],
)
def test_the_family_is_loaded_where_a_clock_prices_it(options: dict[str, Any], expected: bool) -> None:
    rules = load_library(Options(**options).chosen_rules)
    assert ("targets" in rules.families) is expected


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"allow_opset": 0}, "newest opset allowed is 0"),
        ({"allow_opset": "new"}, "expected a number such as 23"),
        ({"allow_domain": "ai.mine"}, "known are: com.microsoft"),
    ],
)
def test_allowances_that_mean_nothing_are_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        Options(**options)


@pytest.mark.parametrize(
    ("options", "operator", "imports", "says"),
    [
        ({}, None, {"": 17}, None),
        ({"allow_opset": 22}, None, {"": 17}, None),
        ({"allow_opset": 24}, "Attention", {"": 23}, "The result needs opset 23; the model had 17."),
        ({"allow_domain": MICROSOFT}, "MultiHeadAttention", {"": 17, MICROSOFT: 1}, f"operators of {MICROSOFT}"),
    ],
)
def test_a_model_gets_what_the_user_allows_and_no_more(
    options: dict[str, Any], operator: str | None, imports: dict[str, int], says: str | None
) -> None:
    result = optimized(attention(), **options)
    made = result.model
    onnx.checker.check_model(made, full_check=True)
    assert opsets(made) == imports
    assert operators(made) & {"Attention", "MultiHeadAttention"} == ({operator} if operator else set())
    notes = " ".join(result.report.notes)
    assert says is None or says in notes
    if operator is None:
        assert "The result" not in notes
    else:
        assert "Softmax" not in operators(made) and result.report.verified.passed
        [found] = [node for node in made.graph.node if node.op_type == operator]
        values = {a.name: helper.get_attribute_value(a) for a in found.attribute}
        assert values["scale"] == pytest.approx(0.5, rel=1e-6)


def test_what_was_raised_is_read_again_and_replays() -> None:
    model = attention()
    result = optimized(model, allow_opset=23)
    again = load_model(result.model)
    assert "Attention" in {again.graph.op(node) for node in again.graph.order()}
    assert save_model(again, again.graph).opset_import[0].version == 23
    replayed = rlflow.replay(model, result.trace, rules=load_library(TIDY))
    assert operators(replayed) == operators(result.model) and opsets(replayed) == {"": 23}


OLD = [
    helper.make_node("ReduceSum", ["x"], ["a"], axes=[2], keepdims=0),
    helper.make_node("Unsqueeze", ["a"], ["b"], axes=[0]),
    helper.make_node("Softmax", ["b"], ["c"], axis=2),
    helper.make_node("Squeeze", ["c"], ["d"], axes=[0]),
    helper.make_node("Pad", ["d", "p"], ["e"]),
    helper.make_node("Clip", ["e", "low"], ["f"]),
    helper.make_node("Pow", ["f", "three"], ["f3"]),
    helper.make_node("Mul", ["f3", "c1"], ["g"]),
    helper.make_node("Add", ["f", "g"], ["h"]),
    helper.make_node("Mul", ["h", "k1"], ["i"]),
    helper.make_node("Tanh", ["i"], ["j"]),
    helper.make_node("Add", ["j", "one"], ["k"]),
    helper.make_node("Mul", ["f", "half"], ["l"]),
    helper.make_node("Mul", ["l", "k"], ["y"]),
]
NUMBERS = {"low": -1.0, "three": 3.0, "c1": 0.044715, "k1": 0.7978845608, "one": 1.0, "half": 0.5}


def old(nodes: list[onnx.NodeProto] = OLD, opset: int = 11) -> onnx.ModelProto:
    weights = {name: np.float32(value) for name, value in NUMBERS.items()}
    return model_of(nodes, (2, 3, 4), (3, 5), opset, p=np.asarray([0, 0, 1, 2], np.int64), **weights)


def test_untouched_nodes_are_written_for_the_newer_opset() -> None:
    """From opset 11 on, axes and more became operands; the values stay."""
    result = optimized(old(), allow_opset=20)
    made = result.model
    onnx.checker.check_model(made, full_check=True)
    assert opsets(made) == {"": 20} and "Gelu" in operators(made) and "Tanh" not in operators(made)
    [reduced] = [node for node in made.graph.node if node.op_type == "ReduceSum"]
    assert len(reduced.input) == 2 and not [a for a in reduced.attribute if a.name == "axes"]
    assert result.report.verified.passed


def test_without_the_operator_the_opset_is_not_raised() -> None:
    imported = load_model(old(), newest_opset=20)
    assert imported.origin.newest == 20
    assert opsets(save_model(imported, imported.graph)) == {"": 11}


def looped() -> onnx.ModelProto:
    body = helper.make_graph([helper.make_node("Neg", ["y"], ["z"])], "b", [], [floats("z", 3, 5)])
    branch = helper.make_node("If", ["true"], ["out"], then_branch=body, else_branch=body)
    model = old()
    model.graph.initializer.append(numpy_helper.from_array(np.asarray(True), "true"))
    model.graph.node.append(branch)
    model.graph.output[0].name = "out"
    return model


def with_function() -> onnx.ModelProto:
    model = old()
    opset = [helper.make_opsetid("", 11)]
    body = [helper.make_node("Neg", ["a"], ["b"])]
    model.functions.append(helper.make_function("mine", "F", ["a"], ["b"], body, opset))
    model.opset_import.append(helper.make_opsetid("mine", 1))
    return model


def grouped() -> onnx.ModelProto:
    """GroupNormalization of opset 18 has a scale a group, that of 21 one a channel."""
    nodes = [helper.make_node("GroupNormalization", ["x", "s", "s"], ["y"], num_groups=2)]
    return model_of(nodes, (2, 4, 4), (2, 4, 4), 18, s=np.ones(2, np.float32))


@pytest.mark.parametrize(
    ("model", "says"),
    [
        (looped(), "have bodies"),
        (with_function(), "functions of its own"),
        (grouped(), "is another operator in opset 23"),
    ],
)
def test_what_cannot_be_written_anew_keeps_its_opset(model: onnx.ModelProto, says: str) -> None:
    imported = load_model(model, newest_opset=23)
    assert imported.origin.newest == 0
    assert any("stays at opset" in note and says in note for note in imported.notes), imported.notes


def test_a_newer_opset_than_anybody_knows_is_no_reason_to_stop() -> None:
    assert opsets(optimized(attention(), allow_opset=999).model)[""] == 23


def advised(model: onnx.ModelProto, **options: Any) -> list[str]:
    """The notes after a search that found nothing; the formula stands in for prices that are measured."""
    chosen = Options(budget="60s", rules=[*TIDY], **options)
    given = SimpleNamespace(
        options=chosen,
        notes=[],
        lowers_opset=False,
        stop=StopToken(),
        cost_model=price.make("analytic"),
        parts=SimpleNamespace(spare=10.0),
    )
    loaded = load(model, given)
    assert allowances._seconds(loaded, given) == 0.0, "no clock, no promise"
    given.cost_model = SimpleNamespace(pricer=given.cost_model.pricer, measures=False, whole=False)
    found = SimpleNamespace(result=SimpleNamespace(best=SimpleNamespace(graph=loaded.graph)))
    seconds, allowances._seconds = allowances._seconds, lambda *_: 2.0
    try:
        allowances.advise(loaded, found, given)
    finally:
        allowances._seconds = seconds
    return [note for note in given.notes if "more with" in note]


@pytest.mark.parametrize(
    ("model", "options", "wanted"),
    [
        (attention(), {}, ["--allow-opset 23", f"--allow-domain {MICROSOFT}"]),
        (attention(), {"allow_opset": 23}, [f"--allow-domain {MICROSOFT}"]),
        (old(), {}, ["--allow-opset 20"]),
        (grouped(), {}, []),
    ],
)
def test_the_report_says_what_an_allowance_would_add(
    model: onnx.ModelProto, options: dict[str, Any], wanted: list[str]
) -> None:
    found = advised(model, **options)
    assert {note.split("more with ")[1].rstrip(".") for note in found} <= {*wanted, f"--allow-domain {MICROSOFT}"}
    assert not wanted or any(wanted[0] in note for note in found)


@pytest.mark.parametrize(
    ("inputs", "known"),
    [(("q", "k", "v"), True), (("q", "k", "v", "m"), True), (("q", "k", "v", "", "pk", "pv"), False)],
)
def test_attention_of_a_file_is_read_as_far_as_the_table_has_it(inputs: tuple[str, ...], known: bool) -> None:
    shapes = {"q": (1, 2, 3, 4), "k": (1, 2, 5, 4), "v": (1, 2, 5, 6), "m": (3, 5)}
    shapes |= {"pk": (1, 2, 1, 4), "pv": (1, 2, 1, 6)}
    node = helper.make_node("Attention", list(inputs), ["y"], scale=0.25)
    given = [floats(name, *shapes[name]) for name in inputs if name]
    model = helper.make_model(
        helper.make_graph([node], "g", given, [floats("y", 1, 2, 3, 6)]), opset_imports=[helper.make_opsetid("", 23)]
    )
    imported = load_model(model)
    read = {imported.graph.op(node) for node in imported.graph.order()} - {"Input"}
    assert read == {"Attention" if known else "Opaque"}
    written = save_model(imported, imported.graph)
    assert written.graph.node[0] == model.graph.node[0]


def test_operators_that_users_register_need_no_allowance() -> None:
    from rlflow.ops import asked_domain

    assert asked_domain("FastGelu") == MICROSOFT and asked_domain("QuickGelu") == "" and asked_domain("Gelu") == ""


def test_a_rule_of_the_family_names_the_operator_that_it_writes() -> None:
    graph = load_model(attention()).graph
    state = State(graph, compiled(writable(TARGETS, Allowed(23)).library))
    assert {list(writable(TARGETS, Allowed(23)).library)[rule] for rule in state.moves().rule} == {"attention-of-heads"}
