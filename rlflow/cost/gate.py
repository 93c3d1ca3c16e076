"""The final gate: is one of the candidates really faster than the baseline, end to end, in the deployment runtime?

Two sources of luck are shut out. *Choosing* the best of several candidates on a sample flatters it, so the winner is
chosen on one sample and judged on fresh ones. And *opening* a session decides where its weights and buffers lie: two
sessions of one and the same model differ by half a per cent to several per cent for as long as they live (measured;
the smaller and more memory-bound the model, the more), so that thousands of rounds in one pair of sessions would find
a "significant" difference between equals. The unit of evidence is therefore a *block*: new process, new sessions,
some interleaved rounds, reduced to the median of the paired log ratios. The signed-rank test runs over blocks.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NamedTuple, Protocol

import numpy as np

from rlflow.cost.command import CommandSampler, DeviceCommand
from rlflow.cost.timing import (
    Interval,
    Speedup,
    log_ratios,
    median_interval,
    sample_until,
    speedup,
    standard_error,
    student_p,
    student_tail,
)
from rlflow.errors import BudgetError, CostError, GraphError, RuntimeCrashed, RuntimeRefused, UsageError
from rlflow.runtime import Handle, ModelSource, Samples, Worker

#: Blocks that are timed if the time allows: the smallest count at which one bad block does not by itself rule out
#: significance at 1 %.
MIN_BLOCKS = 8
#: Fewer than this many cannot be significant by ranks.
LEAST_BLOCKS = 7
#: After so many blocks, and each further one up to ``MIN_BLOCKS``, it is looked whether the matter is clear already.
CLEAR_BLOCKS = 5
#: Part of the level that each of these looks has, by Student's test; the ranks have the rest.
LOOK_SHARE = 1.0 / 30.0
#: What the whole may take where those blocks need more than the time given: so many times that, and so many seconds at
#: least. Then it ends without a claim.
OVERRUN, OVERRUN_SECONDS = 3.0, 60.0
#: Blocks that the time given is divided into: more of them say more than more rounds in fewer, but each loads the
#: models again.
AIM_BLOCKS = 14
MAX_BLOCKS = 40
MIN_ROUNDS = 3
#: Of models whose run takes so many seconds, fewer rounds a block do: loading them takes most of it.
LONG_RUN, LONG_ROUNDS = 0.1, 1
MAX_ROUNDS = 200
SELECTION_BLOCKS = 3
SELECTION_SHARE = 0.35
#: Confirmation ends early once the speed-up is known this well (natural logarithm).
HALF_WIDTH = 0.004
#: The selection takes all of its blocks where they need no more seconds than this.
QUICK_SELECTION = 4.0
#: Where one block of the selection would take more than this part of the time, there is none: the first candidate, the
#: cheapest, is the only one.
DEAR_SELECTION = 0.15
#: An interval this wide on either side (natural logarithm) cannot tell the differences that rewrites make.
NOISY = 0.05


LazySource = ModelSource | Callable[[], ModelSource]


class ModelTiming(NamedTuple):
    """Latency of one model in milliseconds per run: median by the deciding clock, its 95 % interval, and the median
    by the wall clock.
    """

    ms: float
    low: float
    high: float
    wall_ms: float
    rounds: int


@dataclass(frozen=True)
class GateDecision:
    """What the gate found. ``winner`` is the name of the accepted candidate or ``None``; ``reason`` says why, in a
    sentence.

    Speed-up, interval and p value are those of the confirmation (of ``challenger``, the candidate chosen on the first
    sample), ``None`` where nothing reached it. ``timings`` come from the confirmation, or from the first sample where
    there was no confirmation. ``drift`` is how much slower (above 1) the baseline ran in the last blocks than in the
    first; both sides of every ratio share it.
    """

    winner: str | None
    reason: str
    clock: str
    baseline: str
    challenger: str | None = None
    speedup: float | None = None
    speedup_ci95: tuple[float, float] | None = None
    p_value: float | None = None
    timings: Mapping[str, ModelTiming] = field(default_factory=dict)
    first_sample: Mapping[str, float] = field(default_factory=dict)
    dropped: Mapping[str, str] = field(default_factory=dict)
    blocks: int = 0
    rounds: int = 0
    seconds: float = 0.0
    drift: float | None = None
    interrupted: bool = False

    @property
    def improved(self) -> bool:
        return self.winner is not None

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; an unbounded end of an interval is ``None``."""
        plain = asdict(self) | {"improved": self.improved}
        plain["timings"] = {name: timing._asdict() for name, timing in self.timings.items()}
        return _plain(plain)


class Sampler(Protocol):
    """Times models; ``WorkerSampler`` does it for real, tests do it with known noise."""

    clock: str

    def block(self, names: Sequence[str], seed: int, seconds: float) -> Samples:
        """Interleaved timings of the named models in fresh sessions, for about ``seconds``; at least one round."""
        ...


def choose(
    clock: Worker | DeviceCommand,
    baseline: ModelSource,
    candidates: Mapping[str, LazySource],
    feeds: Mapping[str, Any],
    *,
    seconds: float = 20.0,
    seed: int = 0,
    alpha: float = 0.01,
    beside: Mapping[str, LazySource] | None = None,
    on_progress: Callable[[str, float], None] | None = None,
    stop: Callable[[], bool] | None = None,
) -> GateDecision:
    """Time baseline and candidates by ``clock``, a worker or the command of a device, and decide whether one of them
    replaces the baseline.

    A candidate is accepted if, on samples that did not choose it, it is faster at the one-sided level ``alpha``. One
    that the runtime refuses, that crashes or hangs, or that returns non-finite values where the baseline returns
    finite ones, is dropped with its sentence. The models of ``beside`` are timed along with the confirmation, and
    take no part. ``feeds`` are arrays by input name. A model may be a function that makes it when it is loaded first.

    ``seconds`` is what the whole should take. ``MIN_BLOCKS`` blocks are timed even if that takes longer, up to
    ``OVERRUN`` times ``seconds`` or ``OVERRUN_SECONDS``; a claim needs ``LEAST_BLOCKS`` of them. ``on_progress`` is
    told the stage and the fraction done. ``stop`` is asked after every block: the decision is then what the blocks so
    far say. Raises :class:`CostError` where the baseline itself cannot be run.
    """
    if not seconds > 0:
        raise BudgetError(f"The time for the final comparison must be above zero seconds, not {seconds!r}.")
    names = ["baseline", *candidates, *(beside or {})]
    if len(set(names)) != len(names):
        raise UsageError(
            f"The models to time need different names, and none may be called baseline; got {', '.join(names)}."
        )
    models: dict[str, LazySource] = {
        "baseline": baseline,
        **_prefixed("candidate", candidates),
        **_prefixed("beside", beside or {}),
    }
    started = time.perf_counter()
    with _sampler(clock, models, feeds) as sampler:
        dropped = sampler.screen("baseline", lambda block: block <= DEAR_SELECTION * seconds, seed)
        extras = [name for name in sampler.names if name.startswith("beside:") and name not in dropped]
        entrants = [name for name in sampler.names if name.startswith("candidate:") and name not in dropped]
        decision = decide(
            sampler,
            "baseline",
            entrants,
            seconds=seconds,
            seed=seed,
            alpha=alpha,
            beside=extras,
            dropped=dropped,
            on_progress=on_progress,
            stop=stop,
            started=started,
            only=not sampler.afford_selection,
        )
    return _with_plain_names(decision)


def _sampler(
    clock: Worker | DeviceCommand, models: Mapping[str, LazySource], feeds: Mapping[str, Any]
) -> WorkerSampler | CommandSampler:
    if isinstance(clock, DeviceCommand):
        return CommandSampler(clock, {name: made(source) for name, source in models.items()})
    return WorkerSampler(clock, models, feeds)


def decide(
    sampler: Sampler,
    baseline: str,
    candidates: Sequence[str],
    *,
    seconds: float,
    seed: int,
    alpha: float = 0.01,
    beside: Sequence[str] = (),
    dropped: Mapping[str, str] | None = None,
    on_progress: Callable[[str, float], None] | None = None,
    stop: Callable[[], bool] | None = None,
    started: float | None = None,
    only: bool = False,
) -> GateDecision:
    """The gate's logic over any sampler; see :func:`choose`. ``started``: when the seconds began to count. ``only``:
    nothing is to be chosen, the first candidate is confirmed or not.
    """
    gate = _Gate(
        sampler, baseline, list(candidates), list(beside), seconds, seed, alpha, dict(dropped or {}), on_progress, stop
    )
    if started is not None:
        gate.started = started
    return gate.run(only)


class _Gate:
    """One decision in the making."""

    def __init__(
        self,
        sampler: Sampler,
        baseline: str,
        candidates: list[str],
        beside: list[str],
        seconds: float,
        seed: int,
        alpha: float,
        dropped: dict[str, str],
        on_progress: Callable[[str, float], None] | None,
        stop: Callable[[], bool] | None = None,
    ) -> None:
        self.stop = stop or (lambda: False)
        self.sampler, self.baseline, self.candidates, self.beside = sampler, baseline, candidates, beside
        self.seconds, self.seed, self.alpha, self.dropped = seconds, seed, alpha, dropped
        self.on_progress = on_progress or (lambda stage, fraction: None)
        self.started = time.perf_counter()
        self.seeds = np.random.SeedSequence(seed)

    def run(self, only: bool = False) -> GateDecision:
        if only and self.candidates:
            return self._confirm(self.candidates[0], {})
        if not self.candidates:
            reason = "No candidate was left to time." if self.dropped else "No candidate was given."
            return self._decision(None, reason, self._select())
        first = self._select()
        if not self.candidates:
            return self._decision(None, "No candidate survived the timing.", first)
        if self.stop():
            reason = "The final comparison was interrupted before anything was confirmed, so the original is kept."
            return self._decision(None, reason, first)
        ratios = {name: _pooled(first, self.baseline, name, self.sampler.clock) for name in self.candidates}
        challenger = max(self.candidates, key=lambda name: ratios[name])
        summary = {name: math.exp(ratio) for name, ratio in ratios.items()}
        if ratios[challenger] <= 0.0:
            reason = (
                f"No candidate was faster than the baseline: the best of {len(ratios)} "
                f"ran at {summary[challenger]:.3f} times its speed."
            )
            return self._decision(None, reason, first, first_sample=summary)
        return self._confirm(challenger, summary)

    def _select(self) -> list[dict[str, Samples]]:
        """The first sample: baseline, candidates and what is timed beside; of large models one block, if the share of
        the time allows no more.
        """
        blocks: list[dict[str, Samples]] = []
        share = self.seconds * SELECTION_SHARE / SELECTION_BLOCKS
        for done in range(SELECTION_BLOCKS):
            blocks.append(self._block([self.baseline, *self.candidates, *self.beside], share))
            self.on_progress("selecting", (done + 1) / SELECTION_BLOCKS)
            if self.stop() or self._elapsed() >= max(SELECTION_SHARE * self.seconds, QUICK_SELECTION):
                break
        alive = {self.baseline, *self.candidates, *self.beside}
        return [{name: one for name, one in block.items() if name in alive} for block in blocks]

    def _elapsed(self) -> float:
        return time.perf_counter() - self.started

    def _confirm(self, challenger: str, first_sample: Mapping[str, float]) -> GateDecision:
        left = max(self.seconds - self._elapsed(), 0.0)
        blocks: list[dict[str, Samples]] = []

        def draw(done: int) -> float:
            if challenger in self.dropped:
                return 0.0
            blocks.append(self._block([self.baseline, challenger, *self.beside], left / AIM_BLOCKS))
            self.on_progress("confirming", min(1.0, (done + 1) / AIM_BLOCKS))
            if challenger in self.dropped:
                return 0.0
            return _pooled(blocks[-1:], self.baseline, challenger, self.sampler.clock)

        values = sample_until(
            draw,
            half_width=HALF_WIDTH,
            seconds=left,
            minimum=MIN_BLOCKS,
            maximum=MAX_BLOCKS,
            overrun=max(OVERRUN * self.seconds, OVERRUN_SECONDS) - self._elapsed(),
            stop=lambda: self.stop() or challenger in self.dropped,
            enough=self._is_clear,
            clock=self._elapsed,
        )
        if challenger in self.dropped:
            reason = f"The chosen candidate failed while it was timed: {self.dropped[challenger]}"
            return self._decision(None, reason, blocks, challenger, first_sample)
        found = speedup(values)
        early = student_p(values) if self._is_clear(values) else 1.0
        winner, reason = self._verdict(challenger, found, early)
        decisive = replace(found, p_value=min(found.p_value, early))
        return self._decision(winner, reason, blocks, challenger, first_sample, decisive)

    def _is_clear(self, values: Sequence[float] | np.ndarray) -> bool:
        """Whether so few blocks decide: a gain at the level of a look, or a loss; by Student's test, because ranks of
        so few say nothing.

        Giving up early makes no false claim likelier. Three looks and the ranks together keep the level.
        """
        if not CLEAR_BLOCKS <= len(values) < MIN_BLOCKS:
            return False
        error = standard_error(values)
        lost = error > 0.0 and student_tail(-float(np.mean(values)) / error, len(values) - 1) < 0.025
        return lost or student_p(values) < LOOK_SHARE * self.alpha

    def _verdict(self, challenger: str, found: Speedup, early: float) -> tuple[str | None, str]:
        """``early``: the p value of the look that ended the comparison, if one did."""
        interval = f"95 % interval {found.low:.3f} to {found.high:.3f}"
        figures = f"{found.value:.3f} times as fast ({interval}, p = {min(found.p_value, early):.2g})"
        cut = " The comparison was interrupted after that." if self.stop() else ""
        looks = LOOK_SHARE * (MIN_BLOCKS - CLEAR_BLOCKS)
        if (found.p_value < (1.0 - looks) * self.alpha or early < LOOK_SHARE * self.alpha) and found.value > 1.0:
            return challenger, f"The chosen candidate is {figures} on samples that did not choose it.{cut}"
        if found.pairs < LEAST_BLOCKS and early == 1.0:
            return None, self._unfinished(found.pairs)
        if math.log(found.high / found.low) / 2.0 > NOISY:
            noisy = (
                f"This machine is too noisy to tell: the chosen candidate is {figures} on fresh samples, and an "
                f"interval wider than {NOISY:.0%} either way decides nothing. Close other programs, or give more time."
            )
            return None, noisy + cut
        level = f"not faster at the {self.alpha:.0%} level."
        return None, f"No gain: the chosen candidate is {figures} on fresh samples, {level}{cut}"

    def _unfinished(self, blocks: int) -> str:
        if self.stop():
            return (
                f"The final comparison was interrupted after {blocks} of the {LEAST_BLOCKS} blocks that a claim needs, "
                "so the original is kept."
            )
        each = self._elapsed() / (blocks + 1)
        return (
            f"No claim: of the {LEAST_BLOCKS} blocks of timings that one needs, {blocks} took {self._elapsed():.0f} s "
            f"where {self.seconds:g} s were given, so the original is kept. Give the final comparison about "
            f"{math.ceil(each * (LEAST_BLOCKS + SELECTION_BLOCKS) / 10) * 10} s (--gate-seconds)."
        )

    def _block(self, names: list[str], seconds: float) -> dict[str, Samples]:
        """One block by model name; a candidate that brings the runtime down is dropped and the block taken again
        without it.
        """
        while True:
            try:
                samples = self.sampler.block(names, int(self.seeds.spawn(1)[0].generate_state(1)[0]), seconds)
                _check_durations(samples, names)
            except (RuntimeCrashed, RuntimeRefused) as error:
                culprit = error.model if isinstance(error, _BadDuration) else self._culprit(names, error)
                if culprit == self.baseline:
                    raise CostError(f"The baseline could not be timed: {error}") from error
                self.dropped[culprit] = str(error)
                names = [name for name in names if name != culprit]
                self.candidates = [name for name in self.candidates if name != culprit]
                self.beside = [name for name in self.beside if name != culprit]
                continue
            return {name: _column(samples, index) for index, name in enumerate(names)}

    def _culprit(self, names: Sequence[str], error: Exception) -> str:
        """The model that fails when it is timed alone; where none does, the last one, so that the loop above ends."""
        if len(names) == 1:
            return names[0]
        for name in names:
            try:
                self.sampler.block([name], self.seed, 0.0)
            except (RuntimeCrashed, RuntimeRefused):
                return name
        return names[-1]

    def _decision(
        self,
        winner: str | None,
        reason: str,
        blocks: list[dict[str, Samples]],
        challenger: str | None = None,
        first_sample: Mapping[str, float] | None = None,
        found: Speedup | None = None,
    ) -> GateDecision:
        names = sorted({name for block in blocks for name in block})
        timings = {
            name: _timing([block[name] for block in blocks if name in block], self.sampler.clock) for name in names
        }
        return GateDecision(
            winner,
            reason,
            self.sampler.clock,
            self.baseline,
            challenger,
            None if found is None else found.value,
            None if found is None else (found.low, found.high),
            None if found is None else found.p_value,
            timings,
            first_sample or {},
            self.dropped,
            len(blocks),
            sum(len(block[self.baseline].wall_ms) for block in blocks),
            self._elapsed(),
            _drift([block[self.baseline] for block in blocks], self.sampler.clock),
            self.stop(),
        )


class _BadDuration(RuntimeRefused):
    """A model was timed at no time, or at one that is not a number."""

    def __init__(self, model: str, value: float) -> None:
        super().__init__(f"The clock answered {value:g} milliseconds for it, which is no duration.")
        self.model = model


def _check_durations(samples: Samples, names: Sequence[str]) -> None:
    for index, name in enumerate(names):
        for matrix in (samples.wall_ms, samples.cpu_ms):
            column = matrix[:, index]
            bad = column[~(np.isfinite(column) & (column > 0))]
            if bad.size:
                raise _BadDuration(name, float(bad[0]))


def _drift(blocks: Sequence[Samples], clock: str) -> float | None:
    """Median of the last third of the blocks over that of the first third."""
    third = len(blocks) // 3
    if third == 0:
        return None
    first, last = (np.median(np.concatenate([b.by(clock) for b in part])) for part in (blocks[:third], blocks[-third:]))
    return float(last / first)


class WorkerSampler:
    """Times models in a worker, a new process and new sessions for every block."""

    def __init__(self, worker: Worker, models: Mapping[str, LazySource], feeds: Mapping[str, Any]) -> None:
        self.worker, self.models, self.feeds = worker, dict(models), feeds
        self.clock = worker.options.effective_clock
        self.afford_selection = True
        self._handles: dict[str, Handle] = {}
        self._seconds: dict[str, float] = {}
        self._fresh = False

    def __enter__(self) -> WorkerSampler:
        return self

    def __exit__(self, *_: object) -> None:
        for handle in self._handles.values():
            self.worker.unload(handle)
        self._handles.clear()

    @property
    def names(self) -> list[str]:
        return list(self.models)

    def screen(self, baseline: str, affordable: Callable[[float], bool] | None = None, seed: int = 0) -> dict[str, str]:
        """Load and run every model once by itself; the sentences of those that cannot take part.

        ``affordable`` is asked whether so many seconds for one block with all models are worth it. Where they are not,
        ``afford_selection`` becomes false, and only the first candidate that runs is kept.
        Raises :class:`CostError` where the baseline cannot take part.
        """
        dropped: dict[str, str] = {}
        outputs: dict[str, dict[str, Any]] = {}
        for name in self._screening_order(baseline, seed):
            if len(self._handles) == 2 and affordable is not None and not affordable(self._block_seconds()):
                self.afford_selection = False
            if not self.afford_selection and len(self._handles) == 2 and name.startswith("candidate:"):
                del self.models[name]
                continue
            try:
                outputs[name] = self._try(name)
            except (RuntimeCrashed, RuntimeRefused, GraphError) as error:
                if name == baseline:
                    raise CostError(f"The model to compare with cannot be timed: {error}") from error
                dropped[name] = str(error)
            for other in [other for other in outputs if baseline in outputs and other != baseline]:
                bad = _newly_not_finite(outputs[baseline], outputs.pop(other))
                if bad is not None:
                    dropped[other] = (
                        f"The output {bad!r} holds values that are not finite, where the baseline's are finite."
                    )
                    self.worker.unload(self._handles.pop(other))
        self._fresh = True
        return dropped

    def _screening_order(self, baseline: str, seed: int) -> list[str]:
        """The baseline and the first other model in random order, because the first block may go on with these
        sessions; then the others.
        """
        first = [baseline, *[name for name in self.models if name != baseline]]
        pair = np.random.default_rng([seed, 2]).permutation(len(first[:2]))
        return [first[index] for index in pair] + first[2:]

    def _block_seconds(self) -> float:
        """About what one block with all models would take."""
        each = [handle.load_seconds + 2.0 * self._seconds[name] for name, handle in self._handles.items()]
        return len(self.models) * float(np.mean(each))

    def add(self, name: str, source: ModelSource) -> dict[str, Any]:
        """Make a model known; its outputs. Raises what the runtime says."""
        self.models[name] = source
        return self._try(name)

    def drop(self, name: str) -> None:
        """Forget a model."""
        self.models.pop(name, None)
        handle = self._handles.pop(name, None)
        if handle is not None:
            self.worker.unload(handle)

    def _try(self, name: str) -> dict[str, Any]:
        handle = self.worker.load(made(self.models[name]))
        try:
            started = time.perf_counter()
            outputs = self.worker.run(handle, self.feeds)
            self._seconds[name] = time.perf_counter() - started
        except BaseException:
            self.worker.unload(handle)
            raise
        self._handles[name] = handle
        return outputs

    def block(self, names: Sequence[str], seed: int, seconds: float) -> Samples:
        """Interleaved timings in a new process; the first block goes on with that of the screening."""
        if not (self._fresh and set(names) == set(self._handles)):
            self.worker.restart()
        self._fresh = False
        # Who is loaded first gets other addresses, so that is random too; and independent of the order of the rounds,
        # or one model would go first more often than another.
        order = np.random.default_rng([seed, 1]).permutation(len(names))
        shuffled = [self._handles[names[index]] for index in order]
        total = sum(self._seconds[name] for name in names)
        started = time.perf_counter()
        self.worker.prepare(shuffled)
        samples = self.worker.time_interleaved(
            shuffled,
            self.feeds,
            rounds=MAX_ROUNDS,
            min_rounds=MIN_ROUNDS if total < LONG_RUN * len(names) else LONG_ROUNDS,
            seed=seed + 1,
            seconds=max(0.0, seconds - (time.perf_counter() - started)),
            time_limit=self.worker.time_limit + 2 * seconds + 4 * (MIN_ROUNDS + 3) * total,
        )
        back = np.argsort(order)
        return Samples(samples.wall_ms[:, back], samples.cpu_ms[:, back], tuple(samples.inner[index] for index in back))


def made(source: LazySource) -> ModelSource:
    """A model that is there, or made now."""
    return source() if callable(source) else source


def _prefixed(kind: str, models: Mapping[str, LazySource]) -> dict[str, LazySource]:
    return {f"{kind}:{name}": model for name, model in models.items()}


def _with_plain_names(decision: GateDecision) -> GateDecision:
    def plain(name: str) -> str:
        return name.split(":", 1)[-1]

    values = {key: getattr(decision, key) for key in GateDecision.__dataclass_fields__}
    for key in ("winner", "challenger"):
        values[key] = None if values[key] is None else plain(values[key])
    for key in ("timings", "first_sample", "dropped"):
        values[key] = {plain(name): value for name, value in values[key].items()}
    return GateDecision(**values)


def _column(samples: Samples, index: int) -> Samples:
    return Samples(samples.wall_ms[:, index], samples.cpu_ms[:, index], (samples.inner[index],))


def _pooled(blocks: Sequence[Mapping[str, Samples]], baseline: str, name: str, clock: str) -> float:
    """Median over blocks of the median log ratio within a block."""
    return float(
        np.median([np.median(log_ratios(block[baseline].by(clock), block[name].by(clock))) for block in blocks])
    )


def _timing(parts: Sequence[Samples], clock: str) -> ModelTiming:
    values: Interval = median_interval(np.concatenate([part.by(clock) for part in parts]))
    wall = np.concatenate([part.wall_ms for part in parts])
    return ModelTiming(values.value, values.low, values.high, float(np.median(wall)), int(wall.size))


def _newly_not_finite(reference: Mapping[str, Any], outputs: Mapping[str, Any]) -> str | None:
    for name, value in outputs.items():
        if _finite(reference.get(name)) and not _finite(value):
            return name
    return None


def _finite(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return all(map(_finite, value))
    return not (isinstance(value, np.ndarray) and value.dtype.kind in "fc") or bool(np.isfinite(value).all())


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
