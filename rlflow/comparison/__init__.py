"""Strategies against each other: equal budgets, several seeds, winners timed end to end, and no claim without proof.

Every search is a row of a JSON-lines file as soon as it is done, so that a comparison that was interrupted goes on
where it stopped. Where the cost model measures, all distinct winners of a model and the model itself are then timed
interleaved, with the sampler of the final gate (:mod:`rlflow.race.gate`): new process and new sessions for every block,
and the block is the unit of evidence.
"""

from __future__ import annotations

from rlflow.comparison.comparing import compare
from rlflow.comparison.differences import Comparison, Difference, differences, half_width

__all__ = ["Comparison", "Difference", "compare", "differences", "half_width"]
