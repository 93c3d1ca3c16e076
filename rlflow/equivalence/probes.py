"""Inputs that are likely to show a mistake, the cheap and telling ones first.

Standard normal inputs at one size pass over much: a bound at 100 is never met, an epsilon of 1e-5 never matters, a row
of a large table is hardly ever read. So a model is also run at other sizes of its open dimensions, on values at the
constants that it compares with (carried back to its inputs where that is simple, else by scaling the inputs until a
value inside crosses), at three scales, on values of one sign, on small whole numbers in which there are equals, on
integers over the range of their type, and on every row of its tables.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from rlflow.equivalence.feeds import Ranges, make_inputs
from rlflow.errors import RuntimeCrashed, RuntimeRefused, UsageError
from rlflow.runtime import ModelSource, TensorInfo

if TYPE_CHECKING:
    from rlflow.frontends.sensitivity import Sensitivity

Arrays = dict[str, np.ndarray]
Run = Callable[[ModelSource, Sequence[Mapping[str, np.ndarray]], str], Any]

_LARGE, _SMALL = (1e3, 30.0), 1e-3
_LARGE_HALF, _SMALL_HALF = (8.0,), 0.125
#: Scales at which values inside are looked at.
_LOOKS = (0.01, 0.1, 10.0, 100.0, 300.0, 3e3, 3e4)
#: Above this an open dimension is tried with few as well.
_FEW = 4
#: Size of an open dimension with which rows of a table are read at first, elements of such an input at most, and the
#: seconds of a run below which the next one reads four times as many.
_ROWS_AT_FIRST, _MOST_ROWS, _QUICK = 16, 1 << 14, 0.05
#: A larger integer that became a float would drown what it is added to.
_SUMMED_RANGE = (-4, 9)


class Probe(dict[str, np.ndarray]):
    """One array per input, by name; ``kind`` says in words what is special about them.

    A runner passes over a probe that the model refuses, and says so in ``refused``: what the model does not take
    proves nothing. ``exact``: equal values are meant to be equal, so that moving them would spoil them.
    """

    def __init__(self, kind: str, feeds: Mapping[str, np.ndarray], *, exact: bool = False) -> None:
        super().__init__({name: np.asarray(array) for name, array in feeds.items()})  # arithmetic makes scalars of them
        self.kind, self.exact, self.refused = kind, exact, False

    @property
    def scaled(self) -> bool:
        """Whether values inside may be near the ends of their type."""
        return self.kind.startswith("scale")

    @property
    def is_rows(self) -> bool:
        """Whether it reads some rows of a table, as many others do."""
        return self.kind.startswith("rows")


@dataclass
class ProbePlan:
    """What is known about a model's inputs: their types, the sizes of open dimensions (``dims``, of which those in
    ``fixed`` do not vary), ranges of integers (see :func:`make_inputs`), arrays that the user ``given``, and what the
    nodes tell (:class:`~rlflow.frontends.sensitivity.Sensitivity`).
    """

    infos: Sequence[TensorInfo]
    dims: Mapping[str, int]
    ranges: Ranges
    sensitivity: Sensitivity
    seed: int = 0
    fixed: frozenset[str] = frozenset()
    given: Mapping[str, np.ndarray] = field(default_factory=dict)
    watched: ModelSource | None = None

    def probes(self, run: Run, fits: Callable[[int], bool] = lambda runs: True) -> Iterator[Probe]:
        """The probes in order. The consumer runs each before it asks for the next. ``fits`` says whether so many runs
        at once have time, which a look at values inside takes.
        """
        yield from self._thresholds()
        yield from self._sizes()
        yield from self._scales(run, fits)
        yield from self._signs()
        yield from self._equals()
        yield from self._rows()

    # -- the kinds

    def _thresholds(self) -> Iterator[Probe]:
        at = self.sensitivity.inputs
        floats = [info for info in self._free("f") if any(at.get(info.name, ()))]
        integers = [info for info in self._free("iu") if self._range_of(info) is not None]
        if not floats and not integers:
            return
        for number in range(2):
            rng, feeds = self._fresh(10 + number)
            for info in floats:
                feeds[info.name] = _near(feeds[info.name], at[info.name], rng)
            for info in integers:
                low, high = self._range_of(info) or (0, 1)
                feeds[info.name] = _integers(feeds[info.name], low, high, at.get(info.name, ()), rng)
            yield Probe("thresholds" if floats else "integers", feeds)

    def _sizes(self) -> Iterator[Probe]:
        """Other sizes of the open dimensions: all of them one up, else all doubled, else one at a time; and those that
        are large at 2 or 3, where bounds that count from the end meet those that count from the start.
        """
        names = [name for name in self._open_names() if name not in self.fixed]
        up = {
            name: self.dims[name] + 1 + (number % 2 if self.dims[name] == 1 else 0) for number, name in enumerate(names)
        }
        tries = [up, {name: self.dims[name] + 1 for name in names}, {name: 2 * self.dims[name] for name in names}]
        tries += [{name: change} for name in names for change in (self.dims[name] + 1, 2 * self.dims[name])]
        few = {name: 2 + number % 2 for number, name in enumerate(names) if self.dims[name] > _FEW}
        yield from self._accepted(tries)
        yield from self._accepted([few, *({name: size} for name, size in few.items())])

    def _accepted(self, tries: Sequence[dict[str, int]]) -> Iterator[Probe]:
        """Of sizes by dimension those that the runtime takes, until each dimension was among some."""
        accepted: set[str] = set()
        for sizes in tries:
            if not sizes or accepted.issuperset(sizes):
                continue
            try:
                feeds = make_inputs(self.infos, self.seed + 20, self.ranges, self.given, {**self.dims, **sizes})
            except UsageError:
                return
            probe = Probe("sizes " + ", ".join(f"{name}={size}" for name, size in sizes.items()), feeds)
            yield probe
            accepted |= set() if probe.refused else set(sizes)

    def _scales(self, run: Run, fits: Callable[[int], bool]) -> Iterator[Probe]:
        half = self.sensitivity.half
        large, small = (_LARGE_HALF, _SMALL_HALF) if half else (_LARGE, _SMALL)
        if not self._scalable():
            return
        tried = [*large, small]
        for number, scale in enumerate(tried):
            yield Probe(f"scale {scale:g}", self._scaled(scale, 30 + number))
        for number, scale in enumerate([] if half else self._crossing(run, tried, fits), len(tried)):
            yield Probe(f"scale {scale:g}", self._scaled(scale, 30 + number))

    def _signs(self) -> Iterator[Probe]:
        """Floats of one sign, and masks that are all on or all off."""
        masks = [info for info in self.infos if info.name not in self.given and self._is_mask(info)]
        if not masks and not self._scalable():
            return
        for number, sign in enumerate((1, -1)):
            _, feeds = self._fresh(40 + number)
            for info in self._scalable():
                feeds[info.name] = (sign * (np.abs(feeds[info.name]) + 0.1)).astype(feeds[info.name].dtype)
            for info in masks:
                feeds[info.name] = np.full_like(feeds[info.name], max(sign, 0))
            yield Probe("positive" if sign > 0 else "negative", feeds)

    def _equals(self) -> Iterator[Probe]:
        """Small whole numbers and halves: ties, zeros, and the very thresholds."""
        if not self.sensitivity.exact or not self._scalable():
            return
        rng, feeds = self._fresh(50)
        for info in self._scalable():
            wanted = [*np.arange(-2.0, 2.5, 0.5), *self.sensitivity.inputs.get(info.name, ())]
            feeds[info.name] = rng.choice(np.asarray(wanted), feeds[info.name].shape).astype(feeds[info.name].dtype)
        yield Probe("equals", feeds, exact=True)

    def _rows(self) -> Iterator[Probe]:
        """Inputs that together read every row of the largest table."""
        indices = [info for info in self._free("iuf") if info.name in self.ranges]
        most = max((int(self.ranges[info.name][1]) + 1 for info in indices), default=0)
        name, wide, read, grown = self._open_axis(indices), _ROWS_AT_FIRST, 0, False
        while read < most:
            sizes = {} if name is None else {name: wide}
            feeds = make_inputs(self.infos, self.seed + 60, self.ranges, self.given, {**self.dims, **sizes})
            step = min(feeds[info.name].size for info in indices)
            if step == 0:
                return
            for info in indices:
                array, rows = feeds[info.name], int(self.ranges[info.name][1]) + 1
                feeds[info.name] = ((read + np.arange(array.size)) % rows).astype(array.dtype).reshape(array.shape)
            probe, began = Probe(f"rows {read} to {min(read + step, most) - 1}", feeds, exact=True), time.monotonic()
            yield probe
            if probe.refused and name is None:
                return
            if probe.refused:
                wide, grown = wide // 4, True
                name = name if wide else None
                continue
            read += step
            if not grown and time.monotonic() - began < _QUICK and 4 * step <= _MOST_ROWS:
                wide *= 4

    # -- what they are made of

    def _fresh(self, offset: int) -> tuple[np.random.Generator, Arrays]:
        seed = self.seed + offset
        return np.random.default_rng(seed), make_inputs(self.infos, seed, self.ranges, self.given, self.dims)

    def _free(self, kinds: str) -> list[TensorInfo]:
        return [info for info in self.infos if info.name not in self.given and _kind(info) in kinds]

    def _scalable(self) -> list[TensorInfo]:
        return [info for info in self._free("f") if info.name not in self.ranges]

    def _scaled(self, scale: float, offset: int) -> Arrays:
        _, feeds = self._fresh(offset)
        for info in self._scalable():
            feeds[info.name] = (feeds[info.name] * scale).astype(feeds[info.name].dtype)
        return feeds

    def _is_mask(self, info: TensorInfo) -> bool:
        unknown = info.name not in self.ranges and info.name not in self.sensitivity.structural
        return _kind(info) == "b" or (_kind(info) in "iu" and unknown)

    def _range_of(self, info: TensorInfo) -> tuple[int, int] | None:
        """The widest range that the consumers of an integer input allow; ``None`` where it is drawn from already."""
        if info.name in self.ranges or info.name in self.sensitivity.structural or info.dtype not in _INTEGERS:
            return None
        limits = np.iinfo(info.dtype)
        if info.name in self.sensitivity.summed and limits.bits > 8:
            return max(int(limits.min), _SUMMED_RANGE[0]), _SUMMED_RANGE[1]
        return int(limits.min), int(limits.max)

    def _open_names(self) -> list[str]:
        found: dict[str, None] = {}
        for info in self.infos:
            for axis, dim in enumerate(info.shape):
                name = dim if isinstance(dim, str) else f"{info.name}.{axis}"
                if not isinstance(dim, int) and info.name not in self.given and name in self.dims:
                    found[name] = None
        taken = {dim for info in self.infos if info.name in self.given for dim in info.shape if isinstance(dim, str)}
        return [name for name in found if name not in taken]

    def _open_axis(self, indices: Sequence[TensorInfo]) -> str | None:
        """An open dimension of an input that reads rows: the larger it is, the fewer runs read them all."""
        names = [name for name in self._open_names() if name not in self.fixed]
        own = [
            dim if isinstance(dim, str) else f"{info.name}.{i}" for info in indices for i, dim in enumerate(info.shape)
        ]
        return next((name for name in own if name in names), None)

    # -- values inside

    def _crossing(self, run: Run, tried: Sequence[float], fits: Callable[[int], bool]) -> list[float]:
        """At most two more scales at which values inside lie on both sides of the constants that they meet."""
        wanted = [(name, bound) for name, bounds in self.sensitivity.inside.items() for bound in bounds]
        scales = [1.0, *tried, *_LOOKS]
        if not wanted or self.watched is None or not fits(len(scales)):
            return []
        looks = [Probe(f"look {scale:g}", self._scaled(scale, 30)) for scale in scales]
        try:
            seen = run(self.watched, looks, "disable")
        except (RuntimeRefused, RuntimeCrashed):
            return []
        numbers = {name: number for number, name in enumerate(self.sensitivity.inside)}
        crossed = {
            scale: {pair for pair in wanted if _crosses(one, numbers[pair[0]], pair[1])}
            for scale, one in zip(scales, seen, strict=True)
        }
        return _cover(crossed, [1.0, *tried])


def _crosses(seen: Mapping[str, Any], number: int, bound: float) -> bool:
    """Whether the values reach from well below ``bound`` to well above it."""
    low, high = seen.get(f"rlflow.least.{number}"), seen.get(f"rlflow.greatest.{number}")
    if low is None or high is None or not np.isfinite(low) or not np.isfinite(high):
        return False
    margin = 0.02 * (float(high) - float(low))
    return float(low) + margin < bound < float(high) - margin


def _cover(crossed: Mapping[float, set[Any]], tried: Sequence[float]) -> list[float]:
    left = set().union(*crossed.values()).difference(*(crossed[scale] for scale in tried))
    chosen: list[float] = []
    while left and len(chosen) < 2:
        best = max(crossed, key=lambda scale: (len(crossed[scale] & left), -abs(np.log10(scale))))
        chosen.append(best)
        left -= crossed[best]
    return chosen


_INTEGERS = frozenset({"int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"})


def _kind(info: TensorInfo) -> str:
    if not info.is_tensor or info.dtype == "string":
        return "O"
    if info.dtype in ("float16", "float32", "float64", "bfloat16"):
        return "f"
    return "b" if info.dtype == "bool" else ("i" if info.dtype in _INTEGERS else "?")


def _near(array: np.ndarray, bounds: Sequence[float], rng: np.random.Generator) -> np.ndarray:
    """Two elements of three moved to a little, half or twice as far below or above a threshold."""
    at = np.asarray(bounds)[rng.integers(0, len(bounds), array.shape)]
    away = np.maximum(1.0, np.abs(at)) * rng.choice([-2.0, -0.5, -1e-3, 1e-3, 0.5, 2.0], array.shape)
    away *= 1.0 + 1e-2 * rng.random(array.shape)
    near = np.clip(at + away, -_largest(array), _largest(array))
    return np.where(rng.random(array.shape) < 1 / 3, array, near).astype(array.dtype)


def _largest(array: np.ndarray) -> float:
    return 6e4 if array.dtype == np.float16 else 1e30


def _integers(array: np.ndarray, low: int, high: int, bounds: Sequence[float], rng: np.random.Generator) -> np.ndarray:
    """Integers of the whole range, small ones, powers of two, the ends, and those at thresholds, in equal parts."""
    special = [low, low + 1, high - 1, high, *(sign * 2**power for power in (7, 8, 15, 16, 31, 32) for sign in (-1, 1))]
    special += [int(bound) + step for bound in bounds if abs(bound) < 2**62 for step in (-1, 0, 1)]
    allowed = np.asarray([value for value in special if low <= value <= high], array.dtype)
    wide = rng.integers(low, high, array.shape, dtype=array.dtype, endpoint=True)
    little = rng.integers(max(low, -8), min(high, 8), array.shape, endpoint=True).astype(array.dtype)
    return np.choose(rng.integers(0, 3, array.shape), [wide, little, rng.choice(allowed, array.shape)])


def plan_for(
    source: bytes | str,
    infos: Sequence[TensorInfo],
    dims: Mapping[str, int],
    ranges: Ranges,
    *,
    seed: int = 0,
    fixed: Collection[str] = (),
    given: Mapping[str, np.ndarray] | None = None,
) -> ProbePlan:
    """A plan of probes for the model in ``source``; see :class:`Plan`. A model too large to be read again gets those
    that need no look at its nodes.
    """
    from rlflow.frontends import instrument
    from rlflow.frontends.sensitivity import Sensitivity, sensitivity

    model = instrument.opened(source)
    if model is None:
        structural = frozenset(info.name for info in infos)
        known, watched = Sensitivity(exact=False, structural=structural), None
    else:
        known = sensitivity(model)
        watched = instrument.watching(model, list(known.inside)).SerializeToString() if known.inside else None
    return ProbePlan(infos, dims, ranges, known, seed, frozenset(fixed), dict(given or {}), watched)
