"""Whole graphs timed beside the one that a search started from, block by block, until their ratios are known."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from rlflow.errors import CostError, GraphError, RuntimeCrashed, RuntimeRefused
from rlflow.price.protocol import GraphTime
from rlflow.price.student import student_quantile
from rlflow.price.timing import log_ratios
from rlflow.runtime import ModelSource, Samples

if TYPE_CHECKING:
    from rlflow.graph import Graph

MIN_BLOCKS, MAX_BLOCKS = 3, 16
#: A machine is not called too noisy on fewer blocks than these.
BLOCKS_TO_REFUSE = 10
_BASELINE, _AGAIN = "baseline", "baseline again"


class WholeSampler(Protocol):
    """What the samplers of a worker and of a device's command have in common."""

    clock: str

    def add(self, name: str, source: ModelSource) -> Any: ...

    def drop(self, name: str) -> None: ...

    def block(self, names: Sequence[str], seed: int, seconds: float) -> Samples: ...


@dataclass(frozen=True)
class Aim:
    """How well times are wanted, and for how many seconds each; see :class:`rlflow.price.endtoend.EndToEndCost`."""

    tolerance: float = 0.01
    seconds: float = 6.0
    max_noise: float = 0.05
    share: float = 0.25


@dataclass
class Candidate:
    """A graph that is being timed."""

    digest: str
    name: str
    ratios: list[float] = field(default_factory=list)

    @property
    def centre(self) -> float:
        return centre(self.ratios)

    @property
    def half_width(self) -> float:
        return half_width(self.ratios)

    def is_tight(self, aim: Aim) -> bool:
        """Whether its ratio is known as well as it is wanted."""
        return self.half_width <= max(aim.tolerance, aim.share * abs(self.centre))


class WholeTimer:
    """Times of graphs by digest, each in milliseconds of the first one times the ratio to it.

    ``export`` writes a graph as it is deployed. ``refusals``: the sentences of those that cannot be timed. ``drift``:
    by how much the baseline's own time moved at most (0.1 is a tenth slower).
    """

    def __init__(self, aim: Aim, seed: int = 0, clock: Callable[[], float] = time.perf_counter) -> None:
        self.aim = aim
        self.times: dict[str, GraphTime] = {}
        self.refusals: dict[str, str] = {}
        self.drift = 0.0
        self.baseline: str | None = None
        self._seeds = np.random.SeedSequence(seed)
        self._clock = clock

    @property
    def baseline_ms(self) -> float:
        """The baseline's time; 0 where it was not timed."""
        return (self.times[self.baseline].ms or 0.0) if self.baseline is not None else 0.0

    def begin(self, sampler: WholeSampler, graph: Graph, source: ModelSource) -> None:
        """Time the baseline against itself: what it takes, and what this machine can tell.

        Raises :class:`CostError` where it cannot be run, or the machine is too noisy.
        """
        try:
            sampler.add(_BASELINE, source)
            sampler.add(_AGAIN, source)
            times, ratios = self._against_itself(sampler)
        except (RuntimeCrashed, RuntimeRefused) as error:
            raise CostError(f"The model cannot be timed end to end: {error}") from error
        sampler.drop(_AGAIN)
        found = half_width(ratios)
        if found > self.aim.max_noise:
            raise CostError(
                f"This machine is too noisy to tell graphs apart by their whole time: two sessions of one and the same "
                f"model differed by ±{100 * found:.1f} % over {len(ratios)} blocks, and at most "
                f"±{100 * self.aim.max_noise:.1f} % is of use. Close other programs, use one thread, or price by "
                "regions (--cost onnxruntime)."
            )
        self.times[graph.digest] = GraphTime(float(np.median(times)), found, len(ratios))
        self.baseline = graph.digest

    def _against_itself(self, sampler: WholeSampler) -> tuple[list[float], list[float]]:
        times: list[float] = []
        ratios: list[float] = []
        deadline = self._clock() + 2 * self.aim.seconds
        while len(ratios) < MAX_BLOCKS:
            samples = self._block(sampler, [_BASELINE, _AGAIN])
            times.append(float(np.median(samples[:, 0])))
            ratios.append(_median_ratio(samples, 1))
            found, late = half_width(ratios), self._clock() >= deadline
            enough = found <= self.aim.max_noise or len(ratios) >= BLOCKS_TO_REFUSE
            if len(ratios) > MIN_BLOCKS and (found <= self.aim.tolerance or (late and enough)):
                break
        return times, ratios

    def time(
        self,
        sampler: WholeSampler,
        graphs: Sequence[Graph],
        export: Callable[[Graph], ModelSource],
        stop: Callable[[], bool],
    ) -> None:
        """Time some graphs beside the baseline, each until its interval is tight; ``stop`` is asked between blocks."""
        added = (self._added(sampler, graph, export) for graph in graphs)
        active = [one for one in added if one is not None]
        deadline = self._clock() + self.aim.seconds * max(len(active), 1)
        while active and not stop():
            self._one_block(sampler, active)
            late = self._clock() >= deadline
            for one in list(active):
                if one.digest in self.times or (len(one.ratios) >= MIN_BLOCKS and (late or one.is_tight(self.aim))):
                    active.remove(one)
                    self._settle(sampler, one)
        for one in active:  # stopped half-way: they stay without a time
            sampler.drop(one.name)

    def _one_block(self, sampler: WholeSampler, active: Sequence[Candidate]) -> None:
        try:
            samples = self._block(sampler, [_BASELINE, *(one.name for one in active)])
        except (RuntimeCrashed, RuntimeRefused) as error:
            self._refuse(self._culprit(sampler, active), str(error))
            return
        if self.baseline_ms:
            moved = float(np.median(samples[:, 0])) / self.baseline_ms - 1.0
            self.drift = moved if abs(moved) > abs(self.drift) else self.drift
        for column, one in enumerate(active, 1):
            one.ratios.append(_median_ratio(samples, column))

    def _block(self, sampler: WholeSampler, names: Sequence[str]) -> np.ndarray:
        """One block of rounds, ``[rounds, models]`` in milliseconds."""
        seed = int(self._seeds.spawn(1)[0].generate_state(1)[0])
        samples = sampler.block(names, seed, self.aim.seconds / (2 * MAX_BLOCKS))
        matrix = samples.by(sampler.clock)
        if not (np.isfinite(matrix).all() and (matrix > 0).all()):
            raise RuntimeRefused("The clock answered with something that is no duration.")
        return matrix

    def _culprit(self, sampler: WholeSampler, active: Sequence[Candidate]) -> Candidate:
        for one in active:
            try:
                self._block(sampler, [one.name])
            except (RuntimeCrashed, RuntimeRefused):
                return one
        return active[-1]

    def _added(self, sampler: WholeSampler, graph: Graph, export: Callable[[Graph], ModelSource]) -> Candidate | None:
        one = Candidate(graph.digest, f"graph {graph.digest[:12]}")
        try:
            sampler.add(one.name, export(graph))
        except (RuntimeCrashed, RuntimeRefused, GraphError) as error:
            self._refuse(one, str(error))
            return None
        return one

    def _refuse(self, one: Candidate, sentence: str) -> None:
        self.times[one.digest] = GraphTime(None, refusal=sentence)
        self.refusals[one.digest] = sentence

    def _settle(self, sampler: WholeSampler, one: Candidate) -> None:
        sampler.drop(one.name)
        if one.digest not in self.times:
            ms = self.baseline_ms * math.exp(-one.centre)
            self.times[one.digest] = GraphTime(ms, one.half_width, len(one.ratios))


# --- the ratio's interval -------------------------------------------------------------------------------------------


def half_width(ratios: Sequence[float]) -> float:
    """Half the 95 % interval of :func:`centre` (Yuen 1974): of every eight values the extreme ones on either side are
    replaced by their neighbours, so that one block in which something else ran does not spoil the others. Infinite for
    fewer than ``MIN_BLOCKS``.
    """
    count = len(ratios)
    if count < MIN_BLOCKS:
        return math.inf
    cut = count // 8
    ordered = np.sort(np.asarray(ratios, dtype=float))
    ordered[:cut], ordered[count - cut :] = ordered[cut], ordered[count - cut - 1]
    part = 1.0 - 2.0 * cut / count
    return student(count - 2 * cut) * float(np.std(ordered, ddof=1)) / (part * math.sqrt(count))


def centre(ratios: Sequence[float]) -> float:
    """The mean without one of every eight values on either side."""
    cut = len(ratios) // 8
    return float(np.mean(np.sort(np.asarray(ratios, dtype=float))[cut : len(ratios) - cut]))


def student(count: int) -> float:
    """Half a 95 % interval in standard errors, for so many values (at least ``MIN_BLOCKS``)."""
    return student_quantile(max(count, MIN_BLOCKS) - 1, 0.05)


def _median_ratio(samples: np.ndarray, column: int) -> float:
    """Natural logarithm of baseline over model, median of the rounds."""
    return float(np.median(log_ratios(samples[:, 0], samples[:, column])))
