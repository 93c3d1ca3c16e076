"""``--search levin``: chains of rewrites in the order of a learned policy; needs no extra."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from rlflow.errors import UsageError
from rlflow.search.budget import StopReason
from rlflow.search.lead import follow_the_formula
from rlflow.search.levin.chains import LevinOptions, LevinSearch
from rlflow.search.levin.trained import load_chains
from rlflow.search.problem import Problem
from rlflow.search.strategies import register
from rlflow.search.strategy_base import StrategyBase


@register
@dataclass(frozen=True)
class Levin(StrategyBase):
    """Looks for chains of rewrites that pay only together, the likeliest first by a policy that learnt from others, and
    by weights that know no rule.

    ``lead``: where prices are measured, the part of the budget after which it begins also where a search by the formula
    ends (``rlflow.search.lead``); 1: never. ``checkpoint``: the policy (default: the one that ships). ``alpha``: how
    many times as dear as the best a graph may be. ``chain``: longest run of rewrites without a gain. ``queue``:
    candidates kept. ``even``: part of the probability that all candidates of a step share alike, so that what the
    policy thinks little of is tried in the end. ``taught``: the policy's part of a chain's probability; the rest is
    that of the weights by hand.
    """

    lead: float = 0.4
    checkpoint: str = ""
    alpha: float = 1.05
    chain: int = 14
    queue: int = 4000
    even: float = 0.03
    taught: float = 0.5

    name: ClassVar[str] = "levin"
    patience_by_default: ClassVar[int | None] = 3000

    def __post_init__(self) -> None:
        inside = min(self.chain, self.queue) >= 1 and self.alpha >= 1.0 and self.lead >= 0.0
        if not (inside and 0.0 < self.even <= 1.0 and 0.0 < self.taught < 1.0):
            raise UsageError(
                f"The options of search strategy 'levin' are lead={self.lead:g}, alpha={self.alpha:g}, "
                f"chain={self.chain}, queue={self.queue}, even={self.even:g}, taught={self.taught:g}; expected a lead "
                "of at least 0, at least 1 of each of the next three, even above 0 and at most 1, and taught between "
                "0 and 1."
            )

    def ready(self) -> None:
        """Raises ModelError for a checkpoint that cannot be read."""
        load_chains(self.checkpoint or None)

    def search(self, problem: Problem, rng: np.random.Generator) -> StopReason:
        """Open the likeliest chain until none is left."""
        policy, known = load_chains(self.checkpoint or None)
        settings = LevinOptions(self.alpha, self.chain, self.queue, self.even, self.taught)
        run = LevinSearch(settings, policy.bound(known, problem.rule_names), problem)
        run.arrive(problem.root())
        led, left = self.lead >= 1.0, True
        while left or not led:
            if not led and (not left or problem.meter.fraction() >= self.lead):
                led = True
                end = follow_the_formula(problem)
                if end is not None:
                    run.arrive(end)
            left = run.step()
        return StopReason.CONVERGED if run.dropped else StopReason.EXHAUSTED
