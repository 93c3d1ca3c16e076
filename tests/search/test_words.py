"""Strategies over a word-rewriting system: fast, without the core, with optima known by enumeration."""

from __future__ import annotations

import importlib.util
import itertools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlflow import search
from rlflow.search import Problem, StopReason, StopToken, TraceStep
from rlflow.search.prices import Prices

_SPEC = importlib.util.spec_from_file_location("words", Path(__file__).with_name("words.py"))
assert _SPEC is not None
words: Any = importlib.util.module_from_spec(_SPEC)
sys.modules["words"] = words
assert _SPEC.loader is not None
_SPEC.loader.exec_module(words)

PRICES = {"a": 3.0, "b": 3.0, "c": 1.0, "d": 2.0, "x": 3.02, "y": 3.05, "z": 0.5, "W": 1.0, "V": 0.1}
CASES = {
    "gain": ("aaaa", ["a>d", "d>z"]),
    "valley": ("aaaaaa", ["a>x", "xx>y", "yy>z", "a>b", "b>a"]),
    "exclusive": ("abab", ["ab>d", "a>c", "cb>z", "bc>zz"]),
    "plateau": ("abaaab", ["ab>ba", "ba>ab", "aabb>z"]),
    "empty": ("zz", ["a>d"]),
}


def problem(text: str, rules: list[str], budget: str = "3000x", **options: Any) -> Problem:
    state = words.word_state(text, rules, PRICES)
    return Problem.over(state, [rule.name for rule in state.rules], budget, **options)


@pytest.mark.parametrize("case", CASES)
def test_backtracking_finds_the_optimum(case: str) -> None:
    text, rules = CASES[case]
    result = search.solve(problem(text, rules))
    assert result.stop_reason is StopReason.EXHAUSTED
    assert result.cost_after_ms == pytest.approx(words.optimum(words.word_state(text, rules, PRICES)))


@pytest.mark.parametrize("case", CASES)
def test_plain_best_first_search_finds_it_too(case: str) -> None:
    """TASO's own search, on words that are short enough for it; it needs a larger alpha where a step back is large."""
    text, rules = CASES[case]
    result = search.solve(problem(text, rules), "backtracking:macro=off,causal=off,alpha=5")
    assert result.cost_after_ms == pytest.approx(words.optimum(words.word_state(text, rules, PRICES)))


@pytest.mark.parametrize("strategy", ["backtracking", "greedy", "random:walks=20", "greedy:pick=first"])
@pytest.mark.parametrize("case", CASES)
def test_an_exhausted_search_started_again_from_its_result_changes_nothing(case: str, strategy: str) -> None:
    text, rules = CASES[case]
    first = search.solve(problem(text, rules), strategy)
    again = search.solve(problem(first.graph.text, rules), strategy)
    if first.stop_reason is StopReason.EXHAUSTED:
        assert again.best.digest == first.best.digest
        assert again.trace == ()


def test_random_words_are_solved_nearly_as_well_as_by_enumeration() -> None:
    """Fifty random systems: never worse than greedy, and the optimum in most."""
    rng = np.random.Generator(np.random.PCG64(3))
    hits = 0
    for _ in range(50):
        text = "".join(rng.choice(list("abcd"), 5))
        pairs = [
            (
                "".join(rng.choice(list("abcd"), rng.integers(1, 3))),
                "".join(rng.choice(list("abcdxyz"), rng.integers(1, 3))),
            )
            for _ in range(5)
        ]
        rules = [f"{left}>{right}" for left, right in dict(pairs).items() if len(right) <= len(left) and left != right]
        best = words.optimum(words.word_state(text, rules, PRICES))
        found = search.solve(problem(text, rules), "backtracking:alpha=1.3").cost_after_ms
        assert best - 1e-9 <= found <= search.solve(problem(text, rules), "greedy").cost_after_ms + 1e-9
        hits += found == pytest.approx(best)
    assert hits >= 45


def test_many_twins_are_taken_in_rounds() -> None:
    """Sixty independent gains cost one enumeration a round, not one each."""
    result = search.solve(problem("ab" * 60, ["a>d"]))
    assert result.cost_after_ms == pytest.approx(60 * 5.0)
    assert result.counts.expansions == 60
    assert result.counts.candidates <= 60 + 1


def test_a_chain_that_paid_once_is_followed_first_on_its_twins() -> None:
    """Ten blocks need the same two steps; after the first success the others take few openings each."""
    rules = ["a>x", "xb>z", "a>b", "b>a", "c>b", "b>c"]
    prices = {**PRICES, "c": 3.0, "x": 3.1}
    state = words.word_state("ab" * 10, rules, prices)
    result = search.solve(Problem.over(state, [rule.name for rule in state.rules], "400x"))
    assert result.cost_after_ms <= 10 * 0.5 + 1e-9


def test_the_queue_is_bounded_and_says_so() -> None:
    result = search.solve(problem("aaaaaaaa", ["a>b", "b>a", "a>x", "xx>yy"], "300x"), "backtracking:queue=5,alpha=1.5")
    assert result.stop_reason is StopReason.BUDGET_EXPANSIONS
    assert result.counts.expansions == 300


def test_candidates_beyond_the_budget_are_an_even_choice() -> None:
    one = problem("aaaaaaaaaa", ["a>d"], "4c")
    table = one.moves(one.root())
    assert table.index.tolist() == [0, 2, 5, 7]
    assert one.stopped() is StopReason.BUDGET_CANDIDATES
    with pytest.raises(search.SearchStopped):
        one.moves(one.root())


def test_folded_weights_are_limited() -> None:
    heavy = problem("aWa", ["a>V", "aW>WWW", "W>z"], "100x", weight_limit=1000)
    table = heavy.moves(heavy.root())
    names = [heavy.rule_names[rule] for rule in table.rule]
    assert "aW>WWW" not in names
    assert heavy.frontier.overweight == 1
    assert "W>z" in names
    result = search.solve(heavy, "greedy")
    assert result.counts.overweight >= 1
    assert result.graph.text == "VzV"


def test_weights_above_the_limit_may_shrink() -> None:
    heavy = problem("WWW", ["WW>W"], "100x", weight_limit=1000)
    assert search.solve(heavy, "greedy").graph.text == "W"


def test_the_trace_is_written_in_ordinals() -> None:
    result = search.solve(problem("aab", ["ab>z", "a>d"]))
    assert result.trace is not None
    state = words.word_state("aab", ["ab>z", "a>d"], PRICES)
    for last in search.replay_states(state, result.trace):
        state = last
    assert state.graph.digest == result.best.digest


def test_a_trace_that_does_not_apply_is_refused_with_its_step() -> None:
    from rlflow.errors import UsageError

    state = words.word_state("aab", ["ab>z"], PRICES)
    with pytest.raises(UsageError, match=r"Step 2 of the trace, rule 'ab>z'"):
        list(search.replay_states(state, [TraceStep("ab>z", (1, 2)), TraceStep("ab>z", (1, 2))]))


@pytest.mark.parametrize(
    "bad",
    [
        [{"rule": "r"}],
        [{"match": [1]}],
        [3],
        *([{"rule": "r", "match": [odd]}] for odd in ("x", 1.5, float("inf"), None, [1])),  # infinity: by fuzzing
    ],
)
def test_malformed_traces_are_refused(bad: list[Any]) -> None:
    from rlflow.errors import UsageError

    with pytest.raises(UsageError, match="Step 1 of the trace"):
        search.read_trace(bad)


def test_progress_is_told_five_times_a_second_and_at_the_end() -> None:
    ticks = itertools.count()
    told: list[search.Progress] = []
    one = problem("aaaaaaaa", ["a>b", "b>a"], "200x", on_progress=told.append, clock=lambda: next(ticks) * 0.01)
    result = search.solve(one, "random")
    assert told[-1].expansions == result.counts.expansions
    gaps = np.diff([progress.seconds for progress in told[:-1]])
    assert len(told) > 5
    assert (gaps >= 0.2 - 1e-9).all()


def test_a_move_must_be_enumerated_before_it_is_opened() -> None:
    one = problem("aa", ["a>d"])
    with pytest.raises(IndexError, match="enumerated"):
        one.open(one.root(), 0)


class LazyPrices(Prices):
    """Prices that are unknown until they are measured; the estimate errs by a factor."""

    measures = True

    def __init__(self, error: float) -> None:
        super().__init__()
        self.error, self.known, self.asked = error, set[str](), 0

    def deltas(self, state: Any, raw: Any) -> tuple[np.ndarray, np.ndarray]:
        exact = np.array([state.child(i).text in self.known for i in range(len(raw))], dtype=bool)
        return np.where(exact, raw.delta_ms, raw.delta_ms * self.error), exact

    def measure(self, graphs: Any, limit: int | None, stop: Callable[[], bool]) -> int:
        waiting = [graph.text for graph in graphs if graph.text not in self.known][:limit]
        self.known.update(waiting)
        self.asked += len(waiting)
        return len(waiting)

    def is_settled(self, graph: Any) -> bool:
        return graph.text in self.known


@pytest.mark.parametrize("error", [0.5, 1.0, 2.0])
def test_lazily_measured_prices_lead_to_the_same_optimum(error: float) -> None:
    prices = LazyPrices(error)
    text, rules = CASES["exclusive"]
    result = search.solve(problem(text, rules, prices=prices))
    assert result.cost_after_ms == pytest.approx(words.optimum(words.word_state(text, rules, PRICES)))
    assert result.counts.measurements == prices.asked > 0


@pytest.mark.parametrize("strategy", ["backtracking", "greedy", "random"])
def test_measurements_are_budgeted(strategy: str) -> None:
    prices = LazyPrices(1.0)
    result = search.solve(problem("aaaaaa", ["a>d", "d>z"], "5meas", prices=prices), strategy)
    assert prices.asked <= 5
    assert result.stop_reason is StopReason.BUDGET_MEASUREMENTS
    assert result.cost_after_ms < result.cost_before_ms


def test_what_does_not_pay_after_measuring_is_not_taken() -> None:
    prices = LazyPrices(-1.0)  # every estimate has the wrong sign
    result = search.solve(problem("aa", ["a>y", "a>d"], prices=prices), "greedy")
    assert result.cost_after_ms <= result.cost_before_ms


def test_a_stop_token_tells_its_followers() -> None:
    token, told = StopToken(), []
    token.when_stopped(lambda: told.append("early"))
    token.stop()
    token.when_stopped(lambda: told.append("late"))
    assert told == ["early", "late"]
