"""The final gate: is one of the candidates really faster than the baseline, end to end, in the deployment runtime?

Two sources of luck are shut out. *Choosing* the best of several candidates on a sample flatters it, so the winner is
chosen on one sample and judged on fresh ones. And *opening* a session decides where its weights and buffers lie: two
sessions of one and the same model differ by half a per cent to several per cent for as long as they live (measured;
the smaller and more memory-bound the model, the more), so that thousands of rounds in one pair of sessions would find
a "significant" difference between equals. The unit of evidence is therefore a *block*: new process, new sessions,
some interleaved rounds, reduced to the median of the paired log ratios. The signed-rank test runs over blocks.

A comparison that was finished may be kept, and repeated after a few fresh blocks that do not contradict it
(:mod:`rlflow.cost.evidence`, which says why this makes no false claim likelier).
"""

from __future__ import annotations

import datetime
import math
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from rlflow.cost.command import CommandSampler, DeviceCommand
from rlflow.cost.decision import GateDecision, ModelTiming
from rlflow.cost.evidence import CHECK_BLOCKS, CHECK_SHARE, Evidence, Memory, contradiction, more_checks, plain
from rlflow.cost.sampler import LazySource, WorkerSampler, made
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
from rlflow.errors import BudgetError, CostError, RuntimeCrashed, RuntimeRefused, UsageError
from rlflow.runtime import ModelSource, Samples, Worker

#: Blocks that are timed if the time allows: the smallest count at which one bad block does not by itself rule out
#: significance at 1 %.
MIN_BLOCKS = 8
#: Fewer than this many cannot be significant by ranks. Student's test can, but takes sessions that are either fast or
#: slow as a whole for a sure difference once in two to the number of blocks.
LEAST_BLOCKS = 7
#: After so many blocks, and each further one up to ``MIN_BLOCKS``, it is looked whether a loss is clear already.
CLEAR_BLOCKS = 5
#: Part of the level that the look for a clear gain at ``LEAST_BLOCKS`` has, by Student's test; the ranks have the rest.
LOOK_SHARE = 0.1
#: What the whole may take where those blocks need more than the time given: so many times that, and so many seconds at
#: least. Then it ends without a claim.
OVERRUN, OVERRUN_SECONDS = 3.0, 90.0
#: Blocks that the time given is divided into: more of them say more than more rounds in fewer, but each loads the
#: models again.
AIM_BLOCKS = 14
MAX_BLOCKS = 40
SELECTION_BLOCKS = 3
SELECTION_SHARE = 0.35
#: Confirmation ends early once the speed-up is known this well (natural logarithm).
HALF_WIDTH = 0.004
#: Where it is known less well than this when the time is over (another program ran beside, say), it goes on up to so
#: many times as long; the width says nothing about the sign, so that this makes no false claim likelier.
WIDE, LONGER = 0.02, 2.0
#: The selection takes all of its blocks where they need no more seconds than this.
QUICK_SELECTION = 4.0
#: Where one block of the selection would take more than this part of the time, there is none: the first candidate, the
#: cheapest, is the only one.
DEAR_SELECTION = 0.15
#: An interval this wide on either side (natural logarithm) cannot tell the differences that rewrites make.
NOISY = 0.05


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
    memory: Memory | None = None,
    before_closing: Callable[[GateDecision, Callable[[str, Any], dict[str, Any]]], None] | None = None,
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
            memory=None if memory is None else _Unprefixed(memory),
        )
        decided = _with_plain_names(decision)
        if before_closing is not None and isinstance(sampler, WorkerSampler):
            before_closing(decided, sampler.run)
    return decided


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
    memory: Memory | None = None,
) -> GateDecision:
    """The gate's logic over any sampler; see :func:`choose`. ``started``: when the seconds began to count. ``only``:
    nothing is to be chosen, the first candidate is confirmed or not.
    """
    gate = _Gate(
        sampler, baseline, list(candidates), list(beside), seconds, seed, alpha, dict(dropped or {}), on_progress, stop
    )
    gate.memory, gate.only = memory, only
    if started is not None:
        gate.started = started
    return gate.run()


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
        self.memory: Memory | None = None
        self.only = False
        self.earlier: Mapping[str, Any] | None = None

    def run(self) -> GateDecision:
        if self.only and self.candidates:
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
        known = None if self.memory is None else self.memory.recall(challenger)
        if known is not None and known.seconds >= self.seconds:
            repeated = self._check_again(challenger, first_sample, known)
            if repeated is not None:
                return repeated
        return self._compare(challenger, first_sample)

    def _check_again(self, challenger: str, first_sample: Mapping[str, float], known: Evidence) -> GateDecision | None:
        """The verdict of an earlier comparison, if fresh blocks do not contradict it; else it is thrown away."""
        assert self.memory is not None
        # Other orders of loading and of rounds than those of the comparison that is checked.
        self.seeds = np.random.SeedSequence([self.seed, zlib.crc32(known.taken_at.encode())])
        blocks: list[dict[str, Samples]] = []
        fresh: list[float] = []
        while more_checks(known, fresh):
            names = [self.baseline, challenger, *self.beside]
            blocks.append(self._block(names, CHECK_SHARE * self.seconds / CHECK_BLOCKS))
            self.on_progress("checking", min(1.0, len(blocks) / CHECK_BLOCKS))
            if challenger in self.dropped:
                return self._failed(challenger, blocks, first_sample)
            if self.stop():
                return self._decision(None, self._unfinished(len(blocks)), blocks, challenger, first_sample)
            fresh.append(_pooled(blocks[-1:], self.baseline, challenger, self.sampler.clock))
        clock = self.sampler.clock
        found = speedup([*known.ratios, *fresh])
        baseline_ms = _timing([block[self.baseline] for block in blocks], clock).ms
        why = contradiction(known, fresh, baseline_ms)
        if why is None and known.claimed and not (found.p_value < self.alpha and found.value > 1.0):
            why = f"together with {len(fresh)} fresh blocks it is not significant any more"
        if why is not None:
            self.memory.forget(challenger)
            sentence = f"The comparison kept from {known.day} was thrown away, because {why}."
            self.earlier = plain(known, False, sentence)
            return None
        self.earlier = plain(
            known,
            True,
            f"{len(known.ratios)} blocks ({known.rounds} rounds) of the final comparison are from {known.day}; "
            f"{len(fresh)} fresh ones do not contradict them.",
        )
        winner = challenger if known.claimed else None
        return self._decision(winner, self._repeated(known, found, len(fresh)), blocks, challenger, first_sample, found)

    def _repeated(self, known: Evidence, found: Speedup, fresh: int) -> str:
        figures = (
            f"the chosen candidate is {found.value:.3f} times as fast (95 % interval {found.low:.3f} to "
            f"{found.high:.3f}, p = {found.p_value:.2g})"
        )
        blocks = f"{len(known.ratios)} blocks of {known.day} and {fresh} fresh ones"
        if known.claimed:
            return f"{figures[0].upper()}{figures[1:]} on samples that did not choose it: {blocks}."
        return (
            f"No gain: it was not shown on {known.day}, and fresh blocks do not contradict that (--fresh compares "
            f"again); {figures} by {blocks}."
        )

    def _failed(
        self, challenger: str, blocks: list[dict[str, Samples]], first_sample: Mapping[str, float]
    ) -> GateDecision:
        reason = f"The chosen candidate failed while it was timed: {self.dropped[challenger]}"
        return self._decision(None, reason, blocks, challenger, first_sample)

    def _keep(self, challenger: str, values: Sequence[float] | np.ndarray, decision: GateDecision) -> None:
        """Remember a comparison that was finished, on a machine that was quiet enough."""
        found = speedup(values)
        finished = len(values) >= LEAST_BLOCKS or self._is_clear(values)
        if self.memory is None or self.stop() or not finished or math.log(found.high / found.low) / 2.0 > NOISY:
            return
        now = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="microseconds")
        evidence = Evidence(
            tuple(map(float, values)),
            decision.winner is not None,
            float(decision.p_value or 0.0),
            decision.timings[self.baseline].ms,
            decision.rounds,
            self.seconds,
            now,
        )
        self.memory.keep(challenger, evidence)

    def _compare(self, challenger: str, first_sample: Mapping[str, float]) -> GateDecision:
        left = max(self.seconds - self._elapsed(), 0.0)
        # A model that takes long to load has fewer blocks, with more rounds each.
        aim = MIN_BLOCKS if self.only else AIM_BLOCKS
        blocks: list[dict[str, Samples]] = []

        def draw(done: int) -> float:
            if challenger in self.dropped:
                return 0.0
            blocks.append(self._block([self.baseline, challenger, *self.beside], left / aim))
            self.on_progress("confirming", min(1.0, (done + 1) / aim))
            if challenger in self.dropped:
                return 0.0
            return _pooled(blocks[-1:], self.baseline, challenger, self.sampler.clock)

        values = sample_until(
            draw,
            half_width=HALF_WIDTH,
            seconds=left,
            wide=WIDE,
            longest=LONGER * left,
            minimum=MIN_BLOCKS,
            maximum=MAX_BLOCKS,
            overrun=max(OVERRUN * self.seconds, OVERRUN_SECONDS) - self._elapsed(),
            stop=lambda: self.stop() or challenger in self.dropped,
            enough=self._is_clear,
            clock=self._elapsed,
        )
        if challenger in self.dropped:
            return self._failed(challenger, blocks, first_sample)
        found = speedup(values)
        early = self._early(values)
        winner, reason = self._verdict(challenger, found, early, self._is_clear(values))
        decisive = replace(found, p_value=min(found.p_value, early))
        decision = self._decision(winner, reason, blocks, challenger, first_sample, decisive)
        self._keep(challenger, values, decision)
        return decision

    def _is_clear(self, values: Sequence[float] | np.ndarray) -> bool:
        """Whether so few blocks decide: a loss, or a gain in each of ``LEAST_BLOCKS`` that is sure by Student's test.

        Giving up early makes no false claim likelier. The look for a gain and the ranks together keep the level.
        """
        if not CLEAR_BLOCKS <= len(values) < MIN_BLOCKS:
            return False
        error = standard_error(values)
        lost = error > 0.0 and student_tail(-float(np.mean(values)) / error, len(values) - 1) < 0.025
        return lost or self._early(values) < 1.0

    def _early(self, values: Sequence[float] | np.ndarray) -> float:
        """The p value of the look for a clear gain; 1 where there is none."""
        if len(values) != LEAST_BLOCKS or min(values) <= 0.0:
            return 1.0
        found = student_p(values)
        return found if found < LOOK_SHARE * self.alpha else 1.0

    def _verdict(self, challenger: str, found: Speedup, early: float, clear: bool) -> tuple[str | None, str]:
        """``early``: the p value of the look for a clear gain, else 1; ``clear``: few blocks were enough."""
        interval = f"95 % interval {found.low:.3f} to {found.high:.3f}"
        figures = f"{found.value:.3f} times as fast ({interval}, p = {min(found.p_value, early):.2g})"
        cut = " The comparison was interrupted after that." if self.stop() else ""
        if (found.p_value < (1.0 - LOOK_SHARE) * self.alpha or early < 1.0) and found.value > 1.0:
            return challenger, f"The chosen candidate is {figures} on samples that did not choose it.{cut}"
        if found.pairs < LEAST_BLOCKS and not clear:
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
            self.earlier,
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


class _Unprefixed:
    """A memory under the names that the caller gave its candidates."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory

    def recall(self, candidate: str) -> Evidence | None:
        return self._memory.recall(_plain_name(candidate))

    def keep(self, candidate: str, found: Evidence) -> None:
        self._memory.keep(_plain_name(candidate), found)

    def forget(self, candidate: str) -> None:
        self._memory.forget(_plain_name(candidate))


def _plain_name(name: str) -> str:
    return name.split(":", 1)[-1]


def _prefixed(kind: str, models: Mapping[str, LazySource]) -> dict[str, LazySource]:
    return {f"{kind}:{name}": model for name, model in models.items()}


def _with_plain_names(decision: GateDecision) -> GateDecision:
    values = {key: getattr(decision, key) for key in GateDecision.__dataclass_fields__}
    for key in ("winner", "challenger"):
        values[key] = None if values[key] is None else _plain_name(values[key])
    for key in ("timings", "first_sample", "dropped"):
        values[key] = {_plain_name(name): value for name, value in values[key].items()}
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
