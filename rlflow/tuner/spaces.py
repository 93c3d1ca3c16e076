"""Spaces of tensor programs: a sketch says which loops and choices there are, a program gives each of them a value.

A sketch's parameters are of two kinds. A :class:`Tile` splits a loop into parts whose product is its extent; an edit
moves a prime factor from one part to another. :class:`Steps` are ordered values; an edit takes the next or the last
one. Every edit is a vector of four sub-actions, one of each of :data:`GROUPS` (HARL, Zhang et al., ICPP 2022); where
a sketch has nothing of a group, "leave it" is the only one.

Programs of one sketch are rows of integers [n, width]: the parts of each tile, then the position of each ordered
choice.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from rlflow.errors import UsageError

#: The sub-actions of an edit, in their order.
GROUPS = ("tile", "compute_at", "parallel", "unroll")
TILE = 0
#: Stands for the source and the target of the edit that leaves everything as it is.
NOWHERE = -1


class TensorProgram(NamedTuple):
    """A program: the number of its sketch, and its row."""

    sketch: int
    values: tuple[int, ...]


@dataclass(frozen=True)
class Tile:
    """A loop of ``extent`` split into ``parts``, outermost first. ``innermost``: the most that the last part may be (0:
    any). ``reduction``: whether the loop sums.
    """

    name: str
    extent: int
    parts: int
    innermost: int = 0
    reduction: bool = False

    def __post_init__(self) -> None:
        if self.extent < 1 or self.parts < 1 or not len(self.options):
            raise UsageError(f"The loop {self.name!r} of {self.extent} cannot be split into {self.parts} parts.")

    @property
    def options(self) -> np.ndarray:
        """Every split [count, parts], in lexical order."""
        return _splits(self.extent, self.parts, self.innermost)


@dataclass(frozen=True)
class Steps:
    """A choice among ``values``, which are in order. ``group``: the sub-action that changes it."""

    name: str
    group: str
    values: tuple[int, ...]

    def __post_init__(self) -> None:
        if self.group not in GROUPS or not self.values:
            raise UsageError(f"The choice {self.name!r} has the group {self.group!r} and {len(self.values)} values.")


class Moves(NamedTuple):
    """The edits of a sketch, ordered by group; the first of each group leaves everything as it is.

    ``group`` [m]; ``source``, ``target`` [m]: the columns that a factor moves between; for ordered choices both are the
    choice's. ``step`` [m]: -1 or 1 for those, else 0.
    """

    group: np.ndarray
    source: np.ndarray
    target: np.ndarray
    step: np.ndarray


@dataclass(frozen=True)
class Sketch:
    """Loop structure, with what is left open."""

    name: str
    tiles: tuple[Tile, ...]
    steps: tuple[Steps, ...] = ()

    # --- columns ----------------------------------------------------------------------------------------------------

    @functools.cached_property
    def begins(self) -> tuple[int, ...]:
        """The first column of each tile."""
        return tuple(int(n) for n in np.cumsum([0, *(tile.parts for tile in self.tiles)])[:-1])

    @functools.cached_property
    def split_columns(self) -> int:
        """Columns that are parts of tiles; those after them are ordered choices."""
        return sum(tile.parts for tile in self.tiles)

    @property
    def width(self) -> int:
        """Columns of a row."""
        return self.split_columns + len(self.steps)

    @functools.cached_property
    def names(self) -> tuple[str, ...]:
        """Of the columns."""
        parts = [f"{tile.name}.{part}" for tile in self.tiles for part in range(tile.parts)]
        return (*parts, *(one.name for one in self.steps))

    @functools.cached_property
    def _limits(self) -> np.ndarray:
        """[width] The most that a column may hold."""
        most = [
            tile.innermost if part == tile.parts - 1 and tile.innermost else tile.extent
            for tile in self.tiles
            for part in range(tile.parts)
        ]
        return np.array([*most, *(len(one.values) - 1 for one in self.steps)], dtype=np.int64)

    @functools.cached_property
    def smallest_factors(self) -> np.ndarray:
        """The smallest prime factor of each number up to the largest extent; 1 of 0 and 1."""
        return _smallest_factors(max([tile.extent for tile in self.tiles], default=1))

    # --- edits ------------------------------------------------------------------------------------------------------

    @functools.cached_property
    def moves(self) -> Moves:
        """Every edit of this sketch."""
        rows = [(group, NOWHERE, NOWHERE, 0) for group in range(len(GROUPS))]
        for tile, begin in zip(self.tiles, self.begins, strict=True):
            columns = range(begin, begin + tile.parts)
            rows += [(TILE, one, other, 0) for one in columns for other in columns if one != other]
        for column, one in enumerate(self.steps, self.split_columns):
            rows += [(GROUPS.index(one.group), column, column, step) for step in (-1, 1)]
        rows.sort(key=lambda row: row[0])  # stable: the one that changes nothing stays in front
        return Moves(*np.array(rows, dtype=np.int64).T)

    def legal(self, values: np.ndarray) -> np.ndarray:
        """[n, m] Which edits of ``values`` [n, width] stay in the space."""
        moves = self.moves
        still = moves.source == NOWHERE
        source, target = np.where(still, 0, moves.source), np.where(still, 0, moves.target)
        if not self.width:
            return np.ones((len(values), len(source)), dtype=bool)
        split = (moves.step == 0) & ~still
        given, taking = values[:, source], values[:, target]
        factor = self.smallest_factors[np.where(split, given, 1)]
        moved = (factor > 1) & (taking * factor <= self._limits[target])
        after = given + moves.step
        return np.where(still, True, np.where(split, moved, (after >= 0) & (after <= self._limits[target])))

    def moved(self, values: np.ndarray, chosen: np.ndarray) -> np.ndarray:
        """The rows after the legal edits ``chosen`` [n, 4], one of each group; groups share no column."""
        out = values.copy()
        rows = np.arange(len(values))
        for group in range(len(GROUPS)):
            source, target = self.moves.source[chosen[:, group]], self.moves.target[chosen[:, group]]
            step = self.moves.step[chosen[:, group]]
            split, ordered = rows[(source >= 0) & (step == 0)], rows[step != 0]
            factor = self.smallest_factors[out[split, source[split]]]
            out[split, source[split]] //= factor
            out[split, target[split]] *= factor
            out[ordered, source[ordered]] += step[ordered]
        return out

    @property
    def fixed(self) -> bool:
        """Whether nothing is left open."""
        return self.size == 1

    # --- programs ---------------------------------------------------------------------------------------------------

    @functools.cached_property
    def radices(self) -> tuple[int, ...]:
        """How many values each parameter has: tiles, then ordered choices."""
        return (*(len(tile.options) for tile in self.tiles), *(len(one.values) for one in self.steps))

    @property
    def size(self) -> int:
        """Number of programs."""
        return int(np.prod([float(count) for count in self.radices], initial=1.0))

    def rows(self, digits: np.ndarray) -> np.ndarray:
        """[n, width] The rows whose parameters have these numbers [n, parameters]."""
        split = [tile.options[digits[:, at]] for at, tile in enumerate(self.tiles)]
        return np.concatenate([*split, digits[:, len(self.tiles) :]], axis=1).astype(np.int64)

    def random(self, rng: np.random.Generator, count: int) -> np.ndarray:
        """[count, width] Rows that are drawn uniformly."""
        return self.rows(rng.integers(0, np.array(self.radices, dtype=np.int64), (count, len(self.radices))))

    def all_rows(self) -> np.ndarray:
        """[size, width] Every program, the last parameter changing fastest."""
        if not self.radices:
            return np.zeros((1, 0), dtype=np.int64)
        return self.rows(np.stack(np.unravel_index(np.arange(self.size), self.radices), axis=1))

    def holds(self, values: Sequence[int]) -> bool:
        """Whether this row is a program of the sketch."""
        row = np.asarray(values, dtype=np.int64)
        if row.shape != (self.width,):
            return False
        within = bool(((row >= 0) & (row <= self._limits)).all())
        parts = [row[begin : begin + tile.parts] for tile, begin in zip(self.tiles, self.begins, strict=True)]
        return within and all(int(part.prod()) == tile.extent for part, tile in zip(parts, self.tiles, strict=True))


@dataclass(frozen=True)
class Space:
    """All programs of a subgraph."""

    sketches: tuple[Sketch, ...]

    def __post_init__(self) -> None:
        if not self.sketches:
            raise UsageError("A space of programs needs a sketch; none was given.")

    @property
    def size(self) -> int:
        """Number of programs."""
        return sum(sketch.size for sketch in self.sketches)

    def random(self, rng: np.random.Generator, count: int, sketch: int | None = None) -> list[TensorProgram]:
        """Programs of a sketch, or of sketches that are drawn uniformly."""
        drawn = rng.integers(0, len(self.sketches), count) if sketch is None else np.full(count, sketch)
        return [TensorProgram(int(one), tuple(self.sketches[one].random(rng, 1)[0].tolist())) for one in drawn]

    def programs(self) -> Iterator[TensorProgram]:
        """Every program, sketch by sketch."""
        for number, sketch in enumerate(self.sketches):
            for row in sketch.all_rows().tolist():
                yield TensorProgram(number, tuple(row))

    def holds(self, program: TensorProgram) -> bool:
        """Whether it is one of this space."""
        return 0 <= program.sketch < len(self.sketches) and self.sketches[program.sketch].holds(program.values)

    # --- features ---------------------------------------------------------------------------------------------------

    @functools.cached_property
    def _places(self) -> dict[str, int]:
        """The column of each feature by name; sketches that name a loop alike share its columns."""
        names: dict[str, int] = {}
        for sketch in self.sketches:
            for name in _feature_names(sketch):
                names.setdefault(name, len(names))
        return names

    def features(self, programs: Sequence[TensorProgram]) -> np.ndarray:
        """[n, f] float64: which sketch, the base-2 logarithm of each part and of what lies inside of it, and the
        position of each ordered choice between 0 and 1.
        """
        out = np.zeros((len(programs), len(self.sketches) + len(self._places)))
        owner = np.array([one.sketch for one in programs], dtype=np.int64)
        out[np.arange(len(programs)), owner] = 1.0
        for number in np.unique(owner).tolist():
            sketch, rows = self.sketches[number], np.flatnonzero(owner == number)
            values = np.array([programs[row].values for row in rows.tolist()], dtype=np.int64)
            columns = np.array([len(self.sketches) + self._places[name] for name in _feature_names(sketch)], dtype=int)
            out[rows[:, None], columns] = row_features(sketch, values)
        return out


def row_features(sketch: Sketch, values: np.ndarray) -> np.ndarray:
    """[n, 2 · split columns + choices] What :meth:`Space.features` says of rows [n, width] of one sketch."""
    parts = np.log2(values[:, : sketch.split_columns])
    inside = np.concatenate(
        [
            parts[:, begin : begin + tile.parts][:, ::-1].cumsum(axis=1)[:, ::-1]
            for tile, begin in zip(sketch.tiles, sketch.begins, strict=True)
        ]
        or [parts],
        axis=1,
    )
    most = np.array([max(1, len(one.values) - 1) for one in sketch.steps], dtype=np.float64)
    return np.concatenate([parts, inside, values[:, sketch.split_columns :] / most], axis=1)


def _feature_names(sketch: Sketch) -> list[str]:
    parts = list(sketch.names[: sketch.split_columns])
    return [*parts, *(f"{name} and inside" for name in parts), *sketch.names[sketch.split_columns :]]


@functools.cache
def _splits(extent: int, parts: int, innermost: int) -> np.ndarray:
    rows = [row for row in _factorisations(extent, parts) if not innermost or row[-1] <= innermost]
    found = np.array(sorted(rows), dtype=np.int64).reshape(len(rows), parts)
    found.flags.writeable = False
    return found


def _factorisations(extent: int, parts: int) -> Iterator[tuple[int, ...]]:
    if parts == 1:
        yield (extent,)
        return
    for first in range(1, extent + 1):
        if extent % first == 0:
            for rest in _factorisations(extent // first, parts - 1):
                yield (first, *rest)


@functools.cache
def _smallest_factors(most: int) -> np.ndarray:
    found = np.arange(most + 1, dtype=np.int64)
    found[0] = 1
    for number in range(2, int(most**0.5) + 1):
        if found[number] == number:
            multiples = found[number * number :: number]
            multiples[multiples > number] = np.minimum(multiples[multiples > number], number)
    found.flags.writeable = False
    return found
