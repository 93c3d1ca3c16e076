"""The programme over cuts against all cuts."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlflow.errors import UsageError
from rlflow.placement.contiguous import Chain, best_cuts


def random_chain(rng: np.random.Generator, n: int, *, forbidden: bool = False) -> Chain:
    handed = rng.random(n + 1) * rng.choice([0.0, 0.1, 2.0])
    if forbidden:
        handed[1:-1][rng.random(n - 1) < 0.4] = np.inf
    handed[[0, n]] = 0.0
    weights = [rng.choice(["u", "v", "w"], int(rng.integers(0, 3)), replace=False).tolist() for _ in range(n)]
    return Chain(
        rng.random(n), handed, rng.integers(0, 20, n), weights, {name: int(rng.integers(1, 50)) for name in "uvw"}
    )


def all_cuts(chain: Chain, parts: int, memory: int | None):
    for cuts in itertools.combinations(range(1, chain.nodes), parts - 1):
        ends = [0, *cuts, chain.nodes]
        pairs = list(itertools.pairwise(ends))
        if not np.isfinite(chain.handed[list(cuts)]).all():
            continue
        if memory is None or all(chain.memory(begin, end) <= memory for begin, end in pairs):
            yield list(cuts)


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 9), st.integers(1, 4), st.booleans(), st.booleans())
def test_the_cut_is_the_best_of_all(seed: int, n: int, parts: int, forbidden: bool, limited: bool) -> None:
    rng = np.random.default_rng(seed)
    chain, parts = random_chain(rng, n, forbidden=forbidden), min(parts, n)
    memory = int(rng.integers(10, 160)) if limited else None
    every = {tuple(cuts): max(chain.times(cuts)) for cuts in all_cuts(chain, parts, memory)}
    if not every:
        with pytest.raises(UsageError, match="cut"):
            best_cuts(chain, parts, memory=memory)
        return
    found = best_cuts(chain, parts, memory=memory)
    least = min(every.values())
    assert tuple(found) in every
    assert every[tuple(found)] <= least * 1.02 + 1e-12
    near = [cuts for cuts, time in every.items() if time <= least * 1.02]
    assert chain.handed[found].sum() <= min(chain.handed[list(cuts)].sum() for cuts in near) + 1e-9
    assert every[tuple(best_cuts(chain, parts, memory=memory, slack=0.0))] <= least + 1e-12


def test_a_small_value_is_cut_rather_than_a_large_one() -> None:
    chain = Chain(np.ones(6), np.array([0, 0.01, 0.01, 0.02, 0.001, 0.01, 0]), None)
    assert best_cuts(chain, 2, slack=0.5) == [4]
    assert best_cuts(chain, 2, slack=0.0) == [3]


@pytest.mark.parametrize(("parts", "part"), [(0, "cannot be cut"), (5, "has 4 nodes")])
def test_impossible_numbers_of_parts_are_refused(parts: int, part: str) -> None:
    with pytest.raises(UsageError, match=part):
        best_cuts(Chain(np.ones(4), np.zeros(5)), parts)
