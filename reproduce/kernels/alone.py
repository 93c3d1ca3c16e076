"""The kernels that are no Winograd's, each in a small model of its own, beside ONNX Runtime's."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import blocked_models
import numpy as np
import onnx.numpy_helper
import onnx.parser
import test_blocked_norm
import test_gelu
import test_groups
import test_norm
import test_product

#: Rows and values in a row.
NORMS = (("SkipLayerNormalization", 128, 768), ("LayerNormalization", 128, 768), ("LayerNormalization", 197, 768),
         ("SimplifiedLayerNormalization", 128, 768), ("SkipLayerNormalization", 1, 768))  # fmt: skip
#: Channels, height and width.
BLOCKED_NORMS = ((96, 56), (384, 14))
#: Rows and values in a row; blocked maps.
GELUS = ((128, 3072), (197, 3072), (1, 3072), (384, 56, 56), (1536, 14, 14))
#: Rows, depth, columns.
PRODUCTS = ((1, 768, 768), (1, 768, 2048), (1, 2048, 768), (2, 768, 2048), (4, 768, 2048))
#: The same of many rows.
MANY_ROWS = ((128, 768, 768), (128, 768, 3072), (128, 3072, 768), (196, 512, 2048), (196, 384, 1536),
             (1024, 1024, 1024))  # fmt: skip
#: So many products in one model, so that the weights of each have left the caches when it is its turn again.
COPIES = 12
#: Channels, height and width, kernel, stride.
DEPTHWISE = ((11, 111, 5, 2), (11, 56, 5, 1), (22, 56, 7, 2), (42, 56, 3, 1), (22, 28, 5, 1), (22, 28, 3, 1))
#: Channels in and out, height and width; as many convolutions back and forth as products above.
POINTWISE = ((2048, 512, 7), (1024, 256, 14), (512, 128, 28), (1024, 512, 14))
#: What is added to a key, and the attributes of the kernel.
STRASSEN = (("", {"strassen": 0}), (", Strassen", {"strassen": 1}))
#: Channels, those of a group, height and width.
GROUPED = ((128, 4, 56), (256, 8, 28), (128, 4, 28))


@dataclass(frozen=True)
class Case:
    """``graph``: the runtime's, with sites of ``kind``; ``work``: floating-point operations, or bytes that must be read
    and written; ``unit`` says which. ``truth``: the first output in double precision. ``attributes``: the kernel's.
    """

    key: str
    kind: str
    graph: Any
    feeds: dict[str, np.ndarray]
    truth: np.ndarray
    work: float
    unit: str
    attributes: Mapping[str, int] = field(default_factory=dict)


def norms() -> Iterator[Case]:
    for operator, rows, width in NORMS:
        values = test_norm.tensors((1, rows), width)
        names = tuple(name for name in test_norm.OPERATORS[operator][2] if name != "bias")
        raw = test_norm.model(operator, values, names, False, 1e-5)
        truth, _ = test_norm.normalised(operator, values, names, 1e-5)
        fed = [name for name in ("x", "skip") if name in names]
        yield Case(f"{operator} {rows}x{width}", "norm", graph_of(raw), {name: values[name] for name in fed}, truth,
                   4.0 * rows * width * (len(fed) + 1), "GB/s")  # fmt: skip


def blocked_norms() -> Iterator[Case]:
    """Between a depthwise and a pointwise convolution, because the blocked layout is what the kernel saves the reorders
    of.
    """
    for channels, size in BLOCKED_NORMS:
        raw = test_blocked_norm.block_of_convnext(channels, (1, size, size))
        x = test_blocked_norm.normal(1, channels, size, size, seed=3)
        weights = test_blocked_norm.weights_of(channels)
        before = test_groups.convolution(x, weights["d"], pads=(1, 1, 1, 1))
        normalised = test_blocked_norm.normalised(before, weights["scale"], weights["shift"], 1e-6)
        truth = test_groups.convolution(normalised, weights["p"])
        yield Case(f"norm of {channels} channels {size}x{size}, of a depthwise convolution, it and 1x1",
                   "norm-of-blocks", graph_of(raw), {"x": x}, truth, 2.0 * (9 + channels) * truth.size, "GF/s",
                   {"blocked": 1})  # fmt: skip


def gelus() -> Iterator[Case]:
    for shape in GELUS:
        raw = test_gelu.model("Gelu", "com.microsoft", (1, *shape), None)
        x = np.random.default_rng(3).standard_normal((1, *shape)).astype(np.float32)
        wide = x.astype(np.float64)
        truth = wide / 2 * (1 + test_gelu.erf(wide / np.sqrt(2)))
        yield Case(f"Gelu {'x'.join(map(str, shape))}", "gelu", graph_of(raw), {"x": x}, truth, 8.0 * x.size, "GB/s")


def products() -> Iterator[Case]:
    for rows, depth, columns in PRODUCTS:
        raw, weights = test_product.many(depth, columns, COPIES)
        x = np.random.default_rng(3).standard_normal((rows, depth)).astype(np.float32)
        truth = x.astype(np.float64) @ weights
        yield Case(f"product {rows}x{depth}x{columns}", "product", graph_of(raw), {"x": x}, truth,
                   4.0 * COPIES * depth * columns, "GB/s")  # fmt: skip


def products_of_many_rows() -> Iterator[Case]:
    for rows, depth, columns in MANY_ROWS:
        raw, weights = test_product.many(depth, columns, COPIES)
        x = np.random.default_rng(3).standard_normal((rows, depth)).astype(np.float32)
        graph, truth = graph_of(raw), x.astype(np.float64) @ weights
        for more, how in STRASSEN:
            yield Case(f"product {rows}x{depth}x{columns}{more}", "product", graph, {"x": x}, truth,
                       2.0 * COPIES * rows * depth * columns, "GF/s", how)  # fmt: skip


def depthwise() -> Iterator[Case]:
    for channels, size, kernel, stride in DEPTHWISE:
        pad = kernel // 2
        how = {"pads": (pad,) * 4, "strides": (stride, stride)}
        graph = test_groups.depthwise((1, channels, size, size), (kernel, kernel), False, **how)
        x = test_groups.normal(1, channels, size, size, seed=3)
        truth = test_groups.convolution(x, test_groups.normal(channels, 1, kernel, kernel, seed=1), **how)
        key = f"depthwise {kernel}x{kernel}/{stride} {channels}x{size}x{size}"
        yield Case(key, "depthwise", graph, {"x": x}, truth,
                   2.0 * kernel * kernel * truth.size, "GF/s")  # fmt: skip


def grouped() -> Iterator[Case]:
    """Between two pointwise convolutions, because the blocked layout is what the kernel saves the reorders of."""
    for channels, members, size in GROUPED:
        how = {"pads": [1, 1, 1, 1]}
        raw = test_groups.between_pointwise(channels, members, (size, size), batch=1, **how)
        x = test_groups.normal(1, channels, size, size, seed=3)
        truth = test_groups.bottleneck(x, members, how)
        yield Case(f"grouped 3x3 {channels}/{members} {size}x{size}, of 1x1, it and 1x1", "grouped", graph_of(raw),
                   {"x": x}, truth, 2.0 * (9 * members + 2 * channels) * truth.size, "GF/s")  # fmt: skip


def pointwise() -> Iterator[Case]:
    """A chain, so that each convolution finds its weights in memory, as between the other layers of a model."""
    for wide, narrow, size in POINTWISE:
        rng = np.random.default_rng(1)
        x = rng.standard_normal((1, wide, size, size)).astype(np.float32)
        weights, text, truth = [], [], x[0].reshape(wide, -1).astype(np.float64)
        for k in range(COPIES):
            ends = (narrow, wide) if k % 2 == 0 else (wide, narrow)
            weights.append((rng.standard_normal(ends) / np.sqrt(ends[1])).astype(np.float32))
            text.append(f"{'y' if k == COPIES - 1 else f'v{k}'} = Conv({f'v{k - 1}' if k else 'x'}, w{k})")
            truth = weights[-1].astype(np.float64) @ truth
        model = onnx.parser.parse_model(
            f'<ir_version: 9, opset_import: ["": 17]>\nchain (float[1,{wide},{size},{size}] x) => (float[1,N,H,W] y) '
            f"{{\n{chr(10).join(text)}\n}}"
        )
        for k, one in enumerate(weights):
            model.graph.initializer.append(onnx.numpy_helper.from_array(one[:, :, None, None], f"w{k}"))
        graph = graph_of(model.SerializeToString())
        for more, how in STRASSEN:
            yield Case(f"1x1 {wide} to {narrow} and back, {size}x{size}{more}", "convolution-other", graph, {"x": x},
                       truth.reshape(1, -1, size, size), 2.0 * COPIES * wide * narrow * size * size, "GF/s",
                       how)  # fmt: skip


def graph_of(raw: bytes) -> Any:
    from rlflow.frontends.blocked import BlockedGraph
    from rlflow.kernels.preparing import block_here
    from rlflow.runtime import inprocess

    return BlockedGraph(inprocess.optimised(raw), block_here())


def row_of(case: Case, seconds: float) -> dict[str, Any]:
    """Both in turn, processor time of one thread; the pace is work a second, and the error that of the kernel."""
    names = [site.name for site in case.graph.sites() if site.kind == case.kind]
    models = (case.graph.with_kernels(dict.fromkeys(some, case.attributes)) for some in ((), names))
    opened = [blocked_models.opened(model) for model in models]
    outputs = [one.run(None, case.feeds)[0] for one in opened]
    samples: list[list[float]] = [[], []]
    end = time.process_time() + seconds
    while time.process_time() < end or len(samples[0]) < 7:
        for kept, one in zip(samples, opened, strict=True):
            start = time.process_time()
            one.run(None, case.feeds)
            kept.append(time.process_time() - start)
    own, us = (float(np.median(kept)) * 1e6 for kept in samples)
    scale = np.abs(case.truth).max()
    return {
        "kind": "alone", "key": case.key, "kernel": case.kind, "us": round(us, 2), "onnxruntime_us": round(own, 2),
        "ratio": round(own / us, 3), "pace": round(case.work / us / 1e3, 1), "unit": case.unit,
        "onnxruntime_pace": round(case.work / own / 1e3, 1), "samples": len(samples[0]),
        "error": float(np.abs(outputs[1] - case.truth).max() / scale),
        "onnxruntime_error": float(np.abs(outputs[0] - case.truth).max() / scale),
    }  # fmt: skip


def cases() -> Iterator[Case]:
    for make in (norms, blocked_norms, gelus, products, products_of_many_rows, depthwise, grouped, pointwise):
        yield from make()
