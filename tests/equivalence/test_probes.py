"""Which inputs are drawn for which model."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto
from wrong_pairs import FLOAT, INT64, UINT8, clipped, integers, net, normal, op

from rlflow import verify
from rlflow.equivalence import Probe, ProbePlan, calibrate, plan_for
from rlflow.errors import RuntimeRefused
from rlflow.runtime import TensorInfo

X = TensorInfo("x", "float32", ("N", 16))


def plan(model: bytes, *infos: TensorInfo, dims: dict[str, int] | None = None, **more: Any) -> ProbePlan:
    return plan_for(model, infos or (X,), dims or {"N": 1}, more.pop("ranges", {}), **more)


def probes(made: ProbePlan, refused: tuple[str, ...] = ()) -> list[Probe]:
    """All of them; those whose kind is in ``refused`` are, as if the model did not take them."""

    def nothing(*_: Any) -> Any:
        raise RuntimeRefused("nothing runs here")

    found = []
    for probe in made.probes(nothing):
        probe.refused = probe.kind in refused
        found.append(probe)
    return found


def kinds(found: list[Probe]) -> list[str]:
    return list(dict.fromkeys(probe.kind for probe in found))


RELU = net([op("Relu", "x", "y")], {})
FLOATS = ["scale 1000", "scale 30", "scale 0.001", "positive", "negative"]


class TestKinds:
    @pytest.mark.parametrize(
        ("model", "infos", "expected"),
        [
            (RELU, [X], ["sizes N=2", *FLOATS, "equals"]),
            (net([op("Clip", "x a b", "y")], {"a": np.float32(-1), "b": np.float32(6)}), [X],
             ["thresholds", "sizes N=2", *FLOATS, "equals"]),
            (net([op("MatMul", "x w", "m"), op("ArgMax", "m", "y")], {"w": normal(16, 16)}), [X],
             ["sizes N=2", *FLOATS]),
            (integers([op("Abs", "x", "y")]), [TensorInfo("x", "int64", ("N", 12))],
             ["integers", "sizes N=2", "positive", "negative"]),
            (net([op("Expand", "x s", "y")], {}, {"x": (FLOAT, [1]), "s": (INT64, [1])}),
             [TensorInfo("x", "float32", (1,)), TensorInfo("s", "int64", (1,))], [*FLOATS, "equals"]),
        ],
        ids=["floats", "a bound", "ties after a product", "integers", "a shape is left alone"],
    )  # fmt: skip
    def test_by_model(self, model: bytes, infos: list[TensorInfo], expected: list[str]) -> None:
        assert kinds(probes(plan(model, *infos))) == expected

    def test_half_precision_keeps_away_from_its_ends(self) -> None:
        model = net([op("Relu", "x", "y")], {}, {"x": (TensorProto.FLOAT16, [4])}, {"y": TensorProto.FLOAT16})
        assert "scale 8" in kinds(probes(plan(model, TensorInfo("x", "float16", (4,)))))

    def test_what_is_fixed_or_given_does_not_vary(self) -> None:
        assert "sizes N=2" not in kinds(probes(plan(RELU, fixed={"N"})))
        given = {"x": np.ones((1, 16), np.float32)}
        assert probes(plan(RELU, given=given)) == []

    def test_other_sizes_are_tried_where_some_are_refused(self) -> None:
        info = TensorInfo("x", "float32", ("N", "L"))
        made = plan(RELU, info, dims={"N": 1, "L": 8})
        found = kinds(probes(made, refused=("sizes N=2, L=9",)))
        assert found[:3] == ["sizes N=2, L=9", "sizes N=2, L=16", "sizes L=3"]
        assert not any(kind.startswith("sizes") for kind in found[3:])

    def test_few_are_tried_too_where_there_are_many(self) -> None:
        info = TensorInfo("x", "float32", ("N", "L"))
        made = plan(RELU, info, dims={"N": 64, "L": 64})
        assert kinds(probes(made))[:2] == ["sizes N=65, L=65", "sizes N=2, L=3"]
        assert kinds(probes(made, refused=("sizes N=2, L=3",)))[1:4] == ["sizes N=2, L=3", "sizes N=2", "sizes L=3"]


def test_bounds_from_both_ends_meet_where_there_are_few() -> None:
    """x[2:-3] and x[-3:] in a row are x[2:] from five rows on, and so at the 64 that were asked for."""
    bounds = {"two": np.array([2]), "last": np.array([-3]), "end": np.array([1 << 40]), "axis": np.array([0])}
    rows = {"x": (FLOAT, ["N", 8])}
    parts = [op("Slice", "x two last axis", "a"), op("Slice", "x last end axis", "b"), op("Concat", "a b", "y", axis=0)]
    one, other = net(parts, bounds, rows), net([op("Slice", "x two end axis", "y")], bounds, rows)
    assert verify(one, one, dims={"N": 64}).passed
    assert not verify(one, other, dims={"N": 64}).passed


class TestValues:
    def test_lie_on_both_sides_of_a_threshold_that_is_solved_for(self) -> None:
        nodes = [op("Mul", "x half", "h"), op("Add", "h three", "s"), op("Min", "s top", "y")]
        model = net(nodes, {"half": np.float32(0.5), "three": np.float32(3), "top": np.float32(9)})
        x = probes(plan(model))[0]["x"]
        assert (x < 12).any()
        assert (x > 12).any()
        assert (np.abs(x - 12) < 0.1).any()

    def test_integers_reach_over_their_type_and_images_over_all_bytes(self) -> None:
        model = integers([op("Identity", "x", "y")], UINT8)
        x = next(
            probe["x"] for probe in probes(plan(model, TensorInfo("x", "uint8", (40, 40)))) if probe.kind == "integers"
        )
        assert (x.min(), x.max()) == (0, 255)
        assert len(np.unique(x)) > 200

    def test_integers_that_become_floats_stay_small(self) -> None:
        """A mask of 1e18 times -10,000 would drown all that it is added to."""
        model = net([op("Cast", "x", "f", to=FLOAT), op("Mul", "f f", "y")], {}, {"x": (INT64, [64])})
        x = next(
            probe["x"] for probe in probes(plan(model, TensorInfo("x", "int64", (64,)))) if probe.kind == "integers"
        )
        assert -5 < x.min() < 0 < x.max() < 10

    @pytest.mark.parametrize("refused", [(), ("rows 0 to 127",)])
    def test_every_row_of_a_table_is_read(self, refused: tuple[str, ...]) -> None:
        model = net([op("Gather", "t x", "y")], {"t": normal(300, 4)}, {"x": (INT64, ["N", 8])})
        made = plan(model, TensorInfo("x", "int64", ("N", 8)), ranges={"x": (0, 299)})
        rows = [probe["x"].ravel() for probe in probes(made, refused) if probe.is_rows and not probe.refused]
        assert set(np.concatenate(rows).tolist()) == set(range(300))

    def test_a_scale_is_found_at_which_a_value_inside_crosses_its_bound(self) -> None:
        model = clipped([op("Clip", "c low", "d")], low=-2000.0)
        made = plan(model, TensorInfo("x", "float32", ("N", 3, 8, 8)))

        def run(_: Any, looks: list[Probe], __: str) -> list[dict[str, Any]]:
            return [{"rlflow.least.0": -0.1 * s, "rlflow.greatest.0": 0.1 * s} for s in map(_scale, looks)]

        def _scale(look: Probe) -> float:
            return float(look.kind.split()[1])

        assert "scale 30000" in [probe.kind for probe in made.probes(run)]


class TestTime:
    def test_ends_the_probes_and_says_so(self) -> None:
        def run(model: Any, feeds: Any, level: str) -> list[dict[str, Any]]:
            return [{"y": np.asarray(one["x"])} for one in feeds]

        feeds = [{"x": normal(1, 16)}]
        hurried = calibrate(run, RELU, feeds, plan=plan(RELU), seconds=0.0)
        assert (hurried.cut, hurried.probes) == (True, [])
        unhurried = calibrate(run, RELU, feeds, plan=plan(RELU), seconds=60.0)
        assert (unhurried.cut, len(unhurried.probes)) == (False, 7)
