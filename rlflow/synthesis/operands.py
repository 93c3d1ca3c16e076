"""Operands and attributes of each operator, drawn from its domain (the sampler's knowledge of operators).

Each generator gets the drawing context, the term and the wanted result, and returns operand values and attributes.
Operands that exist already
(bound variables, sub-terms) are built first; unbound ones get types that fit them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rlflow import _core
from rlflow.synthesis.terms import Term
from rlflow.synthesis.want import GiveUp, Want

if TYPE_CHECKING:
    from rlflow.synthesis.sampling import Draw

Drawn = tuple[list[int], dict[str, Any]]
Generator = Callable[["Draw", Term, str, "Want"], Drawn]
GENERATORS: dict[str, Generator] = {}
_FLOATS = {1, 10, 11, 16}
_NOT_FOR_FLOATS = frozenset(
    ["Not", "BitwiseNot", "BitShift", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "And", "Or", "Xor", "Identity"]
)
_FOR_INTEGERS = frozenset(
    [
        "Neg",
        "Abs",
        "Sign",
        "Relu",
        "Cast",
        "Clip",
        "BitwiseNot",
        "Add",
        "Sub",
        "Mul",
        "Div",
        "Mod",
        "Equal",
        "Greater",
        "Less",
        "BitwiseAnd",
        "BitwiseOr",
    ]
)
#: Operators that ONNX defines for float types only.
FLOAT_ONLY = frozenset(
    [
        "Conv",
        "ConvTranspose",
        "AveragePool",
        "GlobalAveragePool",
        "GlobalMaxPool",
        "LpPool",
        "BatchNormalization",
        "InstanceNormalization",
        "GroupNormalization",
        "LayerNormalization",
        "RMSNormalization",
        "LpNormalization",
        "MeanVarianceNormalization",
        "LRN",
        "Softmax",
        "LogSoftmax",
        "Hardmax",
        "Sqrt",
        "Exp",
        "Log",
        "Sigmoid",
        "Tanh",
        "Erf",
        "Gelu",
        "Reciprocal",
        "ReduceL2",
        "ReduceLogSum",
        "ReduceLogSumExp",
        "PRelu",
    ]
)
_CLASS_FLAGS = {
    "unary": {"unary"},
    "unary0": {"unary", "zero_preserving"},
    "monotone": {"unary", "monotone"},
    "binary": {"binary"},
    "reduce": {"reduce"},
}


def generator(*names: str) -> Callable[[Generator], Generator]:
    def register(f: Generator) -> Generator:
        for name in names:
            GENERATORS[name] = f
        return f

    return register


@functools.cache
def _row(op: str) -> dict[str, Any]:
    return dict(_core.op_row(op))


def default_of(op: str, name: str) -> Any:
    """The operator's default for an attribute, or ``None``."""
    return _row(op)["defaults"].get(name)


@functools.cache
def _members(name: str) -> tuple[str, ...]:
    want = _CLASS_FLAGS[name] | {"pure"}
    return tuple(op for op in _core.op_names() if want <= set(_row(op)["flags"]))


def class_members(op_class: str | list[str] | None, dtype: int) -> list[str]:
    """Operators that a class variable may stand for, for operands of this element type."""
    names = list(op_class) if isinstance(op_class, list) else list(_members(op_class or "unary"))
    if not isinstance(op_class, list):
        fits = (
            [n for n in names if n not in _NOT_FOR_FLOATS]
            if dtype in _FLOATS
            else [n for n in names if n in _FOR_INTEGERS]
        )
        names = [n for n in fits if n not in ("BitwiseNot",) or dtype not in _FLOATS]
    if not names:
        raise GiveUp
    return names


def valid_type(op: str, dtype: int) -> bool:
    """Whether ONNX defines the operator for this element type of its first operand."""
    return op not in FLOAT_ONLY if dtype not in _FLOATS else op not in _NOT_FOR_FLOATS or op == "Identity"


def extra_operands(d: Draw, op: str) -> list[int]:
    """Scalar constants that travel with an operator variable (Clip's bounds)."""
    if op != "Clip" or d.rng.random() < 0.3:
        return []
    low = d.constant("", d.dtype, ()) if d.rng.random() < 0.7 else -1
    return [low, d.constant("", d.dtype, ())] if d.rng.random() < 0.6 or low < 0 else [low]


@functools.cache
def _load() -> None:
    import rlflow.synthesis.operands_movement  # noqa: F401 - registers generators


def draw(d: Draw, term: Term, op: str, want: Want) -> Drawn:
    """Operands and attributes for one node. Raises GiveUp where nothing fits."""
    _load()
    f = GENERATORS.get(op)
    if f is None:
        flags = set(_row(op)["flags"])
        f = _unary if "unary" in flags else _binary if "binary" in flags else _reduce if "reduce" in flags else _unknown
    return f(d, term, op, want)


def _unknown(d: Draw, term: Term, op: str, want: Want) -> Drawn:
    from rlflow.errors import ProofError

    raise ProofError(f"the sampler cannot draw operands for {op}: add a generator to rlflow/synthesis/operands.py")


def _float_attrs(d: Draw, term: Term, op: str) -> dict[str, Any]:
    """Attributes of a pointwise operator: floats from a few values, the rest as they are by default."""
    attrs = {}
    for name in _row(op)["attributes"]:
        default = default_of(op, name)
        if isinstance(default, float):
            attrs[name] = d.attr(term, op, name, lambda v=default: d.rng.choice([v, 0.5, 1.0, 0.25]))
        elif name == "direction":
            attrs[name] = d.attr(term, op, name, lambda: "LEFT")
        elif name == "fmod":
            attrs[name] = d.attr(term, op, name, lambda: 1 if d.dtype in _FLOATS else 0)
        elif name == "to":
            attrs[name] = d.attr(term, op, name, lambda: d.rng.choice([1, 10, 11, 6, 7, 9]))
    return attrs


# ---- pointwise ------------------------------------------------------------------------------------------------------


def _unary(d: Draw, term: Term, op: str, want: Want) -> Drawn:
    attrs = _float_attrs(d, term, op)
    x = d.child(
        term.children[0],
        Want(shape=want.shape, rank=want.rank, least_rank=want.least_rank, dtype=want.dtype if op != "Cast" else None),
    )
    return [x, *(d.child(c, Want(shape=(), dtype=d.dtype_of(x))) for c in term.children[1:])], attrs


def _binary(d: Draw, term: Term, op: str, want: Want) -> Drawn:
    attrs = _float_attrs(d, term, op)
    inputs = _broadcast(d, term, want)
    if op == "PRelu" and len(d.shape(inputs[1])) > len(d.shape(inputs[0])):
        raise GiveUp  # ONNX broadcasts the slope one way
    return inputs, attrs


def _broadcast(d: Draw, term: Term, want: Want) -> list[int]:
    """Operands of broadcasting shapes; known ones first, the others fitted to the first."""
    kids, out = term.children, {}
    order = sorted(range(len(kids)), key=lambda k: not d.is_known(kids[k]))
    base: tuple[int, ...] | None = None
    for k in order:
        if base is None:
            wish = want.shape
            if wish is not None and d.rng.random() < 0.3:
                wish = None
            out[k] = d.child(kids[k], Want(shape=wish, rank=want.rank, least_rank=want.least_rank, dtype=want.dtype))
            base = d.shape(out[k])
            dtype = d.dtype_of(out[k])
        else:
            shape = base if kids[k].kind == "op" else d.partner(base)
            out[k] = d.child(kids[k], Want(shape=shape, dtype=dtype))
    return [out[k] for k in range(len(kids))]


@generator("Where")
def _where(d: Draw, term: Term, op: str, want: Want) -> Drawn:
    c, a, b = term.children
    x = d.child(a, Want(shape=want.shape, least_rank=want.least_rank))
    y = d.child(b, Want(shape=d.partner(d.shape(x)), dtype=d.dtype_of(x)))
    wide = max(d.shape(x), d.shape(y), key=len)
    return [d.child(c, Want(shape=d.partner(wide), dtype=9)), x, y], {}


@generator("Sum", "Max", "Min", "Mean")
def _variadic(d: Draw, term: Term, op: str, want: Want) -> Drawn:
    if all(c.kind != "seq" for c in term.children):
        return _broadcast(d, term, want), {}
    base = want.shape or d.dims(d.rank())
    out: list[int] = []
    for c in term.children:
        out += d.spread(c, Want(shape=base)) if c.kind == "seq" else [d.child(c, Want(shape=base))]
    return out, {}


# ---- products -------------------------------------------------------------------------------------------------------


@generator("MatMul")
def _matmul(d: Draw, term: Term, op: str, want: Want) -> Drawn:
    left, right = term.children
    wide = want.shape if want.shape and len(want.shape) >= 2 else None
    if d.is_known(right) and not d.is_known(left):
        b = d.child(right)
        return [_left_of(d, left, d.shape(b), wide, d.dtype_of(b)), b], {}
    rows = wide[-2] if wide else d.extent()
    if d.is_known(left):
        a = d.child(left, Want(least_rank=1))
    else:
        lead = wide[:-2] if wide else d.dims(d.rng.choice([0, 0, 1, 1, 2]))
        shape = (*lead, rows, d.extent()) if d.rng.random() < 0.93 else (d.extent(),)
        a = d.child(left, Want(shape=shape))
    k = d.shape(a)[-1:] or (1,)
    return [a, d.child(right, Want(shape=_right_shape(d, right, d.shape(a), k[0], wide), dtype=d.dtype_of(a)))], {}


def _right_shape(d: Draw, right: Term, a: tuple[int, ...], k: int, wide: tuple[int, ...] | None) -> tuple[int, ...]:
    columns = wide[-1] if wide else d.extent()
    if right.kind != "op" and d.obey and d.plan.ranks.get(right.name) == [2]:
        return (k, columns)
    way = d.rng.random()
    if way < 0.45:
        return (k, columns)
    if way < 0.85:
        return (*a[:-2], k, columns)
    if way < 0.95:
        return (*d.partner(a[:-2]), k, columns)
    return (k,)


def _left_of(d: Draw, left: Term, b: tuple[int, ...], wide: tuple[int, ...] | None, dtype: int) -> int:
    k = b[-2] if len(b) > 1 else (b or (1,))[0]
    way = d.rng.random()
    lead = (
        wide[:-2]
        if wide
        else d.dims(d.rng.choice([0, 1, 2]))
        if way < 0.4
        else b[:-2]
        if way < 0.85
        else d.partner(b[:-2])
    )
    shape = (*lead, wide[-2] if wide else d.extent(), k) if d.rng.random() < 0.93 else (k,)
    return d.child(left, Want(shape=shape, dtype=dtype))


@generator("Gemm")
def _gemm(d: Draw, term: Term, op: str, want: Want) -> Drawn:
    attrs = {n: d.attr(term, op, n, lambda: d.rng.choice([1.0, 1.0, 0.5, 2.0])) for n in ("alpha", "beta")}
    attrs |= {n: d.attr(term, op, n, lambda: d.rng.randint(0, 1)) for n in ("transA", "transB")}
    wide = want.shape if want.shape and len(want.shape) == 2 else None
    m, k, n = wide[0] if wide else d.extent(), d.extent(), wide[1] if wide else d.extent()
    known = d.is_known(term.children[1]) and not d.is_known(term.children[0])
    if known:
        b = d.child(term.children[1], Want(shape=(n, k) if attrs["transB"] else (k, n)))
        if len(d.shape(b)) != 2:
            raise GiveUp
        n, k = d.shape(b) if attrs["transB"] else d.shape(b)[::-1]
    a = d.child(term.children[0], Want(shape=(k, m) if attrs["transA"] else (m, k)))
    if len(d.shape(a)) != 2:
        raise GiveUp
    m, k = d.shape(a)[::-1] if attrs["transA"] else d.shape(a)
    if not known:
        b = d.child(term.children[1], Want(shape=(n, k) if attrs["transB"] else (k, n), dtype=d.dtype_of(a)))
        n = d.shape(b)[0 if attrs["transB"] else -1]
    inputs = [a, b]
    if len(term.children) > 2:
        inputs.append(
            d.child(
                term.children[2],
                Want(shape=d.rng.choice([(n,), (n,), (1, n), (m, n), (), (1,), (m, 1)]), dtype=d.dtype_of(a)),
            )
        )
    return inputs, attrs


# ---- windows --------------------------------------------------------------------------------------------------------


def fixed_attr(d: Draw, term: Term, name: str) -> Any:
    """A window attribute that is bound already."""
    if name in term.attrs:
        return d.attrs.get(term.attrs[name])
    return (d.twins.known(term.rest, name, d.rests)) if term.rest else None


def _window(d: Draw, term: Term, op: str, n: int, kernel: list[int]) -> dict[str, Any]:
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


def _kernel(d: Draw, term: Term, n: int) -> list[int]:
    fixed = fixed_attr(d, term, "kernel_shape")
    if fixed:
        return list(fixed)
    wished = d.plan.rest_attributes.get((term.rest, "kernel_shape")) or d.plan.attributes.get(
        term.attrs.get("kernel_shape", "")
    )
    if wished and d.obey and d.rng.random() < 0.8:
        return [wished[0]] * n if not isinstance(wished[0], list) else list(wished[0])
    return d.kernel(n)


def _spatial_rank(d: Draw, term: Term, want: Want) -> int:
    for known in (fixed_attr(d, term, "kernel_shape"), fixed_attr(d, term, "strides")):
        if known:
            return len(known)
    if want.shape is not None and len(want.shape) > 2:
        return len(want.shape) - 2
    hints = [r for c in term.children if c.kind in ("var", "seq") for r in d.plan.ranks.get(c.name, []) if r > 2]
    if hints and d.obey:
        return hints[0] - 2
    return d.rng.choice([1, 2, 2, 2, 2, 3])


def _image(d: Draw, n: int, want: Want, channels: int | None = None) -> tuple[int, ...]:
    batch = want.shape[0] if want.shape and len(want.shape) == n + 2 else d.rng.choice([1, 1, 2])
    space = [d.rng.randint(1, 5 if n < 3 else 3) for _ in range(n)]
    if want.shape and len(want.shape) == n + 2 and d.rng.random() < 0.4:
        space = list(want.shape[2:])
    return (batch, channels or d.rng.choice([1, 2, 2, 3, 4]), *space)


@generator("Conv")
def _conv(d: Draw, term: Term, op: str, want: Want) -> Drawn:
    n = _spatial_rank(d, term, want)
    x_term, w_term = term.children[:2]
    x = d.child(
        x_term, Want(shape=_image(d, n, want)) if x_term.kind != "op" else Want(rank=n + 2, shape=_image(d, n, want))
    )
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
        kernel = _kernel(d, term, n)
        outs = (
            want.shape[1]
            if want.shape and len(want.shape) == n + 2 and want.shape[1] % group == 0
            else group * d.rng.choice([1, 1, 2, 3])
        )
        w = d.child(w_term, Want(shape=(outs, max(channels // group, 1), *kernel), dtype=d.dtype_of(x)))
    attrs = {"group": group, **_window(d, term, op, n, kernel)}
    inputs = [x, w]
    if len(term.children) > 2:
        inputs.append(d.child(term.children[2], Want(shape=(d.shape(w)[0],), dtype=d.dtype_of(x))))
    return inputs, attrs


@generator("ConvTranspose")
def _conv_transpose(d: Draw, term: Term, op: str, want: Want) -> Drawn:
    n = _spatial_rank(d, term, want)
    x = d.child(term.children[0], Want(shape=_image(d, n, want)))
    n, channels = len(d.shape(x)) - 2, d.shape(x)[1]
    divisors = [g for g in range(1, channels + 1) if channels % g == 0]
    group = d.attr(term, op, "group", lambda: 1 if d.rng.random() < 0.6 else d.rng.choice(divisors))
    kernel = _kernel(d, term, n)
    w = d.child(term.children[1], Want(shape=(channels, d.extent(), *kernel), dtype=d.dtype_of(x)))
    attrs = {"group": group, **_window(d, term, op, n, kernel)}
    attrs["pads"] = d.attr(term, op, "pads", lambda: [0] * 2 * n)
    inputs = [x, w]
    if len(term.children) > 2:
        inputs.append(d.child(term.children[2], Want(shape=(group * d.shape(w)[1],), dtype=d.dtype_of(x))))
    return inputs, attrs


@generator("AveragePool", "MaxPool", "LpPool")
def _pool(d: Draw, term: Term, op: str, want: Want) -> Drawn:
    n = _spatial_rank(d, term, want)
    same = want.shape is not None and len(want.shape) == n + 2 and d.rng.random() < 0.7
    channels = want.shape[1] if same and want.shape else None
    x = d.child(term.children[0], Want(shape=_image(d, n, want, channels), rank=n + 2))
    n = len(d.shape(x)) - 2
    if n < 1:
        raise GiveUp
    kernel = _kernel(d, term, n)
    attrs = _window(d, term, op, n, kernel)
    for name, default in _row(op)["defaults"].items():
        if name == "p":
            attrs[name] = d.attr(term, op, name, lambda v=default: v)
        else:
            attrs[name] = d.attr(term, op, name, lambda n=name: int(d.rng.random() < 0.3 and n != "storage_order"))
    pads, kernel_shape = attrs["pads"], attrs["kernel_shape"]
    if any(p >= k for p, k in zip(pads, [*kernel_shape, *kernel_shape], strict=False)):
        raise GiveUp  # runtimes want every window to meet the data
    return [x], attrs


@generator("GlobalAveragePool", "GlobalMaxPool")
def _global_pool(d: Draw, term: Term, op: str, want: Want) -> Drawn:
    n = _spatial_rank(d, term, want)
    return [d.child(term.children[0], Want(shape=_image(d, n, want), rank=n + 2))], {}


@generator("Resize")
def _resize(d: Draw, term: Term, op: str, want: Want) -> Drawn:
    n = _spatial_rank(d, term, want) if d.rng.random() < 0.8 else d.rng.randint(1, 2)
    x = d.child(term.children[0], Want(shape=_image(d, n, want), rank=n + 2))
    rank = len(d.shape(x))
    spatial = d.rng.random() < 0.85
    factors = [1.0 if k < 2 and spatial else float(d.rng.choice([1, 2, 2, 3])) for k in range(rank)]
    attrs: dict[str, Any] = {
        "mode": d.attr(term, op, "mode", lambda: d.rng.choice(["nearest", "nearest", "nearest", "linear"])),
        "coordinate_transformation_mode": d.attr(
            term,
            op,
            "coordinate_transformation_mode",
            lambda: d.rng.choice(["half_pixel", "asymmetric", "align_corners"]),
        ),
        "nearest_mode": d.attr(term, op, "nearest_mode", lambda: d.rng.choice(["round_prefer_floor", "floor", "ceil"])),
    }
    by_scale = "scales" in term.attrs or ("sizes" not in term.attrs and d.rng.random() < 0.7)
    if by_scale:
        attrs["scales"] = d.attr(term, op, "scales", lambda: factors)
    else:
        attrs["sizes"] = d.attr(
            term, op, "sizes", lambda: [int(e * f) for e, f in zip(d.shape(x), factors, strict=True)]
        )
    return [x], attrs


# ---- normalisations, reductions -------------------------------------------------------------------------------------


def _epsilon(d: Draw, term: Term, op: str) -> float:
    return float(d.attr(term, op, "epsilon", lambda: d.rng.choice([2.0**-10, 0.125, 0.5])))


@generator("BatchNormalization", "InstanceNormalization", "GroupNormalization")
def _channel_norm(d: Draw, term: Term, op: str, want: Want) -> Drawn:
    least = 2 if op == "BatchNormalization" else 3
    wish = want.shape if want.shape is not None and len(want.shape) >= least else None
    x = d.child(term.children[0], Want(shape=wish or d.dims(max(least, want.rank or d.rng.choice([2, 3, 4, 4, 4])))))
    if len(d.shape(x)) < least:
        raise GiveUp
    channels = d.shape(x)[1]
    attrs: dict[str, Any] = {"epsilon": _epsilon(d, term, op)}
    if op == "GroupNormalization":
        attrs["num_groups"] = d.attr(
            term, op, "num_groups", lambda: d.rng.choice([g for g in range(1, channels + 1) if channels % g == 0])
        )
    return [x, *(d.child(c, Want(shape=(channels,), dtype=d.dtype_of(x))) for c in term.children[1:])], attrs


@generator("LayerNormalization", "RMSNormalization")
def _layer_norm(d: Draw, term: Term, op: str, want: Want) -> Drawn:
    x = d.child(term.children[0], Want(shape=want.shape or None, least_rank=1, rank=want.rank))
    rank = len(d.shape(x))
    if not rank:
        raise GiveUp
    last = rank - 1
    axis = d.attr(term, op, "axis", lambda: last if d.rng.random() < 0.7 else d.rng.randrange(rank))
    attrs = {"axis": axis, "epsilon": _epsilon(d, term, op)}
    tail = d.shape(x)[axis:]
    shape = tail if d.rng.random() < 0.85 else d.rng.choice([tail[-1:], (1,), d.shape(x)[max(axis - 1, 0) :]])
    return [x, *(d.child(c, Want(shape=shape, dtype=d.dtype_of(x))) for c in term.children[1:])], attrs


@generator("Softmax", "LogSoftmax", "Hardmax", "LpNormalization")
def _along_axis(d: Draw, term: Term, op: str, want: Want) -> Drawn:
    x = d.child(term.children[0], Want(shape=want.shape, least_rank=1, rank=want.rank))
    if not d.shape(x):
        raise GiveUp
    attrs = {"axis": d.attr(term, op, "axis", lambda: d.rng.randrange(len(d.shape(x))))}
    if op == "LpNormalization":
        attrs["p"] = d.attr(term, op, "p", lambda: d.rng.randint(1, 2))
    return [x], attrs


@generator("ArgMax", "ArgMin")
def _arg(d: Draw, term: Term, op: str, want: Want) -> Drawn:
    x = d.child(term.children[0], Want(least_rank=1))
    return [x], {
        "axis": d.attr(term, op, "axis", lambda: d.rng.randrange(max(1, len(d.shape(x))))),
        "keepdims": d.attr(term, op, "keepdims", lambda: d.rng.randint(0, 1)),
        "select_last_index": d.attr(term, op, "select_last_index", lambda: 0),
    }


def _reduce(d: Draw, term: Term, op: str, want: Want) -> Drawn:
    x = d.child(term.children[0], Want(shape=want.shape, least_rank=max(1, want.least_rank), rank=want.rank))
    rank = len(d.shape(x))
    if not rank:
        raise GiveUp

    def axes() -> list[int]:
        if d.rng.random() < 0.3:
            return list(range(2, rank)) or [rank - 1]
        if d.rng.random() < 0.4:
            return [rank - 1]
        return sorted(d.rng.sample(range(rank), d.rng.randint(1, rank)))

    return [x], {
        "axes": d.attr(term, op, "axes", axes),
        "keepdims": d.attr(term, op, "keepdims", lambda: d.rng.randint(0, 1)),
    }


@generator("CumSum")
def _cumsum(d: Draw, term: Term, op: str, want: Want) -> Drawn:
    x = d.child(term.children[0], Want(least_rank=1))
    axis = d.child(term.children[1], Want(shape=(), dtype=7, index_below=max(1, len(d.shape(x)))))
    return [x, axis], {n: d.attr(term, op, n, lambda: d.rng.randint(0, 1)) for n in ("exclusive", "reverse")}
