"""Whole-model verification: the optimised model against the original, twice, calibrated by the original's own noise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from rlflow.errors import RuntimeCrashed, RuntimeRefused, VerificationFailed
from rlflow.runtime import ModelSource, Worker
from rlflow.verify.compare import OutputCheck, base_tolerance, compare, flatten, noise_floor

Feeds = Mapping[str, np.ndarray]

_COARSE = ("bfloat16", "float16", "float32", "float64")


class Runner(Protocol):
    """Runs a model on several inputs at a level of the runtime's own optimisation (``disable`` or ``all``)."""

    def __call__(self, model: ModelSource, feeds: Sequence[Feeds], level: str) -> list[dict[str, Any]]: ...


class WorkerRunner:
    """A runner over a :class:`rlflow.runtime.Worker`."""

    def __init__(self, worker: Worker, *, time_limit: float | None = None) -> None:
        self.worker, self.time_limit = worker, time_limit

    def __call__(self, model: ModelSource, feeds: Sequence[Feeds], level: str) -> list[dict[str, Any]]:
        handle = self.worker.load(model, level=level, time_limit=self.time_limit)
        try:
            return [self.worker.run(handle, one, time_limit=self.time_limit) for one in feeds]
        finally:
            self.worker.unload(handle)


@dataclass(frozen=True)
class Noise:
    """What the original does by itself on some inputs: its outputs per level, the noise floor per output, and what is
    random in it.
    """

    plain: list[dict[str, Any]]
    deployed: list[dict[str, Any]]
    floor: Mapping[str, float]
    random: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Verification:
    """The verdict: ``tight`` with the runtime's optimisations off on both sides, ``deployed`` with them on; ``notes``
    are sentences.
    """

    passed: bool
    tight: list[OutputCheck] = field(default_factory=list)
    deployed: list[OutputCheck] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

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
        return next(
            (check.detail for check in self.tight + self.deployed if check.detail),
            self.notes[-1] if self.notes else None,
        )

    def raise_for_failure(self) -> None:
        """Raise :class:`VerificationFailed` unless the check passed."""
        if not self.passed:
            raise VerificationFailed(
                f"The optimised model does not compute what the original computes. {self.failure()}"
            )

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "passed": self.passed,
            "vacuous": self.vacuous,
            "outputs": [check.to_dict() for check in self.outputs],
            "tight": [check.to_dict() for check in self.tight],
            "deployed": [check.to_dict() for check in self.deployed],
            "notes": list(self.notes),
        }


def calibrate(runner: Runner, original: ModelSource, feeds: Sequence[Feeds], *, seed: int = 0) -> Noise:
    """Run the original with the runtime's optimisations off (twice) and on, and on inputs moved by one unit in the
    last place.

    Compute once and pass to several :func:`verify` calls that share inputs. Errors of the runtime on the original are
    raised: nothing can be verified then.
    """
    moved = [_moved_by_one_ulp(one, seed + index) for index, one in enumerate(feeds) if _has_floats(one)]
    runs = runner(original, [*feeds, feeds[0], *moved], "disable")
    count = len(feeds)
    plain, again, nudged = _flat(runs[:count]), flatten(runs[count]), _flat(runs[count + 1 :])
    deployed = _flat(runner(original, feeds, "all"))
    repeat = noise_floor(plain[:1], [[again]])
    unstable = frozenset(name for name, difference in repeat.items() if difference > 0.0)
    floor = noise_floor(plain, [deployed, nudged if len(nudged) == count else plain])  # integers cannot be moved
    return Noise(plain, deployed, floor, unstable)


def verify(
    runner: Runner,
    original: ModelSource,
    optimised: ModelSource,
    feeds: Sequence[Feeds],
    *,
    noise: Noise | None = None,
    precision: str | None = None,
    seed: int = 0,
) -> Verification:
    """Compare ``optimised`` with ``original`` on every element of ``feeds``; see :mod:`rlflow.verify.compare` for
    tolerances.

    ``precision`` is the coarsest float type inside the model where that is coarser than its outputs (a float16
    network with float32 outputs). An optimised model that the runtime refuses or crashes on fails; the same of the
    original is raised. Outputs that differ between two runs of the original on the same input are random and cannot
    be compared: their checks are vacuous.
    """
    calm = noise or calibrate(runner, original, feeds, seed=seed)
    notes = _noise_notes(calm, precision)
    try:
        plain = _flat(runner(optimised, feeds, "disable"))
        deployed = _flat(runner(optimised, feeds, "all"))
    except (RuntimeCrashed, RuntimeRefused) as error:
        return Verification(False, notes=[*notes, f"The runtime ran the original but not the optimised model: {error}"])
    dtypes = _precisions(calm, feeds, precision)
    tight = _without_random(compare(calm.plain, plain, calm.floor, dtypes=dtypes), calm.random)
    loose = _without_random(compare(calm.deployed, deployed, calm.floor, factor=2.0, dtypes=dtypes), calm.random)
    notes += [f"The output {check.name!r} cannot show a mistake: {check.vacuous}." for check in tight if check.vacuous]
    extra = sorted(set(plain[0]) - set(calm.plain[0]))
    notes += [f"The optimised model has the output {name!r}, which the original lacks." for name in extra]
    passed = not extra and all(check.passed for check in tight + loose)
    return Verification(passed, tight, loose, notes)


def _flat(runs: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [flatten(run) for run in runs]


def _has_floats(feeds: Feeds) -> bool:
    return any(array.dtype.kind == "f" for array in feeds.values())


def _moved_by_one_ulp(feeds: Feeds, seed: int) -> dict[str, np.ndarray]:
    """Every float moved to its neighbour, up or down at random; others as they are."""
    rng = np.random.default_rng(seed)
    moved = {}
    for name, array in feeds.items():
        if array.dtype.kind == "f":
            direction = np.where(rng.integers(0, 2, array.shape) == 1, np.inf, -np.inf).astype(array.dtype)
            moved[name] = np.nextafter(array, direction)
        else:
            moved[name] = array
    return moved


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


def _closeness(check: OutputCheck) -> tuple[bool, float]:
    ratio = check.max_rel / check.tolerance if check.tolerance > 0 else float(check.max_rel > 0)
    return not check.passed, ratio if np.isfinite(ratio) else 1e300
