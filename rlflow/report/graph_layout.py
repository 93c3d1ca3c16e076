"""Where the boxes and the lines of a drawn graph are: layers, lanes for long edges, and places.

The layers are longest paths from the inputs, and what reads nothing stands just above its first reader. An edge over
several layers gets a lane in each that it crosses, so that it passes between the boxes and never behind one; the edges
from one node share their lanes. The order within a layer follows the middle of the neighbours (Sugiyama, Tagawa and
Toda 1981).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

__all__ = ["GAP", "HEIGHT", "WIDTH", "Places", "layout", "readers_of"]

WIDTH, HEIGHT, GAP = 168, 38, 24
#: Half of what a box and a lane take of a layer's width, with the gap on their side.
_BOX, _LANE = (WIDTH + GAP) / 2, 8.0
#: How much more a box insists on its place than a lane.
_WEIGHT = 6.0
#: Sweeps that find the order of the layers, and sweeps that then straighten the lines.
_SWEEPS, _STRAIGHTENED = 6, 8
#: Between two layers: the least height, how much of the widest line's width it gets more, and how much at most.
_BETWEEN, _SLOPE, _STEEP = 36.0, 0.04, 48.0
#: So many lanes at most, for the longest edges last: a drawing takes a second or two then. An edge without lanes is one
#: curve, and may pass behind boxes.
_LANES = 40_000


class Places(NamedTuple):
    """``boxes``: their number. ``centre`` and ``depth``, which is the layer's number: of each box, and behind these of
    each lane. ``tops``: of the layers. ``lanes``: of each node that has some, those below it, one a layer.
    """

    boxes: int
    centre: list[float]
    depth: list[int]
    tops: list[float]
    lanes: dict[int, list[int]]

    @property
    def width(self) -> float:
        """With a gap on either side."""
        boxes = max((one + WIDTH / 2 for one in self.centre[: self.boxes]), default=0.0)
        return max(boxes, *self.centre) + GAP

    @property
    def height(self) -> float:
        """With a gap above and below."""
        return self.tops[-1] + HEIGHT + GAP

    def corner(self, place: int) -> tuple[float, float]:
        """The upper left corner of a node's box."""
        return self.centre[place] - WIDTH / 2, self.tops[self.depth[place]]

    def lines(self, place: int, readers: Sequence[int], first: int, last: int) -> Iterator[str]:
        """The edges from a node to these readers, as paths, as far as they lie in the layers from ``first`` to
        ``last``, or lead to these.
        """
        below, depth = self.depth[place], self.depth
        lanes = self.lanes.get(place, [])
        far = [one for one in readers if 1 < depth[one] - below <= len(lanes) + 1]
        deepest = max(min(max((depth[one] - below - 1 for one in far), default=0), last - below + 1), 0)
        trunk = [place, *lanes[:deepest]][max(first - below - 1, 0) :]
        if len(trunk) > 1:
            yield self._trunk(trunk, place)
        for one in readers:
            start = lanes[depth[one] - below - 2] if one in far else place
            if depth[start] <= last and depth[one] >= first:
                yield f"M{self.centre[start]:.0f} {self._bottom(start):.0f}{self._curve(start, one)}"

    def _trunk(self, trunk: Sequence[int], place: int) -> str:
        """From the node, or the first lane, to the last lane's lower end."""
        start = trunk[0]
        top = self._bottom(start) if start == place else self.tops[self.depth[start]]
        path, pending = [f"M{self.centre[start]:.0f} {top:.0f}"], start != place
        for above, one in pairwise(trunk):
            if round(self.centre[above]) == round(self.centre[one]):
                pending = True
                continue
            path += [f"V{self._bottom(above):.0f}"] if pending else []
            path.append(self._curve(above, one))
            pending = True
        return "".join([*path, f"V{self._bottom(trunk[-1]):.0f}"])

    def _curve(self, above: int, one: int) -> str:
        start, end = self._bottom(above), self.tops[self.depth[one]]
        bend = max((end - start) / 2, 12)
        a, b = self.centre[above], self.centre[one]
        return f"C{a:.0f} {start + bend:.0f} {b:.0f} {end - bend:.0f} {b:.0f} {end:.0f}"

    def _bottom(self, place: int) -> float:
        return self.tops[self.depth[place]] + HEIGHT


def readers_of(inputs: Sequence[Sequence[int]]) -> list[list[int]]:
    """For each node those that read it, each once."""
    readers: list[list[int]] = [[] for _ in inputs]
    for place, read in enumerate(inputs):
        for other in dict.fromkeys(read):
            readers[other].append(place)
    return readers


def layout(inputs: Sequence[Sequence[int]]) -> Places:
    """The places of nodes; ``inputs``: for each the positions of those that it reads."""
    readers = readers_of(inputs)
    depth = _depths(inputs, readers)
    lanes = _lanes(depth, readers)
    links = _Links([[] for _ in range(len(depth) + sum(map(len, lanes.values())))])
    for place, reading in enumerate(readers):
        chain = [place, *lanes.get(place, [])]
        depth += range(depth[place] + 1, depth[place] + len(chain))
        for upper, lower in pairwise(chain):
            links.add(upper, lower, 1.0)
        for one in reading:  # what many read is beside all of them, and draws none of them aside
            links.add(chain[_step(depth, place, one, chain)], one, 1 / len(reading))
    layers: list[list[int]] = [[] for _ in range(max(depth, default=-1) + 1)]
    for place, deep in enumerate(depth):
        layers[deep].append(place)
    half = [_BOX] * len(inputs) + [_LANE] * (len(depth) - len(inputs))
    centre = _ordered(layers, links, half)
    for sweep in range(_STRAIGHTENED):
        _straighten(layers if sweep % 2 == 0 else layers[::-1], links, half, centre, _middles(readers, lanes, centre))
    left = min((one - side for one, side in zip(centre, half, strict=True)), default=0.0)
    centre = [one - left + GAP / 2 for one in centre]
    return Places(len(inputs), centre, depth, _tops(layers, links.above, centre), lanes)


class _Links:
    """The lines from layer to layer: for each box and lane those above it and those below it, and what each counts."""

    def __init__(self, above: list[list[tuple[int, float]]]) -> None:
        self.above = above
        self.below: list[list[tuple[int, float]]] = [[] for _ in above]

    def add(self, upper: int, lower: int, weight: float) -> None:
        self.above[lower].append((upper, weight))
        self.below[upper].append((lower, weight))


def _step(depth: Sequence[int], place: int, one: int, chain: Sequence[int]) -> int:
    """Where in its chain of lanes a node's edge to a reader leaves."""
    step = depth[one] - depth[place] - 1
    return step if 0 < step < len(chain) else 0


def _depths(inputs: Sequence[Sequence[int]], readers: Sequence[Sequence[int]]) -> list[int]:
    depth = [0] * len(inputs)
    for place, read in enumerate(inputs):
        depth[place] = max((depth[one] + 1 for one in read if one < place), default=0)
    for place, reading in enumerate(readers):
        if not inputs[place] and reading:
            depth[place] = max(min(depth[one] for one in reading) - 1, 0)
    return depth


def _lanes(depth: Sequence[int], readers: Sequence[Sequence[int]]) -> dict[int, list[int]]:
    """The lanes of each node that has some, by numbers behind those of the nodes; short edges first."""
    deepest = (max((depth[one] for one in reading), default=0) for reading in readers)
    wanted = [deep - depth[place] - 1 for place, deep in enumerate(deepest)]
    left = _LANES
    kept: list[int] = []
    for place in sorted(range(len(wanted)), key=wanted.__getitem__):
        if 0 < wanted[place] <= left:
            left -= wanted[place]
            kept.append(place)
    found: dict[int, list[int]] = {}
    number = len(depth)
    for place in sorted(kept):
        found[place] = list(range(number, number + wanted[place]))
        number += wanted[place]
    return found


def _ordered(layers: list[list[int]], links: _Links, half: Sequence[float]) -> list[float]:
    """Puts each layer into an order, and gives the centres."""
    centre = [0.0] * len(half)
    _put(layers, centre, half)
    for sweep in range(_SWEEPS):
        down = sweep % 2 == 0
        near = links.above if down else links.below
        for layer in layers if down else reversed(layers):
            wanted = {place: _middle(near[place], centre, centre[place]) for place in layer}
            layer.sort(key=lambda one: (wanted[one], one))
            for place, x in zip(layer, _spread(layer, [wanted[one] for one in layer], half), strict=True):
                centre[place] = x
    _put(layers, centre, half)  # the sweeps let long graphs drift aside
    return centre


def _put(layers: Sequence[Sequence[int]], centre: list[float], half: Sequence[float]) -> None:
    """Puts the middle of every layer at 0."""
    for layer in layers:
        for place, x in zip(layer, _spread(layer, [0.0] * len(layer), half), strict=True):
            centre[place] = x


def _straighten(
    layers: Sequence[Sequence[int]], links: _Links, half: Sequence[float], centre: list[float], lanes: dict[int, float]
) -> None:
    """Moves each layer, in its order, towards its neighbours on both sides; ``lanes`` says where lanes want to be."""
    for layer in layers:
        wanted = []
        for place in layer:
            near = [*links.above[place], *links.below[place]]
            wanted.append(lanes[place] if place in lanes else _middle(near, centre, centre[place]))
        for place, x in zip(layer, _spread(layer, wanted, half), strict=True):
            centre[place] = x


def _middle(near: Sequence[tuple[int, float]], centre: Sequence[float], own: float) -> float:
    """The mean of the neighbours; ``own`` where there are none."""
    weight = sum(weight for _, weight in near)
    return sum(centre[one] * weight for one, weight in near) / weight if near else own


def _middles(
    readers: Sequence[Sequence[int]], lanes: dict[int, list[int]], centre: Sequence[float]
) -> dict[int, float]:
    """For each lane the same place as for the other lanes of its node: the median of the boxes that they join."""
    found: dict[int, float] = {}
    for place, chain in lanes.items():
        joined = sorted(centre[one] for one in (place, *readers[place]))
        found.update(dict.fromkeys(chain, joined[len(joined) // 2]))
    return found


def _spread(layer: Sequence[int], wanted: Sequence[float], half: Sequence[float]) -> list[float]:
    """The places nearest to those wanted at which nothing of a layer overlaps (pool adjacent violators)."""
    offset = 0.0
    offsets: list[float] = []
    for number, place in enumerate(layer):
        offset += half[layer[number - 1]] + half[place] if number else 0.0
        offsets.append(offset)
    groups: list[tuple[float, float, int]] = []  # the middle of what its members want, their weight, their number
    for place, want, offset in zip(layer, wanted, offsets, strict=True):
        middle, weight, count = want - offset, _WEIGHT if half[place] == _BOX else 1.0, 1
        while groups and groups[-1][0] > middle:
            other, more, others = groups.pop()
            middle = (middle * weight + other * more) / (weight + more)
            weight, count = weight + more, count + others
        groups.append((middle, weight, count))
    starts = [middle for middle, _, count in groups for _ in range(count)]
    return [start + offset for start, offset in zip(starts, offsets, strict=True)]


def _tops(
    layers: Sequence[Sequence[int]], above: Sequence[Sequence[tuple[int, float]]], centre: Sequence[float]
) -> list[float]:
    """Layers stand further apart where lines go far to the side, so that these are not flat."""
    tops = [float(GAP)]
    for layer in layers[1:]:
        widest = max((abs(centre[one] - centre[place]) for place in layer for one, _ in above[place]), default=0.0)
        tops.append(tops[-1] + HEIGHT + _BETWEEN + min(_SLOPE * widest, _STEEP))
    return tops
