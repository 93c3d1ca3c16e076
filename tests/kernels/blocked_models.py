"""Small models in ONNX Runtime's blocked layout, and plain ones whose convolutions become blocked."""

from __future__ import annotations

import numpy as np
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

from rlflow.frontends.winograd_weights import transformed


def opened(model: bytes, threads: int = 1) -> ort.InferenceSession:
    """A session that knows the kernels."""
    from rlflow.kernels import library_path

    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    options.register_custom_ops_library(library_path())
    return ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def to_blocks(x: np.ndarray, block: int) -> np.ndarray:
    """[n, c, h, w] as [n, c / block, h, w, block] under the shape of the former."""
    n, c, h, w = x.shape
    return np.ascontiguousarray(x.reshape(n, c // block, block, h, w).transpose(0, 1, 3, 4, 2)).reshape(x.shape)


def from_blocks(x: np.ndarray, block: int) -> np.ndarray:
    n, c, h, w = x.shape
    return np.ascontiguousarray(x.reshape(n, c // block, h, w, block).transpose(0, 1, 4, 2, 3)).reshape(x.shape)


def filter_blocks(w: np.ndarray, block: int) -> np.ndarray:
    o, i = w.shape[:2]
    parts = w.reshape(o // block, block, i // block, block, *w.shape[2:]).transpose(0, 2, 4, 5, 3, 1)
    return np.ascontiguousarray(parts).reshape(w.shape)


def one_node(weights: np.ndarray, bias: np.ndarray | None, with_sum: bool, **attributes) -> bytes:
    """A model of one blocked convolution by a kernel: inputs x and, where asked for, s. ``kept``: its weights are
    transformed here.
    """
    block, values = attributes.get("block", 8), filter_blocks(weights, attributes.get("block", 8))
    if attributes.pop("kept", 0):
        values = transformed(values, attributes["tile"], block)
        attributes.setdefault("taps", list(weights.shape[2:]))
    names = ["x", "w", "b" if bias is not None else "", "s" if with_sum else ""]
    while not names[-1]:
        names.pop()
    node = helper.make_node("NchwcWinograd", names, ["y"], domain="rlflow.kernels", name="conv", **attributes)
    initial = [numpy_helper.from_array(values, "w")]
    initial += [] if bias is None else [numpy_helper.from_array(bias, "b")]
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [None] * 4) for name in "xs" if name in names]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, [None] * 4)]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("rlflow.kernels", 1)]
    model = helper.make_model(helper.make_graph([node], "one", inputs, outputs, initial), opset_imports=opsets)
    model.ir_version = 9
    return model.SerializeToString()


def convolution(x, w, bias, residual, pads) -> np.ndarray:
    """The convolution of stride 1 in double precision."""
    x = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (pads[0], pads[2]), (pads[1], pads[3])))
    taps = w.shape[2:]
    height, width = x.shape[2] - taps[0] + 1, x.shape[3] - taps[1] + 1
    places = list(np.ndindex(*taps))
    windows = (x[:, :, i : i + height, j : j + width] for i, j in places)
    filters = (w[:, :, i, j].astype(np.float64) for i, j in places)
    y = sum(np.einsum("oc,nchw->nohw", one, window) for one, window in zip(filters, windows, strict=True))
    y = y if bias is None else y + bias[None, :, None, None]
    return y if residual is None else y + residual


def small_network(size: int = 24, channels: int = 20, dynamic: bool = False) -> bytes:
    """Three 3×3 convolutions with all that the runtime fuses: a stem, a residual block with Relu, one without bias."""
    rng = np.random.default_rng(5)

    def weights(name: str, out: int, into: int) -> object:
        values = rng.standard_normal((out, into, 3, 3)) / np.sqrt(9 * into)
        return numpy_helper.from_array(values.astype(np.float32), name)

    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["a"], pads=[1] * 4),
        helper.make_node("Relu", ["a"], ["ar"]),
        helper.make_node("Conv", ["ar", "w1", "b"], ["c"], pads=[1] * 4),
        helper.make_node("Add", ["c", "ar"], ["s"]),
        helper.make_node("Relu", ["s"], ["sr"]),
        helper.make_node("Conv", ["sr", "w2"], ["y"], auto_pad="SAME_UPPER"),
    ]
    side = ["N", 3, "H", "W"] if dynamic else [1, 3, size, size]
    initial = [weights("w0", channels, 3), weights("w1", channels, channels), weights("w2", 24, channels)]
    initial.append(numpy_helper.from_array(rng.standard_normal(channels).astype(np.float32), "b"))
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, side)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [side[0], 24, *side[2:]])],
        initial,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 9
    return model.SerializeToString()
