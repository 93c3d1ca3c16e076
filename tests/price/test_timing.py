"""Statistics against closed forms and brute force."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from rlflow.errors import CostError
from rlflow.price import timing
from rlflow.price.student import student_quantile, student_tail
from rlflow.price.timing import (
    hodges_lehmann,
    log_ratios,
    median_interval,
    signed_rank_p,
    speedup,
)


def brute_force_p(values: np.ndarray) -> float:
    """The definition: all sign patterns are equally likely; how many reach this sum of (mean) ranks?"""
    values = values[values != 0]
    magnitudes = np.abs(values)
    ranks = np.array([(np.sum(magnitudes < m) + np.sum(magnitudes <= m) + 1) / 2 for m in magnitudes])
    observed = ranks[values > 0].sum()
    sums = [np.dot(ranks, signs) for signs in itertools.product((0, 1), repeat=len(values))]
    return float(np.mean([total >= observed - 1e-9 for total in sums]))


class TestSignedRank:
    @pytest.mark.parametrize("count", [1, 5, 7, 10])
    def test_all_positive_has_probability_two_to_the_minus_n(self, count: int) -> None:
        assert signed_rank_p(np.arange(1, count + 1)) == pytest.approx(2.0**-count)
        assert signed_rank_p(-np.arange(1, count + 1)) == pytest.approx(1.0)

    @pytest.mark.parametrize("seed", range(12))
    def test_equals_enumeration_with_ties_and_zeros(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        values = rng.integers(-3, 6, rng.integers(2, 12)).astype(float)
        assert signed_rank_p(values) == pytest.approx(brute_force_p(values) if (values != 0).any() else 1.0)

    def test_a_tabulated_value(self) -> None:
        # n = 10; the negative ranks sum to 5, and 1 + 1 + 1 + 2 + 2 + 3 = 10 sets of ranks sum to 5 or less.
        values = np.array([-1, 2, 3, -4, 5, 6, 7, 8, 9, 10.0])
        assert signed_rank_p(values) == pytest.approx(10 / 1024)

    def test_nothing_to_compare_is_not_significant(self) -> None:
        assert signed_rank_p([]) == 1.0
        assert signed_rank_p([0.0, 0.0]) == 1.0

    def test_normal_approximation_meets_the_exact_law(self, monkeypatch: pytest.MonkeyPatch) -> None:
        values = np.random.default_rng(3).normal(0.3, 1.0, 60)
        exact = signed_rank_p(values)
        monkeypatch.setattr(timing, "EXACT_PAIRS", 10)
        assert 0.001 < exact < 0.2
        assert signed_rank_p(values) == pytest.approx(exact, rel=0.1)

    def test_level_is_kept_under_heavy_tails(self) -> None:
        rng = np.random.default_rng(0)
        hits = np.mean([signed_rank_p(rng.standard_cauchy(12)) < 0.01 for _ in range(2000)])
        assert hits <= 0.016  # 0.01 and three standard errors

    def test_a_value_that_is_not_finite_is_an_error(self) -> None:
        with pytest.raises(CostError, match="not finite"):
            signed_rank_p([1.0, math.nan])


class TestHodgesLehmann:
    def test_is_the_median_of_pairwise_means(self) -> None:
        # Walsh averages of 1, 2, 6 are 1, 1.5, 2, 3.5, 4, 6.
        assert hodges_lehmann([1.0, 2.0, 6.0]).value == pytest.approx(2.75)

    def test_six_values_are_bounded_by_their_extremes(self) -> None:
        found = hodges_lehmann([3.0, 1.0, 2.0, 5.0, 4.0, 9.0])
        assert (found.low, found.high) == (1.0, 9.0)

    def test_five_values_cannot_bound_95_per_cent(self) -> None:
        found = hodges_lehmann([1.0, 2.0, 3.0, 4.0, 5.0])
        assert found.value == 3.0
        assert (found.low, found.high) == (-math.inf, math.inf)

    def test_interval_agrees_with_the_test_it_inverts(self) -> None:
        values = np.random.default_rng(5).normal(0.5, 1.0, 11)
        found = hodges_lehmann(values)
        for shift, inside in ((found.low + 1e-9, True), (found.low - 1e-9, False)):
            assert (signed_rank_p(values - shift) > 0.025) is inside
        for shift, inside in ((found.high - 1e-9, True), (found.high + 1e-9, False)):
            assert (signed_rank_p(shift - values) > 0.025) is inside

    @pytest.mark.parametrize("count", [8, 15, 80])
    def test_coverage(self, count: int) -> None:
        rng = np.random.default_rng(count)
        found = [hodges_lehmann(1.0 + rng.standard_t(2, count)) for _ in range(400)]
        assert np.mean([one.low <= 1.0 <= one.high for one in found]) == pytest.approx(0.955, abs=0.035)

    def test_no_samples(self) -> None:
        with pytest.raises(CostError, match="no samples"):
            hodges_lehmann([])


class TestMedianInterval:
    @pytest.mark.parametrize(("count", "skip"), [(6, 0), (8, 0), (9, 1), (10, 1), (12, 2), (20, 5)])
    def test_order_statistics_of_the_tables(self, count: int, skip: int) -> None:
        found = median_interval(np.arange(count, 0, -1.0))
        assert (found.low, found.high) == (1.0 + skip, count - skip)
        assert found.value == (count + 1) / 2

    def test_too_few(self) -> None:
        assert median_interval([1.0, 2.0]).high == math.inf


class TestSpeedup:
    def test_a_constant_ratio_is_found(self) -> None:
        noise = np.random.default_rng(0).lognormal(0.0, 0.3, 20)
        found = speedup(log_ratios(3.0 * noise, 2.0 * noise))
        assert found.value == pytest.approx(1.5)
        assert found.low == pytest.approx(1.5)
        assert found.high == pytest.approx(1.5)
        assert found.p_value == pytest.approx(2.0**-20)

    def test_pairing_removes_drift(self) -> None:
        rng = np.random.default_rng(1)
        drift = np.exp(np.cumsum(rng.normal(0, 0.2, 40)))
        found = speedup(log_ratios(1.03 * drift * rng.lognormal(0, 0.01, 40), drift * rng.lognormal(0, 0.01, 40)))
        assert 1.02 < found.low < 1.03 < found.high < 1.04

    def test_few_pairs_have_an_open_interval(self) -> None:
        found = speedup(np.log([1.1, 1.2]))
        assert (found.low, found.high, found.pairs) == (0.0, math.inf, 2)

    @pytest.mark.parametrize(("before", "after"), [([1.0], [1.0, 2.0]), ([1.0, 0.0], [1.0, 1.0])])
    def test_impossible_samples(self, before: list[float], after: list[float]) -> None:
        with pytest.raises(CostError):
            log_ratios(np.array(before), np.array(after))


class TestStudent:
    @pytest.mark.parametrize(
        ("t", "freedom", "tail"),
        [(0.0, 4, 0.5), (1.0, 1, 0.25), (2.776, 4, 0.025), (-2.776, 4, 0.975), (2.571, 5, 0.025), (4.604, 4, 0.005),
         (1.96, 10_000, 0.025)],
    )  # fmt: skip
    def test_tail(self, t: float, freedom: int, tail: float) -> None:
        assert student_tail(t, freedom) == pytest.approx(tail, abs=1e-4)

    @pytest.mark.parametrize(
        ("freedom", "alpha", "expected"),
        [(1, 0.05, 12.7062), (2, 0.05, 4.3027), (4, 0.01, 4.6041), (9, 0.05, 2.2622), (30, 0.05, 2.0423),
         (2, 0.01, 9.9248)],
    )  # fmt: skip
    def test_quantiles_are_those_of_the_tables(self, freedom: int, alpha: float, expected: float) -> None:
        assert student_quantile(freedom, alpha) == pytest.approx(expected, rel=1e-4)

    def test_five_values_have_an_interval(self) -> None:
        found = speedup(np.log([1.1, 1.12, 1.11, 1.09, 1.1]))
        assert 1.08 < found.low < found.value < found.high < 1.12
