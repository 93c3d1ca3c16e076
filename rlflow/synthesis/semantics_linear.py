"""Exact meaning of products, convolutions, pools, normalisations and reductions (registered with :mod:`semantics`)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import numpy as np

from rlflow.synthesis import field
from rlflow.synthesis.domains import Array, Domain, Ordered, Unsupported
from rlflow.synthesis.semantics import Call, NeedsOrder, meaning


def _float_only(c: Call) -> None:
    if not c.is_float():
        raise Unsupported(f"{c.op} of integers")


def _product(d: Domain, a: Array, b: Array) -> Array:
    """Numpy's matmul of operands of rank two or more."""
    return d.total(d.mul(a[..., :, :, None], b[..., None, :, :]), (_last(a, b) - 1,))


def _last(a: Array, b: Array) -> int:
    return max(a.ndim, b.ndim)


@meaning("MatMul")
def _matmul(c: Call) -> Array:
    a, b = c.arg(0), c.arg(1)
    if not c.is_float():
        return np.matmul(a, b)
    left, right = a[None, :] if a.ndim == 1 else a, b[:, None] if b.ndim == 1 else b
    out = _product(c.domain, left, right)
    out = out[..., 0] if b.ndim == 1 else out
    return (out[..., 0, :] if b.ndim > 1 else out[..., 0]) if a.ndim == 1 else out


@meaning("Gemm")
def _gemm(c: Call) -> Array:
    _float_only(c)
    a = c.arg(0).T if c.attrs["transA"] else c.arg(0)
    b = c.arg(1).T if c.attrs["transB"] else c.arg(1)
    d = c.domain
    out = d.mul(d.constant(c.attrs["alpha"]), _product(d, a, b))
    return d.add(out, d.mul(d.constant(c.attrs["beta"]), c.arg(2))) if c.present(2) else out


# ---- windows --------------------------------------------------------------------------------------------------------


def _window(c: Call, n: int, kernel: list[int]) -> tuple[list[int], list[int], list[int], list[int]]:
    strides = c.attrs.get("strides") or [1] * n
    dilations = c.attrs.get("dilations") or [1] * n
    pads = c.attrs.get("pads") or [0] * 2 * n
    if c.attrs.get("auto_pad", "NOTSET") not in ("NOTSET", ""):
        raise Unsupported("auto_pad that is not resolved")
    if min(pads, default=0) < 0 or min([*strides, *dilations], default=1) < 1:
        raise Unsupported("negative pads, or strides below 1")
    return kernel, strides, dilations, pads


def _taps(
    x: Array, fill: Array, out: list[int], window: tuple[list[int], ...]
) -> Iterator[tuple[tuple[int, ...], Array]]:
    """For every kernel tap the operand elements it meets, [N, C, *out]; ``fill`` beyond the borders."""
    kernel, strides, dilations, pads = window
    n = len(kernel)
    need = [(out[k] - 1) * strides[k] + (kernel[k] - 1) * dilations[k] + 1 for k in range(n)]
    shape = (*x.shape[:2], *(max(need[k], pads[k] + x.shape[2 + k] + pads[n + k]) for k in range(n)))
    padded = np.empty(shape, dtype=x.dtype)
    padded[...] = fill
    padded[(slice(None), slice(None), *(slice(pads[k], pads[k] + x.shape[2 + k]) for k in range(n)))] = x
    for tap in itertools.product(*(range(k) for k in kernel)):
        index = tuple(
            slice(t * dl, t * dl + (o - 1) * s + 1, s) for t, dl, o, s in zip(tap, dilations, out, strides, strict=True)
        )
        yield tap, padded[(slice(None), slice(None), *index)]


def _out_space(c: Call, x: Array, window: tuple[list[int], ...]) -> list[int]:
    """Spatial extents of the output by ONNX's formula for floor mode (ceil mode: what the core says)."""
    kernel, strides, dilations, pads = window
    n = len(kernel)
    if c.attrs.get("ceil_mode"):
        shape = c.out_shapes[0]
        if shape is None or any(not isinstance(e, int) for e in shape):
            raise Unsupported("ceil_mode with an unknown extent")
        return shape[2:]
    return [
        (x.shape[2 + k] + pads[k] + pads[n + k] - dilations[k] * (kernel[k] - 1) - 1) // strides[k] + 1
        for k in range(n)
    ]


def _tap(w: Array, tap: tuple[int, ...]) -> Array:
    """The weights of one kernel tap, [outputs, inputs]."""
    return w.reshape(*w.shape[:2], math.prod(w.shape[2:]))[:, :, int(np.ravel_multi_index(tap, w.shape[2:]))]


@meaning("Conv")
def _conv(c: Call) -> Array:
    _float_only(c)
    x, w, d = c.arg(0), c.arg(1), c.domain
    g, n = c.attrs["group"], x.ndim - 2
    window = _window(c, n, list(w.shape[2:]))
    out = _out_space(c, x, window)
    batch, cout, cin = x.shape[0], w.shape[0] // g, w.shape[1]
    result = d.zeros((batch, g, cout, math.prod(out)))
    for tap, piece in _taps(x, d.zeros(()), out, window):
        part = piece.reshape(batch, g, 1, cin, math.prod(out))
        weight = _tap(w, tap).reshape(1, g, cout, cin, 1)
        result = d.add(result, d.total(d.mul(part, weight), (3,)))
    result = result.reshape(batch, g * cout, *out)
    return d.add(result, c.arg(2).reshape(1, -1, *[1] * n)) if c.present(2) else result


@meaning("ConvTranspose")
def _conv_transpose(c: Call) -> Array:
    _float_only(c)
    x, w, d = c.arg(0), c.arg(1), c.domain
    g, n = c.attrs["group"], x.ndim - 2
    kernel, strides, dilations, pads = _window(c, n, list(w.shape[2:]))
    extra = c.attrs.get("output_padding") or [0] * n
    batch, cin, cout = x.shape[0], w.shape[0] // g, w.shape[1]
    full = [strides[k] * (x.shape[2 + k] - 1) + extra[k] + dilations[k] * (kernel[k] - 1) + 1 for k in range(n)]
    result = d.zeros((batch, g * cout, *full))
    flat = x.reshape(batch, g, cin, 1, math.prod(x.shape[2:]))
    for tap in itertools.product(*(range(k) for k in kernel)):
        weight = _tap(w, tap).reshape(1, g, cin, cout, 1)
        part = d.total(d.mul(flat, weight), (2,)).reshape(batch, g * cout, *x.shape[2:])
        at = (
            slice(None),
            slice(None),
            *(
                slice(t * dl, t * dl + (e - 1) * s + 1, s)
                for t, dl, e, s in zip(tap, dilations, x.shape[2:], strides, strict=True)
            ),
        )
        result[at] = d.add(result[at], part)
    result = result[(slice(None), slice(None), *(slice(pads[k], full[k] - pads[n + k]) for k in range(n)))]
    return d.add(result, c.arg(2).reshape(1, -1, *[1] * n)) if c.present(2) else result


@meaning("AveragePool")
def _average_pool(c: Call) -> Array:
    _float_only(c)
    x, d = c.arg(0), c.domain
    window = _window(c, x.ndim - 2, list(c.attrs["kernel_shape"]))
    out = _out_space(c, x, window)
    total = d.zeros((*x.shape[:2], *out))
    for _, piece in _taps(x, d.zeros(()), out, window):
        total = d.add(total, piece)
    return d.div(total, d.from_integers(_counts(c, x, out, window)))


def _counts(c: Call, x: Array, out: list[int], window: tuple[list[int], ...]) -> Array:
    """How many elements each window averages: those inside, or inside the padding too."""
    n = x.ndim - 2
    inside = np.ones((1, 1, *x.shape[2:]), np.int64)
    if c.attrs.get("count_include_pad"):
        pads = window[3]
        inside = np.ones((1, 1, *(pads[k] + x.shape[2 + k] + pads[n + k] for k in range(n))), np.int64)
        window = (window[0], window[1], window[2], [0] * 2 * n)
    counts: Array = np.zeros((1, 1, *out), np.int64)
    for _, piece in _taps(inside, np.asarray(0), out, window):
        counts = counts + piece
    return counts


@meaning("MaxPool")
def _max_pool(c: Call) -> Array:
    _float_only(c)
    if not isinstance(c.domain, Ordered):
        raise NeedsOrder(c.op)
    if len(c.out_dtypes) > 1:
        raise Unsupported("MaxPool with indices")
    x = c.arg(0)
    window = _window(c, x.ndim - 2, list(c.attrs["kernel_shape"]))
    out = _out_space(c, x, window)
    low = np.empty((), dtype=object)
    low[()] = _MINUS_INFINITY
    best: Array | None = None
    for _, piece in _taps(x, low, out, window):
        best = piece if best is None else c.domain.extreme(best, piece, True)
    if best is None or any(e is _MINUS_INFINITY for e in best.flat):
        raise Unsupported("a pooling window that lies in the padding")
    return best


class _MinusInfinity:
    def __lt__(self, other: object) -> bool:
        return self is not other

    def __gt__(self, other: object) -> bool:
        return False


_MINUS_INFINITY = _MinusInfinity()


def _extreme_over(c: Call, x: Array, axes: tuple[int, ...], largest: bool) -> Array:
    if not isinstance(c.domain, Ordered):
        raise NeedsOrder(c.op)
    if any(x.shape[a] == 0 for a in axes):
        raise Unsupported("an extreme of nothing")
    for a in sorted(axes, reverse=True):
        pieces = [x.take(k, axis=a) for k in range(x.shape[a])]
        best = pieces[0]
        for piece in pieces[1:]:
            best = c.domain.extreme(best, piece, largest)
        x = np.asarray(best, dtype=object)
    return x


def _mean(d: Domain, x: Array, axes: tuple[int, ...]) -> Array:
    count = math.prod(x.shape[a] for a in axes)
    if count == 0:
        raise Unsupported("a mean of nothing")
    return d.div(d.total(x, axes), d.constant(count))


@meaning("GlobalAveragePool", "GlobalMaxPool")
def _global_pool(c: Call) -> Array:
    _float_only(c)
    x = c.arg(0)
    axes = tuple(range(2, x.ndim))
    out = _mean(c.domain, x, axes) if c.op == "GlobalAveragePool" else _extreme_over(c, x, axes, True)
    return out.reshape(*x.shape[:2], *[1] * len(axes))


# ---- reductions -----------------------------------------------------------------------------------------------------


def _function(d: Domain, name: str, x: Array) -> Array:
    """The same keyed function that the operator ``name`` without attributes is."""
    key = field.key_of(name, [])
    return d.unary(name, key, x, zero=name in ("Sqrt", "Abs"), monotone=name in ("Sqrt", "Exp", "Log"))


def _reduced(c: Call, x: Array, axes: tuple[int, ...]) -> Array:
    d, op = c.domain, c.op
    if op in ("ReduceMax", "ReduceMin"):
        return _extreme_over(c, x, axes, op == "ReduceMax")
    if op == "ReduceMean":
        return _mean(d, x, axes)
    if op == "ReduceProd":
        for a in sorted(axes, reverse=True):
            out = d.constant(1)
            for k in range(x.shape[a]):
                out = d.mul(out, x.take(k, axis=a))
            x = np.broadcast_to(out, x.shape[:a] + x.shape[a + 1 :])
        return x
    before = {"ReduceL1": lambda e: _function(d, "Abs", e), "ReduceLogSumExp": lambda e: _function(d, "Exp", e)}.get(
        op, lambda e: e
    )
    if op in ("ReduceL2", "ReduceSumSquare"):
        x = d.mul(x, x)
    total = d.total(before(x), axes)
    after = {"ReduceL2": "Sqrt", "ReduceLogSum": "Log", "ReduceLogSumExp": "Log"}.get(op)
    return _function(d, after, total) if after else total


@meaning("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd")
@meaning("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceSumSquare")
def _reduce(c: Call) -> Array:
    _float_only(c)
    if c.present(1):
        raise Unsupported("a reduction whose axes are a tensor")
    x, axes = c.arg(0), tuple(c.attrs["axes"])
    out = _reduced(c, x, axes)
    return out.reshape([1 if k in axes else e for k, e in enumerate(x.shape)]) if c.attrs["keepdims"] else out


@meaning("ArgMax", "ArgMin")
def _arg(c: Call) -> Array:
    _float_only(c)
    if not c.domain.ordered:
        raise NeedsOrder(c.op)
    x, axis = c.arg(0), c.attrs["axis"]
    if x.ndim == 0:  # a scalar's largest element is its first
        return np.zeros((), np.int64)
    rows = np.moveaxis(x, axis, -1)
    out = np.empty(rows.shape[:-1], np.int64)
    for index in np.ndindex(rows.shape[:-1]):
        row = list(rows[index])
        best = max(row) if c.op == "ArgMax" else min(row)
        out[index] = len(row) - 1 - row[::-1].index(best) if c.attrs["select_last_index"] else row.index(best)
    return np.expand_dims(out, axis) if c.attrs["keepdims"] else out


@meaning("CumSum")
def _cumsum(c: Call) -> Array:
    _float_only(c)
    x, axis = c.arg(0), int(np.asarray(c.arg(1)).reshape(()))
    rows = np.moveaxis(x, axis, 0)
    rows = rows[::-1] if c.attrs["reverse"] else rows
    out, state = np.empty(rows.shape, rows.dtype), c.domain.zeros(rows.shape[1:])
    for k in range(rows.shape[0]):
        before, state = state, c.domain.add(state, rows[k])
        out[k] = before if c.attrs["exclusive"] else state
    out = out[::-1] if c.attrs["reverse"] else out
    return np.moveaxis(out, 0, axis)


# ---- normalisations -------------------------------------------------------------------------------------------------


@meaning("BatchNormalization")
def _batch_norm(c: Call) -> Array:
    _float_only(c)
    d, x = c.domain, c.arg(0)
    tail = (1, -1, *[1] * (x.ndim - 2)) if x.ndim > 1 else (-1,)
    scale, bias, mean, var = (c.arg(k).reshape(tail) for k in range(1, 5))
    root = _function(d, "Sqrt", d.add(var, d.constant(c.attrs["epsilon"])))
    return d.add(d.mul(scale, d.div(d.sub(x, mean), root)), bias)


def _rows_over(c: Call, x: Array, axes: list[int], key: int) -> Array:
    """A keyed function of the elements along ``axes`` (flattened, in order) and the position among them."""
    kept = [a for a in range(x.ndim) if a not in axes]
    order = kept + axes
    moved = np.transpose(x, order)
    rows = moved.reshape(*moved.shape[: len(kept)], math.prod(x.shape[a] for a in axes))
    out = c.domain.rows(key, rows).reshape(moved.shape)
    return np.transpose(out, np.argsort(order))


@meaning("Softmax", "LogSoftmax", "Hardmax", "LpNormalization")
def _row_wise(c: Call) -> Array:
    _float_only(c)
    x = c.arg(0)
    if x.ndim == 0:
        return c.domain.rows(field.key_of(c.op, c.attrs.get("p")), x.reshape(1)).reshape(())
    return _rows_over(c, x, [c.attrs["axis"]], field.key_of(c.op, c.attrs.get("p")))


@meaning("LayerNormalization", "RMSNormalization")
def _layer_norm(c: Call) -> Array | list[Array]:
    _float_only(c)
    x, d = c.arg(0), c.domain
    axes = list(range(c.attrs["axis"], x.ndim))
    key = field.key_of(c.op, c.attrs["epsilon"], c.attrs["stash_type"])
    out = d.mul(_rows_over(c, x, axes, key), c.arg(1))
    out = d.add(out, c.arg(2)) if c.present(2) else out
    return [out, *_statistics(c, x, key)] if len(c.out_dtypes) > 1 else out


def _statistics(c: Call, x: Array, key: int) -> list[Array]:
    lead = x.shape[: c.attrs["axis"]]
    rows = c.domain.words(x).reshape(*lead, math.prod(x.shape[len(lead) :]))
    state = field.row_state(key, rows).reshape(*lead, *[1] * (x.ndim - len(lead)))
    return [c.domain.function(field.key_of(key, k), state) for k in ("mean", "deviation")]


@meaning("InstanceNormalization")
def _instance_norm(c: Call) -> Array:
    _float_only(c)
    x, d = c.arg(0), c.domain
    tail = (1, -1, *[1] * (x.ndim - 2))
    rows = _rows_over(c, x, list(range(2, x.ndim)), c.key())
    return d.add(d.mul(rows, c.arg(1).reshape(tail)), c.arg(2).reshape(tail))


@meaning("GroupNormalization")
def _group_norm(c: Call) -> Array:
    _float_only(c)
    x, d, g = c.arg(0), c.domain, c.attrs["num_groups"]
    tail = (1, -1, *[1] * (x.ndim - 2))
    grouped = x.reshape(x.shape[0], g, math.prod(x.shape[1:]) // g)
    rows = _rows_over(c, grouped, [2], field.key_of(c.op, c.attrs["epsilon"])).reshape(x.shape)
    return d.add(d.mul(rows, c.arg(1).reshape(tail)), c.arg(2).reshape(tail))


@meaning("MeanVarianceNormalization")
def _mean_variance(c: Call) -> Array:
    _float_only(c)
    return _rows_over(c, c.arg(0), list(c.attrs["axes"]), field.key_of(c.op))


@meaning("LRN")
def _lrn(c: Call) -> Array:
    _float_only(c)
    return _rows_over(c, c.arg(0), [1], c.key())
