"""What regions cost inside a model: learnt from whole models, each judged by the others."""

from __future__ import annotations

import numpy as np
import pytest

from rlflow import price
from rlflow.errors import CostError
from rlflow.price.in_model import NONE, ONNXRUNTIME, InModel, Total, learnt, left_out


def models(truth: InModel, seed: int, noise: float = 0.0) -> dict[str, list[Total]]:
    rng = np.random.default_rng(seed)
    found: dict[str, list[Total]] = {}
    for name in "abcdef":
        alone, regions = float(rng.uniform(1, 100)), int(rng.integers(5, 300))
        found[name] = [
            Total(truth.ms(alone * k, regions + k) * float(rng.lognormal(0, noise)), alone * k, regions + k)
            for k in range(1, 6)
        ]
    return found


class TestLearning:
    @pytest.mark.parametrize("truth", [InModel(1.05, 0.005), InModel(0.9, 0.02), InModel(1.0, 0.0)])
    def test_what_is_there_is_found(self, truth: InModel) -> None:
        found = learnt(models(truth, 1))
        assert found.factor == pytest.approx(truth.factor, abs=1e-3)
        assert found.region_ms == pytest.approx(truth.region_ms, abs=1e-4)

    def test_one_model_that_is_far_off_does_not_decide(self) -> None:
        truth, rows = InModel(1.05, 0.005), models(InModel(1.05, 0.005), 2, noise=0.003)
        rows["a"] = [one._replace(measured_ms=2 * one.measured_ms) for one in rows["a"]]
        assert learnt(rows).factor == pytest.approx(truth.factor, abs=0.03)

    def test_a_region_never_earns(self) -> None:
        found = learnt(models(InModel(1.1, -0.004), 3))
        assert found.region_ms == 0.0
        assert found.factor < 1.1

    def test_a_model_is_not_judged_by_itself(self) -> None:
        rows = models(InModel(1.05, 0.005), 4)
        spoilt = {**rows, "a": [one._replace(measured_ms=9 * one.measured_ms) for one in rows["a"]]}
        assert left_out(rows, "a") == left_out(spoilt, "a")

    def test_nothing_to_learn_from(self) -> None:
        with pytest.raises(CostError, match="Nothing was measured"):
            learnt({})

    def test_alone_is_the_inverse(self) -> None:
        assert ONNXRUNTIME.alone(ONNXRUNTIME.ms(3.0, 7), 7) == pytest.approx(3.0)


@pytest.mark.parametrize(("fusion", "expected"), [(None, ONNXRUNTIME), ("none", NONE), ("generic", NONE)])
def test_only_the_table_of_the_runtime_has_it(fusion: str | None, expected: InModel) -> None:
    assert price.make("onnxruntime", fusion=fusion).in_model == expected
