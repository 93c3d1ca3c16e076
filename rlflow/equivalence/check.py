"""Whole-model verification: the optimised model against the original, twice, calibrated by the original's own noise,
and on inputs that are likely to show a mistake.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from rlflow.equivalence.noise import SECONDS, Feeds, Noise, Runner, Runs, calibrate, deepen, move
from rlflow.equivalence.outputs import (
    OutputCheck,
    base_tolerance,
    coarsest,
    compare,
    flatten,
    structure,
    vacuous,
    worst_run,
)
from rlflow.equivalence.probes import Probe, ProbePlan
from rlflow.equivalence.slices import Excess, excess
from rlflow.errors import RuntimeCrashed, RuntimeRefused
from rlflow.runtime import ModelSource

_COARSE = ("bfloat16", "float16", "float32", "float64")


@dataclass(frozen=True)
class Verification:
    """The verdict: ``tight`` with the runtime's optimisations off on both sides, ``deployed`` with them on; ``notes``
    are sentences, ``inputs`` the kinds of inputs that were compared. ``undecided``: not passed because nothing differs
    and no output proves anything.
    """

    passed: bool
    tight: list[OutputCheck] = field(default_factory=list)
    deployed: list[OutputCheck] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    inputs: list[str] = field(default_factory=list)
    undecided: bool = False

    @property
    def outputs(self) -> list[OutputCheck]:
        """One check per output: a failing one if there is one, else the one nearest to its tolerance."""
        return [max(pair, key=_closeness) for pair in zip(self.tight, self.deployed or self.tight, strict=True)]

    @property
    def vacuous(self) -> bool:
        """Whether no output proves anything."""
        return bool(self.tight) and all(check.vacuous for check in self.tight)

    def failure(self) -> str | None:
        """The sentence of the first failure, or ``None``."""
        if self.passed:
            return None
        if self.undecided:
            return " ".join(map(_hollow, self.tight))
        return next(
            (check.detail for check in self.tight + self.deployed if check.detail),
            self.notes[-1] if self.notes else None,
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "passed": self.passed,
            "vacuous": self.vacuous,
            "undecided": self.undecided,
            "outputs": [check.to_dict() for check in self.outputs],
            "tight": [check.to_dict() for check in self.tight],
            "deployed": [check.to_dict() for check in self.deployed],
            "notes": list(self.notes),
            "inputs": list(self.inputs),
        }


def verify(
    runner: Runner,
    original: ModelSource,
    optimised: ModelSource,
    feeds: Sequence[Feeds],
    *,
    noise: Noise | None = None,
    precision: str | None = None,
    seed: int = 0,
    plan: ProbePlan | None = None,
    seconds: float | None = None,
    times: float = 1.0,
) -> Verification:
    """Compare ``optimised`` with ``original`` on every element of ``feeds``, and on the probes of ``plan`` for as long
    as ``seconds`` allow; see :mod:`rlflow.equivalence.outputs` and :mod:`rlflow.equivalence.slices` for tolerances.

    ``precision`` is the coarsest float type inside the model where that is coarser than its outputs (a float16
    network with float32 outputs). An optimised model that the runtime refuses or crashes on fails; the same of the
    original is raised. Outputs that differ between two runs of the original on the same input are random and cannot
    be compared: their checks are vacuous. ``noise`` (of :func:`calibrate`) brings the probes that the original was run
    on; without it, it is found here. ``times``: so many times the usual tolerance is allowed.
    """
    calm = noise or calibrate(runner, original, feeds, seed=seed, plan=plan, seconds=seconds)
    tried = _Tried(calm.probes, SECONDS if seconds is None else seconds)
    try:
        runs = [flatten(run) for run in runner(optimised, tried.feeds(feeds), "disable")]
        deployed = [flatten(run) for run in runner(optimised, feeds, "all")]
    except (RuntimeCrashed, RuntimeRefused) as error:
        refused = f"The runtime ran the original but not the other model: {error}"
        return Verification(False, notes=[*_noise_notes(calm, precision), refused])
    seen = _Seen(runs[: len(feeds)], deployed, tried.groups, runs[len(feeds) :])
    court = _Court(runner, original, _precisions(calm, feeds, precision), seed, times)
    tight, loose = court.judge(calm, seen)
    if not calm.moved and not all(check.passed for check in tight + loose):
        move(runner, original, calm, seed=seed, plan=plan, seconds=seconds)
        tight, loose = court.judge(calm, seen)
    if not feeds[0]:  # all that a model without inputs can show was seen
        tight = [check if check.name in calm.random else replace(check, vacuous=None) for check in tight]
    notes = _noise_notes(calm, precision)
    notes += [_hollow(check) for check in tight if check.vacuous]
    extra = sorted(set(seen.plain[0]) - set(calm.plain[0]))
    notes += [f"The other model has the output {name!r}, which the original lacks." for name in extra]
    if calm.cut or tried.cut:
        notes.append(f"The comparison of outputs ran out of time after {len(runs)} inputs; more were to come.")
    passed = not extra and all(check.passed for check in tight + loose)
    return Verification(passed, tight, loose, notes, _kinds(len(feeds), tried.groups))


class _Seen(NamedTuple):
    """What the other model gives: on the usual inputs, with the runtime's optimisations off and on, and on the inputs
    of ``groups``.
    """

    plain: list[dict[str, Any]]
    deployed: list[dict[str, Any]]
    groups: Sequence[Runs]
    rest: list[dict[str, Any]]


@dataclass(frozen=True)
class _Court:
    """Judges what another model gives by what the original does; ``dtypes``: the coarsest float type by output."""

    runner: Runner
    original: ModelSource
    dtypes: Mapping[str, str]
    seed: int
    times: float

    def judge(self, calm: Noise, seen: _Seen) -> tuple[list[OutputCheck], list[OutputCheck]]:
        """The checks with the runtime's optimisations off, and as deployed."""
        plain = compare(calm.plain, seen.plain, calm.floor, factor=self.times, dtypes=self.dtypes)
        tight = _without_random(plain, calm.random)
        loose = _without_random(_as_deployed(calm, seen.deployed, self.dtypes, self.times), calm.random)
        if all(check.passed for check in tight + loose):
            pairs = [(calm.groups[0], seen.plain)] if calm.groups else []
            rest = iter(seen.rest)
            pairs += [(group, [next(rest) for _ in group.feeds]) for group in seen.groups]
            judge = _Slices(self.runner, self.original, pairs, self.dtypes, self.seed, self.times, not calm.moved)
            tight = [check if check.name in calm.random else judge(check) for check in tight]
        return tight, loose


def _as_deployed(
    calm: Noise, deployed: list[dict[str, Any]], dtypes: Mapping[str, str], times: float
) -> list[OutputCheck]:
    """Checks against the original as deployed or, where that fails, against what it computes with the runtime's
    optimisations off: a runtime may spoil the original alone (products of 8-bit integers that saturate).
    """
    first = compare(calm.deployed, deployed, calm.floor, factor=2.0 * times, dtypes=dtypes)
    if all(check.passed for check in first):
        return first
    second = compare(calm.plain, deployed, calm.floor, factor=2.0 * times, dtypes=dtypes)
    return [other if other.passed else check for check, other in zip(first, second, strict=True)]


class _Tried:
    """The probes' inputs for the optimised model, as many as time allows."""

    def __init__(self, probes: Sequence[Runs], seconds: float) -> None:
        self.probes, self.seconds, self.cut = probes, seconds, False
        self.groups: list[Runs] = []

    def feeds(self, base: Sequence[Feeds]) -> Iterator[Feeds]:
        yield from base
        end = time.monotonic() + self.seconds / 2
        for group in self.probes:
            if time.monotonic() > end:
                self.cut = True
                return
            self.groups.append(group)
            yield from group.feeds


@dataclass(frozen=True)
class _Slices:
    """Judges an output slice by slice; ``pairs``: the groups of inputs, and what the other model gives for each.
    ``strictly``: as if the original had no noise.
    """

    runner: Runner
    original: ModelSource
    pairs: Sequence[tuple[Runs, list[dict[str, Any]]]]
    dtypes: Mapping[str, str]
    seed: int
    times: float
    strictly: bool

    def __call__(self, check: OutputCheck) -> OutputCheck:
        """``check``, or a failing one where the output of some group of inputs has a slice beyond its noise."""
        for group, outputs in self.pairs:
            found = self._excess(check.name, group, outputs)
            if found is not None and not group.deepened and not self.strictly:
                deepen(self.runner, self.original, [group], self.seed)
                found = self._excess(check.name, group, outputs)
            if found is not None:
                intro = "" if group is self.pairs[0][0] else f"On inputs of the kind {group.kind!r}, "
                detail = f"{intro}{'t' if intro else 'T'}he output {check.name!r} {found.sentence}."
                worst = worst_run([one[check.name] for one in group.plain], [one.get(check.name) for one in outputs])
                how = (found.max_abs, found.relative, found.allowed, False, check.vacuous, detail)
                return OutputCheck(check.name, *how, group.kind, worst)
        if check.vacuous and any(vacuous([group.plain[0][check.name]]) is None for group, _ in self.pairs[1:]):
            return replace(check, vacuous=None)
        return check

    def _excess(self, name: str, group: Runs, outputs: list[dict[str, Any]]) -> Excess | None:
        if not all(outputs):
            sentence = "is not computed, because the other model refuses what the original takes"
            return Excess(sentence, np.inf, np.inf, 0.0)
        ours = [run[name] for run in group.plain if name in run]
        if len(ours) < len(group.plain):
            return None  # an element of a sequence that is shorter here
        wrong = structure(ours, [run.get(name) for run in outputs])
        if wrong is not None:
            return Excess(wrong, np.inf, np.inf, 0.0)
        known = () if self.strictly else group.variants
        variants = [[run[name] for run in variant if name in run] for variant in known]
        shapes = [one.shape for one in ours]
        if len(set(shapes)) > 1 or any([one.shape for one in variant] != shapes for variant in variants):
            return None  # shapes that depend on values, or on roundings
        theirs = [run[name] for run in outputs]
        dtype = coarsest(ours[0].dtype, self.dtypes.get(name))
        how: dict[str, Any] = {"scaled": group.scaled, "times": self.times, "strictly": self.strictly}
        return excess(ours, theirs, variants, dtype, **how)


def _kinds(usual: int, groups: Sequence[Runs]) -> list[str]:
    """What the inputs were, in words, each kind once; rows of tables as one range."""
    kinds = dict.fromkeys(group.kind for group in groups if not group.rows)
    rows = [
        probe.kind.split()[1::2] for group in groups if group.rows for probe in group.feeds if isinstance(probe, Probe)
    ]
    return [f"usual ({usual})", *kinds, *([f"rows {rows[0][0]} to {rows[-1][1]}"] if rows else [])]


def _precisions(noise: Noise, feeds: Sequence[Feeds], precision: str | None) -> dict[str, str]:
    """The coarsest float type among the inputs and what the caller knows; float64 outputs of float32 inputs are
    float32 at heart.
    """
    types = {array.dtype.name for array in feeds[0].values() if array.dtype.kind == "f"} | (
        {precision} if precision else set()
    )
    coarsest = next((name for name in _COARSE if name in types), None)
    return dict.fromkeys(noise.plain[0], coarsest) if coarsest else {}


def _noise_notes(noise: Noise, precision: str | None) -> list[str]:
    notes = []
    for name, floor in noise.floor.items():
        value = noise.plain[0][name]
        if name in noise.random or value.dtype.kind not in "fc":
            continue
        dtype = precision or (value.dtype.name if value.dtype.kind == "f" else "float32")
        if floor > 32 * base_tolerance(dtype):
            notes.append(
                f"The check of the output {name!r} is weak: the original's own rounding noise in the runtime "
                f"is {floor:.2g} of its largest value."
            )
    return notes


def _without_random(checks: list[OutputCheck], names: frozenset[str]) -> list[OutputCheck]:
    reason = "it differs from run to run on the same input"
    return [
        OutputCheck(check.name, check.max_abs, check.max_rel, np.inf, True, reason) if check.name in names else check
        for check in checks
    ]


def _hollow(check: OutputCheck) -> str:
    return f"The output {check.name!r} cannot show a mistake: {check.vacuous}."


def _closeness(check: OutputCheck) -> tuple[bool, float]:
    ratio = check.max_rel / check.tolerance if check.tolerance > 0 else float(check.max_rel > 0)
    return not check.passed, ratio if np.isfinite(ratio) else 1e300
