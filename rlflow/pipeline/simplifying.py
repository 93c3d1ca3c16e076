"""The clean-up alone: import, folds that always pay, export, the check of outputs. No clock decides anything."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from rlflow.pipeline import found, loaded
from rlflow.pipeline.account import report
from rlflow.pipeline.checking import check
from rlflow.pipeline.context import Context
from rlflow.pipeline.loading import Loaded
from rlflow.pipeline.racing import Entrant, Raced
from rlflow.pipeline.searching import Found, settle_sizes
from rlflow.pipeline.writing import OptimizeResult, write

__all__ = ["BUDGET", "folding_rules", "simplify"]

#: Rules that make one node of several without more work at run time, on any machine: a family, and one of another.
FAMILY, BESIDE = "fold", ("linear", "linear-to-gemm")
#: The way down ends by itself; this is for models of many thousands of nodes.
BUDGET = "2000x"
#: Seconds for inputs beyond the usual ones: few rules change little.
CHECK_SECONDS = 0.3


def simplify(model: Any, context: Context) -> OptimizeResult:
    """The stages without a race: what is imported and folded is compared with the original, and written."""
    context.options = replace(context.options, cost="analytic", search="greedy", budget=BUDGET, rules=folding_rules())
    came = loaded(model, context)
    if came.library is None:
        best, raced = None, Raced(f"the model is carried through as it came: {came.imported.passthrough}")
    else:
        settle_sizes(came, context)
        best = found(came, context)
        raced = Raced("simplified; no clock was used", _entrant(came, best))
    with context.blaming_guesses():
        raced, checked = check(came, raced, context, CHECK_SECONDS)
    written = write(came, raced, context)
    told = report(came, best, raced, checked, written, context, context.stage.seconds())
    return OptimizeResult(told, written.make)


def _entrant(came: Loaded, best: Found) -> Entrant:
    visited = best.result.best  # also where it is only smaller
    return Entrant(visited, came.exports.export(visited.graph, visited.trace))


def folding_rules() -> Any:
    """The rules that make one node of several without more work at run time, on any machine."""
    from rlflow.rewrite import load_rules

    family, name = BESIDE
    library = load_rules(families=[FAMILY, family])
    return library.select([one for one, rule in library.items() if rule.family == FAMILY or one == name])
