"""Layers that several families share, in the form in which frameworks export them.

Arrays are float32; images are [batch, channels, height, width]. ``name`` is the scope of the layer's nodes and weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from rlflow.frontends.builder import ModelBuilder

# A ReLU halves a signal's second moment, so the weights before it are wider (He et al. 2015).
RELU_GAIN = sqrt(2.0)
# Queries and keys are drawn wider than the rest: trained attention is peaked, and a flat one would hide the keys from
# every check.
SHARP = sqrt(2.0)
_MASKED = -10000.0
Pair = int | tuple[int, int]


def pair(value: Pair) -> tuple[int, int]:
    """(height, width) of a size given once or twice."""
    return value if isinstance(value, tuple) else (value, value)


def scaled(channels: int, percent: int) -> int:
    """``channels`` at ``percent`` of its size, at least 1: the zoo's small variants."""
    return max(1, channels * percent // 100)


def conv(
    b: ModelBuilder,
    x: str,
    name: str,
    channels: tuple[int, int],
    kernel: Pair,
    *,
    stride: int = 1,
    pad: Pair | tuple[int, int, int, int] = 0,
    group: int = 1,
    bias: bool = False,
    gain: float = RELU_GAIN,
) -> str:
    """Convolution from ``channels[0]`` to ``channels[1]`` channels in ``group`` groups, which divides both.

    ``pad`` is (top and bottom, left and right), or the four of them in ONNX's order: top, left, bottom, right.
    """
    height, width = pair(kernel)
    pads = list(pad if isinstance(pad, tuple) and len(pad) == 4 else pair(pad) * 2)
    into, out = channels[0] // group, channels[1]
    with b.scope(name):
        operands = [x, b.weight("weight", (out, into, height, width), into * height * width, gain)]
        if bias:
            operands.append(b.bias("bias", out))
        return b.node(
            "Conv",
            operands,
            kernel_shape=[height, width],
            strides=[stride, stride],
            pads=pads,
            dilations=[1, 1],
            group=group,
        )


def batch_norm(b: ModelBuilder, x: str, name: str, channels: int, *, epsilon: float = 1e-5, center: float = 1.0) -> str:
    """Inference-mode batch normalisation with gammas around ``center``."""
    with b.scope(name):
        gamma, beta = b.scale("weight", channels, center), b.bias("bias", channels)
        mean, variance = b.bias("running_mean", channels), b.variance("running_var", channels)
        return b.node("BatchNormalization", [x, gamma, beta, mean, variance], epsilon=epsilon)


def conv_norm(
    b: ModelBuilder,
    x: str,
    name: str,
    channels: tuple[int, int],
    kernel: int,
    *,
    stride: int = 1,
    group: int = 1,
    activation: str = "Relu",
    center: float = 1.0,
) -> str:
    """Padded convolution, batch normalisation (gammas around ``center``), and "Relu", "Relu6" or no activation ("")."""
    with b.scope(name):
        gain = RELU_GAIN if activation else 1.0
        x = conv(b, x, "conv", channels, kernel, stride=stride, pad=kernel // 2, group=group, gain=gain)
        x = batch_norm(b, x, "bn", channels[1], center=center)
        if activation == "Relu6":
            return b.node("Clip", x, min=0.0, max=6.0)
        return b.node(activation, x) if activation else x


def pool(
    b: ModelBuilder,
    x: str,
    kind: str,
    kernel: int,
    *,
    stride: int,
    pad: int | tuple[int, int, int, int] = 0,
    ceil: bool = False,
    count_pad: bool = True,
) -> str:
    """Square pooling; ``kind`` is "Max" or "Average" (which counts the padding, as torch does by default)."""
    attrs: dict[str, Any] = {
        "kernel_shape": [kernel] * 2,
        "strides": [stride] * 2,
        "pads": [pad] * 4 if isinstance(pad, int) else list(pad),
        "ceil_mode": int(ceil),
    }
    if kind == "Average":
        attrs["count_include_pad"] = int(count_pad)
    return b.node(f"{kind}Pool", x, **attrs)


def upsample(b: ModelBuilder, x: str, factor: int = 2) -> str:
    """Nearest-neighbour enlargement by a whole factor, in the form in which torch exports it."""
    return b.node(
        "Resize",
        x,
        scales=[1.0, 1.0, float(factor), float(factor)],
        mode="nearest",
        nearest_mode="floor",
        coordinate_transformation_mode="asymmetric",
    )


def upsample_to(b: ModelBuilder, x: str, shape: tuple[int, int, int, int]) -> str:
    """Nearest-neighbour enlargement to a shape [batch, channels, height, width], as torch exports `interpolate`."""
    return b.node(
        "Resize",
        x,
        sizes=list(shape),
        mode="nearest",
        nearest_mode="floor",
        coordinate_transformation_mode="asymmetric",
    )


def linear(b: ModelBuilder, x: str, name: str, sizes: tuple[int, int], *, bias: bool = True, gain: float = 1.0) -> str:
    """x · W (+ bias) over the last axis of an array of any rank; W is [in, out]."""
    with b.scope(name):
        product = b.node("MatMul", [x, b.weight("weight", sizes, sizes[0], gain)])
        return b.node("Add", [product, b.bias("bias", sizes[1])]) if bias else product


def dense(b: ModelBuilder, x: str, name: str, sizes: tuple[int, int]) -> str:
    """Gemm with bias over a matrix [rows, in], the weight stored as [out, in]."""
    with b.scope(name):
        return b.node(
            "Gemm",
            [x, b.weight("weight", sizes[::-1], sizes[0]), b.bias("bias", sizes[1])],
            alpha=1.0,
            beta=1.0,
            transB=1,
        )


def global_pool_classifier(b: ModelBuilder, x: str, name: str, sizes: tuple[int, int]) -> str:
    """Mean over space, flattened to [batch, channels], and a dense layer."""
    pooled = b.node("Flatten", b.node("GlobalAveragePool", x), axis=1)
    return dense(b, pooled, name, sizes)


def layer_norm(b: ModelBuilder, x: str, name: str, width: int, *, epsilon: float = 1e-12) -> str:
    """LayerNormalization over the last axis."""
    with b.scope(name):
        return b.node(
            "LayerNormalization", [x, b.scale("weight", width), b.bias("bias", width)], axis=-1, epsilon=epsilon
        )


def rms_norm(b: ModelBuilder, x: str, name: str, width: int, *, epsilon: float = 1e-6) -> str:
    """x / sqrt(mean(x²) + epsilon) · scale over the last axis (Zhang & Sennrich 2019), written out."""
    with b.scope(name):
        square = b.node("Pow", [x, b.constant(2.0, np.float32)])
        mean = b.node("ReduceMean", square, axes=[-1], keepdims=1)
        root = b.node("Sqrt", b.node("Add", [mean, b.constant(epsilon, np.float32)]))
        return b.node("Mul", [b.node("Div", [x, root]), b.scale("weight", width)])


def additive_mask(b: ModelBuilder, mask: str) -> str:
    """[batch, keys] int64, 1 where a key may be read, else 0, to a float [batch, 1, 1, keys] to add to the scores.

    -10,000 as in the BERT release rather than the smallest float, so that a mask outside {0, 1} stays finite.
    """
    wide = b.node("Cast", b.node("Unsqueeze", mask, axes=[1, 2]), to=1)
    return b.node("Mul", [b.node("Sub", [b.constant(1.0, np.float32), wide]), b.constant(_MASKED, np.float32)])


def causal_mask(b: ModelBuilder, size: int) -> str:
    """A constant [1, 1, size, size] to add to the scores, so that a row reads itself and earlier columns only."""
    return b.constant(np.triu(np.full((1, 1, size, size), _MASKED), 1), np.float32)


@dataclass(frozen=True)
class Heads:
    """Sizes of multi-head attention: ``rows`` queries read ``columns`` keys in ``count`` heads of ``size`` numbers."""

    batch: int
    rows: int
    columns: int
    count: int
    size: int

    @property
    def hidden(self) -> int:
        return self.count * self.size


def attention(
    b: ModelBuilder, x: str, memory: str, h: Heads, *, mask: str | None = None, bias: bool = True, gain: float = 1.0
) -> str:
    """Multi-head attention of ``x`` [batch, rows, hidden] to ``memory`` [batch, columns, hidden] (Vaswani et al. 2017).

    ``mask`` is added to the scores; ``gain`` multiplies the output projection's scale.
    """

    def project(name: str, source: str, rows: int, scale: float, perm: tuple[int, ...]) -> str:
        flat = linear(b, source, name, (h.hidden, h.hidden), bias=bias, gain=scale)
        return split_heads(b, flat, (h.batch, rows, h.count, h.size), perm)

    query = project("query", x, h.rows, SHARP, (0, 2, 1, 3))
    key = project("key", memory, h.columns, SHARP, (0, 2, 3, 1))
    value = project("value", memory, h.columns, 1.0, (0, 2, 1, 3))
    scores = b.node("Div", [b.node("MatMul", [query, key]), b.constant(sqrt(h.size), np.float32)])
    if mask is not None:
        scores = b.node("Add", [scores, mask])
    context = b.node("MatMul", [b.node("Softmax", scores, axis=-1), value])
    merged = merge_heads(b, context, (h.batch, h.rows, h.hidden))
    return linear(b, merged, "output", (h.hidden, h.hidden), bias=bias, gain=gain)


def split_heads(b: ModelBuilder, x: str, shape: Sequence[int], perm: Sequence[int]) -> str:
    """[batch, rows, heads · size] reshaped to ``shape`` = [batch, rows, heads, size] and transposed by ``perm``."""
    return b.node("Transpose", b.node("Reshape", x, shape=list(shape)), perm=list(perm))


def merge_heads(b: ModelBuilder, x: str, shape: Sequence[int]) -> str:
    """[batch, heads, rows, size] to ``shape`` = [batch, rows, heads · size]."""
    return b.node("Reshape", b.node("Transpose", x, perm=[0, 2, 1, 3]), shape=list(shape))
