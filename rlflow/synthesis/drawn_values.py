"""Values without operands: inputs, and constants whose elements conditions may read."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np

from rlflow.synthesis.drawn_numbers import BOOL, DrawnType, NumberDraw, elements_of
from rlflow.synthesis.element_types import DTYPES
from rlflow.synthesis.field import key_of
from rlflow.synthesis.integers import edges_of, wrapped
from rlflow.synthesis.operators.facets import DRAWN_FLOATS
from rlflow.synthesis.want import GiveUp, Want


class ValueDraw(NumberDraw):
    """Draws inputs and constants that fit what an operator wants, what the hints say, and what conditions ask."""

    def shape(self, v: int) -> tuple[int, ...]:
        return tuple(self.builder.shape(v))

    def dtype_of(self, v: int) -> int:
        return int(self.builder.dtype(v))

    def fresh(self, name: str, want: Want) -> int:
        """A new value for the variable ``name``: an input, a constant, or now and then a value that exists already."""
        dtype, shape, elements = self._type_for(name, want)
        if elements is not None:
            near = self.hints.boundaries.values
            other = bool(near) and self.rng.random() < 0.25
            self.strayed = self.strayed or other
            return self.constant(name, dtype, shape, value=self.rng.choice(near) if other else float(elements))
        if self.rng.random() < 0.15 and name not in self.hints.constants:
            same = [v for v in self.made + self.inner if (self.dtype_of(v), self.shape(v)) == (dtype, shape)]
            if same:
                return self.rng.choice(same)
        is_constant = name in self.hints.constants or name in self.hints.valued or self.rng.random() < 0.08
        index = want.index_below
        if index is None and not is_constant:
            return self.input(dtype, shape)
        if not is_constant:
            v = self.input(dtype, shape)
            self.index_inputs[self.inputs - 1] = index or 1
            return v
        return self.constant(name, dtype, shape, index)

    def _type_for(self, name: str, want: Want) -> DrawnType:
        hinted = self._hinted(name)
        if hinted:
            return hinted
        dtype = want.dtype if want.dtype is not None else self.dtype
        if self.obey and name in self.hints.dtypes and not (self.typed and self.rng.random() < 0.7):
            dtype = DTYPES[self.rng.choice(self.hints.dtypes[name])]
        if self.obey and name in self.hints.scalars and self.rng.random() < 0.85:
            return dtype, self.rng.choice([(), (), (1,), (1, 1)]), None
        equal = [self.shape(self.values[n]) for n in self.hints.same.get(name, ()) if self.obey and n in self.values]
        if equal:
            return dtype, equal[0], None
        return dtype, self._related(name, self._free_shape(name, want)), None

    def _free_shape(self, name: str, want: Want) -> tuple[int, ...]:
        if want.shape is not None:
            return want.shape
        rank = want.rank
        if rank is None and self.obey and name in self.hints.ranks:
            rank = self.rng.choice(self.hints.ranks[name])
        return self.dims(self.rank(want.least_rank) if rank is None else rank)

    def _related(self, name: str, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape with the extents that the conditions tie to a number, or to a value that is there."""
        dims = list(shape)
        for i, other, j in self.hints.dims.get(name, ()) if self.obey else ():
            theirs = [] if isinstance(other, int) or other not in self.values else self.shape(self.values[other])
            if -len(dims) <= i < len(dims) and isinstance(other, int):
                dims[i] = other
            elif -len(dims) <= i < len(dims) and -len(theirs) <= j < len(theirs):
                dims[i] = theirs[j]
        return tuple(dims)

    def input(self, dtype: int, shape: tuple[int, ...]) -> int:
        v = self.builder.input(f"x{self.inputs}", dtype, list(shape))
        self.inputs += 1
        self.made.append(v)
        return v

    def constant(
        self, name: str, dtype: int, shape: tuple[int, ...], index_below: int | None = None, value: float | None = None
    ) -> int:
        """A constant; its elements are given where conditions may read them, else only its digest is."""
        count = elements_of(shape)
        values: list[Any] | None = None
        if value is not None:
            values = [value] * count
        elif index_below is not None:
            values = self._index_values(name, count, index_below)
        elif dtype not in DRAWN_FLOATS:
            values = self._integer_values(dtype, count)
        elif name in self.hints.valued or self.rng.random() < 0.1:
            values = self._float_values(count)
        # One digest is one constant, in the whole process: what tells two apart is in it.
        known = [dtype, *shape, "", *_spelled(values or ())]
        keys = [key_of(self.rng.random(), name, half, *known) for half in (0, 1)]
        v = self.builder.constant(dtype, list(shape), "".join(f"{key:016x}" for key in keys), values, None)
        self.made.append(v)
        return v

    def _index_values(self, name: str, count: int, below: int) -> list[int]:
        if below < 1:
            raise GiveUp
        if self.rng.random() < 0.4 and count <= below:
            first = self.rng.randint(0, below - count)
            return list(range(first, first + count))
        low = -below if self.rng.random() < 0.3 else 0
        return [self.rng.randint(low, below - 1) for _ in range(count)]

    def _integer_values(self, dtype: int, count: int) -> list[int]:
        if dtype == BOOL:
            return [self.rng.randint(0, 1) for _ in range(count)]
        pool, way = list(range(-3, 4)), self.rng.random()
        if way < 0.3:
            pool = [*self.hints.boundaries.integers, *pool]
        elif way < 0.55:  # signs and extremes are asked for
            pool = [1, 2, 3, 5]
        elif way < 0.75:  # what is beyond 2^53 the core does not hold
            pool = [e for e in edges_of(dtype) if abs(e) < 2**53 and (e > 0 or way < 0.65)]
        uniform = self.typed and self.rng.random() < 0.3
        values = [self.rng.choice(pool)] * count if uniform else choices(self.rng, pool, count)
        return wrapped(np.array(values, np.int64), dtype).tolist()

    def _float_values(self, count: int) -> list[float]:
        way = self.rng.random()
        pool = [-2.0, -1.0, -0.5, 0.25, 0.5, 1.0, 1.5, 2.0, 3.0] if way < 0.4 else [0.25, 0.5, 1.0, 1.5, 2.0, 3.0]
        if self.rng.random() < 0.2:
            pool = [0.0, 1.0]
        if self.hints.boundaries.values and self.rng.random() < 0.35:
            pool = list(self.hints.boundaries.values)
        if self.rng.random() < 0.4:
            return [self.rng.choice(pool)] * count
        return choices(self.rng, pool, count)


_FEW = 32  # choices that are made one by one


def choices(rng: random.Random, pool: Sequence[Any], count: int) -> list[Any]:
    """What ``count`` calls of ``rng.choice(pool)`` give, and leave ``rng`` as they do, in a tenth of their time.

    A call takes words of 32 bits until the first bits of one are a place in the pool.
    """
    if count < _FEW:
        return [rng.choice(pool) for _ in range(count)]
    bits, found = len(pool).bit_length(), np.empty(0, np.uint32)
    while len(found) < count:
        missing = count - len(found)
        words = np.frombuffer(rng.getrandbits(32 * missing).to_bytes(4 * missing, "little"), "<u4")
        places = words >> np.uint32(32 - bits)
        found = np.concatenate([found, places[places < len(pool)]])
    return [pool[k] for k in found.tolist()]


def _spelled(values: Sequence[Any]) -> list[str]:
    """The numbers as Python writes them, each object once: most are one of a few."""
    texts = {id(v): repr(v) for v in {id(v): v for v in values}.values()}
    return [texts[id(v)] for v in values]
