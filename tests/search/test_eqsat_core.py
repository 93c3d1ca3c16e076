"""The native e-graph against slow oracles: congruence, represented terms, joins, cycles."""

from __future__ import annotations

import itertools

import pytest
from egraph_oracle import NaiveCongruence, closure, parse, represented, text
from hypothesis import given, settings
from hypothesis import strategies as st

from rlflow._core import EGraph, Saturation, StopToken
from rlflow.errors import GraphError, UsageError

SETTINGS = settings(max_examples=60, deadline=None)
STEPS = st.lists(st.tuples(st.sampled_from(["add", "unite", "rebuild"]), *([st.integers(0, 10_000)] * 4)), max_size=60)


@SETTINGS
@given(STEPS)
def test_classes_are_those_of_a_naive_congruence_closure(steps: list[tuple]) -> None:
    egraph, naive = EGraph(), NaiveCongruence()
    ids = [egraph.parse(name) for name in "abc"]
    ours = [naive.add(name, ()) for name in "abc"]
    for what, i, j, k, op in steps:
        i, j = i % len(ids), j % len(ids)
        if what == "add":
            head, children = (("f", (i,)), ("g", (i, j)), ("h", (j, i, k % len(ids))))[op % 3]
            ids.append(egraph.add(head, [ids[c] for c in children]))
            ours.append(naive.add(head, tuple(ours[c] for c in children)))
        elif what == "unite":
            egraph.unite(ids[i], ids[j])
            naive.unite(ours[i], ours[j])
        else:
            egraph.rebuild()
            assert egraph.broken_invariant() == ""
    egraph.rebuild()
    naive.close()
    assert egraph.broken_invariant() == ""
    for (a, x), (b, y) in itertools.combinations(zip(ids, ours, strict=True), 2):
        assert (egraph.find(a) == egraph.find(b)) == (naive.block[x] == naive.block[y])
    assert egraph.class_count == len(set(naive.block))


# Equations, each used in both directions; all keep the size of a term, so that every closure is finite.
EQUATIONS = [
    ("(g ?x ?y)", "(g ?y ?x)"),
    ("(g ?x (g ?y ?z))", "(g (g ?x ?y) ?z)"),
    ("(f (k ?x))", "(k (f ?x))"),
    ("(f (g ?x ?y))", "(g (f ?x) ?y)"),
    ("(g ?x ?x)", "(h ?x ?x)"),
    ("(h ?x (f ?y))", "(h (f ?x) ?y)"),
    ("a", "b"),
]
TERMS = st.recursive(
    st.sampled_from([("a",), ("b",), ("c",)]),
    lambda t: st.one_of(st.tuples(st.sampled_from("fk"), t), st.tuples(st.sampled_from("gh"), t, t)),
    max_leaves=4,
)


@SETTINGS
@given(TERMS, st.sets(st.sampled_from(EQUATIONS[:-1]), min_size=1, max_size=3))
def test_the_terms_represented_are_the_closure_by_brute_force(term: tuple, equations: set[tuple[str, str]]) -> None:
    lines = [f"{a}=>{b}" for pair in sorted(equations) for a, b in (pair, pair[::-1])]
    rules = [(parse(left), parse(right)) for left, right in (line.split("=>") for line in lines)]
    expected = closure(term, rules, 3000)
    if expected is None:
        return
    egraph = EGraph()
    root = egraph.parse(text(term))
    run = Saturation(
        egraph, [egraph.rule(line, [line]) for line in lines], [root], cycles="none", scheduler="simple", iterations=100
    )
    assert run.run() == "saturated"
    assert egraph.broken_invariant() == ""
    assert represented(egraph, root, 3000) == expected


def test_equal_leaves_make_their_users_equal() -> None:
    egraph = EGraph()
    fa, fb, gfa = egraph.parse("(f a)"), egraph.parse("(f b)"), egraph.parse("(g (f a) c)")
    gfb = egraph.parse("(g (f b) c)")
    assert egraph.unite(egraph.parse("a"), egraph.parse("b"))
    egraph.rebuild()
    assert egraph.find(fa) == egraph.find(fb)
    assert egraph.find(gfa) == egraph.find(gfb)
    assert (egraph.node_count, egraph.class_count) == (5, 4)  # a, b, c, f, g; a and b in one class
    assert not egraph.unite(fa, fb)


def test_a_clone_goes_its_own_way() -> None:
    egraph = EGraph()
    a, b = egraph.parse("(f a)"), egraph.parse("(f b)")
    other = egraph.clone()
    other.unite(a, b)
    other.parse("(f c)")
    other.rebuild()
    egraph.rebuild()
    assert (egraph.node_count, egraph.class_count) == (4, 4)
    assert (other.node_count, other.class_count) == (6, 5)
    assert egraph.broken_invariant() == other.broken_invariant() == ""


@SETTINGS
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=12, unique=True), st.booleans())
def test_a_rule_with_two_roots_joins_on_its_shared_variable(pairs: list[tuple[int, int]], unordered: bool) -> None:
    """(g ?x ?y), (g ?x ?z) as a nested loop: each pair of different nodes with one first operand, once if unordered."""
    egraph = EGraph()
    nodes = [egraph.parse(f"(g x{a} y{b})") for a, b in pairs]
    rule = egraph.rule(
        "merge", ["(g ?x ?y)=>(first (m ?x ?y ?z))", "(g ?x ?z)=>(second (m ?x ?y ?z))"], unordered=unordered
    )
    run = Saturation(egraph, [rule], nodes, iterations=1, cycles="none", scheduler="simple")
    run.run()
    expected = {
        (a, b, d)
        for (i, (a, b)), (j, (c, d)) in itertools.product(enumerate(pairs), repeat=2)
        if a == c and i != j and (not unordered or nodes[i] < nodes[j])
    }
    arrays = egraph.nodes()
    built = sum(egraph.op_name(int(op)) == "m" for op in arrays["op"])
    assert built == len(expected) == run.counts()[0]["matches"]
    assert egraph.broken_invariant() == ""


CYCLIC = [["(f (g ?x))=>(f ?x)"], ["(g ?x)=>(f (g ?x))"], ["(h ?x ?y)=>(h ?y (h ?x ?y))"], ["(k ?x)=>?x"]]


@pytest.mark.parametrize("cycles", ["efficient", "vanilla"])
@SETTINGS
@given(term=TERMS)
def test_no_filter_leaves_a_cycle_or_an_empty_root(cycles: str, term: tuple) -> None:
    egraph = EGraph()
    root = egraph.parse(text(term))
    rules = [egraph.rule(f"r{i}", lines) for i, lines in enumerate(CYCLIC)]
    run = Saturation(egraph, rules, [root], cycles=cycles, iterations=4, nodes=300)
    run.run()
    assert egraph.broken_invariant() == ""
    assert not egraph.has_cycle(run.roots)
    problem = egraph.snapshot(run.roots)
    problem.set_cost([1.0] * len(problem))
    assert problem.choice_cost(problem.greedy_tree()) <= len(text(term))


def test_without_a_filter_there_are_cycles_that_filtering_afterwards_removes() -> None:
    egraph = EGraph()
    root = egraph.parse("(k (k (g a)))")
    run = Saturation(egraph, [egraph.rule("k", ["(k ?x)=>?x"])], [root], cycles="none")
    assert run.run() == "saturated"
    assert egraph.has_cycle([root])
    assert egraph.filter_cycles([root]) == egraph.filtered_count == 1
    assert not egraph.has_cycle([root])
    assert egraph.broken_invariant() == ""


def test_vanilla_refuses_before_what_efficient_filters_after() -> None:
    def filtered(cycles: str) -> tuple[int, int]:
        egraph = EGraph()
        root = egraph.parse("(pair (f a) (g (h (f a))))")
        line = ["(f ?x)=>(first (m ?x ?y))", "(g ?y)=>(second (m ?x ?y))"]
        run = Saturation(egraph, [egraph.rule("m", line)], [root], cycles=cycles, iterations=1)
        run.run()
        return egraph.filtered_count, run.counts()[0]["applied"]

    assert filtered("vanilla") == (0, 0)
    assert filtered("efficient") == (0, 0)  # the descendants before the step show it too
    assert filtered("none") == (0, 1)


def test_reports_and_stop_reasons() -> None:
    def run(**options) -> tuple[str, Saturation]:
        egraph = EGraph()
        root = egraph.parse("(g a (g b (g c d)))")
        lines = ["(g ?x ?y)=>(g ?y ?x)", "(g ?x (g ?y ?z))=>(g (g ?x ?y) ?z)"]
        saturation = Saturation(egraph, [egraph.rule(x, [x]) for x in lines], [root], **options)
        return saturation.run(), saturation

    reason, saturation = run()
    assert reason == "saturated"
    last = saturation.reports()[-1]
    assert last["applied"] == 0
    assert last["nodes"] == saturation.egraph.node_count
    assert last["classes"] == saturation.egraph.class_count
    assert sum(r["unions"] for r in saturation.reports()) == saturation.egraph.unions
    assert run(iterations=1)[0] == "iteration_limit"
    assert run(nodes=8)[0] == "node_limit"
    assert run(seconds=0)[0] == "time_limit"
    stop = StopToken()
    stop.set()
    reason, saturation = run(stop=stop)
    assert reason == "interrupted"
    assert not saturation.reports()


def test_back_off_rests_rules_and_reaches_the_same_end() -> None:
    def saturate(**options) -> tuple[set, list[dict]]:
        egraph = EGraph()
        root = egraph.parse("(g a (g b (g c d)))")
        lines = ["(g ?x ?y)=>(g ?y ?x)", "(g ?x (g ?y ?z))=>(g (g ?x ?y) ?z)"]
        run = Saturation(egraph, [egraph.rule(x, [x]) for x in lines], [root], iterations=200, cycles="none", **options)
        assert run.run() == "saturated"
        return represented(egraph, root, 10_000) or set(), run.counts()

    simple, _ = saturate(scheduler="simple")
    backed_off, counts = saturate(scheduler="backoff", match_limit=4, ban_length=2)
    assert simple == backed_off
    assert len(simple) == 120  # 4! orders times 5 bracketings
    assert any(count["banned"] for count in counts)


def test_a_rule_is_of_the_e_graph_it_was_made_for_and_of_later_clones() -> None:
    """Operators and facts have numbers in an e-graph; another one has others."""
    mine, other = EGraph(), EGraph()
    root = mine.parse("(f a)")
    other.parse("(f a)")
    rule, before = mine.rule("drop", ["(f ?x)=>?x"]), mine.clone()
    late = mine.rule("late", ["(f ?x)=>(g ?x)"])
    for egraph, one in ((other, rule), (before, late), (mine, other.rule("theirs", ["(f ?x)=>?x"]))):
        with pytest.raises(UsageError, match=f"The rule {one.name} was made for another e-graph"):
            Saturation(egraph, [one], [root])
    for egraph, rules in ((before, [rule]), (before.clone(), [rule]), (mine.clone(), [rule, late]), (mine, [late])):
        assert Saturation(egraph, rules, [root]).run() == "saturated"


def test_one_rule_at_a_time() -> None:
    egraph = EGraph()
    root = egraph.parse("(f (g a b))")
    rules = [egraph.rule("swap", ["(g ?x ?y)=>(g ?y ?x)"]), egraph.rule("drop", ["(f ?x)=>?x"])]
    run = Saturation(egraph, rules, [root])
    assert run.apply_rule(0)
    assert not run.apply_rule(0)
    assert run.apply_rule(1)
    assert represented(egraph, egraph.parse("(g a b)"), 100) is None  # f of it is in it now
    with pytest.raises(UsageError, match="There is no rule 2"):
        run.apply_rule(2)


@pytest.mark.parametrize(
    ("call", "error", "part"),
    [
        (lambda g: g.parse("(f a"), UsageError, "ends too early"),
        (lambda g: g.parse("(f a))"), UsageError, "something follows"),
        (lambda g: g.rule("r", ["(f ?x)"]), Exception, "no '=>'"),
        (lambda g: g.rule("r", ["(f ?x)=>(g ?y)"]), Exception, r"uses \?y, which the left does not bind"),
        (lambda g: Saturation(g, [g.rule("r", ["?x=>(f ?x)"])], [0]), Exception, "operator at its root"),
        (lambda g: g.find(99), UsageError, "no class 99"),
        (lambda g: g.snapshot([99]), UsageError, "no class 99"),
        (lambda g: EGraph("klingon"), UsageError, "no e-graph language 'klingon'"),
        (lambda g: EGraph("tensat").parse("(relu 1)"), GraphError, "relu does not take the operands 1"),
        (lambda g: EGraph("tensat").parse("(swish a)"), UsageError, "no operator 'swish'"),
        (lambda g: Saturation(g, [EGraph("tensat").rule("r", ["(relu ?x)=>?x"])], [0]), UsageError, "in the language"),
        (lambda g: Saturation(g, [], [0], cycles="some"), UsageError, "no cycle filter 'some'"),
        (lambda g: Saturation(g, [], [0], scheduler="best"), UsageError, "no scheduler 'best'"),
    ],
)
def test_mistakes_are_answered_with_a_sentence(call, error: type[Exception], part: str) -> None:
    egraph = EGraph()
    egraph.parse("(f a)")
    egraph.rebuild()
    with pytest.raises(error, match=part):
        call(egraph)
