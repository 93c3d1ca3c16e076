"""Graphs as SVG: nodes in layers from inputs to outputs, what changed in colour.

Where things are, :mod:`rlflow.report.graph_layout` says. No library is needed, and the result opens without one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Set
from html import escape
from typing import NamedTuple

from rlflow.report.graph_layout import GAP, HEIGHT, WIDTH, Places, layout, readers_of

__all__ = ["DrawnNode", "around", "pieces", "svg", "tiles"]

_LETTERS = 24
#: A tile: its boxes begin within so many units beside and below each other, and a unit is so many pixels. It fills a
#: page of A4.
_ACROSS, _DOWN, _SCALE = 820.0, 1200.0, 0.7
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

    operands = [node.inputs for node in nodes]
    readers = readers_of(operands)
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


def svg(nodes: Sequence[DrawnNode], title: str, scale: float | None = None) -> str:
    """The drawing as one ``<svg>`` element; an empty graph is an empty string.

    ``scale``: pixels a unit; ``None``: as wide as the style sheet says.
    """
    if not nodes:
        return ""
    found = layout([node.inputs for node in nodes])
    size = f'viewBox="0 0 {found.width:.0f} {found.height:.0f}"'
    size += "" if scale is None else f' width="{found.width * scale:.0f}"'
    everywhere = range(len(found.tops))
    parts = [f'<svg {size} role="img" aria-label="{escape(title)}">', "<g>"]
    parts += _edges(nodes, found, everywhere)
    parts += _boxes(nodes, found, range(len(nodes)))
    return "\n".join([*parts, "</g>", "</svg>"])


def tiles(nodes: Sequence[DrawnNode], title: str) -> list[str]:
    """The drawing cut into parts that fit a page at a size that can be read; those where nothing differs are left out.

    A box is in one part only; an edge to another part ends at the part's border.
    """
    if not nodes:
        return []
    found = layout([node.inputs for node in nodes])
    corners = [found.corner(place) for place in range(len(nodes))]
    parts: dict[tuple[int, int], list[int]] = {}
    down, across = (_shares([corner[axis] for corner in corners], most) for axis, most in ((1, _DOWN), (0, _ACROSS)))
    for place, at in enumerate(zip(down, across, strict=True)):
        parts.setdefault(at, []).append(place)
    drawings = []
    for _, inside in sorted(parts.items()):
        if all(nodes[place].state == "same" for place in inside):
            continue
        x, y = (min(corners[place][axis] for place in inside) - GAP for axis in (0, 1))
        width = max(corners[place][0] for place in inside) + WIDTH + GAP - x
        height = max(corners[place][1] for place in inside) + HEIGHT + GAP - y
        size = f'viewBox="{x:.0f} {y:.0f} {width:.0f} {height:.0f}" width="{width * _SCALE:.0f}"'
        layers = [found.depth[place] for place in inside]
        edges = _edges(nodes, found, range(min(layers), max(layers) + 1), set(inside))
        boxes = _boxes(nodes, found, inside)
        drawings.append("\n".join([f'<svg {size} role="img" aria-label="{escape(title)}">', *edges, *boxes, "</svg>"]))
    return drawings


def _shares(values: Sequence[float], most: float) -> list[int]:
    """The part that each value is in, where their span is cut into parts of equal size, each at most ``most``."""
    least, span = min(values), max(values) - min(values)
    count = int(span // most) + 1
    return [min(int((value - least) * count / (span + 1)), count - 1) for value in values]


def _edges(nodes: Sequence[DrawnNode], found: Places, layers: range, kept: Set[int] | None = None) -> Iterator[str]:
    """All edges within these layers; with ``kept``, those that begin or end at one of these nodes."""
    for place, reading in enumerate(readers_of([node.inputs for node in nodes])):
        wanted = reading if kept is None or place in kept else [one for one in reading if one in kept]
        for line in found.lines(place, wanted, layers.start, layers.stop - 1):
            yield f'<path class="e" d="{line}"/>'


def _boxes(nodes: Sequence[DrawnNode], found: Places, shown: Iterable[int]) -> Iterator[str]:
    for place in shown:
        node, (x, y) = nodes[place], found.corner(place)
        name = node.name if len(node.name) <= _LETTERS else "…" + node.name[1 - _LETTERS :]
        operator = node.operator if len(node.operator) <= _LETTERS else node.operator[: _LETTERS - 1] + "…"
        yield (
            f'<g class="n {node.state}" transform="translate({x:.0f} {y:.0f})">'
            f"<title>{escape(node.operator)} {escape(node.name)} ({node.state})</title>"
            f'<rect width="{WIDTH}" height="{HEIGHT}" rx="5"/>'
            f'<text x="{WIDTH // 2}" y="16" class="o">{escape(operator)}</text>'
            f'<text x="{WIDTH // 2}" y="30" class="m">{escape(name)}</text></g>'
        )
