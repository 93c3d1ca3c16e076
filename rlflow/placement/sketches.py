"""Networks as far as decisions for whole graphs go, drawn at random in six families, at any size.

The families are those of the paper on GO: language models of unrolled LSTMs (``rnnlm``), a translator with an encoder,
a decoder and attention (``gnmt``), transformers, Inception's branches, cells of NASNet and AmoebaNet, and WaveNet's
dilated convolutions. A sketch has sizes and operations of the nodes, not their mathematics.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from rlflow.errors import UsageError
from rlflow.footprint import Flow, FlowJob
from rlflow.placement.work import Work
from rlflow.price import analytic

__all__ = ["FAMILIES", "NetworkSketch", "drawn_sketch"]

_WIDTH = 4  # bytes an element


@dataclass(frozen=True)
class NetworkSketch:
    """A network. Of each node, [n]: ``flops``; ``products``: whether it is a matrix product or a convolution;
    ``sizes``: bytes of its value; ``weight_bytes``; and ``inputs``, the nodes whose values it reads, all before it.
    """

    family: str
    flops: np.ndarray
    products: np.ndarray
    sizes: np.ndarray
    weight_bytes: np.ndarray
    inputs: tuple[tuple[int, ...], ...]

    @property
    def nodes(self) -> int:
        """Number of nodes."""
        return len(self.inputs)

    def seconds(self) -> np.ndarray:
        """Seconds of each node on the machine of :mod:`rlflow.price.analytic`, float64 [n]."""
        read = np.array([sum(self.sizes[one] for one in ones) for ones in self.inputs], np.float64)
        rate = np.where(self.products, analytic.GFLOPS, analytic.VECTOR_GFLOPS) * 1e9
        moved = (read + self.sizes + self.weight_bytes) / (analytic.GBPS * 1e9)
        return np.asarray(np.maximum(self.flops / rate, moved) + 1e-6 * analytic.OVERHEAD_US)

    def work(self) -> Work:
        """The nodes as tasks to be placed; each has weights of its own."""
        edges = [(one, reader) for reader, ones in enumerate(self.inputs) for one in ones]
        plain = Work.of_edges(self.seconds(), edges, self.sizes)
        return Work(
            plain.seconds, plain.maker, plain.bytes, plain.readers, plain.kept,
            [[number] for number in range(self.nodes)], np.asarray(self.weight_bytes, np.float64),
        )  # fmt: skip

    def flow(self) -> Flow:
        """The nodes as jobs on memory, in their order. Pointwise ones may write over what they read first."""
        names = [f"v{number}" for number in range(self.nodes)]
        read = {one for ones in self.inputs for one in ones}
        jobs = tuple(
            FlowJob(
                tuple(names[one] for one in ones) or ("x",), (names[number],), number,
                reuses=() if self.products[number] or not ones else ((0, 0),), flops=float(self.flops[number]),
            )
            for number, ones in enumerate(self.inputs)
        )  # fmt: skip
        shapes = {"x": (1,), **{name: (int(size) // _WIDTH,) for name, size in zip(names, self.sizes, strict=True)}}
        outputs = tuple(name for number, name in enumerate(names) if number not in read)
        return Flow(jobs, shapes, dict.fromkeys(shapes, _WIDTH), frozenset({"x"}), outputs)


class _Pen:
    """Adds nodes; each call returns the new node's number."""

    def __init__(self) -> None:
        self.rows: list[tuple[float, bool, float, float, tuple[int, ...]]] = []

    def product(self, inputs: Sequence[int], elements: float, inner: float, weights: float = 0.0) -> int:
        """``elements`` sums of ``inner`` products."""
        return self._add(2.0 * elements * inner, True, elements, weights, inputs)

    def pointwise(self, inputs: Sequence[int], elements: float, each: float = 1.0) -> int:
        """``elements`` values of ``each`` operations."""
        return self._add(each * elements, False, elements, 0.0, inputs)

    def _add(self, flops: float, product: bool, elements: float, weights: float, inputs: Sequence[int]) -> int:
        whole = max(1, int(elements)) * _WIDTH
        self.rows.append((flops, product, float(whole), weights * _WIDTH, tuple(dict.fromkeys(inputs))))
        return len(self.rows) - 1

    def sketch(self, family: str) -> NetworkSketch:
        flops, products, sizes, weights, inputs = zip(*self.rows, strict=True)
        return NetworkSketch(
            family, np.array(flops), np.array(products), np.array(sizes), np.array(weights), tuple(inputs)
        )


def _choice(rng: np.random.Generator, *options: int) -> int:
    return int(options[int(rng.integers(len(options)))])


def _cell(pen: _Pen, inputs: Sequence[int], state: int | None, batch: int, hidden: int) -> tuple[int, int]:
    """(output, state) of an LSTM cell."""
    gates = pen.product(inputs, 4.0 * batch * hidden, 2.0 * hidden, 8.0 * hidden * hidden)
    active = pen.pointwise([gates], 4.0 * batch * hidden, 8.0)
    state = pen.pointwise([active] if state is None else [active, state], 1.0 * batch * hidden, 3.0)
    return pen.pointwise([active, state], 1.0 * batch * hidden, 9.0), state


def _rnnlm(rng: np.random.Generator, nodes: int) -> _Pen:
    pen, layers = _Pen(), _choice(rng, 2, 4, 8)
    batch, hidden, words = _choice(rng, 16, 64), _choice(rng, 256, 512, 1024), _choice(rng, 2000, 8000)
    outputs: list[int | None] = [None] * layers
    states: list[int | None] = [None] * layers
    for _ in range(max(2, nodes // (4 * layers + 3))):
        below = pen.pointwise([], batch * hidden)
        for layer in range(layers):
            before = outputs[layer]
            given = [below] if before is None else [below, before]
            below, states[layer] = _cell(pen, given, states[layer], batch, hidden)
            outputs[layer] = below
        pen.pointwise([pen.product([below], batch * words, hidden, hidden * words)], batch * words, 8.0)
    return pen


def _gnmt(rng: np.random.Generator, nodes: int) -> _Pen:
    pen, layers = _Pen(), _choice(rng, 2, 4)
    batch, hidden, words = _choice(rng, 16, 64), _choice(rng, 256, 512), _choice(rng, 2000, 8000)
    steps = max(2, nodes // (8 * layers + 8))
    below = [pen.pointwise([], batch * hidden) for _ in range(steps)]
    for layer in range(layers):
        order = range(steps) if layer != 1 else range(steps - 1, -1, -1)
        above, output, state = list(below), None, None
        for step in order:
            given = [below[step]] if output is None else [below[step], output]
            output, state = _cell(pen, given, state, batch, hidden)
            above[step] = output
        below = above
    memory = pen.pointwise(below, batch * hidden * steps)
    outputs: list[int | None] = [None] * layers
    states: list[int | None] = [None] * layers
    for _ in range(steps):
        top = outputs[-1]
        asked = pen.product([memory] if top is None else [memory, top], batch * steps, hidden)
        seen = pen.product([pen.pointwise([asked], batch * steps, 8.0), memory], batch * hidden, steps)
        current = pen.pointwise([seen], batch * hidden)
        for layer in range(layers):
            before = outputs[layer]
            given = [current] if before is None else [current, before]
            current, states[layer] = _cell(pen, given, states[layer], batch, hidden)
            outputs[layer] = current
        pen.pointwise([pen.product([current], batch * words, hidden, hidden * words)], batch * words, 8.0)
    return pen


def _transformer(rng: np.random.Generator, nodes: int) -> _Pen:
    pen, heads = _Pen(), _choice(rng, 2, 4, 8)
    tokens, hidden = _choice(rng, 128, 512), _choice(rng, 256, 512, 768)
    size, head = float(tokens * hidden), hidden // heads
    value = pen.pointwise([], size)
    for _ in range(max(1, nodes // (3 * heads + 11))):
        normal = pen.pointwise([value], size, 8.0)
        query, key, content = (pen.product([normal], size, hidden, hidden * hidden) for _ in range(3))
        found = []
        for _ in range(heads):
            scores = pen.product([query, key], float(tokens * tokens), head)
            share = pen.pointwise([scores], float(tokens * tokens), 8.0)
            found.append(pen.product([share, content], size / heads, tokens))
        joined = pen.pointwise(found, size)
        value = pen.pointwise([value, pen.product([joined], size, hidden, hidden * hidden)], size)
        inner = pen.product([pen.pointwise([value], size, 8.0)], 4 * size, hidden, 4 * hidden * hidden)
        outer = pen.product([pen.pointwise([inner], 4 * size, 10.0)], size, 4 * hidden, 4 * hidden * hidden)
        value = pen.pointwise([value, outer], size)
    return pen


def _conv(pen: _Pen, value: int, places: int, read: int, made: int, kernel: int) -> int:
    """A convolution with its activation."""
    inner = read * kernel
    return pen.pointwise([pen.product([value], places * made, inner, inner * made)], places * made)


def _inception(rng: np.random.Generator, nodes: int) -> _Pen:
    pen, places, width = _Pen(), _choice(rng, 14, 28, 35) ** 2, _choice(rng, 32, 48, 64)
    value = _conv(pen, pen.pointwise([], places * 3), places, 3, 4 * width, 9)
    count = max(1, nodes // 18)
    for module in range(count):
        if module in (count // 3, 2 * count // 3) and module and places > 64:
            places, width = places // 4, 2 * width
            value = _conv(pen, value, places, 2 * width, 4 * width, 9)
        read = 4 * width
        branches = [
            _conv(pen, value, places, read, width, 1),
            _conv(pen, _conv(pen, value, places, read, width, 1), places, width, width, 25 // _choice(rng, 1, 5)),
            _conv(
                pen, _conv(pen, _conv(pen, value, places, read, width, 1), places, width, width, 9),
                places, width, width, 9,
            ),
            _conv(pen, pen.pointwise([value], places * read, 9.0), places, read, width, 1),
        ]  # fmt: skip
        value = pen.pointwise(branches, places * read)
    return pen


def _nasnet(rng: np.random.Generator, nodes: int) -> _Pen:
    pen, places, width = _Pen(), _choice(rng, 14, 28) ** 2, _choice(rng, 44, 64, 96)
    size = float(places * width)
    before = last = pen.pointwise([], size)
    pattern = [tuple(int(one) for one in rng.integers(0, 2 + block, 2)) for block in range(4)]
    kinds = rng.integers(0, 4, 8)
    for _ in range(max(1, nodes // 22)):
        states = [_conv(pen, before, places, 4 * width, width, 1), _conv(pen, last, places, 4 * width, width, 1)]
        free = [0, 0]
        for block, pair in enumerate(pattern):
            made = []
            for side, chosen in enumerate(pair):
                value, kind = states[chosen], int(kinds[2 * block + side])
                free[chosen] += 1
                if kind < 2:  # a separable convolution
                    deep = pen.product([value], size, 9 + 16 * kind, width * (9 + 16 * kind))
                    value = pen.product([deep], size, width, width * width)
                elif kind == 2:
                    value = pen.pointwise([value], size, 9.0)
                made.append(value)
            states.append(pen.pointwise(made, size))
            free.append(0)
        joined = [value for value, uses in zip(states, free, strict=True) if not uses]
        before, last = last, pen.pointwise(joined, size * len(joined))
    return pen


def _wavenet(rng: np.random.Generator, nodes: int) -> _Pen:
    pen, places, width = _Pen(), _choice(rng, 2000, 8000), _choice(rng, 32, 64)
    size = float(places * width)
    value = _conv(pen, pen.pointwise([], places), places, 1, width, 2)
    skipped: list[int] = []
    for _ in range(max(2, nodes // 7)):
        deep = [pen.product([value], size, 2 * width, 2 * width * width) for _ in range(2)]
        gated = pen.pointwise([pen.pointwise([deep[0]], size, 9.0), deep[1]], size, 9.0)
        skipped.append(pen.product([gated], size, width, width * width))
        value = pen.pointwise([value, pen.product([gated], size, width, width * width)], size)
    total = skipped[0]
    for one in skipped[1:]:
        total = pen.pointwise([total, one], size)
    _conv(pen, total, places, width, 256, 1)
    return pen


#: What draws a sketch of about so many nodes, by family.
FAMILIES: dict[str, Callable[[np.random.Generator, int], _Pen]] = {
    "rnnlm": _rnnlm,
    "gnmt": _gnmt,
    "transformer": _transformer,
    "inception": _inception,
    "nasnet": _nasnet,
    "wavenet": _wavenet,
}


def drawn_sketch(family: str, nodes: int, rng: np.random.Generator) -> NetworkSketch:
    """A sketch of about ``nodes`` nodes of a family. Raises UsageError for an unknown family."""
    if family not in FAMILIES:
        raise UsageError(f"There is no family {family!r} of graphs; there are {', '.join(FAMILIES)}.")
    if nodes < 1:
        raise UsageError(f"A graph of {nodes} nodes was asked for; expected at least 1.")
    return FAMILIES[family](rng, nodes).sketch(family)
