"""Graphs as SVG: nodes in layers from inputs to outputs, what changed in colour.

The layers are longest paths from the inputs; the order within a layer follows the middle of the neighbours (Sugiyama,
Tagawa and Toda 1981). No library is needed, and the result opens without one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from typing import NamedTuple

__all__ = ["DrawnNode", "around", "svg"]

_WIDTH, _HEIGHT, _GAP, _STEP = 168, 38, 24, 74
_SWEEPS, _LETTERS = 6, 24


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
    order = sorted(kept)
    number = {place: index for index, place in enumerate(order)}
    return [
        nodes[place]._replace(inputs=tuple(number[one] for one in nodes[place].inputs if one in number))
        for place in order
    ]


def svg(nodes: Sequence[DrawnNode], title: str) -> str:
    """The drawing as one ``<svg>`` element; an empty graph is an empty string."""
    if not nodes:
        return ""
    layers = _layers(nodes)
    places = _places(nodes, layers)
    width = max(x for x, _ in places) + _WIDTH + _GAP
    height = max(y for _, y in places) + _HEIGHT + _GAP
    parts = [f'<svg viewBox="0 0 {width:.0f} {height:.0f}" role="img" aria-label="{escape(title)}">', "<g>"]
    parts += _edges(nodes, places)
    parts += _boxes(nodes, places)
    return "\n".join([*parts, "</g>", "</svg>"])


def _layers(nodes: Sequence[DrawnNode]) -> list[list[int]]:
    depth = [0] * len(nodes)
    for place, node in enumerate(nodes):
        depth[place] = max((depth[one] + 1 for one in node.inputs if one < place), default=0)
    layers: list[list[int]] = [[] for _ in range(max(depth) + 1)]
    for place, deep in enumerate(depth):
        layers[deep].append(place)
    return layers


def _places(nodes: Sequence[DrawnNode], layers: list[list[int]]) -> list[tuple[float, float]]:
    """The upper left corner of each node's box."""
    readers: list[list[int]] = [[] for _ in nodes]
    for place, node in enumerate(nodes):
        for other in node.inputs:
            readers[other].append(place)
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


def _edges(nodes: Sequence[DrawnNode], places: Sequence[tuple[float, float]]) -> Iterator[str]:
    for place, node in enumerate(nodes):
        for other in dict.fromkeys(node.inputs):
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
