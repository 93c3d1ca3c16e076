"""Macro moves: what pays only everywhere is reached, as steps that replay one by one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlflow import price, search
from rlflow.errors import RuleError
from rlflow.graph import Graph
from rlflow.rewrite import Rule, State, all_shipped, compiled, load_rules
from rlflow.rewrite.bundles import Bundle, Macros, Seed, read_bundles, read_file
from rlflow.search import Problem
from rlflow.search.events import Chronicle
from rlflow.search.macros import WithMacros
from rlflow.search.trace import replay

OPS = ("Relu", "Tanh", "Sigmoid", "Exp", "Neg", "Abs", "Sqrt", "Floor", "Ceil", "Erf")
WAYS = ("greedy", "backtracking", "mcts", "beam", "annealing", "genetic", "portfolio", "partition", "mixed", "eqsat")
NORM = "BatchNormalization"


def fan(width: int) -> str:
    """So many pointwise operators that read one Transpose; their sum is transposed back."""
    lines = ["x: f32[64,2048,8,8] = input", "t = Transpose{perm=[0,2,3,1]}(x)"]
    lines += [f"u{k} = {OPS[k]}(t)" for k in range(width)]
    lines += [f"s{k} = Add({f's{k - 1}' if k > 1 else 'u0'}, u{k})" for k in range(1, width)]
    return "\n".join([*lines, f"y = Transpose{{perm=[0,3,1,2]}}(s{width - 1})", "return y"])


def problem(width: int = 10, budget: str = "60x", **options: Any) -> Problem:
    rules = load_rules(families=["shape"])
    return Problem(Graph.parse(fan(width)), rules, price.make("analytic"), budget, **options)


def macro_table(whole: Problem) -> Any:
    table = whole.moves(whole.root())
    assert table.macros
    return table


@pytest.mark.parametrize("way", WAYS)
def test_every_strategy_reaches_what_pays_only_everywhere(way: str) -> None:
    assert search.solve(problem(), way).cost_after_ms < 0.93 * problem().start_cost


@pytest.mark.parametrize("way", ["greedy", "backtracking", "annealing", "genetic"])
def test_without_macros_it_is_not_reached(way: str) -> None:
    result = search.solve(problem(macros=False), way)
    assert result.cost_after_ms == pytest.approx(result.cost_before_ms)


def test_a_macro_is_written_down_as_its_single_steps() -> None:
    """Twenty-one proved rewrites, which replay to the same graph; one candidate and one expansion."""
    whole = problem()
    table = macro_table(whole)
    k = min(table.macros, key=lambda k: table.cost[k])
    child = whole.open(table.node, table.index[k])
    assert len(child.trace) == child.depth > 10
    assert whole.meter.expansions == 1
    assert replay(Graph.parse(fan(10)), load_rules(families=["shape"]), child.trace).digest == child.graph.digest
    assert table.digests[k] == child.digest
    assert table.cost[k] == pytest.approx(child.cost)
    assert child.size == table.node.size + table.growth[k] == child.graph.num_working_nodes


def test_single_moves_keep_their_numbers() -> None:
    """What was trained or recorded without macros finds the same candidates under the same numbers."""
    with_them, without = problem(), problem(macros=False)
    table, plain = macro_table(with_them), without.moves(without.root())
    assert not plain.macros
    assert table.digests[: len(plain)] == plain.digests
    assert np.array_equal(table.cost[: len(plain)], plain.cost)
    assert table.signatures[: len(plain)] == plain.signatures
    assert len({*plain.signatures, *(table.signatures[k] for k in table.macros)}) == len({*plain.signatures}) + 2
    assert table.macros == list(range(len(plain), len(table)))


def test_the_arrays_of_the_moves_agree() -> None:
    table = macro_table(problem())
    raw = table.raw
    assert isinstance(raw, WithMacros)
    for name in ("rule", "digest", "weight_bytes", "nodes_added", "nodes_removed", "edges_added", "edges_removed"):
        assert len(getattr(raw, name)) == len(raw), name
    assert len(raw.touched_begin) == len(raw) + 1
    assert raw.touched_begin[-1] == len(raw.touched)
    for k in table.macros:
        assert set(table.touched(k).tolist()) <= table.node.nodes
    with pytest.raises(AttributeError):
        raw.nothing  # noqa: B018 - that it raises is the test


def test_a_macro_is_counted_once() -> None:
    whole = problem(budget="1000c")
    table = whole.moves(whole.root())
    assert whole.meter.candidates == len(table)
    lower = whole.open(table.node, table.index[min(table.macros, key=lambda k: table.cost[k])])
    plain = whole.moves(lower)
    before = whole.meter.candidates
    wide = whole.widened(plain)
    assert whole.meter.candidates - before == len(wide) - len(plain)
    assert whole.widened(wide) is wide


def test_macros_are_looked_at_again_where_the_graph_is_cheaper() -> None:
    whole = problem()
    plain = whole.frontier.listed(whole.root(), None)[0]
    assert whole.widened(plain) is not plain
    assert whole.widened(plain) is plain


def test_another_listing_of_the_node_leaves_the_numbers_of_a_table() -> None:
    """Members of a portfolio share the starting graph: one has its macros in hand while another lists it without."""
    whole = problem()
    table = macro_table(whole)
    k = max(table.macros)
    whole.frontier.listed(table.node, None)
    assert whole.open(table.node, table.index[k]).digest == table.digests[k]
    again = whole.moves(table.node)
    assert (again.digests, again.macros) == (table.digests, table.macros)


def test_finding_an_event_leaves_the_numbers_of_a_table() -> None:
    view = Chronicle(problem())
    table = macro_table(view)
    first, last = min(table.macros), max(table.macros)
    view.open(table.node, int(table.index[first]))
    event = view.history(table.node).event(table.signatures[first])
    found = view.find(table.node, event)
    assert found is not None
    assert view.open(table.node, int(table.index[last])).digest == table.digests[last]
    assert view.open(table.node, found).digest == table.digests[first]


def test_a_macro_stands_as_far_as_its_seeds_do() -> None:
    """After a rewrite of one of ten operators the macro of all ten takes the other nine."""
    whole = problem()
    table = macro_table(whole)
    single = next(k for k in range(len(table)) if k not in table.macros)
    other = whole.open(table.node, table.index[single])
    k = min(table.macros, key=lambda k: table.cost[k])
    again = whole.reopen(table.node, int(table.index[k]), other)
    assert again is not None
    assert again.cost < other.cost
    assert replay(Graph.parse(fan(10)), load_rules(families=["shape"]), again.trace).digest == again.graph.digest


def test_the_same_seed_gives_the_same_trace() -> None:
    assert len({search.solve(problem(6), "mcts").trace for _ in range(2)}) == 1


def test_circles_end() -> None:
    """Two rules that undo each other, as a bundle: it ends, and what it gives is a graph like any other."""
    rules = [
        Rule("down", "t", ("(Relu (Tanh ?x))",), ("(Tanh (Relu ?x))",)),
        Rule("up", "t", ("(Tanh (Relu ?x))",), ("(Relu (Tanh ?x))",)),
    ]
    graph = Graph.parse("x: f32[4] = input\na = Tanh(x)\nb = Relu(a)\nc = Tanh(b)\nd = Relu(c)\nreturn d")
    ruleset = compiled(rules)
    state = State(graph, ruleset)
    raw = state.moves()
    seeds = [
        Seed(int(raw.rule[i]), tuple(raw.touched[raw.touched_begin[i] : raw.touched_begin[i + 1]].tolist()))
        for i in range(len(raw))
    ]
    macros = Macros(ruleset, [Bundle("circle", "", ("down",), ("down", "up"))])
    found = macros.run(state, macros.plans[0], seeds)
    assert found is None or len(found.steps) >= 2


def attention() -> str:
    """Self-attention of 40 rows in 4 heads as exporters write it, its products with constants without biases."""
    lines = ["x: f32[1,40,64] = input"]
    for name, perm in (("q", [0, 2, 1, 3]), ("k", [0, 2, 3, 1]), ("v", [0, 2, 1, 3])):
        lines += [f"w{name}: f32[64,64] = const", f"{name}0 = MatMul(x, w{name})"]
        lines += [f"{name}1 = Reshape{{shape=[1,40,4,16]}}({name}0)", f"{name}2 = Transpose{{perm={perm}}}({name}1)"]
    lines += ["s = MatMul(q2, k2)", "p = Softmax{axis=3}(s)", "c0 = MatMul(p, v2)"]
    lines += ["c1 = Transpose{perm=[0,2,1,3]}(c0)", "c2 = Reshape{shape=[1,40,64]}(c1)"]
    return "\n".join([*lines, "wo: f32[64,64] = const", "y = MatMul(c2, wo)", "return y"])


def test_heads_of_attention_are_split_and_joined_as_channels() -> None:
    """What is left are the permutations at the ends, and exchanges of the last two axes, which products take in."""
    rules = load_rules(families=["layout", "shape", "linear"])
    graph = bundled(Graph.parse(attention()), rules, "rows-as-single-convolutions")
    working = [node for node in graph.order() if not graph.is_const(node)]
    perms = [graph.attrs(node)["perm"] for node in working if graph.op(node) == "Transpose"]
    assert sum(graph.op(node) == "Conv" for node in working) == 4
    assert sum(perm != [0, 1, 3, 2] for perm in perms) == 2


def odd_channels() -> str:
    """An inverted bottleneck of 18 channels with a gate, as mobile networks of odd widths have it."""
    conv = "Conv{{kernel_shape=[{k},{k}], pads=[{p},{p},{p},{p}], strides=[1,1], dilations=[1,1], group={g}}}"
    wide, deep = conv.format(k=1, p=0, g=1), conv.format(k=3, p=1, g=18)
    return "\n".join(
        [
            "x: f32[1,16,8,8] = input",
            "w1: f32[18,16,1,1] = const\nb1: f32[18] = const\nw2: f32[18,1,3,3] = const\nb2: f32[18] = const",
            "w3: f32[16,18,1,1] = const\nb3: f32[16] = const\nlow: f32[] = const 0\nhigh: f32[] = const 6",
            f"a = {wide}(x, w1, b1)\ng = Sigmoid(a)\ns = Mul(a, g)",
            f"d = {deep}(s, w2, b2)\nc = Clip(d, low, high)\ny = {wide}(c, w3, b3)\nreturn y",
        ]
    )


def bundled(graph: Graph, rules: Any, name: str) -> Any:
    """The graph after a bundle at all of its seeds."""
    state, macros = State(graph, rules.compile()), Macros(rules.compile())
    [plan] = [plan for plan in macros.plans if plan.name == name]
    raw = state.moves()
    begins, touched = np.asarray(raw.touched_begin).tolist(), np.asarray(raw.touched).tolist()
    seeds = [
        Seed(int(rule), tuple(touched[begins[i] : begins[i + 1]]))
        for i, rule in enumerate(np.asarray(raw.rule).tolist())
        if rule in plan.seeds
    ]
    applied = macros.run(state, plan, seeds)
    assert applied is not None
    return applied.state.graph


@pytest.mark.parametrize("name", ["channels-in-fours", "channels-in-fours-throughout"])
def test_channels_beside_odd_ones_are_computed_where_the_others_are(name: str) -> None:
    """No zeros are written while the network runs: they are in weights and biases."""
    graph = bundled(Graph.parse(odd_channels()), load_rules(families=["layout"]), name)
    working = [node for node in graph.order() if not graph.is_const(node)]
    assert not [node for node in working if graph.op(node) == "Pad"]
    widths = [graph.shape(graph.node_outputs(node)[0])[1] for node in working if graph.op(node) == "Conv"]
    assert widths == [20, 20, 16]
    assert [graph.attrs(node)["group"] for node in working if graph.op(node) == "Conv"] == [1, 20, 1]


@pytest.mark.parametrize(
    ("narrow", "between", "behind"),
    [("w1, b", "n = Tanh(a)", ""), ("w1", f"n = {NORM}(a, b, b, b, v)", f"m = {NORM}(d, b, b, b, v)")],
)
def test_zeros_beside_odd_depthwise_channels_are_computed_before_and_read_behind(
    narrow: str, between: str, behind: str
) -> None:
    """In an inverted bottleneck of 18 channels; normalisations between its convolutions would hold the zeros up."""
    wide = "Conv{kernel_shape=[1,1]}"
    deep = "Conv{dilations=[1,1], group=18, kernel_shape=[3,3], pads=[1,1,1,1], strides=[1,1]}"
    lines = ["x: f32[1,16,8,8] = input", "b: f32[18] = const", "v: f32[18] = const"]
    lines += ["w1: f32[18,16,1,1] = const", "w2: f32[18,1,3,3] = const", "w3: f32[16,18,1,1] = const"]
    lines += [
        f"a = {wide}(x, {narrow})",
        between,
        "r = Relu(n)",
        f"d = {deep}(r, w2)",
        behind,
        f"y = {wide}({'m' if behind else 'd'}, w3)",
    ]
    rules = load_rules(families=["layout", "fold"])
    padded = bundled(Graph.parse("\n".join([*lines, "return y"])), rules, "depthwise-padded-throughout")
    working = [node for node in padded.order() if not padded.is_const(node)]
    widths = [padded.shape(padded.node_outputs(node)[0])[1] for node in working if padded.op(node) == "Conv"]
    assert not [node for node in working if padded.op(node) in ("Pad", "Slice", NORM)]
    assert widths == [20, 20, 16]


def odd_groups(mean: str, between: str, groups: int = 13) -> str:
    """A bottleneck as in RegNetY: narrow groups, odd in number, and a gate by the means of what they made."""
    wide, width = "Conv{kernel_shape=[1,1]}", 8 * groups
    lines = ["x: f32[1,16,8,8] = input", f"b: f32[{width}] = const", "c: f32[4] = const", "e: f32[16] = const"]
    lines += [f"w1: f32[{width},16,1,1] = const", f"w2: f32[{width},8,3,3] = const", f"w3: f32[4,{width},1,1] = const"]
    lines += [f"w4: f32[{width},4,1,1] = const", f"w5: f32[16,{width},1,1] = const", f"v: f32[{width}] = const"]
    lines += [f"a = {wide}(x, w1, b)", "p = Relu(a)", f"d = Conv{{group={groups}, kernel_shape=[3,3]}}(p, w2, b)"]
    lines += [between, "q = Relu(n)", f"m = {mean}(q)", f"s = {wide}(m, w3, c)", "r = Relu(s)", f"u = {wide}(r, w4, b)"]
    return "\n".join([*lines, "g = Sigmoid(u)", "o = Mul(g, q)", f"y = {wide}(o, w5, e)", "return y"])


@pytest.mark.parametrize("mean", ["ReduceMean{axes=[2,3], keepdims=1}", "GlobalAveragePool"])
@pytest.mark.parametrize("between", ["n = Tanh(d)", f"n = {NORM}(d, b, b, b, v)"])
def test_an_odd_number_of_narrow_groups_gets_one_more(mean: str, between: str) -> None:
    """Of zeros in weights alone: nothing is padded or cut while the network runs."""
    rules = load_rules(families=["layout", "fold"])
    padded = bundled(Graph.parse(odd_groups(mean, between)), rules, "odd-groups")
    working = [node for node in padded.order() if not padded.is_const(node)]
    convs = [node for node in working if padded.op(node) == "Conv"]
    assert not [node for node in working if padded.op(node) in ("Pad", "Slice", NORM)]
    assert [padded.shape(padded.node_outputs(node)[0])[1] for node in convs] == [112, 112, 4, 112, 16]
    assert [padded.attrs(node)["group"] for node in convs] == [1, 7, 1, 1, 1]


@pytest.mark.parametrize(("groups", "offered"), [(13, True), (12, False)])
def test_only_an_odd_number_begins_it(groups: int, offered: bool) -> None:
    text = odd_groups("GlobalAveragePool", "n = Tanh(d)", groups)
    whole = Problem(Graph.parse(text), load_rules(families=["layout"]), price.make("analytic"), "60x")
    whole.moves(whole.root())
    assert ("odd-groups" in {macro.plan.name for macro in whole.root().macros}) is offered


@pytest.mark.parametrize("size", [8, 6])
def test_between_convolutions_by_winograd_maps_stay_channels_last(size: int) -> None:
    """Of three convolutions in a row with a residual, two permutations of maps are left: those at the ends."""
    conv = "Conv{dilations=[1,1], group=1, kernel_shape=[3,3], pads=[1,1,1,1], strides=[1,1]}"
    lines = [f"x: f32[1,32,{size},{size}] = input", "b: f32[32] = const"]
    lines += [f"w{k}: f32[32,32,3,3] = const" for k in range(3)]
    lines += [f"a = {conv}(x, w0, b)", "p = Relu(a)", f"c = {conv}(p, w1)", "q = Relu(c)", f"d = {conv}(q, w2, b)"]
    graph = Graph.parse("\n".join([*lines, "s = Add(p, d)", "y = Relu(s)", "return y"]))
    last = bundled(graph, load_rules(families=["winograd", "shape"]), "winograd-throughout")
    working = [node for node in last.order() if not last.is_const(node)]
    perms = [last.attrs(node)["perm"] for node in working if last.op(node) == "Transpose"]
    assert not [node for node in working if last.op(node) == "Conv"]
    assert sorted(perm for perm in perms if len(perm) == 4) == [[0, 2, 3, 1], [0, 3, 1, 2]]


def response_norm(*spelling: str) -> str:
    """A gate by the norms of channels, with scale, shift and a residual, between two 1x1 convolutions."""
    conv = "Conv{kernel_shape=[1,1]}"
    lines = ["x: f32[1,16,8,8] = input", "w: f32[32,16,1,1] = const", "v: f32[16,32,1,1] = const"]
    lines += ["b: f32[32] = const", "c: f32[16] = const", "e: f32[] = const 1e-6"]
    lines += ["s: f32[1,32,1,1] = const", "o: f32[1,32,1,1] = const", f"f = {conv}(x, w, b)", "h = Gelu(f)"]
    lines += ["n = ReduceL2{axes=[2,3]}(h)", "m = ReduceMean{axes=[1]}(n)", "a = Add(m, e)", "g = Div(n, a)"]
    return "\n".join([*lines, *spelling, f"y = {conv}(t, v, c)", "return y"])


@pytest.mark.parametrize(
    "spelling",
    [
        ("p = Mul(h, g)", "q = Mul(s, p)", "r = Add(o, q)", "t = Add(h, r)"),
        ("p = Mul(g, h)", "q = Mul(p, s)", "r = Add(q, o)", "t = Add(r, h)"),
        ("p = Mul(s, g)", "q = Mul(p, h)", "r = Add(q, o)", "t = Add(h, r)"),
        ("p = Mul(s, h)", "q = Mul(g, p)", "r = Add(o, q)", "t = Add(r, h)"),
    ],
)
def test_a_gate_with_a_residual_is_one_product(spelling: tuple[str, ...]) -> None:
    """Of four passes over the map one is left; the shift is in the bias of the convolution behind it."""
    rules = load_rules(families=["fold", "linear"])
    graph = bundled(Graph.parse(response_norm(*spelling)), rules, "gates-as-one-factor")
    working = [node for node in graph.order() if not graph.is_const(node)]
    wide = [graph.op(node) for node in working if list(graph.shape(graph.node_outputs(node)[0])) == [1, 32, 8, 8]]
    assert sorted(wide) == ["Conv", "Gelu", "Mul"]


def joint_heads(pick: str) -> str:
    """Queries, keys and values of one product of 20 rows in 4 heads; ``pick`` takes one of
    them from ``t``, a Split all where it is empty."""
    facts = f"const @{1:032x} min=-1.0 max=1.0 finite"  # as a weight of a file has them
    lines = ["x: f32[1,20,64] = input", f"w: f32[64,192] = {facts}", "b: f32[192] = const", "m = MatMul(x, w)"]
    lines += ["a = Add(m, b)", "r = Reshape{shape=[1,20,3,4,16]}(a)", "t = Transpose{perm=[2,0,3,1,4]}(r)"]
    if not pick:
        lines += ["q1, k1, v1 = Split{axis=0, split=[1,1,1]}(t)", *(f"{n} = Squeeze{{axes=[0]}}({n}1)" for n in "qkv")]
    for k, name in enumerate("qkv" if pick else ""):
        lines += [pick.format(name=name, k=k, end=k + 1)]
    lines += ["kt = Transpose{perm=[0,1,3,2]}(k)", "s = MatMul(q, kt)", "p = Softmax{axis=3}(s)", "y = MatMul(p, v)"]
    return "\n".join([*lines, "return y"])


@pytest.mark.parametrize(
    "pick",
    [
        "{name}1 = Slice{{axes=[0], starts=[{k}], ends=[{end}], steps=[1]}}(t)\n{name} = Squeeze{{axes=[0]}}({name}1)",
        "{name}i: i64[] = const {k}\n{name} = Gather{{axis=0}}(t, {name}i)",
        "",
    ],
)
def test_parts_of_a_joint_product_become_products(pick: str) -> None:
    """Each part is made by a product of its own, and what is permuted has four axes, none of them cut."""
    rules = load_rules(families=["merge", "select", "shape"])
    graph = bundled(Graph.parse(joint_heads(pick)), rules, "parts-of-products")
    working = [node for node in graph.order() if not graph.is_const(node)]
    found = [graph.op(node) for node in working]
    assert found.count("MatMul") == 5
    assert not {"Slice", "Gather", "Split"} & set(found)
    assert {len(graph.attrs(node)["perm"]) for node in working if graph.op(node) == "Transpose"} == {4}


def pooled(pick: str) -> str:
    """Two blocks of self-attention with a residual sum and a normalisation, of 40 rows; ``pick`` takes the first of
    ``h1``, which a classifier reads."""
    lines = ["x: f32[1,40,64] = input", "one: f32[64] = const", "zero: f32[64] = const"]
    for block, of in enumerate(("x", "h0")):
        for name, perm in (("q", [0, 2, 1, 3]), ("k", [0, 2, 3, 1]), ("v", [0, 2, 1, 3])):
            n = f"{name}{block}"
            lines += [f"w{n}: f32[64,64] = const", f"m{n} = MatMul({of}, w{n})"]
            lines += [f"r{n} = Reshape{{shape=[1,40,4,16]}}(m{n})", f"{n} = Transpose{{perm={perm}}}(r{n})"]
        b = str(block)
        lines += [f"s{b} = MatMul(q{b}, k{b})", f"p{b} = Softmax{{axis=3}}(s{b})", f"c{b} = MatMul(p{b}, v{b})"]
        lines += [f"t{b} = Transpose{{perm=[0,2,1,3]}}(c{b})", f"j{b} = Reshape{{shape=[1,40,64]}}(t{b})"]
        lines += [f"wo{b}: f32[64,64] = const", f"o{b} = MatMul(j{b}, wo{b})", f"a{b} = Add({of}, o{b})"]
        lines += [f"h{b} = LayerNormalization{{axis=-1}}(a{b}, one, zero)"]
    return "\n".join([*lines, pick, "wc: f32[64,3] = const", "y = MatMul(first, wc)", "return y"])


@pytest.mark.parametrize(
    "pick",
    [
        "i: i64[] = const 0\nfirst = Gather{axis=1}(h1, i)",
        "f = Slice{axes=[1], starts=[0], ends=[1], steps=[1]}(h1)\nfirst = Squeeze{axes=[1]}(f)",
    ],
)
def test_one_row_is_selected_before_the_last_block_and_no_work_is_done_twice(pick: str) -> None:
    """Of the last block's products those of keys and values have all rows; the block before it is as it was."""
    graph = bundled(Graph.parse(pooled(pick)), load_rules(families=["select"]), "rows-selected-first")
    made = [graph.shape(graph.node_outputs(node)[0]) for node in graph.order() if graph.op(node) == "MatMul"]
    rows = [list(shape)[-2] for shape in made if len(shape) == 3]
    assert sorted(rows) == [1, 1, *[40] * 6]  # the queries and the output of the last block have one row
    assert len(made) == 13


@pytest.mark.parametrize(("channels", "offered"), [(18, True), (20, False)])
def test_normalisations_alone_do_not_begin_a_bundle_that_needs_more(channels: int, offered: bool) -> None:
    """Two of them behind convolutions, of which the second is depthwise."""
    lines = [f"x: f32[1,{channels},8,8] = input", f"w: f32[{channels},1,3,3] = const", f"b: f32[{channels}] = const"]
    conv = f"Conv{{group={channels}, kernel_shape=[3,3]}}"
    lines += [f"a = {conv}(x, w)", f"n = {NORM}(a, b, b, b, b)", f"c = {conv}(n, w)", f"y = {NORM}(c, b, b, b, b)"]
    rules = load_rules(families=["layout", "fold"])
    whole = Problem(Graph.parse("\n".join([*lines, "return y"])), rules, price.make("analytic"), "60x")
    whole.moves(whole.root())
    plans = {macro.plan.name for macro in whole.root().macros}
    assert ("depthwise-padded-throughout" in plans) is offered


def test_the_shipped_bundles_name_rules_that_exist() -> None:
    names = set(all_shipped())
    bundles = read_bundles()
    assert len({bundle.name for bundle in bundles}) == len(bundles) >= 4
    for bundle in bundles:
        assert set(bundle.seeds) | set(bundle.tidy) <= names, bundle.name


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ([], "expected an object"),
        ({"bundles": [{"name": "a", "seeds": ["b"], "tidy": ["c"], "more": 1}]}, "no other field"),
        ({"bundles": [{"name": "a", "seeds": [], "tidy": ["c"]}]}, '"seeds" of the bundle'),
        ({"bundles": [{"name": "a", "seeds": ["b"], "tidy": [1]}]}, '"tidy" of the bundle'),
        ({"bundles": [{"name": "a", "seeds": ["b"], "tidy": ["c"], "consuming": 1}]}, '"consuming" of the bundle'),
        ({"bundles": [{"name": "a", "seeds": ["b"], "tidy": ["c"], "needs": "b"}]}, '"needs" of the bundle'),
        ({"bundles": [{"name": "a", "seeds": ["b"], "tidy": ["c"], "needs": ["c"]}]}, "'c', which is no seed of it"),
    ],
)
def test_malformed_bundles_are_refused(data: Any, says: str, tmp_path: Path) -> None:
    path = tmp_path / "bundles.json"
    path.write_text(json.dumps(data), encoding="utf-8")
    with pytest.raises(RuleError, match=says):
        read_file(path)
