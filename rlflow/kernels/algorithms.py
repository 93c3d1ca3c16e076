"""The algorithms that a plan may name, and the parameter space of each: what a tuner may choose.

>>> from rlflow.kernels import spaces
>>> sorted(spaces()["winograd-4x4"])
['chunk', 'part']
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import prod

from rlflow.errors import UsageError

#: Attributes of a node, by name.
Tuning = Mapping[str, int]

#: Sites of a kind that are also sites of another.
ALSO = {"norm-of-blocks": "norm"}


@dataclass(frozen=True)
class Algorithm:
    """What a kernel does at sites of one ``kind`` (see :mod:`rlflow.frontends.kernel_sites`), and of kinds that have
    all that this has (:data:`ALSO`).

    ``fixed``: the attributes that make it this algorithm. ``space``: each parameter's values, of which the first is the
    default; any combination is valid at any site, gives the same result up to the order of additions, and differs in
    speed. ``exact``: it rounds as the runtime's own kernel does, up to the order of additions. ``coarse``: it rounds so
    much more that the others are tried where it differs too much. ``most_rows``, ``most_pixels``: it is not worth a
    trial for a larger first operand, counted in rows of its last axis, or in numbers of its last two; ``least_rows``:
    for a smaller one. ``multiple``: it needs sizes that are multiples of this.
    """

    name: str
    kind: str
    fixed: Tuning = field(default_factory=dict)
    space: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    exact: bool = True
    coarse: bool = False
    most_rows: int | None = None
    most_pixels: int | None = None
    least_rows: int = 0
    multiple: int = 1

    def does(self, kind: str) -> bool:
        """Whether it is for sites of this kind."""
        return self.kind in (kind, ALSO.get(kind))

    @property
    def keeps_weights(self) -> bool:
        """Whether it takes transformed weights, which are larger, instead of the model's."""
        return bool(self.fixed.get("kept"))

    def more_bytes(self, sizes: Sequence[int]) -> int:
        """How much more memory the weights of a site of these sizes take than the model's own."""
        if not self.keeps_weights:
            return 0
        taps = [*sizes[2:]] or [3, 3]
        points = prod(one + self.fixed["tile"] - 1 if one > 1 else 1 for one in taps)
        return 4 * sizes[0] * sizes[1] * (points - prod(taps))

    def takes(self, sizes: Sequence[int]) -> bool:
        """Whether it can do a site of its kind and these sizes."""
        return not any(size % self.multiple for size in sizes)

    def is_worth_trying(self, sizes: Sequence[int], shape: Sequence[int] | None) -> bool:
        """Whether it may be fast at a site of these sizes for a first operand of this shape; ``None``: unknown."""
        if not self.takes(sizes):
            return False
        if shape is None:
            return self.most_rows is None and self.most_pixels is None and not self.least_rows
        rows = prod(shape[:-1])
        few = self.most_rows is None or rows <= self.most_rows
        return few and rows >= self.least_rows and (self.most_pixels is None or prod(shape[-2:]) <= self.most_pixels)

    def points(self) -> Iterator[dict[str, int]]:
        """All combinations of the parameters, the defaults first."""
        for values in product(*self.space.values()):
            yield dict(zip(self.space, values, strict=True))

    def attributes(self, tuning: Tuning | None = None) -> dict[str, int]:
        """The attributes of a node that does this; parameters that ``tuning`` leaves out have their defaults.

        Raises UsageError for a parameter or a value that the space lacks.
        """
        for name, value in (tuning or {}).items():
            if name not in self.space:
                known = ", ".join(self.space) or "none"
                raise UsageError(f"The kernel {self.name} has no parameter {name!r}; it has {known}.")
            if isinstance(value, bool) or value not in self.space[name]:
                allowed = ", ".join(map(str, self.space[name]))
                raise UsageError(f"The kernel {self.name} has no {name}={value!r}; choose one of {allowed}.")
        return {**self.fixed, **(tuning or {})}


#: Tiles worked on at a time, and input channels in a pass of the product (multiples of any block); 0: by the caches.
_WINOGRAD = {"chunk": (0, 12, 24, 36, 48, 72, 96, 144, 192, 288, 384, 576), "part": (0, 64, 96, 128, 192, 256, 512)}

#: Rows of the product, as pixels, worked on at a time; 0: by the caches.
_UNROLLED = {"chunk": (0, 48, 96, 144, 192, 288, 384, 576, 768, 1152)}

#: Strassen's algorithm halves rows, and a step of the product takes a dozen of them.
_HALVES = 48

#: Of few pixels only, the work of transforming the weights is worth more memory.
_KEPT_PIXELS = 1600


def _winograd(name: str, kind: str, tile: int, *, coarse: bool = False, kept: bool = True) -> Iterator[Algorithm]:
    """With weights that are transformed in each call, and that are kept transformed."""
    yield Algorithm(name, kind, {"tile": tile}, _WINOGRAD, exact=False, coarse=coarse)
    if kept:
        fixed, space = {"tile": tile, "kept": 1}, {"chunk": _WINOGRAD["chunk"]}
        yield Algorithm(f"{name}-kept", kind, fixed, space, exact=False, coarse=coarse, most_pixels=_KEPT_PIXELS)


ALGORITHMS: Mapping[str, Algorithm] = {
    one.name: one
    for one in (
        *_winograd("winograd-2x2", "convolution", 2),
        *_winograd("winograd-4x4", "convolution", 4, coarse=True),
        *_winograd("winograd-2x2-of-5x5", "convolution-5x5", 2, coarse=True, kept=False),
        *_winograd("winograd-2-of-7", "convolution-7", 2, coarse=True),
        *_winograd("winograd-4-of-3", "convolution-3", 4),
        Algorithm("unrolled-strassen", "convolution-other", {"strassen": 1}, _UNROLLED, exact=False),
        Algorithm("unrolled", "convolution-other", {}, _UNROLLED),
        Algorithm("row-product", "product", {}, {"ahead": (16, 0, 4, 8, 32, 64, 128, 256)}, most_rows=4),
        Algorithm(
            "product-strassen", "product", {"strassen": 1}, _UNROLLED, exact=False, least_rows=_HALVES, multiple=32
        ),
        Algorithm("blocked-product", "product", {"strassen": 0}, _UNROLLED, least_rows=_HALVES, multiple=16),
        Algorithm("depthwise", "depthwise", {}, {"side_by_side": (4, 1, 2)}),
        Algorithm("grouped", "grouped", {}, {"side_by_side": (8, 4)}),
        Algorithm("row-gelu", "gelu", {}, {"rows": (0, 1, 2, 4, 8, 16, 32, 64)}),
        Algorithm("blocked-norm", "norm-of-blocks", {"blocked": 1}, {"pixels": (0, 8, 16, 32, 64, 128, 256)}),
        Algorithm("row-norm", "norm", {}, {"rows": (0, 1, 2, 4, 8, 16, 32, 64)}),
    )
}


def worth_trying(kind: str, sizes: Sequence[int], shape: Sequence[int] | None) -> list[str]:
    """The names of the algorithms for sites of a kind and sizes; ``shape``: the first operand's, ``None``: unknown."""
    return [one.name for one in ALGORITHMS.values() if one.does(kind) and one.is_worth_trying(sizes, shape)]


def spaces() -> dict[str, dict[str, tuple[int, ...]]]:
    """The parameter space of each algorithm: its parameters' values, the default first.

    A point of a space, a value for each parameter, makes a kernel by ``ALGORITHMS[name].attributes(point)``;
    ``BlockedGraph.with_kernels`` takes these, and a :class:`rlflow.kernels.Choice` keeps them as ``tuning``.
    """
    return {name: dict(one.space) for name, one in ALGORITHMS.items()}
