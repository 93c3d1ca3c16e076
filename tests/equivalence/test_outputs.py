"""Comparison of outputs on arrays alone."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from rlflow.equivalence import compare, flatten, noise_floor, tolerance


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def one(reference: Any, other: Any, noise: float = 0.0, **how: Any) -> Any:
    (check,) = compare({"y": reference}, {"y": other}, {"y": noise}, **how)
    return check


class TestFloats:
    def test_equal_outputs_pass_with_zero_error(self) -> None:
        found = one(normal(5), normal(5))
        assert found.passed
        assert (found.max_abs, found.max_rel, found.vacuous, found.detail) == (0.0, 0.0, None, None)

    def test_error_is_relative_to_the_largest_magnitude(self) -> None:
        reference = np.array([100.0, 1e-6, -50.0], np.float32)
        found = one(reference, np.array([100.0, 2e-6, -50.0 + 1e-4], np.float32))
        assert found.passed  # the small element is off by 100 %, which is nothing beside 100
        assert found.max_abs == pytest.approx(1e-4, rel=0.1)
        assert found.max_rel == pytest.approx(1e-6, rel=0.1)

    def test_one_per_cent_fails_whatever_the_noise_short_of_it(self) -> None:
        reference = normal(1000)
        other = reference.copy()
        other[7] += 0.01 * np.abs(reference).max()
        for noise in (0.0, 1e-6, 1e-4, 4e-3):
            found = one(reference, other, noise)
            assert not found.passed, noise
            assert "is allowed" in found.detail

    def test_noise_widens_the_tolerance_up_to_the_cap(self) -> None:
        assert tolerance("float32", 0.0) == pytest.approx(128 * 2.0**-23)
        assert tolerance("float32", 1e-4) == pytest.approx(8e-4)
        assert tolerance("float32", 2e-3) == pytest.approx(5e-3)
        assert tolerance("float32", 1.2e-2) == pytest.approx(2.4e-2)
        assert tolerance("float32", np.inf) == pytest.approx(0.1)
        assert tolerance("float32", 0.0, 2.0) == 2 * tolerance("float32", 0.0)

    def test_coarser_inner_types_widen_it_too(self) -> None:
        reference = normal(100)
        other = reference * np.float32(1 + 2e-3)
        assert not one(reference, other).passed
        assert one(reference, other, dtypes={"y": "float16"}).passed
        assert not one(reference.astype(np.float64), reference.astype(np.float64) * (1 + 1e-7)).passed

    @pytest.mark.parametrize("special", [np.nan, np.inf, -np.inf])
    def test_special_values_must_stand_in_the_same_places(self, special: float) -> None:
        reference, other, moved = normal(6), normal(6), normal(6)
        reference[2] = other[2] = moved[3] = special
        assert one(reference, other).passed
        assert "not finite" in one(reference, other).vacuous
        found = one(reference, moved)
        assert not found.passed
        assert "other places" in found.detail

    def test_infinities_have_a_sign(self) -> None:
        assert not one(np.array([np.inf, 1.0]), np.array([-np.inf, 1.0])).passed

    def test_zero_outputs_compare_absolutely(self) -> None:
        zero = np.zeros(4, np.float32)
        assert one(zero, zero + np.float32(1e-9)).passed
        assert not one(zero, zero + np.float32(1e-3)).passed

    def test_complex_outputs(self) -> None:
        value = (normal(5) + 1j * normal(5, seed=1)).astype(np.complex64)
        assert one(value, value * np.complex64(1 + 1e-6)).passed
        assert not one(value, value * np.complex64(1 + 1e-3j)).passed


class TestExact:
    @pytest.mark.parametrize(
        "array", [np.array([1, 2, 3]), np.array([True, False, True]), np.array(["a", "b", "c"], object)]
    )
    def test_must_be_equal(self, array: np.ndarray) -> None:
        assert one(array, array.copy()).passed
        found = one(array, array[::-1].copy() if array.dtype != bool else ~array)
        assert not found.passed
        assert "must be equal" in found.detail

    def test_integers_beyond_float_precision(self) -> None:
        found = one(np.array([2**62, 5]), np.array([2**62 + 1, 5]))
        assert (found.passed, found.max_abs, found.max_rel) == (False, 1.0, 0.5)

    def test_unsigned_differences_do_not_wrap(self) -> None:
        assert one(np.array([0, 1], np.uint8), np.array([255, 1], np.uint8)).max_abs == 255.0

    def test_a_model_that_flips_integers_by_itself_is_given_room(self) -> None:
        reference = np.arange(1000)
        other = reference.copy()
        other[:4] += 1
        assert not one(reference, other).passed
        assert one(reference, other, noise=0.001).passed
        other[:100] += 1
        assert not one(reference, other, noise=1.0).passed


class TestStructure:
    def test_missing_misshapen_and_mistyped(self) -> None:
        (missing,) = compare({"y": normal(3)}, {})
        assert (missing.passed, missing.detail) == (False, "The output 'y' is missing.")
        assert "shape [4] instead of [3]" in one(normal(3), normal(4)).detail
        assert "type float64 instead of float32" in one(normal(3), normal(3).astype(float)).detail

    def test_the_worst_run_counts(self) -> None:
        good, bad = {"y": normal(4)}, {"y": normal(4) + 1}
        (found,) = compare([good, good], [good, bad])
        assert not found.passed

    def test_sequences_and_maps_are_flattened(self) -> None:
        flat = flatten({"s": [normal(1), [normal(2)]], "m": {"k": 3}, "none": None})
        assert list(flat) == ["s[0]", "s[1][0]", "m[k]"]
        checks = compare({"s": [normal(2), normal(3)]}, {"s": [normal(2)]})
        assert [check.passed for check in checks] == [True, False]

    def test_checks_are_json_even_when_infinite(self) -> None:
        text = json.dumps([check.to_dict() for check in compare({"y": normal(3)}, {})], allow_nan=False)
        assert json.loads(text)[0]["max_abs"] is None


class TestVacuous:
    @pytest.mark.parametrize(
        ("runs", "reason"),
        [
            ([np.full(5, 0.25, np.float32)], "the same"),
            ([np.full(1000, 1e-3, np.float32) * (1 + np.arange(1000, dtype=np.float32) % 2 * 1e-7)], "the same"),
            ([np.full(5, np.nan, np.float32)], "none of its values"),
            ([np.array([1.0, np.inf], np.float32)], "some of its values"),
            ([np.zeros((0, 3), np.float32)], "no elements"),
            ([np.array([7, 7])], "the same"),
            ([normal(4), normal(4)], "does not depend"),
            ([np.array([3]), np.array([3])], "the same"),
        ],
    )
    def test_reasons(self, runs: list[np.ndarray], reason: str) -> None:
        (found,) = compare([{"y": run} for run in runs], [{"y": run} for run in runs])
        assert found.passed
        assert reason in found.vacuous

    @pytest.mark.parametrize(
        "runs", [[normal(5)], [np.array([4])], [np.float32([3.0])], [np.array([3]), np.array([4])]]
    )
    def test_real_outputs_are_not(self, runs: list[np.ndarray]) -> None:
        assert compare([{"y": run} for run in runs], [{"y": run} for run in runs])[0].vacuous is None


class TestNoiseFloor:
    def test_is_the_largest_over_runs_and_variants(self) -> None:
        base = [{"y": np.array([10.0, 0.0])}, {"y": np.array([5.0, 0.0])}]
        one_off = [{"y": np.array([10.0, 0.1])}, {"y": np.array([5.0, 0.0])}]
        other = [{"y": np.array([10.0, 0.0])}, {"y": np.array([5.0, 0.3])}]
        assert noise_floor(base, [one_off, other])["y"] == pytest.approx(0.03)
        assert noise_floor(base, [])["y"] == 0.0

    def test_misplaced_nan_is_infinite(self) -> None:
        assert noise_floor([{"y": np.array([1.0])}], [[{"y": np.array([np.nan])}]])["y"] == np.inf
