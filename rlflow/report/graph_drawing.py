"""Graphs as SVG: nodes in layers from inputs to outputs, what changed in colour.

The layers are longest paths from the inputs, and what reads nothing stands just above its first reader. The order
within a layer follows the middle of the neighbours (Sugiyama, Tagawa and Toda 1981). No library is needed, and the
result opens without one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Set
from html import escape
from typing import NamedTuple

__all__ = ["DrawnNode", "around", "pieces", "svg", "tiles"]

_WIDTH, _HEIGHT, _GAP, _STEP = 168, 38, 24, 74
_SWEEPS, _LETTERS = 6, 24
#: A tile: its boxes begin within so many units beside, so many layers below each other, and a unit is so many pixels.
#: It fills a page of A4.
_ACROSS, _ROWS, _SCALE = 820.0, 16, 0.7
#: A node with more readers, or operands, than these holds nothing together.
_COMMON = 6


class DrawnNode(NamedTuple):
    """``inputs``: positions of the nodes that this one reads. ``state``: ``same``, ``changed``, ``removed`` or
    ``added``.
    """

    operator: str
    name: str
    inputs: tuple[int, ...]
    state: str = "same"


def around(nodes: Sequence[DrawnNode], hops: int) -> list[DrawnNode]:
    """The nodes that differ, with all that are at most ``hops`` edges away from one."""
    neighbours: list[set[int]] = [set() for _ in nodes]
    for place, node in enumerate(nodes):
        for other in node.inputs:
            neighbours[place].add(other)
            neighbours[other].add(place)
    kept = {place for place, node in enumerate(nodes) if node.state != "same"}
    for _ in range(hops):
        kept |= {other for place in kept for other in neighbours[place]}
    return _part(nodes, kept)


def pieces(nodes: Sequence[DrawnNode]) -> list[tuple[list[DrawnNode], int]]:
    """The parts that differ, each with its neighbours; those that look alike once, with their number.

    Nodes that differ belong together where one reads the other, or where they have an operand or a reader in common
    that few others have (a mask that every layer reads joins nothing).
    """
    owner = list(range(len(nodes)))

    def root(place: int) -> int:
        while owner[place] != place:
            owner[place] = place = owner[owner[place]]
        return place

    readers, operands = _readers(nodes), [node.inputs for node in nodes]
    differ = [place for place, node in enumerate(nodes) if node.state != "same"]
    first: dict[tuple[str, int], int] = {}
    for place in differ:
        for kind, others, uses in (("reads", nodes[place].inputs, readers), ("read by", readers[place], operands)):
            for other in others:
                if nodes[other].state == "same" and len(uses[other]) > _COMMON:
                    continue
                twin = other if nodes[other].state != "same" else first.setdefault((kind, other), place)
                owner[root(place)] = root(twin)
    members: dict[int, set[int]] = {}
    for place in differ:
        members.setdefault(root(place), set()).update((place, *nodes[place].inputs, *readers[place]))
    found: dict[tuple[tuple[object, ...], ...], tuple[list[DrawnNode], int]] = {}
    for kept in members.values():
        piece = _part(nodes, kept)
        shape = tuple((node.operator, node.inputs, node.state) for node in piece)
        found[shape] = (found.get(shape, (piece, 0))[0], found.get(shape, (piece, 0))[1] + 1)
    return list(found.values())


def _part(nodes: Sequence[DrawnNode], kept: Iterable[int]) -> list[DrawnNode]:
    order = sorted(kept)
    number = {place: index for index, place in enumerate(order)}
    return [
        nodes[place]._replace(inputs=tuple(number[one] for one in nodes[place].inputs if one in number))
        for place in order
    ]


def _readers(nodes: Sequence[DrawnNode]) -> list[list[int]]:
    readers: list[list[int]] = [[] for _ in nodes]
    for place, node in enumerate(nodes):
        for other in node.inputs:
            readers[other].append(place)
    return readers


def svg(nodes: Sequence[DrawnNode], title: str, scale: float | None = None) -> str:
    """The drawing as one ``<svg>`` element; an empty graph is an empty string.

    ``scale``: pixels a unit; ``None``: as wide as the style sheet says.
    """
    if not nodes:
        return ""
    layers = _layers(nodes)
    places = _places(nodes, layers)
    width = max(x for x, _ in places) + _WIDTH + _GAP
    height = max(y for _, y in places) + _HEIGHT + _GAP
    size = f'viewBox="0 0 {width:.0f} {height:.0f}"' + ("" if scale is None else f' width="{width * scale:.0f}"')
    parts = [f'<svg {size} role="img" aria-label="{escape(title)}">', "<g>"]
    parts += _edges(nodes, places)
    parts += _boxes(nodes, places)
    return "\n".join([*parts, "</g>", "</svg>"])


def tiles(nodes: Sequence[DrawnNode], title: str) -> list[str]:
    """The drawing cut into parts that fit a page at a size that can be read; those where nothing differs are left out.

    A box is in one part only; an edge to another part ends at the part's border.
    """
    if not nodes:
        return []
    layers = _layers(nodes)
    places = _places(nodes, layers)
    rows = -(-len(layers) // -(-len(layers) // _ROWS))  # parts of equal height
    span = max(x for x, _ in places) - _GAP
    count = int(span // _ACROSS) + 1
    parts: dict[tuple[int, int], list[int]] = {}
    for place, (x, y) in enumerate(places):
        at = int((y - _GAP) / _STEP // rows), min(int((x - _GAP) * count / (span + 1)), count - 1)
        parts.setdefault(at, []).append(place)
    drawings = []
    for _, inside in sorted(parts.items()):
        if all(nodes[place].state == "same" for place in inside):
            continue
        x, y = (min(places[place][axis] for place in inside) - _GAP for axis in (0, 1))
        width = max(places[place][0] for place in inside) + _WIDTH + _GAP - x
        height = max(places[place][1] for place in inside) + _HEIGHT + _GAP - y
        size = f'viewBox="{x:.0f} {y:.0f} {width:.0f} {height:.0f}" width="{width * _SCALE:.0f}"'
        kept = set(inside)
        edges = _edges(nodes, places, kept)
        boxes = _boxes([nodes[place] for place in inside], [places[place] for place in inside])
        drawings.append("\n".join([f'<svg {size} role="img" aria-label="{escape(title)}">', *edges, *boxes, "</svg>"]))
    return drawings


def _layers(nodes: Sequence[DrawnNode]) -> list[list[int]]:
    depth = [0] * len(nodes)
    for place, node in enumerate(nodes):
        depth[place] = max((depth[one] + 1 for one in node.inputs if one < place), default=0)
    for place, reading in enumerate(_readers(nodes)):
        if not nodes[place].inputs and reading:
            depth[place] = min(depth[one] for one in reading) - 1
    layers: list[list[int]] = [[] for _ in range(max(depth) + 1)]
    for place, deep in enumerate(depth):
        layers[deep].append(place)
    return layers


def _places(nodes: Sequence[DrawnNode], layers: list[list[int]]) -> list[tuple[float, float]]:
    """The upper left corner of each node's box."""
    readers = _readers(nodes)
    x = [0.0] * len(nodes)
    for layer in layers:
        for index, place in enumerate(layer):
            x[place] = index * (_WIDTH + _GAP)
    for sweep in range(_SWEEPS):
        down = sweep % 2 == 0
        for layer in layers if down else reversed(layers):
            wanted = {}
            for place in layer:
                near = nodes[place].inputs if down else readers[place]
                wanted[place] = sum(x[one] for one in near) / len(near) if near else x[place]
            _spread(sorted(layer, key=lambda one: (wanted[one], one)), wanted, x)
    left = min(x)
    depth = {place: deep for deep, layer in enumerate(layers) for place in layer}
    return [(x[place] - left + _GAP, depth[place] * _STEP + _GAP) for place in range(len(nodes))]


def _spread(layer: Sequence[int], wanted: dict[int, float], x: list[float]) -> None:
    """Put the nodes of a layer where they are wanted, as far as no two overlap."""
    step = _WIDTH + _GAP
    starts: list[float] = []
    groups: list[list[int]] = []
    for place in layer:
        starts.append(wanted[place])
        groups.append([place])
        while len(groups) > 1 and starts[-2] + len(groups[-2]) * step > starts[-1]:
            start, members, others = starts.pop(), groups.pop(), groups[-1]
            total = len(others) + len(members)
            starts[-1] = (starts[-1] * len(others) + (start - len(others) * step) * len(members)) / total
            others.extend(members)
    for start, members in zip(starts, groups, strict=True):
        for index, place in enumerate(members):
            x[place] = start + index * step


def _edges(
    nodes: Sequence[DrawnNode], places: Sequence[tuple[float, float]], kept: Set[int] | None = None
) -> Iterator[str]:
    """All edges; with ``kept``, those that begin or end at one of these nodes."""
    for place, node in enumerate(nodes):
        for other in dict.fromkeys(node.inputs):
            if kept is not None and not {place, other} & kept:
                continue
            (x0, y0), (x1, y1) = places[other], places[place]
            a, b = x0 + _WIDTH / 2, x1 + _WIDTH / 2
            start, end = y0 + _HEIGHT, y1
            bend = max((end - start) / 2, 12)
            yield (
                f'<path class="e" d="M{a:.0f} {start:.0f}C{a:.0f} {start + bend:.0f} {b:.0f} {end - bend:.0f} '
                f'{b:.0f} {end:.0f}"/>'
            )


def _boxes(nodes: Sequence[DrawnNode], places: Sequence[tuple[float, float]]) -> Iterator[str]:
    for node, (x, y) in zip(nodes, places, strict=True):
        name = node.name if len(node.name) <= _LETTERS else "…" + node.name[1 - _LETTERS :]
        operator = node.operator if len(node.operator) <= _LETTERS else node.operator[: _LETTERS - 1] + "…"
        yield (
            f'<g class="n {node.state}" transform="translate({x:.0f} {y:.0f})">'
            f"<title>{escape(node.operator)} {escape(node.name)} ({node.state})</title>"
            f'<rect width="{_WIDTH}" height="{_HEIGHT}" rx="5"/>'
            f'<text x="{_WIDTH // 2}" y="16" class="o">{escape(operator)}</text>'
            f'<text x="{_WIDTH // 2}" y="30" class="m">{escape(name)}</text></g>'
        )
