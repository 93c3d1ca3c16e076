"""Which candidate reaches the comparison: one that lost every block of the first sample does not, any other does."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest

from rlflow.race.contest import SELECTION_BLOCKS
from rlflow.race.evidence import Evidence
from rlflow.race.gate import decide
from rlflow.runtime import Samples


class Blocks:
    """Blocks of given log ratios of the baseline's time over that of each candidate."""

    clock = "wall"

    def __init__(self, ratios: Sequence[dict[str, float]]) -> None:
        self.ratios = list(ratios)

    def block(self, names: Sequence[str], seed: int, seconds: float) -> Samples:
        now = self.ratios.pop(0)
        matrix = np.array([[10.0 * math.exp(-now.get(name, 0.0)) for name in names]] * 3)
        return Samples(matrix, matrix, (1,) * len(names))


@pytest.mark.parametrize(
    ("first", "confirmed"),
    [
        ([{"a": 0.1}] * 3, True),
        ([{"a": -0.1}, {"a": 0.1}, {"a": 0.1}], True),
        ([{"a": -0.1}, {"a": -0.1}, {"a": 0.1}], True),
        ([{"a": -0.1}] * 3, False),
    ],
)
def test_only_a_loss_in_every_block_ends_it_early(first: list[dict[str, float]], confirmed: bool) -> None:
    assert len(first) == SELECTION_BLOCKS
    sampler = Blocks([*first, *[{"a": 0.1 + k / 1000} for k in range(8)]])
    found = decide(sampler, "base", ["a"], seconds=60.0, seed=0)
    assert found.improved is confirmed
    assert bool(sampler.ratios) is not confirmed


def test_the_best_of_the_first_sample_is_confirmed_on_fresh_ones() -> None:
    sampler = Blocks([{"a": 0.3, "b": 0.28}] * 3 + [{"a": 0.05 + k / 1000} for k in range(8)])
    found = decide(sampler, "base", ["a", "b"], seconds=60.0, seed=0)
    assert found.winner == "a"
    assert found.speedup == pytest.approx(math.exp(0.0535), rel=1e-6)


@pytest.mark.parametrize(
    ("first", "blocks"),
    [
        ([{"a": 0.3, "b": 0.1}], 1),  # b is out, and a is chosen
        ([{"a": 0.3, "b": 0.2}, {"a": 0.3, "b": 0.2}], 2),
        ([{"a": 0.3, "b": 0.2}, {"a": 0.3, "b": 0.33}, {"a": 0.3, "b": 0.25}], 3),  # one block alone errs
        ([{"a": 0.3, "b": 0.28}] * 3, 3),
        ([{"a": 0.3, "b": 0.29, "c": 0.1}, {"a": 0.3, "b": 0.29}, {"a": 0.3, "b": 0.29}], 3),
    ],
)
def test_who_is_far_behind_is_timed_no_more(first: list[dict[str, float]], blocks: int) -> None:
    sampler = Blocks([*first, *({"a": 0.05 + k / 1000} for k in range(8))])
    found = decide(sampler, "base", list(first[0]), seconds=60.0, seed=0)
    assert (len(first), found.winner, found.blocks) == (blocks, "a", 8)
    assert found.first_sample.keys() == first[0].keys()



class Kept:
    """A memory that holds one claim: eight blocks, each a gain."""

    def __init__(self) -> None:
        self.forgotten = False

    def recall(self, candidate: str) -> Evidence | None:
        ratios = tuple(0.05 + k / 1000 for k in range(8))
        return None if self.forgotten else Evidence(ratios, True, 1 / 256, 10.0, 21, 60.0, "2026-01-01T00:00:00+00:00")

    def keep(self, candidate: str, found: Evidence) -> None:
        """Not asked for here."""

    def forget(self, candidate: str) -> None:
        self.forgotten = True


@pytest.mark.parametrize(
    ("fresh", "forgotten"),
    [
        ([0.05, 0.052, 0.054, 0.053, 0.051], False),
        ([0.06, -0.1, 0.06, 0.06, 0.061, 0.06], True),  # one block may be slow, but all together must be significant
    ],
)
def test_a_claim_that_is_repeated_is_significant_with_the_fresh_blocks(fresh: list[float], forgotten: bool) -> None:
    blocks = [*[{"a": 0.05}] * SELECTION_BLOCKS, *[{"a": ratio} for ratio in fresh], *[{"a": -0.01}] * 60]
    memory = Kept()
    decide(Blocks(blocks), "base", ["a"], seconds=60.0, seed=0, memory=memory)
    assert memory.forgotten is forgotten
