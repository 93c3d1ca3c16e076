"""What a region costs inside a model beyond what it costs alone: learnt offline, from whole models.

What an empty run takes is taken off every region's price, and one dispatch is added. But an empty run with cold caches
(7.5 microseconds) holds the dispatch of a cold kernel, and the dispatch that is added is that of a warm one, out of a
long chain of the same (0.2 microseconds): in a model, where every kernel comes with code, descriptors and buffers that
the others have pushed out, each region is some microseconds dearer; and all share the caches. Besides, regions are
priced at the machine's best pace (:mod:`rlflow.price.pace`), and models are not timed at it. On ten networks and their
300 variants (``reproduce/cost_fidelity``; one thread) the two figures below predict the whole from the parts.

They are data about a runtime on a kind of machine, not measurements of yours. No network in
``reproduce/cost_fidelity/results/table.md`` is judged by figures that were learnt from it: each is left out in turn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from rlflow.errors import CostError

_PASSES = 40
_SMALLEST = 1e-4


class InModel(NamedTuple):
    """``factor`` on what a region takes alone, and milliseconds more for each one."""

    factor: float
    region_ms: float

    def ms(self, alone: float, regions: int = 1) -> float:
        """The price of so many regions that take ``alone`` milliseconds by themselves."""
        return self.factor * alone + self.region_ms * regions

    def alone(self, ms: float, regions: int = 1) -> float:
        """The inverse of :meth:`ms`."""
        return (ms - self.region_ms * regions) / self.factor


#: For fusion tables that do not describe the runtime, and for other runtimes: nothing is known.
NONE = InModel(1.0, 0.0)
#: ONNX Runtime 1.31 on the processor, AMD EPYC, one thread; version 3, of 2026-11-22, without models that stream.
ONNXRUNTIME = InModel(1.0866, 0.00358)
#: Models that stream their weights (:func:`rlflow.price.measured.streams`) are priced by what their regions take
#: alone. On the two that were looked at, a recurrent network and a decoder step, the figures above made errors larger
#: in most hours, and ranks worse; two are not enough to learn others from.
STREAMING = InModel(1.0, 0.0)


class Total(NamedTuple):
    """One graph: milliseconds end to end, the sum of its regions' prices alone, and how many of them there are."""

    measured_ms: float
    alone_ms: float
    regions: int


def learnt(models: Mapping[str, Sequence[Total]]) -> InModel:
    """The figures that predict the measured times of several models best: the least sum of relative errors (by
    reweighted least squares), every model with the same weight, neither figure below nothing.

    Raises :class:`CostError` where there is nothing to learn from.
    """
    rows = [(one, 1.0 / len(totals)) for totals in models.values() for one in totals]
    if not rows:
        raise CostError("Nothing was measured, so what regions cost inside a model cannot be learnt.")
    # Per graph and per region in units of the measured time, so that the target is 1.
    inputs = np.array([[one.alone_ms / one.measured_ms, one.regions / one.measured_ms] for one, _ in rows])
    share = np.array([weight for _, weight in rows])
    weights = share.copy()
    found = np.array([1.0, 0.0])
    for _ in range(_PASSES):
        root = np.sqrt(weights)[:, None]
        found, *_ = np.linalg.lstsq(inputs * root, root[:, 0], rcond=None)
        if found[1] < 0.0:
            found = np.array([float((weights * inputs[:, 0]).sum() / (weights * inputs[:, 0] ** 2).sum()), 0.0])
        weights = share / np.maximum(np.abs(inputs @ found - 1.0), _SMALLEST)
    return InModel(float(found[0]), float(found[1]))


def left_out(models: Mapping[str, Sequence[Total]], name: str) -> InModel:
    """:func:`learnt` from all models but one."""
    return learnt({other: totals for other, totals in models.items() if other != name})
