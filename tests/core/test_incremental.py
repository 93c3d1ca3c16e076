"""Matches kept up to date after a rewrite equal those found from nothing; a child equals itself built from its text."""

from __future__ import annotations

import os
import random
import subprocess
import sys

import pytest
from core_graphs import RULES, random_graph

from rlflow._core import Graph, Pricer, Rule, RuleSet, State, explain

Move = tuple[str, tuple[int, ...], str]


def moves_of(state: State) -> list[Move]:
    moves = state.moves()
    return [(RULES.names[moves.rule[i]], tuple(state.key(i)), moves.digest_hex(i)) for i in range(len(moves))]


@pytest.mark.parametrize("block", range(20))
def test_a_walk_keeps_matches_and_digests_exact(block: int) -> None:
    fired: set[str] = set()
    for seed in range(block * 15, block * 15 + 15):
        rng = random.Random(seed)
        state = State(random_graph(seed), RULES)
        for _ in range(8):
            moves = moves_of(state)
            assert moves == moves_of(State(state.graph, RULES)), f"seed {seed}\n{state.graph.text()}"
            if not moves:
                break
            choice = rng.randrange(len(moves))
            child = state.open(choice)
            fired.add(moves[choice][0])
            assert child.graph.digest == moves[choice][2]
            again = Graph.parse(child.graph.text())
            assert (again.digest, again.num_nodes) == (child.graph.digest, child.graph.num_nodes)
            assert state.find(moves[choice][0], moves[choice][1]) == choice
            state = child
    assert len(fired) >= 5, "the walk hardly rewrote anything"


@pytest.mark.parametrize("block", range(10))
def test_matches_that_waited_for_several_rewrites_are_those_found_from_nothing(block: int) -> None:
    """``take`` and ``step`` look for no matches: whoever asks for them later gets all, in the order of a new search."""
    steps = 0
    for seed in range(block * 15, block * 15 + 15):
        rng = random.Random(seed)
        state = State(random_graph(seed), RULES)
        for _ in range(6):
            # What could be done is read from a state of its own, so that this one stays without matches.
            fresh = State(state.graph, RULES)
            moves = moves_of(fresh)
            if not moves:
                break
            i = rng.randrange(len(moves))
            name, key, digest = moves[i]
            taken = state.take(int(fresh.moves().rule[i]), touched(fresh, i))
            child = state.step(name, key)
            assert taken is not None and child is not None
            assert child.graph.digest == digest
            same = state.step(name, taken[1])  # of several ways to match these nodes `take` takes the first
            assert same is not None and same.graph.digest == taken[0].graph.digest
            state, steps = rng.choice([taken[0], child]), steps + 1
            if rng.random() < 0.3:
                assert moves_of(state) == moves_of(State(state.graph, RULES)), f"seed {seed}\n{state.graph.text()}"
        assert moves_of(state) == moves_of(State(state.graph, RULES)), f"seed {seed}\n{state.graph.text()}"
    assert steps > 30


@pytest.mark.parametrize("rule", ["no such rule", RULES.names[0]])
@pytest.mark.parametrize("key", [[], [-1], [10**6], [0, 0]])
def test_a_step_that_does_not_apply_is_none(rule: str, key: list[int]) -> None:
    assert State(random_graph(3), RULES).step(rule, key) is None


def test_a_part_of_the_moves_is_what_the_whole_has_there() -> None:
    """``near``: new matches and those that touch the nodes; ``same``: the one that still stands, or nothing."""
    parts = kept = gone = 0
    for seed in range(60):
        rng = random.Random(seed)
        base = State(random_graph(seed), RULES)
        if not len(base.moves()):
            continue
        known = {(base.moves().rule[i], tuple(touched(base, i))) for i in range(len(base.moves()))}
        child = base.open(rng.randrange(len(base.moves())))
        whole = moves_of(child)
        near = set(child.graph.order()[:3])
        part = child.near(base, sorted(near))
        wanted = [
            (child.moves().rule[i], tuple(touched(child, i))) not in known or bool(near & set(touched(child, i)))
            for i in range(len(whole))
        ]
        selected = moves_of(part)
        assert {m[2] for m in selected} >= {m[2] for m, wants in zip(whole, wanted, strict=True) if wants}
        assert {m[2] for m in selected} <= {m[2] for m in whole}
        for k, move in enumerate(selected):
            assert part.open(k).graph.digest == move[2]
            assert moves_of(part.open(k)) == moves_of(State(part.open(k).graph, RULES))
        parts += len(selected)
        for i in range(len(base.moves())):
            one = child.same(base, i)
            kept, gone = kept + (len(one.moves()) > 0), gone + (len(one.moves()) == 0)
            for move in moves_of(one):
                assert move[0] == RULES.names[base.moves().rule[i]]
                assert move[2] in {m[2] for m in whole}
    assert min(parts, kept, gone) > 50


def touched(state: State, i: int) -> list[int]:
    moves = state.moves()
    return moves.touched[moves.touched_begin[i] : moves.touched_begin[i + 1]].tolist()


def test_a_profile_counts_what_the_states_did() -> None:
    assert State(random_graph(3), RULES).profile() == {}
    root = State(random_graph(3), RULES, profile=True)
    root.moves()
    before = root.profile()
    assert sum(row["matched"] for row in before.values()) == sum(row["matched"] for row in root.stats().values())
    assert all(row["tried"] > 0 and row["match_ms"] > 0 for row in before.values())
    root.open(0).moves()
    after = root.profile()
    assert sum(row["built"] for row in after.values()) > sum(row["built"] for row in before.values())
    assert all(after[name]["tried"] >= row["tried"] for name, row in before.items())


def test_rules_that_share_a_pattern_match_as_they_do_alone() -> None:
    statements = [
        ("abs", ["(Add ?a ?b)"], ["(Abs (Add ?a ?b))"], ["rank(?a) == 2"]),
        ("neg", ["(Add ?a ?b)"], ["(Neg (Add ?b ?a))"], ["constant(?a)"]),
        ("other", ["(Add ?b ?a)"], ["(Neg (Add ?b ?a))"], []),
        ("never", ["(Add ?a ?b)"], ["(Neg (Neg (Add ?a ?b)))"], ["rank(?a) == 9"]),
    ]
    together = RuleSet(Rule(*statement) for statement in statements)
    found = 0
    for seed in range(40):
        graph = random_graph(seed)
        state = State(graph, together)
        state.moves()
        for name, *rest in statements:
            alone = State(graph, RuleSet([Rule(name, *rest)]))
            alone.moves()
            assert state.stats().get(name, {}).get("matched") == alone.stats().get(name, {}).get("matched")
        found += sum(row["matched"] for row in state.stats().values())
    assert found > 20


def test_what_is_constant_is_not_rewritten() -> None:
    rule = Rule("absolute", ["(Relu ?x)"], ["(Abs (Relu ?x))"])
    graph = Graph.parse("w: f32[2] = const\nx: f32[2] = input\na = Relu(w)\nb = Relu(x)\nc = Add(a, b)\nreturn c\n")
    assert len(State(graph, RuleSet([rule])).moves()) == 1
    constant, work = explain(graph, rule)
    assert "constant" in constant and "fires" in work


@pytest.mark.parametrize("pricer", [Pricer.analytic(), Pricer.analytic(overhead_us=7.0, fusion="onnxruntime")])
def test_the_delta_of_a_move_is_the_difference_of_the_costs(pricer: Pricer) -> None:
    compared = 0
    for seed in range(150):
        state = State(random_graph(seed), RULES, pricer)
        moves = state.moves()
        for i in range(len(moves)):
            child = state.child(i)
            assert moves.delta_ms[i] == pytest.approx(pricer.price(child)[0] - pricer.price(state.graph)[0], abs=1e-9)
            assert moves.weight_bytes[i] == pricer.summary(child)["weight_bytes"]
            compared += 1
    assert compared > 300


def test_counts_of_nodes_agree_with_the_graphs() -> None:
    def work(graph: Graph) -> int:
        return sum(not graph.is_const(n) for n in graph.order())

    compared = 0
    for seed in range(120):
        state = State(random_graph(seed), RULES)
        moves = state.moves()
        for i in range(len(moves)):
            difference = work(state.child(i)) - work(state.graph)
            assert difference == moves.nodes_added[i] - moves.nodes_removed[i], RULES.names[moves.rule[i]]
            compared += 1
    assert compared > 200


def test_digests_and_moves_are_the_same_in_another_process() -> None:
    script = (
        "from core_graphs import RULES, random_graph\n"
        "from rlflow._core import State\n"
        "for seed in range(10):\n"
        "    s = State(random_graph(seed), RULES)\n"
        "    m = s.moves()\n"
        "    print(s.graph.digest, [m.digest_hex(i) for i in range(len(m))], [s.key(i) for i in range(len(m))])\n"
    )
    path = os.pathsep.join(p for p in sys.path if p)
    outputs = {
        subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": path},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("1", "2")
    }
    assert len(outputs) == 1
    assert outputs.pop().count("\n") == 10


def test_a_step_is_found_where_another_match_stands_for_its_result() -> None:
    """Of two rules with one result the first is the move; a trace that names the second replays all the same."""
    graph = Graph.parse("x: f32[2] = input\na = Neg(x)\nb = Neg(a)\nc = Relu(b)\nreturn c")
    first, second = (Rule(name, ["(Neg (Neg ?x))"], ["?x"], [], []) for name in ("first", "second"))
    both, alone = State(graph, RuleSet([first, second])), State(graph, RuleSet([second]))
    assert len(alone.moves()) == 1
    assert [both.ruleset.rules[r].name for r in both.moves().rule] == ["first"]
    assert both.find("second", alone.key(0)) == 0
    assert both.find("second", [0]) == -1 and both.find("third", alone.key(0)) == -1


def test_roots_that_share_nothing_are_matched_anew_wherever_something_changes() -> None:
    """A match was kept where only its second root's operand had changed: its child read a node that was gone."""
    pair = Rule(
        name="pair",
        source=["(Relu ?x)", "(Relu ?y)"],
        target=["(Split{axis=0, split=[dim($0, 0), dim($1, 0)]} (Relu (Concat{axis=0} ?x ?y))):*"],
        where=["same_shape(?x, ?y)"],
    )
    twice = Rule(name="twice", source=["(Neg (Neg ?x))"], target=["?x"])
    rules = RuleSet([pair, twice])
    lines = ["x: f32[2,4] = input", "y: f32[2,4] = input", "b = Relu(x)", "t0 = Tanh(y)"]
    lines += [f"t{k + 1} = Tanh(t{k})" for k in range(6)]
    lines += ["c = Neg(t6)", "d = Neg(c)", "e = Relu(d)", "return b, e"]
    state = State(Graph.parse("\n".join(lines)), rules)
    raw = state.moves()
    (step,) = (i for i in range(len(raw)) if rules.names[raw.rule[i]] == "twice")
    child = state.open(step)
    fresh = State(child.graph, rules)
    found, wanted = child.moves(), fresh.moves()
    assert [found.digest_hex(i) for i in range(len(found))] == [wanted.digest_hex(i) for i in range(len(wanted))]
    for i in range(len(found)):
        again = child.child(i)
        assert Graph.parse(again.text()).digest == again.digest
