"""What regions of the same operators differ in, beside their work and their traffic.

A transposition that keeps its last axis is a copy of rows, one that moves it is not: twenty times slower for as many
bytes. A product with a vector goes by the speed of memory, one of large matrices by that of arithmetic. So a region
has a ``detail``, a word for each of its operators, and the logarithms of some ``sizes`` of the one that has the work.

As text they are a JSON list: ``["Transpose","021",[3.1781,0.0,0.0,0.0,0.0]]``.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from rlflow.errors import brief
from rlflow.files import parse_json

if TYPE_CHECKING:
    from rlflow.graph import Graph

#: Operators that have the work of their region, whatever else it has.
MATRIX = frozenset({"MatMul", "Gemm", "FusedMatMul"})
CONVOLUTION = frozenset({"Conv", "ConvTranspose"})
#: How many sizes there are; what has fewer has zeros.
SIZES = 5
#: Digits of a written logarithm behind the point; and what none comes near.
_DIGITS, _LARGEST = 4, 1e3
#: Windows of more elements are all large.
_LARGE = 9

Shape = list[int]


class Traits(NamedTuple):
    """``main``: the operator with the work. ``detail``: words, one an operator. ``sizes`` [SIZES]: natural logarithms,
    of what depends on ``main``.
    """

    main: str
    detail: str = ""
    sizes: tuple[float, ...] = (0.0,) * SIZES

    @property
    def plain(self) -> list[Any]:
        """Values for JSON."""
        return [self.main, self.detail, [round(size, _DIGITS) for size in self.sizes]]

    @property
    def text(self) -> str:
        """One line."""
        return json.dumps(self.plain, separators=(",", ":"))

    @classmethod
    def of(cls, plain: Any) -> Traits:
        """From what :attr:`plain` made. Raises ValueError for anything else."""
        if not isinstance(plain, list) or [type(part) for part in plain] != [str, str, list]:
            raise ValueError(f"traits are main operator, detail and sizes, found {brief(repr(plain), 60)}")
        main, detail, sizes = plain
        if len(sizes) != SIZES or not all(type(size) in (int, float) and abs(size) < _LARGEST for size in sizes):
            raise ValueError(f"traits have {SIZES} sizes, each a logarithm, found {brief(repr(sizes), 60)}")
        return cls(main, detail, tuple(map(float, sizes)))

    @classmethod
    def parse(cls, text: str) -> Traits:
        """From :attr:`text`. Raises ValueError for anything else."""
        return cls.of(parse_json(text))


class _Seen(NamedTuple):
    """An operator with the shapes around it; unknown dimensions count as 1."""

    graph: Graph
    node: int
    op: str
    inputs: list[Shape]
    output: Shape


#: A word, and sizes of which the logarithms are wanted.
_Said = tuple[str, Sequence[float]]


def traits_of(graph: Graph, nodes: Sequence[int]) -> Traits:
    """Those of the region that has these nodes, producers first."""
    seen = [_look(graph, node) for node in nodes]
    said = [_SAY.get(one.op, _elementwise)(one) for one in seen]
    at = next((i for i, one in enumerate(seen) if one.op in MATRIX), None)
    if at is None:
        at = next((i for i, one in enumerate(seen) if one.op in CONVOLUTION), None)
    if at is None:
        at = max(range(len(seen)), key=lambda i: (seen[i].op not in _IDLE, _count(seen[i].output), -i))
    logs = [math.log(max(size, 1.0)) for size in said[at][1]]
    return Traits(seen[at].op, " ".join(word for word, _ in said), (*logs, *[0.0] * (SIZES - len(logs))))


def traits_by_name(operators: str) -> Traits:
    """What the names alone say, where nothing else is known."""
    names = operators.split()
    main = next((one for one in names if one in MATRIX), next((one for one in names if one in CONVOLUTION), None))
    return Traits(main or (names[0] if names else ""))


def _look(graph: Graph, node: int) -> _Seen:
    shapes = [_sizes(graph, value) for value in graph.node_inputs(node)]
    outputs = graph.node_outputs(node)
    return _Seen(graph, node, graph.op(node), shapes, _sizes(graph, outputs[0]) if outputs else [])


def _sizes(graph: Graph, value: int) -> Shape:
    """Its shape; none for an optional operand that is absent."""
    if value < 0:
        return []
    return [dim if isinstance(dim, int) else 1 for dim in graph.shape(value) or ()]


def _count(shape: Sequence[int]) -> int:
    return math.prod(shape)


# --- operators ----------------------------------------------------------------------------------------------------


def _matrix(one: _Seen) -> _Said:
    """Whether the right side is constant, and whether there are many; how many, and rows, inner size, columns."""
    right = one.inputs[1] if len(one.inputs) > 1 else []
    constant = len(one.inputs) > 1 and one.graph.is_const(one.graph.producer(one.graph.node_inputs(one.node)[1]))
    columns, many = (one.output or [1])[-1], _count(right[:-2])
    rows = _count(one.output) // max(columns * many, 1)
    inner = _count(right[-2:]) // max(columns, 1)
    return ("c" if constant else "v") + ("b" if many > 1 else ""), (many, rows, inner, columns)


def _convolution(one: _Seen) -> _Said:
    """Dense, grouped or of single channels, its window, and whether it strides; pixels, channels in and out, window,
    groups. Of unknown weights nothing but the elements.
    """
    attrs, weight = one.graph.attrs(one.node), one.inputs[1]
    if len(weight) < 2:
        return "", (_count(one.output),)
    groups, window = attrs.get("group") or 1, _count(weight[2:])
    word = "d" if groups == 1 else "w" if weight[1] == 1 else "g"
    word += str(window) if window <= _LARGE else "k"
    strides = max(attrs.get("strides") or [1]) > 1
    return word + "s" * strides, (_count(one.output[2:]), weight[1], weight[0], window, groups)


def _transpose(one: _Seen) -> _Said:
    """The order of axes, those of size 1 left out and those that stay together as one; elements, and how many lie
    together before and after.
    """
    shape = one.inputs[0]
    order = one.graph.attrs(one.node).get("perm") or list(range(len(shape)))[::-1]
    if len(order) != len(shape):  # of unknown rank
        return "", (_count(one.output),)
    runs: list[list[int]] = []
    for axis in (axis for axis in order if shape[axis] != 1):
        before = runs[-1][-1] if runs else axis
        if before < axis and all(shape[between] == 1 for between in range(before + 1, axis)):
            runs[-1].append(axis)
        else:
            runs.append([axis])
    places = sorted(runs)
    word = "".join(str(places.index(run)) for run in runs)
    together = _count([shape[axis] for axis in runs[-1]]) if runs and runs[-1] == places[-1] else 1
    return word, (_count(shape), together)


def _along(one: _Seen) -> _Said:
    """Whether it works along the last axis; elements, and how many lie together."""
    whole, other = one.output, one.inputs[0] if one.inputs else one.output
    axis = one.graph.attrs(one.node).get("axis")
    if one.op != "Concat":
        whole, other = other, whole
    if not isinstance(axis, int):
        differ = [i for i, (a, b) in enumerate(zip(whole, other, strict=False)) if a != b]
        axis = differ[-1] if differ else len(whole) - 1
    axis %= max(len(whole), 1)
    after = _count(whole[axis + 1 :])
    together = after if after > 1 else min((other or [1])[-1], (one.output or [1])[-1])
    return "l" if after == 1 else "o", (_count(one.output), together)


def _reduction(one: _Seen) -> _Said:
    """Whether it reduces the last axis; elements, those reduced together, and those after them."""
    shape = one.inputs[0] if one.inputs else []
    attrs = one.graph.attrs(one.node)
    axes = attrs.get("axes", attrs.get("axis", -1))
    axes = [axes] if isinstance(axes, int) else list(axes or [-1])
    if not shape:
        return "l", (1,)
    axes = sorted(axis % len(shape) for axis in axes)
    reduced = _count([shape[axis] for axis in axes])
    after = _count(shape[axes[-1] + 1 :])
    return "l" if after == 1 else "o", (_count(shape), reduced, after)


def _elementwise(one: _Seen) -> _Said:
    """How each of several inputs is spread over the output; elements."""
    word = "".join(_spread(shape, one.output) for shape in one.inputs) if len(one.inputs) > 1 else ""
    return word, (_count(one.output),)


def _spread(shape: Shape, over: Shape) -> str:
    """``f``: not at all. ``s``: one element. Else a digit for each run of axes, 1 where there is the whole axis."""
    if _count(shape) == _count(over):
        return "f"
    if _count(shape) == 1:
        return "s"
    padded = [1] * (len(over) - len(shape)) + list(shape)
    word = ""
    for mine, whole in zip(padded, over, strict=False):
        digit = "1" if mine == whole else "0"
        if whole != 1 and not word.endswith(digit):
            word += digit
    return word


_IDLE = frozenset({"Reshape", "Identity", "Squeeze", "Unsqueeze", "Flatten"})
_ALONG = ("Concat", "Split", "Slice", "Gather", "Pad", "Expand", "Tile")
_REDUCING = (
    "Softmax", "LogSoftmax", "LayerNormalization", "ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "ArgMax",
)  # fmt: skip
_SAY: dict[str, Callable[[_Seen], _Said]] = {
    **dict.fromkeys(MATRIX, _matrix),
    **dict.fromkeys(CONVOLUTION, _convolution),
    **dict.fromkeys(_ALONG, _along),
    **dict.fromkeys(_REDUCING, _reduction),
    "Transpose": _transpose,
    **dict.fromkeys(_IDLE, lambda one: ("", (_count(one.output),))),
}
