"""One decision in the making: choose a candidate, confirm it on fresh blocks, or check what was decided earlier."""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rlflow.price.timing import Speedup, speedup
from rlflow.race import verdicts
from rlflow.race.blocks import Block, drift, ratio, timing, timings
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
from rlflow.race.pacing import RaceClock
from rlflow.race.sequential import LEAST_BLOCKS, corrected_p, half_interval, is_hopeless
from rlflow.race.track import RaceProgress, Terms, Track
from rlflow.runtime import Samples

#: Blocks that the time given is divided into: more of them say more than more rounds in fewer, but each loads the
#: models again. Of models that take long to load there are fewer, with more rounds each.
AIM_BLOCKS, AIM_OF_ONE = 14, 8
SELECTION_BLOCKS = 3
SELECTION_SHARE = 0.35
#: The selection takes all of its blocks where they need no more seconds than this.
QUICK_SELECTION = 4.0


@dataclass
class Contest:
    """The gate's logic over the models on a ``track``. ``earlier``: what the report says of a kept comparison."""

    track: Track
    terms: Terms
    on_progress: Callable[[RaceProgress], None]
    memory: Memory | None
    earlier: Mapping[str, Any] | None = None
    first: Sequence[Block] = ()

    def __post_init__(self) -> None:
        self._beside = tuple(self.track.beside)

    @property
    def _clock(self) -> RaceClock:
        return RaceClock(self.track, self.terms)

    def run(self) -> GateDecision:
        """The decision."""
        track, terms = self.track, self.terms
        # A block opens again what the screening opened; where the time does not reach for one there is none.
        if terms.at_most is not None and 2.0 * track.elapsed() > terms.at_most:
            return self._decision(None, verdicts.no_time(track.elapsed(), terms.at_most), [])
        if terms.only and track.candidates:
            return self._confirm(track.candidates[0], {})
        if not track.candidates:
            reason = "No candidate was left to time." if track.dropped else "No candidate was given."
            return self._decision(None, reason, self._select())
        first = self.first = self._select()
        if not track.candidates:
            return self._decision(None, "No candidate survived the timing.", first)
        if track.stop():
            reason = "The final comparison was interrupted before anything was confirmed, so the original is kept."
            return self._decision(None, reason, first)
        return self._chosen(first)

    # --- choosing -----------------------------------------------------------------------------------------------------

    def _chosen(self, first: Sequence[Block]) -> GateDecision:
        """The best candidate of the first sample, confirmed or not."""
        track = self.track
        ratios = track.ratios(first)
        challenger = max(track.candidates, key=lambda name: ratios[name])
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
        return all(self.track.ratio(block, challenger) <= 0.0 for block in first)

    def _select(self) -> list[dict[str, Samples]]:
        """The first sample: baseline, candidates and what is timed beside; of large models one block, if the share of
        the time allows no more. Who falls behind is left out of the later ones.
        """
        track, seconds = self.track, self.terms.seconds
        blocks: list[dict[str, Samples]] = []
        for done in range(SELECTION_BLOCKS):
            blocks.append(track.block(track.alive, seconds * SELECTION_SHARE / SELECTION_BLOCKS))
            self._tell("selecting", done + 1, SELECTION_BLOCKS)
            if track.stop() or track.elapsed() >= max(SELECTION_SHARE * seconds, QUICK_SELECTION):
                break
            if track.is_short(LEAST_BLOCKS + 1, self.terms.for_least) or track.leaves_one(blocks):
                break
        out = set(track.dropped)
        return [{name: one for name, one in block.items() if name not in out} for block in blocks]

    def _confirm(self, challenger: str, first_sample: Mapping[str, float]) -> GateDecision:
        known = None if self.memory is None else self.memory.recall(challenger)
        if self.first and self._clock.is_short([] if known is None else known.ratios):
            assert self.terms.at_most is not None
            reason = verdicts.no_time(self.track.elapsed(), self.terms.at_most)
            return self._decision(None, reason, self.first, first_sample=first_sample)
        if known is not None and not known.decided:
            return self._compare(challenger, first_sample, known)
        if known is not None and known.seconds >= self.terms.seconds:
            repeated = self._check_again(challenger, first_sample, known)
            if repeated is not None:
                return repeated
        return self._compare(challenger, first_sample)

    # --- what is kept -------------------------------------------------------------------------------------------------

    def _check_again(self, challenger: str, first_sample: Mapping[str, float], known: Evidence) -> GateDecision | None:
        """The verdict of an earlier comparison, if fresh blocks do not contradict it; else it is thrown away."""
        assert self.memory is not None
        track = self.track
        track.other_orders(known.taken_at)
        blocks: list[dict[str, Samples]] = []
        fresh: list[float] = []
        while more_checks(known, fresh):
            names = [track.baseline, challenger, *track.beside]
            blocks.append(track.block(names, CHECK_SHARE * self.terms.seconds / CHECK_BLOCKS))
            if challenger in track.dropped:
                return self._failed(challenger, blocks, first_sample)
            if track.stop():
                return self._decision(None, verdicts.interrupted(len(blocks)), blocks, challenger, first_sample)
            fresh.append(track.ratio(blocks[-1], challenger))
            self._tell("checking", len(blocks), CHECK_BLOCKS, fresh)
        found = speedup([*known.ratios, *fresh])
        why = self._contradiction(known, fresh, found, blocks)
        if why is not None:
            self.memory.forget(challenger)
            self.earlier = plain(known, False, verdicts.thrown_away(known, why))
            return None
        self.earlier = plain(known, True, verdicts.repeated_note(known, len(fresh)))
        winner = challenger if known.claimed else None
        reason = verdicts.repeated(known, found, len(fresh))
        return self._decision(winner, reason, blocks, challenger, first_sample, found)

    def _contradiction(
        self, known: Evidence, fresh: Sequence[float], found: Speedup, blocks: Sequence[Block]
    ) -> str | None:
        """Why fresh blocks, by themselves or together with the kept ones, do not go with what is kept."""
        own = timing([block[self.track.baseline] for block in blocks], self.track.sampler.clock)
        why = contradiction(known, fresh, own.ms)
        if why is None and known.claimed and not (found.p_value < self.terms.alpha and found.value > 1.0):
            return f"together with {len(fresh)} fresh blocks it is not significant any more"
        return why

    def _failed(self, challenger: str, blocks: Sequence[Block], first_sample: Mapping[str, float]) -> GateDecision:
        reason = f"The chosen candidate failed while it was timed: {self.track.dropped[challenger]}"
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
            decision.timings[self.track.baseline].ms,
            decision.rounds + (0 if known is None else known.rounds),
            self.terms.seconds,
            now,
            decision.winner is not None or is_hopeless(values),
        )
        self.memory.keep(challenger, evidence)

    # --- the comparison -----------------------------------------------------------------------------------------------

    def _compare(
        self, challenger: str, first_sample: Mapping[str, float], known: Evidence | None = None
    ) -> GateDecision:
        """Add blocks, to those of an earlier comparison that was left undecided, until a claim is made and its figure
        is sharp, or it is hopeless, or the time is spent.
        """
        track, aim = self.track, AIM_OF_ONE if self.terms.only else AIM_BLOCKS
        left = max(self.terms.seconds - track.elapsed(), 0.0)
        values = [] if known is None else list(known.ratios)
        blocks: list[dict[str, Samples]] = []
        if known is not None:
            track.other_orders(known.taken_at)
        while not blocks or self._goes_on(values, len(blocks)):
            seconds = left / aim if self._is_claimed(values) else self._clock.seconds(values, left / aim)
            blocks.append(track.block([track.baseline, challenger, *track.beside], seconds))
            if challenger in track.dropped:
                return self._failed(challenger, blocks, first_sample)
            values.append(track.ratio(blocks[-1], challenger))
            track.weigh_beside(blocks)
            track.dismiss_beside(blocks, challenger)
            self._tell("confirming", len(blocks), aim, values)
        if known is not None:
            self.earlier = plain(known, True, verdicts.gone_on(known, len(blocks)))
        found = speedup(values)
        found = replace(found, p_value=corrected_p(values) if found.value > 1.0 else 1.0)
        winner = challenger if found.p_value <= self.terms.alpha else None
        reason = self._reason(found, is_hopeless(values))
        decision = self._decision(winner, reason, blocks, challenger, first_sample, found)
        self._keep(challenger, values, decision, known)
        return decision

    def _tell(self, what: str, done: int, total: int, ratios: Sequence[float] = ()) -> None:
        """``done`` blocks of about ``total`` are timed; ``ratios``: the logarithms so far."""
        so_far = math.exp(float(np.median(ratios))) if ratios else None
        self.on_progress(RaceProgress(what, done, total, so_far, max(total - done, 0) * self.track.latest))

    def _goes_on(self, values: Sequence[float], fresh: int) -> bool:
        """Whether there is another block after ``fresh`` ones of this run."""
        if self.track.stop():
            return False
        if self._is_claimed(values):
            return self._clock.may_sharpen(values)
        return not (is_hopeless(values) or self._clock.is_over(values, fresh))

    def _is_claimed(self, values: Sequence[float]) -> bool:
        return corrected_p(values) <= self.terms.alpha

    def _reason(self, found: Speedup, hopeless: bool) -> str:
        stopped, alpha = self.track.stop(), self.terms.alpha
        if found.p_value <= alpha:
            return verdicts.gain(found, stopped)
        if hopeless:
            return verdicts.no_gain(found, alpha, stopped)
        kept = self.memory is not None and _keeps(found)
        if found.pairs >= LEAST_BLOCKS:
            return verdicts.undecided(found, alpha, stopped, kept)
        if stopped:
            return verdicts.interrupted(found.pairs)
        return verdicts.too_few(found.pairs, self.track.elapsed(), self.terms.seconds, SELECTION_BLOCKS, kept)

    def _decision(
        self,
        winner: str | None,
        reason: str,
        blocks: Sequence[Block],
        challenger: str | None = None,
        first_sample: Mapping[str, float] | None = None,
        found: Speedup | None = None,
    ) -> GateDecision:
        track, clock = self.track, self.track.sampler.clock
        return GateDecision(
            winner,
            reason,
            clock,
            track.baseline,
            challenger,
            None if found is None else found.value,
            None if found is None else (found.low, found.high),
            None if found is None else found.p_value,
            timings(blocks, track.baseline, clock),
            first_sample or {},
            track.dropped,
            len(blocks),
            sum(len(block[track.baseline].wall_ms) for block in blocks),
            track.elapsed(),
            drift([block[track.baseline] for block in blocks], clock),
            track.stop(),
            self.earlier,
            {name: self._over(name, challenger or track.baseline, blocks) for name in self._beside},
        )

    def _over(self, name: str, other: str, blocks: Sequence[Block]) -> tuple[float, ...]:
        """By block with both, the logarithm of how many times as fast as ``name`` the ``other`` is."""
        clock = self.track.sampler.clock
        return tuple(ratio(block, name, other, clock) for block in blocks if name in block and other in block)


def _keeps(found: Speedup) -> bool:
    """Whether the blocks tell enough to be gone on with, or checked, by the next run."""
    return half_interval(found.low, found.high) <= TOO_WIDE
