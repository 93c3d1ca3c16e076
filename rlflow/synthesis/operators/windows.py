"""Convolutions and pools."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from rlflow.errors import UsageError
from rlflow.synthesis.domains import Array, Ordered, Unsupported
from rlflow.synthesis.integers import limits
from rlflow.synthesis.operators import degrees
from rlflow.synthesis.operators.drawing import fixed_attr, image, spatial_rank
from rlflow.synthesis.operators.exact import extreme_over, floats_only, mean_over
from rlflow.synthesis.operators.facets import Call, Drawn, NeedsOrder, register, row
from rlflow.synthesis.operators.native import Attributes, NativeKind
from rlflow.synthesis.terms import Term
from rlflow.synthesis.want import GiveUp, Want

if TYPE_CHECKING:
    from rlflow.synthesis.sampling import Draw


def _window(c: Call, n: int, kernel: list[int]) -> tuple[list[int], list[int], list[int], list[int]]:
    strides = c.attrs.get("strides") or [1] * n
    dilations = c.attrs.get("dilations") or [1] * n
    pads = c.attrs.get("pads") or [0] * 2 * n
    if c.attrs.get("auto_pad", "NOTSET") not in ("NOTSET", ""):
        raise Unsupported("auto_pad that is not resolved")
    if min(pads, default=0) < 0 or min([*strides, *dilations], default=1) < 1:
        raise Unsupported("negative pads, or strides below 1")
    return kernel, strides, dilations, pads


def _taps(x: Array, fill: Array, out: list[int], window: tuple[list[int], ...]) -> Iterator[Array]:
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
        yield padded[(slice(None), slice(None), *index)]


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


def _conv(c: Call) -> Array:
    floats_only(c)
    x, w, d = c.arg(0), c.arg(1), c.domain
    g, n = c.attrs["group"], x.ndim - 2
    window = _window(c, n, list(w.shape[2:]))
    out = _out_space(c, x, window)
    batch, cout, cin = x.shape[0], w.shape[0] // g, w.shape[1]
    taps = math.prod(window[0])
    met = np.empty((batch, g, taps, cin, math.prod(out)), dtype=x.dtype)
    for k, piece in enumerate(_taps(x, d.zeros(()), out, window)):
        met[:, :, k] = piece.reshape(batch, g, cin, math.prod(out))
    weights = w.reshape(1, g, cout, cin, taps).swapaxes(3, 4).reshape(1, g, cout, taps * cin)
    result = d.matmul(weights, met.reshape(batch, g, taps * cin, math.prod(out))).reshape(batch, g * cout, *out)
    return d.add(result, c.arg(2).reshape(1, -1, *[1] * n)) if c.present(2) else result


def _conv_transpose(c: Call) -> Array:
    floats_only(c)
    x, w, d = c.arg(0), c.arg(1), c.domain
    g, n = c.attrs["group"], x.ndim - 2
    kernel, strides, dilations, pads = _window(c, n, list(w.shape[2:]))
    extra = c.attrs.get("output_padding") or [0] * n
    batch, cin, cout = x.shape[0], w.shape[0] // g, w.shape[1]
    full = [strides[k] * (x.shape[2 + k] - 1) + extra[k] + dilations[k] * (kernel[k] - 1) + 1 for k in range(n)]
    result = d.zeros((batch, g * cout, *full))
    flat = x.reshape(1, batch, g, cin, 1, math.prod(x.shape[2:]))
    weights = np.moveaxis(w.reshape(1, g, cin, cout, 1, math.prod(kernel)), -1, 0)
    parts = d.total(d.mul(flat, weights), (3,)).reshape(math.prod(kernel), batch, g * cout, *x.shape[2:])
    for tap, part in zip(itertools.product(*map(range, kernel)), parts, strict=True):
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


def _average_pool(c: Call) -> Array:
    floats_only(c)
    x, d = c.arg(0), c.domain
    window = _window(c, x.ndim - 2, list(c.attrs["kernel_shape"]))
    out = _out_space(c, x, window)
    total = d.total(np.stack([*_taps(x, d.zeros(()), out, window)]), (0,))
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
    for piece in _taps(inside, np.asarray(0), out, window):
        counts = counts + piece
    return counts


def _max_pool_of_integers(c: Call) -> Array:
    ends = limits(c.dtypes[0])
    if ends is None or len(c.out_dtypes) > 1:
        raise Unsupported("MaxPool of truth values or with indices")
    x = c.of_numbers().arg(0)
    window = _window(c, x.ndim - 2, list(c.attrs["kernel_shape"]))
    taps = _taps(x, np.asarray(ends[0]), _out_space(c, x, window), window)
    return c.whole(functools.reduce(np.maximum, taps))


def _max_pool(c: Call) -> Array:
    if not c.is_float():
        return _max_pool_of_integers(c)
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
    for piece in _taps(x, low, out, window):
        best = piece if best is None else c.domain.extreme(best, piece, True)
    if best is None:
        raise Unsupported("a pooling window of no elements")
    in_padding = [e is _MINUS_INFINITY for e in best.flat]
    if any(in_padding):  # runtimes begin with the lowest number, and no element is larger
        best = np.where(np.reshape(in_padding, best.shape), c.domain.constant(_lowest(c)), best)
    return best


def _lowest(c: Call) -> Fraction:
    """The lowest number of the operand's type."""
    if c.dtypes[0] not in _MANTISSAS:
        raise Unsupported("MaxPool of so small floats")
    bits, exponent = _MANTISSAS[c.dtypes[0]]
    return -(2 - Fraction(1, 2**bits)) * 2**exponent


class _MinusInfinity:
    def __lt__(self, other: object) -> bool:
        return self is not other

    def __gt__(self, other: object) -> bool:
        return False


_MINUS_INFINITY = _MinusInfinity()
#: Bits behind the point, and the largest exponent, of float32, float16, float64 and bfloat16.
_MANTISSAS = {1: (23, 127), 10: (10, 15), 11: (52, 1023), 16: (7, 127)}


def _global_pool(c: Call) -> Array:
    floats_only(c)
    x = c.arg(0)
    axes = tuple(range(2, x.ndim))
    out = mean_over(c.domain, x, axes) if c.op == "GlobalAveragePool" else extreme_over(c, x, axes, True)
    return out.reshape(*x.shape[:2], *[1] * len(axes))


def _draw_window(d: Draw, term: Term, op: str, n: int, kernel: list[int]) -> dict[str, Any]:
    if len(kernel) != n:  # bound by a pool of another rank
        raise GiveUp
    style = d.rng.random()
    dilations = [1] * n if style < 0.8 else [d.rng.randint(1, 2) for _ in range(n)]
    same = [(k - 1) * e // 2 for k, e in zip(kernel, dilations, strict=True)]
    pads = (
        [0] * (2 * n) if style < 0.4 else same + same if style < 0.75 else [d.rng.randint(0, 2) for _ in range(2 * n)]
    )
    strides = [1] * n if style < 0.65 else [d.rng.randint(1, 3) for _ in range(n)]
    return {
        "kernel_shape": d.attr(term, op, "kernel_shape", lambda: kernel),
        "dilations": d.attr(term, op, "dilations", lambda: dilations),
        "strides": d.attr(term, op, "strides", lambda: strides),
        "pads": d.attr(term, op, "pads", lambda: pads),
    }


def _draw_kernel(d: Draw, term: Term, n: int) -> list[int]:
    fixed = fixed_attr(d, term, "kernel_shape")
    if fixed:
        return list(fixed)
    wished = d.hints.rest_attributes.get((term.rest, "kernel_shape")) or d.hints.attributes.get(
        term.attrs.get("kernel_shape", "")
    )
    if wished and d.obey and d.rng.random() < 0.8:
        return [wished[0]] * n if not isinstance(wished[0], list) else list(wished[0])
    return d.kernel(n)


def _tied(d: Draw, x_term: Term, w_term: Term) -> bool:
    """Whether some operand below the image has to have the kernel's shape (a factor of the image, say): then the kernel
    is drawn first, every other time."""
    if d.is_known(w_term) or w_term.kind != "var" or not d.obey:
        return False
    below = {t.name for t in x_term.walk() if t.kind == "var"} - d.values.keys()
    return bool(below & {*d.hints.same.get(w_term.name, ())}) and d.rng.random() < 0.5


def _image_of_kernel(d: Draw, term: Term, n: int) -> tuple[int, ...]:
    """A kernel, and the shape of an image that it broadcasts with."""
    channels, kernel = d.rng.choice([1, 1, 2, 3]), _draw_kernel(d, term, n)
    kernel = [k if d.rng.random() < 0.6 else 1 for k in kernel]
    w = d.shape(d.child(term.children[1], Want(shape=(d.rng.choice([1, 1, 1, channels]), channels, *kernel))))
    return (d.rng.choice([1, 1, 2]), *w[1:2], *(e if e > 1 else d.extent() for e in w[2:]))


def _draw_conv(d: Draw, term: Term, op: str, want: Want) -> Drawn:
    n = spatial_rank(d, term, want)
    x_term, w_term = term.children[:2]
    wish = _image_of_kernel(d, term, n) if _tied(d, x_term, w_term) else image(d, n, want)
    x = d.child(x_term, Want(shape=wish) if x_term.kind != "op" else Want(rank=n + 2, shape=wish))
    if len(d.shape(x)) < 3:
        raise GiveUp
    n, channels = len(d.shape(x)) - 2, d.shape(x)[1]
    if d.is_known(w_term):
        w = d.child(w_term, Want(rank=n + 2))
        if len(d.shape(w)) != n + 2 or channels % d.shape(w)[1]:
            raise GiveUp
        group = d.attr(term, op, "group", lambda: channels // d.shape(w)[1])
        kernel = list(d.shape(w)[2:])
    else:
        divisors = [g for g in range(1, channels + 1) if channels % g == 0]
        group = d.attr(term, op, "group", lambda: 1 if d.rng.random() < 0.55 else d.rng.choice(divisors))
        kernel = _draw_kernel(d, term, n)
        outs = (
            want.shape[1]
            if want.shape and len(want.shape) == n + 2 and want.shape[1] % group == 0
            else group * d.rng.choice([1, 1, 2, 3])
        )
        w = d.child(w_term, Want(shape=(outs, max(channels // group, 1), *kernel), dtype=d.dtype_of(x)))
    attrs = {"group": group, **_draw_window(d, term, op, n, kernel)}
    inputs = [x, w]
    if len(term.children) > 2:
        inputs.append(d.child(term.children[2], Want(shape=(d.shape(w)[0],), dtype=d.dtype_of(x))))
    return inputs, attrs


def _draw_conv_transpose(d: Draw, term: Term, op: str, want: Want) -> Drawn:
    n = spatial_rank(d, term, want)
    x = d.child(term.children[0], Want(shape=image(d, n, want)))
    n, channels = len(d.shape(x)) - 2, d.shape(x)[1]
    divisors = [g for g in range(1, channels + 1) if channels % g == 0]
    group = d.attr(term, op, "group", lambda: 1 if d.rng.random() < 0.6 else d.rng.choice(divisors))
    kernel = _draw_kernel(d, term, n)
    w = d.child(term.children[1], Want(shape=(channels, d.extent(), *kernel), dtype=d.dtype_of(x)))
    attrs = {"group": group, **_draw_window(d, term, op, n, kernel)}
    attrs["pads"] = d.attr(term, op, "pads", lambda: [0] * 2 * n)
    inputs = [x, w]
    if len(term.children) > 2:
        inputs.append(d.child(term.children[2], Want(shape=(group * d.shape(w)[1],), dtype=d.dtype_of(x))))
    return inputs, attrs


def _draw_pool(d: Draw, term: Term, op: str, want: Want) -> Drawn:
    n = spatial_rank(d, term, want)
    same = want.shape is not None and len(want.shape) == n + 2 and d.rng.random() < 0.7
    channels = want.shape[1] if same and want.shape else None
    x = d.child(term.children[0], Want(shape=image(d, n, want, channels), rank=n + 2))
    n = len(d.shape(x)) - 2
    if n < 1:
        raise GiveUp
    kernel = _draw_kernel(d, term, n)
    attrs = _draw_window(d, term, op, n, kernel)
    for name in row(op)["defaults"]:
        if name == "p":
            attrs[name] = d.attr(term, op, name, lambda: d.rng.choice([1, 2, 3]))
        else:
            attrs[name] = d.attr(term, op, name, lambda n=name: int(d.rng.random() < 0.3 and n != "storage_order"))
    pads, kernel_shape = attrs["pads"], attrs["kernel_shape"]
    if any(p >= k for p, k in zip(pads, [*kernel_shape, *kernel_shape], strict=False)):
        raise GiveUp  # runtimes want every window to meet the data
    return [x], attrs


def _draw_global_pool(d: Draw, term: Term, op: str, want: Want) -> Drawn:
    n = spatial_rank(d, term, want)
    return [d.child(term.children[0], Want(shape=image(d, n, want), rank=n + 2))], {}


def _native_window(a: Attributes) -> list[int]:
    return [*a["kernel_shape"], *a.get("pads", [0] * 4), *a.get("strides", [1, 1])]


def _native_conv(a: Attributes) -> NativeKind:
    if any(d != 1 for d in a.get("dilations", [1])):
        raise UsageError("The generator declines dilated convolutions: its evaluator has none.")
    return NativeKind("Conv", 2, [a.get("group", 1), *_native_window(a)])


def _native_pool(kind: str) -> Callable[[Attributes], NativeKind]:
    return lambda a: NativeKind(kind, 1, [*_native_window(a), a.get("count_include_pad", 0)])


register(
    "Conv", meaning=_conv, draw=_draw_conv, integers=False, degree=degrees.product, parameters=True, native=_native_conv
)
register(
    "ConvTranspose",
    meaning=_conv_transpose,
    draw=_draw_conv_transpose,
    integers=False,
    degree=degrees.product,
    parameters=True,
)
register("AveragePool", meaning=_average_pool, draw=_draw_pool, integers=False, native=_native_pool("AveragePool"))
register("MaxPool", meaning=_max_pool, draw=_draw_pool, one_term=True, native=_native_pool("MaxPool"))
register("LpPool", draw=_draw_pool, integers=False)
register(
    "GlobalAveragePool",
    meaning=_global_pool,
    draw=_draw_global_pool,
    integers=False,
    native=lambda a: NativeKind("ReduceMean", 1, [1, 2, 3]),
)
register("GlobalMaxPool", meaning=_global_pool, draw=_draw_global_pool, integers=False, one_term=True)
