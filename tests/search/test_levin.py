"""Levin tree search: the policy of chains, and the order that it leads to."""

from __future__ import annotations

import itertools
import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from rlflow import search
from rlflow.agents.chain_lessons.chain_training import played
from rlflow.errors import UsageError
from rlflow.search import SearchNode, StopReason
from rlflow.search.levin.chain_policy import Candidates, ChainMixture, ChainPolicy, ChainShape, by_hand
from rlflow.search.levin.chains import LevinOptions, LevinSearch, Paid
from rlflow.testing import TINY, TinyProblem, optimum
from tests.search import words

BY_NAME = {tiny.name: tiny for tiny in TINY}
RULES = ("a", "b", "c", "d", "e")
FAMILIES = np.array([0, 1, 0, 1, 1])


def drawn(seed: int = 0, families: np.ndarray = FAMILIES) -> ChainPolicy:
    shape = ChainShape(len(families), int(families.max()) + 1)
    return ChainPolicy(shape, families, np.random.default_rng(seed).normal(size=shape.size))


def seen(rules: tuple[int, ...], candidates: list[int], change: list[float] | None = None) -> Candidates:
    count = len(candidates)
    number = np.arange(count)
    return Candidates.of(
        rules,
        np.array(candidates),
        np.array(change if change is not None else [0.002 * (i - 1) for i in range(count)]),
        np.array([0.02 - 0.011 * i for i in range(count)]),
        number * 3 - 6,
        number % 2 == 0,
        number % 3 == 1,
    )


# --- the policy -------------------------------------------------------------------------------------------------------


def score(policy: ChainPolicy, rules: tuple[int, ...], one: Candidates, i: int) -> float:
    """By the words of the module: one weight of each group."""
    groups, begun = policy.shape.split(policy.flat), int(bool(rules))
    last, before = (rules[-1] if rules else -1), (rules[-2] if len(rules) > 1 else -1)
    rule, family = int(one.rule[i]), int(policy.families[one.rule[i]])
    return float(
        groups["rule"][rule]
        + groups["after"][last, rule]
        + groups["after_two"][before, rule]
        + groups["family"][family]
        + groups["family_after"][policy.families[last] if rules else -1, family]
        + groups["change"][begun, one.change[i]]
        + groups["excess"][begun, one.excess[i]]
        + groups["growth"][begun, one.growth[i]]
        + groups["place"][begun, one.place[i]]
        + groups["family_place"][family, one.place[i]]
    )


@pytest.mark.parametrize("rules", [(), (2,), (0, 4), (1, 3, 0)])
def test_rules_alone_are_as_likely_as_candidates_that_differ_in_nothing_else(rules: tuple[int, ...]) -> None:
    policy, same = drawn(), np.zeros(len(RULES))
    new = np.zeros(len(RULES), dtype=bool)
    one = Candidates.of(rules, np.arange(len(RULES)), same, same, same, new, new)
    last, before = (rules[-1] if rules else -1), (rules[-2] if len(rules) > 1 else -1)
    chances = policy.of_rules(last, before, 0.2)
    assert chances == pytest.approx(np.exp(policy.log_probabilities(one, 0.2)))
    assert chances.sum() == pytest.approx(1.0)


@pytest.mark.parametrize("rules", [(), (2,), (0, 4), (1, 3, 0)])
@pytest.mark.parametrize("even", [0.03, 1.0])
def test_a_probability_is_a_softmax_of_sums_and_a_part_that_all_share(rules: tuple[int, ...], even: float) -> None:
    policy, one = drawn(), seen(rules, [0, 1, 2, 3, 4, 0])
    chances = [math.exp(score(policy, rules, one, i)) for i in range(len(one))]
    expected = [(1 - even) * chance / sum(chances) + even / len(one) for chance in chances]
    found = np.exp(policy.log_probabilities(one, even))
    assert found == pytest.approx(expected) and found.sum() == pytest.approx(1.0)


def test_classes_of_change_growth_and_place() -> None:
    one = seen((0,), [0] * 5, change=[-1.0, -2e-7, 0.0, 2e-6, 1.0])
    assert one.change.tolist() == [0, 7, 7, 8, 14]  # what is no more than rounding is no change
    assert one.growth.tolist() == [0, 1, 4, 7, 8]  # -6, -3, 0, 3, 6, at most four either way
    assert one.place.tolist() == [2, 1, 2, 0, 3]
    assert (one.last, one.before) == (0, -1) and (seen((), [0]).last, seen((4, 3), [0]).before) == (-1, 4)


def test_each_group_has_its_own_weights() -> None:
    shape = ChainShape(5, 2)
    parts = shape.split(np.arange(shape.size, dtype=float))
    assert sorted(np.concatenate([part.ravel() for part in parts.values()])) == list(range(shape.size))
    assert np.array_equal(shape.joined(parts), np.arange(shape.size))
    policy = drawn()
    for rules, rule in itertools.product([(), (0,), (4, 1)], range(5)):
        places = policy.places(seen(rules, [rule]))
        bounds = zip(places[0], itertools.pairwise(_ends(shape)), strict=True)
        assert all(begin <= place < end for place, (begin, end) in bounds)


def _ends(shape: ChainShape) -> list[int]:
    return [0, *itertools.accumulate(int(np.prod(one)) for one in shape.groups.values())]


def test_a_policy_fits_another_library_by_the_rules_names() -> None:
    policy, names = drawn(), ("e", "c", "new", "a", "b")
    other = policy.bound(RULES, names)
    own = {names.index(name): RULES.index(name) for name in "abce"}
    for rules in [(), (0,), (3, 0), (1, 4, 3)]:
        there = other.log_probabilities(seen(rules, [0, 1, 3, 4]), 0.03)
        here = policy.log_probabilities(seen(tuple(own[one] for one in rules), [own[i] for i in (0, 1, 3, 4)]), 0.03)
        assert there == pytest.approx(here)
    assert policy.bound(RULES, RULES) is policy


def test_a_rule_that_the_policy_does_not_know_counts_by_its_change_and_place_alone() -> None:
    other = drawn().bound(RULES, ("new", "newer", "a"))
    flat, groups = other.flat, other.shape.split(other.flat)
    for rules in [(), (0,), (1, 0)]:
        one, begun = seen(rules, [0, 1]), int(bool(rules))
        expected = [
            groups["change"][begun, one.change[i]]
            + groups["excess"][begun, one.excess[i]]
            + groups["growth"][begun, one.growth[i]]
            + groups["place"][begun, one.place[i]]
            for i in range(2)
        ]
        assert flat[other.places(one)].sum(axis=1) == pytest.approx(expected)


def test_a_chains_probability_is_the_mean_of_the_policys_and_of_that_by_hand() -> None:
    policy, first, second = drawn(), seen((), [0, 1, 2, 3]), seen((1,), [2, 0, 4])
    mixture, hand = ChainMixture(policy, 0.75), ChainPolicy(policy.shape, FAMILIES, by_hand(policy.shape))
    sums = mixture.log_probabilities(first, 0.03)[1] + mixture.log_probabilities(second, 0.03)
    expected = [
        sum(
            share * math.exp(one.log_probabilities(first, 0.03)[1] + one.log_probabilities(second, 0.03)[i])
            for share, one in ((0.75, policy), (0.25, hand))
        )
        for i in range(3)
    ]
    assert np.exp(mixture.of_chains(sums)) == pytest.approx(expected)


def test_by_hand_cheaper_newer_and_nearer_is_likelier() -> None:
    policy = ChainPolicy(shape := ChainShape(5, 2), FAMILIES, by_hand(shape))
    zero = np.zeros(4)

    def order(rules: tuple[int, ...], excess: Any = zero, known: Any = zero, fresh: Any = zero) -> list[int]:
        given = (np.array(one) for one in (excess, zero, np.array(known) > 0, np.array(fresh) > 0))
        one = Candidates.of(rules, np.arange(4), zero, *given)
        return np.argsort(-policy.log_probabilities(one, 0.01), kind="stable").tolist()

    for rules in [(), (0,)]:
        assert order(rules, excess=[0.02, -0.001, 0.0, 0.0005]) == [1, 2, 3, 0]
    assert order((0,), known=[0, 1, 0, 1], fresh=[0, 0, 1, 1]) == [2, 0, 3, 1]
    assert order((), known=[0, 1, 0, 1], fresh=[0, 0, 1, 1]) == [0, 1, 2, 3]


# --- the search -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tiny", TINY, ids=lambda tiny: tiny.name)
def test_it_finds_the_best_of_every_tiny_problem(tiny: TinyProblem) -> None:
    found = search.solve(tiny.problem(), "levin")
    assert found.cost_after_ms == pytest.approx(optimum(tiny).cost_ms)


def _leading(problem: Any, *wanted: str) -> ChainPolicy:
    """A policy that follows each rule of a chain by the next."""
    names = list(problem.rule_names)
    shape = ChainShape(len(names), 1)
    groups = shape.split(np.zeros(shape.size))
    for last, rule in itertools.pairwise([-1, *map(names.index, wanted)]):
        groups["after"][last, rule] = 12.0
    return ChainPolicy(shape, np.zeros(len(names), dtype=int), shape.joined(groups))


def expansions(tiny: TinyProblem, policy: ChainPolicy) -> tuple[int, list[Paid]]:
    """Graphs opened until the first chain paid, and the chains."""
    found = played(policy, tiny.problem(), 0.01)
    return found[0].expansions, found


def test_a_likely_chain_is_opened_first() -> None:
    tiny = BY_NAME["valley"]
    even = ChainPolicy(
        shape := ChainShape(len(tiny.rules), 1), np.zeros(len(tiny.rules), dtype=int), np.zeros(shape.size)
    )
    _, chains = expansions(tiny, even)
    names = [list(tiny.problem().rule_names)[rule] for rule in chains[0].rules]
    begun, _ = expansions(tiny, even)
    led, again = expansions(tiny, _leading(tiny.problem(), *names))
    assert led <= begun and again[0].rules == chains[0].rules
    assert led == len(names)  # nothing else was opened


def test_what_paid_knows_its_steps() -> None:
    tiny = BY_NAME["plateau"]
    found = played(_leading(tiny.problem(), "relu-below-transpose"), tiny.problem(), 0.01)
    assert found
    for chain in found:
        steps = list(chain.steps())
        assert len(steps) == len(chain.rules) and chain.gain > 0
        assert [int(step.seen.rule[step.taken]) for step in reversed(steps)] == list(chain.rules)
        assert [step.seen.last for step in reversed(steps)] == [-1, *chain.rules[:-1]]


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("levin:alpha=0.9", "alpha=0.9"),
        ("levin:alpha=nan", "alpha=nan"),
        ("levin:chain=0", "chain=0"),
        ("levin:lead=-1", "lead=-1"),
        ("levin:queue=0", "queue=0"),
        ("levin:even=0", "even=0"),
        ("levin:even=1.5", "even=1.5"),
        ("levin:taught=0", "taught=0"),
        ("levin:taught=1", "taught=1"),
    ],
)
def test_options_out_of_range(spec: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        search.make(spec)


def test_a_small_queue_lets_go_and_says_so() -> None:
    def ends(tiny: TinyProblem, spec: str) -> StopReason:
        return search.solve(tiny.problem(), spec).stop_reason

    assert all(ends(tiny, "levin") is StopReason.EXHAUSTED for tiny in TINY)
    assert any(ends(tiny, "levin:queue=1") is StopReason.CONVERGED for tiny in TINY)


def words_problem(text: str) -> Any:
    """Two ways down that end alike: ``ab`` becomes ``x`` at once, or ``w`` in two steps that gain more, and both
    become ``z``; so do ``ef``, at other prices. What is far apart is no one chain.
    """
    rules = ["ab>x", "b>y", "ay>w", "x>z", "w>z", "ef>u", "f>v", "ev>t", "u>z", "t>z"]
    prices = dict(zip("abxywzefuvt-", (5.0, 5.0, 5.0, 2.0, 4.0, 1.0, 5.5, 5.0, 5.0, 2.0, 4.0, 1.0), strict=True))
    return search.Problem.over(words.word_state(text, rules, prices), rules, "3000x")


@pytest.mark.parametrize(
    ("text", "ways"), [("ab", 1), ("ab----ab----ab", 1), ("ab----ef----ab----ef", 2)], ids=lambda value: str(value)
)
def test_what_led_back_is_not_gone_down_from_at_every_place(
    monkeypatch: pytest.MonkeyPatch, text: str, ways: int
) -> None:
    begun: list[str] = []
    arrive = LevinSearch.arrive

    def noted(run: LevinSearch, node: SearchNode, *rest: Any) -> bool:
        begun.append(node.graph.text)
        return arrive(run, node, *rest)

    monkeypatch.setattr(LevinSearch, "arrive", noted)
    found = search.solve(words_problem(text), "levin")
    assert found.best.graph.text == text.replace("ab", "z").replace("ef", "z")
    assert begun[0] == text and len(begun) == 1 + 2 * ways, begun  # at the second step, and at the third


@pytest.mark.parametrize(
    ("ends", "gone_down"),
    [
        ([(6.0, (1, 2)), (6.0, (1, 2))], [True, False]),
        ([(6.0, (1, 2)), (6.0, (2, 1))], [True, False]),  # in another order
        ([(6.0, (1, 2)), (5.0, (1, 2))], [True, True]),  # it changes the cost by something else
        ([(6.0, (1, 2)), (6.0, (1, 3))], [True, True]),
    ],
)
def test_alike_are_the_same_rewrites_that_change_the_cost_by_the_same(
    monkeypatch: pytest.MonkeyPatch, ends: list[tuple[float, tuple[int, ...]]], gone_down: list[bool]
) -> None:
    problem = words_problem("ab")
    run = LevinSearch(LevinOptions(5.0, 4, 1000, 0.1, 0.5), _leading(problem, "b>y"), problem)
    settled: list[Any] = []
    monkeypatch.setattr(run, "_settle", lambda child, entry: settled.append(child) or False)
    base = SimpleNamespace(node=SimpleNamespace(digest=b"base", cost=10.0))
    for cost, rules in ends:
        child, entry = SimpleNamespace(cost=cost), SimpleNamespace(base=base, regret=1.0, rules=rules)
        assert not run._leads_on(child, entry)  # type: ignore[arg-type]
    assert [any(one.cost == cost for one in settled[i : i + 1]) for i, (cost, _) in enumerate(ends)] == gone_down


@pytest.mark.parametrize("likely", ["b>y", "f>v"])
def test_the_likeliest_is_opened_first(monkeypatch: pytest.MonkeyPatch, likely: str) -> None:
    problem = words_problem("ab----ef")
    names = list(problem.rule_names)
    run = LevinSearch(LevinOptions(5.0, 4, 1000, 0.1, 0.5), _leading(problem, likely), problem)
    run.arrive(problem.root())
    opened: list[str] = []
    monkeypatch.setattr(run, "_open", lambda entry: opened.append(names[entry.rules[0]]))
    assert run.step() and run.step() and not run.step()
    assert opened[0] == likely and len(opened) == 2


def test_what_was_tried_since_a_candidate_came_counts_against_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def first_opened(dear: str) -> str:
        """The rule of the first candidate that is opened where those of ``dear`` got dearer since they came."""
        problem = words_problem("ab----ef")
        names = list(problem.rule_names)
        policy = ChainPolicy(shape := ChainShape(len(names), 1), np.zeros(len(names), dtype=int), np.zeros(shape.size))
        run = LevinSearch(LevinOptions(5.0, 4, 1000, 0.1, 0.5), policy, problem)
        run.arrive(problem.root())
        opened: list[str] = []
        penalties = {(names.index(dear),): 100.0} if dear else {}
        monkeypatch.setattr(run, "_penalty", lambda rules, start: penalties.get(rules, 0.0))
        monkeypatch.setattr(run, "_open", lambda entry: opened.append(names[entry.rules[0]]))
        assert run.step()
        return opened[0]

    usual = first_opened("")
    assert first_opened(usual) != usual
