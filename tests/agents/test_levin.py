"""Levin tree search: the policy of chains, what it learns from, the order that it leads to, and its training."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from rlflow import search
from rlflow.agents.levin.chain_fit import Decisions, fitted
from rlflow.agents.levin.chain_policy import Candidates, ChainMixture, ChainPolicy, ChainShape, by_hand
from rlflow.agents.levin.chain_training import LevinTraining, played
from rlflow.agents.levin.chains import ChainStep, LevinOptions, LevinSearch, Paid
from rlflow.agents.levin.trained import SHIPPED, LevinCheckpoint, LevinConfig, load_chains
from rlflow.cli import main
from rlflow.errors import ModelError, UsageError
from rlflow.search import SearchNode, StopReason, StopToken
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


# --- learning ---------------------------------------------------------------------------------------------------------


def paid(*taken: tuple[tuple[int, ...], list[int], int]) -> Paid:
    """A chain of steps, each by the rules before, the candidates and which one was taken."""
    step: ChainStep | None = None
    for rules, candidates, one in taken:
        step = ChainStep(step, seen(rules, candidates, [0.0] * len(candidates)), one)
    assert step is not None
    return Paid(tuple(candidates[one] for _, candidates, one in taken), step, 0.01, 5)


def test_of_chains_of_the_same_rules_a_few_are_learnt_from() -> None:
    once, twice = paid(((), [0, 1], 1)), paid(((), [0, 1, 2], 0), ((0,), [2, 3], 1))
    found = Decisions()
    assert found.learn_from([twice, once, twice, twice], 2) == 3
    assert [(one.last, taken, len(one)) for one, taken in found.steps] == [
        (-1, 0, 3), (0, 1, 2), (-1, 1, 2), (-1, 0, 3), (0, 1, 2)
    ]  # fmt: skip
    assert found.learn_from([once], 2) == 1  # another search


def test_decisions_come_back_from_a_file() -> None:
    found = Decisions()
    found.learn_from([paid(((), [0, 1, 2], 0), ((0,), [2, 3], 1)), paid(((), [4], 0))], 1)
    again = Decisions.of(found.arrays())
    assert len(again) == len(found) == 3
    for (one, taken), (other, retaken) in zip(found.steps, again.steps, strict=True):
        assert taken == retaken and (one.last, one.before) == (other.last, other.before)
        assert all(np.array_equal(a, b) for a, b in zip(one[2:], other[2:], strict=True))
    assert len(Decisions.of(Decisions().arrays())) == 0


def loss(policy: ChainPolicy, steps: list[Any], decay: float) -> float:
    chances = [policy.log_probabilities(one, 1e-12)[taken] for one, taken in steps]
    return -float(np.mean(chances)) + decay / len(steps) * float(np.sum((policy.flat - by_hand(policy.shape)) ** 2))


def test_the_fit_is_a_minimum() -> None:
    found = Decisions()
    found.learn_from(
        [
            paid(((), [0, 1, 2], 0), ((0,), [1, 3, 4], 2)),
            paid(((), [0, 2], 0), ((0,), [3, 4], 0)),
            paid(((), [3, 1], 1)),
        ],
        1,
    )
    config = LevinConfig(passes=3000, lr=0.02, decay=0.05)
    shape = ChainShape(5, 2)
    begin = ChainPolicy(shape, FAMILIES, by_hand(shape))
    policy, nats = fitted(begin, found.steps, config)
    assert nats == pytest.approx(loss(policy, found.steps, 0.0), abs=1e-4)
    best = loss(policy, found.steps, config.decay)
    assert best < loss(begin, found.steps, config.decay) - 0.1
    rng = np.random.default_rng(0)
    for place in [*rng.choice(np.flatnonzero(policy.flat), 30), *rng.choice(shape.size, 10)]:
        for by in (-0.03, 0.03):
            moved = policy.flat.copy()
            moved[place] += by
            assert loss(ChainPolicy(shape, FAMILIES, moved), found.steps, config.decay) > best
    assert fitted(begin, [], config) == (begin, 0.0)


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


# --- training ---------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Lesson:
    """A tiny problem as something to learn on."""

    tiny: TinyProblem

    @property
    def title(self) -> str:
        return self.tiny.name

    def load(self) -> Lesson:
        return self

    @property
    def ruleset(self) -> Any:
        return self.tiny.ruleset()

    def problem(self, budget: str, **options: Any) -> Any:
        return self.tiny.problem(budget, **options)


SMALL = LevinConfig(expansions=200, passes=50)
LESSONS = [Lesson(BY_NAME["plateau"]), Lesson(BY_NAME["plateau"])]


def test_training_learns_the_chain_and_makes_the_same_file(tmp_path: Path) -> None:
    told: list[dict[str, Any]] = []
    first = LevinTraining(LESSONS, SMALL, out=tmp_path / "a.npz", logs=tmp_path / "logs")
    card = first.train(2, on_lesson=told.append).card
    LevinTraining(LESSONS, SMALL, out=tmp_path / "b.npz").train(2)
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()
    assert card["rounds"] == 2 and card["chains"] > 0 and len(card["scores"]) == 2
    assert [one["round"] for one in told] == [0, 0, 1, 1]
    assert card["expansions"] == sum(one["expansions"] for one in told)
    lines = [json.loads(line) for line in (tmp_path / "logs" / "log.jsonl").read_text().splitlines()]
    assert [line["chains"] for line in lines] == [one["chains"] for one in told]
    problem = BY_NAME["plateau"].problem()
    policy, names = load_chains(tmp_path / "a.npz")
    learnt, _ = expansions(BY_NAME["plateau"], policy.bound(names, problem.rule_names))
    fresh, _ = expansions(BY_NAME["plateau"], ChainPolicy(policy.shape, policy.families, np.zeros(policy.shape.size)))
    assert learnt <= fresh
    assert first.progress.loss < math.log(2)


class _StopAfter(StopToken):
    """A stop token that is set when so many lessons are over."""

    def __init__(self, lessons: int) -> None:
        super().__init__()
        self.left = lessons

    def count(self, _: dict[str, Any]) -> None:
        self.left -= 1
        if self.left <= 0:
            self.stop()


@pytest.mark.parametrize("lessons", [1, 2, 3])
def test_a_training_that_was_stopped_goes_on_to_the_same_end(tmp_path: Path, lessons: int) -> None:
    whole, parts = tmp_path / "whole.npz", tmp_path / "parts.npz"
    LevinTraining(LESSONS, SMALL, out=whole).train(2)
    stop = _StopAfter(lessons)
    LevinTraining(LESSONS, SMALL, out=parts).train(2, on_lesson=stop.count, stop=stop)
    assert parts.read_bytes() != whole.read_bytes()
    LevinTraining(LESSONS, SMALL, out=parts, resume=True).train(2)
    assert parts.read_bytes() == whole.read_bytes()


class _CutShort(Lesson):
    """A lesson that is stopped from outside when it has opened a few graphs."""

    def problem(self, budget: str, **options: Any) -> Any:
        made = super().problem(budget, **options)
        opened = itertools.count(1)
        made.observer = SimpleNamespace(
            enumerated=lambda table: None, opened=lambda *_: options["stop"].stop() if next(opened) == 3 else None
        )
        return made


def test_a_lesson_that_was_cut_short_is_not_learnt_from(tmp_path: Path) -> None:
    training = LevinTraining([_CutShort(BY_NAME["plateau"])], SMALL, out=tmp_path / "a.npz")
    told: list[dict[str, Any]] = []
    card = training.train(2, on_lesson=told.append, stop=StopToken()).card
    assert card["chains"] == card["rounds"] == card["expansions"] == 0 and not told


def test_resuming_another_training_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="give one with out"):
        LevinTraining(LESSONS, SMALL, resume=True)
    LevinTraining(LESSONS, SMALL, out=tmp_path / "a.npz").train(1)
    with pytest.raises(UsageError, match="other models, seed or options"):
        LevinTraining(LESSONS[:1], SMALL, out=tmp_path / "a.npz", resume=True)
    with pytest.raises(UsageError, match="no model"):
        LevinTraining([], SMALL)


@pytest.mark.parametrize(
    ("name", "text"), [("expansions", "0"), ("even", "0"), ("even", "2"), ("decay", "-1"), ("lr", "0"), ("passes", "0")]
)
def test_training_options_out_of_range(name: str, text: str) -> None:
    with pytest.raises(UsageError, match=f"'{name}' is .*out of range"):
        LevinConfig().with_options({name: text})


def test_a_training_from_the_command_line_is_resumed(tmp_path: Path) -> None:
    out = tmp_path / "mine.npz"
    words = ["train", "levin", "--models", "squeezenet1.1", "--out", str(out), "--set", "expansions=40", "-q"]
    done = CliRunner().invoke(main, [*words, "--rounds", "1"])
    assert done.exit_code == 0, done.output
    assert "Trained: 1 rounds, 40 graphs opened" in done.output
    again = CliRunner().invoke(main, [*words, "--rounds", "2", "--resume"])
    assert again.exit_code == 0 and "Trained: 2 rounds, 80 graphs opened" in again.output
    assert search.solve(BY_NAME["plateau"].problem(), f"levin:checkpoint={out}").cost_after_ms > 0


# --- files ------------------------------------------------------------------------------------------------------------


def test_the_policy_that_ships_knows_the_library() -> None:
    from rlflow.synthesis import load_rules

    policy, names = load_chains()
    assert set(names) == {rule.name for rule in load_rules().values()}
    assert np.isfinite(policy.flat).all() and np.count_nonzero(policy.flat) > 100
    card = LevinCheckpoint.load(SHIPPED).card
    assert card["chains"] > 0 and "seconds" not in card


@pytest.mark.parametrize("broken", ["shape", "families", "lacking"])
def test_weights_that_do_not_fit_are_a_sentence(tmp_path: Path, broken: str) -> None:
    checkpoint = LevinCheckpoint.load(SHIPPED)
    if broken == "shape":
        checkpoint.weights["after"] = checkpoint.weights["after"][1:]
    elif broken == "families":
        checkpoint.config = dataclasses.replace(checkpoint.config, families=checkpoint.config.families[1:])
    else:
        del checkpoint.weights["place"]
    checkpoint.save(tmp_path / "broken.npz")
    with pytest.raises(ModelError, match="do not fit"):
        search.require_ready(search.make(f"levin:checkpoint={tmp_path / 'broken.npz'}"))


def test_no_file_and_another_agents() -> None:
    with pytest.raises(ModelError, match="rlflow train levin"):
        search.require_ready(search.make("levin:checkpoint=none.npz"))
    with pytest.raises(ModelError, match="expected a policy of chains"):
        search.require_ready(search.make(f"levin:checkpoint={SHIPPED.with_name('xrlflow.npz')}"))
