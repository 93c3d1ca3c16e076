"""Shapes of foreign terms as symbols, and what equalities between extents follow from a match.

An extent is a variable's, a sum (of a concatenation), or that of a window sliding over another (a convolution's).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

Extent = tuple[Any, ...]  # ("dim", variable, axis), ("sum", parts), ("window", attributes, extent, kernel), ("one", n)
Dims = tuple[Extent, ...] | None  # None: the rank is not known


@dataclass
class Equalities:
    """Extents known to be equal, and the conditions that say what was not known."""

    parent: dict[Extent, Extent] = field(default_factory=dict)
    conditions: list[str] = field(default_factory=list)

    def canonical(self, extent: Extent) -> Extent:
        """The representative of an extent's class."""
        if extent[0] == "dim":
            while extent in self.parent:
                extent = self.parent[extent]
            return extent if extent[0] == "dim" else self.canonical(extent)
        if extent[0] == "sum":
            return ("sum", tuple(sorted((self.canonical(e) for e in extent[1]), key=repr)))
        if extent[0] == "window":
            return ("window", extent[1], self.canonical(extent[2]), self.canonical(extent[3]))
        return extent

    def assume(self, a: Extent, b: Extent) -> None:
        """Learns that two extents are equal."""
        a, b = self.canonical(a), self.canonical(b)
        if a == b:
            return
        if a[0] == "dim":
            self.parent[a] = b
        elif b[0] == "dim":
            self.parent[b] = a
        elif a[0] == b[0] == "window" and a[1] == b[1]:
            self.assume(a[3], b[3])

    def assume_shapes(self, a: Dims, b: Dims, beside: int | None = None) -> None:
        """Learns that two shapes are equal, but for an axis."""
        for k, (p, q) in enumerate(zip(a or (), b or (), strict=False)):
            if k != beside:
                self.assume(p, q)

    def demand(self, a: Extent, b: Extent) -> None:
        """Writes the condition that two extents are equal, unless it is known."""
        a, b = self.canonical(a), self.canonical(b)
        if a == b:
            return
        if a[0] == b[0] == "window" and a[1] == b[1]:
            self.demand(a[2], b[2])
            self.demand(a[3], b[3])
        elif "window" not in (a[0], b[0]):
            self.conditions.append(f"{expression(a)} == {expression(b)}")
            self.assume(a, b)

    def demand_shapes(self, a: Dims, b: Dims, beside: int | None = None) -> None:
        """Writes the conditions that two shapes are equal, but for an axis."""
        for k, (p, q) in enumerate(zip(a or (), b or (), strict=False)):
            if k != beside:
                self.demand(p, q)


def expression(extent: Extent) -> str:
    """An extent in the language of conditions."""
    if extent[0] == "dim":
        return f"dim({extent[1]},{extent[2]})"
    if extent[0] == "sum":
        return " + ".join(expression(e) for e in extent[1])
    return str(extent[1]) if extent[0] == "one" else "0"


def has_window(extent: Extent) -> bool:
    """Whether an extent is one that conditions cannot name."""
    return extent[0] == "window" or (extent[0] == "sum" and any(has_window(e) for e in extent[1]))
