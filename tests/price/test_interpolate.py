"""Interpolated prices: right where the law is smooth, silent where nothing near was measured, marked everywhere."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from rlflow import price
from rlflow.graph import Graph
from rlflow.price.database import PriceDatabase
from rlflow.price.interpolate import FEWEST, Interpolation, TimedRegion
from tests.learnt import learnt


def law(flops: float, size: float) -> float:
    return 2e-3 + flops / 60e6 + size / 12e6


def samples(count: int, seed: int = 0, noise: float = 0.0) -> list[TimedRegion]:
    rng = np.random.default_rng(seed)
    places = np.exp(rng.uniform(np.log([1e6, 1e5]), np.log([1e9, 1e7]), (count, 2)))
    return [TimedRegion("Conv", "Conv Relu", f, b, law(f, b) * float(rng.lognormal(0, noise))) for f, b in places]


def test_a_smooth_law_is_followed() -> None:
    model = Interpolation(samples(200))
    errors = []
    for known in samples(50, seed=1):
        found = model.estimate("Conv", "Conv Relu", known.flops, known.bytes)
        assert found is not None
        assert found.samples == 200
        errors.append(abs(found.ms / known.ms - 1))
    assert np.median(errors) < 0.1
    assert model.errors()["Conv", "Conv Relu"] < 0.12


def test_measured_regions_answer_for_themselves() -> None:
    known = samples(20)
    model = Interpolation(known)
    for one in known:
        found = model.estimate(one.kind, one.operators, one.flops, one.bytes)
        assert found is not None
        assert found.ms == pytest.approx(one.ms, rel=0.02)


def test_noise_shows_in_the_error() -> None:
    calm, noisy = Interpolation(samples(60)), Interpolation(samples(60, noise=0.5))
    key = ("Conv", "Conv Relu")
    assert noisy.errors()[key] > 2 * calm.errors()[key]


@pytest.mark.parametrize(
    ("kind", "operators", "flops", "size"),
    [
        ("Conv", "Conv", 1e8, 1e6),  # other operators
        ("Conv blocked", "Conv Relu", 1e8, 1e6),  # another layout
        ("Conv", "Conv Relu", 1e12, 1e6),  # far more work
        ("Conv", "Conv Relu", 1e8, 1e9),  # far more traffic
    ],
)
def test_nothing_is_said_about_what_nobody_measured(kind: str, operators: str, flops: float, size: float) -> None:
    assert Interpolation(samples(50)).estimate(kind, operators, flops, size) is None


def test_too_few_say_nothing() -> None:
    model = Interpolation(samples(FEWEST - 1))
    assert model.estimate("Conv", "Conv Relu", 1e8, 1e6) is None
    model.add(TimedRegion("Conv", "", 1.0, 1.0, 1.0))
    model.add(TimedRegion("Conv", "Conv Relu", 1e8, 1e6, 0.0))
    assert len(model) == FEWEST - 1
    model.add(TimedRegion("Conv", "Conv Relu", 1e8, 1e6, law(1e8, 1e6)))
    assert model.estimate("Conv", "Conv Relu", 1e8, 1e6) is not None


def product(rows: int, then: str = "Relu") -> Graph:
    return Graph.parse(f"x: f32[{rows},64] = input\nw: f32[64,64] = const\nm = MatMul(x, w)\ny = {then}(m)\nreturn y")


def test_lazy_measures_what_is_new_and_estimates_the_rest(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")
    with PriceDatabase(learnt(tmp_path / "prices.sqlite")) as base:
        eager = price.make("onnxruntime", database=base)
        eager.fill([product(rows) for rows in (8, 16, 24, 32, 48, 64, 96, 128)])
        eager.close()
        with price.make("onnxruntime", database=base, measure="lazy") as lazy:  # type: ignore[attr-defined]
            first = lazy.fill([product(72)])  # the first graph is always measured
            assert (first.measured, first.estimated) == (2, 0)
            second = lazy.fill([product(40), product(80)])
            assert (second.measured, second.estimated, second.remaining) == (0, 4, 0)
            other = lazy.fill([product(40, "Softplus")])
            assert other.measured > 0
            report = lazy.cost(product(40))
            assert report.complete
            assert report.estimated == 2
            assert all((row.note or "").startswith("estimated from ") for row in report.per_region)
            assert lazy.cost(product(72)).estimated == 0
            assert "were priced by interpolation" in lazy.notes()[0]
            assert report.total_ms > 0  # how near is for the simulated law above: this clock may be busy
        assert base.count() > 0
        with price.make("onnxruntime", database=base) as again:  # type: ignore[attr-defined]
            assert again.cost(product(40)).estimated == 0  # estimates are not kept
            assert again.totals.measured == 2
