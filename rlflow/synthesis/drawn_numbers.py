"""The state of one attempt at a graph, and the numbers that it is made of: extents, ranks, letters of hints."""

from __future__ import annotations

import functools
import math
import random
import re
from collections.abc import Sequence
from typing import Any

from rlflow import _core
from rlflow.errors import RlflowError
from rlflow.synthesis.boundaries import LARGE_EXTENTS
from rlflow.synthesis.element_types import DTYPES
from rlflow.synthesis.hints import SamplingHints
from rlflow.synthesis.twins import Twins

F32, BOOL = 1, 9
#: dtype, shape, and the element of a uniform constant
DrawnType = tuple[int, tuple[int, ...], "str | None"]

_TYPE = re.compile(r"(\w+)\[(.*)\](?: = (\S+))?")


class NumberDraw:
    """What is drawn before there are values. Hints are followed, loosely."""

    def __init__(
        self, hints: SamplingHints, rng: random.Random, *, largest: int = 4, stray: bool = False, dtype: int = 0
    ) -> None:
        """``dtype``: of what has no type by its operators or conditions; by chance where that is 0."""
        self.hints = hints
        self.rng = rng
        self.largest = largest
        self._usual = range(2, largest + 1)
        self.builder = _core.GraphBuilder()
        self.hint = rng.choice(hints.samples) if hints.samples and rng.random() < 0.6 else None
        self.obey = self.hint is not None or rng.random() < 0.75
        self.looseness = rng.choice([0.1, 0.2, 0.35]) if stray else 0.06
        self.asked, self.typed = dtype, bool(dtype)
        self.dtype = dtype or self._any_dtype()
        self.mixed = len(hints.roots) > 1 and rng.random() < 0.15
        self.retyped = self.typed or self.mixed or rng.random() < 0.06
        self.strayed = self.hint is None or self.retyped
        share = 0.5 if hints.boundaries.extents else 0.15
        self.large_left = 2 if rng.random() < share else 0  # a few large extents in some of the samples
        self.renumbered: dict[str, str] | None = {} if self.hint is not None and rng.random() < 0.25 else None
        self.twins = Twins(rng)
        self.values: dict[str, int] = {}
        self.members: dict[str, list[int]] = {}
        self.local: dict[str, int] | None = None
        self.attrs: dict[str, Any] = {}
        self.rests: dict[str, dict[str, Any]] = {}
        self.ops: dict[str, tuple[str, dict[str, Any], list[int]]] = {}
        self.letters: dict[str, int] = {}
        self.made: list[int] = []
        self.inner: list[int] = []
        self.index_inputs: dict[int, int] = {}
        self.inputs = 0
        self.parts: dict[int, int] = {}  # number of outputs of each Split, by its first one

    def _any_dtype(self) -> int:
        return self.rng.choices([1, 11, 10, 7], cum_weights=[88, 92, 95, 100])[0]

    def extent(self) -> int:
        """An extent between 1 and ``largest``, 1 more often than the others; now and then a large one, or one at a
        boundary of the statement."""
        if self.large_left and self.rng.random() < 0.4:
            self.large_left -= 1
            near = self.hints.boundaries.extents
            return self.rng.choice(near if near and self.rng.random() < 0.8 else LARGE_EXTENTS)
        return 1 if self.rng.random() < 0.3 else self.rng.choice(self._usual)

    def dims(self, rank: int) -> tuple[int, ...]:
        shape = [self.extent() for _ in range(rank)]
        large = max(shape, default=1) > self.largest  # the others give way to it
        while elements_of(shape) > (2 * max(shape) if large else 160) and sorted(shape)[-2 if large else -1] > 1:
            shape[shape.index(sorted(shape)[-2 if large else -1])] -= 1
        return tuple(shape)

    def rank(self, least: int = 0) -> int:
        near = self.hints.boundaries.ranks
        if near and self.rng.random() < 0.15:
            return max(least, self.rng.choice(near))
        return max(least, self.rng.choices([0, 1, 2, 3, 4, 5], cum_weights=[4, 18, 46, 74, 94, 100])[0])

    def count(self, usual: Sequence[int]) -> int:
        """A number of operands or parts, of the usual ones; now and then one at a boundary of the statement."""
        near = [n for n in self.hints.boundaries.counts if n >= min(usual)]
        return self.rng.choice(near if near and self.rng.random() < 0.3 else usual)

    def kernel(self, n: int) -> list[int]:
        """The extents of a window over ``n`` axes."""
        return self.rng.choice([[1] * n, [1] * n, [3] * n, [2] * n, [self.rng.randint(1, 3) for _ in range(n)]])

    def partner(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """A shape that broadcasts with ``shape``."""
        way = self.rng.random()
        if way < 0.35:
            return shape
        if way < 0.45:
            return ()
        if way < 0.6:
            return shape[self.rng.randint(0, len(shape)) :]
        if way < 0.7:
            return (*self.dims(self.rng.randint(1, 2)), *shape)
        cut = shape[self.rng.randint(0, len(shape)) :] if self.rng.random() < 0.3 else shape
        keep = self.rng.random()
        return tuple(
            self.extent() if d == 1 and self.rng.random() < 0.3 else d if self.rng.random() < keep else 1 for d in cut
        )

    # ---- hints

    def _letter(self, text: str) -> int:
        total = 1
        for part, is_number in _factors(text):
            total *= self._number(part) if is_number else self.letters.setdefault(part, self.extent())
        if self.rng.random() < self.looseness / 3:  # one place where what the hint ties together is not
            self.strayed = True
            return self.extent()
        return total

    def _number(self, digits: str) -> int:
        """A number of a hint: as it is, or in some samples another one, the same wherever it stands."""
        if self.renumbered is None:
            return int(digits)
        if digits not in self.renumbered:
            other = self.extent() if self.rng.random() < 0.5 else int(digits)
            self.strayed = self.strayed or other != int(digits)
            self.renumbered[digits] = str(other)
        return int(self.renumbered[digits])

    def _hint_for(self, name: str) -> Any:
        """The hint for a variable. Now and then one is disregarded, so that what lies beside the hints is seen too."""
        spec = (self.hint or {}).get(name)
        if spec is not None and self.rng.random() < self.looseness:
            self.strayed = True
            return None
        return spec

    def _hinted(self, name: str) -> DrawnType | None:
        spec = self._hint_for(name)
        if spec is None:
            return None
        found = _type(self.rng.choice(spec) if isinstance(spec, list) else spec)
        if not found:
            raise RlflowError(f'the sample hint {name}: {spec!r} is not a type such as "f32[A,B]" or "f32[] = 1"')
        dtype, dims, elements = found
        if self.local is not None:  # lower-case letters differ from member to member of a star group
            for d in dims:
                for part, _ in _factors(d):
                    if part.islower():
                        self.letters.pop(part, None)
        return self.dtype if self.retyped and dtype == F32 else dtype, tuple([self._letter(d) for d in dims]), elements


@functools.lru_cache(maxsize=4096)
def _type(text: str) -> tuple[int, tuple[str, ...], str | None] | None:
    """Element type, extents and elements of a hint such as "f32[A,B*2] = 1"; ``None`` where it is none."""
    m = _TYPE.fullmatch(text)
    if m and m.group(1) not in DTYPES:
        raise RlflowError(f'the sample hint "{text}": "{m.group(1)}" is no element type that can be drawn')
    return (DTYPES[m.group(1)], tuple(d for d in m.group(2).split(",") if d.strip()), m.group(3)) if m else None


@functools.lru_cache(maxsize=4096)
def _factors(text: str) -> tuple[tuple[str, bool], ...]:
    """The factors of an extent such as "2*A", and whether each is a number."""
    return tuple((part.strip(), part.strip().isdigit()) for part in text.split("*"))


def elements_of(shape: Any) -> int:
    """Elements of a shape."""
    return math.prod(shape)
