"""What the nodes of a model tell about where it changes its ways, and the variants of it that checks run."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from rlflow.frontends import instrument
from rlflow.frontends.instrument import moving, nudged, opened, watching
from rlflow.frontends.opening import parse_model
from rlflow.frontends.sensitivity import Sensitivity, sensitivity


def model(lines: str, weights: dict[str, Any] | None = None, **kinds: int) -> onnx.ModelProto:
    """Nodes as ``y = Op(a, b)``, one a line; inputs are ``x`` and what ``kinds`` names, the last result goes out."""
    nodes = []
    for line in filter(None, map(str.strip, lines.splitlines())):
        result, call = line.split(" = ")
        kind, operands = call.rstrip(")").split("(")
        attributes = {"to": TensorProto.FLOAT} if kind == "Cast" else {}
        nodes.append(helper.make_node(kind, operands.split(", "), [result], **attributes))
    inputs = {"x": TensorProto.FLOAT, **kinds}
    graph = helper.make_graph(
        nodes, "g",
        [helper.make_tensor_value_info(name, kind, [4]) for name, kind in inputs.items()],
        [helper.make_tensor_value_info(nodes[-1].output[0], TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in (weights or {}).items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


TWO, SIX, ZERO = np.float32(2), np.float32(6), np.float32(0)


class TestThresholds:
    @pytest.mark.parametrize(
        ("lines", "expected"),
        [
            ("y = Clip(x, a, b)", (2.0, 6.0)),
            ("y = Min(x, b)", (6.0,)),
            ("y = Greater(x, b)", (6.0,)),
            ("s = Add(x, a)\n y = Min(s, b)", (4.0,)),
            ("s = Sub(a, x)\n y = Min(s, b)", (-4.0,)),
            ("s = Mul(x, a)\n y = Min(s, b)", (3.0,)),
            ("s = Div(x, a)\n y = Min(s, b)", (2.0, 12.0)),
            ("s = Div(a, x)\n y = Min(s, b)", (1 / 3, 2.0)),
            ("n = Neg(x)\n s = Transpose(n)\n y = Min(s, b)", (-6.0,)),
            ("y = HardSwish(x)", (-3.0, 3.0)),
        ],
    )
    def test_are_carried_back_to_the_input(self, lines: str, expected: tuple[float, ...]) -> None:
        found = sensitivity(model(lines, {"a": TWO, "b": SIX}))
        assert found.inputs["x"] == pytest.approx(expected)
        assert not found.inside

    def test_stay_inside_where_no_simple_way_leads_back(self) -> None:
        found = sensitivity(model("s = Exp(x)\n y = Min(s, b)", {"b": SIX}))
        assert (found.inputs, found.inside) == ({}, {"s": (6.0,)})


class TestReach:
    @pytest.mark.parametrize(
        ("lines", "structural", "summed"),
        [
            ("y = Reshape(x, i)", True, False),
            ("j = Add(i, i)\n y = Reshape(x, j)", True, False),
            ("y = Gather(x, i)", True, False),
            ("y = Mod(i, i)", True, False),
            ("f = Cast(i)\n y = Add(x, f)", False, True),
            ("y = Mul(i, i)", False, False),
            ("j = Greater(i, i)\n y = Where(j, x, x)", False, False),
        ],
    )
    def test_of_an_integer_input(self, lines: str, structural: bool, summed: bool) -> None:
        found = sensitivity(model(lines, i=TensorProto.INT64))
        assert ("i" in found.structural, "i" in found.summed) == (structural, summed)

    def test_inputs_that_a_body_reads_are_left_alone(self) -> None:
        body = helper.make_graph(
            [helper.make_node("Identity", ["i"], ["o"])], "body", [], [helper.make_tensor_value_info("o", 7, None)]
        )
        made = model("y = Identity(x)", i=TensorProto.INT64)
        made.graph.node.append(helper.make_node("If", ["x"], ["z"], then_branch=body, else_branch=body))
        assert "i" in sensitivity(made).structural


@pytest.mark.parametrize(
    ("lines", "exact"),
    [
        ("y = ArgMax(x)", True),
        ("r = Relu(x)\n y = ArgMax(r)", True),
        ("m = Mul(x, x)\n y = ArgMax(m)", False),
        ("m = Mul(x, x)\n y = Relu(m)", True),
    ],
)
def test_equals_are_exact_where_nothing_is_rounded_before_a_jump(lines: str, exact: bool) -> None:
    assert sensitivity(model(lines)).exact is exact


@pytest.mark.parametrize(("lines", "stepped"), [("s = Sigmoid(x)\n y = Transpose(s)", True), ("y = Exp(x)", False)])
def test_outputs_of_stepped_functions(lines: str, stepped: bool) -> None:
    assert ("y" in sensitivity(model(lines)).stepped) is stepped


class TestNudged:
    @pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
    def test_every_weight_moves_by_one_rounding(self, dtype: type) -> None:
        weights = np.random.default_rng(0).standard_normal(50).astype(dtype)
        made = model("y = Mul(x, w)", {"w": weights})
        assert nudged(made, 1) == 50
        moved = numpy_helper.to_array(made.graph.initializer[0])
        up, down = (np.nextafter(weights, dtype(end)) for end in (np.inf, -np.inf))
        assert ((moved == up) | (moved == down)).all()
        assert 0 < (moved > weights).sum() < 50

    @pytest.mark.parametrize("kind", ["bytes", "file", "w.data", "0.onnx", "of many models.data"])
    def test_of_a_large_model_only_small_tensors_move(
        self, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The others are in a file that all variants share, wherever they were."""
        monkeypatch.setattr(instrument, "MOVED_BYTES", 1000)
        monkeypatch.setattr(instrument, "SMALL", 10)
        weights = {"w": np.full(500, 1.5, np.float32), "b": np.full(5, 1.5, np.float32)}
        made, path = model("a = Mul(x, w)\n y = Add(a, b)", weights), str(tmp_path / "model.onnx")
        source: Any = made.SerializeToString()
        if kind != "bytes":
            onnx.save(made, path, save_as_external_data=kind != "file", location=kind, size_threshold=100)
            source = path
        if kind == "of many models.data":
            os.truncate(tmp_path / kind, instrument.MOVED_IN_PART + 1)  # holes take no space, and would as a copy
        with moving(source) as variant:
            paths = [variant(seed) for seed in (0, 1)]
            folder = os.path.dirname(str(paths[0]))
            assert sum(one.stat().st_size for one in os.scandir(folder)) < 10_000
            for one in map(str, paths):
                assert os.path.getsize(one) < 1000
                w, b = map(numpy_helper.to_array, onnx.load(one).graph.initializer)
                assert (w == 1.5).all()
                assert (b != 1.5).all()
        assert not any(os.path.exists(str(one)) for one in paths)
        monkeypatch.setattr(instrument, "MOVED_IN_PART", 1000)
        with moving(source) as variant:
            assert variant(0) is None

    def test_of_another_model_all_tensors_move_anew(self) -> None:
        made = model("y = Mul(x, w)", {"w": np.full(50, 1.5, np.float32)})
        with moving(made.SerializeToString()) as variant:
            found = [variant(seed) for seed in (0, 1, 0)]
        variants = [parse_model(one, "it") for one in found if isinstance(one, bytes)]
        first, second, again = (numpy_helper.to_array(one.graph.initializer[0]) for one in variants)
        assert (first != 1.5).all()
        assert (first != second).any()
        assert (first == again).all()
        with moving(model("y = Relu(x)").SerializeToString()) as variant:
            assert variant(0) is None

    def test_zeros_infinities_scalars_and_exponents_stay(self) -> None:
        kept = {"z": np.float32([0.0, -np.inf, np.nan, 0.0]), "s": TWO, "e": np.float32([2, 2, 2, 2])}
        made = model("a = Add(x, z)\n b = Mul(a, s)\n y = Pow(b, e)", kept)
        nudged(made, 0)
        for tensor in made.graph.initializer:
            np.testing.assert_array_equal(numpy_helper.to_array(tensor), kept[tensor.name])

    def test_a_scalar_that_only_scales_moves(self) -> None:
        """As a rewrite to the reciprocal moves it; one that is read by others too, or is a power of two, does not."""
        given = {"s": np.float32(1.4), "t": np.float32(1.4), "half": np.float32(0.5), "one": np.float32([3.0])}
        made = model("a = Div(x, s)\n b = Mul(a, t)\n c = Add(b, t)\n d = Mul(c, half)\n y = Mul(d, one)", given)
        nudged(made, 0)
        moved = {tensor.name: numpy_helper.to_array(tensor) for tensor in made.graph.initializer}
        assert {name for name, value in given.items() if moved[name] != value} == {"s", "one"}
        assert abs(moved["s"] - given["s"]) == np.spacing(given["s"])


def test_watching_gives_the_range_of_values_inside() -> None:
    watched = watching(model("s = Exp(x)\n y = Min(s, b)", {"b": SIX}), ["s"])
    onnx.checker.check_model(watched)
    assert [info.name for info in watched.graph.output] == ["rlflow.least.0", "rlflow.greatest.0"]


def test_what_cannot_be_opened_is_none() -> None:
    assert opened(b"garbage") is None
    assert opened("absent.onnx") is None


def test_a_model_without_nodes_of_note() -> None:
    assert sensitivity(model("y = Identity(x)")) == Sensitivity()
