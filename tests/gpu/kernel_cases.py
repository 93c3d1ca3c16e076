"""Every kernel of our own beside numpy: what a case launches, and what must come out.

A kernel's parameters are a row of 64-bit numbers, as in ``cext/src/cudnn/kernel_types.h``; their names and values are
read from there. A case says in which blocks, and in which orders of threads, it is launched.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

TYPES = Path(__file__).resolve().parents[2] / "cext" / "src" / "cudnn" / "kernel_types.h"
MAX_DIMS, MAX_INS, MAX_OUTS, MAX_CODE = 6, 14, 4, 56
GIVEN = -1
#: Orders of blocks, warps and lanes: see fake/blocks.h.
ORDERS = ("forward", "reverse", "7")
#: Blocks, and threads in each, for kernels whose threads do not meet.
APART = ((1, 32, "forward"), (3, 256, "reverse"), (2, 64, "7"))
#: For kernels whose threads meet: one block goes through all the work, or some share it.
TOGETHER = (
    *((grid, threads, order) for grid, threads in ((1, 96), (2, 256)) for order in ORDERS),
    (1, 32, "7"),
    (1, 1024, "reverse"),
)


def _names(first: str) -> dict[str, int]:
    """An enumeration of kernel_types.h, found by its first name."""
    text = TYPES.read_text(encoding="utf-8")
    body = next(
        body for body in re.findall(r"enum \w+ : long long \{([^}]*)\}", text) if f"{first}" in body.split(",")[0]
    )
    found: dict[str, int] = {}
    for number, entry in enumerate(body.split(",")):
        name, _, value = (part.strip() for part in entry.partition("="))
        found[name] = int(value) if value else number
    return found


KIND, CODE, REDUCTION = _names("kF32"), _names("kConst"), _names("kSum")
#: How numpy holds a kind; kBF16 is held as its 16 bits.
NUMPY: dict[str, Any] = {
    "kF32": np.float32, "kF16": np.float16, "kBF16": np.uint16, "kF64": np.float64, "kI64": np.int64, "kI32": np.int32,
    "kI16": np.int16, "kI8": np.int8, "kU64": np.uint64, "kU32": np.uint32, "kU16": np.uint16, "kU8": np.uint8,
    "kBool": np.uint8,
}  # fmt: skip


@dataclass(frozen=True)
class Case:
    """One kernel with its parameters. ``outs``: what must be there afterwards; ``sizes``: what is GIVEN at launch."""

    name: str
    kernel: str
    fixed: list[int]
    ins: list[np.ndarray]
    outs: list[np.ndarray]
    launches: Sequence[tuple[int, int, str]] = APART
    tolerance: float = 1e-5
    sizes: Sequence[int] = ()


def bits(value: float) -> int:
    """A double as the number that a kernel is told."""
    return int(np.float64(value).view(np.int64))


def padded(values: Sequence[int], length: int = MAX_DIMS) -> list[int]:
    return [*values, *[0] * (length - len(values))]


def strides(shape: Sequence[int]) -> list[int]:
    return [math.prod(shape[i + 1 :]) for i in range(len(shape))]


def random(shape: Sequence[int], kind: str = "kF32", seed: int = 0) -> np.ndarray:
    generator = np.random.default_rng(seed + len(shape))
    if NUMPY[kind] in (np.float16, np.float32, np.float64):
        return generator.standard_normal(shape).astype(NUMPY[kind])
    low, high = (0, 2) if kind == "kBool" else (1, 100)
    values = generator.integers(low, high, shape)
    return to_brain(values) if kind == "kBF16" else values.astype(NUMPY[kind])


def to_brain(values: np.ndarray) -> np.ndarray:
    """The 16 bits of the nearest bfloat16, ties to even."""
    words = np.asarray(values, np.float32).view(np.uint32).astype(np.uint64)
    return ((words + 0x7FFF + ((words >> 16) & 1)) >> 16).astype(np.uint16)


def from_brain(values: np.ndarray) -> np.ndarray:
    return (values.astype(np.uint32) << 16).view(np.float32)


# --- pointwise --------------------------------------------------------------------------------------------------------


def pointwise(
    shape: Sequence[int],
    ins: Sequence[tuple[str, Sequence[int], int]],
    outs: Sequence[tuple[str, int]],
    code: Sequence[tuple[str, int, int, int, float]],
    wide: bool = False,
    lanes: int = 1,
) -> list[int]:
    """Operands are (kind, strides, offset), results (kind, register), instructions (code, a, b, c, number)."""
    fixed = [math.prod(shape), int(wide), lanes, len(shape), *padded(shape), len(ins), len(outs), len(code)]
    for number in range(MAX_INS):
        kind, stride, offset = ins[number] if number < len(ins) else ("kF32", (), 0)
        fixed += [KIND[kind] if number < len(ins) else 0, offset, *padded(stride)]
    for number in range(MAX_OUTS):
        used = number < len(outs)
        fixed += [KIND[outs[number][0]] if used else 0, 0, *padded(strides(shape) if used else ())]
    fixed += padded([register for _, register in outs], MAX_OUTS)
    for number in range(MAX_CODE):
        op, a, b, c, value = code[number] if number < len(code) else ("kConst", 0, 0, 0, 0.0)
        fixed += [CODE[op], a, b, c, bits(value)]
    return fixed


def _erf(x: np.ndarray) -> np.ndarray:
    return np.vectorize(math.erf)(x)


UNARY: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "kAbs": np.abs, "kNeg": np.negative, "kExp": np.exp, "kLog": lambda x: np.log(np.abs(x)), "kSqrt": np.sqrt,
    "kRecip": np.reciprocal, "kErf": _erf, "kTanh": np.tanh, "kSigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "kFloor": np.floor, "kCeil": np.ceil, "kRound": np.rint, "kSign": np.sign, "kSin": np.sin, "kCos": np.cos,
    "kTan": np.tan, "kAsin": np.arcsin, "kAcos": np.arccos, "kAtan": np.arctan, "kSinh": np.sinh, "kCosh": np.cosh,
    "kAsinh": np.arcsinh, "kAcosh": np.arccosh, "kAtanh": np.arctanh, "kNot": lambda x: x == 0,
    "kIsNan": np.isnan, "kSoftplus": lambda x: np.log1p(np.exp(x)), "kTrunc": np.trunc, "kToBool": lambda x: x != 0,
    "kToHalf": lambda x: x.astype(np.float16), "kToBFloat": lambda x: from_brain(to_brain(x)),
}  # fmt: skip
BINARY: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "kAdd": np.add, "kSub": np.subtract, "kMul": np.multiply, "kDiv": np.divide, "kPow": np.power, "kMax": np.maximum,
    "kMin": np.minimum, "kMod": np.mod, "kFmod": np.fmod, "kIntDiv": lambda a, b: np.trunc(a / b),
    "kAnd": lambda a, b: (a != 0) & (b != 0), "kOr": lambda a, b: (a != 0) | (b != 0),
    "kXor": lambda a, b: (a != 0) ^ (b != 0), "kEq": np.equal, "kGt": np.greater, "kGe": np.greater_equal,
    "kLt": np.less, "kLe": np.less_equal,
}  # fmt: skip
#: Where a function is not defined everywhere: what its operand is drawn from.
DOMAIN = {"kSqrt": (0.0, 4.0), "kRecip": (0.5, 4.0), "kAsin": (-1.0, 1.0), "kAcos": (-1.0, 1.0), "kAcosh": (1.0, 4.0),
          "kAtanh": (-0.9, 0.9), "kPow": (0.2, 3.0), "kLog": (0.1, 5.0)}  # fmt: skip


def operations() -> Iterator[Case]:
    """Each operation alone, over values with zeros and equal pairs among them."""
    shape = (5, 7)
    generator = np.random.default_rng(3)
    for op in [*UNARY, *BINARY]:
        low, high = DOMAIN.get(op, (-3.0, 3.0))
        x, y = (generator.uniform(low, high, shape).astype(np.float32) for _ in range(2))
        if op not in DOMAIN:
            x[0, :3] = 0.0
        y[1] = x[1]
        if op in ("kDiv", "kMod", "kFmod", "kIntDiv"):
            y = np.where(np.abs(y) < 0.3, np.float32(0.7), y).astype(np.float32)
        if op in ("kIsNan", "kMax", "kMin"):
            x[2, 2] = np.nan
        right = UNARY[op](x) if op in UNARY else BINARY[op](x, y)
        flat = [("kF32", strides(shape), 0)] * 2
        fixed = pointwise(shape, flat, [("kF32", 2)], [(op, 0, 1, 0, 0.0)])
        yield Case(f"pointwise {op}", "Pointwise", fixed, [x, y], [right.astype(np.float32)], APART[1:2])


def chains() -> Iterator[Case]:
    shape = (3, 5, 70)
    x, row, plane = random(shape), random((70,), seed=1), random((3, 5), seed=2)
    code = [("kMul", 0, 1, 0, 0.0), ("kConst", 0, 0, 0, 0.25), ("kAdd", 3, 2, 0, 0.0), ("kSub", 5, 4, 0, 0.0),
            ("kGt", 6, 4, 0, 0.0), ("kSelect", 6, 3, 7, 0.0)]  # fmt: skip
    product = x * row
    end = product + plane[..., None] - np.float32(0.25)
    chosen = np.where(end > 0.25, end, product)
    ins = [("kF32", strides(shape), 0), ("kF32", (0, 0, 1), 0), ("kF32", (5, 1, 0), 0)]
    fixed = pointwise(shape, ins, [("kF32", 8), ("kBool", 7)], code)
    yield Case(
        "pointwise chain of two results", "Pointwise", fixed, [x, row, plane], [chosen, (end > 0.25).astype(np.uint8)]
    )
    backwards = [("kF32", (-1,), 41)]
    fixed = pointwise((42,), backwards, [("kF32", 1)], [("kNeg", 0, 0, 0, 0.0)])
    line = random((42,))
    yield Case("pointwise from an offset, backwards", "Pointwise", fixed, [line], [-line[::-1]])
    six = (2, 3, 2, 3, 2, 3)
    x = random(six)
    turned = x.transpose(5, 4, 3, 2, 1, 0)
    fixed = pointwise(turned.shape, [("kF32", strides(six)[::-1], 0)], [("kF32", 1)], [("kAbs", 0, 0, 0, 0.0)])
    yield Case("pointwise with six axes", "Pointwise", fixed, [x], [np.abs(turned)])
    infinite = np.array([np.inf, -np.inf, np.nan, 1, 0], np.float32)
    for how, right in ((1, [1, 0, 0, 0, 0]), (2, [0, 1, 0, 0, 0]), (3, [1, 1, 0, 0, 0])):
        fixed = pointwise((5,), [("kF32", (1,), 0)], [("kF32", 1)], [("kIsInf", 0, 0, 0, float(how))])
        yield Case(f"pointwise is infinite, {how}", "Pointwise", fixed, [infinite], [np.array(right, np.float32)])


def types() -> Iterator[Case]:
    """Every kind is read and written, and becomes every other."""
    for kind in NUMPY:
        x = random((67,), kind)
        values = from_brain(x) if kind == "kBF16" else x
        for wide in (False, True):
            code = [("kConst", 0, 0, 0, 2.0), ("kDiv", 0, 1, 0, 0.0)]
            fixed = pointwise((67,), [(kind, (1,), 0)], [("kF64", 2), (kind, 0)], code, wide)
            right = (
                (values / 2).astype(np.float64)
                if wide
                else (values.astype(np.float32) / np.float32(2)).astype(np.float64)
            )
            yield Case(f"pointwise of {kind}{', wide' if wide else ''}", "Pointwise", fixed, [x], [right, x])
    exact = np.array(
        [1.0, -2.5, 65519.0, 65520.0, 1e-7, 3e-8, 2e-8, 0.1, np.inf, 2049.0, 2051.0, 1.00390625, 1.01171875], np.float32
    )
    with np.errstate(over="ignore"):
        half = exact.astype(np.float16)
    fixed = pointwise(exact.shape, [("kF32", (1,), 0)], [("kF16", 0), ("kBF16", 0)], [("kConst", 0, 0, 0, 0.0)])
    yield Case("half floats round to even", "Pointwise", fixed, [exact], [half, to_brain(exact)], tolerance=0.0)


def lanes() -> Iterator[Case]:
    """Four neighbours at a time: every kind, rows that stay, a column, an offset; and a count that is given."""
    for kind in NUMPY:
        x = random((3, 28), kind)
        values = from_brain(x) if kind == "kBF16" else x
        for wide in (False, True):
            code = [("kConst", 0, 0, 0, 2.0), ("kDiv", 0, 1, 0, 0.0)]
            fixed = pointwise((84,), [(kind, (1,), 0)], [("kF64", 2), (kind, 0)], code, wide, lanes=4)
            right = (values if wide else values.astype(np.float32)).astype(np.float64) / 2
            name = f"pointwise of {kind}, four at a time{', wide' if wide else ''}"
            yield Case(name, "Pointwise", fixed, [x], [right, x])
    x, row, column = random((5, 3, 24)), random((24,), seed=1), random((5, 1, 1), seed=2)
    sums = [("kAdd", 0, 1, 0, 0.0), ("kMul", 3, 2, 0, 0.0)]
    ins = [("kF32", strides(x.shape), 0), ("kF32", (0, 0, 1), 0), ("kF32", (1, 0, 0), 0)]
    fixed = pointwise(x.shape, ins, [("kF32", 4), ("kF16", 3)], sums, lanes=4)
    right = [(x + row) * column, (x + row).astype(np.float16)]
    name = "pointwise of rows and columns, four at a time"
    yield Case(name, "Pointwise", fixed, [x, row, column], right, tolerance=1e-3)
    fixed = pointwise((5, 12), [("kF32", (72, 1), 8)], [("kF32", 1)], [("kNeg", 0, 0, 0, 0.0)], lanes=4)
    cut = x.reshape(5, 72)[:, 8:20]
    yield Case("pointwise from an offset, four at a time", "Pointwise", fixed, [x], [-cut])
    for number in (1, 4):
        fixed = pointwise((360,), [("kF32", (1,), 0)], [("kF32", 1)], [("kNeg", 0, 0, 0, 0.0)], lanes=number)
        name = f"pointwise of as many as are given, {number} at a time"
        yield Case(name, "Pointwise", [GIVEN, *fixed[1:]], [x.reshape(-1)], [-x.reshape(-1)], sizes=(360,))


# --- movement ---------------------------------------------------------------------------------------------------------


def transpositions() -> Iterator[Case]:
    for kind in ("kU8", "kF16", "kF32", "kF64"):
        for batch, rows, columns in ((1, 32, 32), (2, 45, 70), (3, 1, 33), (1, 65, 2)):
            x = random((batch, rows, columns), kind)
            fixed = [x.itemsize, batch, rows, columns]
            name = f"transposition of {batch} x {rows} x {columns}, {kind}"
            launches = TOGETHER if kind == "kF32" else TOGETHER[1:4]
            yield Case(name, "Transposition", fixed, [x], [x.transpose(0, 2, 1)], launches)
            given = [x.itemsize, GIVEN, GIVEN, GIVEN]
            yield Case(
                f"{name}, as it is launched", "Transposition", given, [x], [x.transpose(0, 2, 1)], launches[:1],
                sizes=(batch, rows, columns),
            )  # fmt: skip


def gathers() -> Iterator[Case]:
    for kind in ("kU8", "kF16", "kF32", "kI64"):
        table = random((3, 9, 4), kind)
        for index_kind in ("kI64", "kI32"):
            index = np.array([0, -1, 8, 3, -9, 9, 99, -10, -99], NUMPY[index_kind])
            right = table[:, np.clip(np.where(index < 0, index + 9, index), 0, 8)]
            fixed = [table.itemsize, KIND[index_kind], 3, 9, 4, index.size]
            yield Case(f"gather of {kind} by {index_kind}", "Gathering", fixed, [table, index], [right])


def joinings() -> Iterator[Case]:
    """Put together and cut apart, in units of every size."""
    of = (("kU8", (3, 5), 4), ("kF16", (1, 4, 2), 3), ("kF32", (7, 2), 1), ("kF64", (2, 3, 1), 5))
    for kind, lengths, outer in of:
        parts = [random((outer, length), kind, seed) for seed, length in enumerate(lengths)]
        for wider in (1, 16 // parts[0].itemsize):  # the parts in units of their own, and of sixteen bytes
            pieces = [np.repeat(part, wider, axis=1) for part in parts]
            whole = np.concatenate(pieces, axis=1)
            ends = np.cumsum(lengths).tolist()
            unit = parts[0].itemsize * wider
            shape = [outer, ends[-1], len(ends), *padded(ends, MAX_INS)]
            name = f"of {len(ends)} parts, {outer} times, {kind}, units of {unit}"
            yield Case(f"joining {name}", "Joining", [unit, 0, *shape], pieces, [whole])
            yield Case(f"parting {name}", "Joining", [unit, 1, *shape], [whole], pieces)


def remappings() -> Iterator[Case]:
    x = random((4, 6))
    rows, columns = np.array([3, -1, 0, 2, 2], np.int32), np.array([-1, 5, 0, 1, -1, 4, 2], np.int32)
    picked = x[np.clip(rows, 0, None)][:, np.clip(columns, 0, None)]
    inside = (rows[:, None] >= 0) & (columns[None, :] >= 0)
    table = np.concatenate([np.where(rows < 0, -1, rows * 6), columns]).astype(np.int32)
    for kind in ("kF32", "kI8", "kF64"):
        source = x if kind == "kF32" else (x * 20).astype(NUMPY[kind])
        right = np.where(inside, picked if kind == "kF32" else (picked * 20).astype(NUMPY[kind]), NUMPY[kind](7))
        fixed = [KIND[kind], 35, 2, *padded((5, 7)), *padded((0, 5)), bits(7.0)]
        yield Case(f"remapping of {kind}", "Remapping", fixed, [source, table], [right.astype(NUMPY[kind])])


# --- reductions -------------------------------------------------------------------------------------------------------

REDUCED: dict[str, Callable[[np.ndarray], Any]] = {
    "kSum": np.sum, "kMean": np.mean, "kMaximum": np.max, "kMinimum": np.min, "kProduct": np.prod,
    "kL1": lambda v: np.abs(v).sum(), "kL2": lambda v: np.sqrt((v * v).sum()), "kLogSum": lambda v: np.log(v.sum()),
    "kLogSumExp": lambda v: np.log(np.exp(v).sum()), "kSumSquare": lambda v: (v * v).sum(), "kArgMax": np.argmax,
    "kArgMin": np.argmin, "kArgMaxLast": lambda v: v.size - 1 - np.argmax(v[::-1]),
    "kArgMinLast": lambda v: v.size - 1 - np.argmin(v[::-1]),
}  # fmt: skip
#: Those for which a warp or a block can make one output.
TOGETHER_MADE = ("kSum", "kMean", "kMaximum", "kMinimum", "kL1", "kL2", "kLogSum", "kSumSquare")


MADE_BY = {1: "", 32: ", a warp each", GIVEN: ", a block each"}


def reductions() -> Iterator[Case]:
    shape = (5, 3, 11)
    for kind, reduce in REDUCED.items():
        x = np.abs(random(shape)) + np.float32(0.5) if kind in ("kLogSum", "kProduct") else random(shape)
        x[:, :, 7] = x[:, :, 9]
        if kind == "kProduct":
            x = np.clip(x, 0.8, 1.2)
        middle = np.array([reduce(x[a, :, c].astype(np.float64)) for a in range(5) for c in range(11)])
        rest = np.array([reduce(x[:, b].reshape(-1).astype(np.float64)) for b in range(3)])
        for together in (1, 32, GIVEN) if kind in TOGETHER_MADE else (1,):
            for right, kept, reduced in (
                (middle, ((5, 33), (11, 1)), ((3, 11),)),
                (rest, ((3, 11),), ((5, 33), (11, 1))),
            ):
                fixed = _reducing(kind, "kF32", "kF32", right.size, together, kept, reduced)
                answer = right.astype(np.int64 if kind.startswith("kArg") else np.float32)
                launches = APART if together == 1 else TOGETHER
                name = f"reduction {kind} to {right.size}{MADE_BY[together]}"
                yield Case(name, "Reducing", fixed, [x], [answer], launches, 1e-4)
    counts = random((4, 300), "kI64")
    for together in (32, GIVEN):
        fixed = _reducing("kSum", "kI64", "kI64", 4, together, ((4, 300),), ((300, 1),), wide=True)
        name = f"reduction of integers{MADE_BY[together]}"
        yield Case(name, "Reducing", fixed, [counts], [counts.sum(1)], TOGETHER)


def _reducing(
    kind: str, dtype: str, out: str, outputs: int, together: int, kept: Any, reduced: Any, wide: bool = False
) -> list[int]:
    count = math.prod(extent for extent, _ in reduced)
    fixed = [REDUCTION[kind], KIND[dtype], KIND[out], int(wide), outputs, together, count]
    for axes in (kept, reduced):
        fixed += [len(axes), *padded([extent for extent, _ in axes]), *padded([stride for _, stride in axes])]
    return fixed


def softenings() -> Iterator[Case]:
    for kind, tolerance in (("kF32", 1e-5), ("kF16", 2e-3)):
        for outer, extent, inner in ((3, 300, 1), (2, 5, 3), (1, 1, 1), (2, 1024, 1), (1, 33, 2)):
            x = (random((outer, extent, inner)) * 9).astype(NUMPY[kind])
            shifted = x.astype(np.float64) - x.max(1, keepdims=True)
            sums = np.exp(shifted).sum(1, keepdims=True)
            for log in (0, 1):
                right = shifted - np.log(sums) if log else np.exp(shifted) / sums
                for by_warp in (0, 1):
                    fixed = [KIND[kind], outer * inner, extent, inner, log, by_warp]
                    name = f"softmax of {outer} x {extent} x {inner}, {kind}{', logarithm' if log else ''}"
                    name += ", a warp a row" * by_warp
                    yield Case(name, "Softening", fixed, [x], [right.astype(NUMPY[kind])], TOGETHER, tolerance)


def normalisations() -> Iterator[Case]:
    x = random((6, 130)) + np.float32(2)
    for centred, by_row, scaled, shifted in ((1, 0, 1, 1), (0, 0, 1, 0), (1, 1, 1, 1), (1, 0, 0, 0)):
        channels = 3 if by_row else 130
        scale, shift = random((channels,), seed=1), random((channels,), seed=2)
        mean = x.mean(1, keepdims=True) if centred else 0.0
        right = (x - mean) / np.sqrt(((x - mean) ** 2).mean(1, keepdims=True) + 1e-3)
        pick = (lambda v: np.tile(v, 2)[:, None]) if by_row else (lambda v: v[None])
        right = right * pick(scale) if scaled else right
        right = right + pick(shift) if shifted else right
        fixed = [KIND["kF32"], 6, 130, centred, by_row, channels, bits(1e-3), scaled, shifted]
        name = f"normalisation, centred {centred}, by row {by_row}, scaled {scaled}"
        yield Case(name, "Normalising", fixed, [x, scale, shift], [right.astype(np.float32)], TOGETHER, 1e-4)


def pools() -> Iterator[Case]:
    for maximum, with_pad in ((1, 0), (0, 0), (0, 1)):
        for size, window, stride, dilation, pad, more in (
            ((1, 7, 6), (1, 3, 2), (1, 2, 1), (1, 1, 1), (0, 1, 1), (0, 0, 0)),
            ((4, 5, 6), (2, 3, 3), (1, 1, 2), (1, 2, 1), (1, 0, 1), (0, 0, 1)),
        ):
            x = random((2, *size))
            reach = [(window[d] - 1) * dilation[d] + 1 for d in range(3)]
            out = [(size[d] + 2 * pad[d] + more[d] - reach[d]) // stride[d] + 1 for d in range(3)]
            limit = [size[d] + pad[d] for d in range(3)]
            right = np.empty((2, *out), np.float32)
            for at in np.ndindex(2, *out):
                right[at] = _pooled(x[at[0]], at[1:], (window, stride, dilation, pad, limit), maximum, with_pad)
            fixed = [
                KIND["kF32"],
                maximum,
                2,
                right.size,
                *size,
                *out,
                *window,
                *stride,
                *dilation,
                *pad,
                *limit,
                with_pad,
            ]
            yield Case(f"pool of {size}, maximum {maximum}, padding {with_pad}", "Pooling", fixed, [x], [right])


def _pooled(plane: np.ndarray, at: Sequence[int], how: Any, maximum: int, with_pad: int) -> float:
    window, stride, dilation, pad, limit = how
    seen: list[float] = []
    counted = 0
    for offset in np.ndindex(*window):
        place = [at[d] * stride[d] - pad[d] + offset[d] * dilation[d] for d in range(3)]
        counted += all(place[d] < limit[d] for d in range(3))
        if all(0 <= place[d] < plane.shape[d] for d in range(3)):
            seen.append(float(plane[tuple(place)]))
    return max(seen) if maximum else sum(seen) / (counted if with_pad else len(seen))


GROUPS = (operations, chains, types, lanes, transpositions, gathers, joinings, remappings, reductions, softenings,
          normalisations, pools)  # fmt: skip
CASES = {case.name: case for group in GROUPS for case in group()}
