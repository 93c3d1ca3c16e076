"""What a rule does where a tensor has no elements.

The maximum of nothing is minus infinity. To the exact domains that is no number, and a source which has it says nothing
there. But what follows may bring it back among the finite values: Sigmoid of minus infinity is 0, and so is Relu of it.
ONNX's evaluator knows infinities, so both sides run in it. They must agree there too: whatever uses the result may be
what brings it back.
"""

from __future__ import annotations

import numpy as np

from rlflow.rewrite import Rule
from rlflow.synthesis.domains import Array
from rlflow.synthesis.floats import TOLERANCE, FloatReport, TargetFailed, gap_of, pair_of
from rlflow.synthesis.sampling import Sample


def refused(rule: Rule, samples: list[Sample]) -> FloatReport:
    """A report whose ``kind`` is set where the sides differ and the source is no NaN; ``samples`` counts the runs."""
    report = FloatReport()
    for k, sample in enumerate(samples):
        pair = pair_of(rule, sample, k, nothing=True)
        try:
            double = pair.run(np.float64) if pair else None
        except TargetFailed as failure:
            return report.refuse("float", sample.graph, str(failure))
        report.samples += double is not None
        if double is not None and not (gap_of(*double) <= TOLERANCE and all(map(_same_infinities, *double))):
            return report.refuse("float", sample.graph, "where a tensor has no elements the sides differ")
    return report


def _same_infinities(before: Array, after: Array) -> bool:
    at = np.isinf(before) if before.dtype.kind == "f" else np.zeros(before.shape, bool)
    return np.array_equal(before[at], after[at])
