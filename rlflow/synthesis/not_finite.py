"""What a rule about comparisons does with NaN, infinities and zeros.

A value may be NaN though all inputs of its model are finite (a logarithm of -1, 0 / 0). It spoils what is made of
it, so that mostly the source is not finite, and a rule promises nothing. A comparison ends that: of NaN it is false,
and Where goes on with another value. So comparisons are no complements of one another, and IsNaN and IsInf see what
arithmetic in between did. Neither domain of the prover has such values; ONNX's evaluator does.
"""

from __future__ import annotations

import re

import numpy as np

from rlflow.rewrite import Rule
from rlflow.synthesis.field import key_of
from rlflow.synthesis.floats import TOLERANCE, FloatReport, Sides, TargetFailed, gap_of, pair_of
from rlflow.synthesis.sampling import Sample

_COMPARES = re.compile(r"\b(?:Equal|Greater|GreaterOrEqual|Less|LessOrEqual|IsNaN|IsInf)\b")
_SPECIAL = (np.nan, np.inf, -np.inf, 0.0, 1.5e308)  # twice the last overflows
RUNS, FEEDS = 16, 6


def refused(rule: Rule, samples: list[Sample]) -> FloatReport:
    """A report whose ``kind`` is set where the sides differ and the source is finite; ``samples`` counts the runs.
    Only its ``problem`` is set where ONNX's evaluator ran none of the samples. Of a rule without comparisons nothing is
    asked."""
    report, missed = FloatReport(), False
    if not _COMPARES.search(" ".join([*rule.source, *rule.target, *(text for _, text in rule.let)])):
        return report
    for k, sample in enumerate(samples):
        pair = pair_of(rule, sample, k)
        if pair is None or not any(a.dtype.kind == "f" for a in pair.feeds.values()):
            continue
        if report.samples >= RUNS:
            break
        try:
            worst = _worst(pair, k)
        except TargetFailed as failure:
            return report.refuse("float", pair.parent, str(failure))
        report.samples += worst is not None
        missed = missed or worst is None
        if worst is not None and not worst <= TOLERANCE:
            problem = "with NaN, infinities, zeros and very large numbers among its inputs the sides differ"
            return report.refuse("float", pair.parent, f"{problem} where the source is finite")
    if missed and not report.samples:
        report.problem = "it is about comparisons, and ONNX's evaluator could not show what they do with NaN"
    return report


def _worst(pair: Sides, seed: int) -> float | None:
    """The largest difference over several feeds; ``None`` where ONNX's evaluator does not run the source."""
    plain, worst = pair.feeds, None
    for k in range(FEEDS):
        rng = np.random.default_rng(key_of("not finite", seed, k))
        pair.feeds = {name: _spoilt(rng, array) for name, array in plain.items()}
        outcome = pair.run(np.float64)
        if outcome is not None:
            worst = max(worst or 0.0, gap_of(*outcome))
    return worst


def _spoilt(rng: np.random.Generator, array: np.ndarray) -> np.ndarray:
    if array.dtype.kind != "f":
        return array
    special = rng.choice(np.array(_SPECIAL), array.shape)
    return np.where(rng.random(array.shape) < 0.5, special, array).astype(np.float64)
