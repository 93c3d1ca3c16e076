"""How the native evaluator is told about an ONNX operator: its kind, and its attributes as a list of integers
(``enumerate.h``)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from rlflow import _core
from rlflow.errors import UsageError
from rlflow.synthesis.field import key_of

Attributes = dict[str, Any]


@dataclass(frozen=True)
class NativeKind:
    """``key`` selects the keyed function where the kind is one: the same that :mod:`semantics` uses."""

    kind: str
    arity: int
    attributes: list[int]
    outputs: int = 1
    commutative: bool = False
    key: int = 0


BINARY = ("Add", "Sub", "Mul", "Div", "Max", "Min")
_ROWS = ("Softmax", "LogSoftmax")


def _window(a: Attributes) -> list[int]:
    return [*a["kernel_shape"], *a.get("pads", [0] * 4), *a.get("strides", [1, 1])]


def _conv(a: Attributes) -> NativeKind:
    if any(d != 1 for d in a.get("dilations", [1])):
        raise UsageError("The generator declines dilated convolutions: its evaluator has none.")
    return NativeKind("Conv", 2, [a.get("group", 1), *_window(a)])


def _pool(kind: str) -> Callable[[Attributes], NativeKind]:
    return lambda a: NativeKind(kind, 1, [*_window(a), a.get("count_include_pad", 0)])


def _resize(a: Attributes) -> NativeKind:
    scales = a["scales"]
    nearest = a.get("mode", "nearest") == "nearest" and a.get("nearest_mode") == "floor"
    if not nearest or a.get("coordinate_transformation_mode") != "asymmetric" or any(s != int(s) for s in scales):
        raise UsageError("The generator declines Resize but for nearest, floor, asymmetric and whole scales.")
    return NativeKind("Upsample", 1, [int(s) for s in scales])


def _slice(a: Attributes) -> NativeKind:
    if len(a["axes"]) != 1 or a.get("steps", [1]) != [1]:
        raise UsageError("The generator declines Slice of several axes or with steps.")
    return NativeKind("Slice", 1, [a["axes"][0], a["starts"][0], a["ends"][0]])


def _pad(a: Attributes) -> NativeKind:
    if a.get("mode", "constant") != "constant" or a.get("value", 0.0) != 0:
        raise UsageError("The generator declines Pad but with zeros.")
    return NativeKind("Pad", 1, list(a["pads"]))


def _layer(a: Attributes) -> NativeKind:
    key = key_of("LayerNormalization", float(np.float32(a["epsilon"])), a["stash_type"])
    return NativeKind("ScaledRows", 2, [a["axis"]], key=key)


def _reduce(kind: str) -> Callable[[Attributes], NativeKind]:
    return lambda a: NativeKind(kind, 1, [a.get("keepdims", 1), *a["axes"]])


_KINDS: dict[str, Callable[[Attributes], NativeKind]] = {
    "MatMul": lambda a: NativeKind("MatMul", 2, []),
    "LayerNormalization": _layer,  # over the last axis, with a scale and no bias
    "Neg": lambda a: NativeKind("Neg", 1, []),
    "Relu": lambda a: NativeKind("Relu", 1, []),
    "Conv": _conv,
    "AveragePool": _pool("AveragePool"),
    "MaxPool": _pool("MaxPool"),
    "GlobalAveragePool": lambda a: NativeKind("ReduceMean", 1, [1, 2, 3]),
    "Concat": lambda a: NativeKind("Concat", 2, [a["axis"]]),
    "Split": lambda a: NativeKind("Split", 1, [a["axis"]], outputs=2),
    "Transpose": lambda a: NativeKind("Transpose", 1, list(a["perm"])),
    "Pad": _pad,
    "Slice": _slice,
    "Resize": _resize,
    "ReduceSum": _reduce("ReduceSum"),
    "ReduceMean": _reduce("ReduceMean"),
    "ReduceMax": _reduce("ReduceMax"),
}


def of(op: str, attributes: Attributes) -> NativeKind:
    """The native form. Raises UsageError for operators and modes that the generator declines."""
    if op in _KINDS:
        return _KINDS[op](attributes)
    if op in BINARY:
        return NativeKind(op, 2, [], commutative=op not in ("Sub", "Div"))
    if op in _ROWS:
        return NativeKind("Rows", 1, [attributes["axis"]], key=key_of(op, None))
    flags = _core.op_row(op)["flags"]
    if "unary" in flags and not attributes:
        return NativeKind("Unary", 1, [int("zero_preserving" in flags)], key=key_of(op, []))
    raise UsageError(
        f"The generator declines the operator '{op}' {attributes or ''}: its evaluator has no exact meaning for it."
    )


def count(shape: list[int]) -> int:
    """Elements of a shape."""
    return math.prod(shape)
