"""How much a search may add to a model's rounding error, and what the steps of a trace spend of that.

Every rule carries its *growth*, measured when it was proved: how many times the float32 error of what it replaces the
error of what it puts there is. A model's error comes from all of its n operators that compute, so a step of growth g
adds (g - 1) / n of the model's own error; a tolerance of N lets the steps of a trace add N - 1 of it together.

Why shares. The errors of different operators add up, to first order, and a step replaces about one of them. A bound on
the bare sum of growths would count the fiftieth folded normalisation, whose rounding nobody can see, like the one
algorithm that matters; a bound on the largest growth would allow that algorithm everywhere or nowhere. With shares, N
means the same for the search as for the check of outputs: so many times the model's own error.
"""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rlflow.errors import UsageError
from rlflow.graph import Graph
from rlflow.ops import has_op, op_row

__all__ = ["LARGE", "RoundingBudget", "Tolerance", "read_tolerance"]

#: What may be said instead of a number.
NAMED = {"strict": 1.0, "normal": 10.0}
#: A rule of this growth or more rounds otherwise than a sum in another order does: its results are compared with
#: float64.
LARGE = 8.0
#: How runtimes treat operators that only move what is there.
_MOVING = frozenset({"source", "view", "movement"})
_ROUNDING = 1e-9


def read_tolerance(given: str | float) -> float:
    """The number that ``strict`` (1), ``normal`` (10) or a number stands for. Raises :class:`UsageError`."""
    try:
        limit = NAMED[given] if isinstance(given, str) and given in NAMED else float(given)
    except (TypeError, ValueError):
        limit = math.nan
    if not 1.0 <= limit < math.inf:
        raise UsageError(
            f"The tolerance is {given!r}; expected strict, normal, or a number from 1 on: how many times the model's "
            "own rounding error the result may have."
        )
    return limit


@dataclass(frozen=True)
class Tolerance:
    """``limit``: how many times a model's own rounding error the result may have. ``growths``: those of the rules."""

    limit: float
    growths: Mapping[str, float] = field(default_factory=dict)

    def growth(self, rule: str) -> float:
        """The growth of a rule; 1 for one that is not known."""
        return max(self.growths.get(rule, 1.0), 1.0)

    def on(self, graph: Any) -> RoundingBudget:
        """What may be spent on rewriting ``graph``."""
        return RoundingBudget(self, _computing(graph))


@dataclass(frozen=True)
class RoundingBudget:
    """The tolerance on a model of so many ``operators`` that compute."""

    tolerance: Tolerance
    operators: int

    def share(self, rule: str) -> float:
        """What one step of ``rule`` adds, in times the model's own error."""
        return (self.tolerance.growth(rule) - 1.0) / self.operators

    def spent(self, rules: Iterable[str]) -> float:
        """How many times the model's own error the result of these steps has at most, by the rules' growths."""
        return 1.0 + sum(map(self.share, rules))

    def allows(self, spent: Any) -> Any:
        """Whether so much, a number or an array, is within the tolerance."""
        return spent <= self.tolerance.limit * (1.0 + _ROUNDING)

    def bill(self, rules: Iterable[str]) -> dict[str, Any]:
        """``limit``, what was ``spent`` of it, and by which ``rules``: the dearest first, those that add nothing left
        out.
        """
        times = Counter(rules)
        rows = [
            {"rule": rule, "times": count, "growth": self.tolerance.growth(rule), "spent": count * self.share(rule)}
            for rule, count in times.items()
            if self.share(rule) > 0.0
        ]
        rows.sort(key=lambda row: (-float(row["spent"]), row["rule"]))  # type: ignore[arg-type]
        spent = self.spent(times.elements())
        return {"limit": self.tolerance.limit, "spent": spent, "operators": self.operators, "rules": rows}


def _computing(graph: Any) -> int:
    """Nodes that compute at run time: all but constants, views and what only moves data; one at least."""
    if not isinstance(graph, Graph):
        return max(int(graph.num_nodes), 1)
    return max(sum(_computes(graph.op(node)) and not graph.is_const(node) for node in graph.order()), 1)


@functools.cache
def _computes(operator: str) -> bool:
    return not has_op(operator) or op_row(operator)["fusion"] not in _MOVING
