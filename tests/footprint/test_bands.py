"""Stretches in bands of rows compute what the whole does, bit for bit, at all borders."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from rlflow.footprint import Flow, Stretch, footprint, in_bands
from rlflow.footprint.layout import with_copies
from rlflow.frontends.banding import with_bands
from rlflow.frontends.flows import flow_of

ort = pytest.importorskip("onnxruntime")
#: What the runtime says where a window does not fit.
UNFIT = tuple(
    getattr(ort.capi.onnxruntime_pybind11_state, name) for name in ("Fail", "InvalidArgument", "RuntimeException")
)


@dataclass
class Net:
    """A network in the making; weights are small integers, so that every sum is exact in any order."""

    seed: int
    opset: int = 17
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    weights: list[onnx.TensorProto] = field(default_factory=list)
    channels: dict[str, int] = field(default_factory=lambda: {"x": 4})
    last: str = "x"

    def constant(self, *shape: int) -> str:
        rng = np.random.default_rng([self.seed, len(self.weights)])
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(rng.integers(-1, 2, shape).astype(np.float32), name))
        return name

    def add(self, op: str, *inputs: str, channels: int | None = None, **attributes: object) -> str:
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [name], name=f"n{len(self.nodes)}", **attributes))
        self.channels[name] = self.channels[inputs[0]] if channels is None else channels
        self.last = name
        return name

    def model(self, height: int, width: int, outputs: tuple[str, ...] = ()) -> onnx.ModelProto:
        ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs or (self.last,)]
        start = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, self.channels["x"], height, width])
        graph = helper.make_graph(self.nodes, "net", [start], ends, self.weights)
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=8)
        inferred = onnx.shape_inference.infer_shapes(made)
        for info in inferred.graph.output:  # inference counts some windows of pools that runtimes do not
            for dim in info.type.tensor_type.shape.dim:
                dim.Clear()
        del inferred.graph.value_info[:]
        return inferred


def run(model: onnx.ModelProto, height: int, width: int) -> list[np.ndarray]:
    options = ort.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 3, 1
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    shape = (2, session.get_inputs()[0].shape[1], height, width)
    x = np.random.default_rng(7).integers(-3, 4, shape).astype(np.float32)
    return session.run(None, {"x": x})


def same(
    model: onnx.ModelProto,
    bands: int,
    height: int,
    width: int,
    whole: Flow | None = None,
    cuts: tuple[int, ...] = (),
    hidden: bool = False,
    rates: tuple[int, ...] = (),
) -> bool:
    """Whether all of a model could be put in bands; that its outputs are equal then is asserted."""
    flow = whole or flow_of(model)
    assert all(job.rows is not None for job in flow.jobs), [job for job in flow.jobs if job.rows is None]
    banded = in_bands(flow, [Stretch(0, len(flow.jobs) - 1, bands, cuts=cuts, hidden=hidden, rates=rates)])
    if banded is None:
        return False
    written = with_bands(model, banded)
    onnx.checker.check_model(written, full_check=True)
    for one, other in zip(run(model, height, width), run(written, height, width), strict=True):
        np.testing.assert_array_equal(one, other)
    return True


@st.composite
def windows(draw: st.DrawFn, pool: bool = False) -> dict[str, object]:
    kernel = [draw(st.integers(1, 4)), draw(st.integers(1, 3))]
    found: dict[str, object] = {"kernel_shape": kernel, "strides": [draw(st.integers(1, 3)), draw(st.integers(1, 2))]}
    dilations = [1, 1] if pool else [draw(st.integers(1, 3)), draw(st.integers(1, 2))]
    found["dilations"] = dilations
    how = draw(st.sampled_from(["NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"]))
    if how == "NOTSET":
        most = (
            [size - 1 for size in kernel]
            if pool
            else [(size - 1) * step for size, step in zip(kernel, dilations, strict=True)]
        )
        found["pads"] = [draw(st.integers(0, limit)) for limit in (*most, *most)]
    elif max(dilations) > 1:
        found["dilations"] = [1, 1]
    return found if how == "NOTSET" else {**found, "auto_pad": how}


@st.composite
def nets(draw: st.DrawFn) -> Net:
    net = Net(draw(st.integers(0, 1000)))
    for _ in range(draw(st.integers(1, 4))):
        x, width = net.last, net.channels[net.last]
        kind = draw(st.sampled_from(["conv", "grouped", "pool", "unary", "residual", "joined", "norm", "clip"]))
        if kind in ("conv", "grouped"):
            group = 2 if kind == "grouped" else 1
            window = draw(windows())
            weight = net.constant(4, width // group, *window["kernel_shape"])  # type: ignore[misc]
            net.add("Conv", x, weight, net.constant(4), channels=4, group=group, **window)
        elif kind == "pool":
            window = draw(windows(pool=True))
            window.pop("dilations")
            net.add("MaxPool", x, ceil_mode=draw(st.integers(0, 1)) if "pads" in window else 0, **window)
        elif kind == "unary":
            net.add(draw(st.sampled_from(["Relu", "Neg", "Abs", "Identity"])), x)
        elif kind == "norm":
            ones, zeros = (
                numpy_helper.from_array(np.full(width, value, np.float32), f"{name}{len(net.nodes)}")
                for value, name in ((1, "one"), (0, "zero"))
            )
            net.weights += [ones, zeros]
            net.add("BatchNormalization", x, ones.name, zeros.name, zeros.name, ones.name, epsilon=0.0)
        elif kind == "clip":
            net.add("Clip", x, _scalar(net, -20.0), _scalar(net, 20.0))
        elif kind == "residual":
            inner = net.add("Conv", x, net.constant(width, width, 3, 3), pads=[1, 1, 1, 1])
            net.add("Add", x, net.add("Relu", inner))
        else:
            other = net.add("Conv", x, net.constant(4, width, 1, 1), channels=4)
            third = net.add("Conv", x, net.constant(4, width, 5, 1), channels=4, pads=[2, 0, 2, 0])
            net.add("Concat", other, third, x, axis=1, channels=8 + width)
    return net


def _scalar(net: Net, value: float) -> str:
    net.weights.append(numpy_helper.from_array(np.float32(value), f"s{len(net.weights)}"))
    return f"s{len(net.weights) - 1}"


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
@given(nets(), st.integers(2, 5), st.integers(9, 23), st.integers(6, 11), st.data())
def test_bands_compute_the_same(net: Net, bands: int, height: int, width: int, data: st.DataObject) -> None:
    model = net.model(height, width)
    try:
        run(model, height, width)
    except UNFIT:
        return
    flow = flow_of(model)
    if all(job.rows is not None for job in flow.jobs):
        cuts = data.draw(st.sets(st.integers(0, len(flow.jobs) - 2), max_size=3)) if len(flow.jobs) > 1 else ()
        rates = data.draw(st.tuples(*[st.integers(1, 3) for _ in range(len(cuts) + 1)]))
        same(model, bands, height, width, flow, tuple(sorted(cuts)), data.draw(st.booleans()), rates)


def chain(*parts: tuple[str, dict[str, object]], channels: int = 4) -> Net:
    net = Net(3)
    for op, attributes in parts:
        if op in ("Conv", "ConvTranspose"):
            kernel = attributes.get("kernel_shape", [3, 3])
            group = int(attributes.get("group", 1))  # type: ignore[call-overload]
            net.add(op, net.last, net.constant(channels, channels // group, *kernel), **attributes)  # type: ignore[misc]
        else:
            net.add(op, net.last, **attributes)
    return net


@pytest.mark.parametrize(
    "net",
    [
        chain(("Conv", {"pads": [1, 1, 1, 1]}), ("Relu", {}), ("Conv", {"pads": [1, 1, 1, 1]})),
        chain(
            ("Conv", {"pads": [0, 1, 2, 1], "strides": [2, 1]}),
            ("MaxPool", {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}),
        ),
        chain(("Conv", {"pads": [2, 2, 2, 2], "dilations": [2, 2]}), ("Conv", {"group": 4, "pads": [1, 1, 1, 1]})),
        chain(("Conv", {"auto_pad": "SAME_LOWER", "strides": [2, 2]}), ("Conv", {"auto_pad": "SAME_UPPER"})),
        chain(
            ("MaxPool", {"kernel_shape": [3, 2], "strides": [2, 2], "ceil_mode": 1}), ("Conv", {"pads": [1, 1, 1, 1]})
        ),
        chain(("ConvTranspose", {"kernel_shape": [2, 2], "strides": [2, 2]}), ("Conv", {"pads": [1, 1, 1, 1]})),
        chain(
            (
                "ConvTranspose",
                {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1], "output_padding": [1, 1]},
            )
        ),
        chain(("ConvTranspose", {"kernel_shape": [4, 4], "strides": [2, 2], "pads": [1, 1, 1, 1]}), ("Relu", {})),
        chain(("ConvTranspose", {"kernel_shape": [2, 3], "strides": [3, 1], "pads": [0, 1, 0, 1]})),
    ],
)
@pytest.mark.parametrize("bands", [2, 3])
@pytest.mark.parametrize("height", [11, 16, 23])
def test_windows_at_all_borders(net: Net, bands: int, height: int) -> None:
    assert same(net.model(height, 9), bands, height, 9)


@pytest.mark.parametrize(
    ("attributes", "exact"),
    [
        ({"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}, True),
        ({"mode": "nearest"}, True),
        ({"mode": "linear", "coordinate_transformation_mode": "half_pixel"}, True),
        ({"mode": "linear", "coordinate_transformation_mode": "pytorch_half_pixel"}, True),
        ({"mode": "linear", "coordinate_transformation_mode": "asymmetric"}, True),
        ({"mode": "linear", "coordinate_transformation_mode": "align_corners"}, False),
        ({"mode": "cubic"}, False),
        ({"mode": "nearest", "nearest_mode": "ceil"}, False),
    ],
)
@pytest.mark.parametrize("factor", [2, 4])
@pytest.mark.parametrize("opset", [11, 13, 17])
def test_resizing(attributes: dict[str, object], exact: bool, factor: int, opset: int) -> None:
    """Below opset 13 the region may not be left out."""
    net = chain(("Conv", {"pads": [1, 1, 1, 1]}))
    net.opset = opset
    net.weights.append(numpy_helper.from_array(np.asarray([1, 1, factor, 2], np.float32), "scales"))
    net.weights.append(numpy_helper.from_array(np.zeros(0, np.float32), "region"))
    net.add("Resize", net.last, "region" if opset < 13 else "", "scales", **attributes)
    net.channels[net.last] = 4
    net.add("Conv", net.last, net.constant(4, 4, 3, 3), pads=[1, 1, 1, 1])
    model = net.model(10, 7)
    if exact:
        assert same(model, 3, 10, 7)
    else:
        assert flow_of(model).jobs[1].rows is None


@pytest.mark.parametrize("counts", [0, 1])
@pytest.mark.parametrize("ceil", [0, 1])
def test_averages(counts: int, ceil: int) -> None:
    """Windows of four elements: their averages are exact."""
    attributes = {
        "kernel_shape": [2, 2],
        "strides": [2, 2],
        "pads": [1, 1, 1, 1],
        "count_include_pad": counts,
        "ceil_mode": ceil,
    }
    net = chain(("Conv", {"pads": [1, 1, 1, 1]}), ("AveragePool", attributes), ("Relu", {}))
    banded = same(net.model(11, 8), 3, 11, 8)
    assert banded or (counts and ceil)


def test_what_is_handed_on_twice() -> None:
    """A value from the middle of a stretch is an output as well."""
    net = chain(("Conv", {"pads": [1, 1, 1, 1]}), ("Relu", {}), ("Conv", {"pads": [1, 1, 1, 1], "strides": [2, 2]}))
    assert same(net.model(13, 8, outputs=("v1", "v2")), 4, 13, 8)


def test_what_has_no_rows_of_its_own_is_taken_whole() -> None:
    """Scales by channel (as in squeeze and excitation) come from outside of the stretch."""
    net = Net(5)
    scale = net.add("GlobalAveragePool", "x")
    net.add("Conv", "x", net.constant(4, 4, 3, 3), pads=[1, 1, 1, 1])
    net.add("Mul", net.last, scale)
    model = net.model(16, 4)
    flow = flow_of(model)
    assert flow.jobs[0].rows is None and flow.jobs[2].whole == {1}
    banded = in_bands(flow, [Stretch(1, 2, 4)])
    assert banded is not None
    for one, other in zip(run(model, 16, 4), run(with_bands(model, banded), 16, 4), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    "node",
    [
        ("MaxPool", {"kernel_shape": [2, 2]}, ("y", "places")),
        ("Softmax", {"axis": 2}, ("y",)),
        ("Transpose", {"perm": [0, 1, 3, 2]}, ("y",)),
        ("InstanceNormalization", {}, ("y",)),
        ("GlobalMaxPool", {}, ("y",)),
    ],
)
def test_what_needs_whole_values_says_so(node: tuple[str, dict[str, object], tuple[str, ...]]) -> None:
    op, attributes, outputs = node
    net = Net(1)
    inputs = ["x", net.constant(4), net.constant(4)] if op == "InstanceNormalization" else ["x"]
    net.nodes.append(helper.make_node(op, inputs, list(outputs), **attributes))
    net.last = "y"
    assert flow_of(net.model(8, 8)).jobs[0].rows is None


def test_open_rows_stay_whole() -> None:
    net = chain(("Conv", {"pads": [1, 1, 1, 1]}))
    model = net.model(8, 8)
    model.graph.input[0].type.tensor_type.shape.dim[2].dim_param = "H"
    assert flow_of(model, {"H": 8}).jobs[0].rows is None


def test_an_open_batch_is_kept() -> None:
    net = chain(("Conv", {"pads": [1, 1, 1, 1]}), ("Relu", {}))
    model = net.model(12, 8)
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "N"
    flow = flow_of(model, {"N": 2})
    assert same(model, 3, 12, 8, flow)


def test_weights_are_shared_by_the_bands() -> None:
    net = chain(("Conv", {"pads": [1, 1, 1, 1]}), ("Relu", {}), ("Conv", {"pads": [1, 1, 1, 1]}))
    model = net.model(16, 8)
    banded = in_bands(flow_of(model), [Stretch(0, 2, 8)])
    assert banded is not None
    written = with_bands(model, banded)
    large = [one.name for one in written.graph.initializer if len(one.dims) == 4]
    assert large == [one.name for one in model.graph.initializer]
    assert [node.op_type for node in written.graph.node].count("Conv") == 16


def residual(blocks: int, channels: int = 16, stem: bool = False) -> Net:
    """Blocks of two convolutions and a sum, on so many channels; a ``stem`` before brings them into blocks."""
    net = Net(5, channels={"x": channels})
    if stem:
        net.add("Conv", "x", net.constant(channels, channels, 3, 3), pads=[1, 1, 1, 1], channels=channels)
    for _ in range(blocks):
        start = net.last
        for _ in range(2):
            weight = net.constant(channels, channels, 3, 3)
            net.add("Conv", net.last, weight, pads=[1, 1, 1, 1], channels=channels)
        net.add("Add", start, net.last)
    return net


@pytest.mark.parametrize("bands", [2, 4, 7])
def test_steps_compute_no_row_twice(bands: int) -> None:
    model = residual(3).model(28, 9)
    flow = flow_of(model)
    convolutions = [place for place, job in enumerate(flow.jobs) if job.reuses == ()]
    banded = in_bands(flow, [Stretch(0, len(flow.jobs) - 1, bands, cuts=tuple(convolutions[:-1]))])
    assert banded is not None
    done = sum(job.flops for job in banded.jobs if not job.crops)
    assert done == pytest.approx(flow.flops, rel=0.01)
    assert same(model, bands, 28, 9, flow, tuple(convolutions[:-1]))


@pytest.mark.parametrize("hidden", [False, True])
@pytest.mark.parametrize("rates", [(3, 1), (1, 2), (2, 3)])
def test_a_step_may_have_more_parts_than_the_next(rates: tuple[int, int], hidden: bool) -> None:
    model = residual(2).model(28, 9)
    flow = flow_of(model)
    assert same(model, 4, 28, 9, flow, (2,), hidden, rates)
    plain, finer = (in_bands(flow, [Stretch(0, len(flow.jobs) - 1, 4, cuts=(2,), rates=one)]) for one in ((), rates))
    assert plain is not None and finer is not None
    counts = [sum(job.node == node for job in finer.jobs) for node in (0, len(flow.jobs) - 1)]
    assert counts == [4 * rate for rate in rates]
    tallest = [max(one.shapes[job.outputs[0]][2] for job in one.jobs if job.node == 0) for one in (plain, finer)]
    assert (tallest[1] < tallest[0]) == (rates[0] > 1)


def test_what_was_joined_lies_in_blocks_again_where_a_sum_reads_it() -> None:
    """Without the pool the sum behind the stretch would be computed on plain values, and both copies be alive."""
    net = residual(2, stem=True)
    net.add("Conv", net.last, net.constant(4, 16, 3, 3), pads=[1, 1, 1, 1], channels=4)
    model = net.model(28, 9)
    flow = flow_of(model)
    assert flow.pools
    stretch = Stretch(0, 3, 7, hidden=True)
    banded = in_bands(flow, [stretch])
    without = in_bands(replace(flow, pools=False), [stretch])
    assert banded is not None and without is not None
    written = with_bands(model, banded)
    assert [node.op_type for node in written.graph.node].count("AveragePool") == 1
    for one, other in zip(run(model, 28, 9), run(written, 28, 9), strict=True):
        np.testing.assert_array_equal(one, other)
    assert footprint(with_copies(banded)).peak < footprint(with_copies(without)).peak


def test_what_was_gathered_lies_in_blocks_again_where_a_sum_reads_it() -> None:
    model = residual(2, stem=True).model(28, 9)
    flow = flow_of(model)
    banded = in_bands(flow, [Stretch(0, 6, 4, cuts=(3,))])
    assert banded is not None
    pools = [job for job in banded.jobs if job.pools]
    assert len(pools) == 3  # the first band has one piece, which is there as it was made
    assert same(model, 4, 28, 9, flow, (3,))


def test_one_reader_that_is_a_convolution_needs_no_pool() -> None:
    net = chain(("Conv", {"pads": [1, 1, 1, 1]}), ("Conv", {"pads": [1, 1, 1, 1]}), channels=16)
    net.channels["x"] = 16
    banded = in_bands(flow_of(net.model(16, 8)), [Stretch(0, 0, 4)])
    assert banded is not None and not any(job.pools for job in banded.jobs)


def test_open_sizes_need_plain_joints() -> None:
    """A pool would have to know the channels behind a view that keeps open sizes open."""
    model = residual(1).model(12, 8)
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "N"
    assert not flow_of(model, {"N": 2}).pools


def picking(node: onnx.NodeProto, *weights: tuple[str, object], opset: int = 17) -> onnx.ModelProto:
    """A convolution, a node that picks of ``v0``, and another convolution."""
    net = chain(("Conv", {"pads": [1, 1, 1, 1]}))
    net.opset = opset
    net.weights += [numpy_helper.from_array(np.asarray(value), name) for name, value in weights]
    net.nodes.append(node)
    net.channels["p"] = net.channels["x"]
    net.last = "p"
    net.add("Conv", "p", net.constant(4, 4, 3, 3), pads=[1, 1, 1, 1])
    return net.model(12, 8)


def test_channels_are_picked_band_by_band() -> None:
    order, bounds = ("i", np.array([2, 0, 3, 1])), [("s", [3]), ("e", [-5]), ("a", [1]), ("t", [-1])]
    assert same(picking(helper.make_node("Gather", ["v0", "i"], ["p"], axis=1), order), 3, 12, 8)
    assert same(picking(helper.make_node("Slice", ["v0", *"seat"], ["p"]), *bounds), 3, 12, 8)
    old = helper.make_node("Slice", ["v0"], ["p"], starts=[0, 1], ends=[4, 8], axes=[1, 3])
    assert same(picking(old, opset=9), 3, 12, 8)


@pytest.mark.parametrize(
    ("node", "weights", "opset"),
    [
        (helper.make_node("Pad", ["v0", "n"], ["p"]), [("n", [0, 1, 0, 2, 0, 3, 0, 0])], 17),
        (helper.make_node("Pad", ["v0", "n"], ["p"], mode="reflect"), [("n", [0, 0, 0, 2, 0, 0, 0, 1])], 17),
        (helper.make_node("Pad", ["v0", "n", "", "a"], ["p"]), [("n", [1, 2]), ("a", [-3])], 18),
        (helper.make_node("Pad", ["v0", "n", "", "a"], ["p"]), [("n", [1, 0, 2, 0]), ("a", [3, 2])], 18),
        (helper.make_node("Pad", ["v0"], ["p"], pads=[0, 1, 0, 2, 0, 3, 0, 0]), [], 10),
    ],
)
def test_channels_and_columns_are_added_band_by_band(
    node: onnx.NodeProto, weights: list[tuple[str, object]], opset: int
) -> None:
    net = chain(("Conv", {"pads": [1, 1, 1, 1]}))
    net.opset = opset
    net.weights += [numpy_helper.from_array(np.asarray(value, np.int64), name) for name, value in weights]
    net.nodes.append(node)
    net.channels["p"], net.last = 8, "p"
    net.add("Relu", "p")
    assert same(net.model(12, 8), 3, 12, 8)


@pytest.mark.parametrize(
    ("node", "weights"),
    [
        (helper.make_node("Pad", ["v0", "n"], ["p"]), [("n", [0, 0, 1, 0, 0, 0, 0, 0])]),
        (helper.make_node("Pad", ["v0", "n"], ["p"]), [("n", [0, 0, 0, 0, 0, 0, 2, 0])]),
        (helper.make_node("Pad", ["v0", "x"], ["p"]), []),
        (helper.make_node("Gather", ["v0", "i"], ["p"], axis=2), [("i", [1, 0, 2])]),
        (helper.make_node("Gather", ["v0", "i"], ["p"], axis=-2), [("i", [1, 0, 2])]),
        (helper.make_node("Slice", ["v0", "s", "e", "a"], ["p"]), [("s", [1]), ("e", [9]), ("a", [-2])]),
        (helper.make_node("Slice", ["v0", "s", "e"], ["p"]), [("s", [0, 0, 1]), ("e", [2, 4, 9])]),
    ],
)
def test_rows_are_not_picked_band_by_band(node: onnx.NodeProto, weights: list[tuple[str, object]]) -> None:
    assert flow_of(picking(node, *weights)).jobs[1].rows is None


@pytest.mark.parametrize(
    ("mode", "scales", "exact"),
    [("nearest", [1, 1, 2, 2], True), ("linear", [1, 1, 4, 1], True), ("nearest", [1, 1, 1.5, 2], False)],
)
@pytest.mark.parametrize("opset", [8, 9])
def test_upsampling(mode: str, scales: list[float], exact: bool, opset: int) -> None:
    if opset < 9:
        model = picking(
            helper.make_node("Upsample", ["v0"], ["p"], mode=mode, scales=list(map(float, scales))), opset=opset
        )
    else:
        node = helper.make_node("Upsample", ["v0", "s"], ["p"], mode=mode)
        model = picking(node, ("s", np.asarray(scales, np.float32)), opset=opset)
    if exact:
        assert same(model, 3, 12, 8)
    else:
        assert flow_of(model).jobs[1].rows is None


def test_what_the_runtime_fused_goes_in_bands() -> None:
    """A model that ONNX Runtime wrote has FusedConv, of which ONNX's inference knows nothing."""
    net = chain(("Conv", {"pads": [1, 1, 1, 1], "strides": [2, 2]}), ("Conv", {"pads": [1, 1, 1, 1]}))
    model = net.model(12, 8)
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    for node in model.graph.node:
        node.op_type, node.domain = "FusedConv", "com.microsoft"
        node.attribute.append(helper.make_attribute("activation", "LeakyRelu"))
        node.attribute.append(helper.make_attribute("activation_params", [0.5]))
    flow = flow_of(model)
    assert flow.shapes["v1"] == (2, 4, 6, 4) and flow.jobs[0].flops > 0
    assert same(model, 3, 12, 8, flow)
    model.graph.node[1].input.extend(["", "v0"])  # and adds another value
    assert flow_of(model).jobs[1].rows is None


def test_a_hidden_stretch_has_pieces_that_share_no_buffer() -> None:
    flow = flow_of(residual(2).model(32, 9))
    last = len(flow.jobs) - 1
    plain, hidden = (in_bands(flow, [Stretch(0, last, 8, hidden=hides)]) for hides in (False, True))
    assert plain is not None and hidden is not None
    assert not plain.hidden and hidden.hidden and not hidden.hidden & {*flow.shapes}
    assert len(footprint(hidden).buffers) > len(footprint(plain).buffers)
    assert footprint(hidden).peak < footprint(plain).peak


def test_the_whole_has_its_shape_again_behind_a_hidden_stretch() -> None:
    model = residual(1).model(16, 9)
    flow = flow_of(model)
    banded = in_bands(flow, [Stretch(0, 2, 4, hidden=True)])
    assert banded is not None
    written = onnx.shape_inference.infer_shapes(with_bands(model, banded), data_prop=True)
    assert [dim.dim_value for dim in written.graph.output[0].type.tensor_type.shape.dim] == [2, 16, 16, 9]


def test_behind_a_veil_no_shape_is_known_and_the_outputs_are_equal() -> None:
    net = residual(1)
    for _ in range(3):
        net.add("Conv", net.last, net.constant(16, 16, 3, 3), channels=16, pads=[1] * 4)
    model = onnx.shape_inference.infer_shapes(net.model(16, 9))
    flow = flow_of(model)
    banded = in_bands(flow, [Stretch(0, 2, 4, hidden=True, veils=True)])
    assert banded is not None
    behind = {value for job in banded.jobs if job.node > 2 for value in job.outputs}
    assert behind <= banded.hidden
    written = with_bands(model, banded)
    said = onnx.shape_inference.infer_shapes(written, data_prop=True)
    found = [info.type.tensor_type.shape for info in said.graph.value_info if info.name in behind]
    assert not any(shape.dim[0].dim_value for shape in found)
    for one, other in zip(run(model, 16, 9), run(written, 16, 9), strict=True):
        np.testing.assert_array_equal(one, other)
