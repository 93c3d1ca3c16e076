"""Bands through means of all rows: a squeeze-and-excitation block inside a stretch computes what the whole does."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from rlflow.footprint import Flow, Stretch, footprint, in_bands
from rlflow.footprint.bands import height_of
from rlflow.footprint.layout import with_copies
from rlflow.footprint.squeeze import Squeeze
from rlflow.footprint.stepping import Stepping
from rlflow.frontends.banding import with_bands
from rlflow.frontends.flows import flow_of
from rlflow.frontends.schedule import schedule_of
from rlflow.runtime import RuntimeOptions, Worker
from rlflow.runtime.residence import trace_of

ort = pytest.importorskip("onnxruntime")
CHANNELS = 16


def gated(height: int, opset: int = 17, mean: str = "ReduceMean", behind: int = 3, wide: int = 16) -> onnx.ModelProto:
    """A convolution x -> a, its mean, a gate made of that, their product, a convolution of ``behind`` rows to y."""
    draw = np.random.default_rng(3).standard_normal
    shapes = {"k": (CHANNELS, 3, 3, 3), "down": (2, CHANNELS, 1, 1), "up": (CHANNELS, 2, 1, 1)}
    shapes["last"] = (2, CHANNELS, behind, 3)
    weights = [numpy_helper.from_array(draw(shape).astype(np.float32), name) for name, shape in shapes.items()]
    if mean == "GlobalAveragePool":
        taken = helper.make_node(mean, ["a"], ["m"])
    elif opset < 18:
        taken = helper.make_node(mean, ["a"], ["m"], axes=[-1, 2], keepdims=1)
    else:
        weights.append(numpy_helper.from_array(np.asarray([2, 3], np.int64), "axes"))
        taken = helper.make_node(mean, ["a", "axes"], ["m"], keepdims=1)
    nodes = [
        helper.make_node("Conv", ["x", "k"], ["c"], pads=[1] * 4),
        helper.make_node("Relu", ["c"], ["a"]),
        taken,
        helper.make_node("Conv", ["m", "down"], ["d"]),
        helper.make_node("Relu", ["d"], ["r"]),
        helper.make_node("Conv", ["r", "up"], ["u"]),
        helper.make_node("Sigmoid", ["u"], ["s"]),
        helper.make_node("Mul", ["s", "a"], ["p"]),
        helper.make_node("Conv", ["p", "last"], ["y"], pads=[behind // 2, 1, behind // 2, 1]),
    ]
    start = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, height, wide])
    end = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 2, height, wide])
    graph = helper.make_graph(nodes, "gated", [start], [end], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def run(model: onnx.ModelProto) -> np.ndarray:
    options = ort.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 3, 1
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    shape = session.get_inputs()[0].shape
    return session.run(None, {"x": np.random.default_rng(7).standard_normal(shape).astype(np.float32)})[0]


def through(flow: Flow, bands: int, hidden: bool, inner: tuple[int, ...] = ()) -> Stretch:
    """All jobs as one stretch, cut where it crosses all rows, and at ``inner``."""
    last = len(flow.jobs) - 1
    cuts = tuple(sorted({*Stepping(flow).crossings(0, last), *inner}))
    return Stretch(0, last, bands, cuts=cuts, hidden=hidden)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    height=st.integers(4, 17),
    bands=st.integers(2, 5),
    hidden=st.booleans(),
    behind=st.sampled_from([1, 3, 5]),
    inner=st.sampled_from([(), (0,), (7,), (0, 7)]),
    how=st.sampled_from([(11, "ReduceMean"), (17, "ReduceMean"), (18, "ReduceMean"), (13, "GlobalAveragePool")]),
)
def test_bands_compute_what_the_whole_does(
    height: int, bands: int, hidden: bool, behind: int, inner: tuple[int, ...], how: tuple[int, str]
) -> None:
    model = gated(height, opset=how[0], mean=how[1], behind=behind)
    flow = flow_of(model)
    banded = in_bands(flow, [through(flow, bands, hidden, inner)])
    if banded is None:
        assert bands > height
        return
    written = with_bands(model, banded)
    onnx.checker.check_model(written, full_check=True)
    np.testing.assert_allclose(run(written), run(model), rtol=1e-4, atol=1e-4)
    assert sum(node.op_type == "Sigmoid" for node in written.graph.node) == 1


def test_what_is_averaged_is_never_there_as_a_whole() -> None:
    flow = flow_of(gated(32, behind=1, wide=64))
    banded = in_bands(flow, [through(flow, 4, True)])
    assert banded is not None
    assert all("a" not in (*job.inputs, *job.outputs) for job in banded.jobs)
    weighed = [job.weighs for job in banded.jobs if job.weighs]
    assert weighed == [(8, 8, 8, 8)]
    apart = in_bands(flow, [Stretch(0, 1, 4, hidden=True)])
    assert apart is not None and footprint(with_copies(banded)).peak < footprint(with_copies(apart)).peak


@pytest.mark.parametrize("value", ["ReduceMean", "GlobalAveragePool"])
def test_what_crosses_is_made_of_means_alone(value: str) -> None:
    flow = flow_of(gated(16, mean=value))
    assert [job.crosses for job in flow.jobs] == [False] * 2 + [True] * 5 + [False] * 2
    assert [job.averages for job in flow.jobs] == [False] * 2 + [True] + [False] * 6


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"axes": [2, 3], "keepdims": 0}, "the axes are gone"),
        ({"axes": [1, 2], "keepdims": 1}, "channels are averaged"),
        ({"axes": [2], "keepdims": 1}, "columns stay"),
    ],
)
def test_other_means_end_a_stretch(change: dict[str, object], why: str) -> None:
    model = gated(16)
    mean = model.graph.node[2]
    del mean.attribute[:]
    mean.attribute.extend(helper.make_attribute(name, value) for name, value in change.items())
    del model.graph.node[3:]
    model.graph.output[0].name = "m"
    assert not any(job.averages or job.crosses for job in flow_of(model).jobs), why


def test_integers_and_other_floats_are_not_averaged_in_pieces() -> None:
    model = gated(16)
    model.graph.input[0].type.tensor_type.elem_type = TensorProto.DOUBLE
    for place, weight in enumerate(model.graph.initializer):
        model.graph.initializer[place].CopyFrom(
            numpy_helper.from_array(numpy_helper.to_array(weight).astype(np.float64), weight.name)
        )
    model.graph.output[0].type.tensor_type.elem_type = TensorProto.DOUBLE
    assert not any(job.averages for job in flow_of(model).jobs)


def test_a_step_that_crosses_and_does_not_is_refused() -> None:
    flow = flow_of(gated(16))
    last = len(flow.jobs) - 1
    assert in_bands(flow, [Stretch(0, last, 2, hidden=True)]) is None
    assert in_bands(flow, [Stretch(0, last, 2, cuts=(1,), hidden=True)]) is None
    assert Stepping(flow).crossings(0, last) == (1, 6)


def test_the_search_goes_through_the_gate() -> None:
    flow = flow_of(gated(128, behind=1, wide=128))
    smallest = Squeeze(flow, 2.0, 20.0).run()[0]
    assert any(one.first <= 1 and one.last >= 7 for one in smallest.stretches), smallest
    assert footprint(with_copies(flow)).peak > 1.5 * smallest.peak


def test_the_pieces_of_a_pointwise_step_are_not_gathered() -> None:
    """A step that reads just its own band's rows costs no copies, so it is cut from the wide window behind it."""
    stepping = Stepping(flow_of(gated(64, behind=1)))
    assert stepping.beginning(7, 8, 4) == (0.0, ())
    flow = flow_of(gated(64, behind=5))
    wider = Stepping(flow).beginning(7, 8, 4)
    maker = next(place for place, job in enumerate(flow.jobs) if "a" in job.outputs)
    assert [place for place, _ in wider[1]] == [maker]


@pytest.mark.parametrize(("bands", "first"), [(2, 1), (4, 1), (8, 1), (2, 2), (4, 2), (2, 4)])
@pytest.mark.parametrize("behind", [1, 5])
def test_the_runtime_walks_through_the_gate_as_the_search_thinks(bands: int, first: int, behind: int) -> None:
    """The first step in ``first`` parts a band: pieces, and their means, come from the top, whatever the session."""
    model = gated(64, behind=behind, wide=64)
    flow = flow_of(model)
    stretch = through(flow, bands, True)._replace(rates=(first, 1, 1))
    banded = in_bands(flow, [stretch])
    assert banded is not None
    written = with_bands(model, banded)
    means = [node.input[0] for node in written.graph.node if node.op_type == "ReduceMean"]
    order = {name: place for place, node in enumerate(written.graph.node) for name in node.output}
    assert [order[name] for name in means] == sorted((order[name] for name in means), reverse=True)
    feeds = {"x": np.ones((1, 3, 64, 64), np.float32)}
    with Worker(RuntimeOptions(threads=1)) as worker:
        trace = trace_of(worker, written.SerializeToString(), feeds)
    real, estimate = schedule_of(trace.graph, trace.nodes, feeds), with_copies(banded)
    assert footprint(real).live == pytest.approx(footprint(estimate).live, rel=0.05)
    assert footprint(real).block == pytest.approx(footprint(estimate).block, rel=0.1)


@pytest.mark.parametrize("how", [(11, "ReduceMean"), (18, "ReduceMean"), (17, "GlobalAveragePool")])
@pytest.mark.parametrize(("bands", "hidden"), [(2, False), (3, True), (5, True)])
def test_a_stretch_may_end_with_a_mean(how: tuple[int, str], bands: int, hidden: bool) -> None:
    """A classifier's last mean: nothing is handed on in rows."""
    model = gated(67, how[0], how[1], wide=64)
    del model.graph.node[3:]
    kept = [one for one in model.graph.initializer if one.name in ("k", "axes")]
    del model.graph.initializer[:]
    model.graph.initializer.extend(kept)
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info("m", TensorProto.FLOAT, [1, CHANNELS, 1, 1]))
    flow = flow_of(model)
    stretch = Stretch(0, 2, bands, cuts=(1,), hidden=hidden)
    banded = in_bands(flow, [stretch])
    assert banded is not None and height_of(flow, stretch) == 67
    written = with_bands(model, banded)
    onnx.checker.check_model(written, full_check=True)
    np.testing.assert_allclose(run(written), run(model), rtol=1e-5, atol=1e-5)
    assert not any(job.joins and job.orders for job in banded.jobs)
    smallest = Squeeze(flow, 3.0, 5.0).run()[0]
    assert smallest.stretches and smallest.stretches[-1].last == 2


def test_a_stretch_that_hands_nothing_on_and_averages_nothing_is_none() -> None:
    flow = flow_of(gated(16))
    assert in_bands(flow, [Stretch(2, 4, 2, hidden=True)]) is None
