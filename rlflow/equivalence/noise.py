"""What the original does by itself: its outputs on the inputs tried, and how far roundings move them."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from rlflow.equivalence.outputs import flatten, noise_floor
from rlflow.equivalence.probes import Probe, ProbePlan
from rlflow.errors import RuntimeCrashed, RuntimeRefused
from rlflow.runtime import Handle, ModelIO, ModelSource

Feeds = Mapping[str, np.ndarray]
Outputs = dict[str, Any]

#: Seconds that running the probes may take where nothing else is said.
SECONDS = 10.0
#: A probe that runs longer than this proves too little for its price.
_PROBE_LIMIT = 60.0
#: Where a run with moved weights takes less than this, it is repeated with others.
_QUICK, _REPEATS = 0.3, 2
#: A large model, whose variants take long to open, is moved again no more often than this.
_REPEATS_OF_LARGE = 1
_ROWS_TOGETHER = 16


class Runner(Protocol):
    """Runs a model on several inputs at a level of the runtime's own optimisation (``disable`` or ``all``).

    Inputs are run one after the other as the iterable hands them out. Of a :class:`Probe` that the model refuses the
    outputs are empty; other refusals are raised.
    """

    def __call__(self, model: ModelSource, feeds: Any, level: str) -> list[Outputs]: ...


class Sessions(Protocol):
    """What opens models and runs them, as :class:`rlflow.runtime.Worker` does."""

    def load(self, model: ModelSource, *, level: str | None = None, time_limit: float | None = None) -> Handle: ...

    def unload(self, handle: Handle) -> None: ...

    def interface(self, model: ModelSource) -> ModelIO: ...

    def run(self, handle: Handle, feeds: Feeds, *, time_limit: float | None = None) -> Outputs: ...


class WorkerRunner:
    """A runner over a :class:`rlflow.runtime.Worker`, or what opens models as it does."""

    def __init__(self, worker: Sessions, *, time_limit: float | None = None) -> None:
        self.worker, self.time_limit = worker, time_limit

    def __call__(self, model: ModelSource, feeds: Any, level: str) -> list[Outputs]:
        handle = self.worker.load(model, level=level, time_limit=self.time_limit)
        try:
            return [self._run(handle, one) for one in feeds]
        finally:
            self.worker.unload(handle)

    def _run(self, handle: Any, feeds: Feeds) -> Outputs:
        if not isinstance(feeds, Probe):
            return self.worker.run(handle, feeds, time_limit=self.time_limit)
        try:
            return self.worker.run(handle, feeds, time_limit=min(self.time_limit or _PROBE_LIMIT, _PROBE_LIMIT))
        except (RuntimeRefused, RuntimeCrashed):
            feeds.refused = True
            return {}


@dataclass
class Runs:
    """Runs that are judged together: their inputs, the original's outputs (optimisations off) and what its variants
    gave for the same.
    """

    kind: str
    feeds: list[Feeds]
    plain: list[Outputs]
    variants: list[list[Outputs]] = field(default_factory=list)
    exact: bool = False
    scaled: bool = False
    rows: bool = False
    deepened: bool = False


@dataclass
class Noise:
    """What the original does by itself on some inputs: its outputs per level, the noise floor per output, and what is
    random in it. ``groups``: the same and the probes, to be judged slice by slice; ``cut``: whether the time ended
    before the probes did; ``moved``: whether moved inputs and weights were run, and the first input twice, which
    :func:`move` can do later.
    """

    plain: list[Outputs]
    deployed: list[Outputs]
    floor: Mapping[str, float]
    random: frozenset[str] = frozenset()
    groups: Sequence[Runs] = ()
    cut: bool = False
    moved: bool = True

    @property
    def probes(self) -> list[Runs]:
        """The groups beyond the first, of one run each."""
        return list(self.groups[1:])


def calibrate(
    runner: Runner,
    original: ModelSource,
    feeds: Sequence[Feeds],
    *,
    seed: int = 0,
    plan: ProbePlan | None = None,
    seconds: float | None = None,
    moved: bool = True,
    fused: bool = False,
) -> Noise:
    """Run the original with the runtime's optimisations off (twice) and on, on inputs moved by one unit in the last
    place, and with weights moved likewise; then on the probes of ``plan``, as many as ``seconds`` allow.

    Compute once and pass to several :func:`verify` calls that share inputs. ``moved=False`` puts the moved inputs and
    weights off, and the second run of the same input: the comparison asks for them where outputs differ by more than
    is allowed without them. ``fused``: what is compared has the runtime's optimisations in its graph, so that what they
    change on the probes is noise too, as it is on ``feeds``. Errors of the runtime on the original are raised: nothing
    can be verified then.
    """
    allowed = SECONDS if seconds is None else seconds
    # As many probes as there are with their moved ones: those may be asked for later.
    course = _Course(runner, feeds, plan, seed, allowed / 2 if moved else allowed / 4, moved)
    runs = _flat(runner(original, course.feeds(), "disable"))
    count = len(feeds)
    plain, again, nudged = runs[:count], runs[count : count + moved], runs[count + moved : course.fixed]
    probed = course.groups(runs)
    deployed, others = _deployed(runner, original, feeds, probed if fused else [])
    for group, outputs in zip(probed, others, strict=False):
        if all(outputs):  # as deployed it may refuse what it takes otherwise
            group.variants.append(outputs)
    unstable = _unstable(plain, again)
    variants = [deployed, *([nudged] if len(nudged) == count else [])]  # integers cannot be moved
    groups = [Runs("usual", list(feeds), plain, variants), *probed]
    calm = Noise(plain, deployed, {}, unstable, groups, course.cut, moved)
    if moved:
        _with_other_variants(runner, original, calm, seed, plan, allowed)
    calm.floor = noise_floor(plain, variants)
    return calm


def _deployed(
    runner: Runner, original: ModelSource, feeds: Sequence[Feeds], probed: Sequence[Runs]
) -> tuple[list[Outputs], list[list[Outputs]]]:
    """What the original computes as deployed, on ``feeds`` and on the inputs of each group."""
    # The feeds themselves where there is nothing else: their outputs may be known.
    asked = [*feeds, *(one for group in probed for one in group.feeds)] if probed else feeds
    runs = _flat(runner(original, asked, "all"))
    rest = iter(runs[len(feeds) :])
    return runs[: len(feeds)], [[next(rest) for _ in group.feeds] for group in probed]


def move(
    runner: Runner,
    original: ModelSource,
    calm: Noise,
    *,
    seed: int = 0,
    plan: ProbePlan | None = None,
    seconds: float | None = None,
) -> None:
    """Run what :func:`calibrate` was told to put off, and put it into ``calm``."""
    shifted = [
        (group, _near(one, seed + number))
        for group in calm.groups
        for number, one in enumerate(() if group.exact else group.feeds)
        if _has_floats(one)
    ]
    again, *outputs = _flat(runner(original, [calm.groups[0].feeds[0], *(near for _, near in shifted)], "disable"))
    calm.random = _unstable(calm.plain, [again])
    for group in calm.groups:
        found = [one for (of, _), one in zip(shifted, outputs, strict=True) if of is group]
        if found and len(found) == len(group.feeds) and all(found):
            group.variants.append(found)
    _with_other_variants(runner, original, calm, seed, plan, SECONDS if seconds is None else seconds)
    calm.floor, calm.moved = noise_floor(calm.plain, calm.groups[0].variants), True


def _unstable(plain: Sequence[Outputs], again: Sequence[Outputs]) -> frozenset[str]:
    """The outputs that differ between two runs of the first input; none is known where there is no second run."""
    repeat = noise_floor(plain[: len(again)], [again]) if again else {}
    return frozenset(name for name, difference in repeat.items() if difference > 0.0)


def _with_other_variants(
    runner: Runner, original: ModelSource, calm: Noise, seed: int, plan: ProbePlan | None, seconds: float
) -> None:
    """The variants that are no moved inputs: moved weights, and outputs that runtimes compute in steps."""
    with_moved_weights(runner, original, calm.groups, seed, seconds / 4)
    if plan is not None and plan.sensitivity.stepped:
        for group in calm.groups:
            group.variants.append([_a_step_up(run, plan.sensitivity.stepped) for run in group.plain])


def deepen(runner: Runner, original: ModelSource, groups: Sequence[Runs], seed: int) -> None:
    """More variants of groups in which a difference was found: it must stand out from those as well."""
    fresh = [group for group in groups if not group.deepened]
    for number in range(4):
        moved = [
            moved_by_one_ulp(one, seed + 1000 + number) for group in fresh for one in group.feeds if not group.exact
        ]
        if not moved:
            break
        runs = iter(_flat(runner(original, moved, "disable")))
        for group in fresh:
            if not group.exact:
                group.variants.append([next(runs) for _ in group.feeds])
    with_moved_weights(runner, original, fresh, seed + 1000, np.inf, repeats=4)
    for group in fresh:
        group.deepened = True


def with_moved_weights(
    runner: Runner, original: ModelSource, groups: Sequence[Runs], seed: int, seconds: float, repeats: int = _REPEATS
) -> None:
    """Add what the groups' inputs give where every weight is moved by a rounding; again where that is quick. Of a large
    model only small tensors are moved (:func:`rlflow.frontends.instrument.moving`).
    """
    from rlflow.frontends import instrument

    if not isinstance(original, (bytes, str)):
        return
    start = time.monotonic()
    with instrument.moving(original) as moved:
        for number in range(1 + repeats):
            began, variant = time.monotonic(), moved(seed + number)
            if variant is None:
                return
            groups = [group for group in groups if not number or not group.rows]
            try:
                runs = iter(_flat(runner(variant, (one for group in groups for one in group.feeds), "disable")))
            except (RuntimeRefused, RuntimeCrashed):
                return
            for group in groups:
                found = [next(runs) for _ in group.feeds]
                if all(found):
                    group.variants.append(found)
            if (time.monotonic() - began > _QUICK and seconds < np.inf) or time.monotonic() - start > seconds:
                return
            if isinstance(variant, str) and number == _REPEATS_OF_LARGE:
                return


class _Course:
    """The inputs that the original is run on, in order, and which of them were what."""

    def __init__(
        self,
        runner: Runner,
        feeds: Sequence[Feeds],
        plan: ProbePlan | None,
        seed: int,
        seconds: float,
        moved: bool,
    ) -> None:
        self.runner, self.base, self.plan, self.seed, self.seconds = runner, feeds, plan, seed, seconds
        self.moved = moved
        self.fixed, self.cut = 0, False
        self.asked: list[tuple[Probe, bool]] = []

    def feeds(self) -> Iterator[Feeds]:
        """The base (if wanted: its first again, and all moved by a rounding); then each probe, moved likewise."""
        first = [*self.base]
        if self.moved:
            near = [_near(one, self.seed + index) for index, one in enumerate(self.base) if _has_floats(one)]
            first += [self.base[0], *near]
        self.fixed, began = len(first), time.monotonic()
        yield from first
        if self.plan is None:
            return
        start = time.monotonic()
        pace = (start - began) / self.fixed
        each = (2 if self.moved else 1) * pace  # a run, and a moved one where that is wanted
        if each > self.seconds / 2:  # none of them would have time: they need not be made
            self.cut = True
            return

        def fits(runs: int) -> bool:
            late = time.monotonic() + runs * pace > start + self.seconds
            self.cut |= late
            return not late

        for probe in self.plan.probes(self.runner, fits):
            ahead = each * max(1.0, _elements(probe) / max(1, _elements(self.base[0])))
            share = 0.5 if probe.is_rows else 1.0  # a large table must not take all the time
            if time.monotonic() + ahead > start + share * self.seconds:
                self.cut |= not probe.is_rows  # those come again in smaller pieces
                if ahead > self.seconds / 2:
                    probe.refused = True
                    continue
                self.cut = True
                return
            self.asked.append((probe, False))
            yield probe
            if self.moved and not probe.refused and not probe.exact and _has_floats(probe):
                shifted = _near(probe, self.seed + len(self.asked))
                self.asked.append((shifted, True))
                yield shifted

    def groups(self, runs: Sequence[Outputs]) -> list[Runs]:
        """A group for each probe that the original took."""
        found: list[Runs] = []
        for (probe, moved), outputs in zip(self.asked, runs[self.fixed :], strict=True):
            if moved and outputs:
                found[-1].variants.append([outputs])
            elif outputs and probe.is_rows and _goes_on(found, outputs):
                found[-1].feeds.append(probe)
                found[-1].plain.append(outputs)
            elif not moved and outputs:
                found.append(Runs(probe.kind, [probe], [outputs], [], probe.exact, probe.scaled, probe.is_rows))
        return found


def _goes_on(groups: Sequence[Runs], outputs: Outputs) -> bool:
    """Whether rows of a table are judged together with those before."""
    last = groups[-1] if groups else None
    if last is None or not last.rows or len(last.plain) >= _ROWS_TOGETHER:
        return False
    return {n: np.shape(a) for n, a in outputs.items()} == {n: np.shape(a) for n, a in last.plain[0].items()}


def moved_by_one_ulp(feeds: Feeds, seed: int) -> dict[str, np.ndarray]:
    """Every float moved to its neighbour, up or down at random; others as they are."""
    rng = np.random.default_rng(seed)
    moved = {}
    for name, array in feeds.items():
        if array.dtype.kind == "f":
            direction = np.where(rng.integers(0, 2, array.shape) == 1, np.inf, -np.inf).astype(array.dtype)
            moved[name] = np.asarray(np.nextafter(array, direction))
        else:
            moved[name] = array
    return moved


def _near(feeds: Feeds, seed: int) -> Any:
    """As :func:`moved_by_one_ulp`, of the same kind."""
    moved = moved_by_one_ulp(feeds, seed)
    return Probe(feeds.kind, moved) if isinstance(feeds, Probe) else moved


def _a_step_up(outputs: Outputs, names: Collection[str]) -> Outputs:
    """``outputs`` with those named half a unit of 1.0 larger: finer than that no sigmoid is computed."""
    return {
        name: array + np.asarray(np.finfo(array.dtype).eps / 2, array.dtype)
        if name in names and array.dtype.kind == "f"
        else array
        for name, array in outputs.items()
    }


def _elements(feeds: Feeds) -> int:
    return sum(array.size for array in feeds.values())


def _has_floats(feeds: Feeds) -> bool:
    return any(array.dtype.kind == "f" for array in feeds.values())


def _flat(runs: Sequence[Mapping[str, Any]]) -> list[Outputs]:
    return [flatten(run) for run in runs]
