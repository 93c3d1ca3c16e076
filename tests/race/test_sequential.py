"""The race's test over all of its looks: its law where nothing is gained, and what it takes to pass."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pytest

from rlflow.race.sequential import (
    CLEAR_BLOCKS,
    LEAST_BLOCKS,
    LOOKS,
    MOST_BLOCKS,
    NARROW_BLOCKS,
    claim_ahead,
    corrected_p,
    error,
    is_hopeless,
    next_look,
)

ALPHA = 0.01


#: How many blocks without a gain each look that counts lets through at 1 %, written down apart.
AGAINST = {12: 1, 18: 2, 24: 3, 30: 5}


def test_the_shares_of_the_looks_make_the_level() -> None:
    assert error(ALPHA) <= ALPHA
    assert list(LOOKS) == sorted(LOOKS)


def test_the_level_is_used_up() -> None:
    """What is left over would be claims not made."""
    assert error(ALPHA) == pytest.approx(ALPHA, rel=0.01)
    assert list(LOOKS) == [LEAST_BLOCKS, *AGAINST, MOST_BLOCKS]


def signs(blocks: int) -> np.ndarray:
    """All patterns of signs, [2^blocks, blocks]."""
    return np.array(list(itertools.product((-1.0, 1.0), repeat=blocks)))


def first_claims() -> tuple[np.ndarray, list[list[float]]]:
    """Sizes of the blocks of the first look, and the patterns of signs for which there is a claim."""
    magnitudes = np.random.default_rng(0).permutation(LEAST_BLOCKS) + 1.0
    return magnitudes, [row.tolist() for row in signs(LEAST_BLOCKS) if corrected_p(row * magnitudes) <= ALPHA]


def test_the_first_look_claims_no_more_patterns_than_its_share() -> None:
    """Exactly: all sign patterns are equally likely where two models are equally fast."""
    _, claims = first_claims()
    assert [1.0] * LEAST_BLOCKS in claims
    assert len(claims) / 2**LEAST_BLOCKS <= LOOKS[LEAST_BLOCKS].share * ALPHA


def test_of_the_blocks_for_a_first_claim_the_least_may_show_no_gain() -> None:
    magnitudes, claims = first_claims()
    all_but_the_least = np.where(magnitudes == 1.0, -1.0, 1.0)
    assert claims == [all_but_the_least.tolist(), [1.0] * LEAST_BLOCKS]


def claimed(ratios: np.ndarray) -> np.ndarray:
    """Whether a claim is made at some look, for each row [trials, blocks]: :func:`corrected_p` for many at once, by the
    law of the signed ranks counted out here.
    """
    found = np.zeros(len(ratios), dtype=bool)
    for blocks in (one for one in LOOKS if one <= ratios.shape[1]):
        part = ratios[:, :blocks]
        if blocks in AGAINST:
            found |= (part <= 0.0).sum(axis=1) <= AGAINST[blocks]
        else:
            ranks = np.abs(part).argsort(axis=1).argsort(axis=1) + 1
            level = {LEAST_BLOCKS: 2 / 256, MOST_BLOCKS: 0.01645 * ALPHA}[blocks]
            found |= tail_of_rank_sums(blocks)[(ranks * (part > 0)).sum(axis=1)] <= level
    return found


def tail_of_rank_sums(blocks: int) -> np.ndarray:
    ways = np.zeros(blocks * (blocks + 1) // 2 + 1)
    ways[0] = 1.0
    for rank in range(1, blocks + 1):
        ways[rank:] = ways[rank:] + ways[:-rank]
    return np.asarray(ways[::-1].cumsum()[::-1] / 2.0**blocks)


LAWS: dict[str, Callable[[np.random.Generator, tuple[int, int]], np.ndarray]] = {
    "normal": lambda rng, shape: rng.normal(size=shape),
    "long tails": lambda rng, shape: rng.standard_t(2, size=shape),
    "fast or slow sessions": lambda rng, shape: (
        0.1 * (rng.integers(0, 2, shape) - rng.integers(0, 2, shape)) + 0.001 * rng.normal(size=shape)
    ),
    "ever noisier": lambda rng, shape: rng.normal(size=shape) * 1.2 ** np.arange(shape[1]),
    "quieter after a while": lambda rng, shape: rng.normal(size=shape) * np.where(np.arange(shape[1]) < 5, 10.0, 1.0),
}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("blocks", "patterns"), [(8, 2), (12, 2 * 16 + 7), (18, (2 * 16 + 7) * 64 + 56)])
def test_the_patterns_that_are_claimed_are_counted(blocks: int, patterns: int, seed: int) -> None:
    """Whatever the sizes of the ratios: of eight blocks two patterns of 256; of twelve those with one against it, which
    is among the first eight and not their least (7); of eighteen those with two, in the first twelve, that were not
    claimed before (66 pairs less 6 in the last four and 4 of one of these and the least of the first eight).
    """
    sizes = np.random.default_rng(seed).permutation(blocks) + 1.0
    assert claimed(signs(blocks) * sizes).sum() == patterns


@pytest.mark.parametrize("law", LAWS)
def test_equals_are_called_faster_by_all_looks_together_in_one_of_a_hundred(law: str) -> None:
    """Standard error 0.03 %: a look too many is seen."""
    found = claimed(LAWS[law](np.random.default_rng(1), (100_000, MOST_BLOCKS))).mean()
    assert found == pytest.approx(error(ALPHA), abs=0.001)


def test_the_law_is_known_to_a_twentieth_where_blocks_are_alike() -> None:
    found = claimed(np.random.default_rng(2).normal(size=(400_000, MOST_BLOCKS))).mean()
    assert found == pytest.approx(error(ALPHA), abs=0.0005)


def test_the_simulation_is_of_the_test_itself() -> None:
    ratios = np.random.default_rng(3).normal(0.5, 1.0, (300, MOST_BLOCKS))
    assert claimed(ratios).tolist() == [corrected_p(row) <= ALPHA for row in ratios]
    assert 0.2 < claimed(ratios).mean() < 0.99


def test_the_p_value_holds_at_every_level_and_not_at_this_one_alone() -> None:
    ratios = np.random.default_rng(4).normal(size=(4000, 24))
    found = np.array([corrected_p(row) for row in ratios])
    for level in (0.05, 0.2, 0.5):
        assert 0.5 * level <= (found <= level).mean() <= 1.1 * level


@pytest.mark.parametrize(
    ("ratios", "claim"),
    [
        ([0.01] * 7, False),  # too few
        ([0.01, 0.02, 0.03, 0.04, 0.05, 0.06, 0.07, 0.08], True),
        ([0.001, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9], True),  # how large a gain is does not matter, how often does
        ([0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, -1e-6], True),  # one shows none, and is the least of all
        ([0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, -0.9], False),
        ([0.1, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, -0.2], False),  # not the least: not yet, however large the others
        ([0.1] + [0.5] * 6 + [-0.2] + [0.5] * 3, False),  # and it is not looked again before twelve
        ([0.1] + [0.5] * 6 + [-0.2] + [0.5] * 4, True),
        ([0.5] * 7 + [-0.9] + [0.5] * 4, True),  # one may be against it, however large
        ([0.5] * 7 + [0.0] + [0.5] * 4, True),  # no gain is not one
        ([0.5] * 6 + [-0.9, 0.0] + [0.5] * 4, False),  # two may not, before eighteen
        ([0.5] * 6 + [-0.9, -0.9] + [0.5] * 9, False),
        ([0.5] * 6 + [-0.9, -0.9] + [0.5] * 10, True),
        ([-0.9] * 3 + [0.5] * 20, False),
        ([-0.9] * 3 + [0.5] * 21, True),
        ([-0.9] * 5 + [0.5] * 24, False),
        ([-0.9] * 5 + [0.5] * 25, True),
        ([-0.9] * 6 + [0.5] * 30, False),
        ([-0.01, 0.03, 0.02] * 14, True),  # the last look weighs: a third against it, but these are the least
        ([-0.03, 0.01, 0.02] * 14, False),
        ([-0.01] * 42, False),
    ],
)  # fmt: skip
def test_what_it_takes(ratios: list[float], claim: bool) -> None:
    assert (corrected_p(ratios) <= ALPHA) is claim


@pytest.mark.parametrize(
    ("ratios", "p"),
    [
        ([0.1] * 3, 1.0),
        ([-0.1] * 9, 1.0),
        # 1/256, what it makes of the eighteen and the thirty, and of the last look: all at half of the level
        ([0.1] * 8, 1 / 256 + 8 / 2**18 + 0.01645 * 1 / 256 / 0.79),
        ([0.1] * 7 + [-0.01], 2 / 256 + 0.01645 * 2 / 256 / 0.79),
        ([0.1] * 7 + [-0.3] + [0.1] * 4, error(13 / 4096 / 0.318)),
    ],
)
def test_the_p_value_is_the_error_at_the_least_level_of_a_claim(ratios: list[float], p: float) -> None:
    assert corrected_p(ratios) == pytest.approx(p, rel=0.01)


def test_the_error_grows_with_the_level() -> None:
    levels = np.geomspace(1e-5, 2.0, 400)
    found = [error(level) for level in levels]
    assert found == sorted(found)
    assert found[-1] == 1.0
    assert all(one <= level for one, level in zip(found, levels, strict=True) if level <= 0.0115)


@pytest.mark.parametrize(
    ("ratios", "ahead"),
    [
        ([], None),
        ([0.1] * 3, 8),
        ([0.1] * 3 + [-0.1], 12),
        ([0.1] * 7 + [-0.3], 12),
        ([0.1] * 6 + [-0.3, -0.3], 18),
        ([0.1] * 5 + [-0.3] * 3, 24),
        ([-0.1] * 8, None),
    ],
)
def test_where_a_claim_would_be(ratios: list[float], ahead: int | None) -> None:
    assert claim_ahead(ratios, ALPHA) == ahead


@pytest.mark.parametrize(
    ("ratios", "hopeless"),
    [
        ([-0.1, -0.11, -0.12, -0.1], False),  # before CLEAR_BLOCKS nothing is clear
        ([-0.1, -0.11, -0.12, -0.1, -0.11], True),
        ([-0.1, -0.11, 0.3, -0.1, -0.11], False),
        ([0.001, -0.001] * (NARROW_BLOCKS // 2), True),  # whatever it is, it is not worth having
        ([0.03, -0.01] * (NARROW_BLOCKS // 2), False),
        ([0.03, -0.01] * (MOST_BLOCKS // 2), True),  # no look is left
    ],
)  # fmt: skip
def test_when_going_on_is_hopeless(ratios: list[float], hopeless: bool) -> None:
    assert is_hopeless(ratios) is hopeless
    assert CLEAR_BLOCKS < LEAST_BLOCKS


def test_the_looks_one_after_the_other() -> None:
    assert [next_look(count) for count in (0, 8, 11, 12, 42)] == [8, 12, 12, 18, None]
