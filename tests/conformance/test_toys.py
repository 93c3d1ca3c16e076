"""The toys' optima by exhaustive search, and who finds them; reproduce/search_toys prints the whole table."""

from __future__ import annotations

import functools

import pytest

from rlflow import search
from rlflow.testing import TOYS, TinyProblem, optimum
from rlflow.testing.tiny import Optimum

#: How many graphs can be reached: another number means that a toy, or what the core takes for one graph, changed.
GRAPHS = {
    "twins": 64,
    "plateau": 16,
    "valley": 3,
    "merge": 3,
    "exclusive": 19,
    "nothing": 1,
    "long-plateau": 771,
    "haystack": 1024,
    "two-valleys": 9,
    "deep-valley": 3,
    "cycle-trap": 13,
    "packing": 151,
    "merge-after-moves": 6,
    "matrix-chain": 42,
    "steep-chain": 42,
    "hidden-factor": 141,
    "mixture": 456,
}
BY_NAME = {toy.name: toy for toy in TOYS}


@functools.cache
def known(name: str) -> Optimum:
    return optimum(BY_NAME[name])


@pytest.mark.parametrize("name", GRAPHS)
def test_every_graph_is_enumerated(name: str) -> None:
    assert known(name).graphs == GRAPHS[name]
    assert set(GRAPHS) == set(BY_NAME)


@pytest.mark.parametrize("toy", [toy for toy in TOYS if toy.defeats], ids=lambda toy: toy.name)
def test_the_difficulty_is_real(toy: TinyProblem) -> None:
    for strategy in toy.defeats:
        result = search.solve(toy.problem("2000x"), strategy)
        assert result.cost_after_ms > known(toy.name).cost_ms * (1 + 1e-6), strategy


@pytest.mark.parametrize("strategy", ["backtracking", "beam:width=32,twins=8,patience=24", "mcts", "portfolio"])
@pytest.mark.parametrize(
    "toy",
    [pytest.param(toy, marks=[pytest.mark.slow] if GRAPHS[toy.name] > 500 else []) for toy in TOYS],
    ids=lambda toy: toy.name,
)
def test_the_optimum_is_found(toy: TinyProblem, strategy: str) -> None:
    if strategy in toy.defeats:
        return  # the test above holds it to that
    result = search.solve(toy.problem("2000x", seed=3), strategy)
    assert result.cost_after_ms == pytest.approx(known(toy.name).cost_ms, rel=1e-9)


@pytest.mark.parametrize("strategy", ["annealing", "genetic", "random"])
@pytest.mark.parametrize("name", ["exclusive", "two-valleys", "cycle-trap", "hidden-factor", "merge-after-moves"])
def test_random_searches_find_the_small_ones(name: str, strategy: str) -> None:
    result = search.solve(BY_NAME[name].problem("1500x", seed=3), strategy)
    assert result.cost_after_ms == pytest.approx(known(name).cost_ms, rel=1e-9)


def test_a_chain_of_products_is_associated_as_dynamic_programming_does() -> None:
    """With a price for the operations alone, the optimum is that of the textbook (Cormen et al., chapter 15)."""
    from rlflow import price
    from rlflow.graph import Graph
    from rlflow.search import Problem

    toy = BY_NAME["matrix-chain"]
    pricer = price.make("analytic", fusion="none", gflops=1.0, gbps=1e9, overhead_us=0.0, view_us=0.0)
    problem = Problem(Graph.parse(toy.text), toy.ruleset(), pricer, "2000x")
    sizes = [30, 35, 15, 5, 10, 20, 25]

    @functools.cache
    def cheapest(i: int, j: int) -> int:
        if i == j:
            return 0
        return min(cheapest(i, k) + cheapest(k + 1, j) + sizes[i] * sizes[k + 1] * sizes[j + 1] for k in range(i, j))

    assert cheapest(0, 5) == 15125
    result = search.solve(problem, "mcts")
    assert result.cost_after_ms == pytest.approx(2 * 15125 / 1e6, rel=1e-6)
