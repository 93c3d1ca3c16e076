"""Layers that several families share, in the form in which frameworks export them.

Arrays are float32; images are [batch, channels, height, width]. ``name`` is the scope of the layer's nodes and weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from rlflow.frontends.builder import ModelBuilder

# A ReLU halves a signal's second moment, so the weights before it are wider (He et al. 2015).
RELU_GAIN = sqrt(2.0)
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
    pad: Pair = 0,
    bias: bool = False,
) -> str:
    """Convolution from ``channels[0]`` to ``channels[1]`` channels."""
    height, width = pair(kernel)
    top, left = pair(pad)
    into, out = channels
    with b.scope(name):
        operands = [x, b.weight("weight", (out, into, height, width), into * height * width, RELU_GAIN)]
        if bias:
            operands.append(b.bias("bias", out))
        return b.node(
            "Conv",
            operands,
            kernel_shape=[height, width],
            strides=[stride, stride],
            pads=[top, left, top, left],
            dilations=[1, 1],
            group=1,
        )


def batch_norm(b: ModelBuilder, x: str, name: str, channels: int, *, epsilon: float = 1e-5, center: float = 1.0) -> str:
    """Inference-mode batch normalisation with gammas around ``center``."""
    with b.scope(name):
        gamma, beta = b.scale("weight", channels, center), b.bias("bias", channels)
        mean, variance = b.bias("running_mean", channels), b.variance("running_var", channels)
        return b.node("BatchNormalization", [x, gamma, beta, mean, variance], epsilon=epsilon)


def pool(b: ModelBuilder, x: str, kind: str, kernel: int, *, stride: int, pad: int = 0, ceil: bool = False) -> str:
    """Square pooling; ``kind`` is "Max" or "Average" (which counts the padding, as torch does by default)."""
    attrs: dict[str, Any] = {
        "kernel_shape": [kernel] * 2,
        "strides": [stride] * 2,
        "pads": [pad] * 4,
        "ceil_mode": int(ceil),
    }
    if kind == "Average":
        attrs["count_include_pad"] = 1
    return b.node(f"{kind}Pool", x, **attrs)


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
    return b.node("Mul", [b.node("Sub", [b.constant(1.0, np.float32), wide]), b.constant(-10000.0, np.float32)])


def split_heads(b: ModelBuilder, x: str, shape: Sequence[int], perm: Sequence[int]) -> str:
    """[batch, rows, heads · size] reshaped to ``shape`` = [batch, rows, heads, size] and transposed by ``perm``."""
    return b.node("Transpose", b.node("Reshape", x, shape=list(shape)), perm=list(perm))


def merge_heads(b: ModelBuilder, x: str, shape: Sequence[int]) -> str:
    """[batch, heads, rows, size] to ``shape`` = [batch, rows, heads · size]."""
    return b.node("Reshape", b.node("Transpose", x, perm=[0, 2, 1, 3]), shape=list(shape))
