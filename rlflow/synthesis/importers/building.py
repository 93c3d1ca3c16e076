"""What a foreign term computes at given shapes, as a graph of ours: TASO's own shape rules, its inferred groups, SAME
padding, splits that undo the concatenation they follow, and constants such as the identity matrix.

A fused activation is a node of its own, Enlarge is a Pad, a pooling constant a weight.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rlflow import _core
from rlflow.errors import GraphError
from rlflow.synthesis.field import key_of
from rlflow.synthesis.importers.foreign import ACTIVATIONS, OUTPUT, SAME, VARIABLE, ForeignTerm

F32 = 1
Shape = tuple[int, ...]
#: Operators that are one node of ours on the same operands.
PLAIN = {
    "relu": "Relu", "sigmoid": "Sigmoid", "tanh": "Tanh", "ewadd": "Add", "ewmul": "Mul", "ewsub": "Sub",
    "ewdiv": "Div", "ewmax": "Max", "ewmin": "Min", "ewequal": "Equal", "ewgreater": "Greater", "ewless": "Less",
    "ceil": "Ceil", "exp": "Exp", "round": "Round", "log": "Log", "sqrt": "Sqrt", "logical_not": "Not",
    "prelu": "PRelu", "batchnorm": "BatchNormalization", "where": "Where",
}  # fmt: skip
REDUCTIONS = {f"reduce_{word}": f"Reduce{word.capitalize()}" for word in ("max", "mean", "min", "prod", "sum")}
ELEMENTWISE = frozenset(name for name in PLAIN if name.startswith("ew"))
#: Why a rule with one of these is refused.
INEXPRESSIBLE = {
    "input": "an Input node inside a rule has no shape",
    "weight": "a Weight node inside a rule has no elements",
    "any": "the operator ANY stands for every operator at once",
    "linear": "the file does not say which bias and layout LINEAR means",
    "reshape": "the file does not hold the new shape of RESHAPE",
    "pad": "the file does not hold the widths of PAD",
    "shape": "SHAPE gives integers, and TASO's rules are about float tensors",
    "size": "SIZE gives integers, and TASO's rules are about float tensors",
    "topk": "the file does not hold the count of TOPK",
    "cast": "the file does not hold the type of CAST",
    "slice": "the file does not hold the bounds of SLICE",
    "resize": "the file does not hold the scales of RESIZE",
    "leakyrelu": "the file does not hold the slope of LEAKYRELU",
    "reduce_argmax": "REDUCE_ARGMAX gives integers, and TASO's rules are about float tensors",
    "reduce_argmin": "REDUCE_ARGMIN gives integers, and TASO's rules are about float tensors",
    "merge_gconv": "MERGE_GCONV means a weight that depends on the groups of a convolution it does not name",
    "fuse_conv_batchnorm": "FUSE_CONV_BATCHNORM is a kernel of TASO's own (rlflow folds normalisations by its rules)",
    "fuse_conv_batchnorm_alpha_var": "FUSE_CONV_BATCHNORM_ALPHA_VAR is a kernel of TASO's own",
    "fuse_conv_batchnorm_bias": "FUSE_CONV_BATCHNORM_BIAS is a kernel of TASO's own",
    "broadcast_add": "BROADCAST_ADD reads a bias of rank 1 along the channels, whose rank the file does not give",
}


class Mismatch(Exception):  # noqa: N818 - said of one drawing, not an error
    """TASO's shape rules do not admit the term at these shapes."""


class Inexpressible(Exception):  # noqa: N818 - said of one rule
    """Our operators cannot say the term."""


def permutation(term: ForeignTerm) -> list[int]:
    """The axes of a Transpose: digits of its number in base rank; without a number, the two axes swapped."""
    rank, number = term.number("rank", 2), term.get("perm")
    if number is None:
        return [1, 0]
    if term.get("rank") is None:  # Tensat's 1_0_2 has its rank in its digits; the smallest base in which it is one
        ranks = [n for n in range(1, 7) if sorted(_digits(number, n)) == list(range(n))]
        rank = ranks[0] if ranks else 2
    perm = _digits(number, rank)
    if sorted(perm) != list(range(rank)):
        raise Inexpressible(f"TRANSPOSE by {number} of rank {rank} is no permutation")
    return perm


def _digits(number: int, base: int) -> list[int]:
    digits = []
    for _ in range(base):
        number, digit = divmod(number, base) if base > 1 else (0, number)
        digits.append(digit)
    return digits[::-1]


def pads_of(size: Sequence[int], kernel: Sequence[int], stride: Sequence[int], mode: int) -> list[int]:
    """Explicit pads of TASO's SAME or VALID: where the total is odd, the extra row comes first, as in its kernels."""
    if mode != SAME:
        return [0] * 2 * len(kernel)
    total = [max(k - s, 0) if n % s == 0 else max(k - n % s, 0) for n, k, s in zip(size, kernel, stride, strict=True)]
    return [(t + 1) // 2 for t in total] + [t // 2 for t in total]


def padding_counted(terms: Sequence[ForeignTerm]) -> bool:
    """Whether a mean over windows can be told from one that counts the padding."""
    return any(t.op == "poolavg" and t.number("pad") == SAME for side in terms for t in side.walk())


@dataclass(frozen=True)
class Conventions:
    """``constants``: variables that are weights. ``channels``: extent of the identity matrices and kernels.
    ``count_pad``: a mean over windows counts the padding (TASO's kernel does not). ``equal_shapes``: elementwise
    operands have one shape. ``groups``: convolutions with groups are admitted."""

    constants: frozenset[str] = frozenset()
    channels: int = 1
    count_pad: bool = False
    equal_shapes: bool = False
    groups: bool = True


def _digest(*parts: object) -> str:
    """A constant's digest; it covers the shape, because equal digests mean equal constants."""
    return f"{key_of(*parts, 0):016x}{key_of(*parts, 1):016x}"


class Maker:
    """Builds terms over variables of given shapes, in one graph."""

    def __init__(self, names: Sequence[str], shapes: dict[str, Shape], settings: Conventions) -> None:
        self.builder = _core.GraphBuilder()
        self.settings = settings
        self.made: dict[ForeignTerm, int] = {}
        self.cuts: dict[int, dict[int, Shape]] = {}  # value -> axis -> sizes of the two parts joined there
        self.convolutions: list[tuple[int, int]] = []  # (operands' values) of each, for readings
        for name in names:
            if name in settings.constants:
                digest = _digest(name, shapes[name])
                value = self.builder.constant(F32, list(shapes[name]), digest, None, None)
            else:
                value = self.builder.input(name, F32, list(shapes[name]))
            self.made[ForeignTerm(VARIABLE, name=name)] = value

    def shape(self, value: int) -> Shape:
        return tuple(self.builder.shape(value))

    def add(self, op: str, attributes: dict[str, object], operands: Sequence[int], outputs: int = 0) -> int:
        try:
            return int(self.builder.add(op, attributes, list(operands), outputs))
        except GraphError as error:
            raise Mismatch(str(error)) from error

    def term(self, term: ForeignTerm) -> int:
        """The value of a term; a repeated term is one value."""
        if term not in self.made:
            self.made[term] = self._build(term)
        return self.made[term]

    def graph(self, terms: Sequence[ForeignTerm]) -> _core.Graph:
        """The graph that yields the terms."""
        return self.builder.finish([self.term(t) for t in terms])

    def _build(self, term: ForeignTerm) -> int:
        operands = [self.term(t) for t in term.operands]
        if term.op in INEXPRESSIBLE:
            raise Inexpressible(INEXPRESSIBLE[term.op])
        if term.op in PLAIN:
            return self._plain(term, operands)
        if term.op in REDUCTIONS:
            return self._reduction(term, operands[0])
        special = _SPECIAL.get(term.op)
        if special is None:
            raise Inexpressible(f"the operator {term.op} is not known")
        value = special(self, term, operands)
        activation = ACTIVATIONS.get(term.number("acti"))
        if activation is None:
            raise Inexpressible(f"activation {term.number('acti')} does not exist")
        if not activation:
            return value
        active = self.add(activation, {}, [value])
        self.cuts[active] = self.cuts.get(value, {})
        return active

    def _plain(self, term: ForeignTerm, operands: list[int]) -> int:
        if term.op in ELEMENTWISE and self.settings.equal_shapes:
            shapes = {self.shape(v) for v, t in zip(operands, term.operands, strict=True) if not _is_ones(t)}
            if len(shapes) > 1:
                raise Mismatch("shapes differ")
        value = self.add(PLAIN[term.op], {}, operands)
        if all(self.shape(v) == self.shape(value) for v in operands):
            found = [self.cuts.get(v, {}) for v in operands]
            self.cuts[value] = {a: c for a, c in found[0].items() if all(other.get(a) == c for other in found)}
        return value

    def _reduction(self, term: ForeignTerm, operand: int) -> int:
        number = term.number("axes")
        axes = [a for a in range(8) if number >> a & 1]
        return self.add(REDUCTIONS[term.op], {"axes": axes, "keepdims": term.number("keepdims", 1)}, [operand])

    def literal(self, shape: Shape, values: Sequence[float]) -> int:
        """A small constant."""
        return int(self.builder.constant(F32, list(shape), _digest(shape, list(values)), list(values), None))

    def identity(self) -> int:
        """The identity matrix [C, C], as rules write it."""
        n = self.settings.channels
        return self.add("EyeLike", {}, [self.literal((n, n), [1.0] * (n * n))])

    def identity_kernel(self, kernel: Sequence[int], mean: bool) -> int:
        """The weight [C, C, h, w] whose convolution is the identity, or the mean over windows."""
        points = self.add("Unsqueeze", {"axes": [2, 3]}, [self.identity()])
        if not mean:
            first, last = [k // 2 for k in kernel], [(k - 1) // 2 for k in kernel]
            return self.add("Pad", {"pads": [0, 0, *first, 0, 0, *last], "value": 0.0}, [points])
        spread = self.add("Expand", {"shape": [self.settings.channels] * 2 + list(kernel)}, [points])
        return self.add("Div", {}, [spread, self.literal((), [float(kernel[0] * kernel[1])])])


def _matmul(maker: Maker, term: ForeignTerm, operands: list[int]) -> int:
    a, b = (maker.shape(v) for v in operands)
    if len(a) != len(b) or len(a) < 2 or a[:-2] != b[:-2] or a[-1] != b[-2]:
        raise Mismatch("matmul: ranks, batches or inner extents differ")
    value = maker.add("MatMul", {}, operands)
    rows, columns = (maker.cuts.get(v, {}) for v in operands)
    last = len(a) - 1
    maker.cuts[value] = {
        **({last - 1: rows[last - 1]} if last - 1 in rows else {}),
        **({last: columns[last]} if last in columns else {}),
    }
    return value


def _concat(maker: Maker, term: ForeignTerm, operands: list[int]) -> int:
    axis, shapes = term.number("axis"), [maker.shape(v) for v in operands]
    rank = term.number("rank", len(shapes[0]))
    if any(len(s) != rank for s in shapes) or not 0 <= axis < rank:
        raise Mismatch("concat: ranks differ")
    if len({(*s[:axis], *s[axis + 1 :]) for s in shapes}) > 1:
        raise Mismatch("concat: extents differ beside the axis")
    value = maker.add("Concat", {"axis": axis}, operands)
    found = [maker.cuts.get(v, {}) for v in operands]
    kept = {a: c for a, c in found[0].items() if a != axis and all(other.get(a) == c for other in found)}
    maker.cuts[value] = {**kept, axis: tuple(s[axis] for s in shapes)}
    return value


def _split(maker: Maker, term: ForeignTerm, operands: list[int]) -> int:
    axis = term.number("axis")
    sizes = maker.cuts.get(operands[0], {}).get(axis)
    if sizes is None:
        raise Inexpressible(f"a split along axis {axis} undoes no concatenation: its sizes are not known")
    return maker.add("Split", {"axis": axis, "split": list(sizes)}, operands, len(sizes))


def _output(maker: Maker, term: ForeignTerm, operands: list[int]) -> int:
    return operands[0] + term.number("index")


def _convolution(maker: Maker, term: ForeignTerm, operands: list[int]) -> int:
    x, w = (maker.shape(v) for v in operands)
    if len(x) != 4 or len(w) != 4 or x[1] % w[1]:
        raise Mismatch("conv2d: ranks or channels differ")
    group = x[1] // w[1]
    if w[0] % group or (group > 1 and not maker.settings.groups):
        raise Mismatch("conv2d: groups")
    kernel, stride = list(w[2:]), [term.number("stride_h", 1), term.number("stride_w", 1)]
    if term.number("pad") == SAME and any(k % 2 == 0 for k in kernel):
        raise Mismatch("conv2d: SAME with an even kernel")
    pads = pads_of(x[2:], kernel, stride, term.number("pad"))
    attributes = {"group": group, "kernel_shape": kernel, "strides": stride, "pads": pads, "dilations": [1, 1]}
    value = maker.add("Conv", attributes, operands)
    maker.convolutions.append((operands[0], operands[1]))
    batch, channels = maker.cuts.get(operands[0], {}).get(0), maker.cuts.get(operands[1], {}).get(0)
    maker.cuts[value] = {**({0: batch} if batch else {}), **({1: channels} if channels else {})}
    return value


def _pool(maker: Maker, term: ForeignTerm, operands: list[int]) -> int:
    x = maker.shape(operands[0])
    if len(x) != 4:
        raise Mismatch("pool2d: rank")
    kernel = [term.number("kernel_h", 1), term.number("kernel_w", 1)]
    stride = [term.number("stride_h", 1), term.number("stride_w", 1)]
    attributes: dict[str, object] = {
        "kernel_shape": kernel, "strides": stride, "pads": pads_of(x[2:], kernel, stride, term.number("pad")),
    }  # fmt: skip
    if term.op == "poolmax":
        return maker.add("MaxPool", attributes, operands)
    return maker.add("AveragePool", {**attributes, "count_include_pad": int(maker.settings.count_pad)}, operands)


def _transpose(maker: Maker, term: ForeignTerm, operands: list[int]) -> int:
    perm = permutation(term)
    if len(maker.shape(operands[0])) != len(perm):
        raise Mismatch("transpose: rank")
    value = maker.add("Transpose", {"perm": perm}, operands)
    found = maker.cuts.get(operands[0], {})
    maker.cuts[value] = {k: found[a] for k, a in enumerate(perm) if a in found}
    return value


def _scaled(maker: Maker, term: ForeignTerm, operands: list[int]) -> int:
    if maker.shape(operands[1]):
        raise Mismatch("smul: the factor is no scalar")
    value = maker.add("Mul", {}, operands)
    maker.cuts[value] = maker.cuts.get(operands[0], {})
    return value


def _enlarged(maker: Maker, term: ForeignTerm, operands: list[int]) -> int:
    w = maker.shape(operands[0])
    to = maker.shape(operands[1])[2:] if len(operands) > 1 else (term.number("kernel_h"), term.number("kernel_w"))
    if len(w) != 4 or len(to) != 2 or any(t < k or (t - k) % 2 for t, k in zip(to, w[2:], strict=True)):
        raise Mismatch("enlarge: the kernel does not fit")
    half = [(t - k) // 2 for t, k in zip(to, w[2:], strict=True)]
    if not any(half):
        return operands[0]
    value = maker.add("Pad", {"pads": [0, 0, *half, 0, 0, *half], "value": 0.0}, operands[:1])
    maker.cuts[value] = {a: c for a, c in maker.cuts.get(operands[0], {}).items() if a < 2}
    return value


def _moved(op: str) -> Callable[[Maker, ForeignTerm, list[int]], int]:
    def build(maker: Maker, term: ForeignTerm, operands: list[int]) -> int:
        axes = [a for a in range(8) if term.number("axes") >> a & 1]
        return maker.add(op, {"axes": axes}, operands)

    return build


def _same(maker: Maker, term: ForeignTerm, operands: list[int]) -> int:
    return operands[0]


def _kernel(maker: Maker, term: ForeignTerm, operands: list[int]) -> int:
    kernel = [term.number("kernel_h", 1), term.number("kernel_w", 1)]
    return maker.identity_kernel(kernel, term.op == "Cpool")


def _matrix(maker: Maker, term: ForeignTerm, operands: list[int]) -> int:
    return maker.identity() if term.op == "Imatmul" else maker.literal((), [1.0])  # a tensor of ones, broadcast


def _is_ones(term: ForeignTerm) -> bool:
    return any(t.op == "Iewmul" for t in term.walk())


_SPECIAL: dict[str, Callable[[Maker, ForeignTerm, list[int]], int]] = {
    "matmul": _matmul, "concat": _concat, "split": _split, OUTPUT: _output, "conv2d": _convolution,
    "poolmax": _pool, "poolavg": _pool, "transpose": _transpose, "smul": _scaled, "enlarge": _enlarged,
    "dropout": _same, "Iconv": _kernel, "Cpool": _kernel, "Imatmul": _matrix, "Iewmul": _matrix,
    "squeeze": _moved("Squeeze"), "unsqueeze": _moved("Unsqueeze"),
}  # fmt: skip
