"""The final gate: is one of the candidates really faster than the baseline, end to end, in the deployment runtime?

Two sources of luck are shut out. *Choosing* the best of several candidates on a sample flatters it, so the winner is
chosen on one sample and judged on fresh ones. And *opening* a session decides where its weights and buffers lie: two
sessions of one and the same model differ by half a per cent to several per cent for as long as they live (measured;
the smaller and more memory-bound the model, the more), so that thousands of rounds in one pair of sessions would find
a "significant" difference between equals. The unit of evidence is therefore a *block*: new process, new sessions,
some interleaved rounds, reduced to the median of the paired log ratios.

How blocks decide is said in :mod:`rlflow.race.sequential`: they are added until a claim is made or hopeless, or the
time is spent. A comparison is kept (:mod:`rlflow.race.evidence`): one that was finished is repeated after a few fresh
blocks that do not contradict it, one that was left undecided is gone on with.
"""

from __future__ import annotations

import datetime
import math
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np

from rlflow.errors import BudgetError, CostError, RuntimeCrashed, RuntimeRefused, UsageError
from rlflow.price.command import CommandSampler, DeviceCommand
from rlflow.price.sampler import LazySource, WorkerSampler, made
from rlflow.price.timing import Speedup, speedup
from rlflow.race import verdicts
from rlflow.race.blocks import BadDuration, Block, by_name, check_durations, drift, pooled, ratio, timings
from rlflow.race.decision import GateDecision
from rlflow.race.evidence import (
    CHECK_BLOCKS,
    CHECK_SHARE,
    TOO_WIDE,
    Evidence,
    Memory,
    contradiction,
    more_checks,
    plain,
)
from rlflow.race.sequential import CLEAR_BLOCKS, LEAST_BLOCKS, MOST_BLOCKS, corrected_p, half_interval, is_hopeless
from rlflow.runtime import ModelSource, Samples, Worker

__all__ = ["CLEAR_BLOCKS", "LEAST_BLOCKS", "MOST_BLOCKS", "GateDecision", "choose", "decide"]

#: What the blocks that a claim needs may take where they need more than the time given: so many times that, and so many
#: seconds at least. Then it ends without a claim.
OVERRUN, OVERRUN_SECONDS = 3.0, 90.0
#: A candidate that seems faster, but is not decided when the time is over, gets so many times as long.
LONGER = 2.0
#: Blocks that the time given is divided into: more of them say more than more rounds in fewer, but each loads the
#: models again. Of models that take long to load there are fewer, with more rounds each.
AIM_BLOCKS, AIM_OF_ONE = 14, 8
SELECTION_BLOCKS = 3
SELECTION_SHARE = 0.35
#: The selection takes all of its blocks where they need no more seconds than this.
QUICK_SELECTION = 4.0
#: Where one block of the selection would take more than this part of the time, there is none: the first candidate, the
#: cheapest, is the only one.
DEAR_SELECTION = 0.15


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
    at_most: float | None = None,
    seed: int = 0,
    alpha: float = 0.01,
    beside: Mapping[str, LazySource] | None = None,
    on_progress: Callable[[str, float], None] | None = None,
    stop: Callable[[], bool] | None = None,
    memory: Memory | None = None,
    before_closing: Callable[[GateDecision, Callable[[str, Any], dict[str, Any]]], None] | None = None,
    only: bool = False,
) -> GateDecision:
    """Time baseline and candidates by ``clock``, a worker or the command of a device, and decide whether one of them
    replaces the baseline.

    A candidate is accepted if, on samples that did not choose it, it is faster at the one-sided level ``alpha``. One
    that the runtime refuses, that crashes or hangs, or that returns non-finite values where the baseline returns
    finite ones, is dropped with its sentence. The models of ``beside`` are timed along with the confirmation, and
    take no part. ``feeds`` are arrays by input name. A model may be a function that makes it when it is loaded first.

    ``seconds`` is what the whole should take. Where a candidate seems faster and is not decided then, blocks are added
    up to ``LONGER`` times as long; the ``LEAST_BLOCKS`` that a claim needs may take up to ``OVERRUN`` times ``seconds``
    or ``OVERRUN_SECONDS``. ``at_most`` says instead how many seconds the whole may take in either case: no block is
    begun that would probably end later, and where the time is short for the ``LEAST_BLOCKS`` they are of few rounds.
    ``only``: nothing is to be chosen, the first candidate is confirmed or not.
    ``on_progress`` is told the stage and the fraction done. ``stop`` is asked
    after every block: the decision is then what the blocks so far say. Raises :class:`CostError` where the baseline
    itself cannot be run.
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
            at_most=at_most,
            seed=seed,
            alpha=alpha,
            beside=extras,
            dropped=dropped,
            on_progress=on_progress,
            stop=stop,
            started=started,
            only=only or not sampler.afford_selection,
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
    at_most: float | None = None,
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
    return _Gate(
        sampler,
        baseline,
        list(candidates),
        list(beside),
        seconds,
        seed,
        alpha,
        dict(dropped or {}),
        at_most,
        on_progress or (lambda stage, fraction: None),
        stop or (lambda: False),
        time.perf_counter() if started is None else started,
        only,
        memory,
    ).run()


@dataclass
class _Gate:
    """One decision in the making."""

    sampler: Sampler
    baseline: str
    candidates: list[str]
    beside: list[str]
    seconds: float
    seed: int
    alpha: float
    dropped: dict[str, str]
    at_most: float | None
    on_progress: Callable[[str, float], None]
    stop: Callable[[], bool]
    started: float
    only: bool
    memory: Memory | None
    earlier: Mapping[str, Any] | None = None
    dearest: float = 0.0
    first: Sequence[Block] = ()
    seeds: np.random.SeedSequence = field(init=False)

    def __post_init__(self) -> None:
        self.seeds = np.random.SeedSequence(self.seed)

    def run(self) -> GateDecision:
        # A block opens again what the screening opened; where the time does not reach for one there is none.
        if self.at_most is not None and 2.0 * self._elapsed() > self.at_most:
            return self._decision(None, verdicts.no_time(self._elapsed(), self.at_most), [])
        if self.only and self.candidates:
            return self._confirm(self.candidates[0], {})
        if not self.candidates:
            reason = "No candidate was left to time." if self.dropped else "No candidate was given."
            return self._decision(None, reason, self._select())
        first = self.first = self._select()
        if not self.candidates:
            return self._decision(None, "No candidate survived the timing.", first)
        if self.stop():
            reason = "The final comparison was interrupted before anything was confirmed, so the original is kept."
            return self._decision(None, reason, first)
        ratios = {name: pooled(first, self.baseline, name, self.sampler.clock) for name in self.candidates}
        challenger = max(self.candidates, key=lambda name: ratios[name])
        summary = {name: math.exp(ratio) for name, ratio in ratios.items()}
        if self._lost(first, challenger):
            reason = (
                f"No candidate was faster than the baseline: the best of {len(ratios)} "
                f"ran at {summary[challenger]:.3f} times its speed."
            )
            return self._decision(None, reason, first, first_sample=summary)
        return self._confirm(challenger, summary)

    def _lost(self, first: Sequence[Block], challenger: str) -> bool:
        """Whether the best candidate was slower in every block of the first sample. That it was so in their middle
        decides nothing: beside other programs a block errs by several per cent.
        """
        return all(ratio(block, self.baseline, challenger, self.sampler.clock) <= 0.0 for block in first)

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
            if self._lacks(LEAST_BLOCKS + 1):
                break
        alive = {self.baseline, *self.candidates, *self.beside}
        return [{name: one for name, one in block.items() if name in alive} for block in blocks]

    def _lacks(self, blocks: int) -> bool:
        """Whether so many more blocks, as dear as the dearest, would take longer than the whole may."""
        return self.at_most is not None and self._elapsed() + blocks * self.dearest > self.at_most

    def _elapsed(self) -> float:
        return time.perf_counter() - self.started

    # --- what is kept -------------------------------------------------------------------------------------------------

    def _confirm(self, challenger: str, first_sample: Mapping[str, float]) -> GateDecision:
        if self.first and self._lacks(1):
            assert self.at_most is not None
            reason = verdicts.no_time(self._elapsed(), self.at_most)
            return self._decision(None, reason, self.first, first_sample=first_sample)
        known = None if self.memory is None else self.memory.recall(challenger)
        if known is not None and not known.decided:
            return self._compare(challenger, first_sample, known)
        if known is not None and known.seconds >= self.seconds:
            repeated = self._check_again(challenger, first_sample, known)
            if repeated is not None:
                return repeated
        return self._compare(challenger, first_sample)

    def _check_again(self, challenger: str, first_sample: Mapping[str, float], known: Evidence) -> GateDecision | None:
        """The verdict of an earlier comparison, if fresh blocks do not contradict it; else it is thrown away."""
        assert self.memory is not None
        self._other_orders_than(known)
        blocks: list[dict[str, Samples]] = []
        fresh: list[float] = []
        while more_checks(known, fresh):
            names = [self.baseline, challenger, *self.beside]
            blocks.append(self._block(names, CHECK_SHARE * self.seconds / CHECK_BLOCKS))
            self.on_progress("checking", min(1.0, len(blocks) / CHECK_BLOCKS))
            if challenger in self.dropped:
                return self._failed(challenger, blocks, first_sample)
            if self.stop():
                return self._decision(None, verdicts.interrupted(len(blocks)), blocks, challenger, first_sample)
            fresh.append(ratio(blocks[-1], self.baseline, challenger, self.sampler.clock))
        found = speedup([*known.ratios, *fresh])
        why = contradiction(known, fresh, timings(blocks, self.sampler.clock)[self.baseline].ms)
        if why is None and known.claimed and not (found.p_value < self.alpha and found.value > 1.0):
            why = f"together with {len(fresh)} fresh blocks it is not significant any more"
        if why is not None:
            self.memory.forget(challenger)
            self.earlier = plain(known, False, verdicts.thrown_away(known, why))
            return None
        self.earlier = plain(known, True, verdicts.repeated_note(known, len(fresh)))
        winner = challenger if known.claimed else None
        return self._decision(
            winner, verdicts.repeated(known, found, len(fresh)), blocks, challenger, first_sample, found
        )

    def _other_orders_than(self, known: Evidence) -> None:
        """Draw other orders of loading and of rounds than those of the comparison that is checked or gone on with."""
        self.seeds = np.random.SeedSequence([self.seed, zlib.crc32(known.taken_at.encode())])

    def _failed(self, challenger: str, blocks: Sequence[Block], first_sample: Mapping[str, float]) -> GateDecision:
        reason = f"The chosen candidate failed while it was timed: {self.dropped[challenger]}"
        return self._decision(None, reason, blocks, challenger, first_sample)

    def _keep(self, challenger: str, values: Sequence[float], decision: GateDecision, known: Evidence | None) -> None:
        """Remember a comparison: its verdict, or all of its blocks where it is undecided."""
        if self.memory is None:
            return
        if not _keeps(speedup(values)):
            self.memory.forget(challenger)
            return
        now = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="microseconds")
        evidence = Evidence(
            tuple(map(float, values)),
            decision.winner is not None,
            float(decision.p_value or 0.0),
            decision.timings[self.baseline].ms,
            decision.rounds + (0 if known is None else known.rounds),
            self.seconds,
            now,
            decision.winner is not None or is_hopeless(values),
        )
        self.memory.keep(challenger, evidence)

    # --- the comparison -----------------------------------------------------------------------------------------------

    def _compare(
        self, challenger: str, first_sample: Mapping[str, float], known: Evidence | None = None
    ) -> GateDecision:
        """Add blocks, to those of an earlier comparison that was left undecided, until a claim is made or hopeless, or
        the time is spent.
        """
        left, aim = max(self.seconds - self._elapsed(), 0.0), AIM_OF_ONE if self.only else AIM_BLOCKS
        values = [] if known is None else list(known.ratios)
        blocks: list[dict[str, Samples]] = []
        if known is not None:
            self._other_orders_than(known)
        while not blocks or not (self._is_decided(values) or self._is_over(values, len(blocks)) or self.stop()):
            in_haste = self._lacks(LEAST_BLOCKS - len(values))
            blocks.append(self._block([self.baseline, challenger, *self.beside], 0.0 if in_haste else left / aim))
            self.on_progress("confirming", min(1.0, len(blocks) / aim))
            if challenger in self.dropped:
                return self._failed(challenger, blocks, first_sample)
            values.append(ratio(blocks[-1], self.baseline, challenger, self.sampler.clock))
        if known is not None:
            self.earlier = plain(known, True, verdicts.gone_on(known, len(blocks)))
        found = replace(speedup(values), p_value=corrected_p(values))
        winner = challenger if found.p_value <= self.alpha else None
        reason = self._reason(found, is_hopeless(values))
        decision = self._decision(winner, reason, blocks, challenger, first_sample, found)
        self._keep(challenger, values, decision, known)
        return decision

    def _is_decided(self, values: Sequence[float]) -> bool:
        return corrected_p(values) <= self.alpha or is_hopeless(values)

    def _is_over(self, values: Sequence[float], fresh: int) -> bool:
        """Whether the time is spent. That a candidate seems slower may end it, which makes no claim likelier."""
        spent = self._elapsed()
        if self._lacks(1):
            return True
        if len(values) < LEAST_BLOCKS:
            return self.at_most is None and spent >= max(OVERRUN * self.seconds, OVERRUN_SECONDS)
        if spent < self.seconds or fresh < CLEAR_BLOCKS:
            return False
        return float(np.median(values)) <= 0.0 or (self.at_most is None and spent >= LONGER * self.seconds)

    def _reason(self, found: Speedup, hopeless: bool) -> str:
        if found.p_value <= self.alpha:
            return verdicts.gain(found, self.stop())
        if hopeless:
            return verdicts.no_gain(found, self.alpha, self.stop())
        kept = self.memory is not None and _keeps(found)
        if found.pairs >= LEAST_BLOCKS:
            return verdicts.undecided(found, self.alpha, self.stop(), kept)
        if self.stop():
            return verdicts.interrupted(found.pairs)
        return verdicts.too_few(found.pairs, self._elapsed(), self.seconds, SELECTION_BLOCKS, kept)

    # --- blocks -------------------------------------------------------------------------------------------------------

    def _block(self, names: list[str], seconds: float) -> dict[str, Samples]:
        """One block by model name; a candidate that brings the runtime down is dropped and the block taken again
        without it.
        """
        began = time.perf_counter()
        while True:
            try:
                samples = self.sampler.block(names, int(self.seeds.spawn(1)[0].generate_state(1)[0]), seconds)
                check_durations(samples, names)
            except (RuntimeCrashed, RuntimeRefused) as error:
                culprit = error.model if isinstance(error, BadDuration) else self._culprit(names, error)
                if culprit == self.baseline:
                    raise CostError(f"The baseline could not be timed: {error}") from error
                self.dropped[culprit] = str(error)
                names = [name for name in names if name != culprit]
                self.candidates = [name for name in self.candidates if name != culprit]
                self.beside = [name for name in self.beside if name != culprit]
                continue
            self.dearest = max(self.dearest, time.perf_counter() - began)
            return by_name(samples, names)

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
        blocks: Sequence[Block],
        challenger: str | None = None,
        first_sample: Mapping[str, float] | None = None,
        found: Speedup | None = None,
    ) -> GateDecision:
        return GateDecision(
            winner,
            reason,
            self.sampler.clock,
            self.baseline,
            challenger,
            None if found is None else found.value,
            None if found is None else (found.low, found.high),
            None if found is None else found.p_value,
            timings(blocks, self.sampler.clock),
            first_sample or {},
            self.dropped,
            len(blocks),
            sum(len(block[self.baseline].wall_ms) for block in blocks),
            self._elapsed(),
            drift([block[self.baseline] for block in blocks], self.sampler.clock),
            self.stop(),
            self.earlier,
        )


def _keeps(found: Speedup) -> bool:
    """Whether the blocks tell enough to be gone on with, or checked, by the next run."""
    return half_interval(found.low, found.high) <= TOO_WIDE


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
