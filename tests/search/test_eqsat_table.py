"""The operator table as a language: graphs in and out, library rules on the e-graph, and the strategies."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from rlflow import price, search
from rlflow.errors import ModelError, RuleError, UsageError
from rlflow.frontends import evaluate
from rlflow.graph import Graph, operator_counts
from rlflow.rewrite import Rule, RuleSet, State, compiled, load_rules
from rlflow.search.eqsat import EGraph, extract, read_gym
from rlflow.search.eqsat.guided import RuleSearch
from rlflow.search.eqsat.table import SaturatedGraph, SaturationLimits, declined, saturate
from rlflow.search.levin.chain_policy import ChainPolicy, ChainShape
from rlflow.testing import TINY, TOYS, TinyProblem, optimum, random_graph
from rlflow.testing.tiny import by_name


@cache
def library() -> RuleSet:
    return compiled(load_rules())


def rule(source: str | tuple[str, ...], target: str | tuple[str, ...], *where: str, **more) -> Rule:
    sources, targets = ((x,) if isinstance(x, str) else x for x in (source, target))
    return Rule(name="r", family="tiny", source=sources, target=targets, where=where, **more)


def same_graph(graph: Graph) -> Graph:
    """Out of an e-graph as it went in: nothing is applied, so there is one choice."""
    everything = saturate(graph, compiled([]))
    assert everything.egraph.broken_invariant() == ""
    return everything.extract(everything.problem, "greedy-tree")[0]


@pytest.mark.parametrize("seed", range(40))
def test_a_graph_comes_out_as_it_went_in(seed: int) -> None:
    graph = random_graph(seed, 25)
    assert same_graph(graph).digest == graph.digest


def test_inputs_that_nothing_reads_and_outputs_that_are_inputs_stay() -> None:
    text = "x: f32[2] = input\ny: f32[3] = input\nz: f32[4] = input\na = Relu(y)\nreturn y, a, y"
    assert same_graph(Graph.parse(text)).digest == Graph.parse(text).digest


def reachable(tiny: TinyProblem) -> list[Graph]:
    """Every graph that the rules reach, one rewrite at a time."""
    root = State(tiny.graph(), tiny.ruleset(), tiny.cost_model().pricer)
    seen, waiting = {root.graph.digest: root.graph}, [root]
    while waiting:
        state = waiting.pop()
        moves = state.moves()
        for i in range(len(moves)):
            if moves.digest_hex(i) not in seen:
                child = state.open(i)
                seen[child.graph.digest] = child.graph
                waiting.append(child)
    return list(seen.values())


@pytest.mark.parametrize("tiny", TINY, ids=lambda tiny: tiny.name)
def test_every_graph_that_rewriting_reaches_is_represented(tiny: TinyProblem) -> None:
    """The closure by brute force, graph by graph: adding one brings no node, and its outputs are the root's classes."""
    limits = SaturationLimits(multi_iterations=15, cycles="none", scheduler="simple", nodes=20_000)
    everything = saturate(tiny.graph(), tiny.ruleset(), limits)
    assert not declined(tiny.ruleset())
    assert everything.stop_reason == "saturated"
    assert everything.egraph.broken_invariant() == ""
    before = everything.egraph.node_count
    for graph in reachable(tiny):
        outputs = everything.egraph.add_graph(graph)
        assert everything.egraph.node_count == before, f"{graph.text()} is not represented"
        assert [everything.egraph.find(c) for c in outputs] == [everything.egraph.find(c) for c in everything.outputs]


COMMON = (
    *("Add", "Mul", "Sub", "Div", "Relu", "Tanh", "Neg", "MatMul", "Gemm", "Conv", "Softmax"),
    *("Transpose", "Reshape", "Concat", "Split", "Slice", "Unsqueeze", "Squeeze", "ReduceMean", "ReduceSum"),
)


@pytest.mark.parametrize("seed", range(12))
def test_what_is_extracted_computes_the_same(seed: int) -> None:
    """All rules of the library on a random graph, and the cheapest graph against the original, in double precision."""
    graph = random_graph(seed, 24, ops=COMMON)
    everything = saturate(graph, library(), SaturationLimits(iterations=5, nodes=3000))
    assert not everything.egraph.has_cycle(everything.outputs)
    problem = everything.priced(price.make("analytic").pricer)
    best, _ = everything.extract(problem, "greedy-dag")
    rng = np.random.default_rng(seed)
    feeds = {}
    for node in graph.inputs():
        (value,) = graph.node_outputs(node)
        feeds[graph.input_name(node)] = rng.standard_normal([int(d) for d in graph.shape(value) or ()])
    for ours, theirs in zip(
        evaluate(best, feeds, dtype=np.float64), evaluate(graph, feeds, dtype=np.float64), strict=True
    ):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-6)


X, Y, Z = (f"{name}: f32[3] = input; " for name in "xyz")
MATRICES = "x: f32[3,4] = input; v: f32[4,5] = const; w: f32[5,2] = const; "
CONSTANTS = ("constant(?v)", "constant(?w)", "rank(?v) == 2", "rank(?w) == 2")
FIRES = {
    "plain": ("(Relu (Relu ?x))", "(Relu ?x)", (), X + "a = Relu(x); b = Relu(a); return b"),
    "either way round": ("(Add (Relu ?x) ?y)", "(Add ?y ?x)", (), X + Y + "a = Relu(x); b = Add(y, a); return b"),
    "shared under commutative": (
        "(Add (Mul ?x ?y) (Mul ?x ?z))",
        "(Mul ?x (Add ?y ?z))",
        (),
        X + Y + Z + "a = Mul(y, x); b = Mul(x, z); c = Add(a, b); return c",
    ),
    "operator class and attribute": (
        "(?f:unary (Transpose{perm=?p} ?x))",
        "(Transpose{perm=?p} (?f ?x))",
        ("len(?p) == 2",),
        "x: f32[3,4] = input; a = Transpose{perm=[1,0]}(x); b = Tanh(a); return b",
    ),
    "constness and shape": (
        "(MatMul (MatMul ?x ?v) ?w)",
        "(MatMul ?x (MatMul ?v ?w))",
        CONSTANTS,
        MATRICES + "a = MatMul(x, v); b = MatMul(a, w); return b",
    ),
    "data": (
        "(Mul ?x ?c)",
        "?x",
        ("constant(?c)", "is_scalar(?c)", "scalar(?c) == 1"),
        X + "c: f32[] = const 1; y = Relu(x); a = Mul(y, c); return a",
    ),
    "sequence of three": (
        "(Relu (Concat{axis=?k} ?xs...))",
        "(Concat{axis=?k} *(Relu ?xs...))",
        (),
        X + Y + Z + "a = Concat{axis=0}(x, y, z); b = Relu(a); return b",
    ),
    "one output of several": (
        "(Relu (Split{axis=?k, split=?s} ?x):0)",
        "(Split{axis=?k, split=?s} (Relu ?x)):0",
        (),
        "x: f32[4] = input; a, b = Split{axis=0, split=[1,3]}(x); c = Relu(a); return c, b",
    ),
}


def graph_of(line: str) -> Graph:
    return Graph.parse("\n".join(line.split("; ")))


@pytest.mark.parametrize(("source", "target", "where", "line"), FIRES.values(), ids=FIRES)
def test_constructs_that_rules_may_use(source: str, target: str, where: tuple[str, ...], line: str) -> None:
    rules = compiled([rule(source, target, *where)])
    graph = graph_of(line)
    state = State(graph, rules)
    assert len(state.moves()) >= 1, "the rule does not fire on the graph itself"
    assert not declined(rules)
    everything = saturate(graph, rules, SaturationLimits(iterations=1, cycles="none"))
    assert everything.egraph.broken_invariant() == ""
    before = everything.egraph.node_count
    outputs = everything.egraph.add_graph(state.child(0))
    assert everything.egraph.node_count == before
    assert [everything.egraph.find(c) for c in outputs] == [everything.egraph.find(c) for c in everything.outputs]


QUIET = [
    ("(Mul ?x ?c)", "?x", ("constant(?c)", "scalar(?c) == 1"), X + "c: f32[] = const 2; a = Mul(x, c); return a"),
    ("(Mul ?x ?w)", "(Add ?x ?w)", ("constant(?w)",), X + Y + "a = Mul(x, y); return a"),
    ("(Relu ?x)", "(Abs ?x)", ("rank(?x) == 2",), X + "a = Relu(x); return a"),
    ("(Relu ?x)", "(Abs ?x)", ("dim(?x, 0) == 3",), "x: f32[N] = input; a = Relu(x); return a"),
]


@pytest.mark.parametrize(("source", "target", "where", "line"), QUIET, ids=[q[2][0] for q in QUIET])
def test_conditions_hold_rules_back(source: str, target: str, where: tuple[str, ...], line: str) -> None:
    everything = saturate(graph_of(line), compiled([rule(source, target, *where)]))
    assert [count["applied"] for count in everything.counts] == [0] * len(everything.counts)


def test_a_starred_source_merges_all_that_share_an_operand() -> None:
    merge = load_rules()["merge-matmul-columns"]
    text = "x: f32[4,8] = input\n" + "".join(f"w{i}: f32[8,{i + 2}] = const\n" for i in range(4))
    graph = Graph.parse(text + "".join(f"y{i} = MatMul(x, w{i})\n" for i in range(4)) + "return y0, y1, y2, y3")
    everything = saturate(graph, compiled([merge]))
    merged = State(graph, compiled([merge]))
    assert len(merged.moves()) == 1
    before = everything.egraph.node_count
    everything.egraph.add_graph(merged.child(0))
    assert everything.egraph.node_count == before
    assert sum(count["applied"] for count in everything.counts) == 1


@pytest.mark.parametrize(
    ("built", "reason"),
    [
        (rule("(Relu ?x)", "(Abs ?x)", "users(?x) == 1"), "users"),
        (
            rule(
                "(Concat{axis=?k} ?a... (Concat{axis=?k} ?b... (Relu ?x) ?c...) ?d...)", "(Concat{axis=?k} ?a... ?b...)"
            ),
            "too many shapes",
        ),
    ],
    ids=["users", "too many shapes"],
)
def test_what_is_declined_is_said(built: Rule, reason: str) -> None:
    rules = compiled([built])
    assert reason in declined(rules)["r"]
    egraph, _ = EGraph.of_graph(graph_of(X + "a = Relu(x); return a"))
    with pytest.raises(RuleError, match="declines the rule r"):
        egraph.table_rules(rules.rules[0])


def test_the_whole_library_is_used() -> None:
    assert declined(library()) == {}


@pytest.mark.parametrize(
    ("nested", "flat"),
    [
        ("c = Concat{axis=0}(x, y); d = Concat{axis=0}(c, z)", "d = Concat{axis=0}(x, y, z)"),
        ("c = Concat{axis=0}(x, y); d = Concat{axis=0}(z, c)", "d = Concat{axis=0}(z, x, y)"),
        ("c = Concat{axis=0}(y, z); d = Concat{axis=0}(x, c, x)", "d = Concat{axis=0}(x, y, z, x)"),
        ("c = Concat{axis=0}(x); d = Concat{axis=0}(c, c)", "d = Concat{axis=0}(x, x)"),
    ],
)
def test_several_sequences_share_the_operands_out(nested: str, flat: str) -> None:
    join = rule("(Concat{axis=?k} ?p... (Concat{axis=?k} ?x...) ?q...)", "(Concat{axis=?k} ?p... ?x... ?q...)")
    inputs = "x: f32[2] = input; y: f32[3] = input; z: f32[4] = input; "
    everything = saturate(graph_of(f"{inputs}{nested}; return d"), compiled([join]))
    before = everything.egraph.node_count
    outputs = everything.egraph.add_graph(graph_of(f"{inputs}{flat}; return d"))
    assert everything.egraph.node_count == before
    assert everything.egraph.find(outputs[-1]) == everything.egraph.find(everything.outputs[0])


def test_a_target_of_another_type_is_not_applied() -> None:
    false = rule("(Relu ?x)", "(Transpose{perm=[1,0]} ?x)", "rank(?x) == 2")
    graph = graph_of("x: f32[3,4] = input; a = Relu(x); b = Tanh(a); return b")
    everything = saturate(graph, compiled([false]))
    assert sum(count["applied"] for count in everything.counts) == 0


def test_a_price_on_weights_takes_the_lighter_choice() -> None:
    """One product less for a third constant, where the two others are read elsewhere too."""
    text = """
    x: f32[64,64] = input
    v: f32[64,64] = const
    w: f32[64,64] = const
    a = MatMul(x, v)
    b = MatMul(x, w)
    c = Add(a, b)
    d = Mul(x, v)
    e = Mul(x, w)
    return c, d, e
    """
    graph = Graph.parse(text)
    fold = rule("(Add (MatMul ?x ?v) (MatMul ?x ?w))", "(MatMul ?x (Add ?v ?w))", *CONSTANTS)
    everything = saturate(graph, compiled([fold]))
    pricer = price.make("analytic").pricer
    light, _ = everything.extract(everything.priced(pricer, ms_per_weight_byte=1.0), "greedy-dag")
    fast, _ = everything.extract(everything.priced(pricer), "greedy-dag")
    assert light.digest == graph.digest
    assert operator_counts(fast)["MatMul"] == 1


@pytest.mark.parametrize("tiny", TINY, ids=lambda tiny: tiny.name)
def test_eqsat_reaches_every_known_optimum(tiny: TinyProblem) -> None:
    result = search.solve(tiny.problem("2000x"), "eqsat:multi=3")
    assert result.cost_after_ms == pytest.approx(optimum(tiny).cost_ms, rel=1e-9)
    assert result.trace is None


def test_the_preset_is_tensats_settings() -> None:
    preset = search.make("tensat")
    assert (preset.rounds, preset.iterations, preset.multi, preset.nodes) == (1, 15, 1, 50_000)
    assert preset.extraction == "auto"


@pytest.mark.parametrize("spec", ["eqsat:scheduler=lazy", "eqsat:cycles=all", "eqsat:extraction=luck"])
def test_unknown_options_are_refused(spec: str) -> None:
    with pytest.raises(UsageError, match="expected"):
        search.make(spec)


def test_greedy_extraction_needs_no_solver() -> None:
    tiny = by_name("plateau")
    result = search.solve(tiny.problem("2000x"), "eqsat:extraction=greedy-dag")
    assert result.cost_after_ms == pytest.approx(optimum(tiny).cost_ms, rel=1e-9)


def test_the_e_graph_can_be_written(tmp_path: Path) -> None:
    tiny = by_name("plateau")
    search.solve(tiny.problem("2000x"), f"eqsat:egraph_out={tmp_path / 'e.json.gz'}")
    problem = read_gym(tmp_path / "e.json.gz").problem
    assert extract(problem, "greedy-dag").cost == pytest.approx(optimum(tiny).cost_ms, rel=1e-6)


PRODUCT = "x: f32[4,8] = input\nw: f32[8,8] = const\ny = MatMul(x, w)\nreturn y"
CHAIN = "x: f32[4,8] = input\na = Relu(x)\nb = Tanh(a)\nreturn b, a"


@pytest.mark.parametrize(
    ("call", "part"),
    [
        (lambda g, mine, problem, other: g.chosen_graph(*mine, other, other.greedy_tree()), "not a snapshot of this"),
        (lambda g, mine, problem, other: g.clone().chosen_graph(*mine, problem, problem.greedy_tree()), "not a snap"),
        (lambda g, mine, problem, other: g.chosen_graph(*mine, problem, [10**6] * 3), "1000000 is no node of class 0"),
        (lambda g, mine, problem, other: g.chosen_graph(*mine, problem, problem.greedy_tree()[::-1]), "no node of"),
        (lambda g, mine, problem, other: g.chosen_graph(*mine, problem, problem.greedy_tree()[:2]), "3 classes, and 2"),
        (lambda g, mine, problem, other: problem.choice_cost([10**6] * 3), "1000000 is no node of class 0"),
        (lambda g, mine, problem, other: problem.simplify().expand([10**6] * 3), "no node of class 0|classes, and 3"),
    ],
)
def test_a_choice_is_of_nodes_that_there_are(call, part: str) -> None:
    graph = Graph.parse(PRODUCT)
    (egraph, outputs), (_, others) = EGraph.of_graph(graph), EGraph.of_graph(Graph.parse(CHAIN))
    problem, other = egraph.snapshot(outputs), EGraph.of_graph(Graph.parse(CHAIN))[0].snapshot(others)
    with pytest.raises(UsageError, match=part):
        call(egraph, (graph, outputs), problem, other)
    assert egraph.chosen_graph(graph, outputs, problem, problem.greedy_tree()).digest == graph.digest


@pytest.mark.parametrize("language", ["terms", "tensat", "table"])
def test_an_operator_that_there_is_none_of_has_no_name(language: str) -> None:
    egraph = EGraph.of_graph(Graph.parse(PRODUCT))[0] if language == "table" else EGraph(language)
    assert egraph.op_name(10**6) == "?"
    assert egraph.attr_text(3, 10**6) == "" == egraph.attr_text(1, 10**6)


def attention() -> Graph:
    """Two blocks of three products of one input: merged, each is one product and a split."""
    lines = ["x: f32[8,16] = input"] + [f"w{i}: f32[16,16] = const @{0xA77E0000 + i:032x}" for i in range(6)]
    for block, source in enumerate(("x", "s0")):
        lines += [f"p{block}{k} = MatMul({source}, w{3 * block + k})" for k in range(3)]
        lines += [f"a{block} = Add(p{block}0, p{block}1)", f"s{block} = Add(a{block}, p{block}2)"]
    return Graph.parse("\n".join([*lines, "return s1"]))


def test_the_tree_search_over_rules_finds_what_saturation_finds() -> None:
    found = {
        spec: search.solve(search.Problem(attention(), library(), price.make("analytic"), "2000c"), spec).cost_after_ms
        for spec in ("eqsat:descent=false", "eqsat:scheduler=mcts,descent=false,simulations=24")
    }
    assert len(set(found.values())) == 1, found


def test_the_tree_search_depends_on_its_seed_alone_and_keeps_its_cap() -> None:
    def values(seed: int) -> list[tuple[int, int]]:
        seen: list[tuple[int, int]] = []

        def value(found: SaturatedGraph) -> float:
            seen.append((found.egraph.node_count, found.egraph.class_count))
            return float(found.egraph.node_count)

        rng = np.random.default_rng(seed)
        tree = RuleSearch(attention(), library(), rng, value, lambda: False, nodes=60, cycles="efficient")
        best = tree.run(12)
        assert best.egraph.node_count == max([nodes for nodes, _ in seen])
        assert all(one.egraph.node_count > 60 for one in tree.root.children.values() if one.closed and not one.children)
        return seen

    assert values(1) == values(1)
    assert values(1) != values(2)


def ordered(*likeliest: str, after: str = "") -> tuple[ChainPolicy, tuple[str, ...]]:
    """A policy of the library's rules that thinks these likelier than all others, the first most; only ``after`` that
    rule, where one is given.
    """
    names = tuple(library().names)
    shape = ChainShape(len(names), 1)
    groups = shape.split(np.zeros(shape.size))
    for place, name in enumerate(likeliest):
        weights = groups["after"][names.index(after)] if after else groups["rule"]
        weights[names.index(name)] = 9.0 - place
    return ChainPolicy(shape, np.zeros(len(names), dtype=np.int64), shape.joined(groups)), names


def guided(policy: tuple[ChainPolicy, tuple[str, ...]] | None, seed: int = 0) -> RuleSearch:
    rng = np.random.default_rng(seed)
    value = lambda found: 0.0  # noqa: E731 - nothing is worth anything, so that only the order counts
    return RuleSearch(attention(), library(), rng, value, lambda: False, nodes=500, cycles="efficient", policy=policy)


def named(tree: RuleSearch, path: Sequence[int]) -> list[str]:
    return [tree.actions[action][0].name for action in path]


def changing() -> list[str]:
    """The rules that change the e-graph of :func:`attention`."""
    tree = guided(None)
    tree.run(60)
    return sorted(named(tree, one.path)[0] for one in tree.root.children.values())


def test_a_prior_decides_what_the_tree_search_tries_first() -> None:
    first, second, *_ = changing()
    for likeliest in ((first, second), (second, first)):
        tree = guided(ordered(*likeliest), seed=3)
        tree.run(40)
        assert named(tree, tree.root.children[0].path) == [likeliest[0]]
        assert tree.root.visits[0] > 1  # it goes on from there before all others were tried
        chances = tree.prior(())
        tried = [chances[tree.root.children[k].path[0]] for k in sorted(tree.root.children)]
        assert tree.root.prior[: len(tried)] == pytest.approx(tried)
        assert len(tried) > 1 and tried == sorted(tried, reverse=True)


def test_play_outs_draw_by_the_prior() -> None:
    tree, applied = guided(ordered(*changing()[:2])), []
    tree._apply = lambda egraph, action: bool(applied.append(action))  # nothing changes, so the path stays empty
    for _ in range(60):
        tree._playout(tree.root)
    counts = np.bincount(applied, minlength=len(tree.actions)) / len(applied)
    assert counts == pytest.approx(tree.prior(()), abs=0.1)


def test_play_outs_draw_by_what_they_did_last() -> None:
    first, second, *_ = changing()
    tree, runs = guided(ordered(second, after=first)), []
    tree._apply = lambda egraph, action: bool(runs[-1].append(tree.actions[action][0].name)) or True
    for _ in range(200):
        runs.append([])
        tree._playout(tree.root)
    then = [after for run in runs for before, after in pairwise(run) if before == first]
    others = [after for run in runs for before, after in pairwise(run) if before != first]
    assert then.count(second) > 0.7 * len(then) > 0
    assert others.count(second) < 0.2 * len(others)


def test_a_path_of_rules_is_worth_what_its_e_graph_is() -> None:
    tree = guided(None)
    tree.value = lambda found: float(found.egraph.node_count)
    tree.run(12)
    assert len(tree.best_path) > 0
    assert tree.gain_of(tree.best_path) == tree.high == tree.best.egraph.node_count
    assert tree.gain_of(()) == tree.root.egraph.node_count


def test_a_prior_is_one_that_ships_or_a_file(tmp_path: Path) -> None:
    problem = search.Problem(attention(), library(), price.make("analytic"), "2000c")
    found = search.solve(problem, "eqsat:scheduler=mcts,descent=false,simulations=24,prior=levin")
    assert found.cost_after_ms < found.cost_before_ms
    with pytest.raises(ModelError, match=r"none\.npz"):
        search.require_ready(search.make(f"eqsat:scheduler=mcts,extraction=greedy-dag,prior={tmp_path / 'none.npz'}"))


def test_only_the_tree_search_draws_random_numbers() -> None:
    assert search.make("eqsat:scheduler=mcts").randomised
    assert not search.make("eqsat").randomised


def test_where_no_single_rewrite_gains_the_e_graph_still_does() -> None:
    """A chain whose first step costs: the e-graph does not see the hill, and the way down from its graph is short."""
    toys = {toy.name: toy for toy in TOYS}
    problem = toys["deep-valley"].problem("1000c")
    assert search.solve(problem, "eqsat").cost_after_ms <= optimum(toys["deep-valley"]).cost_ms * (1 + 1e-9)
