"""Tensat's benchmark graphs that its programs build in code: BERT, NasRNN, NasNet-A, ResNet-50, ResNeXt-50.

Sizes and wiring as in the published e-graphs (see docs/eqsat.md); the others are ``.model`` files.
"""

from __future__ import annotations

from rlflow.search.eqsat.terms import TermBuilder, TermGraph

SAME, NONE, RELU = 0, 0, 2


class _Layers(TermBuilder):
    """The layers of the benchmarks, with the shapes that they need to know."""

    def __init__(self) -> None:
        super().__init__()
        self.channels: dict[int, int] = {}
        self.extent: dict[int, int] = {}

    def image(self, channels: int, extent: int) -> int:
        return self._known(self.input(1, channels, extent, extent), channels, extent)

    def _known(self, term: int, channels: int, extent: int) -> int:
        self.channels[term], self.extent[term] = channels, extent
        return term

    def conv(self, x: int, out: int, kernel: int, stride: int = 1, activation: int = NONE, groups: int = 1) -> int:
        weight = self.weight(out, self.channels[x] // groups, kernel, kernel)
        term = self.with_numbers("conv2d", (stride,), (stride,), (SAME,), (activation,), x, weight)
        return self._known(term, out, -(-self.extent[x] // stride))

    def pool(self, kind: str, x: int, kernel: int, stride: int) -> int:
        term = self.with_numbers(kind, x, (kernel,), (kernel,), (stride,), (stride,), (SAME,), (NONE,))
        return self._known(term, self.channels[x], -(-self.extent[x] // stride))

    def ewadd(self, a: int, b: int) -> int:
        return self._known(self.call("ewadd", a, b), self.channels.get(a, 0), self.extent.get(a, 0))

    def relu(self, x: int) -> int:
        return self._known(self.call("relu", x), self.channels.get(x, 0), self.extent.get(x, 0))

    def matmul(self, a: int, b: int) -> int:
        return self.with_numbers("matmul", (NONE,), a, b)


def bert() -> TermGraph:
    """Eight blocks of attention at sequence 64, hidden 1024, 16 heads; the next block reads input · W of the last."""
    b = _Layers()
    x, outputs = b.relu(b.input(64, 1024)), []
    for _ in range(8):
        q, k, v = (_heads(b, b.matmul(x, b.weight(1024, 1024))) for _ in range(3))
        mixed = b.matmul(b.matmul(q, k), v)
        outputs.append(b.call("reshape", _swapped(b, mixed), b.leaf("64_1024")))
        x = b.matmul(x, b.weight(1024, 1024))
    return b.finish([*outputs, x])


def _heads(b: _Layers, x: int) -> int:
    return _swapped(b, b.call("reshape", x, b.leaf("64_16_64")))


def _swapped(b: _Layers, x: int) -> int:
    return b.call("transpose", x, b.leaf("1_0_2"), b.leaf(1))


def nasrnn() -> TermGraph:
    """Five steps of the cell at hidden size 512, each with its own weights."""
    b = _Layers()
    xs = [b.input(1, 512) for _ in range(5)]
    state = b.weight(1, 512)
    for x in xs:
        state = _cell(b, x, state)
    return b.finish([state])


def _cell(b: _Layers, x: int, state: int) -> int:
    def gate(kind: str, index: int) -> int:
        return b.call(kind, t[index])

    t = [b.call("ewadd", b.matmul(x, b.weight(512, 512)), b.matmul(state, b.weight(512, 512))) for _ in range(8)]
    m0 = b.call("ewadd", gate("relu", 0), gate("sigmoid", 3))
    m1 = b.call("ewadd", gate("sigmoid", 1), gate("tanh", 2))
    m2 = b.call("ewmul", gate("sigmoid", 4), gate("tanh", 5))
    m3 = b.call("ewmul", gate("sigmoid", 6), gate("relu", 7))
    m4 = b.call("ewadd", b.call("sigmoid", m1), b.call("tanh", m2))
    m5 = b.call("ewmul", b.call("tanh", m0), b.call("tanh", m3))
    return b.call("tanh", b.call("ewmul", b.call("tanh", m4), b.call("tanh", m5)))


def resnet50() -> TermGraph:
    """Blocks 3, 4, 6, 3 of bottlenecks from 1x64x56x56; no stem, normalisation or classifier."""
    b = _Layers()
    x = b.image(64, 56)
    for blocks, channels, stride in ((3, 64, 1), (4, 128, 2), (6, 256, 2), (3, 512, 2)):
        for block in range(blocks):
            x = _bottleneck(b, x, channels, 4 * channels, stride if block == 0 else 1, 1)
    return b.finish([x])


def resnext50() -> TermGraph:
    """32 groups, from 1x3x224x224 with a stem; no normalisation or classifier."""
    b = _Layers()
    x = b.pool("poolmax", b.conv(b.image(3, 224), 64, 7, 2, RELU), 3, 2)
    for blocks, channels, stride in ((3, 128, 1), (4, 256, 2), (6, 512, 2), (3, 1024, 2)):
        for block in range(blocks):
            x = _bottleneck(b, x, channels, 2 * channels, stride if block == 0 else 1, 32)
    return b.finish([x])


def _bottleneck(b: _Layers, x: int, channels: int, out: int, stride: int, groups: int) -> int:
    t = b.conv(x, channels, 1, 1, RELU)
    t = b.conv(t, channels, 3, stride, RELU, groups)
    t = b.conv(t, out, 1)
    if stride > 1 or b.channels[x] != out:
        x = b.conv(x, out, 1, stride, RELU)
    return b.relu(b.ewadd(x, t))


def nasneta() -> TermGraph:
    """Three stacks of five normal cells and a reduction cell, 128 channels at first."""
    b = _Layers()
    x = b.pool("poolmax", b.conv(b.image(3, 224), 64, 7, 2, RELU), 3, 2)
    channels = 128
    for _ in range(3):
        previous = current = x
        for _ in range(5):
            previous, current = current, _normal_cell(b, previous, current, channels)
        channels *= 2
        x = _reduction_cell(b, previous, current, channels)
    return b.finish([x])


def _fit(b: _Layers, current: int, x: int) -> int:
    if b.extent[x] == b.extent[current]:
        return b.conv(x, b.channels[current], 1, 1, RELU)
    return b.conv(x, b.channels[current], 3, 2, RELU)


def _separable(b: _Layers, x: int, out: int, kernel: int, stride: int = 1) -> int:
    return b.conv(b.conv(x, b.channels[x], kernel, stride, NONE, b.channels[x]), out, 1)


def _join(b: _Layers, parts: list[int]) -> int:
    term = b.with_numbers(f"concat{len(parts)}", (1,), (4,), *parts)
    return b._known(term, sum(b.channels[part] for part in parts), b.extent[parts[0]])


def _normal_cell(b: _Layers, previous: int, current: int, c: int) -> int:
    current = b.conv(current, c, 1, 1, RELU)
    previous = _fit(b, current, previous)

    def average(x: int) -> int:
        return b.pool("poolavg", x, 3, 1)

    parts = [
        b.ewadd(_separable(b, current, c, 3), current),
        b.ewadd(_separable(b, previous, c, 3), _separable(b, current, c, 3)),
        b.ewadd(average(current), previous),
        b.ewadd(average(previous), average(previous)),
        b.ewadd(_separable(b, previous, c, 3), _separable(b, previous, c, 3)),
    ]
    return _join(b, parts)


def _reduction_cell(b: _Layers, previous: int, current: int, c: int) -> int:
    current = b.conv(current, c, 1, 1, RELU)
    previous = _fit(b, current, previous)
    one = b.ewadd(_separable(b, previous, c, 7, 2), _separable(b, current, c, 5, 2))
    two = b.ewadd(b.pool("poolmax", current, 3, 2), _separable(b, previous, c, 7, 2))
    three = b.ewadd(b.pool("poolavg", current, 3, 2), _separable(b, previous, c, 5, 2))
    four = b.ewadd(b.pool("poolmax", current, 3, 2), _separable(b, one, c, 3))
    five = b.ewadd(b.pool("poolavg", one, 3, 1), two)
    return _join(b, [one, two, three, four, five])


BENCHMARKS = {"bert": bert, "nasrnn": nasrnn, "nasneta": nasneta, "resnet50": resnet50, "resnext50": resnext50}
